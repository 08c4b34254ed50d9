from penstock.store.log.fast_append import Appender
from penstock.store.log.fast_scan import Scanner
from penstock.subjects import SubjectFilter

class Copier:
    """The quick way from one store into another."""

    def __init__(self, origin: Scanner, target: Appender) -> None: ...
    def copy_placed(
        self, subjects: SubjectFilter, seq: int, until: int, *, count_max: int, bytes_max: int
    ) -> int:
        """Copy messages with sequences and times, from `seq` on; give the last sequence, or 0."""
    def copy_marked(
        self,
        subjects: SubjectFilter,
        seq: int,
        until: int,
        before: bytes,
        between: bytes,
        after: bytes,
        *,
        count_max: int,
        bytes_max: int,
    ) -> int:
        """Copy messages under the next sequences, each with a header more; give the last, or 0.

        The header is `before`, the sequence in the origin, `between`, the subject, and `after`.
        """
