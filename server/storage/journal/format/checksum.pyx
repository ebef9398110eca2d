# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Checksum tests of the bodies of many entries, in C; see checksum.pyi."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t

from server.storage.journal.format.octets cimport crc32c, uint8_t, uint32_t


def damaged(
    bytes data not None,
    const int64_t[:] starts,
    const int64_t[:] ends,
    const uint32_t[:] checksums,
):
    cdef const uint8_t *base = <const uint8_t *> PyBytes_AS_STRING(data)
    cdef int64_t size = PyBytes_GET_SIZE(data)
    cdef Py_ssize_t index, count = starts.shape[0]
    if ends.shape[0] != count or checksums.shape[0] != count:
        raise ValueError("as many bodies begin as end, and have checksums")
    found = []
    for index in range(count):
        if (
            not 0 <= starts[index] <= ends[index] <= size
            or crc32c(base + starts[index], ends[index] - starts[index]) != checksums[index]
        ):
            found.append(index)
    return found
