# cython: language_level=3, boundscheck=False, wraparound=False
"""A dictionary of texts with batched lookups.

A dictionary with very many entries is not in the processor's caches, so a lookup is dominated by
three cache misses, one after the other: for the slot in the table, for the entry, and for the text
that is compared. `get_all` does each of these steps for all texts before the next one, and
prefetches the memory that the next one needs, so that the misses overlap.

    slots    open addressing with linear probing, at most half full: 32 bits of a text's hash, and
             the number of its entry + 1; 0 in an empty slot
    _entries text, value, text, value ...: a list, so that the garbage collector knows of them
    _free    numbers of unused entries
    _others  keys that are no texts, in an ordinary dictionary
"""

from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_New, PyList_SET_ITEM
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport uint32_t
from libc.string cimport memcmp

from server.util.prefetch cimport fetch, fetch_line

cdef extern from *:
    """
    static inline PyObject **items_of(PyObject *list) {
        return ((PyListObject *)list)->ob_item;
    }
    """
    PyObject **items_of(PyObject *objects) noexcept nogil

cdef extern from "Python.h":
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    int PyUnicode_KIND(object text)
    void *PyUnicode_DATA(object text)

cdef enum:
    MIN_SLOTS = 8
    BATCH_SIZE = 64

cdef struct Slot:
    uint32_t hash
    uint32_t number


cdef inline uint32_t hash_of(object text) except? 0:
    cdef Py_hash_t whole = hash(text)
    return <uint32_t> (whole ^ (whole >> 32))


cdef inline bint are_equal(object one, object other) noexcept:
    cdef Py_ssize_t length = PyUnicode_GET_LENGTH(one)
    cdef int kind = PyUnicode_KIND(one)
    if one is other:
        return True
    if length != PyUnicode_GET_LENGTH(other) or kind != PyUnicode_KIND(other):
        return False
    return memcmp(PyUnicode_DATA(one), PyUnicode_DATA(other), length * kind) == 0


