# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Putting the parts of a frame one behind the other."""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy


cdef inline Py_ssize_t digits(uint64_t value) noexcept nogil:
    """How many digits a number has."""
    cdef Py_ssize_t count = 1
    while value >= 10000:
        value //= 10000
        count += 4
    return count + (value >= 10) + (value >= 100) + (value >= 1000)


cdef inline uint8_t *put_number(uint8_t *to, uint64_t value) noexcept nogil:
    """Put a number in digits; what follows each of these is where the next part goes."""
    cdef Py_ssize_t count = digits(value), place = count
    while place:
        place -= 1
        to[place] = <uint8_t>(48 + value % 10)
        value //= 10
    return to + count


cdef inline uint8_t *put(uint8_t *to, const void *data, Py_ssize_t size) noexcept nogil:
    memcpy(to, data, size)
    return to + size


cdef inline uint8_t *put_length(uint8_t *to, Py_ssize_t length) noexcept nogil:
    """Put the length that a frame begins with."""
    to[0], to[1] = <uint8_t>(length >> 24), <uint8_t>(length >> 16)
    to[2], to[3] = <uint8_t>(length >> 8), <uint8_t>length
    return to + 4
