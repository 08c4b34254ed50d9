FIRST_LINE: bytes

def value_of(headers: bytes, name: bytes) -> bytes | None:
    """Give the value of a header, which may be empty; None where it is not there."""

def without_status(headers: bytes) -> bytes:
    """Take the status out of the first line; nothing is left where there is nothing else."""

def without(headers: bytes, name: bytes) -> bytes:
    """Take a header out, as often as it is there; nothing is left where there is no other."""

def without_prefix(headers: bytes, prefix: bytes) -> bytes:
    """Take out all headers whose names begin alike."""

def with_added(headers: bytes, name: bytes, value: bytes) -> bytes:
    """Add a header behind the others."""

def with_value(headers: bytes, name: bytes, value: bytes) -> bytes:
    """Give a header another value where it stands, or add it behind the others."""
