# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Sequence numbers of consecutive messages, from their digits.

Publishers count, so most are a range: that is found by one pass over the digits, takes no object
for each, and callers that get a range need not check any number.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t

from amperage.wire.frame_slices cimport FrameSlices

cdef enum:
    MAX_DIGITS = 18  # any number of so many digits fits into 64 bits


def numbers_of(digits):
    cdef Py_ssize_t count = len(digits), at
    cdef uint64_t number = 0, first = 0
    if not count:
        return ()
    for at in range(count):
        if not read_number(digits, at, &number):
            return list(map(int, digits))
        if not at:
            first = number
        elif number != first + <uint64_t>at:
            return list(map(int, digits))
    return range(first, first + <uint64_t>count)


cdef bint read_number(digits, Py_ssize_t which, uint64_t *number) except -1:
    """Parse one of the numbers. Return whether it consists of 1 to 18 digits."""
    cdef FrameSlices slices
    cdef bytes piece
    cdef const char *text
    cdef Py_ssize_t size, at
    if type(digits) is FrameSlices:
        slices = <FrameSlices>digits
        text = PyBytes_AS_STRING(slices.chunk) + slices.first[which].start
        size = slices.first[which].size
    else:
        piece = digits[which]
        text, size = PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece)
    if not 0 < size <= MAX_DIGITS:
        return False
    number[0] = 0
    for at in range(size):
        if not c'0' <= text[at] <= c'9':
            return False
        number[0] = 10 * number[0] + <uint64_t>(text[at] - c'0')
    return True
