# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Frames records that have changed together, in C.

Headers differ only in the SOW key, the body's length and the number in the bookmark. Their digits
are counted before anything is written, so that each body is copied once.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsUnsignedLongLong

from server.util.decimals cimport count_decimals, put_decimals
from server.storage.journal.format.octets cimport uint8_t, uint64_t
from amperage.wire.append cimport put, put_length

cdef enum:  # bytes of keys, without their values
    SOW_KEY_KEY = 5  # ,"k":
    QUOTES = 2
    LENGTH_KEY = 5  # ,"l":
    BOOKMARK_KEY = 10  # ,"bm":"||"


def frames(bytes left, sow_keys, bodies, further, uint64_t publisher, numbers, bytes right):
    cdef list keys = list(sow_keys), messages = list(bodies), marks = list(numbers)
    cdef bint is_alike = isinstance(further, bytes)
    cdef list each_further = [] if is_alike else list(further)
    cdef bytes more = further if is_alike else b""
    cdef Py_ssize_t count = len(messages), index, length, header, total = 0
    cdef Py_ssize_t left_size = PyBytes_GET_SIZE(left), right_size = PyBytes_GET_SIZE(right)
    cdef Py_ssize_t fixed = left_size + LENGTH_KEY + PyBytes_GET_SIZE(more) + right_size
    cdef bint has_keys = bool(keys), has_marks = bool(marks)
    cdef bint has_numbers = has_keys and not isinstance(keys[0], bytes)
    cdef uint64_t key = 0, mark = 0
    cdef bytes body, made
    cdef uint8_t *to
    if (
        (has_keys and len(keys) != count)
        or (has_marks and len(marks) != count)
        or (not is_alike and len(each_further) != count)
    ):
        raise ValueError("as many keys, numbers and further keys as bodies")
    if has_keys:
        fixed += SOW_KEY_KEY + (QUOTES if has_numbers else 0)
    if has_marks:
        fixed += BOOKMARK_KEY + count_decimals(publisher)
    for index in range(count):
        body = messages[index]
        length = PyBytes_GET_SIZE(body)
        total += 4 + fixed + count_decimals(length) + length
        if has_numbers:
            total += count_decimals(PyLong_AsUnsignedLongLong(keys[index]))
        elif has_keys:
            total += PyBytes_GET_SIZE(<bytes?>keys[index])
        if has_marks:
            total += count_decimals(PyLong_AsUnsignedLongLong(marks[index]))
        if not is_alike:
            total += PyBytes_GET_SIZE(<bytes?>each_further[index])
    made = PyBytes_FromStringAndSize(NULL, total)
    to = <uint8_t *>PyBytes_AS_STRING(made)
    for index in range(count):
        body = messages[index]
        length = PyBytes_GET_SIZE(body)
        header = fixed + count_decimals(length)
        if has_numbers:
            key = PyLong_AsUnsignedLongLong(keys[index])
            header += count_decimals(key)
        elif has_keys:
            header += PyBytes_GET_SIZE(<bytes>keys[index])
        if has_marks:
            mark = PyLong_AsUnsignedLongLong(marks[index])
            header += count_decimals(mark)
        if not is_alike:
            more = each_further[index]
            header += PyBytes_GET_SIZE(more)
        header += length
        to = put(put_length(to, header), PyBytes_AS_STRING(left), left_size)
        if has_numbers:
            to = put(put_decimals(put(to, b',"k":"', 6), key), b'"', 1)
        elif has_keys:
            to = put(to, b',"k":', SOW_KEY_KEY)
            to = put(to, PyBytes_AS_STRING(keys[index]), PyBytes_GET_SIZE(keys[index]))
        to = put_decimals(put(to, b',"l":', LENGTH_KEY), length)
        to = put(to, PyBytes_AS_STRING(more), PyBytes_GET_SIZE(more))
        if has_marks:
            to = put_decimals(put(to, b',"bm":"', 7), publisher)
            to = put_decimals(put(to, b"|", 1), mark)
            to = put(to, b'|"', 2)
        to = put(to, PyBytes_AS_STRING(right), right_size)
        to = put(to, PyBytes_AS_STRING(body), length)
    return made
