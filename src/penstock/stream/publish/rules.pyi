from collections.abc import Callable

from penstock.store.filestore import FileStore
from penstock.store.log.fast_append import Appender
from penstock.stream.config.config import StreamConfig
from penstock.stream.publish.message_ids import MessageIds

class Rules:
    """The rules of one stream."""

    def __init__(
        self,
        config: StreamConfig,
        store: FileStore,
        message_ids: MessageIds,
        *,
        read_ids: Callable[[], None],
        payload_bytes_max: Callable[[], int],
    ) -> None:
        """`read_ids()` reads the ids from before a restart, as far as they are not known yet.

        `payload_bytes_max()` returns the size of the largest message that a client may publish.
        """
    def configure(self, config: StreamConfig) -> None:
        """Go over to another configuration of the stream."""
    def attach(self, appender: Appender) -> None:
        """Look into this store from now on."""
