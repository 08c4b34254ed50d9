"""One stream with several consumers, told to do anything in any order, against a simple model.

All goes over the wire. Time plays no part: what is not acknowledged comes again only when a client
refuses it.
"""

from __future__ import annotations

import tempfile
from typing import Any, TypeVar

import pytest
from hypothesis import settings, stateful
from hypothesis import strategies as st

from penstock.server.embedded import EmbeddedServer
from penstock.testing.servers import ServerThread
from tests.consumer.delivered import SECOND, Life
from tests.models.consumers import ConsumerModel, Place, StreamModel

SUBJECTS = st.sampled_from(["a", "b", "c"])
FILTERS = st.sampled_from(["", "a", "b"])
Picked = TypeVar("Picked", int, str)
NAMES = st.sampled_from(["one", "two", "three"])
POLICIES = st.sampled_from(["explicit", "explicit", "all", "none"])
PICKS = st.floats(0, 1, exclude_max=True)
BODIES = st.sampled_from([b"", b"+ACK", b"-NAK", b"-NAK", b"+TERM", b"+NXT", b"+WPI", b"bogus"])


def _has_consumers(machine: ConsumerMachine) -> bool:
    return bool(machine.model.consumers)


def _has_deliveries(machine: ConsumerMachine) -> bool:
    return any(each.out for each in machine.model.consumers.values())


