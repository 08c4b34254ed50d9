"""Our rules for a stream's configuration and the real server's: the same answer to each request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.stream.config.config import StreamConfig
from penstock.stream.quota import AccountLimits, ServerLimits, TierLimits
from tests.stream import corpus, corpus_subjects
from tests.stream.compared import (
    Case,
    OurRules,
    Reference,
    ask_reference,
    create,
    differences,
    forget_streams,
    reference_in,
    update,
)

pytestmark = pytest.mark.oracle

CASES = corpus.CASES + corpus_subjects.CASES
CASES_PER_TEST = 40
MIB = 1 << 20
MINUTE_NS = 60_000_000_000


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    with reference_in(tmp_path_factory.mktemp("reference")) as server:
        yield server


def answers_that_differ(
    reference: Reference, cases: list[Case], server: ServerLimits, account: AccountLimits
) -> list[object]:
    found: list[object] = []
    with reference.connect() as client:
        for case in cases:
            rules = OurRules(client.server_version, server=server, account=account)
            found += differences(reference, client, rules, case)
    return found


@pytest.mark.parametrize("start", range(0, len(CASES), CASES_PER_TEST))
def test_each_request_has_the_real_servers_answer(reference: Reference, start: int) -> None:
    cases = CASES[start : start + CASES_PER_TEST]

    assert answers_that_differ(reference, cases, ServerLimits(), AccountLimits()) == []


def test_every_field_of_a_configuration_is_asked_for() -> None:
    bodies = b"".join(request.body for case in CASES for request in case)

    missing = [
        name for name in StreamConfig.__struct_fields__ if f'"{name}"'.encode() not in bodies
    ]
    assert missing == []


def test_an_accounts_limits_have_the_real_servers_answers(tmp_path: Path) -> None:
    cases: list[Case] = [
        *[(create(max_bytes=count),) for count in (-1, 0, 1, 4 * MIB, 4 * MIB + 1)],
        *[(create(max_bytes=count, storage="memory"),) for count in (-1, MIB, MIB + 1)],
        *[(create(max_bytes=1, max_consumers=count),) for count in (5, 6)],
        *[(create(max_bytes=1, num_replicas=count),) for count in (2, 3)],
        (*(create(name, max_bytes=4 * MIB) for name in "AB"), create("C", max_bytes=1)),
        (*(create(name, max_bytes=1) for name in "ABCDC"), create("C", max_bytes=2)),
        (*(create(name, max_bytes=MIB, storage="memory") for name in "ABC"),),
        (create("A", max_bytes=1), update("A", max_bytes=1, max_consumers=6)),
        (create("A", max_bytes=4 * MIB), update("A", max_bytes=4 * MIB, num_replicas=3)),
        (
            create("A", max_bytes=4 * MIB),
            create("B", max_bytes=3 * MIB),
            *(update("B", max_bytes=count) for count in (4 * MIB, 4 * MIB + 1, -1)),
            update("A", max_bytes=1),
            update("B", max_bytes=5, description="less"),
        ),
        (create(max_bytes=9 * MIB, storage="file", description="x" * 5000),),
    ]
    account = TierLimits(
        max_memory=2 * MIB,
        max_storage=8 * MIB,
        max_streams=3,
        max_consumers=5,
        memory_max_stream_bytes=MIB,
        storage_max_stream_bytes=4 * MIB,
        max_bytes_required=True,
    )
    settings = (
        "no_auth_user: a\naccounts { A { users: [{user: a, password: a}], jetstream: {"
        f"max_mem: {2 * MIB}, max_file: {8 * MIB}, max_streams: 3, max_consumers: 5, "
        f"memory_max_stream_bytes: {MIB}, store_max_stream_bytes: {4 * MIB}, "
        "max_bytes_required: true } } }"
    )

    with reference_in(tmp_path, settings) as server:
        found = answers_that_differ(server, cases, ServerLimits(), AccountLimits({"": account}))

    assert found == []


def test_a_servers_limits_have_the_real_servers_answers(tmp_path: Path) -> None:
    cases: list[Case] = [
        *[(create(pedantic=pedantic),) for pedantic in (False, True)],
        *[(create(duplicate_window=ns),) for ns in (MINUTE_NS, MINUTE_NS + 1)],
        *[(create(max_age=MINUTE_NS // 2, pedantic=pedantic),) for pedantic in (False, True)],
        (create(sources=[{"name": "O"}], duplicate_window=MINUTE_NS + 1),),
        *[(create(max_bytes=count),) for count in (20 * MIB, 20 * MIB + 1)],
        *[(create(max_bytes=count, storage="memory"),) for count in (10 * MIB, 10 * MIB + 1)],
        (create("A", max_bytes=20 * MIB), create("B")),
        (
            create("A", max_bytes=15 * MIB),
            *(create(name, max_bytes=count * MIB) for name, count in (("B", 6), ("C", 5))),
            create("D"),
            *(update("A", max_bytes=count * MIB) for count in (16, 14)),
            create("D", max_bytes=MIB),
        ),
    ]
    server_limits = ServerLimits(10 * MIB, 20 * MIB, duplicate_window_ns_max=MINUTE_NS)
    limits = f'max_mem: {10 * MIB}, max_file: {20 * MIB}, limits {{ duplicate_window: "1m" }}'
    settings = f"jetstream {{ {limits} }}"

    with reference_in(tmp_path, settings) as server:
        found = answers_that_differ(server, cases, server_limits, AccountLimits())

    assert found == []


def test_an_answer_that_differs_is_found(reference: Reference) -> None:
    rules = OurRules("another version")

    with reference.connect() as client:
        found = differences(reference, client, rules, (create(), create(max_msgs=1)))

    assert [request for request, _ in found] == ['CREATE {"name": "S"}']


def test_the_two_sides_are_asked_the_same_way(reference: Reference) -> None:
    with reference.connect() as client:
        answer = ask_reference(client, create("T", max_msgs=3))
        forget_streams(client)

    assert answer.startswith(b'{"name":"T","subjects":["T"],"retention":"limits"')
    assert answer == OurRules(client.server_version).ask(create("T", max_msgs=3))
