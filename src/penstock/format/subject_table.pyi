"""Every subject of a stream with its count, its newest sequence and where to look for it."""

from typing_extensions import Buffer, disjoint_base

from penstock.subjects import SubjectFilter

@disjoint_base
class SubjectTable:
    """Subjects by name; see the module."""

    @property
    def used(self) -> int:
        """Subjects held, those without messages included."""
        ...

    @property
    def live(self) -> int:
        """Subjects that have live messages."""
        ...

    def matching(self, subject_filter: SubjectFilter) -> bytes:
        """Return the items with live messages that a filter matches, as packed uint32."""
        ...
    def count(self, subject: bytes) -> int:
        """Return the number of live messages of one subject."""
        ...
    def name(self, item: int) -> bytes:
        """Return an item's subject."""
        ...
    def totals(self, subject_filter: SubjectFilter) -> dict[bytes, int]:
        """Return {subject: live messages} for a filter."""
        ...
    def total(self, subject_filter: SubjectFilter) -> int:
        """Return the number of live messages that a filter matches."""
        ...
    def memory_bytes(self) -> int:
        """Return how many bytes of memory the table holds."""
        ...
    def clear(self) -> None:
        """Forget every subject."""
        ...
    def drop_ghosts(self) -> None:
        """Free the memory of subjects without messages, when they are the larger part."""
        ...
    def encode(self) -> bytes:
        """Encode the subjects that have messages: a checkpoint's section."""
        ...
    def decode_into(self, data: Buffer) -> int:
        """Add what `encode` gave; returns the bytes used. Raises FormatError."""
        ...
