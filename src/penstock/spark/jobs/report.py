"""What a job says at its end: the same facts for people, programs and the exit code. Pure."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True):
    """Something that is not as it should be: of which kind, where, and what."""

    kind: str
    where: str
    what: str


class Report(msgspec.Struct):
    """What a job did, or with `dry_run` would do."""

    job: str
    of: str
    """What it worked on: a stream, a directory, an archive."""

    dry_run: bool = False
    parts: int = 0
    parts_skipped: int = 0
    """Parts that an earlier run had done already."""

    counts: dict[str, int] = msgspec.field(default_factory=dict)
    outputs: list[str] = msgspec.field(default_factory=list)
    findings: list[Finding] = msgspec.field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """Give 1 where something was found, else 0."""
        return 1 if self.findings else 0

    def add(self, **counts: int) -> None:
        """Add to the counts."""
        for name, value in counts.items():
            self.counts[name] = self.counts.get(name, 0) + value
