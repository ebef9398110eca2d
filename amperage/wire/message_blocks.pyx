# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Extracts messages from a server's output, in C: columns of header fields, and offsets of bodies.

Records of a `sow` frame follow one another, each with a header that contains the length of its
body. Publications have a frame each, which is split already. A client that reads many of them needs
few texts of their headers. These are gathered here, without an object for each message.

Only headers as servers write them are parsed: flat, without spaces, escapes, or characters beyond
ASCII, no longer than the limit above which lengths are checked, and no key twice. All others are
left to `amperage.wire.header`, which reports their errors, if any.

Memory safety: headers are in bytes objects, which end with a NUL that no step passes; every
position is compared with the end of its header before it is used.
"""

from cpython.bytearray cimport PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcmp, memcpy

FIELDS = (
    "topic", "sow_key", "bookmark", "timestamp", "correlation_id", "user_id", "expiration"
)

cdef enum:
    TOPIC = 0
    SOW_KEY = 1
    BOOKMARK = 2
    TIMESTAMP = 3
    CORRELATION_ID = 4
    USER_ID = 5
    EXPIRATION = 6         # a number; its digits are kept
    KEPT = 7               # the number of columns
    LENGTH = 7
    COMMAND = 8
    SIDS = 9
    SUB_ID = 10
    LEASE = 11
    LOOKED_AT = 12
    NOT_WANTED = 12

    MAX_HEADER_LENGTH = 1024  # header.MAX_NAME_LENGTH
    MAX_DIGITS = 10       # of a length

cdef Py_ssize_t MAX_TEXT_SIZE = 0x7FFFFFFF


cdef struct Text:
    const char *at         # NULL if the header does not have it
    Py_ssize_t size


cdef struct Column:
    char *valid            # one byte per message
    int32_t *offsets       # the start of each text
    char *text
    Py_ssize_t size
    Py_ssize_t capacity
    bint has_some


cdef class Columns:
    """The gathered messages."""

    cdef Column[KEPT] _columns
    cdef int64_t *_starts
    cdef int64_t *_ends
    cdef Py_ssize_t _count
    cdef Py_ssize_t _capacity

    def __dealloc__(self):
        cdef int number
        for number in range(KEPT):
            PyMem_Free(self._columns[number].valid)
            PyMem_Free(self._columns[number].offsets)
            PyMem_Free(self._columns[number].text)
        PyMem_Free(self._starts)
        PyMem_Free(self._ends)

    cdef int _add(self, const Text *found, int64_t start, int64_t end) except -1:
        """Append a message: the texts of its header, and the range of its body."""
        cdef int number
        cdef Column *column
        if self._count == self._capacity:
            self._grow()
        for number in range(KEPT):
            column = &self._columns[number]
            column.offsets[self._count] = <int32_t> column.size
            column.valid[self._count] = found[number].at != NULL
            if found[number].at != NULL:
                column.has_some = True
                if column.size + found[number].size > column.capacity:
                    self._grow_text(column, found[number].size)
                memcpy(column.text + column.size, found[number].at, found[number].size)
                column.size += found[number].size
        self._starts[self._count] = start
        self._ends[self._count] = end
        self._count += 1
        return 0

    cdef int _grow(self) except -1:
        cdef int number
        cdef Py_ssize_t capacity = 2 * self._capacity if self._capacity else 256
        self._starts = <int64_t *> resized(self._starts, capacity * sizeof(int64_t))
        self._ends = <int64_t *> resized(self._ends, capacity * sizeof(int64_t))
        for number in range(KEPT):
            self._columns[number].valid = <char *> resized(self._columns[number].valid, capacity)
            self._columns[number].offsets = <int32_t *> resized(
                self._columns[number].offsets, (capacity + 1) * sizeof(int32_t)  # plus the last end
            )
        self._capacity = capacity
        return 0

    cdef int _grow_text(self, Column *column, Py_ssize_t wanted) except -1:
        cdef Py_ssize_t capacity = 2 * (column.size + wanted)
        if column.size + wanted > MAX_TEXT_SIZE:
            raise OverflowError("the texts of a column have more than 2 GB together")
        column.text = <char *> resized(column.text, capacity)
        column.capacity = capacity
        return 0

    cdef tuple _taken(self):
        """Return starts and ends of the bodies, and the columns in which any message has a text."""
        cdef int number
        cdef Column *column
        texts = {}
        for number in range(KEPT):
            column = &self._columns[number]
            if column.has_some:
                column.offsets[self._count] = <int32_t> column.size
                texts[FIELDS[number]] = (
                    PyByteArray_FromStringAndSize(column.valid, self._count),
                    PyByteArray_FromStringAndSize(
                        <char *> column.offsets, (self._count + 1) * sizeof(int32_t)
                    ),
                    PyBytes_FromStringAndSize(column.text, column.size),
                )
        size = self._count * sizeof(int64_t)
        return (
            PyByteArray_FromStringAndSize(<char *> self._starts, size),
            PyByteArray_FromStringAndSize(<char *> self._ends, size),
            texts,
        )


def read_records(bytes content not None):
    """See message_blocks.pyi."""
    cdef const char *base = PyBytes_AS_STRING(content)
    cdef const char *end = base + PyBytes_GET_SIZE(content)
    cdef const char *at = base
    cdef Text[LOOKED_AT] found
    cdef int64_t length
    cdef Columns columns = Columns()
    while at < end:
        at = read_header(at, end, found)
        if at == NULL or found[LENGTH].at == NULL:
            return None
        length = number_of(&found[LENGTH])
        if length < 0 or length > end - at:
            return None
        columns._add(found, at - base, at - base + length)
        at += length
    return columns._taken() if columns._count else None


def read_publications(list frames not None, Py_ssize_t first):
    """See message_blocks.pyi."""
    cdef Text[LOOKED_AT] found
    cdef Text *ids
    cdef Text expected
    cdef const char *end
    cdef int64_t position = 0
    cdef Py_ssize_t index
    cdef Columns columns = Columns()
    cdef bytes header, body
    bodies = []
    expected.at = NULL
    for index in range(first, len(frames)):
        header, body = frames[index]
        end = PyBytes_AS_STRING(header) + PyBytes_GET_SIZE(header)
        if read_header(PyBytes_AS_STRING(header), end, found) != end:
            break
        ids = &found[SIDS] if found[SIDS].at != NULL else &found[SUB_ID]
        if not is_publication(&found[COMMAND]) or found[LEASE].at != NULL or ids.at == NULL:
            break
        if expected.at == NULL:
            expected = ids[0]  # points into a header that the list keeps alive
        elif ids.size != expected.size or memcmp(ids.at, expected.at, ids.size):
            break
        columns._add(found, position, position + PyBytes_GET_SIZE(body))
        position += PyBytes_GET_SIZE(body)
        bodies.append(body)
    if not bodies:
        return None
    return (PyBytes_FromStringAndSize(expected.at, expected.size), b"".join(bodies), *columns._taken())


cdef void *resized(void *memory, size_t size) except NULL:
    memory = PyMem_Realloc(memory, size)
    if memory == NULL:
        raise MemoryError
    return memory


cdef const char *read_header(const char *at, const char *end, Text *found) noexcept nogil:
    """Find texts in the header at `at`. Return its end, NULL if it is not a plain one."""
    cdef const char *start = at
    cdef const char *key
    cdef int slot
    cdef Text value
    for slot in range(LOOKED_AT):
        found[slot].at = NULL
    if at >= end or at[0] != c'{':
        return NULL
    while at[0] == (c'{' if at == start else c',') and at[1] == c'"':
        key = at + 2
        at = end_of_text(key)
        if at == NULL or at[1] != c':':
            return NULL
        slot = slot_of(key, at - key)
        at += 2
        if at[0] == c'"':
            value.at = at + 1
            at = end_of_text(value.at)
            if at == NULL:
                return NULL
            value.size = at - value.at
            at += 1
            if is_number(slot) or (slot < LOOKED_AT and value.size == 0):
                return NULL
        else:
            value.at = at
            while is_plain(at[0]):
                at += 1
            value.size = at - value.at
            if value.size == 0 or (slot < LOOKED_AT and not is_number(slot)):
                return NULL
            if slot == EXPIRATION and (number_of(&value) < 0 or (value.at[0] == c'0' and value.size > 1)):
                return NULL
        if slot < LOOKED_AT:
            if found[slot].at != NULL:
                return NULL
            found[slot] = value
    if at >= end or at[0] != c'}' or at + 1 - start > MAX_HEADER_LENGTH or at == start:
        return NULL
    return at + 1


cdef inline const char *end_of_text(const char *at) noexcept nogil:
    """Return the closing quote of a plain ASCII text; NULL if it is not plain, or does not end."""
    while at[0] != c'"':
        if not 0x20 <= <unsigned char> at[0] < 0x7F or at[0] == c'\\':
            return NULL
        at += 1
    return at


cdef inline bint is_plain(char byte) noexcept nogil:
    """Return whether a byte may be part of a number or a word."""
    return c'0' <= byte <= c'9' or c'a' <= byte <= c'z' or byte == c'-' or byte == c'.'


cdef inline bint is_number(int slot) noexcept nogil:
    """Return whether the value of a key is a number, not a text."""
    return slot == LENGTH or slot == EXPIRATION


cdef inline int slot_of(const char *key, Py_ssize_t size) noexcept nogil:
    if size == 1:
        if key[0] == c'l':
            return LENGTH
        if key[0] == c'k':
            return SOW_KEY
        if key[0] == c't':
            return TOPIC
        if key[0] == c'x':
            return CORRELATION_ID
        if key[0] == c'e':
            return EXPIRATION
        return COMMAND if key[0] == c'c' else NOT_WANTED
    if size == 2:
        if memcmp(key, b"bm", 2) == 0:
            return BOOKMARK
        if memcmp(key, b"ts", 2) == 0:
            return TIMESTAMP
        return LEASE if memcmp(key, b"lp", 2) == 0 else NOT_WANTED
    if size == 4 and memcmp(key, b"sids", 4) == 0:
        return SIDS
    if size == 7 and memcmp(key, b"user_id", 7) == 0:
        return USER_ID
    return SUB_ID if size == 6 and memcmp(key, b"sub_id", 6) == 0 else NOT_WANTED


cdef inline bint is_publication(const Text *command) noexcept nogil:
    if command.at == NULL:
        return False
    if command.size == 1:
        return command.at[0] == c'p'
    return command.size == 7 and memcmp(command.at, b"publish", 7) == 0


cdef inline int64_t number_of(const Text *digits) noexcept nogil:
    """Return the number that digits represent, -1 if they are not a number."""
    cdef int64_t number = 0
    cdef Py_ssize_t index
    if digits.size > MAX_DIGITS:
        return -1
    for index in range(digits.size):
        if not c'0' <= digits.at[index] <= c'9':
            return -1
        number = number * 10 + digits.at[index] - c'0'
    return number
