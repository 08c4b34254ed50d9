from collections.abc import Callable
from typing import Generic, TypeVar, final

import msgspec

from penstock.text.json.write import Encoded

_C = TypeVar("_C", bound=msgspec.Struct)

@final
class ShownConfigs(Generic[_C]):
    """The JSON of configurations of one class, encoded once."""

    def __init__(self, for_answer: Callable[[_C, str], _C]) -> None:
        """`for_answer(config, version)` adds what answers about a single one say of the server."""

    def listed(self, config: _C) -> Encoded:
        """Return a configuration as it is kept, and as lists show it."""

    def answered(self, config: _C, version: str) -> Encoded:
        """Return a configuration as an answer about it alone shows it, with the version."""
