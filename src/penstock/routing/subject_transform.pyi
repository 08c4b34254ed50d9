from penstock.routing.transform_functions import RandomBelow

def fnv1a(data: bytes) -> int:
    """Return the 32-bit FNV-1a hash."""

class SubjectTransform:
    """One source and one destination; see the module.

    Raises UsageError where the destination does not fit the source. A `reversible` transform may
    use nothing but wildcards, and must use them all.
    """

    @property
    def source(self) -> str: ...
    @property
    def destination(self) -> str: ...
    def __init__(self, source: str, destination: str, *, reversible: bool = False) -> None: ...
    def selects(self, subject: bytes) -> bool:
        """Return True if the source matches a subject.

        A wildcard token in the subject is matched by the same or a wider wildcard only, and `*`
        does not match an empty token.
        """
    def apply(self, subject: bytes, random_below: RandomBelow) -> bytes:
        """Return the new subject for one that the source matches."""
    def find(self, subject: bytes, random_below: RandomBelow) -> bytes | None:
        """Return the new subject; None if the source does not match a literal `subject`."""
