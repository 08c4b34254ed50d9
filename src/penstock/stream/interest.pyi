class Interest:
    """Nobody wants anything: what a stream without consumers has."""

    def wants(self, subject: bytes) -> bool:
        """Return True if a message that is about to be stored is for a consumer or a fed stream."""
