"""How many messages are pending, always as counting anew would give it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.consumer.needs import PendingCount
from penstock.store.interface import StoreConfig
from penstock.store.memstore import MemoryStore
from penstock.subjects import SubjectFilter

SUBJECTS = (b"a", b"b", b"c")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("store"), st.integers(1, 8)),
        st.tuples(st.just("deliver"), st.integers(1, 5)),
        st.tuples(st.just("remove"), st.integers(1, 60)),
        st.tuples(st.just("purge"), st.integers(1, 60)),
        st.tuples(st.just("jump"), st.integers(1, 60)),
    ),
    max_size=40,
)


@given(steps=STEPS, limit=st.sampled_from([0, 5]), patterns=st.sampled_from([(), (b"a", b"b")]))
@settings(max_examples=200, deadline=None)
def test_the_count_is_what_counting_anew_gives(
    steps: list[tuple[str, int]], limit: int, patterns: tuple[bytes, ...]
) -> None:
    subjects = SubjectFilter(list(patterns)) if patterns else None
    store = MemoryStore.create(StoreConfig(max_msgs=limit))
    counting = PendingCount(store, subjects)
    place = 1
    for step, number in steps:
        if step == "store":
            for each in range(number):
                store.store(SUBJECTS[(number + each) % 3], b"", b"")
        elif step == "deliver":
            before = store.count_pending(subjects, place)
            place += number
            counting.delivered(before - store.count_pending(subjects, place), place)
        elif step == "remove":
            store.remove(number)
        elif step == "purge":
            store.purge(SubjectFilter([b"a"]), seq=number)
        else:
            place = number

        assert counting.count(place) == store.count_pending(subjects, place)
