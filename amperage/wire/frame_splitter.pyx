# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Frames with known headers, split off the stream without an object for each.

Publishers repeat a few headers, or headers that differ only by the values of a message: its
sequence number, correlation id, SOW key, lifetime and command id. The parts of such headers around the values
are their *shape*; known shapes are in a hash table. A frame is first compared with the shape of the
one before it, which suffices for streams to one topic; otherwise its shape is found by one pass over
its header. The result is the chunk read, the slices of bodies, headers and values in it, and a
number for the shape of each header.

Only plain values are set apart: texts without escapes, of at most 512 characters, and numbers as
JSON has them. Two headers of one shape differ by such values alone, so they mean the same otherwise,
and both are well-formed if one is. A key is found by its quotes, `,"x":"`, which no JSON string
contains without escapes.

A header ends with the first closing brace outside of these values. So a header with a brace in
another string seems to end there, and is never known; such frames are left to `FrameReader`, like
all frames with unknown headers.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Realloc
from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from amperage.wire.frame_slices cimport FrameSlice, FrameSlices, Table, slices_of

cdef enum:
    LENGTH = 4           # bytes of a frame's length
    KEY = 5              # ,"s":
    TEXT_KEY = 6         # ,"x":"
    COMMAND_ID_KEY = 8   # ,"cid":"
    SEQUENCE = 0         # indexes of values
    CORRELATION_ID = 1
    SOW_KEY = 2
    LIFETIME = 3
    COMMAND_ID = 4
    VALUES = 5
    END = 5              # in place of a value: the end of the header
    MAX_SEQUENCE_DIGITS = 18
    MAX_LIFETIME_DIGITS = 9
    MAX_TEXT = 512       # longer texts are left to the checks of unknown headers
    MIN_SLOTS = 64       # a power of 2


cdef struct Part:
    Py_ssize_t size      # of the bytes before the value
    int value            # the value behind them, or END


cdef struct Shape:
    uint64_t hash
    const char *text     # all parts
    Part parts[VALUES + 1]


cdef struct Outline:
    Shape shape                  # its text is not set
    const char *end              # of the header
    const char *starts[VALUES + 1]  # of each part
    FrameSlice values[VALUES]    # by index; size 0 if there is none


cdef class HeaderShapes:
    """See frame_splitter.pyi."""

    cdef readonly int generation
    cdef list texts         # the parts of each shape, joined
    cdef Shape *known
    cdef Py_ssize_t capacity
    cdef int32_t *slots     # indexes of shapes by their hash, -1 where there is none
    cdef Py_ssize_t slot_count

    def __init__(self):
        self.clear()

    def __dealloc__(self):
        PyMem_Free(self.known)
        PyMem_Free(self.slots)

    def __len__(self):
        return len(self.texts)

    def clear(self):
        self.texts = []
        self.generation += 1
        self._make_slots(MIN_SLOTS)

    def find(self, bytes header not None):
        cdef Outline outline
        cdef FrameSlice *value = outline.values
        cdef const char *base = PyBytes_AS_STRING(header)
        cdef const char *end = base + PyBytes_GET_SIZE(header)
        if not read_outline(base, base, end, &outline) or outline.end != end:
            return -1, b"", b"", b"", b"", b""
        return (
            self._find(&outline),
            header[value[0].start : value[0].start + value[0].size],
            header[value[1].start : value[1].start + value[1].size],
            header[value[2].start : value[2].start + value[2].size],
            header[value[3].start : value[3].start + value[3].size],
            header[value[4].start : value[4].start + value[4].size],
        )

    def add(self, bytes header not None):
        cdef Outline outline
        cdef const char *base = PyBytes_AS_STRING(header)
        cdef const char *end = base + PyBytes_GET_SIZE(header)
        cdef Py_ssize_t index = len(self.texts), number = 0, capacity
        cdef Shape *known
        cdef bytes text = b""
        if not read_outline(base, base, end, &outline) or outline.end != end:
            return -1
        found = self._find(&outline)
        if found >= 0:
            return found
        if index == self.capacity:
            capacity = max(MIN_SLOTS, 2 * self.capacity)
            known = <Shape *> PyMem_Realloc(self.known, capacity * sizeof(Shape))
            if known == NULL:
                raise MemoryError
            self.known, self.capacity = known, capacity
        while True:
            text += PyBytes_FromStringAndSize(
                outline.starts[number], outline.shape.parts[number].size
            )
            if outline.shape.parts[number].value == END:
                break
            number += 1
        self.texts.append(text)
        self.known[index] = outline.shape
        self.known[index].text = PyBytes_AS_STRING(text)
        if 2 * len(self.texts) > self.slot_count:
            self._make_slots(2 * self.slot_count)
        else:
            self._put(index)
        return index

    cdef int _make_slots(self, Py_ssize_t count) except -1:
        cdef Py_ssize_t index
        cdef int32_t *slots = <int32_t *> PyMem_Calloc(count, sizeof(int32_t))
        if slots == NULL:
            raise MemoryError
        PyMem_Free(self.slots)
        self.slots, self.slot_count = slots, count
        for index in range(count):
            self.slots[index] = -1
        for index in range(len(self.texts)):
            self._put(index)
        return 0

    cdef void _put(self, Py_ssize_t index) noexcept:
        cdef Py_ssize_t slot = self.known[index].hash & (self.slot_count - 1)
        while self.slots[slot] >= 0:
            slot = (slot + 1) & (self.slot_count - 1)
        self.slots[slot] = <int32_t> index

    cdef Py_ssize_t _find(self, const Outline *outline) noexcept nogil:
        """Return the index of the shape of an outline, or -1."""
        cdef Py_ssize_t slot = outline.shape.hash & (self.slot_count - 1)
        while self.slots[slot] >= 0:
            if has_shape(outline, &self.known[self.slots[slot]]):
                return self.slots[slot]
            slot = (slot + 1) & (self.slot_count - 1)
        return -1


