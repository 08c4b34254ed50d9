"""The message ids from before a restart: those of the messages that are within the window.

Called on the event loop's thread.
"""

from __future__ import annotations

from penstock.errors import RecordNotFound, StoreError
from penstock.store.block_files import StoredMessage
from penstock.store.filestore import FileStore
from penstock.stream.headers import value_of
from penstock.stream.message_ids import MessageIds
from penstock.stream.messages import MESSAGE_ID


def recover(message_ids: MessageIds, store: FileStore, now_ns: int) -> None:
    """Read the ids of what was stored within the window."""
    message_ids.is_ready = True
    if message_ids.window_ns <= 0:
        return
    last_seq = store.last_seq
    seq = store.seq_from_time(now_ns - message_ids.window_ns)
    while seq <= last_seq:
        message = _message_from(store, seq)
        if message is None:
            return
        message_id = value_of(message.headers, MESSAGE_ID) if message.headers else None
        if message_id:
            message_ids.remember(message_id, message.seq, message.timestamp_ns)
        seq = message.seq + 1


def _message_from(store: FileStore, seq: int) -> StoredMessage | None:
    """Give the first whole message from a sequence on; most sequences have one."""
    try:
        return store.load(seq)
    except StoreError:
        try:
            return store.load_next(seq)
        except RecordNotFound:
            return None
