"""The command line, read as Go's flag package reads it.

One dash or two, `-p 4222` or `-p=4222`, booleans without a value or as `-js=false`. The first word
that is no flag ends the flags. Flags follow from the options that declare them; a few that are no
options are declared here.

    parse_flags(["-js", "-sd", "/data", "-p", "-1"])

Pure: opens nothing, prints nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import Final

import msgspec

from penstock.config.options.authorization import AuthorizationOptions
from penstock.config.options.clusters import ClusterOptions
from penstock.config.options.declare import Block, fields_of, options_of
from penstock.config.options.jetstream import JetStreamOptions
from penstock.config.options.server import ServerOptions
from penstock.config.options.tls import CIPHER_SUITES, CURVES, TlsOptions
from penstock.errors import ConfigError, UsageError
from penstock.text.quoting import quoted

FlagValue = bool | int | str

_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_NUMBER: Final = re.compile(
    r"[+-]?(0[xX](_?[0-9a-fA-F])+|0[bB](_?[01])+|0[oO](_?[0-7])+|0(_?[0-7])*|[1-9](_?[0-9])*)"
)
_INT_MAX: Final = 2**63 - 1


class Action(Enum):
    """What the command line asks for."""

    RUN = auto()
    CHECK = auto()
    SIGNAL = auto()
    HELP = auto()
    HELP_TLS = auto()
    VERSION = auto()


class Flag(msgspec.Struct, frozen=True):
    """One flag under all its names; `target` is the option that it sets, or a word of its own."""

    names: tuple[str, ...]
    kind: type[bool] | type[int] | type[str]
    target: str
    group: str
    placeholder: str
    doc: str


class SignalRequest(msgspec.Struct, frozen=True):
    """A signal for a running server; `target` is a pid, a pid file, or "" for the only one."""

    command: str
    target: str


class FlagResult(msgspec.Struct, frozen=True):
    """What the command line says: values by target, in the order in which they were given."""

    action: Action
    values: dict[str, FlagValue]
    signal: SignalRequest | None = None

    @property
    def config_file(self) -> str:
        """The configuration file, "" if none is named."""
        return str(self.values.get("config_file", ""))


_GROUPS: Final = ("Server", "Logging", "JetStream", "Authorization", "TLS", "Cluster", "Common")
_LOGGING: Final = frozenset(
    {"log_file", "logtime", "logtime_utc", "syslog", "remote_syslog", "debug", "trace",
     "log_size_limit", "max_traced_msg_len"}
)  # fmt: skip
_BLOCKS: Final[tuple[tuple[str, str, type[Block]], ...]] = (
    ("", "Server", ServerOptions),
    ("jetstream.", "JetStream", JetStreamOptions),
    ("authorization.", "Authorization", AuthorizationOptions),
    ("tls.", "TLS", TlsOptions),
    ("cluster.", "Cluster", ClusterOptions),
)
_OWN: Final = (
    Flag(("-c", "--config"), str, "config_file", "Server", "file", "Configuration file."),
    Flag(("-t",), bool, "check", "Server", "", "Check the configuration file and exit."),
    Flag(
        ("-sl", "--signal"), str, "signal", "Server", "signal[=pid]",
        "Signal a running server: ldm, stop, quit, term, reopen or reload; pid may be a pid file.",
    ),
    Flag(("-VV",), bool, "VV", "Logging", "", "Trace, the system account too."),
    Flag(("-DV",), bool, "DV", "Logging", "", "Debug and trace."),
    Flag(("-DVV",), bool, "DVV", "Logging", "", "Debug and trace, the system account too."),
    Flag(("--tls",), bool, "tls", "TLS", "", "Use TLS; --tls=false turns it off."),
    Flag(
        ("--cluster", "--cluster_listen"), str, "cluster_listen", "Cluster", "url",
        "Address for other servers, as nats://user:password@host:port.",
    ),
    Flag(("-h", "--help"), bool, "help", "Common", "", "Show this text."),
    Flag(("-v", "--version"), bool, "version", "Common", "", "Show the version."),
    Flag(("--help_tls",), bool, "help_tls", "Common", "", "Show what TLS can be told."),
)  # fmt: skip


def _declared() -> Iterator[Flag]:
    for prefix, group, block in _BLOCKS:
        infos = options_of(block)
        for field in fields_of(block):
            info = infos[field.name]
            if not info.flags:
                continue
            kind = type(field.default)
            yield Flag(
                info.flags,
                kind if kind in (bool, int) else str,
                prefix + field.name,
                "Logging" if field.name in _LOGGING else group,
                info.placeholder,
                info.doc,
            )


FLAGS: Final = (*_declared(), *_OWN)
"""Every flag, once."""

_BY_NAME: Final = {name.lstrip("-"): flag for flag in FLAGS for name in flag.names}


def parse_flags(arguments: Sequence[str]) -> FlagResult:
    """Read a command line without the program's name.

    Raises UsageError for what is no flag or no value of one, and ConfigError for what is wrong
    otherwise.
    """
    values: dict[str, FlagValue] = {}
    rest = list(arguments)
    while rest and len(rest[0]) > 1 and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        name, value = _read_flag(word, rest)
        # A flag that is given twice has the position of the last.
        values.pop(name, None)
        values[name] = value
    action = _action(values, rest)
    if action is not Action.SIGNAL:
        return FlagResult(action, values)
    return FlagResult(action, values, _signal(str(values["signal"])))


def _read_flag(word: str, rest: list[str]) -> tuple[str, FlagValue]:
    body = word[2:] if word.startswith("--") else word[1:]
    if not body or body[0] in "-=":
        raise UsageError(f"bad flag syntax: {word}")
    name, has_value, text = body.partition("=")
    flag = _BY_NAME.get(name)
    if flag is None:
        raise UsageError(f"flag provided but not defined: -{name}")
    if flag.kind is bool:
        return flag.target, _boolean(name, text) if has_value else True
    if not has_value:
        if not rest:
            raise UsageError(f"flag needs an argument: -{name}")
        text = rest.pop(0)
    return flag.target, _integer(name, text) if flag.kind is int else text


def _boolean(name: str, text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise UsageError(f"invalid boolean value {quoted(text)} for -{name}: parse error")


def _integer(name: str, text: str) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise UsageError(f"invalid value {quoted(text)} for flag -{name}: parse error")
    sign = -1 if text[0] == "-" else 1
    digits = text.lstrip("+-").lower().replace("_", "")
    is_old_octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdecimal()
    number = sign * int(digits, 8 if is_old_octal else 0)
    if not -_INT_MAX - 1 <= number <= _INT_MAX:
        raise UsageError(f"invalid value {quoted(text)} for flag -{name}: value out of range")
    return number


def _action(values: dict[str, FlagValue], rest: list[str]) -> Action:
    for name, action in (
        ("version", Action.VERSION),
        ("help", Action.HELP),
        ("help_tls", Action.HELP_TLS),
    ):
        if values.get(name):
            return action
    if rest:
        if rest[0].lower() == "version":
            return Action.VERSION
        if rest[0].lower() == "help":
            return Action.HELP
        raise ConfigError("", 0, 0, f"unrecognized command: {quoted(rest[0])}")
    if values.get("signal"):
        return Action.SIGNAL
    return Action.CHECK if values.get("check") else Action.RUN


def _signal(text: str) -> SignalRequest:
    parts = text.split("=")
    if len(parts) > 2:
        raise ConfigError("", 0, 0, f"invalid signal parameters: [{' '.join(parts[2:])}]")
    return SignalRequest(parts[0], parts[1] if len(parts) == 2 else "")


_HELP_START: Final = """\
Usage: penstock-server [options]