cdef bint has_shape(const Outline *outline, const Shape *known) noexcept nogil:
    """Return whether an outline has a known shape."""
    cdef const char *text = known.text
    cdef const Part *part
    cdef int number = 0
    if known.hash != outline.shape.hash:
        return False
    while True:
        part = &known.parts[number]
        if part.size != outline.shape.parts[number].size:
            return False
        if part.value != outline.shape.parts[number].value:
            return False
        if memcmp(text, outline.starts[number], part.size):
            return False
        if part.value == END:
            return True
        text += part.size
        number += 1


cdef bint read_outline(
    const char *base, const char *header, const char *end, Outline *outline
) noexcept nogil:
    """Read the outline of the header that a frame begins with; return whether it has one.

    Args:
        base: slices of values begin at this.
        header: the beginning of the frame.
        end: its end.
        outline: is set.
    """
    cdef const char *at = header
    cdef const char *start = header
    cdef const char *value_end
    cdef int number = 0, value
    outline.shape.hash = 0
    for value in range(VALUES):
        outline.values[value].start = outline.values[value].size = 0
    while at < end:
        if at[0] == c'}':
            add_part(outline, number, start, at + 1, END)
            outline.end = at + 1
            return True
        if at[0] == c',' or at[0] == c'{':
            value = value_of_key(at, end)
            if value != END:
                at += COMMAND_ID_KEY if value == COMMAND_ID else TEXT_KEY if is_text(value) else KEY
                value_end = end_of_value(value, at, end)
                if value_end != NULL:
                    if outline.values[value].size:
                        return False  # twice
                    add_part(outline, number, start, at, value)
                    number += 1
                    outline.values[value].start = at - base
                    outline.values[value].size = value_end - at
                    start = at = value_end
                continue
        at += 1
    return False


cdef inline void add_part(
    Outline *outline, int number, const char *start, const char *end, int value
) noexcept nogil:
    """Add the bytes from `start` to before `end`, which a value follows, to an outline."""
    outline.starts[number] = start
    outline.shape.parts[number].size = end - start
    outline.shape.parts[number].value = value
    outline.shape.hash = mix(start, end - start, outline.shape.hash)


cdef inline int value_of_key(const char *at, const char *end) noexcept nogil:
    """Return the value with the key behind a comma or the opening brace; END if it is none."""
    cdef bint is_known
    if end - at <= KEY or at[1] != c'"':
        return END
    if at[3] != c'"' or at[4] != c':':
        is_known = end - at > COMMAND_ID_KEY and not memcmp(at + 2, b'cid":"', COMMAND_ID_KEY - 2)
        return COMMAND_ID if is_known else END
    if at[2] == c's':
        return SEQUENCE
    if at[2] == c'e':
        return LIFETIME
    if at[5] != c'"':
        return END
    if at[2] == c'x':
        return CORRELATION_ID
    return SOW_KEY if at[2] == c'k' else END


cdef inline bint is_text(int value) noexcept nogil:
    return value == CORRELATION_ID or value == SOW_KEY or value == COMMAND_ID


