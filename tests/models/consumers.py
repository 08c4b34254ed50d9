"""A stream and its consumers, kept in dictionaries: slow, and plain enough to be believed.

Nothing here waits for time: messages come again only when they are refused. What a method gives is
what a server must do.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Place = tuple[int, int, int, int]
"""Of a delivery: how many there were of the message, stream and consumer sequence, and how many
messages are still to come."""


@dataclass
class Out:
    """A message that was delivered and is not acknowledged."""

    consumer_seq: int
    """Of its first delivery."""

    last_consumer_seq: int
    deliveries: int = 1


@dataclass
class ConsumerModel:
    """A place in a stream, and what is out."""

    subject: str
    """What it wants; empty for everything."""

    policy: str
    ack_pending_max: int
    cursor: int
    delivered_consumer: int = 0
    delivered_stream: int = 0
    floor_consumer: int = 0
    floor_stream: int = 0
    out: dict[int, Out] = field(default_factory=dict)
    again: list[int] = field(default_factory=list)

    def wants(self, subject: str) -> bool:
        return self.subject in ("", subject)

    def needs(self, seq: int, subject: str) -> bool:
        if not self.wants(subject):
            return False
        # Where all up to one is acknowledged, nobody says anything of what was passed over.
        is_open = seq >= self.cursor or seq in self.out
        return is_open if self.policy == "explicit" else seq > self.floor_stream

    def drop(self, seq: int) -> None:
        """Be done with a message that is out."""
        gone = self.out.pop(seq)
        if seq in self.again:
            self.again.remove(seq)
        if not self.out:
            self.floor_consumer = self.delivered_consumer
            self.floor_stream = self.delivered_stream
        elif gone.consumer_seq == self.floor_consumer + 1:
            first = min(self.out)
            self.floor_consumer = self.out[first].consumer_seq - 1
            self.floor_stream = first - 1

    def acknowledge(self, seq: int, consumer_seq: int) -> list[int]:
        """Return the messages that are done with by an acknowledgement."""
        if self.policy == "explicit":
            if seq not in self.out:
                return []
            self.drop(seq)
            return [seq]
        if consumer_seq <= self.floor_consumer or seq <= self.floor_stream:
            return []
        done = sorted(each for each in self.out if each <= seq)
        for each in done:
            del self.out[each]
        self.again = [each for each in self.again if each in self.out]
        self.floor_consumer, self.floor_stream = consumer_seq, seq
        return done

    def refuse(self, seq: int, consumer_seq: int) -> None:
        is_known = self.floor_consumer < consumer_seq <= self.delivered_consumer
        if is_known and seq in self.out and seq not in self.again:
            self.again.append(seq)


class StreamModel:
    """Messages by sequence, and the consumers by name."""

    def __init__(self, retention: str, messages_max: int) -> None:
        self.retention = retention
        self.messages_max = messages_max
        self.messages: dict[int, str] = {}
        self.last_seq = 0
        self.consumers: dict[str, ConsumerModel] = {}

    @property
    def first_seq(self) -> int:
        return min(self.messages, default=self.last_seq + 1)

    def publish(self, subject: str) -> int:
        """Return the sequence of a message."""
        self.last_seq += 1
        is_wanted = any(each.wants(subject) for each in self.consumers.values())
        if is_wanted or self.retention != "interest":
            self.messages[self.last_seq] = subject
        while 0 < self.messages_max < len(self.messages):
            self.remove(self.first_seq)
        return self.last_seq

    def remove(self, seq: int) -> None:
        """Take a message away from all."""
        self.messages.pop(seq, None)
        for consumer in self.consumers.values():
            if seq in consumer.out:
                self._done(consumer.acknowledge(seq, consumer.out[seq].consumer_seq))

    def purge(self, subject: str, below: int, keep: int) -> None:
        wanted = [seq for seq, each in sorted(self.messages.items()) if subject in ("", each)]
        if keep:
            wanted = wanted[: max(len(wanted) - keep, 0)]
        for seq in wanted:
            if not below or seq < below:
                del self.messages[seq]
        if below and not subject:
            self.last_seq = max(self.last_seq, below - 1)
        for consumer in self.consumers.values():
            self._pass_purged(consumer, subject)

    def _pass_purged(self, consumer: ConsumerModel, subject: str) -> None:
        first_seq = self.first_seq
        if subject and consumer.subject == subject:
            left = [seq for seq, each in self.messages.items() if each == subject]
            first_seq = min(left, default=self.last_seq + 1)
        consumer.cursor = max(consumer.cursor, first_seq)
        for seq in sorted(consumer.out):
            if seq not in self.messages:
                consumer.drop(seq)
        if not consumer.out:
            consumer.delivered_stream = max(consumer.delivered_stream, consumer.cursor - 1)
            consumer.floor_consumer = consumer.delivered_consumer
            consumer.floor_stream = consumer.delivered_stream

    # Consumers

    def can_create(self, name: str, subject: str, policy: str, start: str) -> bool:
        if self.retention != "workqueue":
            return True
        others = [each.subject for other, each in self.consumers.items() if other != name]
        is_alone = all(each != "" and subject not in ("", each) for each in others)
        return is_alone and policy == "explicit" and start == "all"

    def create(self, name: str, subject: str, policy: str, start: str, ack_pending: int) -> None:
        first = self.last_seq + 1 if start == "new" else self.first_seq
        consumer = ConsumerModel(subject, policy, ack_pending, first)
        consumer.delivered_stream = consumer.floor_stream = first - 1
        self.consumers[name] = consumer

    def change(self, name: str, subject: str) -> None:
        self.consumers[name].subject = subject
        if self.retention == "interest":
            self._sweep()

    def delete(self, name: str) -> None:
        del self.consumers[name]
        if self.retention == "interest":
            self._sweep()

    def restart(self) -> None:
        """Stop and start: what was refused waits for its time again."""
        for consumer in self.consumers.values():
            consumer.again.clear()
            consumer.cursor = max(consumer.delivered_stream + 1, self.first_seq)

    # Delivering

    def pending(self, consumer: ConsumerModel) -> list[int]:
        """Return what is to be delivered for the first time."""
        return [
            seq
            for seq, subject in sorted(self.messages.items())
            if seq >= consumer.cursor and consumer.wants(subject)
        ]

    def deliverable(self, consumer: ConsumerModel) -> int:
        """Return how many messages the consumer may deliver now."""
        room = len(self.messages)
        if consumer.policy != "none" and consumer.ack_pending_max:
            room = max(consumer.ack_pending_max - len(consumer.out), 0)
        return len(consumer.again) + min(len(self.pending(consumer)), room)

    def deliver(self, consumer: ConsumerModel) -> Place:
        """Return the next delivery."""
        consumer.delivered_consumer += 1
        consumer_seq = consumer.delivered_consumer
        if consumer.again:
            seq = consumer.again.pop(0)
            consumer.out[seq].deliveries += 1
            consumer.out[seq].last_consumer_seq = consumer_seq
            return (consumer.out[seq].deliveries, seq, consumer_seq, len(self.pending(consumer)))
        seq, *rest = self.pending(consumer)
        consumer.cursor = seq + 1
        consumer.delivered_stream = seq
        if consumer.policy == "none":
            consumer.floor_consumer, consumer.floor_stream = consumer_seq, seq
            self._done([seq])
        else:
            consumer.out[seq] = Out(consumer_seq, consumer_seq)
        return (1, seq, consumer_seq, len(rest))

    def acknowledge(self, consumer: ConsumerModel, seq: int, consumer_seq: int) -> None:
        self._done(consumer.acknowledge(seq, consumer_seq))

    def _done(self, seqs: list[int]) -> None:
        for seq in seqs:
            if self.retention == "workqueue" or (
                self.retention == "interest" and not self._is_needed(seq)
            ):
                self.messages.pop(seq, None)

    def _is_needed(self, seq: int) -> bool:
        subject = self.messages.get(seq, "")
        return any(each.needs(seq, subject) for each in self.consumers.values())

    def _sweep(self) -> None:
        for seq in sorted(self.messages):
            if seq in self.messages and not self._is_needed(seq):
                self.remove(seq)
