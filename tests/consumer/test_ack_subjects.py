"""The two forms of the subjects of acknowledgements, with the real server and with ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.testing.servers import BOTH, PENSTOCK, REFERENCE, server_process
from tests.support.nats_client import Delivery, NatsClient

pytestmark = pytest.mark.oracle

SETTINGS = {
    "short": "",
    "long": "feature_flags { js_ack_fc_v2: true }",
    "domain": 'jetstream { domain: "hub" }\nfeature_flags { js_ack_fc_v2: true }',
}
ACCOUNT_HASH = "szMpdrwD"
"""Of the account `$G`."""

_NUMBERS = re.compile(r"^(.*?)\.((?:\d+\.){3})\d{16,19}\.(\d+)$")


def shown(message: Delivery) -> str:
    """Return a delivery without its time and random parts."""
    reply = _NUMBERS.sub(r"\1.\2<time>.\3", message.reply)
    reply = re.sub(r"(\$JS\.FC\..*)\.\w{4}$", r"\1.<id>", reply)
    return f"{message.subject} {reply} {message.headers!r}"


def parts(message: Delivery) -> tuple[str, str]:
    """Return what stands before and behind the stream's name in a reply subject."""
    before, _, behind = message.reply.removeprefix("$JS.ACK.").rpartition("S.C.")
    return before, f"S.C.{behind}"


class Asking(NatsClient):
    """A client that acknowledges in every form there is."""

    def fill(self, count: int) -> None:
        self.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        for number in range(count):
            self.request(f"s.{number}", b"x" * 1_000)

    def make(self, name: str, **config: object) -> None:
        fields = {"durable_name": name, "ack_policy": "explicit"} | config
        self.api(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": fields})

    def take(self) -> Delivery:
        return self.request("$JS.API.CONSUMER.MSG.NEXT.S.C", b"1")

    def pending(self) -> int:
        count: int = self.api("CONSUMER.INFO.S.C")["num_ack_pending"]
        return count


def acknowledged(port: int, long_start: str) -> list[str]:
    """Return what a server does with acknowledgements in both forms."""
    lines = []
    with Asking(port) as client:
        client.fill(8)
        client.make("C")
        for form in (
            "{same}",
            "$JS.ACK.{behind}",
            f"$JS.ACK.{long_start}.{{behind}}",
            f"$JS.ACK.{long_start}.{{behind}}.token",
            f"$JS.ACK.{long_start}.{{behind}}.two.tokens",
        ):
            message = client.take()
            lines.append(shown(message))
            behind = parts(message)[1]
            answer = client.request(form.format(same=message.reply, behind=behind), b"+ACK")
            lines.append(f"{answer.headers!r} {client.pending()}")
        for form in (
            "$JS.ACK.{behind}.token",
            "$JS.ACK.hub2.abcdefgh.{behind}",
            f"$JS.ACK.{long_start}.{{short}}",
        ):
            message = client.take()
            behind = parts(message)[1]
            short = behind.rpartition(".")[0]
            client.publish(form.format(behind=behind, short=short), b"+ACK")
            lines.append(f"{client.pending()}")
    return lines


def flowing(port: int) -> list[str]:
    """Return a server's flow control requests, in short."""
    with Asking(port) as client:
        client.fill(8)
        second_ns = 1_000_000_000
        client.make(
            "F",
            deliver_subject="to",
            flow_control=True,
            idle_heartbeat=second_ns,
            ack_policy="flow_control",
            max_ack_pending=4,
        )
        client.subscribe("to")
        lines: list[str] = []
        while len(lines) < 10:
            message = client.next_delivery()
            if message.headers.startswith(b"NATS/1.0 100 Idle"):
                continue
            lines.append(shown(message))
            if message.reply.startswith("$JS.FC."):
                done = b"NATS/1.0\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n\r\n"
                place = sum("JS.ACK" in line for line in lines)
                client.publish(message.reply, headers=done % (place, place))
    return lines


@pytest.mark.parametrize("form", SETTINGS)
def test_acknowledgements_are_sent_in_the_form_that_is_asked_for_and_taken_in_both(
    form: str, tmp_path: Path
) -> None:
    found = {}
    for kind in BOTH:
        with server_process(kind, settings=SETTINGS[form], store_dir=tmp_path / kind) as server:
            domain = "hub" if form == "domain" else "_"
            found[kind] = acknowledged(server.port, f"{domain}.{ACCOUNT_HASH}")

    assert found[PENSTOCK] == found[REFERENCE]
    tokens = found[PENSTOCK][0].split()[1].count(".") + 1
    assert tokens == (9 if form == "short" else 11)


@pytest.mark.parametrize("form", SETTINGS)
def test_questions_about_the_flow_have_the_same_form(form: str, tmp_path: Path) -> None:
    found = {}
    for kind in BOTH:
        with server_process(kind, settings=SETTINGS[form], store_dir=tmp_path / kind) as server:
            found[kind] = flowing(server.port)

    assert found[PENSTOCK] == found[REFERENCE]
