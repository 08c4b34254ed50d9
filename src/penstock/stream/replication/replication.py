"""The feeds of an account: which of its streams are filled from which origins.

An origin need not exist: a feed waits for it, is connected when it is created and waits again when
it is deleted. A change of a stream's configuration leaves unaffected feeds alone.

Thread: the event loop's. `AccountStreams` calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from penstock import error_codes
from penstock.errors import ApiError
from penstock.routing.sublist import Sublist
from penstock.stream.info import StreamSourceInfo
from penstock.stream.replication.feed import Feed
from penstock.stream.replication.mirror import Mirror
from penstock.stream.replication.remote_api import AccountApi, RemoteApi
from penstock.stream.replication.remote_reader import OriginAddress, Refusals, RemoteReader
from penstock.stream.replication.source import Source
from penstock.stream.replication.source_positions import SourcePositions
from penstock.stream.replication.store_reader import StoreReader

if TYPE_CHECKING:
    from penstock.stream.stream import Stream, StreamHost

_MIRROR_REFUSALS: Final = Refusals(
    error_codes.MIRROR_CONSUMER_SETUP_FAILED, error_codes.MIRROR_CONSUMER_REQUIRES_ACK_FC
)
_SOURCE_REFUSALS: Final = Refusals(
    error_codes.SOURCE_CONSUMER_SETUP_FAILED, error_codes.SOURCE_CONSUMER_REQUIRES_ACK_FC
)


class StreamFeeds:
    """The feeds of one stream."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.mirror: Mirror | None = None
        self.sources: list[Source] = []
        self._positions: SourcePositions | None = None

    def __iter__(self) -> Iterator[Feed]:
        if self.mirror is not None:
            yield self.mirror
        yield from self.sources

    def configure(self) -> tuple[list[Feed], list[Feed]]:
        """Follow the stream's configuration; return the feeds that begin, and those that end."""
        config = self.stream.config
        begun: list[Feed] = []
        ended: list[Feed] = []
        if self.mirror is not None and self.mirror.origin != config.mirror:
            ended.append(self.mirror)
            self.mirror = None
        if self.mirror is None and config.mirror is not None:
            self.mirror = Mirror(self.stream, config.mirror)
            begun.append(self.mirror)
        before = {source.origin: source for source in self.sources}
        new = [Source(self.stream, each) for each in config.sources if each not in before]
        by_origin = before | {source.origin: source for source in new}
        self.sources = [by_origin[each] for each in config.sources]
        self._keep_positions(new)
        kept = set(config.sources)
        ended += [source for source in before.values() if source.origin not in kept]
        return begun + new, ended

    def _keep_positions(self, new: list[Source]) -> None:
        if self._positions is not None:
            self._positions.follow(self.sources)
        elif self.sources:
            self._positions = SourcePositions(self.stream)
            self._positions.recover(self.sources)
        if self._positions is not None:
            for source in new:
                source.on_progress = self._positions.note

    def stop(self, *, is_deleted: bool) -> None:
        """Take no more messages."""
        for feed in self:
            feed.stop()
        if self._positions is not None:
            self._positions.stop(is_deleted=is_deleted)


class Replication:
    """One account's feeds; see the module."""

    def __init__(self, host: StreamHost, sublist: Sublist, streams: Mapping[str, Stream]) -> None:
        """`streams` are those of the account, as they come and go."""
        self._host = host
        self._account_api = AccountApi(host.hub, sublist)
        self.remote_apis: Mapping[str, RemoteApi] = {}
        """Connections to other servers, by the names that origins have for them."""

        self._streams = streams
        self._fed: dict[str, StreamFeeds] = {}
        self._by_origin: dict[str, list[Feed]] = {}

    # Streams that are opened, changed and closed

    def opened(self, stream: Stream) -> None:
        """Feed an opened stream, and connect the feeds that waited for it."""
        self._configure(stream)
        for feed in self._by_origin.get(stream.name, ()):
            self._connect(feed)

    def changed(self, stream: Stream) -> None:
        """Feed a stream according to its new configuration."""
        self._configure(stream)

    def closed(self, stream: Stream) -> None:
        """End the feeds of a deleted stream; feeds from it wait."""
        feeds = self._fed.pop(stream.name, None)
        if feeds is not None:
            feeds.stop(is_deleted=True)
            for feed in feeds:
                self._by_origin[feed.origin.name].remove(feed)
        for feed in filter(self._is_near, self._by_origin.get(stream.name, ())):
            feed.stop()
            feed.error = ApiError(error_codes.STREAM_NOT_FOUND)

    def stop(self) -> None:
        """End all feeds."""
        for feeds in self._fed.values():
            feeds.stop(is_deleted=False)
        self._fed.clear()
        self._by_origin.clear()

    def _configure(self, stream: Stream) -> None:
        feeds = self._fed.get(stream.name)
        if feeds is None:
            if stream.config.mirror is None and not stream.config.sources:
                return
            feeds = self._fed[stream.name] = StreamFeeds(stream)
        begun, ended = feeds.configure()
        for feed in ended:
            feed.stop()
            self._by_origin[feed.origin.name].remove(feed)
        for feed in begun:
            self._by_origin.setdefault(feed.origin.name, []).append(feed)
            self._connect(feed)

    def _connect(self, feed: Feed) -> None:
        if feed.reader is not None:
            return
        if not self._is_near(feed):
            feed.reader = self._remote_reader(feed)
            return
        origin = self._streams.get(feed.origin.name)
        if origin is None:
            feed.error = ApiError(error_codes.STREAM_NOT_FOUND)
        else:
            feed.reader = StoreReader(feed, origin)

    def _is_near(self, feed: Feed) -> bool:
        """Return True if the origin's store can be read: the origin is of this account and domain.

        An origin with a named consumer is read through that.
        """
        external = feed.origin.external
        is_here = external is None or external.api == f"$JS.{self._host.domain}.API"
        return is_here and feed.origin.consumer is None

    def _remote_reader(self, feed: Feed) -> RemoteReader:
        external = feed.origin.external
        is_mirror = isinstance(feed, Mirror)
        refusals = _MIRROR_REFUSALS if is_mirror else _SOURCE_REFUSALS
        if external is None:
            return RemoteReader(feed, OriginAddress(self._account_api, "$JS.API", "$JS"), refusals)
        tokens = external.api.split(".")
        remote = self.remote_apis.get(tokens[1]) if tokens[::2] == ["$JS", "API"] else None
        if remote is not None:
            return RemoteReader(feed, OriginAddress(remote, "$JS.API", "_INBOX"), refusals)
        deliver = f"{external.deliver or '$JS'}.{'M' if is_mirror else 'S'}"
        return RemoteReader(feed, OriginAddress(self._account_api, external.api, deliver), refusals)

    # State

    def mirror_info(self, stream: Stream) -> StreamSourceInfo | None:
        """Return the state of a mirror; None for a stream that is not one."""
        feeds = self._fed.get(stream.name)
        return feeds.mirror.info() if feeds is not None and feeds.mirror is not None else None

    def sources_info(self, stream: Stream) -> tuple[StreamSourceInfo, ...]:
        """Return the states of a stream's sources."""
        feeds = self._fed.get(stream.name)
        return tuple(source.info() for source in feeds.sources) if feeds is not None else ()
