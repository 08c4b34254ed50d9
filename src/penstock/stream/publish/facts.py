"""What the parts of a stream's publish path may read of the stream, and the rules that it has.

Thread: the event loop's. `Publishing` owns it, and alone replaces the configuration.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.clock import Clock
from penstock.store.filestore import FileStore
from penstock.stream.config.config import StreamConfig
from penstock.stream.publish.message_ids import MessageIds
from penstock.stream.publish.message_rules import MessageRules


class StreamFacts:
    """One stream, as its publish path sees it."""

    def __init__(
        self,
        config: StreamConfig,
        store: FileStore,
        clock: Clock,
        message_ids: MessageIds,
        rules: MessageRules,
        *,
        reserve: Callable[[int], None],
    ) -> None:
        """`reserve` takes bytes of what account and server have left, or raises ApiError."""
        self.config = config
        self.store = store
        self.now_ns = clock.now_ns
        self.message_ids = message_ids
        self.rules = rules
        self.reserve = reserve

    def configure(self, config: StreamConfig) -> None:
        """Go over to another configuration."""
        self.config = config
        self.rules.configure(config)
