"""Configurations of streams and consumers as answers show them, encoded once.

A configuration never changes, so its JSON is made for the first answer and kept for later ones, for
as long as there is room: it is most of what there is to write of a stream or consumer. Compiled,
because a list asks for each of its items.

Thread: the event loop's.
"""

cimport cython

from penstock.text.json.write cimport Encoded

from penstock.limits import SHOWN_CONFIGS_BYTES_MAX
from penstock.text.json.codec import encode


@cython.final
cdef class _Kept:
    """JSON by the identity of configurations, which are kept with it."""

    def __init__(self):
        self.found = {}

    cdef Encoded find(self, object config):
        # The JSON of a configuration, or None.
        cdef tuple found = self.found.get(id(config))
        return None if found is None else <Encoded>found[1]

    cdef Encoded keep(self, object config, object shown):
        # Encode what is shown of a configuration, and keep it if there is room.
        cdef Encoded encoded = Encoded(encode(shown))
        cdef size_t size = len(encoded.text), most = SHOWN_CONFIGS_BYTES_MAX
        if self.bytes + size > most:
            self.found.clear()
            self.bytes = 0
        if size <= most:
            self.found[id(config)] = (config, encoded)
            self.bytes += size
        return encoded


@cython.final
cdef class ShownConfigs:
    """The JSON of configurations of one class; see the module."""

    def __init__(self, for_answer):
        """`for_answer(config, version)` adds what answers about a single one say of the server."""
        self.for_answer = for_answer
        self.kept = _Kept()
        self.kept_for_answers = {}

    cpdef Encoded listed(self, object config):
        """Return a configuration as it is kept, and as lists show it."""
        cdef Encoded found = self.kept.find(config)
        return self.kept.keep(config, config) if found is None else found

    def answered(self, config, str version not None):
        """Return a configuration as an answer about it alone shows it, with the version."""
        cdef _Kept kept = self.kept_for_answers.get(version)
        cdef Encoded found
        if kept is None:
            kept = self.kept_for_answers[version] = _Kept()
        found = kept.find(config)
        return kept.keep(config, self.for_answer(config, version)) if found is None else found
