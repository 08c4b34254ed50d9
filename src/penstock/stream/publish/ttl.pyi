def parse_ttl(text: bytes) -> int:
    """Return the seconds of a TTL: 0 for none, -1 for ever. Raise ApiError."""
