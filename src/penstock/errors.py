"""The one tree of errors that Penstock raises on purpose.

An error carries fields; its text is built from them, so that callers and tests compare fields and
people read sentences. Anything else that escapes is a bug of ours.

The bottom of the package: it imports nothing of Penstock, and every module may import it.
"""

from __future__ import annotations

from typing import NamedTuple


class PenstockError(Exception):
    """Everything that Penstock raises on purpose."""


class InternalError(PenstockError):
    """An invariant of our own is broken: log, refuse, never continue."""


class UsageError(PenstockError):
    """An argument, option or request that cannot be served as it is."""


class FormatError(PenstockError):
    """Bytes that are not what the format says; `offset` is where, within what was being read."""

    def __init__(self, reason: str, *, offset: int = 0) -> None:
        super().__init__(f"{reason} (at byte {offset})")
        self.reason = reason
        self.offset = offset


class StoreError(PenstockError):
    """The root of what a store can answer."""


class RecordNotFound(StoreError, LookupError):
    """No message has this sequence (never had, or no longer)."""

    def __init__(self, seq: int, what: str = "no message with sequence") -> None:
        super().__init__(f"{what} {seq}")
        self.seq = seq


class LimitReached(StoreError):
    """A limit refuses the message; nothing was stored."""

    def __init__(self, limit: str, value: int) -> None:
        super().__init__(f"{limit} exceeded (limit {value})")
        self.limit = limit
        self.value = value


class SequenceOutOfOrder(StoreError):
    """A message came with a sequence that the stream has already passed."""

    def __init__(self, seq: int, last_seq: int) -> None:
        super().__init__(f"sequence {seq} is not above the last sequence {last_seq}")
        self.seq = seq
        self.last_seq = last_seq


class CorruptStore(StoreError):
    """Damage on disk: the one name for it, and where it is."""

    def __init__(self, path: str, offset: int, reason: str, *, seq: int | None = None) -> None:
        which = "" if seq is None else f", sequence {seq}"
        super().__init__(f"{path}: {reason} (offset {offset}{which})")
        self.path = path
        self.offset = offset
        self.reason = reason
        self.seq = seq


class UnsupportedVersion(StoreError):
    """A file of a newer format: refused and left untouched."""

    def __init__(self, path: str, found: int, supported: int) -> None:
        super().__init__(
            f"{path}: format version {found}, and this Penstock reads up to {supported}; "
            "nothing was changed"
        )
        self.path = path
        self.found = found
        self.supported = supported


class WrongKey(StoreError):
    """The store is encrypted and the key does not open it (or none was given)."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}; nothing was changed")
        self.path = path
        self.reason = reason


class StoreClosed(StoreError):
    """The store was stopped; it takes no more writes."""


class StoreReadOnly(StoreError):
    """A write or a sync failed, so the store refuses writes; `cause` is the system's word."""

    def __init__(self, path: str, cause: str) -> None:
        super().__init__(f"{path}: read-only since a failed write: {cause}")
        self.path = path
        self.cause = cause


class StoreLocked(StoreError):
    """Another process holds the store."""

    def __init__(self, path: str, pid: int | None) -> None:
        owner = "another process" if pid is None else f"process {pid}"
        super().__init__(f"{path}: in use by {owner}; stop it first, or read without opening")
        self.path = path
        self.pid = pid


class ErrorCode(NamedTuple):
    """One entry of the table `penstock.error_codes`."""

    code: int
    err_code: int
    description: str


class ApiError(PenstockError):
    """What JetStream refuses, with a code of `penstock.error_codes`.

        raise ApiError(error_codes.STREAM_WRONG_LAST_SEQUENCE, seq=5)

    `values` fill the placeholders of the entry's text, every one of them.
    """

    def __init__(self, entry: ErrorCode, **values: object) -> None:
        description = entry.description.format_map(values)
        super().__init__(f"{description} ({entry.err_code})")
        self.code = entry.code
        self.err_code = entry.err_code
        self.description = description

    def document(self) -> dict[str, int | str]:
        """Return the error as an answer has it."""
        return {"code": self.code, "err_code": self.err_code, "description": self.description}


class RequestRefused(PenstockError):
    """A request for messages that cannot be met; `status` and `reason` are the wire's."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{status} {reason}")
        self.status = status
        self.reason = reason


class InvalidDocument(PenstockError):
    """JSON from a client that cannot be used; `reason` is in the reference server's words."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class AuthorizationError(PenstockError):
    """A server refused who we said we are; `reason` is what it answered."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class BenchFailed(PenstockError):
    """A run did not come to its end; `reason` is what its load process ran into."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"the bench {what} failed: {reason}")
        self.what = what
        self.reason = reason


class QueryFailed(PenstockError):
    """A query that Spark began and could not end."""


class CannotConnect(PenstockError, ConnectionError):
    """A server cannot be reached; `reason` is the system's word for it."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"cannot connect to {host}:{port}: {reason}")
        self.host = host
        self.port = port
        self.reason = reason


class CannotLog(PenstockError, OSError):
    """The place for log lines cannot be opened; the text is in the reference server's words."""


class RefusedByServer(PenstockError):
    """A server complained of what it was sent; `reason` is its word for it."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the server refused: {reason}")
        self.reason = reason


class NoAnswer(PenstockError):
    """A request was not answered: there is no responder, or not in time."""


class ConfigError(PenstockError):
    """A configuration that cannot be used; `line` 0 means that the reason has no place."""

    def __init__(self, file: str, line: int, column: int, reason: str) -> None:
        super().__init__(f"{file}:{line}:{column}: {reason}" if line else reason)
        self.file = file
        self.line = line
        self.column = column
        self.reason = reason


class ConfigSyntaxError(ConfigError):
    """A file that is not in the configuration language; its text names the line itself."""

    def __init__(self, file: str, line: int, column: int, reason: str) -> None:
        super().__init__(file, line, column, reason)
        self.args = (reason,)


class InvalidConfiguration(ConfigError):
    """Everything that is wrong with a configuration, all at once; the fields are of the first."""

    def __init__(self, errors: tuple[ConfigError, ...], warnings: tuple[str, ...] = ()) -> None:
        first = errors[0] if errors else ConfigError("", 0, 0, warnings[0])
        super().__init__(first.file, first.line, first.column, first.reason)
        # The closing new line is part of what the reference server prints after such a list.
        self.args = ("".join(f"{one}\n" for one in (*warnings, *errors)),)
        self.errors = errors
        self.warnings = warnings


class CannotListen(PenstockError):
    """A port cannot be had; `reason` is the system's word for it."""

    def __init__(self, what: str, host: str, port: int, reason: str) -> None:
        super().__init__(f"cannot listen for {what} on {host}:{port}: {reason}")
        self.what = what
        self.host = host
        self.port = port
        self.reason = reason


class StreamOffline(PenstockError):
    """A stream on disk that cannot be served; nothing of it is changed."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}; the stream stays offline")
        self.path = path
        self.reason = reason
