"""Options as Spark hands them over: any case, texts, and no typo passes."""

from __future__ import annotations

import msgspec
import pytest

from penstock.errors import UsageError
from penstock.spark.options import Names, Options, Size


class Group(msgspec.Struct, frozen=True, rename="camel"):
    fetch_batch: int = 5
    fail_on_loss: bool = True
    largest: Size = Size(1)
    subject: Names | None = None


def read(**given: str) -> Group:
    options = Options("f", given, {"nats.subject": "subject"})
    group = options.group(Group)
    options.finish()
    return group


def test_names_have_any_case_and_values_their_types() -> None:
    found = read(FETCHBATCH="7", failonloss="false", Largest="2k", subject=" a , b.>")

    assert found == Group(7, fail_on_loss=False, largest=Size(2048), subject=Names(("a", "b.>")))
    assert read() == Group()


def test_another_name_of_an_option_is_that_option() -> None:
    assert read(**{"nats.Subject": "x"}).subject == ("x",)
    with pytest.raises(UsageError, match="one and the same"):
        read(**{"nats.subject": "x", "subject": "y"})


def test_what_a_catalog_repeats_is_passed_over() -> None:
    assert read(**{"fetchBatch": "7", "option.fetchBatch": "7", "provider": "f"}) == Group(7)
    with pytest.raises(UsageError, match="provider"):
        read(fetchBatch="7", provider="f")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"failOnLos": "true"}, "did you mean failOnLoss"),
        ({"zzz": "1"}, "There are: failOnLoss, fetchBatch, largest, subject"),
        ({"fetchBatch": "many"}, "option fetchBatch: 'many'"),
        ({"failOnLoss": "perhaps"}, "option failOnLoss: 'perhaps'"),
        ({"largest": "0"}, "option largest: '0'"),
        ({"largest": "2x"}, "256m"),
        ({"largest": ""}, "option largest"),
        ({"subject": " , "}, "a name is missing"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(**given)

    assert told in str(refused.value)
