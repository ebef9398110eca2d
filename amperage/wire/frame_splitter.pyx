# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Frames with known headers, split off the stream without an object for each.

Publishers repeat a few headers, or headers that differ by a sequence number only. The parts of such
headers around the number are in a hash table. A frame is first compared with the header of the one
before it, which suffices for streams to one topic; otherwise its header is delimited by the first
closing brace, the number in it by the last `,"s":`, and the rest is looked up. The result is the
chunk read, the slices of bodies and numbers in it, and a number for the shape of each header.

A header with a brace in a string is never found in the table, because it seems to end there; such
frames are left to `FrameReader`, like all whose headers are unknown.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Realloc
from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from amperage.wire.frame_slices cimport FrameSlices, Table, slices_of

cdef enum:
    LENGTH = 4           # bytes of a frame's length
    SEQUENCE_KEY = 5     # ,"s":
    MAX_DIGITS = 18      # header_template.MAX_SEQUENCE_DIGITS
    MIN_SLOTS = 64       # a power of 2


cdef struct Shape:
    uint64_t hash
    const char *left     # the header, or its part before SEQUENCE_KEY
    Py_ssize_t left_size
    const char *right    # its part behind the number, NULL if it has none
    Py_ssize_t right_size


cdef class HeaderShapes:
    """See frame_splitter.pyi."""

    cdef readonly list shapes
    cdef dict indexes
    cdef Shape *known
    cdef Py_ssize_t capacity
    cdef int32_t *slots     # indexes of shapes by their hash, -1 where there is none
    cdef Py_ssize_t slot_count

    def __init__(self, shapes=()):
        self.clear()
        for shape in shapes:
            self.add(shape)

    def __dealloc__(self):
        PyMem_Free(self.known)
        PyMem_Free(self.slots)

    def __len__(self):
        return len(self.shapes)

    def clear(self):
        self.shapes, self.indexes = [], {}
        self._make_slots(MIN_SLOTS)

    def index(self, shape):
        return self.indexes.get(shape, -1)

    def add(self, shape):
        cdef bytes left, right = None
        cdef Py_ssize_t index = len(self.shapes)
        cdef Shape *known
        if shape in self.indexes:
            return self.indexes[shape]
        if index == self.capacity:
            self.capacity = max(MIN_SLOTS, 2 * self.capacity)
            known = <Shape *> PyMem_Realloc(self.known, self.capacity * sizeof(Shape))
            if known == NULL:
                raise MemoryError
            self.known = known
        if type(shape) is tuple:
            left, right = shape
        else:
            left = shape
        known = &self.known[index]
        known.left, known.left_size = PyBytes_AS_STRING(left), PyBytes_GET_SIZE(left)
        known.right, known.right_size = NULL, 0
        if right is not None:
            known.right, known.right_size = PyBytes_AS_STRING(right), PyBytes_GET_SIZE(right)
        known.hash = hash_of(known.left, known.left_size, known.right, known.right_size)
        self.shapes.append(shape)
        self.indexes[shape] = index
        if 2 * len(self.shapes) > self.slot_count:
            self._make_slots(2 * self.slot_count)
        elif is_delimited(shape):
            self._put(index)
        return index

    cdef int _make_slots(self, Py_ssize_t count) except -1:
        cdef Py_ssize_t index
        PyMem_Free(self.slots)
        self.slot_count = 0
        self.slots = <int32_t *> PyMem_Calloc(count, sizeof(int32_t))
        if self.slots == NULL:
            raise MemoryError
        self.slot_count = count
        for index in range(count):
            self.slots[index] = -1
        for index in range(len(self.shapes)):
            if is_delimited(self.shapes[index]):
                self._put(index)
        return 0

    cdef void _put(self, Py_ssize_t index) noexcept:
        cdef Py_ssize_t slot = self.known[index].hash & (self.slot_count - 1)
        while self.slots[slot] >= 0:
            slot = (slot + 1) & (self.slot_count - 1)
        self.slots[slot] = <int32_t> index

    cdef Py_ssize_t _find(self, const char *header, const char *end) noexcept nogil:
        """Return the index of the shape of the header that a frame begins with, or -1."""
        cdef const char *brace = <const char *> memchr(header, c'}', end - header)
        cdef const char *left_end
        cdef const char *right
        cdef const Shape *known
        cdef Py_ssize_t slot
        cdef uint64_t hashed
        if brace == NULL:
            return -1
        left_end = find_sequence_key(header, brace)
        if left_end == NULL:
            left_end, right = brace + 1, NULL
        else:
            right = end_of_number(left_end + SEQUENCE_KEY, brace)
            if right == NULL:
                left_end = brace + 1
        end = brace + 1
        hashed = hash_of(header, left_end - header, right, 0 if right == NULL else end - right)
        slot = hashed & (self.slot_count - 1)
        while self.slots[slot] >= 0:
            known = &self.known[self.slots[slot]]
            if (
                known.hash == hashed
                and (known.right == NULL) == (right == NULL)
                and known.left_size == left_end - header
                and memcmp(known.left, header, known.left_size) == 0
                and (
                    right == NULL
                    or known.right_size == end - right
                    and memcmp(known.right, right, known.right_size) == 0
                )
            ):
                return self.slots[slot]
            slot = (slot + 1) & (self.slot_count - 1)
        return -1


