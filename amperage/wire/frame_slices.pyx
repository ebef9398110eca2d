# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Bodies of consecutive frames, framed again for subscribers, without an object for each.

Frames with known headers (frame_splitter.pyx) are the chunk read and the slices of it that are bodies:
that is enough to frame them for a subscriber, each byte of a body copied once, and to read fields
of them. Bodies become objects only on access.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsUnsignedLongLong
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport uint8_t, uint64_t

from server.util.prefetch cimport fetch
from server.util.decimals cimport count_decimals, put_decimals
from amperage.wire.append cimport put, put_length

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum:
    LENGTH = 4           # bytes of a frame's length
    LENGTH_KEY = 5       # ,"l":
    SOW_KEY_KEY = 7      # ,"k":""
    BOOKMARK_KEY = 10    # ,"bm":"||"
    SUB_IDS_KEY = 9      # ,"sids":"
    SUB_IDS_END = 2      # "}
    MIN_CAPACITY = 8
    MIN_SHARED_BODY = 512        # mean bytes of bodies from which on copying costs more than a piece
    MIN_SHARED_BYTES = 16 * 1024 # bytes of bodies of a write that is worth an I/O thread


cdef class Table:
    """Slices of a chunk; their addresses are stable once no more are added."""

    def __dealloc__(self):
        PyMem_Free(self.slices)

    cdef int add(self, Py_ssize_t start, Py_ssize_t size) except -1:
        cdef FrameSlice *larger
        cdef Py_ssize_t capacity
        if self.count == self.capacity:
            capacity = max(MIN_CAPACITY, 2 * self.capacity)
            larger = <FrameSlice *> PyMem_Realloc(self.slices, capacity * sizeof(FrameSlice))
            if larger == NULL:
                raise MemoryError
            self.slices, self.capacity = larger, capacity
        self.slices[self.count].start = start
        self.slices[self.count].size = size
        self.count += 1
        return 0


cdef class FrameSlices:
    """See frame_slices.pyi."""

    def __len__(self):
        return self.size

    def __iter__(self):
        return iter(self.all())

    def __getitem__(self, which):
        cdef Py_ssize_t number
        if isinstance(which, slice):
            start, stop, step = which.indices(self.size)
            return self._part(start, stop) if step == 1 else self.all()[which]
        number = which
        if number < 0:
            number += self.size
        if not 0 <= number < self.size:
            raise IndexError(f"there are {self.size} pieces, and none with the number {which}")
        return self._make(number)

    def all(self):
        cdef Py_ssize_t number
        if self._made is None:
            self._made = [self._make(number) for number in range(self.size)]
        return self._made

    def index(self, value, *bounds):
        return self.all().index(value, *bounds)

    def count(self, value):
        return self.all().count(value)

    cdef bytes _make(self, Py_ssize_t number):
        cdef FrameSlice *one = &self.first[number]
        if self._made is not None:
            return self._made[number]
        return PyBytes_FromStringAndSize(
            PyBytes_AS_STRING(self.chunk) + one.start, one.size
        )

    cdef FrameSlices _part(self, Py_ssize_t start, Py_ssize_t stop):
        cdef FrameSlices part
        if start == 0 and stop == self.size:
            return self
        part = slices_of(self.chunk, self.table)
        part.first = self.first + start
        part.size = max(stop - start, 0)
        if self._made is not None:
            part._made = self._made[start:stop]
        return part


cdef FrameSlices slices_of(bytes chunk, Table table):
    cdef FrameSlices slices = FrameSlices.__new__(FrameSlices)
    slices.chunk, slices.table = chunk, table
    slices.first, slices.size = table.slices, table.count
    return slices


cdef struct Parts:
    const char *left     # NULL if messages with this key are not wanted
    Py_ssize_t left_size
    const char *keys
    Py_ssize_t keys_size
    const char *right
    Py_ssize_t right_size
    bint has_sow_key
    bint has_timestamp
    bint has_bookmark


