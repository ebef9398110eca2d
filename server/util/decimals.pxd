# cython: language_level=3, cdivision=True
"""Numbers as decimal digits of texts."""

from libc.stdint cimport uint8_t, uint64_t


cdef enum:
    MAX_DECIMALS = 20  # digits of a number of 64 bits


cdef inline Py_ssize_t count_decimals(uint64_t value) noexcept nogil:
    cdef Py_ssize_t count = 1
    while value >= 10000:
        value //= 10000
        count += 4
    return count + (value >= 10) + (value >= 100) + (value >= 1000)


cdef inline uint8_t *put_decimals(uint8_t *to, uint64_t value) noexcept nogil:
    """Write a number; return the address behind its last digit."""
    cdef Py_ssize_t count = count_decimals(value), index = count
    while index:
        index -= 1
        to[index] = <uint8_t>(48 + value % 10)
        value //= 10
    return to + count
