"""A stream in numbers, read from its ledger at one moment.

Compiled, because every answer about a stream or a consumer begins with it.

Pure; any thread. Whoever makes one holds the store's lock.
"""

cimport cython

from penstock.store.log.ledger cimport Ledger


@cython.final
cdef class StoreState:
    """The numbers of one stream; none of them changes any more."""

    def __init__(self, Ledger ledger not None, uint64_t durable_seq, lost):
        cdef uint64_t span = ledger.last_seq - ledger.first_seq + 1
        self.messages = ledger.messages
        self.bytes = ledger.bytes
        self.first_seq = ledger.first_seq
        self.first_time_ns = ledger.first_time_ns
        self.last_seq = ledger.last_seq
        self.last_time_ns = ledger.last_time_ns
        # An empty stream may begin behind its last sequence.
        if ledger.last_seq >= ledger.first_seq and span > ledger.messages:
            self.deleted = span - ledger.messages
        self.subjects = ledger.table.live
        self.durable_seq = durable_seq
        self.lost = tuple(lost)

    cdef tuple _fields(self):
        return (
            self.messages, self.bytes, self.first_seq, self.first_time_ns, self.last_seq,
            self.last_time_ns, self.deleted, self.subjects, self.durable_seq, self.lost,
        )

    def __eq__(self, other):
        return type(other) is StoreState and (<StoreState>other)._fields() == self._fields()

    def __hash__(self):
        return hash(self._fields())

    def __repr__(self):
        return f"StoreState{self._fields()!r}"
