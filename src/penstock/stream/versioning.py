"""API levels: what a configuration needs of a server, kept in its metadata.

`_nats.req.level` is kept with a stream or consumer. `_nats.ver` and `_nats.level` tell of the
server that answers: they are never kept, only put into answers. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from penstock.stream.config import PersistModeType, StreamConfig

API_LEVEL: Final = 5
"""The newest level of the JetStream API that we know."""

REQUIRED_LEVEL_KEY: Final = "_nats.req.level"
SERVER_VERSION_KEY: Final = "_nats.ver"
SERVER_LEVEL_KEY: Final = "_nats.level"

_LEVEL: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


def required_level(config: StreamConfig) -> int:
    """Give the lowest level of a server that can keep such a stream."""
    if config.allow_batched:
        return 4
    if (
        config.allow_msg_counter
        or config.allow_atomic
        or config.allow_msg_schedules
        or config.persist_mode is PersistModeType.ASYNC
    ):
        return 2
    return 1 if config.allow_msg_ttl or config.subject_delete_marker_ttl > 0 else 0


def with_required_level(config: StreamConfig) -> StreamConfig:
    """Put the required level into the metadata, and take out what is for answers only."""
    return replace(config, metadata=kept_metadata(config.metadata, required_level(config)))


def with_level_of(config: StreamConfig, other: StreamConfig) -> StreamConfig:
    """Take over the required level of another configuration, so that it makes no difference."""
    return replace(config, metadata=metadata_with_level_of(config.metadata, other.metadata))


def for_answer(config: StreamConfig, server_version: str) -> StreamConfig:
    """Add what answers tell of the server."""
    return replace(config, metadata=answered_metadata(config.metadata, server_version))


def kept_metadata(metadata: Mapping[str, str], level: int) -> dict[str, str]:
    """Give the metadata that is kept: with the required level, without what is for answers only."""
    return _without_server(metadata) | {REQUIRED_LEVEL_KEY: str(level)}


def metadata_with_level_of(metadata: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    """Give kept metadata with the required level of another's, or without one as that has none."""
    kept = _without_server(metadata)
    kept.pop(REQUIRED_LEVEL_KEY, None)
    if REQUIRED_LEVEL_KEY in other:
        kept[REQUIRED_LEVEL_KEY] = other[REQUIRED_LEVEL_KEY]
    return kept


def answered_metadata(metadata: Mapping[str, str], server_version: str) -> dict[str, str]:
    """Give metadata as answers show it: with what they tell of the server."""
    told = {SERVER_VERSION_KEY: server_version, SERVER_LEVEL_KEY: str(API_LEVEL)}
    return dict(metadata) | told


def is_supported(metadata: Mapping[str, str]) -> bool:
    """Tell whether we can serve a stream or consumer that was kept with this metadata."""
    level = metadata.get(REQUIRED_LEVEL_KEY, "")
    return not level or is_level_known(level)


def is_level_known(level: str) -> bool:
    """Tell whether a level that somebody asks for is one of ours."""
    return _LEVEL.fullmatch(level) is not None and int(level) <= API_LEVEL


def _without_server(metadata: Mapping[str, str]) -> dict[str, str]:
    told = (SERVER_VERSION_KEY, SERVER_LEVEL_KEY)
    return {key: value for key, value in metadata.items() if key not in told}
