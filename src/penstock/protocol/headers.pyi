FIRST_LINE: bytes

def stream_headers(headers: bytes) -> dict[bytes, bytes]:
    """Return the headers that mean something to a stream, by name, as compiled code finds them.

    Those of schedules are left out: only whether there are any counts.
    """

def value_of(headers: bytes, name: bytes) -> bytes | None:
    """Return the value of a header, which may be empty; None if it is not there."""

def without_status(headers: bytes) -> bytes:
    """Return headers without the status in the first line; b"" if there is nothing else."""

def without(headers: bytes, name: bytes) -> bytes:
    """Return headers without all of one name; b"" if there is no other."""

def without_prefix(headers: bytes, prefix: bytes) -> bytes:
    """Return headers without those whose names begin with a prefix; b"" if there is no other."""

def with_added(headers: bytes, name: bytes, value: bytes) -> bytes:
    """Return headers with one more behind the others."""

def with_value(headers: bytes, name: bytes, value: bytes) -> bytes:
    """Return headers with another value of one name, or with it behind the others."""
