# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Encoder of entries that are appended together: their bodies and their records, in C.

It runs while publishers wait. A field that the batch shares is one value, consecutive numbers are a
range with two values, and only the other fields are read entry by entry. A body is joined to the
others and its checksum is computed while it is in the processor's cache.
"""

from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
)
from cpython.long cimport PyLong_AsUnsignedLongLong
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.ref cimport PyObject
from cpython.sequence cimport PySequence_Fast
from libc.string cimport memcpy

from server.storage.journal.format.octets cimport (
    crc32c, load_u32, store_u32, store_u64, uint8_t, uint32_t, uint64_t
)
from amperage.wire.frame_slices cimport FrameSlices
from server.storage.journal.format.record cimport (
    SIZE, TXID, TIMESTAMP, CLIENT, SEQUENCE, SOURCE_TXID, SOURCE, SOW_KEY, BODY_START, BODY_LENGTH,
    EXTRAS_LENGTH, TOPIC, ORIGIN, EXPIRATION, BODY_CRC, KIND, FLAGS, LAG, CRC
)

cdef extern from "Python.h":
    PyObject **PySequence_Fast_ITEMS(object sequence)
    Py_ssize_t PySequence_Fast_GET_SIZE(object sequence)

cdef enum:
    LAG_UNKNOWN = 0xFFFF


cdef struct Piece:
    const uint8_t *data
    Py_ssize_t size


cdef class Bodies:
    """Addresses and sizes of bodies in memory; `given` keeps them alive."""

    cdef Piece *each
    cdef Py_ssize_t count
    cdef Py_ssize_t size   # sum of all sizes
    cdef object given

    def __dealloc__(self):
        PyMem_Free(self.each)


cdef Bodies bodies_of(given):
    cdef Bodies bodies = Bodies()
    cdef FrameSlices slices
    cdef PyObject **items
    cdef PyObject *body
    cdef const uint8_t *chunk
    cdef Py_ssize_t at
    bodies.count = len(given)
    bodies.each = <Piece *>PyMem_Malloc(max(bodies.count, 1) * sizeof(Piece))
    if bodies.each == NULL:
        raise MemoryError
    if type(given) is FrameSlices:
        bodies.given = slices = <FrameSlices>given
        chunk = <const uint8_t *>PyBytes_AS_STRING(slices.chunk)
        for at in range(bodies.count):
            bodies.each[at].data = chunk + slices.first[at].start
            bodies.each[at].size = slices.first[at].size
            bodies.size += slices.first[at].size
        return bodies
    bodies.given = PySequence_Fast(given, "bodies are a sequence")
    items = PySequence_Fast_ITEMS(bodies.given)
    for at in range(bodies.count):
        body = items[at]
        if not PyBytes_CheckExact(<object>body):
            raise TypeError("a body is bytes")
        bodies.each[at].data = <const uint8_t *>PyBytes_AS_STRING(<object>body)
        bodies.each[at].size = PyBytes_GET_SIZE(<object>body)
        bodies.size += bodies.each[at].size
    return bodies


def count_fitting(given, long long free_bytes):
    cdef Bodies bodies = bodies_of(given)
    cdef Py_ssize_t at
    for at in range(bodies.count):
        free_bytes -= bodies.each[at].size + SIZE
        if free_bytes < 0:
            return at
    return bodies.count


def make_block(position, content, flags=0):
    cdef Bodies bodies = bodies_of(content.data)
    cdef Py_ssize_t count = bodies.count, at, length
    cdef bytes joined = PyBytes_FromStringAndSize(NULL, bodies.size)
    cdef bytes made = PyBytes_FromStringAndSize(NULL, SIZE * count)
    cdef uint8_t *to = <uint8_t *>PyBytes_AS_STRING(joined)
    cdef uint8_t *first = <uint8_t *>PyBytes_AS_STRING(made) + SIZE * (count - 1)
    cdef uint8_t *record
    cdef uint64_t txid = position.first_txid, end = position.bodies_end, lag = txid - position.durable_txid
    cdef uint64_t timestamp = <uint64_t><long long>position.timestamp, source = content.source
    fill(first, count, EXTRAS_LENGTH, 4, content.extras_length)
    checksums = content.checksums
    cdef uint32_t *computed = NULL
    if checksums:
        fill(first, count, BODY_CRC, 4, checksums)
    else:
        kept = PyBytes_FromStringAndSize(NULL, sizeof(uint32_t) * count)
        computed = <uint32_t *>PyBytes_AS_STRING(kept)
        checksums = memoryview(kept).cast("I")
    for at in range(count):
        record = first - SIZE * at
        length = bodies.each[at].size
        memcpy(to, bodies.each[at].data, length)
        if computed != NULL:
            computed[at] = crc32c(to, length)
            store_u32(record + BODY_CRC, computed[at])
        to += length
        store_u64(record + TXID, txid + at)
        store_u64(record + TIMESTAMP, timestamp)
        store_u64(record + SOURCE, source)
        store_u64(record + BODY_START, end)
        store_u32(record + BODY_LENGTH, <uint32_t>length - load_u32(record + EXTRAS_LENGTH))
        store_u16(record + LAG, LAG_UNKNOWN if lag + at > LAG_UNKNOWN else lag + at)
        end += length
    fill(first, count, TOPIC, 4, position.topics)
    fill(first, count, ORIGIN, 4, position.origins)
    fill(first, count, CLIENT, 8, content.clients)
    fill(first, count, SEQUENCE, 8, content.sequences)
    fill(first, count, SOURCE_TXID, 8, content.source_txids)
    fill(first, count, SOW_KEY, 8, content.sow_keys)
    fill(first, count, EXPIRATION, 4, content.expirations)
    fill(first, count, KIND, 1, content.kinds)
    fill(first, count, FLAGS, 1, flags)
    for at in range(count):
        record = first - SIZE * at
        store_u32(record + CRC, crc32c(record, CRC))
    return joined, made, end, checksums


cdef int fill(uint8_t *first, Py_ssize_t count, int offset, int width, field) except -1:
    """Store a field in all records: one value, a range, or one value each."""
    cdef uint64_t value
    cdef long long step
    cdef Py_ssize_t at
    cdef PyObject **items
    if isinstance(field, (int, range)):
        if isinstance(field, range):
            value, step = field.start, field.step
        else:
            value, step = field, 0
        for at in range(count):
            store(first - SIZE * at + offset, width, value)
            value += step
        return 0
    values = PySequence_Fast(field, "a field has values")
    if PySequence_Fast_GET_SIZE(values) < count:
        raise ValueError("a field has too few values")
    items = PySequence_Fast_ITEMS(values)
    for at in range(count):
        value = PyLong_AsUnsignedLongLong(<object>items[at])
        store(first - SIZE * at + offset, width, value)
    return 0


cdef inline void store(uint8_t *at, int width, uint64_t value) noexcept nogil:
    if width == 8:
        store_u64(at, value)
    elif width == 4:
        store_u32(at, <uint32_t>value)
    else:
        at[0] = <uint8_t>value


cdef inline void store_u16(uint8_t *at, uint64_t value) noexcept nogil:
    at[0] = value & 0xFF
    at[1] = value >> 8
