# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Builds the index of the records of a SOW file while its log is read, in C.

Nearly all keys are numbers, and nearly all of the time was spent on looking them up as texts in a
dictionary of all records: each lookup is a cache miss. So numbers have a table of their own as long as
the log is read, and the slots of a batch of entries are prefetched before the first lookup. Keys of
superseded entries never become texts. Other keys are in the dictionary from the beginning.
"""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free as release, malloc, realloc

import array

from server.util.decimals cimport MAX_DECIMALS, put_decimals
from server.storage.journal.format.octets cimport crc32c, load_u32
from server.storage.sow.slab.entry cimport HEAD, Entry, read_entry, text_at

cdef extern from *:
    """
    static inline void fetch(const void *at) { __builtin_prefetch(at, 1); }
    """
    void fetch(const void *at) noexcept nogil


cdef enum:
    RECORD_KIND = 1
    DELETED_KIND = 2
    NOWHERE = -1   # the location of a row that is not in use
    NO_ROW = -1    # the row of a slot that is free
    TOGETHER = 64  # entries that are looked up as a batch
    FIRST_BITS = 10


cdef struct Slot:
    uint64_t number
    int64_t row


cdef struct Key:
    uint64_t number
    bint is_number


cdef struct Found:
    uint64_t number
    bint is_number
    bint is_record
    int64_t location
    uint32_t padded_size


cdef class IndexBuilder:
    """See index_builder.pyi."""

    cdef readonly set topics
    cdef object _topic
    cdef dict _rows
    cdef array.array _locations
    cdef array.array _sizes
    cdef list _free
    cdef object _other
    cdef Slot *_slots        # a power of two of them
    cdef int _bits
    cdef Py_ssize_t _taken   # no more than half of them
    cdef Key *_keys          # of all rows, some without a number
    cdef Py_ssize_t _most    # capacity in rows
    cdef Found[TOGETHER] _found
    cdef list _identities    # of those found with keys that are not numbers
    cdef Py_ssize_t _count
    cdef Py_ssize_t _live

    def __cinit__(
        self, str topic, dict rows not None, array.array locations not None,
        array.array sizes not None, list free not None, other,
    ):
        if locations.itemsize != sizeof(int64_t) or sizes.itemsize != sizeof(uint32_t):
            raise TypeError("locations have 8 bytes, sizes 4")
        self.topics = set()
        self._topic, self._rows, self._other = topic, rows, other
        self._locations, self._sizes, self._free = locations, sizes, free
        self._identities = [None] * TOGETHER
        self._slots = new_slots(FIRST_BITS)
        self._bits = FIRST_BITS

    def __dealloc__(self):
        release(self._slots)
        release(self._keys)

    def apply_slab(self, slab, int64_t start, Py_ssize_t position, Py_ssize_t end, uint32_t epoch):
        cdef Py_buffer view
        PyObject_GetBuffer(slab, &view, PyBUF_SIMPLE)
        try:
            if position < 0:
                raise ValueError("entries lie within their slab")
            return self.place_entries(<const uint8_t *>view.buf, start, position, min(end, view.len), epoch)
        finally:
            PyBuffer_Release(&view)

    cdef object place_entries(
        self, const uint8_t *base, int64_t start, Py_ssize_t position, Py_ssize_t end, uint32_t epoch
    ):
        cdef uint64_t sequence = 0
        cdef Entry entry
        cdef Found *found
        self._live = 0
        while position + HEAD <= end and read_entry(base + position, end - position, &entry):
            if load_u32(entry.at + 8) != epoch:
                break
            # The key is read before the checksum, so it is the key that has been checked.
            found = &self._found[self._count]
            found.is_number = self._topic is None and read_number(
                entry.at + HEAD + entry.topics, entry.keys, &found.number
            )
            if found.is_number:
                fetch(self._slots + home(found.number, self._bits))
            else:
                self._identities[self._count] = self.identity_of(&entry)
            if load_u32(entry.at) != crc32c(entry.at + 4, entry.length - 4):
                break
            if entry.topics and self._topic is None:
                self.topics.add(text_at(entry.at + HEAD, entry.topics))
            sequence = max(sequence, entry.sequence)
            found.location = start + position
            found.padded_size = (entry.length + 7) & -8
            found.is_record = entry.kind == RECORD_KIND
            position += found.padded_size
            if found.is_record or entry.kind == DELETED_KIND:
                self._count += 1
                if self._count == TOGETHER:
                    self.apply()
            else:
                self.apply()
                data = PyBytes_FromStringAndSize(<const char *>entry.at, entry.length)
                self._other(found.location, data)
        self.apply()
        return position, self._live, sequence

    cdef object identity_of(self, const Entry *entry):
        key = text_at(entry.at + HEAD + entry.topics, entry.keys)
        if self._topic is None:
            return key
        topic = text_at(entry.at + HEAD, entry.topics) if entry.topics else self._topic
        self.topics.add(topic)
        return f"{topic}\0{key}"

    cdef int apply(self) except -1:
        """Set the locations of records to those of their last entries."""
        cdef Py_ssize_t count = self._count, index
        self._count = 0
        for index in range(count):
            if self._found[index].is_number:
                self.apply_number(&self._found[index])
            else:
                self.apply_text(self._identities[index], &self._found[index])
        return 0

    cdef int apply_number(self, const Found *found) except -1:
        cdef Slot *slot = self.find(found.number)
        if found.is_record:
            if slot.row == NO_ROW:
                slot.number, slot.row = found.number, self.new_row()
                self._taken += 1
                self.put(slot.row, found)
                self.note(slot.row, found.number)
                if self._taken > <Py_ssize_t>1 << (self._bits - 1):
                    self.grow()
            else:
                self._live -= self._sizes.data.as_uints[slot.row]
                self.put(slot.row, found)
        elif slot.row != NO_ROW:
            self.forget(slot.row)
            self._keys[slot.row].is_number = False
            self.vacate(slot - self._slots)
        return 0

    cdef int apply_text(self, identity, const Found *found) except -1:
        cdef Py_ssize_t row
        known = self._rows.get(identity)
        if found.is_record:
            if known is None:
                row = self._rows[identity] = self.new_row()
            else:
                row = known
                self._live -= self._sizes.data.as_uints[row]
            self.put(row, found)
        elif known is not None:
            self.forget(known)
            del self._rows[identity]
        return 0

    cdef Py_ssize_t new_row(self) except -1:
        cdef Py_ssize_t row
        if self._free:
            return self._free.pop()
        row = len(self._locations)
        array.resize_smart(self._locations, row + 1)
        array.resize_smart(self._sizes, row + 1)
        return row

    cdef inline void put(self, Py_ssize_t row, const Found *found) noexcept:
        self._locations.data.as_longlongs[row] = found.location
        self._sizes.data.as_uints[row] = found.padded_size
        self._live += found.padded_size

    cdef int forget(self, Py_ssize_t row) except -1:
        self._live -= self._sizes.data.as_uints[row]
        self._locations.data.as_longlongs[row] = NOWHERE
        self._free.append(row)
        return 0

    # The table of numbers (open addressing): a number's slot is its own, or the first free from home.

    cdef inline Slot *find(self, uint64_t number) noexcept nogil:
        cdef uint64_t index = home(number, self._bits), last = (<uint64_t>1 << self._bits) - 1
        while self._slots[index].row != NO_ROW and self._slots[index].number != number:
            index = (index + 1) & last
        return &self._slots[index]

    cdef int grow(self) except -1:
        cdef Slot *old = self._slots
        cdef uint64_t count = <uint64_t>1 << self._bits, index
        self._slots = new_slots(self._bits + 1)
        self._bits += 1
        for index in range(count):
            if old[index].row != NO_ROW:
                self.find(old[index].number)[0] = old[index]
        release(old)
        return 0

    cdef void vacate(self, uint64_t index) noexcept nogil:
        """Free a slot; those behind it come nearer to their homes, so that all are still found."""
        cdef uint64_t last = (<uint64_t>1 << self._bits) - 1, other = index
        self._taken -= 1
        while True:
            other = (other + 1) & last
            if self._slots[other].row == NO_ROW:
                break
            if (other - home(self._slots[other].number, self._bits)) & last >= (other - index) & last:
                self._slots[index] = self._slots[other]
                index = other
        self._slots[index].row = NO_ROW

    cdef int note(self, Py_ssize_t row, uint64_t number) except -1:
        """Store the number of a row; to read all numbers from the table would be slow."""
        cdef Key *keys
        cdef Py_ssize_t most = 2 * self._most + 1024, index
        if row >= self._most:
            most = max(most, row + 1)
            keys = <Key *>realloc(self._keys, most * sizeof(Key))
            if keys == NULL:
                raise MemoryError
            for index in range(self._most, most):
                keys[index].is_number = False
            self._keys, self._most = keys, most
        self._keys[row].number, self._keys[row].is_number = number, True
        return 0

    def finish(self):
        cdef Py_ssize_t row
        cdef uint8_t[MAX_DECIMALS] key
        cdef dict rows = self._rows
        for row in range(min(self._most, len(self._locations))):
            if self._keys[row].is_number:
                rows[text_at(key, put_decimals(key, self._keys[row].number) - key)] = row


cdef Slot *new_slots(int bits) except NULL:
    cdef uint64_t count = <uint64_t>1 << bits, index
    cdef Slot *slots = <Slot *>malloc(count * sizeof(Slot))
    if slots == NULL:
        raise MemoryError
    for index in range(count):
        slots[index].row = NO_ROW
    return slots


cdef inline uint64_t home(uint64_t number, int bits) noexcept nogil:
    return number * <uint64_t>0x9E3779B97F4A7C15 >> (64 - bits)


cdef inline bint read_number(const uint8_t *text, Py_ssize_t size, uint64_t *number) noexcept nogil:
    """Parse a number of 64 bits; return False for any text that is not the decimal form of one."""
    cdef uint64_t value = 0
    cdef unsigned digit
    cdef Py_ssize_t index
    if not 0 < size <= MAX_DECIMALS or (text[0] == 48 and size > 1):
        return False
    for index in range(size):
        digit = <unsigned>text[index] - 48
        if digit > 9 or value > (~<uint64_t>0 - digit) // 10:
            return False
        value = 10 * value + digit
    number[0] = value
    return True
