"""Figures that a test records, to be printed when it has passed."""

from __future__ import annotations

from collections.abc import Callable

Record = Callable[[str, int], None]
"""The type of pytest's fixture `record_property`, of a figure's name and its value."""
