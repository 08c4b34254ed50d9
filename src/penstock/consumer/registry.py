"""The consumers of one stream.

`StreamConsumers` creates, finds, changes, removes and wakes the consumers of one stream. It is what
the stream knows of them (`stream.consumers_port`). A change is in force at once, and returned is
what to wait for before a client hears of it.

Invariants: the configuration of a consumer with a folder is on stable storage, in the account's
journal or in the folder, before a client hears of the consumer. A consumer whose folder cannot be
read stays offline with its reason, and its folder is not touched; what a crash has left of one that
nobody was told of is removed. A message that has become durable wakes only consumers that could
deliver it.

Thread: the event loop's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from penstock import error_codes
from penstock.clock import AgeClock
from penstock.consumer.ack_receiver import StreamAckReceiver
from penstock.consumer.config.config import ConsumerConfig
from penstock.consumer.consumer import Consumer
from penstock.consumer.extensions.options import key_token
from penstock.consumer.folder import CONSUMERS_NAME, ConsumerDocument, ConsumerFolder
from penstock.consumer.folders import ConsumerFolders
from penstock.consumer.journal import Recovered
from penstock.consumer.progress import Start, find_start
from penstock.consumer.pull_delivery import DELETED_REASON
from penstock.consumer.push_delivery import FLOW_PREFIX, PushTarget
from penstock.consumer.retention import Retention
from penstock.consumer.state_writer import StateWriter
from penstock.errors import ApiError, PenstockError
from penstock.format.state.consumer import ConsumerState
from penstock.limits import PENDING_LOOKED_FOR_AT_ONCE
from penstock.routing.interest import InterestWatch
from penstock.store.reopening import renew
from penstock.stream.changes import Change, both
from penstock.stream.config.config import RetentionPolicy, StorageType
from penstock.stream.config.requests import ConsumerBounds
from penstock.stream.interest import Interest
from penstock.stream.stream import Stream
from penstock.subjects import SubjectFilter
from penstock.text.times import Instant

ACK_PREFIX = "$JS.ACK."
NEXT_PREFIX = "$JS.API.CONSUMER.MSG.NEXT."


class _Configs(Mapping[str, ConsumerConfig]):
    """The configurations of consumers, without a copy of all for each new one."""

    def __init__(self, consumers: Mapping[str, Consumer]) -> None:
        self._consumers = consumers

    def __getitem__(self, name: str) -> ConsumerConfig:
        return self._consumers[name].config

    def __iter__(self) -> Iterator[str]:
        return iter(self._consumers)

    def __len__(self) -> int:
        return len(self._consumers)


class Unkept(NamedTuple):
    """A new consumer that is not on stable storage yet."""

    consumer: Consumer
    change: Change
    maker: object
    """The client that has asked for it."""


class StreamConsumers:
    """One stream's consumers; see the module."""

    def __init__(
        self,
        stream: Stream,
        state_writer: StateWriter,
        interest: InterestWatch,
        *,
        account_name: str,
        long_name: str,
        sends_long: bool,
        unique_id: Callable[[], str],
        streams: Mapping[str, Stream],
        folders: ConsumerFolders,
    ) -> None:
        """`long_name` has the domain and the account for the long form of reply subjects.

        With `sends_long` reply subjects have that form; acknowledgements may have either. `streams`
        are all of the account, as they come and go.
        """
        self.stream = stream
        self.streams = streams
        self.host = stream.host
        self.clock = AgeClock(stream.host.clock)
        """For all waits: they do not end when the wall clock is set."""

        self.state_writer = state_writer
        self.folders = folders
        self.interest = interest
        self.account_name = account_name
        self.long_name = long_name
        self.sends_long = sends_long
        self.unique_id = unique_id
        self.consumers: dict[str, Consumer] = {}
        self.offline: dict[str, str] = {}
        """Consumers on disk that cannot be served, and why."""

        self.unkept: dict[str, Unkept] = {}
        """New consumers that are not on stable storage yet."""

        self.hungry: dict[Consumer, None] = {}
        """Consumers that could deliver a message that comes in."""

        self.expecting: dict[Consumer, int] = {}
        """Consumers that may wait for acknowledgements, and what `gone_count` was when it was last
        made sure that their messages are still in the stream."""

        self._internal_count = 0
        self.retention = Retention(stream, self.consumers)
        self._policy = stream.config.retention
        self.gone_count = 0
        """How many sequences of the stream have no message any more, when last looked."""

        self.scanner = stream.store.scanner()
        short = f"{ACK_PREFIX}{stream.name}.".encode()
        long = f"{ACK_PREFIX}{long_name}.{stream.name}.".encode()
        self.reply_start = long if sends_long else short
        """What reply subjects begin with, before the name of the consumer."""

        starts = (short, long, f"{NEXT_PREFIX}{stream.name}.".encode())
        self.ack_receiver = StreamAckReceiver(
            stream.host.hub, stream.sublist, self.scanner, starts, self.retention.needs
        )
        self._path = os.path.join(stream.folder.path, CONSUMERS_NAME)
        self._keys = stream.host.policy.document_keys
        stream.consumers = self
        stream.on_durable.append(self._on_durable)

    # What there is

    @property
    def count(self) -> int:
        """The number of consumers that clients see."""
        return len(self.consumers) - self._internal_count

    @property
    def total(self) -> int:
        """The number of consumers, with those that feed other streams."""
        return len(self.consumers)

    @property
    def bounds(self) -> Mapping[str, ConsumerBounds]:
        """The settings that the stream's limits for consumers bound, by name."""
        return {
            name: ConsumerBounds(config.inactive_threshold, config.max_ack_pending)
            for name, config in self.configs.items()
        }

    @property
    def wanted(self) -> Interest:
        """Which messages are wanted."""
        return self.retention.needs

    @property
    def configs(self) -> Mapping[str, ConsumerConfig]:
        """The configurations of all consumers, by name."""
        return _Configs(self.consumers)

    def find(self, name: str) -> Consumer | None:
        """Return a consumer, None if there is none; raise ApiError if it is offline."""
        if name in self.offline:
            raise ApiError(error_codes.CONSUMER_OFFLINE_REASON, err=self.offline[name])
        return self.consumers.get(name)

    def push_target(self, name: str) -> PushTarget:
        """Return what the push consumer `name` needs of the server around it."""
        start = f"{FLOW_PREFIX}{self.long_name}." if self.sends_long else FLOW_PREFIX
        flow_start = f"{start}{self.stream.name}.{name}.".encode()
        return PushTarget(self.stream.sublist, self.interest, flow_start, self.unique_id)

    # Creating and removing

    def _folder(self, name: str) -> ConsumerFolder:
        return ConsumerFolder(
            self.host.files,
            os.path.join(self._path, name),
            _unique,
            self.stream.name,
            self._keys,
        )

    def recover(self, journaled: Recovered) -> None:
        """Go on with every consumer on disk; those that cannot be read stay offline.

        What the account's journal says of a consumer counts more than its folder.
        """
        files = self.host.files
        if self.stream.config.storage is not StorageType.FILE:
            return
        names = set(files.list_names(self._path)) if files.is_dir(self._path) else set()
        for name in sorted(names | journaled.keys()):
            folder = self._folder(name)
            try:
                if name in journaled:
                    consumer = self._recovered_later(folder, journaled[name])
                else:
                    consumer = self._recovered(folder)
            except (PenstockError, OSError) as error:
                self.offline[name] = str(error)
                self.host.log("WRN", f"Consumer '{self.stream.name} > {name}': {error}")
                self.folders.holds_all |= name in journaled
                continue
            if consumer is not None:
                self._add(consumer)
        for consumer in self.consumers.values():
            consumer.start()
        # When all streams are open: other streams may still need what no consumer does.
        self.host.loop.call_soon(self.retention.sweep)

    def _recovered(self, folder: ConsumerFolder) -> Consumer | None:
        """Return the consumer of a folder; None if a crash left only a part of it."""
        if folder.undo_half():
            return None
        document = folder.read()
        folder.is_placed = folder.is_kept = True
        return self._resumed(folder, document, folder.read_state())

    def _recovered_later(self, folder: ConsumerFolder, data: bytes | None) -> Consumer | None:
        """Return the consumer of a document in the journal; None if it says that it is removed."""
        if data is None:
            folder.remove()
            return None
        document = folder.decoded(data)
        created = document.created or Instant(0)
        folder.remove_other(created)
        state = folder.read_state()
        consumer = self._resumed(folder, document, state)
        self.folders.note(consumer)
        return consumer

    def _resumed(
        self, folder: ConsumerFolder, document: ConsumerDocument, state: ConsumerState | None
    ) -> Consumer:
        key_token(document.config)
        created = document.created or Instant(0)
        consumer = Consumer(self, document.name, document.config, created, folder)
        consumer.progress.begin(Start(document.start_seq or 1))
        if state is not None:
            consumer.resume(state)
        return consumer

    def _begin(self, consumer: Consumer) -> None:
        per_subject_max = self.stream.config.max_msgs_per_subject
        start = find_start(
            consumer.config,
            self.stream.store,
            consumer.progress.subjects,
            per_subject_max=per_subject_max,
        )
        consumer.progress.begin(start)

    def _add(self, consumer: Consumer) -> None:
        self.consumers[consumer.name] = consumer
        self._internal_count += consumer.config.direct
        self.retention.needs.positions[consumer.name] = consumer.progress.position

    def _drop(self, name: str) -> Consumer:
        del self.retention.needs.positions[name]
        consumer = self.consumers.pop(name)
        self._internal_count -= consumer.config.direct
        return consumer

    def create(
        self,
        name: str,
        config: ConsumerConfig,
        state: ConsumerState | None = None,
        *,
        maker: object = None,
    ) -> tuple[Consumer, Change | None]:
        """Create a consumer of a configuration that was checked; it delivers from now on.

        With a state it goes on from there, otherwise it begins where the configuration says.
        Returned is also what to wait for before a client hears of it; None if it is forgotten with
        the process. Until then only its maker finds it, a client. If it cannot be put on stable
        storage it is removed again.
        """
        consumer = self._made(name, config, state)
        change = None
        if consumer.folder is not None:
            change = self._with_stream(self.folders.keep(consumer, config))
            self.unkept[name] = Unkept(consumer, change, maker)
            change.then(lambda error: self._kept(consumer, error))
            if state is not None:
                self.state_writer.mark(consumer)
        self._take_in(consumer)
        return consumer, change

    def _kept(self, consumer: Consumer, error: OSError | None) -> None:
        """Note that a new consumer is on stable storage, or cannot be: then it is removed."""
        unkept = self.unkept.get(consumer.name)
        if unkept is not None and unkept.consumer is consumer:
            del self.unkept[consumer.name]
        if error is not None and not consumer.is_closed:
            self._close(consumer)
            self.folders.discard(consumer)

    def _with_stream(self, change: Change) -> Change:
        """Return what to wait for: a change of a new stream's consumer lasts as the stream does."""
        unsettled = self.stream.unsettled
        return change if unsettled is None else both(unsettled, change)

    def _made(self, name: str, config: ConsumerConfig, state: ConsumerState | None) -> Consumer:
        is_kept = self.stream.config.storage is StorageType.FILE and not config.mem_storage
        folder = self._folder(name) if is_kept else None
        created = Instant(self.host.clock.now_ns())
        consumer = Consumer(self, name, config, created, folder)
        if state is None:
            self._begin(consumer)
        else:
            consumer.resume(state)
        return consumer

    def _take_in(self, consumer: Consumer) -> None:
        self._add(consumer)
        consumer.start()
        consumer.notices.advise("CREATED", "consumer_action", {"action": "create"})
        if consumer.progress.is_paused(self.clock.now_ns()):
            consumer.notices.advise_pause(consumer.progress)

    def change(self, consumer: Consumer, config: ConsumerConfig) -> Change | None:
        """Change a consumer to another configuration, which was checked.

        Return what to wait for before a client hears of it, if there is something. If it cannot be
        put on stable storage the consumer goes back to the configuration that it had.
        """
        if consumer.folder is None:
            self._change(consumer, config)
            return None
        old = consumer.config
        if config == old:
            latest = self.folders.journal.latest()
            return latest and self._with_stream(latest)
        change = self.folders.keep(consumer, config)
        change.on_failure(lambda error: self._change_back(consumer, old))
        told = self._with_stream(change)
        self._change(consumer, config, told)
        return told

    def _change_back(self, consumer: Consumer, config: ConsumerConfig) -> None:
        if not consumer.is_closed:
            self._change(consumer, config)

    def _change(
        self, consumer: Consumer, config: ConsumerConfig, told: Change | None = None
    ) -> None:
        old = consumer.config.pause_until
        has_other_filters = config.filters != consumer.config.filters
        consumer.update(config, told)
        if has_other_filters and self.stream.config.retention is RetentionPolicy.INTEREST:
            self.retention.sweep()
        if config.pause_until != old:
            consumer.notices.advise_pause(consumer.progress)

    def delete(self, name: str) -> Change | None:
        """Remove a consumer and its state; return what to wait for, if there is something."""
        consumer = self.consumers[name]
        self._close(consumer)
        return None if consumer.folder is None else self.folders.keep(consumer, None)

    def delete_offline(self, name: str) -> Change:
        """Remove what is left of a consumer that cannot be served."""
        del self.offline[name]
        return self.folders.remove(self.stream, self._folder(name))

    def _close(self, consumer: Consumer) -> None:
        self._drop(consumer.name)
        consumer.stop(DELETED_REASON)
        self.state_writer.forget(consumer)
        consumer.notices.advise("DELETED", "consumer_action", {"action": "delete"})
        if self.stream.config.retention is RetentionPolicy.INTEREST:
            self.retention.sweep()

    def stop(self) -> None:
        """Deliver no more; all states are on stable storage when this returns."""
        for consumer in self.consumers.values():
            consumer.stop("Server Shutdown")
            self.state_writer.settle(consumer)

    def remove(self) -> None:
        """Stop all consumers of a stream that is being removed."""
        for consumer in self.consumers.values():
            consumer.stop(DELETED_REASON)
            self.state_writer.forget(consumer)
            self.folders.forget(consumer)
        self.consumers.clear()
        self.unkept.clear()
        self._internal_count = 0
        self.retention.needs.positions.clear()

    def drain(self) -> None:
        """Wait until nothing is written of consumers that were removed. Thread: any other."""
        self.state_writer.drain()

    # What happens to the stream

    def _on_durable(self) -> None:
        if self.expecting:
            self._look_for_losses()
        for consumer in tuple(self.hungry):
            consumer.pump()

    def _look_for_losses(self) -> None:
        """Find pending messages that the stream's limits have removed."""
        state = self.stream.store.state()
        gone_count = state.last_seq - state.messages
        if gone_count == self.gone_count:
            return
        self.gone_count = gone_count
        config = self.stream.config
        is_any = config.max_msgs_per_subject > 0 or config.allow_msg_ttl
        for consumer, before in tuple(self.expecting.items()):
            count = len(consumer.progress.pending)
            if not count:
                del self.expecting[consumer]
                continue
            # Looking for each pending message is worth it only if many messages are gone.
            everywhere = is_any and (gone_count - before) * PENDING_LOOKED_FOR_AT_ONCE >= count
            if everywhere:
                self.expecting[consumer] = gone_count
            consumer.on_limited(state.first_seq, everywhere=everywhere)

    def on_purged(self, purged: SubjectFilter | None) -> None:
        """Forget messages that were purged: some or all of a filter's, of all messages if None."""
        for consumer in self.consumers.values():
            consumer.on_purged(purged)

    def on_removed(self, stream_seq: int) -> None:
        """Forget a message that a client removed."""
        for consumer in self.consumers.values():
            consumer.on_removed(stream_seq)

    def on_config(self) -> None:
        """Apply another configuration of the stream."""
        for consumer in self.consumers.values():
            consumer.configure()
        before, self._policy = self._policy, self.stream.config.retention
        if self._policy is RetentionPolicy.INTEREST and before is RetentionPolicy.LIMITS:
            self.retention.begin_with_interest()

    def on_reopened(self) -> None:
        """Go on with a store that was reopened: it may end earlier, or hold more."""
        renew(self.scanner, self.stream.store)
        self.on_purged(None)
        self.retention.sweep()
        self._on_durable()

    def on_done(self, stream_seqs: list[int]) -> None:
        """Remove messages that a consumer or a fed stream is done with, unless others need them."""
        self.retention.on_done(stream_seqs)


def _unique() -> str:
    return os.urandom(8).hex()


def consumers_of(stream: Stream) -> StreamConsumers:
    """Return the consumers of a stream of an account."""
    assert isinstance(stream.consumers, StreamConsumers), "every stream of an account has them"
    return stream.consumers