Takes the flags and configuration files of nats-server. What a flag says counts more than what the
file says. A flag may have one dash or two, and its value after a space or `=`.

    penstock-server                          clients on port 4222
    penstock-server -js -sd /var/lib/nats    with streams, kept in that folder
    penstock-server -p -1 -m 8222            on any free port, with monitoring pages
    penstock-server -c server.conf -t        is the file good?
"""
_HELP_COLUMN: Final = 38


def help_text() -> str:
    """Return the text that --help shows."""
    lines = [_HELP_START.rstrip("\n")]
    for group in _GROUPS:
        lines += ["", f"{group} options:"]
        lines += [_help_line(flag) for flag in FLAGS if flag.group == group]
    return "\n".join(lines) + "\n"


def _help_line(flag: Flag) -> str:
    names = ", ".join(flag.names)
    placeholder = f" <{flag.placeholder}>" if flag.placeholder else ""
    start = f"    {names}{placeholder}"
    if len(start) >= _HELP_COLUMN:
        return f"{start}\n{' ' * _HELP_COLUMN}{flag.doc}"
    return f"{start:<{_HELP_COLUMN}}{flag.doc}"


def tls_help_text() -> str:
    """Return the text that --help_tls shows: what a tls block may hold."""
    lines = ["TLS is configured in a tls block of the configuration file:", "", "    tls {"]
    lines += ['        cert_file: "server-cert.pem"', '        key_file: "server-key.pem"']
    lines += ['        ca_file: "ca.pem"', "        verify: true", "    }", "", "Its keys:"]
    for info in options_of(TlsOptions).values():
        lines.append(f"    {', '.join(info.keys):<{_HELP_COLUMN - 4}}{info.doc}")
    lines += ["", "Cipher suites:", *(f"    {name}" for name in CIPHER_SUITES)]
    lines += ["", "Curves:", *(f"    {name}" for name in CURVES)]
    return "\n".join(lines) + "\n"
