# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Putting the parts of a frame one behind the other."""

from libc.stdint cimport uint8_t
from libc.string cimport memcpy


cdef inline uint8_t *put(uint8_t *to, const void *data, Py_ssize_t size) noexcept nogil:
    """Put some bytes; what follows each of these is where the next part goes."""
    memcpy(to, data, size)
    return to + size


cdef inline uint8_t *put_length(uint8_t *to, Py_ssize_t length) noexcept nogil:
    """Put the length that a frame begins with."""
    to[0], to[1] = <uint8_t>(length >> 24), <uint8_t>(length >> 16)
    to[2], to[3] = <uint8_t>(length >> 8), <uint8_t>length
    return to + 4
