def time_text(time_ns: int) -> bytes:
    """Return a time as RFC 3339 in UTC, without zeros at the end."""
