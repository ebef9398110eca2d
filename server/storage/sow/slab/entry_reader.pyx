# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Reads many entries of a SOW file directly from its maps, in C.

A map may lose its content while it is read (map_guard.pyx): its bytes become zeros between two reads.
So a length is read once, and is checked to be within the map before it is used. The result is valid if
the guard has detected no loss afterwards, or if the checksum is right. A body is copied before it is
parsed.
"""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF, PyObject
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

import array as arrays

from server.storage.sow.records import Record
from server.storage.sow.slab.entry cimport HEAD, Entry, body_at, read_entry, text_at
from server.storage.sow.slab.slab_format import ENTRY


cdef extern from *:
    """
    /* A tuple of a class, which is filled next, as the class itself would make it. */
    #define NEW_TUPLE(type, size) (((PyTypeObject *)(type))->tp_alloc((PyTypeObject *)(type), (size)))
    """
    object NEW_TUPLE(type, Py_ssize_t size)
    void PyTuple_SET_ITEM(object values, Py_ssize_t position, PyObject *value)  # steals the reference


cdef enum:
    RECORD_FIELDS = 9

if ENTRY.size != HEAD or len(Record._fields) != RECORD_FIELDS:
    raise ImportError("the entries of SOW files are not as this was compiled for")


cdef class Slabs:
    """See entry_reader.pyi."""

    cdef list _maps
    cdef Py_ssize_t _size

    def __init__(self, list maps not None, Py_ssize_t size):
        self._maps, self._size = maps, size

    def join_bodies(self, array.array locations not None, rows):
        cdef Py_ssize_t count = len(rows), number = 0, total = 0
        cdef array.array ends = array.clone(LOCATIONS, count, False)
        cdef int64_t *end_of = <int64_t *> ends.data.as_longlongs
        cdef Py_ssize_t row, length
        cdef Entry entry
        cdef _View view = _View(self)
        starts = PyBytes_FromStringAndSize(NULL, count * sizeof(char *))
        cdef const char **start_of = <const char **> PyBytes_AS_STRING(starts)
        cdef char *to
        for row in rows:
            length = 0
            if row >= 0:
                if not view.find(locations, row, &entry):
                    return None
                start_of[number] = <const char *> entry.at + body_at(&entry)
                length = entry.length - body_at(&entry)
            total += length
            end_of[number] = total
            total += 1
            number += 1
        data = PyBytes_FromStringAndSize(NULL, total)
        to = PyBytes_AS_STRING(data)
        length = 0
        for number in range(count):
            if end_of[number] > length:
                memcpy(to + length, start_of[number], end_of[number] - length)
            to[end_of[number]] = 0
            length = end_of[number] + 1
        return data, ends

    def read_bodies(self, array.array locations not None, rows):
        cdef Py_ssize_t row
        cdef Entry entry
        cdef _View view = _View(self)
        found = []
        for row in rows:
            if not view.find(locations, row, &entry):
                return None
            found.append(PyBytes_FromStringAndSize(
                <const char *> entry.at + body_at(&entry), entry.length - body_at(&entry)
            ))
        return found

    def read_records(self, array.array locations not None, rows, str topic not None):
        cdef Py_ssize_t row
        cdef Entry entry
        cdef _View view = _View(self)
        found = []
        for row in rows:
            if not view.find(locations, row, &entry):
                return None
            found.append(record_of(&entry, topic))
        return found


cdef object LOCATIONS = arrays.array("q")


cdef class _View:
    """The addresses of maps, each of which is valid as long as this object exists."""

    cdef Slabs _slabs
    cdef Py_buffer _buffer
    cdef bint _is_held
    cdef Py_ssize_t _index

    def __cinit__(self, Slabs slabs):
        self._slabs = slabs
        self._is_held = False

    def __dealloc__(self):
        if self._is_held:
            PyBuffer_Release(&self._buffer)

    cdef const uint8_t *at(self, Py_ssize_t index) except NULL:
        """Return the address of the beginning of a map."""
        if not self._is_held or index != self._index:
            if self._is_held:
                PyBuffer_Release(&self._buffer)
                self._is_held = False
            PyObject_GetBuffer(self._slabs._maps[index], &self._buffer, PyBUF_SIMPLE)
            self._is_held = True
            self._index = index
            if self._buffer.len < self._slabs._size:
                raise ValueError("a map is shorter than a slab")
        return <const uint8_t *> self._buffer.buf

    cdef bint find(self, array.array locations, Py_ssize_t row, Entry *entry) except -1:
        """Find the entry of a row; return False if there is none that lies within its slab."""
        cdef int64_t location
        if not 0 <= row < len(locations):
            raise IndexError(row)
        location = locations.data.as_longlongs[row]
        if location < 0:
            return False
        return read_entry(
            self.at(location // self._slabs._size) + location % self._slabs._size,
            self._slabs._size - location % self._slabs._size,
            entry,
        )


cdef object record_of(const Entry *entry, str topic):
    """Return the record of an entry, as `slab_format.decode_record` does."""
    cdef const uint8_t *at = entry.at + HEAD
    cdef Py_ssize_t number = 0
    if entry.topics:
        topic = text_at(at, entry.topics)
    at += entry.topics
    key = text_at(at, entry.keys)
    at += entry.keys
    correlation_id = text_at(at, entry.correlations) if entry.correlations else ""
    at += entry.correlations
    bookmark = text_at(at, entry.bookmarks) if entry.bookmarks else ""
    at += entry.bookmarks
    body = PyBytes_FromStringAndSize(<const char *> at, entry.length - body_at(entry))
    record = NEW_TUPLE(Record, RECORD_FIELDS)
    for value in (
        key, body, topic, entry.timestamp, entry.expires, entry.sequence, correlation_id, bookmark, None
    ):
        Py_INCREF(value)
        PyTuple_SET_ITEM(record, number, <PyObject *> value)
        number += 1
    return record
