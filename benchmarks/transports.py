"""Other transports and identities: TLS, WebSocket, permissions, imports, mappings, many accounts.

Each option is measured in turns with a plain Penstock and with nats-server under the same option.
The goal is 85 % of the plain rate, or twice nats-server's, whichever is less. Beside each rate
stands the processor time of the server a message, for which the same holds: over TLS and WebSocket
the load processes are slower than the servers, and the rate says more of them.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
import socket
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from benchmarks.compared import REFERENCE, processor_time, rate
from benchmarks.measure import Row, Sizes, at_least, at_most, ratio, si
from penstock.bench.plan import Job, Kind, Plan, Role, Target
from penstock.bench.runs import LoadProcesses, Series, in_turns, sized
from penstock.bench.servers import OURS, BenchServer, find_executable
from penstock.client.client import Client
from penstock.client.connect import ClientTls
from penstock.client.credentials import Credentials

ROUNDS_MAX = 3
SECONDS_PART = 0.25
"""The length of a run, as a part of that of the main cases."""

KEPT_OF_PLAIN = 0.85
TIMES_THEIRS = 2.0
ACCOUNTS = 1_000
MANY_SUBJECTS = 10_000
LISTENING = (Role.RECEIVE, Role.ANSWER)


class RolesPlan(Plan, frozen=True):
    """A plan whose listeners connect, or subscribe, otherwise than its publishers do."""

    listener: Target | None = None
    listens_to: str = ""

    def jobs(self, target: Target) -> list[Job]:
        """Return what each process does."""
        return [
            msgspec.structs.replace(
                job,
                target=self.listener or job.target,
                subject=self.listens_to or job.subject,
            )
            if job.role in LISTENING
            else job
            for job in Plan.jobs(self, target)
        ]


CASES = {
    "publish": Plan(Kind.PUB, 1, 128),
    "1:1": Plan(Kind.PUBSUB, 1, 128),
    f"1:1, {MANY_SUBJECTS:,} subjects": Plan(Kind.PUBSUB, 1, 128, spread=MANY_SUBJECTS),
    "fan-out 1:5": Plan(Kind.FANOUT, 1, 128, 1, 5),
    "requests, 100 in flight": Plan(Kind.REQREP, 1, 128, in_flight=100),
    "JetStream publish, 1,000 in flight": Plan(Kind.JSPUB, 1, 128, in_flight=1000),
}
"""What is measured, all at 128 bytes."""

CORE = tuple(name for name in CASES if "JetStream" not in name)


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a server, and how its clients use it."""

    name: str
    settings: str = ""
    """Of the configuration; PORT is a free port, CERT and KEY are files."""

    scheme: str = "nats"
    user: str = ""
    listening_user: str = ""
    subject: str = "bench"
    listens_to: str = ""
    cases: tuple[str, ...] = tuple(CASES)
    crowd: Callable[[int], str] | None = None
    """Returns the user of each of ACCOUNTS idle clients, each with a subscription."""


def _user(name: str, more: str = "") -> str:
    return f"{{ user: {name}, password: p {more} }}"


def _accounts(**accounts: str) -> str:
    made = (f"{name} {{ {about} }}" for name, about in accounts.items())
    return f"accounts {{ {', '.join(made)} }}"


_RIGHTS = (
    ', permissions: { publish: { allow: ["bench", "bench.>", "_INBOX.>", "$JS.API.>"],'
    ' deny: "bench.secret.>" }, subscribe: { allow: ["bench", "bench.>", "_INBOX.>"],'
    ' deny: "bench.secret.>" } }'
)
_MANY_ACCOUNTS = ", ".join(
    f"A{place} {{ users: [ {_user(f'u{place}')} ] {'' if place else ', jetstream: enabled'} }}"
    for place in range(ACCOUNTS)
)