class ConsumerMachine(stateful.RuleBasedStateMachine):
    """A server and the model, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.subjects: dict[int, str] = {}
        """Of every message that ever was."""

        self.folder = tempfile.TemporaryDirectory(prefix="penstock-")
        self._start()

    def _start(self) -> None:
        text = f'jetstream {{ store_dir: "{self.folder.name}" }}'
        self.server = ServerThread(EmbeddedServer(settings=text))
        self.life = Life(self.server.port, "S")

    @stateful.initialize(
        retention=st.sampled_from(["limits", "interest", "workqueue"]),
        messages_max=st.sampled_from([0, 0, 6]),
        storage=st.sampled_from(["file", "file", "memory"]),
        policy=POLICIES,
    )
    def begin(self, retention: str, messages_max: int, storage: str, policy: str) -> None:
        self.model = StreamModel(retention, messages_max)
        self.is_kept = storage == "file"
        self.life.stream(retention=retention, storage=storage, max_msgs=messages_max or -1)
        self.create("one", "a", "explicit", "all", 0)
        self.create("two", "b", "explicit" if retention == "workqueue" else policy, "all", 0)
        self.publish(["a", "b", "c", "a", "b"])

    # Messages

    @stateful.rule(subjects=st.lists(SUBJECTS, min_size=1, max_size=6))
    def publish(self, subjects: list[str]) -> None:
        for subject in subjects:
            self.life.publish(f"S.{subject}", b"body", reply="_IN.stored")
            answer = self.life.next_delivery().payload

            seq = self.model.publish(subject)
            assert b'"seq":%d' % seq in answer
            self.subjects[seq] = subject

    @stateful.rule(pick=PICKS)
    def remove(self, pick: float) -> None:
        if self.model.messages:
            seq = _picked(pick, sorted(self.model.messages))
            self.life.remove(seq)
            self.model.remove(seq)

    @stateful.rule(subject=FILTERS, keep=st.integers(0, 3), below=st.integers(0, 12))
    def purge(self, subject: str, keep: int, below: int) -> None:
        which: dict[str, Any] = {"filter": f"S.{subject}"} if subject else {}
        if keep:
            which["keep"], below = keep, 0
        elif below:
            which["seq"] = below
        self.life.purge(**which)
        self.model.purge(subject, below, keep)

    @stateful.precondition(_has_consumers)
    @stateful.rule(
        subjects=st.lists(SUBJECTS, min_size=1, max_size=4),
        which=PICKS,
        wanted=st.integers(1, 8),
        said=st.lists(st.tuples(PICKS, BODIES), max_size=5),
    )
    def work(
        self, subjects: list[str], which: float, wanted: int, said: list[tuple[float, bytes]]
    ) -> None:
        """Do what clients do most of the time."""
        self.publish(subjects)
        self.fetch(which, wanted)
        for pick, body in said:
            if _has_deliveries(self):
                self.say(which, pick, body)

    # Consumers

    @stateful.rule(
        name=NAMES,
        subject=FILTERS,
        policy=POLICIES,
        start=st.sampled_from(["all", "all", "new"]),
        ack_pending=st.sampled_from([0, 2]),
    )
    def create(self, name: str, subject: str, policy: str, start: str, ack_pending: int) -> None:
        is_possible = self.model.can_create(name, subject, policy, start)
        if name in self.model.consumers or not is_possible:
            return
        if policy == "none":
            ack_pending = 0
        config = _config(subject, ack_policy=policy, deliver_policy=start)
        if policy != "none":
            config["max_ack_pending"] = ack_pending or -1
            config["ack_wait"] = 3600 * SECOND
        self.life.consumer(name, **config)
        self.model.create(name, subject, policy, start, ack_pending)

    @stateful.precondition(_has_consumers)
    @stateful.rule(which=PICKS, subject=FILTERS)
    def change(self, which: float, subject: str) -> None:
        if self.model.retention == "workqueue":
            return
        name = _picked(which, sorted(self.model.consumers))
        found = self.life.ask(f"CONSUMER.INFO.S.{name}")["config"]
        del found["name"]
        found.pop("filter_subject", None)
        self.life.consumer(name, **(found | _config(subject)))
        self.model.change(name, subject)

    @stateful.precondition(_has_consumers)
    @stateful.rule(which=PICKS)
    def delete(self, which: float) -> None:
        name = _picked(which, sorted(self.model.consumers))
        self.life.forget(name)
        self.model.delete(name)

    @stateful.precondition(_has_consumers)
    @stateful.rule(which=PICKS, wanted=st.integers(1, 8))
    def fetch(self, which: float, wanted: int) -> None:
        name = _picked(which, sorted(self.model.consumers))
        consumer = self.model.consumers[name]
        count = min(self.model.deliverable(consumer), wanted)
        if count:
            self.life.pull({"batch": count, "no_wait": True}, name)
            expected = [self.model.deliver(consumer) for _ in range(count)]

            assert [self._taken() for _ in range(count)] == expected
        elif not self.model.pending(consumer):
            self.life.pull({"batch": wanted, "no_wait": True}, name)

            assert b"404 No Messages" in self.life.next_delivery().headers

    def _taken(self) -> Place:
        found = self.life.next_delivery()
        *_, deliveries, stream_seq, consumer_seq, _, pending = found.reply.split(".")
        assert found.subject == f"S.{self.subjects[int(stream_seq)]}"
        return int(deliveries), int(stream_seq), int(consumer_seq), int(pending)

    # Acknowledgements

    def _pick_out(self, which: float, pick: float) -> tuple[str, ConsumerModel, int]:
        names = sorted(name for name, each in self.model.consumers.items() if each.out)
        name = _picked(which, names)
        consumer = self.model.consumers[name]
        return name, consumer, _picked(pick, sorted(consumer.out))

    @stateful.precondition(_has_deliveries)
    @stateful.rule(which=PICKS, pick=PICKS, body=BODIES)
    def say(self, which: float, pick: float, body: bytes) -> None:
        name, consumer, seq = self._pick_out(which, pick)
        consumer_seq = consumer.out[seq].last_consumer_seq
        if body == b"+NXT":
            self.life.publish(_reply(name, consumer, seq), body)
            self.life.heard(name)
        else:
            self._say(name, consumer, seq, body)
        if body == b"-NAK":
            consumer.refuse(seq, consumer_seq)
        elif body not in (b"+WPI", b"bogus"):
            self.model.acknowledge(consumer, seq, consumer_seq)

    def _say(self, name: str, consumer: ConsumerModel, seq: int, body: bytes) -> None:
        self.life.publish(_reply(name, consumer, seq), body, reply="_IN.acked")
        assert self.life.next_delivery().subject == "_IN.acked"

    @stateful.precondition(_has_consumers)
    @stateful.rule(which=PICKS, seq=st.integers(0, 20), consumer_seq=st.integers(0, 40))
    def forge(self, which: float, seq: int, consumer_seq: int) -> None:
        """Say something of a message that is not out."""
        name = _picked(which, sorted(self.model.consumers))
        consumer = self.model.consumers[name]
        if consumer.policy == "none" or seq in consumer.out:
            return
        for body in (b"-NAK", b"+WPI"):
            self.life.publish(f"$JS.ACK.S.{name}.1.{seq}.{consumer_seq}.1.1", body)
        if consumer.policy == "explicit":
            self.life.publish(f"$JS.ACK.S.{name}.1.{seq}.{consumer_seq}.1.1", b"+ACK")
        self.life.heard(name)

    # Restarts

    @stateful.precondition(_has_consumers)
    @stateful.rule(odds=st.integers(0, 2))
    def restart(self, odds: int) -> None:
        if self.is_kept and not odds:
            self.life.close()
            self.server.stop()
            self._start()
            self.model.restart()

    # Looking

    @stateful.invariant()
    def the_numbers_agree(self) -> None:
        if not hasattr(self, "model"):
            return
        state = self.life.ask("STREAM.INFO.S")["state"]
        assert state["messages"] == len(self.model.messages)
        assert state["last_seq"] == self.model.last_seq
        if self.model.messages:
            assert state["first_seq"] == self.model.first_seq
        for name, consumer in self.model.consumers.items():
            self._compare(self.life.ask(f"CONSUMER.INFO.S.{name}"), consumer)

    def _compare(self, info: dict[str, Any], consumer: ConsumerModel) -> None:
        assert info["num_pending"] == len(self.model.pending(consumer))
        assert info["num_ack_pending"] == len(consumer.out)
        again = sum(each.deliveries > 1 for each in consumer.out.values())
        assert info["num_redelivered"] == again
        assert info["delivered"]["consumer_seq"] == consumer.delivered_consumer
        assert info["delivered"]["stream_seq"] == consumer.delivered_stream
        assert info["ack_floor"]["consumer_seq"] == consumer.floor_consumer
        assert info["ack_floor"]["stream_seq"] == consumer.floor_stream

    def teardown(self) -> None:
        self.life.close()
        self.server.stop()
        self.folder.cleanup()


def _config(subject: str, **more: Any) -> dict[str, Any]:
    return {"filter_subject": f"S.{subject}", **more} if subject else more


def _picked(pick: float, among: list[Picked]) -> Picked:
    return among[int(pick * len(among))]


def _reply(name: str, consumer: ConsumerModel, seq: int) -> str:
    out = consumer.out[seq]
    return f"$JS.ACK.S.{name}.{out.deliveries}.{seq}.{out.last_consumer_seq}.1.1"


@pytest.mark.slow
def test_consumers_do_what_the_model_does() -> None:
    stateful.run_state_machine_as_test(
        ConsumerMachine,
        settings=settings(max_examples=25, stateful_step_count=30, report_multiple_bugs=False),
    )


@pytest.mark.soak
def test_consumers_do_what_the_model_does_for_long() -> None:
    stateful.run_state_machine_as_test(
        ConsumerMachine, settings=settings(max_examples=600, stateful_step_count=60)
    )
