"""Whatever becomes of a stream's blocks, going through them with a filter gives what is there.

The first way through sealed blocks remembers what the filter wants of them; the machine goes the
same ways again and again while messages come and go and blocks are rewritten.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.store.interface import StoreConfig
from penstock.store.log.fast_copy import Copier
from penstock.store.log.fast_scan import Scanner
from penstock.store.memstore import MemoryStore
from penstock.subjects import SubjectFilter

# Some want one message in sixty, some more than is worth remembering, one nothing at first.
PATTERNS = [[b"s.7.*"], [b"s.*.3"], [b"s.8.4", b"s.9.*"], [b"s.*.*"], [b"rare.>"], [b"s.7.>", b"*"]]
FILTERS = [SubjectFilter(patterns) for patterns in PATTERNS]
PAYLOAD = b"p" * 40


def passed(scanner: Scanner, subjects: SubjectFilter, start: int) -> list[int]:
    """Go through a store with a filter, and give the sequences that came out."""
    target = MemoryStore.create()
    copier = Copier(scanner, target.appender())
    copier.copy_placed(subjects, start, 2**40, count_max=10**6, bytes_max=2**40)
    state = target.state()
    gone = set(target.deleted())
    if not state.messages:
        return []
    return [seq for seq in range(state.first_seq, state.last_seq + 1) if seq not in gone]


class SelectionMachine(RuleBasedStateMachine):
    """A stream in blocks of some fifty messages, and ways through it."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore.create(StoreConfig(block_bytes=4096))
        self.scanner = self.store.scanner()
        self.model: dict[int, bytes] = {}

    def keep(self, subject: bytes) -> None:
        seq, _ = self.store.store(subject, b"", PAYLOAD)
        self.model[seq] = subject

    @rule(count=st.integers(1, 150), first=st.integers(0, 60))
    def store_some(self, count: int, first: int) -> None:
        for number in range(first, first + count):
            self.keep(b"s.%d.%d" % (number % 10, number // 10 % 6))

    @rule()
    def store_a_rare_one(self) -> None:
        self.keep(b"rare.1")

    @rule(data=st.data())
    def remove_one(self, data: st.DataObject) -> None:
        if self.model:
            seq = data.draw(st.sampled_from(sorted(self.model)))
            assert self.store.remove(seq)
            del self.model[seq]

    @rule(subjects=st.sampled_from(FILTERS), keep=st.integers(0, 3))
    def purge(self, subjects: SubjectFilter, keep: int) -> None:
        self.store.purge(subjects, keep=keep)
        wanted = [seq for seq, subject in self.model.items() if subjects.matches(subject)]
        for seq in wanted[: len(wanted) - keep if keep else None]:
            del self.model[seq]

    @rule()
    def rewrite_blocks(self) -> None:
        self.store.reclaim(thorough=True)

    @rule(data=st.data())
    def cut_the_end_off(self, data: st.DataObject) -> None:
        if self.model:
            last = data.draw(st.sampled_from(sorted(self.model)))
            self.store.truncate(last)
            self.model = {seq: subject for seq, subject in self.model.items() if seq <= last}

    @invariant()
    def every_way_gives_what_is_there(self) -> None:
        for subjects in FILTERS:
            for start in (1, max(self.store.last_seq // 2, 1)):
                assert passed(self.scanner, subjects, start) == [
                    seq
                    for seq, subject in self.model.items()
                    if seq >= start and subjects.matches(subject)
                ]


SelectionMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=20)
TestSelections = SelectionMachine.TestCase
