# cython: language_level=3
"""The fields before the texts of an entry of a SOW file: `slab_format.ENTRY`.

Lengths are read once, because the content of a map may become zeros at any moment (map_guard.pyx).
"""

from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t, uint64_t

from server.storage.journal.format.octets cimport load_u32, load_u64


cdef enum:
    HEAD = 56  # bytes of an entry before its texts


cdef struct Entry:
    const uint8_t *at
    Py_ssize_t length
    int kind
    Py_ssize_t topics
    Py_ssize_t keys
    Py_ssize_t correlations
    Py_ssize_t bookmarks
    uint64_t sequence
    uint64_t timestamp
    uint64_t expires


cdef inline Py_ssize_t load_u16(const uint8_t *at) noexcept nogil:
    return at[0] | <Py_ssize_t> at[1] << 8


cdef inline bint read_entry(const uint8_t *at, Py_ssize_t room, Entry *entry) noexcept nogil:
    """Read the fields before an entry's texts; return False if the entry exceeds `room` bytes."""
    if room < HEAD:
        return False
    entry.at = at
    entry.length = load_u32(at + 4)
    entry.kind = at[12]
    entry.topics, entry.keys = load_u16(at + 14), load_u16(at + 16)
    entry.correlations, entry.bookmarks = load_u16(at + 18), load_u16(at + 20)
    entry.sequence, entry.timestamp = load_u64(at + 24), load_u64(at + 32)
    entry.expires = load_u64(at + 40)
    return body_at(entry) <= entry.length <= room


cdef inline Py_ssize_t body_at(const Entry *entry) noexcept nogil:
    return HEAD + entry.topics + entry.keys + entry.correlations + entry.bookmarks


cdef inline str text_at(const uint8_t *at, Py_ssize_t length):
    return PyUnicode_DecodeUTF8(<char *> at, length, "surrogateescape")