cdef class HeaderParts:
    """See frame_slices.pyi."""

    cdef dict parts
    cdef Parts *by_key
    cdef Py_ssize_t capacity
    cdef bint has_bookmarks  # whether any has had bookmarks

    def __cinit__(self):
        self.parts = {}

    def __dealloc__(self):
        PyMem_Free(self.by_key)

    def __len__(self):
        return len(self.parts)

    def set(
        self,
        Py_ssize_t key,
        bytes left not None,
        bytes keys not None,
        bytes right not None,
        *,
        bint has_sow_key=False,
        bint has_timestamp=False,
        bint has_bookmark=False,
    ):
        cdef Parts *larger
        cdef Py_ssize_t capacity
        if key >= self.capacity:
            capacity = max(MIN_CAPACITY, 2 * key)
            larger = <Parts *> PyMem_Realloc(self.by_key, capacity * sizeof(Parts))
            if larger == NULL:
                raise MemoryError
            self.by_key = larger
            while self.capacity < capacity:
                self.by_key[self.capacity].left = NULL
                self.capacity += 1
        self.parts[key] = left, keys, right
        self.by_key[key] = Parts(
            PyBytes_AS_STRING(left), PyBytes_GET_SIZE(left),
            PyBytes_AS_STRING(keys), PyBytes_GET_SIZE(keys),
            PyBytes_AS_STRING(right), PyBytes_GET_SIZE(right),
            has_sow_key, has_timestamp, has_bookmark,
        )
        self.has_bookmarks |= has_bookmark

    def discard(self, Py_ssize_t key):
        if self.parts.pop(key, None) is not None:
            self.by_key[key].left = NULL

    cdef const Parts *of(self, Py_ssize_t key) noexcept nogil:
        """Return the parts of a key, NULL if there are none."""
        if key < 0 or key >= self.capacity or self.by_key[key].left == NULL:
            return NULL
        return &self.by_key[key]


def framed_by_key(
    bodies,
    list keys not None,
    HeaderParts parts not None,
    list sow_keys not None=[],
    bytes timestamp not None=b"",
    uint64_t publisher=0,
    numbers=(),
):
    cdef FrameSlices slices = <FrameSlices> bodies if type(bodies) is FrameSlices else None
    cdef list objects = None if slices is not None else bodies if type(bodies) is list else list(bodies)
    cdef list marks = list(numbers) if parts.has_bookmarks else []
    cdef Py_ssize_t row, rows = len(keys), total = 0, count = 0
    cdef const Parts *around
    cdef const char *body
    cdef Py_ssize_t size, header
    cdef uint64_t sow_key = 0, mark = 0
    cdef uint8_t *to
    cdef uint8_t *end
    cdef bytes made
    if rows != len(bodies) or (marks and rows != len(marks)):
        raise ValueError(f"{rows} keys and {len(marks)} numbers for {len(bodies)} bodies")
    for row in range(rows):
        around = parts.of(keys[row])
        if around != NULL:
            if around.has_sow_key and row >= len(sow_keys):
                raise ValueError(f"{len(sow_keys)} SOW keys for {rows} bodies")
            sow_key = PyLong_AsUnsignedLongLong(sow_keys[row]) if around.has_sow_key else 0
            mark = PyLong_AsUnsignedLongLong(marks[row]) if marks and around.has_bookmark else 0
            size = slices.first[row].size if objects is None else len(<bytes> objects[row])
            header = header_size(around, size, sow_key, PyBytes_GET_SIZE(timestamp), publisher, mark)
            total += LENGTH + header + size
            count += 1
    made = PyBytes_FromStringAndSize(NULL, total)
    to = <uint8_t *> PyBytes_AS_STRING(made)
    end = to + total
    for row in range(rows):
        around = parts.of(keys[row])
        if around == NULL:
            continue
        if objects is None:
            body, size = PyBytes_AS_STRING(slices.chunk) + slices.first[row].start, slices.first[row].size
        else:
            body, size = PyBytes_AS_STRING(objects[row]), PyBytes_GET_SIZE(objects[row])
        sow_key = PyLong_AsUnsignedLongLong(sow_keys[row]) if around.has_sow_key else 0
        mark = PyLong_AsUnsignedLongLong(marks[row]) if marks and around.has_bookmark else 0
        header = header_size(around, size, sow_key, PyBytes_GET_SIZE(timestamp), publisher, mark)
        to = put(put_length(to, header + size), around.left, around.left_size)
        if around.has_sow_key:
            to = put(put_decimals(put(to, b',"k":"', 6), sow_key), b'"', 1)
        to = put_decimals(put(to, b',"l":', LENGTH_KEY), size)
        to = put(to, around.keys, around.keys_size)
        if around.has_timestamp:
            to = put(to, PyBytes_AS_STRING(timestamp), PyBytes_GET_SIZE(timestamp))
        if mark:
            to = put_decimals(put(to, b',"bm":"', 7), publisher)
            to = put(put_decimals(put(to, b"|", 1), mark), b'|"', 2)
        to = put(put(to, around.right, around.right_size), body, size)
    if to != end:
        raise SystemError("frames are not of the size that was computed")
    return made, count


