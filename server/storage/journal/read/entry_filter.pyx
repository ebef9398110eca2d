# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Selection of matching records from a block, with the offsets of their bodies, in C.

Forwarding the log examines every record; most are tested only for being intact and matching. With
Python objects that would cost more than all later steps.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcpy

from server.storage.journal.format.octets cimport (
    crc32c, load_u32, load_u64, store_u64, uint8_t, uint32_t, uint64_t
)
from server.storage.journal.format.record cimport (
    SIZE, TXID, BODY_START, BODY_LENGTH, EXTRAS_LENGTH, TOPIC, ORIGIN, BODY_CRC, KIND, CRC
)

cdef enum:
    DETOUR = 4096  # bytes between bodies that are cheaper to read and discard than to skip


def choose(
    bytes block,
    uint64_t first_txid,
    uint64_t file_size,
    uint64_t kinds,
    wanted,
    topics,
    origins,
    uint64_t most_bytes,
):
    cdef Py_ssize_t count = PyBytes_GET_SIZE(block) // SIZE, index = 0
    cdef const uint8_t *records = <const uint8_t *>PyBytes_AS_STRING(block)
    cdef const uint8_t *record
    cdef bytes chosen = PyBytes_FromStringAndSize(NULL, SIZE * count)
    cdef uint8_t *to = <uint8_t *>PyBytes_AS_STRING(chosen)
    cdef list parts = [], damaged = []
    cdef uint64_t start, length, total = 0, before = 0, part_start = 0, part_end = 0
    cdef uint64_t topic = ~<uint64_t>0, origin = ~<uint64_t>0
    cdef bint is_wanted = False, is_known = False
    cdef Py_ssize_t found = 0
    while index < count and total < most_bytes:
        record = records + SIZE * (count - 1 - index)
        if (
            load_u64(record + TXID) != first_txid + index
            or load_u32(record + CRC) != crc32c(record, CRC)
        ):
            damaged.append(first_txid + index)
            index += 1
            continue
        index += 1
        if record[KIND] >= 64 or not kinds >> record[KIND] & 1:
            continue
        if load_u32(record + TOPIC) != topic:
            topic = load_u32(record + TOPIC)
            is_wanted = wanted[topic]
            is_known = topic in topics
        if not is_wanted:
            continue
        start = load_u64(record + BODY_START)
        length = <uint64_t>load_u32(record + BODY_LENGTH) + load_u32(record + EXTRAS_LENGTH)
        if load_u32(record + ORIGIN) != origin and load_u32(record + ORIGIN) in origins:
            origin = load_u32(record + ORIGIN)
        if (
            start > file_size
            or length > file_size - start
            or not is_known
            or load_u32(record + ORIGIN) != origin
        ):
            damaged.append(first_txid + index - 1)
            continue
        if not found or not part_end <= start <= part_end + DETOUR:
            if found:
                parts.append((part_start, part_end))
                before += part_end - part_start
            part_start = start
        part_end = start + length
        memcpy(to + SIZE * found, record, SIZE)
        store_u64(to + SIZE * found + BODY_START, before + start - part_start)
        found += 1
        total += length
    if found:
        parts.append((part_start, part_end))
    return chosen[: SIZE * found] if found < count else chosen, parts, index, damaged


def broken(bytes records, bytes bodies):
    cdef Py_ssize_t count = PyBytes_GET_SIZE(records) // SIZE, index
    cdef const uint8_t *record = <const uint8_t *>PyBytes_AS_STRING(records)
    cdef const uint8_t *body = <const uint8_t *>PyBytes_AS_STRING(bodies)
    cdef uint64_t size = PyBytes_GET_SIZE(bodies), start, length
    cdef list found = []
    for index in range(count):
        start = load_u64(record + BODY_START)
        length = <uint64_t>load_u32(record + BODY_LENGTH) + load_u32(record + EXTRAS_LENGTH)
        if (
            start > size
            or length > size - start
            or crc32c(body + start, length) != load_u32(record + BODY_CRC)
        ):
            found.append(index)
        record += SIZE
    return found


def alike(bytes records):
    cdef Py_ssize_t count = PyBytes_GET_SIZE(records) // SIZE, index, start = 0
    cdef const uint8_t *first = <const uint8_t *>PyBytes_AS_STRING(records)
    cdef const uint8_t *record = first
    cdef list found = []
    for index in range(count):
        if (
            load_u32(record + TOPIC) != load_u32(first + TOPIC)
            or load_u32(record + ORIGIN) != load_u32(first + ORIGIN)
            or (load_u32(record + EXTRAS_LENGTH) > 0) != (load_u32(first + EXTRAS_LENGTH) > 0)
        ):
            found.append((start, index))
            start, first = index, record
        record += SIZE
    if count:
        found.append((start, count))
    return found


def kinds(bytes records):
    cdef Py_ssize_t index
    cdef const uint8_t *record = <const uint8_t *>PyBytes_AS_STRING(records)
    cdef uint64_t kind, last = 0
    cdef dict found = {}
    for index in range(PyBytes_GET_SIZE(records) // SIZE):
        if load_u32(record + EXTRAS_LENGTH):
            return None
        kind = load_u32(record + TOPIC) | <uint64_t>load_u32(record + ORIGIN) << 32
        if kind != last or not index:
            found[kind] = None
            last = kind
        record += SIZE
    return list(found)


def pick(bytes records, positions):
    cdef bytes picked = PyBytes_FromStringAndSize(NULL, SIZE * len(positions))
    cdef uint8_t *to = <uint8_t *>PyBytes_AS_STRING(picked)
    cdef const uint8_t *source = <const uint8_t *>PyBytes_AS_STRING(records)
    cdef Py_ssize_t count = PyBytes_GET_SIZE(records) // SIZE, position
    for position in positions:
        if not 0 <= position < count:
            raise IndexError(position)
        memcpy(to, source + SIZE * position, SIZE)
        to += SIZE
    return picked


def cut(bytes records, bytes bodies):
    cdef Py_ssize_t count = PyBytes_GET_SIZE(records) // SIZE, index
    cdef const uint8_t *record = <const uint8_t *>PyBytes_AS_STRING(records)
    cdef const char *data = PyBytes_AS_STRING(bodies)
    cdef list found = []
    for index in range(count):
        found.append(PyBytes_FromStringAndSize(
            data + load_u64(record + BODY_START),
            <Py_ssize_t>load_u32(record + BODY_LENGTH) + load_u32(record + EXTRAS_LENGTH),
        ))
        record += SIZE
    return found
