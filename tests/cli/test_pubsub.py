"""`penstock pub`, `sub`, `req` and `reply` with a real server: what they do, print and end with."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import nkeys  # type: ignore[import-untyped]  # it has no types
import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.cli.pubsub import filled_in, header_block, run_command, shown_lines, with_count
from penstock.client.client import Client
from penstock.client.wire import ReceivedMessage
from penstock.errors import UsageError
from penstock.testing.servers import ServerThread, start_server
from tests.cli.conftest import Run

SETTINGS = """
no_auth_user: guest
authorization { users: [
  { user: guest }
  { user: u, password: p, permissions: { publish: "allowed", subscribe: ["allowed", "_INBOX.>"] } }
] }
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with start_server(settings=SETTINGS) as running:
        yield running


@pytest.fixture
def client(server: ServerThread) -> Iterator[Client]:
    with Client.connect(server.url) as connected:
        yield connected


class Talking:
    """A command that runs beside the test."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def end(self) -> tuple[int, bytes]:
        """Wait for the end; give the exit code and what is left of stdout."""
        out, _ = self.process.communicate(timeout=60)
        return self.process.returncode, out

    @property
    def out(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout


@contextmanager
def beside(*arguments: str, says: bytes) -> Iterator[Talking]:
    """Run a command beside the test, once it has said that it listens."""
    with subprocess.Popen(
        [sys.executable, "-m", "penstock", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            assert process.stderr is not None
            said = process.stderr.readline()
            assert said.startswith(says), said + process.stderr.read()
            yield Talking(process)
        finally:
            process.kill()


# pub


def test_a_message_is_published_with_headers_and_a_reply(
    run: Run, server: ServerThread, client: Client
) -> None:
    sid = client.subscribe(b"orders.eu")
    client.flush()

    ran = run(
        "pub", "orders.eu", "hello", "-s", server.url, "-H", "A: 1", "-H", "A:2", "--reply", "back"
    )

    assert (ran.code, ran.out) == (0, "")
    assert ran.err == 'Published 1 message, 5 B, to "orders.eu"\n'
    message = client.next_message(sid)
    assert (message.payload, message.reply) == (b"hello", b"back")
    assert message.headers == b"NATS/1.0\r\nA: 1\r\nA: 2\r\n\r\n"


def test_several_messages_are_numbered(run: Run, server: ServerThread, client: Client) -> None:
    sid = client.subscribe(b"n")
    client.flush()

    ran = run("pub", "n", "no {{Count}} {{.Count}}", "--count", 3, "--sleep", "1ms", "-q",
              env={"NATS_URL": server.url})  # fmt: skip

    assert (ran.code, ran.out, ran.err) == (0, "", "")
    payloads = [client.next_message(sid).payload for _ in range(3)]
    assert payloads == [b"no 1 1", b"no 2 2", b"no 3 3"]


@pytest.mark.parametrize(
    ("arguments", "payloads"),
    [([], [b"one\r\ntwo\xff\n"]), (["--send-on", "newline"], [b"one", b"two\xff"])],
    ids=["as a whole", "by line"],
)
def test_a_body_may_come_from_stdin(
    server: ServerThread, client: Client, arguments: list[str], payloads: list[bytes]
) -> None:
    sid = client.subscribe(b"stdin")
    client.flush()

    ran = CliRunner().invoke(
        app, ["pub", "stdin", "-s", server.url, *arguments], input=b"one\r\ntwo\xff\n"
    )

    assert ran.exit_code == 0
    assert [client.next_message(sid).payload for _ in payloads] == payloads


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["a b", ""], "not a subject: 'a b'"),
        (["a.>", ""], "without wildcards: 'a.>'"),
        (["a\r\nPUB b", ""], "not a subject"),
        (["a", "", "-H", "nothing"], "not a header: 'nothing'"),
        (["a", "", "-H", "K: v\r\nX: y"], "not a header"),
        (["a", "", "--sleep", "soon"], "not a duration: 'soon'"),
        (["a", "", "--timeout", "0s"], "above 0"),
        (["a", "x" * 1_048_577], "at most 1.0 MiB"),
    ],
    ids=["space", "wildcard", "line end", "no header", "two headers", "pause", "timeout", "large"],
)
def test_what_cannot_be_sent_is_wrong_usage(
    run: Run, server: ServerThread, arguments: list[str], told: str
) -> None:
    ran = run("pub", "-s", server.url, *arguments)

    assert ran.code == 2
    assert told in ran.err
    assert ran.err.count("\n") == 1


def test_a_publish_that_the_server_refuses_fails(run: Run, server: ServerThread) -> None:
    ran = run("pub", "-s", server.url, "--user", "u", "--password", "p", "secret", "x")

    assert ran.code == 1
    assert ran.err == (
        'penstock: the server refused: Permissions Violation for Publish to "secret"\n'
    )


# sub


def test_messages_are_printed_for_people(server: ServerThread, client: Client) -> None:
    with beside("sub", "a.*", "b", "--count", "2", "-s", server.url, says=b"Subscribed to") as sub:
        client.publish(
            b"a.x", b"two\nlines\x1b[31m", reply=b"r", headers=b"NATS/1.0\r\nK: v\r\n\r\n"
        )
        client.publish(b"b", b"plain")
        client.publish(b"b", b"one too many")
        client.flush()
        code, out = sub.end()

    assert code == 0
    assert out.decode() == (
        '[#1] Received on "a.x" with reply "r"\nK: v\n\ntwo\nlines\\x1b[31m\n\n'
        '[#2] Received on "b"\nplain\n\n'
    )


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--raw", b"\xffbody\n"),
        ("--headers-only", b'[#1] Received on "a"\nK: v\n\n'),
        (
            "--json",
            b'{"subject":"a","reply":"","headers":{"K":["v"]},"payload_base64":"/2JvZHk="}\n',
        ),
    ],
)
def test_messages_are_printed_as_asked_for(
    server: ServerThread, client: Client, option: str, expected: bytes
) -> None:
    with beside("sub", "a", option, "--count", "1", "-s", server.url, says=b"Subscribed") as sub:
        client.publish(b"a", b"\xffbody", headers=b"NATS/1.0\r\nK: v\r\n\r\n")
        client.flush()

        assert sub.end() == (0, expected)


def test_a_subscriber_ends_quietly_when_it_is_interrupted(
    server: ServerThread, client: Client
) -> None:
    with beside("sub", "a", "--queue", "g", "--raw", "-s", server.url, says=b"Subscribed") as sub:
        client.publish(b"a", b"seen")
        client.flush()
        assert sub.out.readline() == b"seen\n"

        sub.process.send_signal(signal.SIGINT)

        out, err = sub.process.communicate(timeout=60)
        assert (sub.process.returncode, out, err) == (0, b"", b"")


def test_a_subscription_that_the_server_refuses_fails(run: Run, server: ServerThread) -> None:
    ran = run("sub", "-s", server.url, "--user", "u", "--password", "p", "secret", "--count", 1)

    assert ran.code == 1
    assert "Permissions Violation for Subscription" in ran.err


# req


@contextmanager
def answering(client: Client, subject: bytes, *answers: bytes) -> Iterator[None]:
    """Answer one request with these."""
    sid = client.subscribe(subject, max_messages=1)
    client.flush()

    def answer() -> None:
        request = client.next_message(sid)
        for each in answers:
            client.publish(request.reply, each + request.payload)
        client.flush()

    thread = threading.Thread(target=answer)
    thread.start()
    yield
    thread.join()


def test_a_request_prints_its_answer_and_the_time_it_took(
    run: Run, server: ServerThread, client: Client
) -> None:
    with answering(client, b"svc", b"re: "):
        ran = run("req", "svc", "hi", "-s", server.url)

    assert ran.code == 0
    heading, body, *_ = ran.out.split("\n")
    assert heading.startswith("Received with rtt ")
    assert heading.endswith(" ms")
    assert body == "re: hi"


def test_a_request_waits_for_as_many_answers_as_it_wants(
    run: Run, server: ServerThread, client: Client
) -> None:
    with answering(client, b"svc", b"1", b"2", b"3"):
        ran = run("req", "svc", "", "-s", server.url, "--replies", 2, "--raw")
    assert (ran.code, ran.out) == (0, "1\n2\n")

    with answering(client, b"svc", b"1", b"2"):
        ran = run("req", "svc", "", "-s", server.url, "--replies", 3, "--timeout", "1s", "--json")
    assert ran.code == 1
    assert [line["payload"] for line in ran.lines] == ["1", "2"]
    assert ran.err == 'penstock: 2 of 3 answers on "svc" within 1s\n'

    with answering(client, b"svc", b"1", b"2"):
        ran = run("req", "svc", "", "-s", server.url, "--replies", 0, "--timeout", "1s", "--raw")
    assert (ran.code, ran.out) == (0, "1\n2\n")


def test_a_request_that_nobody_takes_or_answers_fails(
    run: Run, server: ServerThread, client: Client
) -> None:
    ran = run("req", "nobody", "", "-s", server.url)
    assert (ran.code, ran.err) == (1, 'penstock: nobody listens on "nobody"\n')

    client.subscribe(b"silent")
    client.flush()
    ran = run("req", "silent", "", "-s", server.url, "--timeout", "50ms")
    assert (ran.code, ran.err) == (1, 'penstock: no answer on "silent" within 50ms\n')


# reply


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["got {{Count}}"], (b"", b"got 1")),
        (["--echo"], (b"NATS/1.0\r\nK: v\r\n\r\n", b"ping")),
        (["fixed", "-H", "A: b"], (b"NATS/1.0\r\nA: b\r\n\r\n", b"fixed")),
        (["--command", "printf '%s %s' {{1}} '{{Request}}'"], (b"", b"x ping")),
    ],
    ids=["body", "echo", "headers", "command"],
)
def test_a_request_is_answered(
    server: ServerThread, client: Client, arguments: list[str], answer: tuple[bytes, bytes]
) -> None:
    command = ["reply", "svc.*", *arguments, "--count", "1", "-s", server.url]
    with beside(*command, says=b"Answering on") as replying:
        got = client.request(b"svc.x", b"ping", headers=b"NATS/1.0\r\nK: v\r\n\r\n")
        code, out = replying.end()

    assert (got.headers, got.payload) == answer
    assert code == 0
    assert out.startswith(b'[#1] Received on "svc.x"\n')


def test_a_command_that_fails_gives_no_answer_and_the_next_request_is_taken(
    server: ServerThread, client: Client
) -> None:
    command = ["reply", "svc", "--command", "sh -c 'grep good'", "-s", server.url]
    with beside(*command, says=b"Answering on") as replying:
        client.publish(b"svc", b"bad", reply=b"_INBOX.x")
        assert client.request(b"svc", b"good").payload == b"good\n"
        assert replying.process.stderr is not None
        line = replying.process.stderr.readline()
        replying.process.send_signal(signal.SIGINT)
        replying.process.wait(60)

    assert line == b'no answer to "svc": the command ended with 1\n'
    assert replying.process.returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [[], ["body", "--echo"], ["--echo", "--command", "cat"], ["--command", ""],
     ["--command", "'"]],
    ids=["nothing", "two", "other two", "empty", "open quote"],
)  # fmt: skip
def test_how_to_answer_must_be_said_once(
    run: Run, server: ServerThread, arguments: list[str]
) -> None:
    assert run("reply", "svc", *arguments, "-s", server.url).code == 2


def test_a_request_stays_one_argument_whatever_it_says() -> None:
    request = ReceivedMessage(b"a.b c", b"1", b"", b"", b"'; rm -rf / #\n$(x)")

    words = filled_in(["echo", "{{1}}", "<{{Request}}>", "{{9}}", "{{.0}}"], request)

    assert words == ["echo", "b c", "<'; rm -rf / #\n$(x)>", "", "a"]


def test_a_command_finds_the_request_on_stdin_and_in_its_environment() -> None:
    request = ReceivedMessage(b"a.b", b"1", b"", b"", b"body\xff")
    script = 'cat; printf \'|%s|%s\' "$NATS_REQUEST_SUBJECT" "$NATS_REQUEST_BODY"'

    assert run_command(["sh", "-c", script], request, 60) == b"body\xff|a.b|body\xff"
    nul = ReceivedMessage(b"a.b", b"1", b"", b"", b"\0")
    assert run_command(["sh", "-c", script], nul, 60) == b"\0|a.b|"


# Reaching the server


def test_where_nothing_listens_it_is_said_how_to_start_one(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    ran = run("pub", "a", "b", "-s", f"127.0.0.1:{port}")

    assert ran.code == 1
    assert ran.err == (
        f"penstock: cannot connect to 127.0.0.1:{port}: connection refused; "
        "`penstock server` starts a server, -s names another one\n"
    )


def test_the_first_server_that_answers_is_taken(run: Run, server: ServerThread) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    assert run("pub", "a", "b", "-s", f"nats://127.0.0.1:{port}, {server.url}").code == 0


def test_who_is_refused_is_told_what_to_give(run: Run, tmp_path: Path) -> None:
    seed = nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER)
    key = nkeys.from_seed(seed).public_key.decode()
    right, wrong = tmp_path / "right.nk", tmp_path / "wrong.nk"
    right.write_bytes(seed)
    wrong.write_bytes(nkeys.encode_seed(bytes(32), nkeys.PREFIX_BYTE_USER))
    users = f"authorization {{ users: [ {{ nkey: {key} }}, {{ user: u, password: p }} ] }}"
    with start_server(settings=users) as server:

        def told(*options: object, **environ: str) -> str:
            return run("pub", "a", "b", "-s", server.url, *options, env=environ).err

        assert "give --user and --password, --token, --nkey or --creds" in told()
        assert "are --user and --password right?" in told("--user", "u", "--password", "guess")
        assert "is --token right?" in told("--token", "guess")
        assert "public key of --nkey" in told("--nkey", wrong)
        assert "right.nk: no user JWT" in told("--creds", right)
        assert "Published" in told("--nkey", right)
        assert "Published" in told(NATS_NKEY=str(right))
        assert "Published" in told(NATS_USER="u", NATS_PASSWORD="p")
        assert "guess" not in told("--user", "u", "--password", "guess")


def test_a_user_alone_is_a_token(run: Run) -> None:
    with start_server(settings="authorization { token: t }") as server:
        assert run("pub", "a", "b", "-s", server.url, "--user", "t").code == 0


# Pure parts


def test_headers_become_one_block() -> None:
    assert header_block([]) is None
    assert header_block(["A:1", "B-c:  é "]) == "NATS/1.0\r\nA: 1\r\nB-c: é\r\n\r\n".encode()
    with pytest.raises(UsageError):
        header_block([" A: 1"])


def test_a_body_without_a_place_for_the_number_stays_as_it_is() -> None:
    assert with_count(b"{{Other}} Count", 3) == b"{{Other}} Count"


def test_a_shown_payload_keeps_its_lines_and_cannot_play_with_the_terminal() -> None:
    assert shown_lines(b"a\tb\n\x1b[2J\x07") == "a\tb\n\\x1b[2J\\x07"


def test_the_exit_of_a_reader_ends_a_subscriber(server: ServerThread, client: Client) -> None:
    with beside("sub", "a", "--json", "-s", server.url, says=b"Subscribed") as sub:
        client.publish(b"a", b"1")
        client.flush()
        assert json.loads(sub.out.readline())["payload"] == "1"
        sub.out.close()
        client.publish(b"a", b"2")
        client.flush()

        sub.process.wait(60)

        assert sub.process.stderr is not None
        assert sub.process.stderr.read() == b""