cdef inline Py_ssize_t header_size(
    const Parts *around,
    Py_ssize_t size,
    uint64_t sow_key,
    Py_ssize_t timestamp_size,
    uint64_t publisher,
    uint64_t mark,
) noexcept nogil:
    """Return the length of a header."""
    cdef Py_ssize_t made = around.left_size + LENGTH_KEY + count_decimals(size)
    made += around.keys_size + around.right_size
    if around.has_sow_key:
        made += SOW_KEY_KEY + count_decimals(sow_key)
    if around.has_timestamp:
        made += timestamp_size
    if mark:
        made += BOOKMARK_KEY + count_decimals(publisher) + count_decimals(mark)
    return made


cdef struct Around:
    const char *left
    Py_ssize_t left_size
    const char *right
    Py_ssize_t right_size
    Py_ssize_t last      # size of the previous body, -1 if there is none
    uint8_t *head        # the bytes before that body
    Py_ssize_t head_size


cdef inline Py_ssize_t frame_size(const Around *around, Py_ssize_t size) noexcept nogil:
    return LENGTH + around.left_size + LENGTH_KEY + count_decimals(size) + around.right_size + size


cdef inline uint8_t *put_head(uint8_t *to, Around *around, Py_ssize_t size) noexcept nogil:
    """Write a message without its body; bodies of equal size have equal heads, which are copied."""
    cdef uint8_t *head = to
    if size == around.last:
        to = put(to, around.head, around.head_size)
    else:
        to = put_length(to, frame_size(around, size) - LENGTH)
        to = put(put(to, around.left, around.left_size), b',"l":', LENGTH_KEY)
        to = put(put_decimals(to, size), around.right, around.right_size)
        around.last, around.head_size = size, to - head
    around.head = head
    return to


cdef inline uint8_t *put_frame(
    uint8_t *to, Around *around, const char *body, Py_ssize_t size
) noexcept nogil:
    """Write a message."""
    return put(put_head(to, around, size), body, size)


def framed(bodies, bytes left not None, bytes right not None):
    cdef Around around
    cdef bytes body
    cdef bytes made
    around.left, around.left_size = PyBytes_AS_STRING(left), PyBytes_GET_SIZE(left)
    around.right, around.right_size = PyBytes_AS_STRING(right), PyBytes_GET_SIZE(right)
    around.last, around.head, around.head_size = -1, NULL, 0
    if type(bodies) is FrameSlices:
        return framed_slices(<FrameSlices> bodies, &around)
    if len(bodies) == 1:  # single messages, which are frequent
        body = bodies[0]
        made = PyBytes_FromStringAndSize(NULL, frame_size(&around, PyBytes_GET_SIZE(body)))
        put_frame(
            <uint8_t *> PyBytes_AS_STRING(made),
            &around,
            PyBytes_AS_STRING(body),
            PyBytes_GET_SIZE(body),
        )
        return made
    return framed_objects(bodies if type(bodies) is list else list(bodies), &around)


cdef class SharedFrames:
    """Frames whose bodies are not copied: an I/O thread sends them from where they were read.

    They keep the whole chunk in memory, so they are made only of bodies that are half of it or more.
    """

    def __dealloc__(self):
        PyMem_Free(self.pieces)

    def __len__(self):
        return self.size

    def __bytes__(self):
        cdef bytes made = PyBytes_FromStringAndSize(NULL, self.size)
        cdef uint8_t *to = <uint8_t *> PyBytes_AS_STRING(made)
        cdef Py_ssize_t number
        for number in range(self.piece_count):
            to = put(to, <const char *> self.pieces[number].iov_base, self.pieces[number].iov_len)
        return made


def framed_shared(bodies, bytes left not None, bytes right not None):
    cdef FrameSlices slices
    cdef Py_ssize_t number, size = 0
    if type(bodies) is FrameSlices:
        slices = <FrameSlices> bodies
        for number in range(slices.size):
            size += slices.first[number].size
        if (
            size >= MIN_SHARED_BYTES
            and size >= MIN_SHARED_BODY * slices.size
            and size >= PyBytes_GET_SIZE(slices.chunk) // 2
        ):
            return shared_frames(slices, left, right)
    return framed(bodies, left, right)


