"""The stage of the demo: headings, claims that are checked, and what was measured.

A claim that does not hold is shown as such and remembered: the demo then fails.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from penstock.clock import SystemClock


@dataclass(slots=True)
class Stage:
    """Where the demo plays, and what its checks have found."""

    console: Console
    folder: Path
    clock: SystemClock = field(default_factory=SystemClock)
    failed: list[str] = field(default_factory=list)
    parts: int = 0

    def heading(self, text: str) -> None:
        """Begin a part."""
        self.parts += 1
        self.console.print(f"\n{self.parts}. {text}", style="bold cyan")

    def check(self, holds: bool, claim: str) -> None:
        """Print a claim, and remember it if it does not hold."""
        mark, style = ("ok  ", "green") if holds else ("FAIL", "bold red")
        self.console.print(f"  {mark} {claim}", style=style)
        if not holds:
            self.failed.append(claim)

    def say(self, text: str) -> None:
        """Print a number or a fact."""
        self.console.print(f"       {text}")

    @contextlib.contextmanager
    def timed(self) -> Iterator[list[float]]:
        """Yield a list that holds the seconds taken, once the block is left."""
        taken: list[float] = []
        start_ns = self.clock.monotonic_ns()
        yield taken
        taken.append((self.clock.monotonic_ns() - start_ns) / 1e9)
