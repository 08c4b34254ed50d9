"""A reload, as clients that are connected see it: the same on both servers."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path

import bcrypt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from penstock.testing.servers import BOTH, ServerProcess
from tests.security.made_certificates import Authority, rdns
from tests.support.dialogue import Dialogue

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

both = pytest.mark.parametrize("name", BOTH)
DONE = "[INF] Reloaded server configuration"


class Configured:
    """A running server and its file."""

    def __init__(self, name: str, folder: Path, text: str) -> None:
        self._file = folder / "server.conf"
        self._write(text)
        self.server = ServerProcess(name, "-c", str(self._file))
        self.server.wait_for("Server is ready")

    def _write(self, text: str) -> None:
        self._file.write_text(f"listen: 127.0.0.1:-1\n{text}\n")

    def connect(self, **fields: str) -> Dialogue:
        """Connect as somebody who is let in."""
        dialogue = Dialogue(self.server.port)
        assert dialogue.login(**fields) == []
        return dialogue

    def reload(self, text: str) -> str:
        """Change the file and have it read; give the line that says what came of it."""
        self._write(text)
        return self.server.reload()

    def __enter__(self) -> Configured:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.__exit__(None, None, None)


def users(*lines: str) -> str:
    return "authorization { users [ " + ", ".join(lines) + " ] }"


ANN = "{ user: ann, password: a }"


@both
def test_a_user_who_is_gone_is_cut_off_and_others_stay(name: str, tmp_path: Path) -> None:
    bob = "{ user: bob, password: b }"
    with (
        Configured(name, tmp_path, users(ANN, bob)) as configured,
        configured.connect(user="ann", **{"pass": "a"}) as ann,
        configured.connect(user="bob", **{"pass": "b"}) as gone,
    ):
        assert configured.reload(users(ANN)).startswith(DONE)

        assert gone.next() == "closed"
        assert ann.answers() == []
        with Dialogue(configured.server.port) as again:
            refusal = again.login(user="bob", **{"pass": "b"})
            assert refusal == ["-ERR 'Authorization Violation'", "closed"]


@both
def test_a_token_that_changed_cuts_off_who_came_with_the_old_one(name: str, tmp_path: Path) -> None:
    with (
        Configured(name, tmp_path, "authorization { token: old }") as configured,
        configured.connect(auth_token="old") as client,
    ):
        configured.reload("authorization { token: new }")

        assert [client.next(), client.next()] == ["-ERR 'Authorization Violation'", "closed"]


@both
def test_the_one_user_with_another_password_must_come_anew(name: str, tmp_path: Path) -> None:
    text = "authorization {{ user: ann, password: {} }}"
    with (
        Configured(name, tmp_path, text.format("old")) as configured,
        configured.connect(user="ann", **{"pass": "old"}) as client,
    ):
        configured.reload(text.format("new"))

        assert client.next() == "closed"


@both
def test_a_password_that_changed_cuts_off_who_came_with_the_old_one(
    name: str, tmp_path: Path
) -> None:
    with (
        Configured(name, tmp_path, users(ANN)) as configured,
        configured.connect(user="ann", **{"pass": "a"}) as ann,
    ):
        configured.reload(users("{ user: ann, password: new }"))

        assert [ann.next(), ann.next()] == ["-ERR 'Authorization Violation'", "closed"]
        configured.connect(user="ann", **{"pass": "new"}).close()


@both
def test_users_where_there_were_none_cut_off_everybody(name: str, tmp_path: Path) -> None:
    with Configured(name, tmp_path, "") as configured, configured.connect() as anybody:
        configured.reload(users(ANN))

        assert [anybody.next(), anybody.next()] == ["-ERR 'Authorization Violation'", "closed"]


@both
def test_subscriptions_that_are_no_longer_allowed_are_taken_away_with_a_word(
    name: str, tmp_path: Path
) -> None:
    limited = '{ user: ann, password: a, permissions: { subscribe: "keep.>" } }'
    with (
        Configured(name, tmp_path, users(ANN)) as configured,
        configured.connect(user="ann", **{"pass": "a"}) as ann,
    ):
        ann.send("SUB keep.it 1", "SUB lose.it 2", "SUB lose.too workers 3")
        assert ann.answers() == []

        configured.reload(users(limited))

        assert sorted([ann.next(), ann.next()]) == [
            '-ERR \'Permissions Violation for Subscription to "lose.it" (sid "2")\'',
            '-ERR \'Permissions Violation for Subscription to "lose.too" using queue '
            '"workers" (sid "3")\'',
        ]
        ann.send("PUB keep.it 0", "", "PUB lose.it 0", "", "PUB lose.too 0", "")
        assert ann.answers() == ["MSG keep.it 1 0", ""]


@both
def test_a_denial_that_is_new_holds_for_subscriptions_that_exist(name: str, tmp_path: Path) -> None:
    denied = '{ user: ann, password: a, permissions: { subscribe: { deny: "foo.secret" } } }'
    with (
        Configured(name, tmp_path, users(ANN)) as configured,
        configured.connect(user="ann", **{"pass": "a"}) as ann,
    ):
        ann.send("SUB foo.* 1")
        assert ann.answers() == []

        configured.reload(users(denied))

        ann.send("PUB foo.secret 0", "", "PUB foo.open 0", "")
        assert ann.answers() == ["MSG foo.open 1 0", ""]


@both
def test_a_right_to_publish_that_is_gone_is_refused_from_then_on(name: str, tmp_path: Path) -> None:
    limited = '{ user: ann, password: a, permissions: { publish: "only" } }'
    with (
        Configured(name, tmp_path, users(ANN)) as configured,
        configured.connect(user="ann", **{"pass": "a"}) as ann,
    ):
        configured.reload(users(limited))

        ann.send("PUB other 0", "")
        assert ann.answers() == ["-ERR 'Permissions Violation for Publish to \"other\"'"]


@both
def test_a_user_who_moved_to_another_account_must_come_anew(name: str, tmp_path: Path) -> None:
    text = "accounts {{ ONE {{ users [ {} ] }}, TWO {{ users [ {} ] }} }}"
    bob = "{ user: bob, password: b }"
    with (
        Configured(name, tmp_path, text.format(ANN, bob)) as configured,
        configured.connect(user="ann", **{"pass": "a"}) as ann,
        configured.connect(user="bob", **{"pass": "b"}) as stays,
    ):
        configured.reload(text.format("", f"{ANN}, {bob}"))

        assert ann.next() == "closed"
        assert stays.answers() == []


@both
def test_a_lower_max_payload_holds_for_who_is_connected(name: str, tmp_path: Path) -> None:
    with Configured(name, tmp_path, "") as configured, configured.connect() as client:
        configured.reload("max_payload: 10")

        client.send("PUB foo 11", "01234567890")
        assert client.answers() == ["-ERR 'Maximum Payload Violation'", "closed"]
        with Dialogue(configured.server.port) as later:
            assert later.info["max_payload"] == 10


@both
def test_fewer_connections_close_the_surplus(name: str, tmp_path: Path) -> None:
    with Configured(name, tmp_path, "") as configured:
        clients = [configured.connect() for _ in range(3)]

        configured.reload("max_connections: 1")

        ends = sorted(str(client.answers()) for client in clients)
        assert ends == sorted(["[]", *2 * ["[\"-ERR 'maximum connections exceeded'\", 'closed']"]])
        for client in clients:
            client.close()


@both
def test_what_may_not_change_is_refused_and_nothing_changes(name: str, tmp_path: Path) -> None:
    with Configured(name, tmp_path, users(ANN)) as configured:
        answer = configured.reload("server_name: other\n" + users("{ user: bob, password: b }"))

        assert answer.startswith(
            "[ERR] Failed to reload server configuration: config reload not supported for"
        )
        configured.connect(user="ann", **{"pass": "a"}).close()


@both
def test_a_file_that_is_wrong_is_told_with_its_place_and_nothing_changes(
    name: str, tmp_path: Path
) -> None:
    with Configured(name, tmp_path, users(ANN)) as configured:
        answer = configured.reload("nonsense: 1")

        assert answer == (
            f"[ERR] Failed to reload server configuration: {tmp_path}/server.conf:2:1: "
            'unknown field "nonsense"'
        )
        configured.connect(user="ann", **{"pass": "a"}).close()


@both
def test_a_pid_file_that_cannot_be_written_is_logged_and_the_reload_is_done(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / "no" / "such.pid"
    with Configured(name, tmp_path, "") as configured:
        assert configured.reload(f'pid_file: "{path}"').startswith(DONE)

        reason = f"open {path}: no such file or directory"
        configured.server.wait_for(f"[ERR] Failed to write pidfile: {reason}")


@both
def test_ports_that_were_to_be_any_stay_as_they_are(name: str, tmp_path: Path) -> None:
    monitoring = 'http: "127.0.0.1:-1"\n'
    with Configured(name, tmp_path, monitoring) as configured, configured.connect() as client:
        assert configured.reload(monitoring + "max_payload: 10").startswith(DONE)

        assert client.answers() == []
        configured.connect().close()


@both
def test_debugging_is_turned_on_without_a_restart(name: str, tmp_path: Path) -> None:
    with Configured(name, tmp_path, "") as configured:
        configured.connect().close()
        assert not any("[DBG]" in line for line in configured.server.lines)

        configured.reload("debug: true")

        configured.connect().close()
        configured.server.wait_for("[DBG]")


@both
def test_a_new_certificate_is_for_new_connections_and_old_ones_stay(
    name: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    names = [x509.DNSName("localhost")]
    first, second = (authority.make(rdns("CN=localhost"), names) for _ in range(2))
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_bytes(first.cert_file.read_bytes())
    key.write_bytes(first.key_file.read_bytes())
    text = f'tls {{ cert_file: "{cert}", key_file: "{key}" }}'
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    with (
        Configured(name, tmp_path, text) as configured,
        Dialogue(configured.server.port, tls=context) as old,
    ):
        assert old.login() == []

        cert.write_bytes(second.cert_file.read_bytes())
        key.write_bytes(second.key_file.read_bytes())
        assert configured.reload(text).startswith(DONE)

        with Dialogue(configured.server.port, tls=context) as new:
            assert new.login() == []
            assert old.certificate_serial != new.certificate_serial
        assert old.answers() == []


@both
def test_a_client_whose_certificate_is_no_longer_listed_is_cut_off(
    name: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    shown = authority.make(rdns("CN=localhost"), [x509.DNSName("localhost")])
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    context.load_cert_chain(shown.cert_file, shown.key_file)
    certificate = x509.load_pem_x509_certificate(shown.cert_file.read_bytes())
    key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    def pinned(fingerprint: str) -> str:
        return (
            f'tls {{ cert_file: "{shown.cert_file}", key_file: "{shown.key_file}", '
            f'ca_file: "{authority.ca_file}", verify: true, pinned_certs: ["{fingerprint}"] }}'
        )

    with (
        Configured(name, tmp_path, pinned(hashlib.sha256(key).hexdigest())) as configured,
        Dialogue(configured.server.port, tls=context) as client,
    ):
        assert client.login() == []

        assert configured.reload(pinned("0" * 64)).startswith(DONE)

        assert client.next() == "closed"
        configured.server.wait_for("Reloaded: 1 pinned_certs")
        configured.server.wait_for("Disconnect 1 clients due to pinned certs reload")


@both
def test_tls_that_is_turned_on_is_for_new_connections(name: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    made = authority.make(rdns("CN=localhost"), [x509.DNSName("localhost")])
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    with Configured(name, tmp_path, "") as configured, configured.connect() as old:
        configured.reload(f'tls {{ cert_file: "{made.cert_file}", key_file: "{made.key_file}" }}')

        with Dialogue(configured.server.port, tls=context) as new:
            assert new.info["tls_required"] is True
            assert new.login() == []
        assert old.answers() == []


def hashed(password: str, rounds: int) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(rounds, prefix=b"2a")).decode()


@both
def test_users_with_hashed_passwords_are_looked_at_again(name: str, tmp_path: Path) -> None:
    ann = f'{{ user: ann, password: "{hashed("a", 4)}" }}'
    bob = f'{{ user: bob, password: "{hashed("b", 4)}" }}'
    changed = f'{{ user: bob, password: "{hashed("other", 4)}" }}'
    with (
        Configured(name, tmp_path, users(ann, bob)) as configured,
        configured.connect(user="ann", **{"pass": "a"}) as stays,
        configured.connect(user="bob", **{"pass": "b"}) as cut_off,
    ):
        assert configured.reload(users(ann, changed)).startswith(DONE)

        assert [cut_off.next(), cut_off.next()] == ["-ERR 'Authorization Violation'", "closed"]
        assert stays.answers() == []


def test_a_client_whose_password_is_being_verified_is_measured_by_the_new_users(
    tmp_path: Path,
) -> None:
    old = f'{{ user: ann, password: "{hashed("a", 13)}" }}'
    with (
        Configured("penstock", tmp_path, users(old)) as configured,
        Dialogue(configured.server.port) as late,
    ):
        late.send('CONNECT {"user":"ann","pass":"a"}', "PING")

        configured.reload(users("{ user: ann, password: new }"))

        assert [late.next(), late.next()] == ["-ERR 'Authorization Violation'", "closed"]