cdef SharedFrames shared_frames(FrameSlices bodies, bytes left, bytes right):
    cdef Py_ssize_t number, head_total = 0
    cdef SharedFrames parts = SharedFrames.__new__(SharedFrames)
    cdef Around around
    cdef uint8_t *to
    cdef uint8_t *head
    cdef FrameSlice *one
    cdef iovec *piece
    around.left, around.left_size = PyBytes_AS_STRING(left), PyBytes_GET_SIZE(left)
    around.right, around.right_size = PyBytes_AS_STRING(right), PyBytes_GET_SIZE(right)
    around.last, around.head, around.head_size = -1, NULL, 0
    for number in range(bodies.size):
        one = &bodies.first[number]
        head_total += frame_size(&around, one.size) - one.size
        parts.size += frame_size(&around, one.size)
    parts.chunk = bodies.chunk
    parts.heads = PyBytes_FromStringAndSize(NULL, head_total)
    parts.piece_count = 2 * bodies.size
    parts.pieces = piece = <iovec *> PyMem_Malloc(parts.piece_count * sizeof(iovec))
    if piece == NULL:
        raise MemoryError
    to = <uint8_t *> PyBytes_AS_STRING(parts.heads)
    for number in range(bodies.size):
        one = &bodies.first[number]
        head = to
        to = put_head(to, &around, one.size)
        piece.iov_base, piece.iov_len = head, to - head
        piece += 1
        piece.iov_base = <void *> (PyBytes_AS_STRING(bodies.chunk) + one.start)
        piece.iov_len = one.size
        piece += 1
    if to != <uint8_t *> PyBytes_AS_STRING(parts.heads) + head_total:
        raise SystemError("headers are not of the size that was computed")
    return parts


def framed_for(str sub_id not None, bytes body not None, bytes left not None, bytes keys not None):
    return framed_for_one(sub_id, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body), left, keys)


def framed_for_each(list sub_ids not None, bodies, list lefts not None, bytes keys not None):
    cdef Py_ssize_t number
    cdef list frames = []
    cdef FrameSlices slices = <FrameSlices> bodies if type(bodies) is FrameSlices else None
    cdef bytes body, left
    if len(lefts) < len(sub_ids):
        raise ValueError("a header for each body")
    for sub_id in sub_ids:
        fetch(<void *> sub_id)
    for number, sub_id in enumerate(sub_ids):
        left = lefts[number]
        if sub_id is None:
            frames.append(None)
        elif slices is not None:
            frames.append(
                framed_for_one(
                    sub_id,
                    PyBytes_AS_STRING(slices.chunk) + slices.first[number].start,
                    slices.first[number].size,
                    left,
                    keys,
                )
            )
        else:
            body = bodies[number]
            frames.append(
                framed_for_one(sub_id, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body), left, keys)
            )
    return frames


cdef bytes framed_for_one(str sub_id, const char *body, Py_ssize_t size, bytes left, bytes keys):
    cdef Py_ssize_t id_size
    cdef const char *identity = PyUnicode_AsUTF8AndSize(sub_id, &id_size)
    cdef Py_ssize_t length = (
        PyBytes_GET_SIZE(left) + LENGTH_KEY + count_decimals(size) + PyBytes_GET_SIZE(keys)
        + SUB_IDS_KEY + id_size + SUB_IDS_END + size
    )
    cdef bytes made = PyBytes_FromStringAndSize(NULL, LENGTH + length)
    cdef uint8_t *to = put_length(<uint8_t *> PyBytes_AS_STRING(made), length)
    to = put(put(to, PyBytes_AS_STRING(left), PyBytes_GET_SIZE(left)), b',"l":', LENGTH_KEY)
    to = put(put_decimals(to, size), PyBytes_AS_STRING(keys), PyBytes_GET_SIZE(keys))
    to = put(put(to, b',"sids":"', SUB_IDS_KEY), identity, id_size)
    put(put(to, b'"}', SUB_IDS_END), body, size)
    return made


cdef bytes framed_slices(FrameSlices bodies, Around *around):
    cdef Py_ssize_t number, total = 0
    cdef const char *base = PyBytes_AS_STRING(bodies.chunk)
    cdef FrameSlice *one
    cdef bytes made
    cdef uint8_t *to
    for number in range(bodies.size):
        total += frame_size(around, bodies.first[number].size)
    made = PyBytes_FromStringAndSize(NULL, total)
    to = <uint8_t *> PyBytes_AS_STRING(made)
    for number in range(bodies.size):
        one = &bodies.first[number]
        to = put_frame(to, around, base + one.start, one.size)
    return made


cdef bytes framed_objects(list bodies, Around *around):
    cdef Py_ssize_t total = 0
    cdef bytes body, made
    cdef uint8_t *to
    for body in bodies:
        total += frame_size(around, PyBytes_GET_SIZE(body))
    made = PyBytes_FromStringAndSize(NULL, total)
    to = <uint8_t *> PyBytes_AS_STRING(made)
    for body in bodies:
        to = put_frame(to, around, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))
    return made
