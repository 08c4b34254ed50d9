"""Where our rules go further than the real server's: what is bounded, and what is refused."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock import error_codes
from penstock.errors import ApiError
from penstock.limits import STREAM_SOURCES_MAX, STREAM_SUBJECTS_MAX, SUBJECT_PAIRS_MAX
from penstock.stream.config.config import (
    ExternalStream,
    RePublish,
    StreamConfig,
    StreamSource,
    SubjectTransformConfig,
)
from penstock.stream.config.known import KnownStreams
from penstock.stream.config.validation import checked_config
from penstock.stream.quota import AccountLimits, ServerLimits

MANY = int(SUBJECT_PAIRS_MAX**0.5) + 1
TRANSFORMS = tuple(SubjectTransformConfig(f"a{place}", "b") for place in range(MANY))


def checked(config: StreamConfig, *existing: StreamConfig) -> StreamConfig:
    return checked_config(
        config,
        server=ServerLimits(),
        account=AccountLimits(),
        existing=KnownStreams(existing),
    )


def test_a_checked_configuration_checks_out_again_unchanged() -> None:
    config = checked(StreamConfig(name="S", republish=RePublish(dest="r.>"), allow_batched=True))

    assert checked(config) == config


def test_a_check_leaves_what_it_was_given_alone() -> None:
    config = StreamConfig(name="S")

    checked(config)

    assert config == StreamConfig(name="S")


@pytest.mark.parametrize("name", ["a\0b", "..", "../x", "", "x" * 256])
def test_a_name_that_is_no_name_of_a_folder_is_refused(name: str) -> None:
    with pytest.raises(ApiError) as caught:
        checked(StreamConfig(name=name))

    assert caught.value.err_code == error_codes.STREAM_INVALID_CONFIG.err_code


@pytest.mark.parametrize(("source", "destination"), [("a.*", "b c"), ("a b", "c"), ("a", ">.b")])
def test_messages_are_not_published_again_to_what_is_no_subject(
    source: str, destination: str
) -> None:
    config = StreamConfig(
        name="S", subjects=("s.>",), republish=RePublish(src=source, dest=destination)
    )

    with pytest.raises(ApiError, match=r"republish with transform .* not valid"):
        checked(config)


@pytest.mark.parametrize(
    "config",
    [
        StreamConfig(mirror=StreamSource("O", subject_transforms=TRANSFORMS)),
        StreamConfig(sources=(StreamSource("O", subject_transforms=TRANSFORMS),)),
        StreamConfig(
            subjects=tuple(f"s.{place}" for place in range(MANY)),
            sources=tuple(StreamSource("S", filter_subject=f"b.{place}") for place in range(MANY)),
        ),
        StreamConfig(
            sources=(
                StreamSource("O"),
                *(
                    StreamSource("P", external=ExternalStream(f"api.{place}", f"d.{place}"))
                    for place in range(MANY)
                ),
            )
        ),
    ],
    ids=["mirror", "source", "cycle", "prefixes"],
)
def test_work_that_grows_with_the_square_of_a_request_is_bounded(config: StreamConfig) -> None:
    origin = StreamConfig(name="O", subjects=tuple(f"o.{place}" for place in range(MANY)))

    with pytest.raises(ApiError, match="too many subjects to compare"):
        checked(replace(config, name="S"), origin)


def test_streams_that_take_from_each_other_by_many_ways_are_walked_once_each() -> None:
    # Thirty layers of three streams, each of which takes from all of the next: 3 ** 30 ways.
    layers = [
        StreamConfig(
            name=f"{layer}-{place}",
            sources=tuple(StreamSource(f"{layer + 1}-{other}") for other in range(3)),
        )
        for layer in range(30)
        for place in range(3)
    ]

    config = checked(StreamConfig(name="S", sources=(StreamSource("0-0"),)), *layers)

    assert config.sources == (StreamSource("0-0"),)


def test_more_subjects_or_sources_than_can_be_served_are_refused() -> None:
    subjects = tuple(f"s.{place}" for place in range(STREAM_SUBJECTS_MAX + 1))
    sources = tuple(StreamSource(f"S{place}") for place in range(STREAM_SOURCES_MAX + 1))

    assert len(checked(StreamConfig(name="S", subjects=subjects[1:])).subjects) == len(subjects) - 1
    assert len(checked(StreamConfig(name="S", sources=sources[1:])).sources) == len(sources) - 1
    with pytest.raises(ApiError, match="too many subjects to compare"):
        checked(StreamConfig(name="S", subjects=subjects))
    with pytest.raises(ApiError, match="too many sources"):
        checked(StreamConfig(name="S", sources=sources))
