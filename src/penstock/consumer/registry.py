"""The consumers of one stream, and those of all streams of an account.

`StreamConsumers` creates, finds, changes, removes and wakes the consumers of one stream. It is what
the stream knows of them (`stream.consumers_port`). `AccountConsumers` gives every stream of an
account its consumers when the stream is opened or created.

Invariants: the configuration of a consumer with a folder is on disk before a client hears of the
consumer. A consumer whose folder cannot be read stays offline with its reason, and its folder is
not touched. A message that has become durable wakes only consumers that could deliver it.

Thread: the event loop's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from penstock import error_codes
from penstock.clock import AgeClock
from penstock.consumer.ack_receiver import StreamAckReceiver
from penstock.consumer.config.config import ConsumerConfig
from penstock.consumer.consumer import Consumer
from penstock.consumer.extensions.options import key_token
from penstock.consumer.folder import CONSUMERS_NAME, ConsumerFolder
from penstock.consumer.progress import Start, find_start
from penstock.consumer.pull_delivery import DELETED_REASON
from penstock.consumer.push_delivery import FLOW_PREFIX, PushTarget
from penstock.consumer.retention import Retention
from penstock.consumer.state_writer import StateWriter
from penstock.errors import ApiError, PenstockError
from penstock.format.state.consumer import ConsumerState
from penstock.limits import PENDING_LOOKED_FOR_AT_ONCE
from penstock.routing.interest import InterestWatch
from penstock.stream.account import AccountStreams, StreamAction
from penstock.stream.config.config import RetentionPolicy, StorageType
from penstock.stream.config.requests import ConsumerBounds
from penstock.stream.interest import Interest
from penstock.stream.replication.source import short_hash
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
        self.interest = interest
        self.account_name = account_name
        self.long_name = long_name
        self.sends_long = sends_long
        self.unique_id = unique_id
        self.consumers: dict[str, Consumer] = {}
        self.offline: dict[str, str] = {}
        """Consumers on disk that cannot be served, and why."""

        self.hungry: dict[Consumer, None] = {}
        """Consumers that could deliver a message that comes in."""

        self.expecting: dict[Consumer, int] = {}
        """Consumers that may wait for acknowledgements, and what `gone_count` was when it was last
        made sure that their messages are still in the stream."""

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
        return sum(not each.config.direct for each in self.consumers.values())

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
            consumer.progress.begin(Start(document.start_seq or 1))
            if state is not None:
                consumer.resume(state)
            self._add(consumer)
        for consumer in self.consumers.values():
            consumer.start()
        # When all streams are open: other streams may still need what no consumer does.
        self.host.loop.call_soon(self.retention.sweep)

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
        self.retention.needs.positions[consumer.name] = consumer.progress.position

    def _drop(self, name: str) -> Consumer:
        del self.retention.needs.positions[name]
        return self.consumers.pop(name)

    def create(
        self, name: str, config: ConsumerConfig, state: ConsumerState | None = None
    ) -> Consumer:
        """Create a consumer of a configuration that was checked; raise OSError.

        With a state it goes on from there, otherwise it begins where the configuration says.
        """
        consumer = self.prepare(name, config, state)
        consumer.save_config(config)
        return self.take_in(consumer)

    def prepare(
        self, name: str, config: ConsumerConfig, state: ConsumerState | None = None
    ) -> Consumer:
        """Return a new consumer, as `create` does, that is neither saved nor registered yet."""
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
        """Register a consumer that was prepared, and whose configuration is saved; it delivers."""
        self._add(consumer)
        consumer.start()
        consumer.notices.advise("CREATED", "consumer_action", {"action": "create"})
        if consumer.progress.is_paused(self.clock.now_ns()):
            consumer.notices.advise_pause(consumer.progress)
        return consumer

    def change(self, consumer: Consumer, config: ConsumerConfig) -> Consumer:
        """Change a consumer to another configuration, which was checked and is saved."""
        old = consumer.config.pause_until
        has_other_filters = config.filters != consumer.config.filters
        consumer.update(config)
        if has_other_filters and self.stream.config.retention is RetentionPolicy.INTEREST:
            self.retention.sweep()
        if config.pause_until != old:
            consumer.notices.advise_pause(consumer.progress)
        return consumer

    def delete(self, name: str) -> None:
        """Remove a consumer and its state."""
        consumer = self._drop(name)
        consumer.stop(DELETED_REASON)
        self.state_writer.forget(consumer)
        if consumer.folder is not None:
            consumer.folder.remove()
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
        self.consumers.clear()
        self.retention.needs.positions.clear()

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

    def on_done(self, stream_seqs: list[int]) -> None:
        """Remove messages that a consumer or a fed stream is done with, unless others need them."""
        self.retention.on_done(stream_seqs)


def _unique() -> str:
    return os.urandom(8).hex()


def consumers_of(stream: Stream) -> StreamConsumers:
    """Return the consumers of a stream of an account."""
    assert isinstance(stream.consumers, StreamConsumers), "every stream of an account has them"
    return stream.consumers


class AccountConsumers:
    """The consumers of all streams of one account; see the module."""

    def __init__(
        self,
        account: AccountStreams,
        state_writer: StateWriter,
        unique_id: Callable[[], str],
        *,
        sends_long: bool,
    ) -> None:
        """With `sends_long` reply subjects have the domain and the account."""
        self._account = account
        self._sends_long = sends_long
        self._keeper = state_writer
        self._unique_id = unique_id
        self._interest = InterestWatch(account.sublist)
        self._long_name = f"{account.host.domain or '_'}.{short_hash(account.name)}"
        account.watchers.append(self.follow)

    def follow(self, action: StreamAction, stream: Stream) -> None:
        """Attach consumers to a new stream, or apply a new configuration of one."""
        if action is StreamAction.MODIFY:
            stream.consumers.on_config()
        elif action in (StreamAction.OPEN, StreamAction.CREATE):
            consumers = StreamConsumers(
                stream,
                self._keeper,
                self._interest,
                account_name=self._account.name,
                long_name=self._long_name,
                sends_long=self._sends_long,
                unique_id=self._unique_id,
                streams=self._account.streams,
            )
            consumers.recover()
