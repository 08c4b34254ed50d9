"""Our rules for a consumer's configuration and the real server's: the same answer to each request.

Where ours go further on purpose is in `test_validation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.consumer.config.config import ConsumerConfig
from penstock.stream.quota import AccountLimits, ServerLimits, TierLimits
from penstock.testing.servers import reference_server
from tests.consumer import corpus, corpus_random, corpus_requests
from tests.consumer.compared import (
    Case,
    OurRules,
    alone,
    answers_that_differ,
    differences,
    named,
)
from tests.support.nats_client import NatsClient

pytestmark = pytest.mark.oracle

CASES = corpus.CASES + corpus_requests.CASES
CASES_PER_TEST = 100
RANDOM_SEEDS = 4
RANDOM_CASES = 250


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with reference_server(store_dir=tmp_path_factory.mktemp("reference")) as server:
        yield server.port


@pytest.mark.parametrize("start", range(0, len(CASES), CASES_PER_TEST))
def test_each_request_has_the_real_servers_answer(port: int, start: int) -> None:
    assert answers_that_differ(port, CASES[start : start + CASES_PER_TEST]) == []


@pytest.mark.parametrize("seed", range(RANDOM_SEEDS))
def test_requests_at_random_have_the_real_servers_answers(port: int, seed: int) -> None:
    assert answers_that_differ(port, [*corpus_random.cases(RANDOM_CASES, seed)]) == []


def test_every_field_of_a_configuration_is_asked_for() -> None:
    bodies = b"".join(request.body for case in CASES for request in case.requests)

    missing = [
        name for name in ConsumerConfig.__struct_fields__ if f'"{name}"'.encode() not in bodies
    ]
    assert missing == []


def test_an_accounts_limits_have_the_real_servers_answers(tmp_path: Path) -> None:
    cases = [
        *(alone(ack_policy="explicit", max_ack_pending=count) for count in (-1, 0, 50, 51)),
        *(alone(max_ack_pending=count) for count in (0, 50, 51)),
        Case((named("A"), named("B"), named("C"), named("A", description="again"))),
        Case((named("A"), named("B"), named("C")), {"max_consumers": 1}),
    ]
    settings = (
        "no_auth_user: a\naccounts { A { users: [{user: a, password: a}], "
        "jetstream: { max_consumers: 2, max_ack_pending: 50 } } }"
    )
    account = AccountLimits({"": TierLimits(max_consumers=2, max_ack_pending=50)})

    with reference_server(settings=settings, store_dir=tmp_path) as server:
        assert answers_that_differ(server.port, cases, account=account) == []


def test_a_servers_limits_have_the_real_servers_answers(tmp_path: Path) -> None:
    three = (named("A"), named("B"), named("C"))
    cases = [
        *(alone(ack_policy="explicit", max_ack_pending=count) for count in (-1, 0, 70, 71)),
        *(alone(max_batch=count) for count in (-1, 0, 30, 31)),
        *(alone(max_batch=count, pedantic=True) for count in (0, 30, 31)),
        *(alone(max_batch=count, deliver_subject="to") for count in (0, 31)),
        Case((named(ack_policy="all"),), {"consumer_limits": {"max_ack_pending": 5}}),
        *(Case(three, {"max_consumers": count}) for count in (-1, 0, 1, 5)),
    ]
    limits = ServerLimits(ack_pending_max=70, request_batch_max=30, consumers_max=2)
    settings = (
        "jetstream { limits { "
        "max_ack_pending: 70, max_request_batch: 30, default_max_consumers: 2 } }"
    )

    with reference_server(settings=settings, store_dir=tmp_path) as server:
        assert answers_that_differ(server.port, cases, limits) == []


def test_an_answer_that_differs_is_found(port: int) -> None:
    with NatsClient(port) as client:
        found = differences(client, OurRules("another version"), alone(description="d"))

    assert [request for request, _ in found] == [
        'S.C. {"stream_name": "S", "config": {"description": "d"}}'
    ]
