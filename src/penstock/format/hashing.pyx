"""XXH64, the checksum of every file of the store.

The function itself is in hashing.pxd, where compiled modules inline it; this is its Python face.
Pure; any thread, without the interpreter lock.
"""

from libc.stdint cimport uint8_t, uint64_t


def xxh64(const uint8_t[::1] data not None, uint64_t seed=0):
    """Hash a contiguous buffer."""
    if data.shape[0] == 0:
        return xxh64_raw(NULL, 0, seed)
    return xxh64_raw(&data[0], data.shape[0], seed)
