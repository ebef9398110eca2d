# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The SOW keys of many messages, in C; key_source.py defines how they are made.

Texts and integers, which nearly all values are, are converted to bytes here; a callback converts others.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_Clear
from cpython.long cimport PyLong_CheckExact
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from server.util.decimals cimport MAX_DECIMALS, put_decimals

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size)
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1


cdef struct Buffer:
    uint8_t *bytes
    Py_ssize_t size
    Py_ssize_t capacity


def numbers_of(start, columns, digest, octets):
    cdef list starts = None if isinstance(start, bytes) else list(start)
    cdef bytes prefix = start if starts is None else b""
    cdef list fields = [list(values) for values in columns], made = []
    cdef Py_ssize_t count = len(fields[0]), row
    cdef Py_ssize_t width = len(fields), index
    cdef Buffer buffer
    cdef list column
    buffer.bytes, buffer.size, buffer.capacity = NULL, 0, 0
    if any(len(values) != count for values in (fields if starts is None else [starts, *fields])):
        raise ValueError("columns have the same length")
    try:
        for row in range(count):
            buffer.size = 0
            if starts is not None:
                prefix = <bytes?>starts[row]
            append(&buffer, PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix))
            for index in range(width):
                column = <list>fields[index]
                append_value(&buffer, column[row], octets, index == width - 1)
            made.append(digest(PyBytes_FromStringAndSize(<char *>buffer.bytes, buffer.size)))
    finally:
        PyMem_Free(buffer.bytes)
    return made


cdef int append_value(Buffer *buffer, value, octets, bint is_last) except -1:
    """Append a value: the last one as it is, any other after its length."""
    cdef uint8_t[MAX_DECIMALS + 1] digits
    cdef const char *text = NULL
    cdef Py_ssize_t size = 0
    cdef int overflow = 0
    cdef long long number
    if PyUnicode_CheckExact(value):
        text = PyUnicode_AsUTF8AndSize(value, &size)
        if text == NULL:  # the text has surrogates, for bytes that are not UTF-8
            PyErr_Clear()
    elif PyLong_CheckExact(value):
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if not overflow:
            size = put_integer(digits, number) - digits
            text = <const char *>digits
    if text == NULL:
        value = octets(value)
        if value is not None:
            text = PyBytes_AS_STRING(<bytes?>value)
            size = PyBytes_GET_SIZE(<bytes>value)
    elif size == 0:
        text = NULL  # the empty text is NULL
    if is_last:
        append(buffer, b"-" if text == NULL else b"=", 1)
    elif text == NULL:
        append(buffer, b"-;", 2)
    else:
        append_length(buffer, size)
    return append(buffer, text, size) if text != NULL else 0


cdef uint8_t *put_integer(uint8_t *to, long long number) noexcept nogil:
    if number >= 0:
        return put_decimals(to, <uint64_t>number)
    to[0] = 45
    return put_decimals(to + 1, 0 - <uint64_t>number)


cdef int append_length(Buffer *buffer, Py_ssize_t size) except -1:
    cdef uint8_t[MAX_DECIMALS + 1] digits
    cdef uint8_t *end = put_decimals(digits, size)
    end[0] = 59
    return append(buffer, <const char *>digits, end + 1 - digits)


cdef int append(Buffer *buffer, const char *data, Py_ssize_t size) except -1:
    cdef Py_ssize_t capacity
    cdef void *grown
    if buffer.size + size > buffer.capacity:
        capacity = 2 * (buffer.size + size) + 64
        grown = PyMem_Realloc(buffer.bytes, capacity)
        if grown == NULL:
            raise MemoryError
        buffer.bytes, buffer.capacity = <uint8_t *>grown, capacity
    if size:
        memcpy(buffer.bytes + buffer.size, data, size)
        buffer.size += size
    return 0