OPTIONS = [
    Option("TLS", "tls { cert_file: CERT, key_file: KEY }", scheme="tls"),
    Option("WebSocket", "websocket { port: PORT, no_tls: true }", scheme="ws"),
    Option(
        "WebSocket, compressed",
        "websocket { port: PORT, no_tls: true, compression: true }",
        scheme="ws",
    ),
    Option(
        "WebSocket over TLS",
        "websocket { port: PORT, tls { cert_file: CERT, key_file: KEY } }",
        scheme="wss",
    ),
    Option(
        "permissions",
        f"authorization {{ users: [ {_user('p', _RIGHTS)} ] }}",
        user="p",
    ),
    Option(
        "imported stream",
        _accounts(
            A=f"users: [ {_user('a')} ], exports: [ {{ stream: '>' }} ]",
            B=f"users: [ {_user('b')} ], imports: ["
            + ", ".join(
                f"{{ stream: {{ account: A, subject: '{each}' }}, to: 'from_a.{each}' }}"
                for each in ("bench", "bench.end")
            )
            + ", { stream: { account: A, subject: 'bench.s.*' }, to: 'from_a.bench.s.$1' } ]",
        ),
        user="a",
        listening_user="b",
        listens_to="from_a.bench",
        cases=tuple(name for name in CORE if "requests" not in name),
    ),
    Option(
        "imported service",
        _accounts(
            A=f"users: [ {_user('a')} ], exports: ["
            " { service: bench }, { service: bench.end } ]",
            B=f"users: [ {_user('b')} ], imports: ["
            " { service: { account: A, subject: bench } },"
            " { service: { account: A, subject: bench.end } } ]",
        ),
        user="b",
        listening_user="a",
        cases=("requests, 100 in flight",),
    ),
    Option(
        "literal mapping",
        "mappings = { bench: mapped, bench.end: mapped.end }",
        listens_to="mapped",
        cases=tuple(name for name in CORE if "subjects" not in name),
    ),
    Option(
        "wildcard mapping",
        'mappings = { "in.*": "out.$1", "in.*.>": "out.$1.>" }',
        subject="in.bench",
        listens_to="out.bench",
        cases=CORE,
    ),
    Option(
        "weighted mapping",
        "mappings = { bench: [ { destination: out.a, weight: 50% },"
        " { destination: out.b, weight: 50% } ], bench.end: out.c.end }",
        listens_to="out.*",
        cases=("publish", "1:1", "fan-out 1:5"),
    ),
    Option(
        f"{ACCOUNTS:,} accounts",
        f"accounts {{ {_MANY_ACCOUNTS} }}",
        user="u0",
        crowd=lambda place: f"u{place}",
    ),
]


@dataclass(slots=True)
class Setting:
    """What all options share."""

    folder: Path
    sizes: Sizes
    load: LoadProcesses
    cert_file: str
    key_file: str
    made: int = 0

    @contextlib.contextmanager
    def server(self, name: str, command: list[str], option: Option) -> Iterator[Started]:
        """Run a server with an option."""
        self.made += 1
        port = _free_port()
        settings = option.settings.replace("PORT", str(port))
        for word, path in (("CERT", self.cert_file), ("KEY", self.key_file)):
            settings = settings.replace(word, json.dumps(path))
        folder = self.folder / f"{name}_{self.made}"
        folder.mkdir(parents=True)
        config = folder / "server.conf"
        store = json.dumps(str(folder / "store"))
        config.write_text(f"jetstream {{ store_dir: {store} }}\n{settings}\n")
        with BenchServer(name, [*command, "-c", str(config)]) as server:
            client_port = server.url.rsplit(":", 1)[1]
            used = port if option.scheme in ("ws", "wss") else client_port
            yield Started(server, f"{option.scheme}://127.0.0.1:{used}", self._tls(option))

    def _tls(self, option: Option) -> ClientTls | None:
        return ClientTls(ca_file=self.cert_file) if option.scheme in ("tls", "wss") else None


@dataclass(frozen=True, slots=True)
class Started:
    """A running server, and how its clients reach it."""

    server: BenchServer
    url: str
    tls: ClientTls | None = None

    def target(self, user: str) -> Target:
        """Return how a user logs in."""
        known = Credentials(user=user, password="p") if user else Credentials()
        return Target(self.url, known, self.tls, pid=self.server.pid)


