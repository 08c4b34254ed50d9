"""The consumers of one stream: making, finding, changing, removing and waking them.

It is the stream's audience. A message that has become durable wakes only those consumers that could
deliver it. On a stream that keeps messages for as long as they are of interest, it removes those
that no consumer needs any more.

What always holds: the configuration of a consumer that is kept on disk is there before anybody is
told of it; a consumer whose folder cannot be read stays offline with its reason, and its folder is
not touched.

One thread: the event loop's.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping

from penstock import error_codes
from penstock.clock import AgeClock
from penstock.consumer import removals
from penstock.consumer.ack_door import StreamDoor
from penstock.consumer.config import ConsumerConfig
from penstock.consumer.consumer import Consumer
from penstock.consumer.extensions import key_token
from penstock.consumer.folders import CONSUMERS_NAME, ConsumerFolder
from penstock.consumer.keeping import StateKeeper
from penstock.consumer.pulling import DELETED_REASON
from penstock.consumer.starting import Start, find_start
from penstock.documents.times import Instant
from penstock.errors import ApiError, CorruptStore, PenstockError, RecordNotFound
from penstock.format.consumer_state import ConsumerState
from penstock.routing.interest import InterestWatch
from penstock.stream.audience import Taker
from penstock.stream.config import RetentionPolicy, StorageType
from penstock.stream.headers import value_of
from penstock.stream.stream import Stream
from penstock.stream.updates import ConsumerBounds
from penstock.stream.versioning import API_LEVEL
from penstock.subjects import SubjectFilter

ACK_PREFIX = "$JS.ACK."
NEXT_PREFIX = "$JS.API.CONSUMER.MSG.NEXT."
LOOKED_FOR_AT_ONCE = 16
"""For each message that gave way to a limit so many pending ones are looked for."""


class _Configs(Mapping[str, ConsumerConfig]):
    """The configurations of consumers, without a copy of them all for each one that is made."""

    def __init__(self, consumers: Mapping[str, Consumer]) -> None:
        self._consumers = consumers

    def __getitem__(self, name: str) -> ConsumerConfig:
        return self._consumers[name].config

    def __iter__(self) -> Iterator[str]:
        return iter(self._consumers)

    def __len__(self) -> int:
        return len(self._consumers)


class StreamConsumers:
    """One stream's consumers; see the module."""

    def __init__(
        self,
        stream: Stream,
        keeper: StateKeeper,
        interest: InterestWatch,
        *,
        account_name: str,
        long_name: str,
        sends_long: bool,
        unique_id: Callable[[], str],
        streams: Mapping[str, Stream],
    ) -> None:
        """`long_name` is how the long form of reply subjects tells the domain and the account.

        With `sends_long` they have that form; both are understood. `streams` are all of the
        account, as they come and go.
        """
        self.stream = stream
        self.streams = streams
        self.host = stream.host
        self.clock = AgeClock(stream.host.clock)
        """For all waits: those do not end when somebody sets the wall clock."""

        self.keeper = keeper
        self.interest = interest
        self.account_name = account_name
        self.long_name = long_name
        self.sends_long = sends_long
        self.unique_id = unique_id
        self.consumers: dict[str, Consumer] = {}
        self.offline: dict[str, str] = {}
        """Consumers on disk that cannot be served, and why."""

        self.hungry: dict[Consumer, None] = {}
        """Those that could deliver a message that comes in."""

        self.expecting: dict[Consumer, int] = {}
        """Those that may wait for acknowledgements, and what `gone_count` was when they last made
        sure that the messages are still there."""

        self._retention = stream.config.retention
        self.gone_count = 0
        """How many sequences of the stream have no message any more."""

        self.outtake = stream.store.outtake()
        short = f"{ACK_PREFIX}{stream.name}.".encode()
        long = f"{ACK_PREFIX}{long_name}.{stream.name}.".encode()
        self.reply_start = long if sends_long else short
        """What reply subjects begin with, before the consumer's name."""

        starts = (short, long, f"{NEXT_PREFIX}{stream.name}.".encode())
        self.door = StreamDoor(stream.host.hub, stream.sublist, self.outtake, starts, stream.takers)
        self._path = os.path.join(stream.folder.path, CONSUMERS_NAME)
        self._keys = stream.host.policy.document_keys
        stream.consumers = self
        stream.on_durable.append(self._on_durable)

    # What there is

    @property
    def count(self) -> int:
        """How many there are that clients see."""
        return sum(not each.config.direct for each in self.consumers.values())

    @property
    def total(self) -> int:
        """How many there are, with those that feed other streams."""
        return len(self.consumers)

    @property
    def bounds(self) -> Mapping[str, ConsumerBounds]:
        """What of each the stream's limits for consumers bound, by name."""
        return {
            name: ConsumerBounds(config.inactive_threshold, config.max_ack_pending)
            for name, config in self.configs.items()
        }

    @property
    def configs(self) -> Mapping[str, ConsumerConfig]:
        """The configurations of all, by name."""
        return _Configs(self.consumers)

    def find(self, name: str) -> Consumer | None:
        """Give a consumer; raises ApiError for one that is offline."""
        if name in self.offline:
            raise ApiError(error_codes.CONSUMER_OFFLINE_REASON, err=self.offline[name])
        return self.consumers.get(name)

    def refuses_level(self, headers: bytes) -> bool:
        """Whether a request wants a later server."""
        level = value_of(headers, b"Nats-Required-Api-Level") if headers else None
        if not level:
            return False
        return not (level.isdigit() and int(level[:9]) <= API_LEVEL)

    # Making and removing

    def _folder(self, name: str) -> ConsumerFolder:
        return ConsumerFolder(
            self.host.files,
            os.path.join(self._path, name),
            _unique,
            self.stream.name,
            self._keys,
        )

    def recover(self) -> None:
        """Go on with every consumer on disk; those that cannot be read stay offline."""
        files = self.host.files
        if self.stream.config.storage is not StorageType.FILE or not files.is_dir(self._path):
            return
        for name in sorted(files.list_names(self._path)):
            folder = self._folder(name)
            try:
                document = folder.read()
                key_token(document.config)
                state = folder.read_state()
            except (PenstockError, OSError) as error:
                self.offline[name] = str(error)
                self.host.log("WRN", f"Consumer '{self.stream.name} > {name}': {error}")
                continue
            created = document.created or Instant(0)
            consumer = Consumer(self, document.name, document.config, created, folder)
            consumer.begin(Start(document.start_seq or 1))
            if state is not None:
                consumer.resume(state)
            self.consumers[document.name] = consumer
        for consumer in self.consumers.values():
            consumer.start()
        # When all streams are there: other streams may still need what no consumer does.
        self.host.loop.call_soon(self.sweep)

    def _begin(self, consumer: Consumer) -> None:
        per_subject_max = self.stream.config.max_msgs_per_subject
        start = find_start(
            consumer.config,
            self.stream.store,
            consumer.subjects,
            per_subject_max=per_subject_max,
        )
        consumer.begin(start)

    def create(
        self, name: str, config: ConsumerConfig, state: ConsumerState | None = None
    ) -> Consumer:
        """Make a consumer of a configuration that was checked; raises OSError.

        With a state it goes on from there, otherwise from where the configuration says.
        """
        consumer = self.prepare(name, config, state)
        consumer.keep(config)
        return self.take_in(consumer)

    def prepare(
        self, name: str, config: ConsumerConfig, state: ConsumerState | None = None
    ) -> Consumer:
        """Make a consumer, as `create` does, that is neither kept nor known to anybody yet."""
        is_kept = self.stream.config.storage is StorageType.FILE and not config.mem_storage
        folder = self._folder(name) if is_kept else None
        created = Instant(self.host.clock.now_ns())
        consumer = Consumer(self, name, config, created, folder)
        if state is None:
            self._begin(consumer)
        else:
            consumer.resume(state)
        return consumer

    def take_in(self, consumer: Consumer) -> Consumer:
        """Have a consumer that was prepared, and whose configuration is kept, deliver."""
        self.consumers[consumer.name] = consumer
        consumer.start()
        consumer.advise("CREATED", "consumer_action", {"action": "create"})
        if consumer.is_paused(self.clock.now_ns()):
            consumer.advise_pause()
        return consumer

    def change(self, consumer: Consumer, config: ConsumerConfig) -> Consumer:
        """Have a consumer go over to another configuration, which was checked and is kept."""
        old = consumer.config.pause_until
        has_other_filters = config.filters != consumer.config.filters
        consumer.update(config)
        if has_other_filters and self.stream.config.retention is RetentionPolicy.INTEREST:
            self.sweep()
        if config.pause_until != old:
            consumer.advise_pause()
        return consumer

    def delete(self, name: str) -> None:
        """Remove a consumer and its state."""
        consumer = self.consumers.pop(name)
        consumer.stop(DELETED_REASON)
        self.keeper.forget(consumer)
        if consumer.folder is not None:
            consumer.folder.remove()
        consumer.advise("DELETED", "consumer_action", {"action": "delete"})
        if self.stream.config.retention is RetentionPolicy.INTEREST:
            self.sweep()

    def stop(self) -> None:
        """Deliver no more; all that must be remembered is on stable storage when this returns."""
        for consumer in self.consumers.values():
            consumer.stop("Server Shutdown")
            self.keeper.settle(consumer)

    def remove(self) -> None:
        """The stream is going to be removed, and they with it."""
        for consumer in self.consumers.values():
            consumer.stop(DELETED_REASON)
            self.keeper.forget(consumer)
        self.consumers.clear()

    # What the stream tells

    def _on_durable(self) -> None:
        if self.expecting:
            self._look_for_losses()
        for consumer in tuple(self.hungry):
            consumer.pump()

    def _look_for_losses(self) -> None:
        """See whether messages that are pending gave way to the stream's limits."""
        state = self.stream.store.state()
        gone_count = state.last_seq - state.messages
        if gone_count == self.gone_count:
            return
        self.gone_count = gone_count
        config = self.stream.config
        is_any = config.max_msgs_per_subject > 0 or config.allow_msg_ttl
        for consumer, before in tuple(self.expecting.items()):
            count = len(consumer.pending)
            if not count:
                del self.expecting[consumer]
                continue
            # Each of them is looked for: not for a single one that is gone, where many are pending.
            everywhere = is_any and (gone_count - before) * LOOKED_FOR_AT_ONCE >= count
            if everywhere:
                self.expecting[consumer] = gone_count
            removals.on_limited(consumer, state.first_seq, everywhere=everywhere)

    def on_purged(self, purged: SubjectFilter | None) -> None:
        """Messages were purged: some or all of what a filter wants, of everything where None."""
        for consumer in self.consumers.values():
            removals.on_purged(consumer, purged)

    def on_removed(self, stream_seq: int) -> None:
        """A message was removed by somebody."""
        for consumer in self.consumers.values():
            removals.on_removed(consumer, stream_seq)

    def on_config(self) -> None:
        """The stream has another configuration."""
        for consumer in self.consumers.values():
            consumer.on_stream_config()
        before, self._retention = self._retention, self.stream.config.retention
        if self._retention is RetentionPolicy.INTEREST and before is RetentionPolicy.LIMITS:
            self._begin_with_interest()

    def _begin_with_interest(self) -> None:
        """Remove what consumers are done with; what none was ever meant to have stays, if any is.

        That is for a stream which was not kept by interest until now.
        """
        if self.consumers or self.stream.takers:
            self._sweep_up_to(self._last_cursor(), spares_unclaimed=True)
        else:
            self.stream.store.purge(durable=False)

    def wants(self, subject: bytes) -> bool:
        """Whether a message that is about to be stored is of interest to any of them."""
        return any(
            each.subjects is None or each.subjects.matches(subject)
            for each in self.consumers.values()
        ) or any(taker.wants(subject) for taker in self.stream.takers)

    # Retention by interest

    def on_done(self, stream_seqs: list[int]) -> None:
        """A consumer is done with messages: remove those that nobody else needs."""
        retention = self.stream.config.retention
        if retention is RetentionPolicy.LIMITS:
            return
        for seq in stream_seqs:
            if retention is RetentionPolicy.WORK_QUEUE or not self._is_needed(seq):
                self.stream.store.remove(seq)

    def on_late(self, consumer: Consumer, stream_seq: int) -> None:
        """A consumer's client acknowledged what is not pending: it may have been given up before.

        Of a message that is not the consumer's he can say nothing.
        """
        if self.stream.config.retention is RetentionPolicy.LIMITS:
            return
        is_own = consumer.subjects is None or consumer.subjects.matches(self._subject(stream_seq))
        if is_own and not self._is_needed(stream_seq):
            self.stream.store.remove(stream_seq)

    def _subject(self, stream_seq: int) -> bytes:
        with contextlib.suppress(RecordNotFound, CorruptStore):
            return self.stream.store.load(stream_seq).subject
        return b""

    def _is_needed(self, stream_seq: int) -> bool:
        subject = b""
        takers = self.stream.takers
        if takers or any(each.subjects is not None for each in self.consumers.values()):
            subject = self._subject(stream_seq)
        return any(each.needs(stream_seq, subject) for each in self.consumers.values()) or any(
            taker.needs(stream_seq, subject) for taker in takers
        )

    def sweep(self) -> None:
        """Remove what no consumer needs, on a stream that keeps only what is of interest."""
        retention = self.stream.config.retention
        if retention is RetentionPolicy.LIMITS or self.stream.is_stopped:
            return
        store = self.stream.store
        if retention is RetentionPolicy.WORK_QUEUE:
            # Nobody's messages wait for a consumer to come; what was done with goes.
            self._sweep_up_to(self._last_cursor(), spares_unclaimed=True)
        elif self.consumers or self.stream.takers:
            self._sweep_up_to(store.state().last_seq)
        else:
            store.purge(durable=False)

    def _last_cursor(self) -> int:
        """Give the last sequence that any consumer has passed."""
        return max((each.cursor - 1 for each in self.consumers.values()), default=0)

    def _sweep_up_to(self, last_seq: int, *, spares_unclaimed: bool = False) -> None:
        store = self.stream.store
        seq = store.state().first_seq
        while seq <= last_seq:
            try:
                message = store.load_next(seq)
            except RecordNotFound:
                return
            seq = message.seq + 1
            if message.seq > last_seq:
                return
            owners = [
                each
                for each in self.consumers.values()
                if each.subjects is None or each.subjects.matches(message.subject)
            ]
            if spares_unclaimed and not owners:
                continue
            needing: list[Consumer | Taker] = [*owners, *self.stream.takers]
            if not any(each.needs(message.seq, message.subject) for each in needing):
                store.remove(message.seq)
                self._take_from_all(message.seq)

    def _take_from_all(self, stream_seq: int) -> None:
        """Be done with a message that is gone, also where it is pending by an earlier filter."""
        for consumer in self.consumers.values():
            if stream_seq in consumer.pending:
                removals.on_removed(consumer, stream_seq)


def _unique() -> str:
    return os.urandom(8).hex()


def consumers_of(stream: Stream) -> StreamConsumers:
    """Give a stream's consumers."""
    assert isinstance(stream.consumers, StreamConsumers), "every stream of an account has them"
    return stream.consumers