cdef class StringTable:
    """See texts.pyi."""

    cdef Slot *_slots
    cdef uint32_t _mask
    cdef Py_ssize_t _size
    cdef list _entries
    cdef list _free
    cdef dict _others

    def __cinit__(self):
        self._entries, self._free, self._others = [], [], {}
        self._slots = <Slot *> PyMem_Calloc(MIN_SLOTS, sizeof(Slot))
        if self._slots == NULL:
            raise MemoryError
        self._mask = MIN_SLOTS - 1

    def __dealloc__(self):
        PyMem_Free(self._slots)

    def __len__(self):
        return self._size + len(self._others)

    def get(self, key):
        cdef Slot *slot
        if type(key) is not str:
            return self._others.get(key)
        slot = self._find(key, hash_of(key))
        return None if slot.number == 0 else self._entries[2 * slot.number - 1]

    def get_all(self, keys):
        cdef list asked = keys if type(keys) is list else list(keys)
        cdef Py_ssize_t begin, count = PyList_GET_SIZE(asked)
        cdef list found = PyList_New(count)
        for begin in range(0, count, BATCH_SIZE):
            self._get_some(asked, found, begin, min(begin + BATCH_SIZE, count))
        return found

    def expect(self, keys):
        for key in keys:
            if type(key) is str:
                fetch_line(&self._slots[hash_of(key) & self._mask])

    def __getitem__(self, key):
        found = self.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def __setitem__(self, key, value not None):
        if type(key) is str:
            self._set(key, value)
        else:
            self._others[key] = value

    def __delitem__(self, key):
        if type(key) is str:
            self._delete(key)
        else:
            del self._others[key]

    cdef int _set(self, str text, value) except -1:
        cdef uint32_t hash_ = hash_of(text), number
        cdef Slot *slot = self._find(text, hash_)
        if slot.number:
            self._entries[2 * slot.number - 1] = value
            return 0
        if 2 * (self._size + 1) > self._mask:
            self._grow()
            slot = self._find(text, hash_)
        if self._free:
            number = self._free.pop()
            self._entries[2 * number - 2] = text
            self._entries[2 * number - 1] = value
        else:
            self._entries.append(text)
            self._entries.append(value)
            number = PyList_GET_SIZE(self._entries) // 2
        slot.hash, slot.number = hash_, number
        self._size += 1
        return 0

    cdef int _delete(self, str text) except -1:
        cdef Slot *slot = self._find(text, hash_of(text))
        cdef uint32_t number = slot.number
        if number == 0:
            raise KeyError(text)
        self._close_gap(slot - self._slots)
        self._size -= 1
        if self._size == 0:
            self._entries, self._free = [], []
            return 0
        self._free.append(number)
        self._entries[2 * number - 2] = self._entries[2 * number - 1] = None
        return 0

    cdef Slot *_find(self, str text, uint32_t hash_):
        """Return the slot of a text, or the empty one where it belongs."""
        cdef uint32_t at = hash_ & self._mask
        cdef Slot *slot = &self._slots[at]
        while slot.number:
            if slot.hash == hash_ and are_equal(self._entries[2 * slot.number - 2], text):
                break
            at = (at + 1) & self._mask
            slot = &self._slots[at]
        return slot

    cdef _get_some(self, list asked, list found, Py_ssize_t begin, Py_ssize_t end):
        """Find the values of at most BATCH_SIZE texts."""
        cdef uint32_t hashes[BATCH_SIZE]
        cdef uint32_t numbers[BATCH_SIZE]
        cdef PyObject **entries
        cdef PyObject **entry
        cdef Py_ssize_t index
        cdef uint32_t at, hash_
        cdef Slot *slot
        for index in range(end - begin):
            text = <object> PyList_GET_ITEM(asked, begin + index)
            numbers[index] = 0
            if type(text) is str:
                hashes[index] = hash_of(text)
                numbers[index] = 1
                fetch_line(&self._slots[hashes[index] & self._mask])
        entries = items_of(<PyObject *> self._entries)
        for index in range(end - begin):
            if numbers[index]:
                hash_ = hashes[index]
                at = hash_ & self._mask
                slot = &self._slots[at]
                while slot.number and slot.hash != hash_:
                    at = (at + 1) & self._mask
                    slot = &self._slots[at]
                numbers[index] = slot.number
                if slot.number:
                    fetch_line(&entries[2 * slot.number - 2])
        for index in range(end - begin):
            if numbers[index]:
                entry = &entries[2 * numbers[index] - 2]
                fetch(entry[0])
                fetch(entry[1])
        for index in range(end - begin):
            value = None
            text = <object> PyList_GET_ITEM(asked, begin + index)
            if type(text) is not str:
                value = self._others.get(text)
            elif numbers[index]:
                entry = &entries[2 * numbers[index] - 2]
                value = <object> entry[1]
                if not are_equal(<object> entry[0], text):  # another text with the same hash
                    value = self.get(text)
            Py_INCREF(value)
            PyList_SET_ITEM(found, begin + index, value)

    cdef _grow(self):
        cdef uint32_t mask = 2 * self._mask + 1, at, old
        cdef Slot *slots = <Slot *> PyMem_Calloc(<size_t> mask + 1, sizeof(Slot))
        if slots == NULL:
            raise MemoryError
        for old in range(self._mask + 1):
            if self._slots[old].number:
                at = self._slots[old].hash & mask
                while slots[at].number:
                    at = (at + 1) & mask
                slots[at] = self._slots[old]
        PyMem_Free(self._slots)
        self._slots, self._mask = slots, mask

    cdef void _close_gap(self, uint32_t gap) noexcept:
        """Empty a slot, and move up entries that linear probing has put behind it."""
        cdef uint32_t at = gap, home
        while True:
            at = (at + 1) & self._mask
            if self._slots[at].number == 0:
                break
            home = self._slots[at].hash & self._mask
            if ((at - home) & self._mask) >= ((at - gap) & self._mask):
                self._slots[gap] = self._slots[at]
                gap = at
        self._slots[gap].number = 0
