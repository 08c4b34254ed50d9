"""The streams that are known: their sums and their subjects are what counting anew would find."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.stream.config.config import StorageType, StreamConfig
from penstock.stream.config.known import KnownStreams
from penstock.subjects import patterns_overlap

TOKENS = st.sampled_from(["a", "b", "*"])
SUBJECTS = st.builds(
    lambda tokens, has_rest: ".".join([*tokens, *[">"] * has_rest]) or "a",
    st.lists(TOKENS, max_size=3),
    st.booleans(),
)
CONFIGS = st.builds(
    StreamConfig,
    name=st.sampled_from("ABCD"),
    subjects=st.lists(SUBJECTS, max_size=3, unique=True).map(tuple),
    storage=st.sampled_from(StorageType),
    num_replicas=st.integers(0, 3),
    max_bytes=st.integers(-1, 50),
)
STEPS = st.lists(st.one_of(CONFIGS, st.sampled_from("ABCD")), max_size=12)


def overlap(one: StreamConfig, other: StreamConfig) -> bool:
    return any(
        patterns_overlap(own.encode(), theirs.encode())
        for own in one.subjects
        for theirs in other.subjects
    )


@given(STEPS, CONFIGS)
def test_what_is_known_is_what_counting_anew_finds(
    steps: list[StreamConfig | str], asked: StreamConfig
) -> None:
    known = KnownStreams()
    model: dict[str, StreamConfig] = {}
    for step in steps:
        if isinstance(step, StreamConfig):
            known.put(step)
            model[step.name] = step
        elif step in model:
            known.drop(step)
            del model[step]

    assert dict(known) == model
    assert known.count() == len(model)
    for replicas in (1, 2, 3):
        same = [each for each in model.values() if max(each.num_replicas, 1) == replicas]
        assert known.count(replicas=replicas) == len(same)
    for storage in StorageType:
        kept = [each for each in model.values() if each.storage is storage]
        assert known.reserved_bytes(storage) == sum(max(each.max_bytes, 0) for each in kept)
        by_replicas = dict(known.reserved_by_replicas(storage))
        for replicas in (1, 2, 3):
            same = [each for each in kept if max(each.num_replicas, 1) == replicas]
            assert by_replicas.get(replicas, 0) == sum(max(each.max_bytes, 0) for each in same)
    others = [each for each in model.values() if each.name != asked.name]
    assert known.overlaps(asked) == any(overlap(asked, each) for each in others)
