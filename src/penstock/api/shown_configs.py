"""Configurations of streams and consumers as answers show them, encoded once.

A configuration never changes, so its JSON is made for the first answer and kept for later ones, for
as long as there is room: it is most of what there is to write of a stream or consumer.

Thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from penstock.limits import SHOWN_CONFIGS_BYTES_MAX
from penstock.text.json.codec import encode
from penstock.text.json.write import Encoded

C = TypeVar("C", bound=msgspec.Struct)


class ShownConfigs(Generic[C]):
    """The JSON of configurations of one class; see the module."""

    def __init__(self, for_answer: Callable[[C, str], C]) -> None:
        """`for_answer(config, version)` adds what answers about a single one say of the server."""
        self._for_answer = for_answer
        self._listed = _Kept[C]()
        self._answered: dict[str, _Kept[C]] = {}

    def listed(self, config: C) -> Encoded:
        """Return a configuration as it is kept, and as lists show it."""
        # Asked for each of a list: one look, and no call.
        found = self._listed.found.get(id(config))
        return self._listed.keep(config, config) if found is None else found[1]

    def answered(self, config: C, version: str) -> Encoded:
        """Return a configuration as an answer about it alone shows it, with the version."""
        kept = self._answered.get(version)
        if kept is None:
            kept = self._answered[version] = _Kept[C]()
        found = kept.find(config)
        return kept.keep(config, self._for_answer(config, version)) if found is None else found


class _Kept(Generic[C]):
    """JSON by the identity of configurations, which are kept with it."""

    def __init__(self) -> None:
        self.found: dict[int, tuple[C, Encoded]] = {}
        self._bytes = 0

    def find(self, config: C) -> Encoded | None:
        """Return the JSON of a configuration, or None."""
        found = self.found.get(id(config))
        return None if found is None else found[1]

    def keep(self, config: C, shown: C) -> Encoded:
        """Encode what is shown of a configuration, and keep it if there is room."""
        encoded = Encoded(encode(shown))
        size = len(encoded.text)
        if self._bytes + size > SHOWN_CONFIGS_BYTES_MAX:
            self.found.clear()
            self._bytes = 0
        if size <= SHOWN_CONFIGS_BYTES_MAX:
            self.found[id(config)] = (config, encoded)
            self._bytes += size
        return encoded
