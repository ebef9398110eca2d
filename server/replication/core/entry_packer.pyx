# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Packs entries of the log into columns of a batch, in C.

This runs for every entry and every destination, while publishers wait: the cost per entry matters
more than the cost per batch. See docs/formats/replication.md for the columns.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from server.storage.journal.format.octets cimport (
    load_u32, load_u64, store_u32, store_u64, uint8_t, uint32_t, uint64_t
)
from server.storage.journal.format.record cimport (
    SIZE, TXID, TIMESTAMP, CLIENT, SEQUENCE, SOURCE_TXID, SOW_KEY, BODY_START, BODY_LENGTH,
    EXTRAS_LENGTH, TOPIC, ORIGIN, EXPIRATION, BODY_CRC, KIND
)

cdef enum:
    COLUMNS = 11

cdef enum:
    STAYS = 0
    IS_OURS = 1

cdef enum:  # forms of a column
    SAME = 0
    CONSECUTIVE = 1
    EACH_U8 = 2
    EACH_U32 = 3
    EACH_U64 = 4

cdef enum:
    MICROSECONDS = 1000000


def pack(bytes records, ways, int64_t now):
    cdef Py_ssize_t count = PyBytes_GET_SIZE(records) // SIZE, sent = 0, index, size = 0
    cdef const uint8_t *record = <const uint8_t *>PyBytes_AS_STRING(records)
    cdef uint64_t *values = <uint64_t *>malloc(COLUMNS * 8 * (count + 1))
    cdef uint8_t *packed = <uint8_t *>malloc(COLUMNS * (9 + 8 * count))
    cdef uint64_t topic, origin, txid, start, length, begin = 0, end = 0
    cdef uint64_t name = ~<uint64_t>0, number = 0
    cdef long way = STAYS
    cdef dict numbers = {}
    cdef list pieces = []
    try:
        if values == NULL or packed == NULL:
            raise MemoryError
        for index in range(count):
            topic, origin = load_u32(record + TOPIC), load_u32(record + ORIGIN)
            if (topic << 32 | origin) != name:
                name = topic << 32 | origin
                way = ways[name]
                if way != STAYS:
                    found = numbers.get(name)
                    if found is None:
                        found = numbers[name] = len(numbers)
                    number = found
            if way == STAYS:
                record += SIZE
                continue
            txid = load_u64(record + TXID)
            start = load_u64(record + BODY_START)
            length = <uint64_t>load_u32(record + BODY_LENGTH) + load_u32(record + EXTRAS_LENGTH)
            if not sent:
                begin = start
            if start != end and sent:
                pieces.append((begin, end))
                begin = start
            end = start + length
            values[sent] = number
            values[count + sent] = txid
            values[2 * count + sent] = load_u64(record + CLIENT)
            values[3 * count + sent] = load_u64(record + SEQUENCE)
            values[4 * count + sent] = source_txid(record, txid, way)
            values[5 * count + sent] = record[KIND]
            values[6 * count + sent] = load_u64(record + SOW_KEY)
            values[7 * count + sent] = left(record, now)
            values[8 * count + sent] = load_u32(record + EXTRAS_LENGTH)
            values[9 * count + sent] = length
            values[10 * count + sent] = load_u32(record + BODY_CRC)
            sent += 1
            record += SIZE
        if sent:
            pieces.append((begin, end))
            for index in range(COLUMNS):
                size += pack_column(packed + size, values + index * count, sent)
        columns = PyBytes_FromStringAndSize(<char *>packed, size)
    finally:
        free(values)
        free(packed)
    return sent, list(numbers), columns, pieces


cdef inline uint64_t source_txid(const uint8_t *record, uint64_t txid, long way) noexcept nogil:
    """Return the txid here if the entry was published here with a number; else the recorded one."""
    if way == IS_OURS and load_u64(record + SEQUENCE) != txid:
        return txid
    return load_u64(record + SOURCE_TXID)


cdef inline uint64_t left(const uint8_t *record, int64_t now) noexcept nogil:
    """Return the remaining lifetime in seconds; 1 for an entry that has expired."""
    cdef int64_t lifetime = load_u32(record + EXPIRATION), gone = 0
    cdef int64_t recorded = <int64_t>load_u64(record + TIMESTAMP)
    if not lifetime:
        return 0
    if now > recorded:
        gone = (now - recorded) // MICROSECONDS
    return lifetime - gone if lifetime > gone else 1


cdef Py_ssize_t pack_column(uint8_t *to, const uint64_t *values, Py_ssize_t count) noexcept nogil:
    cdef uint64_t first = values[0], differing = 0, gaps = 0, bits = 0
    cdef Py_ssize_t index
    for index in range(count):
        differing |= values[index] ^ first
        gaps |= values[index] ^ (first + <uint64_t>index)
        bits |= values[index]
    # The last comparison keeps first + count below 2**64.
    if not differing or (not gaps and first <= ~<uint64_t>count):
        to[0] = CONSECUTIVE if differing else SAME
        store_u64(to + 1, first)
        return 9
    if bits < 1 << 8:
        to[0] = EACH_U8
        for index in range(count):
            to[1 + index] = <uint8_t>values[index]
        return 1 + count
    if bits >> 32 == 0:
        to[0] = EACH_U32
        for index in range(count):
            store_u32(to + 1 + 4 * index, <uint32_t>values[index])
        return 1 + 4 * count
    to[0] = EACH_U64
    for index in range(count):
        store_u64(to + 1 + 8 * index, values[index])
    return 1 + 8 * count
