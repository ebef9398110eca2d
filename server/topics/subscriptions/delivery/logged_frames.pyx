# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Frames messages from their entries in the log, in C.

Headers differ only in a few numbers from the message's record. So the length of all frames is
computed before any of them is written, and each byte of a body is copied once.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from server.util.decimals cimport count_decimals, put_decimals
from server.storage.journal.format.octets cimport load_u32, load_u64, uint8_t, uint32_t, uint64_t
from server.storage.journal.format.record cimport (
    SIZE, TIMESTAMP, CLIENT, SEQUENCE, SOW_KEY, BODY_START, BODY_LENGTH
)
from amperage.wire.append cimport put, put_length

from server.topics.subscriptions.delivery.envelope import iso_timestamp

cdef enum:
    MICROSECONDS = 1000000
    MOMENT = 23  # bytes of a timestamp: 20261120T192011.518031Z
    FRACTION = 7  # bytes of its end: six decimals and the Z

cdef enum:  # bytes of keys, without their values
    BOOKMARK_KEY = 10  # ,"bm":"||"
    TIMESTAMP_KEY = 8  # ,"ts":""
    SOW_KEY_KEY = 7  # ,"k":""
    LENGTH_KEY = 5  # ,"l":


def frames(
    bytes records,
    bytes place_of_bodies,
    presented,
    bytes left,
    bytes keys,
    bytes right,
    bint bookmark,
    bint timestamp,
    bint sow_key,
):
    cdef Py_ssize_t count = PyBytes_GET_SIZE(records) // SIZE, position, length, total = 0
    cdef Py_ssize_t left_size = PyBytes_GET_SIZE(left), right_size = PyBytes_GET_SIZE(right)
    cdef const uint8_t *record = <const uint8_t *>PyBytes_AS_STRING(records)
    cdef const uint8_t *stored = <const uint8_t *>PyBytes_AS_STRING(place_of_bodies)
    cdef const uint8_t *body
    cdef uint64_t moment, second = ~<uint64_t>0, key
    cdef uint32_t fraction
    cdef bytes made, sent, text = b""
    cdef list bodies = None if presented is None else list(presented)
    cdef uint8_t *to
    cdef Py_ssize_t keys_size = PyBytes_GET_SIZE(keys), header, place
    cdef Py_ssize_t fixed = left_size + LENGTH_KEY + keys_size + right_size
    if bodies is not None and len(bodies) != count:
        raise ValueError(f"{len(bodies)} bodies for {count} messages")
    if bookmark:
        fixed += BOOKMARK_KEY
    if timestamp:
        fixed += TIMESTAMP_KEY + MOMENT
    for position in range(count):
        total += 4 + header_size(record + position * SIZE, fixed, bookmark, sow_key)
        if bodies is None:
            length = load_u32(record + position * SIZE + BODY_LENGTH)
        else:
            sent = bodies[position]
            length = PyBytes_GET_SIZE(sent)
        total += count_decimals(length) + length
    made = PyBytes_FromStringAndSize(NULL, total)
    to = <uint8_t *>PyBytes_AS_STRING(made)
    for position in range(count):
        if bodies is None:
            body = stored + load_u64(record + BODY_START)
            length = load_u32(record + BODY_LENGTH)
        else:
            sent = bodies[position]
            body = <const uint8_t *>PyBytes_AS_STRING(sent)
            length = PyBytes_GET_SIZE(sent)
        header = header_size(record, fixed, bookmark, sow_key) + count_decimals(length) + length
        to = put(put_length(to, header), PyBytes_AS_STRING(left), left_size)
        to = put_decimals(put(to, b',"l":', LENGTH_KEY), length)
        to = put(to, PyBytes_AS_STRING(keys), keys_size)
        if bookmark:
            to = put_decimals(put(to, b',"bm":"', 7), load_u64(record + CLIENT))
            to = put_decimals(put(to, b"|", 1), load_u64(record + SEQUENCE))
            to = put(to, b'|"', 2)
        if timestamp:
            moment = load_u64(record + TIMESTAMP)
            if moment // MICROSECONDS != second:
                second = moment // MICROSECONDS
                text = iso_timestamp(<double>second).encode()
                if PyBytes_GET_SIZE(text) != MOMENT:
                    raise OverflowError(f"{moment} microseconds since 1970 are no moment")
            to = put(to, b',"ts":"', 7)
            to = put(to, PyBytes_AS_STRING(text), MOMENT - FRACTION)
            fraction = moment % MICROSECONDS
            place = FRACTION - 1
            while place:
                place -= 1
                to[place] = <uint8_t>(48 + fraction % 10)
                fraction //= 10
            to = put(to + FRACTION - 1, b'Z"', 2)
        key = load_u64(record + SOW_KEY)
        if sow_key and key:
            to = put(put_decimals(put(to, b',"k":"', 6), key), b'"', 1)
        to = put(put(to, PyBytes_AS_STRING(right), right_size), body, length)
        record += SIZE
    return made


cdef inline Py_ssize_t header_size(
    const uint8_t *record, Py_ssize_t fixed, bint bookmark, bint sow_key
) noexcept nogil:
    """Return the length of a message's header, without the digits of its body's length."""
    cdef Py_ssize_t size = fixed
    if bookmark:
        size += count_decimals(load_u64(record + CLIENT)) + count_decimals(load_u64(record + SEQUENCE))
    if sow_key and load_u64(record + SOW_KEY):
        size += SOW_KEY_KEY + count_decimals(load_u64(record + SOW_KEY))
    return size