cdef bint is_delimited(shape):
    """Return whether headers of a shape end with their first closing brace."""
    left, right = shape if type(shape) is tuple else (b"", shape)
    return b"}" not in left and right.find(b"}") == len(right) - 1


NOTHING = slices_of(b"", Table())


def split_known(bytes chunk not None, Py_ssize_t start, HeaderShapes shapes not None, Py_ssize_t limit):
    cdef const char *base = PyBytes_AS_STRING(chunk)
    cdef const char *at = base + start
    cdef const char *end = base + PyBytes_GET_SIZE(chunk)
    cdef const char *body
    cdef const char *number
    cdef const char *next_one
    cdef Py_ssize_t length, index, last = -1
    cdef bint has_numbers = False
    cdef Table bodies = None, numbers = None
    cdef list indexes = None
    while end - at >= LENGTH:
        length = length_at(<const uint8_t *> at)
        if length > limit or length > end - at - LENGTH:
            break
        next_one, body = at + LENGTH + length, NULL
        index = last
        if index >= 0:
            body = match(&shapes.known[index], at + LENGTH, next_one, &number)
        if body == NULL:
            index = shapes._find(at + LENGTH, next_one)
            if index < 0:
                break
            body = match(&shapes.known[index], at + LENGTH, next_one, &number)
        if bodies is None:
            bodies, numbers = Table(), Table()
        elif index != last and indexes is None:
            indexes = [last] * bodies.count
        if indexes is not None:
            indexes.append(index)
        last = index
        if number == NULL:
            numbers.add(0, 0)
        else:
            has_numbers = True
            numbers.add(number - base, body - shapes.known[index].right_size - number)
        bodies.add(body - base, next_one - body)
        at = next_one
    if bodies is None:
        return NOTHING, NOTHING, 0, start  # the usual result if headers are unknown
    return (
        slices_of(chunk, bodies),
        slices_of(chunk, numbers) if has_numbers else NOTHING,
        last if indexes is None else indexes,
        at - base,
    )


cdef inline const char *match(
    const Shape *known, const char *header, const char *end, const char **number
) noexcept nogil:
    """Return the end of a frame's header if it has a shape, and NULL otherwise.

    Also set `number` to the start of its sequence number, or to NULL.
    """
    cdef const char *at = header + known.left_size
    number[0] = NULL
    if end - header < known.left_size or memcmp(header, known.left, known.left_size):
        return NULL
    if known.right == NULL:
        return at
    if end - at < SEQUENCE_KEY or memcmp(at, b',"s":', SEQUENCE_KEY):
        return NULL
    number[0] = at + SEQUENCE_KEY
    at = end_of_number(number[0], end)
    if at == NULL or end - at < known.right_size or memcmp(at, known.right, known.right_size):
        return NULL
    return at + known.right_size


cdef inline Py_ssize_t length_at(const uint8_t *at) noexcept nogil:
    return <Py_ssize_t> at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3]


cdef inline const char *end_of_number(const char *at, const char *end) noexcept nogil:
    """Return the end of a number without leading zeros; NULL if none, or if too long."""
    cdef const char *start = at
    if at == end or at[0] == c'0':
        return NULL
    while at < end and c'0' <= at[0] <= c'9':
        at += 1
    return at if 0 < at - start <= MAX_DIGITS else NULL


cdef inline const char *find_sequence_key(const char *header, const char *brace) noexcept nogil:
    """Return where the last `,"s":` of a header begins; NULL if it has none."""
    cdef const char *at = brace - SEQUENCE_KEY
    while at >= header:
        if at[0] == c',' and memcmp(at, b',"s":', SEQUENCE_KEY) == 0:
            return at
        at -= 1
    return NULL


cdef inline uint64_t hash_of(
    const char *left, Py_ssize_t left_size, const char *right, Py_ssize_t right_size
) noexcept nogil:
    cdef uint64_t hashed = mix(left, left_size, 0)
    return hashed if right == NULL else mix(right, right_size, hashed)


cdef inline uint64_t mix(const char *at, Py_ssize_t size, uint64_t hashed) noexcept nogil:
    cdef uint64_t part
    while size > 0:
        part = 0
        memcpy(&part, at, 8 if size >= 8 else size)
        hashed = (hashed ^ part ^ <uint64_t> size) * <uint64_t> 0x9E3779B97F4A7C15
        hashed ^= hashed >> 32
        at += 8
        size -= 8
    return hashed