cdef inline const char *end_of_value(int value, const char *at, const char *end) noexcept nogil:
    """Return the end of a value that is plain; NULL if it is not."""
    cdef const char *start = at
    if is_text(value):
        while at < end and c' ' <= at[0] <= c'~' and at[0] != c'"' and at[0] != c'\\':
            at += 1
        return at if start < at < end and at[0] == c'"' and at - start <= MAX_TEXT else NULL
    while at < end and c'0' <= at[0] <= c'9':
        at += 1
    if at == start or at == end or (at[0] != c',' and at[0] != c'}'):
        return NULL
    if value == SEQUENCE:
        return at if start[0] != c'0' and at - start <= MAX_SEQUENCE_DIGITS else NULL
    return at if (start[0] != c'0' or at - start == 1) and at - start <= MAX_LIFETIME_DIGITS else NULL


NOTHING = slices_of(b"", Table())


def split_known(bytes chunk not None, Py_ssize_t start, HeaderShapes shapes not None, Py_ssize_t limit):
    cdef const char *base = PyBytes_AS_STRING(chunk)
    cdef const char *at = base + start
    cdef const char *end = base + PyBytes_GET_SIZE(chunk)
    cdef const char *body
    cdef const char *next_one
    cdef Py_ssize_t length, index, last = -1
    cdef Outline outline
    cdef int value, present = 0  # the values that any header has, as bits
    cdef Table headers = None, bodies = None
    cdef list values = [None] * VALUES, indexes = None
    while end - at >= LENGTH:
        length = length_at(<const uint8_t *> at)
        if length > limit or length > end - at - LENGTH:
            break
        at += LENGTH
        next_one, body, index = at + length, NULL, last
        if index >= 0:
            body = match(&shapes.known[index], base, at, next_one, outline.values)
        if body == NULL:
            index = shapes._find(&outline) if read_outline(base, at, next_one, &outline) else -1
            if index < 0:
                at -= LENGTH
                break
            body = outline.end
        if bodies is None:
            headers, bodies = Table(), Table()
        elif index != last and indexes is None:
            indexes = [last] * bodies.count
        if indexes is not None:
            indexes.append(index)
        last = index
        for value in range(VALUES):
            if outline.values[value].size and not present & 1 << value:
                present |= 1 << value
                values[value] = absent(bodies.count)
            if present & 1 << value:
                (<Table> values[value]).add(
                    outline.values[value].start, outline.values[value].size
                )
        headers.add(at - base, body - at)
        bodies.add(body - base, next_one - body)
        at = next_one
    if bodies is None:
        return NOTHING, NOTHING, (NOTHING,) * VALUES, 0, start  # usual if headers are unknown
    return (
        slices_of(chunk, headers),
        slices_of(chunk, bodies),
        tuple([NOTHING if table is None else slices_of(chunk, table) for table in values]),
        last if indexes is None else indexes,
        at - base,
    )


cdef Table absent(Py_ssize_t count):
    """Return empty slices, for headers without a value."""
    cdef Table table = Table()
    for _ in range(count):
        table.add(0, 0)
    return table


cdef inline const char *match(
    const Shape *known, const char *base, const char *at, const char *end, FrameSlice *values
) noexcept nogil:
    """Return the end of a frame's header if it has a shape, and NULL otherwise.

    Also set the values that the shape has; the others have been set for the header before.
    """
    cdef const char *text = known.text
    cdef const char *value_end
    cdef const Part *part = known.parts
    while True:
        if end - at < part.size or memcmp(at, text, part.size):
            return NULL
        at += part.size
        if part.value == END:
            return at
        value_end = end_of_value(part.value, at, end)
        if value_end == NULL:
            return NULL
        values[part.value].start, values[part.value].size = at - base, value_end - at
        at = value_end
        text += part.size
        part += 1


cdef inline Py_ssize_t length_at(const uint8_t *at) noexcept nogil:
    return <Py_ssize_t> at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3]


cdef inline uint64_t mix(const char *at, Py_ssize_t size, uint64_t hashed) noexcept nogil:
    """Return a hash of bytes and of those before them."""
    cdef uint64_t part
    while size > 0:
        part = 0
        memcpy(&part, at, 8 if size >= 8 else size)
        hashed = (hashed ^ part ^ <uint64_t> size) * <uint64_t> 0x9E3779B97F4A7C15
        hashed ^= hashed >> 32
        at += 8
        size -= 8
    return hashed
