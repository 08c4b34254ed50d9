# Configurations as answers show them, encoded once; see shown_configs.pyx.

from penstock.text.json.write cimport Encoded


cdef class _Kept:
    # (configuration, its JSON) by the identity of the configuration.
    cdef dict found
    cdef size_t bytes

    cdef Encoded find(self, object config)
    cdef Encoded keep(self, object config, object shown)


cdef class ShownConfigs:
    cdef object for_answer
    cdef _Kept kept
    # By the version of the server.
    cdef dict kept_for_answers

    cpdef Encoded listed(self, object config)