def run(sizes: Sizes, folder: Path, options: list[Option] | None = None) -> list[Row]:
    """Measure every option in each of its cases."""
    rows = []
    with contextlib.ExitStack() as stack:
        load = stack.enter_context(LoadProcesses())
        cert_file, key_file = _certificate(folder)
        setting = Setting(folder, sizes, load, cert_file, key_file)
        plain = stack.enter_context(setting.server("plain", list(OURS), Option("plain")))
        theirs = [find_executable(REFERENCE)]
        for option in OPTIONS if options is None else options:
            with (
                setting.server("penstock", list(OURS), option) as our,
                setting.server(REFERENCE, theirs, option) as their,
                _crowd(option, (our, their)),
            ):
                for case in option.cases:
                    rows += _rows(option, case, _measured(setting, option, case, plain, our, their))
    return rows


@contextlib.contextmanager
def _crowd(option: Option, servers: tuple[Started, ...]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for started in servers if option.crowd is not None else ():
            for place in range(ACCOUNTS):
                assert option.crowd is not None
                known = Credentials(user=option.crowd(place), password="p")
                client = stack.enter_context(Client.connect(started.url, credentials=known))
                client.subscribe(b"idle.%d" % place)
                client.flush()
        yield


def _measured(
    setting: Setting, option: Option, case: str, plain: Started, our: Started, their: Started
) -> list[Series]:
    plan = CASES[case]
    runs = [(plain, Option("plain")), (our, option), (their, option)]
    measured = []
    for started, used in runs:
        listener = used.listening_user or used.user
        made = RolesPlan(
            **msgspec.structs.asdict(plan) | {"subject": used.subject},
            listener=started.target(listener),
            listens_to="" if plan.kind is Kind.JSPUB else used.listens_to,
        )
        target = started.target(used.user)
        chosen = sized(setting.load, made, target, setting.sizes.server_seconds * SECONDS_PART)
        measured.append(Series(started.server.name, target, chosen))
    in_turns(setting.load, measured, min(setting.sizes.rounds, ROUNDS_MAX))
    return measured


def _rows(option: Option, case: str, measured: list[Series]) -> list[Row]:
    rates = [[rate(run) for run in each.runs] for each in measured]
    costs = [[run.message_ns for run in each.runs] for each in measured]
    rate_bound = min(TIMES_THEIRS, KEPT_OF_PLAIN * ratio(rates[0], rates[2]))
    cost_bound = max(1 / TIMES_THEIRS, ratio(costs[0], costs[2]) / KEPT_OF_PLAIN)
    named = [each.name for each in measured]
    return [
        Row(
            "transports",
            f"{option.name}: {case}: of {REFERENCE}",
            ratio(rates[1], rates[2]),
            "x",
            at_least(round(rate_bound, 2)),
            f"{_shown(rates[1])}; plain {_shown(rates[0])}; {REFERENCE} {_shown(rates[2])}",
            dict(zip(named, rates, strict=True)),
            processor_time(measured[1], measured[2]),
        ),
        Row(
            "transports",
            f"{option.name}: {case}: processor time a message, of {REFERENCE}",
            ratio(costs[1], costs[2]),
            "x",
            at_most(round(cost_bound, 2)),
            f"{_cost(costs[1])}; plain {_cost(costs[0])}; {REFERENCE} {_cost(costs[2])}",
            dict(zip(named, costs, strict=True)),
        ),
    ]


def _shown(rates: list[float]) -> str:
    return si(statistics.median(rates), "msg/s")


def _cost(costs_ns: list[float]) -> str:
    return f"{statistics.median(costs_ns):.0f} ns"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _certificate(folder: Path) -> tuple[str, str]:
    """Make a certificate of this machine that vouches for itself; return its file and its key's."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(parents=True, exist_ok=True)
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return str(cert_file), str(key_file)
