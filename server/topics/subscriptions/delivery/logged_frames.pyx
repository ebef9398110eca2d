# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Frames messages from their entries in the log, in C.

Headers differ only in a few numbers from the message's record. So the length of all frames is
computed before any of them is written, and each byte of a body is copied once.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.ref cimport PyObject
from libc.string cimport memcpy

from server.util.decimals cimport count_decimals, put_decimals
from server.storage.journal.format.octets cimport load_u32, load_u64, uint8_t, uint32_t, uint64_t
from server.storage.journal.format.record cimport (
    SIZE, TIMESTAMP, CLIENT, SEQUENCE, SOW_KEY, BODY_START, BODY_LENGTH, TOPIC, ORIGIN
)
from amperage.wire.append cimport put, put_length

from server.topics.subscriptions.delivery.envelope import iso_timestamp

cdef extern from "Python.h":
    PyObject *PyDict_GetItemWithError(object values, object key) except? NULL

cdef enum:
    MICROSECONDS = 1000000
    MOMENT = 23  # bytes of a timestamp: 20261120T192011.518031Z
    FRACTION = 7  # bytes of its end: six decimals and the Z

cdef enum:  # bytes of keys, without their values
    BOOKMARK_KEY = 10  # ,"bm":"||"
    TIMESTAMP_KEY = 8  # ,"ts":""
    SOW_KEY_KEY = 7  # ,"k":""
    LENGTH_KEY = 5  # ,"l":


cdef struct Moment:
    uint64_t second  # since 1970
    char text[16]  # of that second, without its fraction


cdef struct Head:  # of the messages of a kind
    const char *left
    Py_ssize_t left_size
    const char *keys
    Py_ssize_t keys_size
    const char *right
    Py_ssize_t right_size
    Py_ssize_t fixed  # bytes of a header without its numbers
    bint bookmark
    bint timestamp
    bint sow_key


def frames(bytes records, bytes place_of_bodies, presented, dict headers not None):
    cdef Py_ssize_t count = PyBytes_GET_SIZE(records) // SIZE, position, length, total = 0
    cdef const uint8_t *record = <const uint8_t *>PyBytes_AS_STRING(records)
    cdef const uint8_t *stored = <const uint8_t *>PyBytes_AS_STRING(place_of_bodies)
    cdef const uint8_t *body
    cdef uint64_t kind, last_kind = 0
    cdef Moment moment
    cdef bytes made, sent
    cdef list bodies = None if presented is None else list(presented)
    cdef uint8_t *to
    cdef Py_ssize_t framed = 0
    cdef Head *head = NULL
    cdef Head *heads
    cdef Head **of
    if bodies is not None and len(bodies) != count:
        raise ValueError(f"{len(bodies)} bodies for {count} messages")
    heads = <Head *>PyMem_Malloc(count * (sizeof(Head) + sizeof(Head *)) + 1)
    if heads == NULL:
        raise MemoryError()
    of = <Head **>(heads + count)
    try:
        for position in range(count):
            kind = load_u32(record + TOPIC) | <uint64_t>load_u32(record + ORIGIN) << 32
            if kind != last_kind or not position:
                head = read_head(heads + position, headers, kind)
                last_kind = kind
            of[position] = head
            if head != NULL:
                length = body_length(record, bodies, position)
                total += 4 + header_size(record, head) + count_decimals(length) + length
                framed += 1
            record += SIZE
        made = PyBytes_FromStringAndSize(NULL, total)
        to = <uint8_t *>PyBytes_AS_STRING(made)
        record = <const uint8_t *>PyBytes_AS_STRING(records)
        moment.second = ~<uint64_t>0
        for position in range(count):
            head = of[position]
            if head != NULL:
                if bodies is None:
                    body = stored + load_u64(record + BODY_START)
                else:
                    sent = bodies[position]
                    body = <const uint8_t *>PyBytes_AS_STRING(sent)
                length = body_length(record, bodies, position)
                to = put_length(to, header_size(record, head) + count_decimals(length) + length)
                to = put_header(to, record, head, length, &moment)
                to = put(to, <const char *>body, length)
            record += SIZE
        if to - <uint8_t *>PyBytes_AS_STRING(made) != total:
            raise AssertionError("frames have another length than computed")
        return made, framed
    finally:
        PyMem_Free(heads)


cdef Head *read_head(Head *head, dict headers, uint64_t kind) except? NULL:
    """Read the header of a kind; return NULL if there is none."""
    cdef PyObject *found = PyDict_GetItemWithError(headers, kind)
    cdef tuple header
    cdef bytes left, keys, right
    if found == NULL:
        return NULL
    header = <tuple>found
    left, keys, right, bookmark, timestamp, sow_key = header
    head.left, head.left_size = PyBytes_AS_STRING(left), PyBytes_GET_SIZE(left)
    head.keys, head.keys_size = PyBytes_AS_STRING(keys), PyBytes_GET_SIZE(keys)
    head.right, head.right_size = PyBytes_AS_STRING(right), PyBytes_GET_SIZE(right)
    head.bookmark, head.timestamp, head.sow_key = bookmark, timestamp, sow_key
    head.fixed = head.left_size + LENGTH_KEY + head.keys_size + head.right_size
    if head.bookmark:
        head.fixed += BOOKMARK_KEY
    if head.timestamp:
        head.fixed += TIMESTAMP_KEY + MOMENT
    return head


cdef inline Py_ssize_t body_length(const uint8_t *record, list bodies, Py_ssize_t position):
    """Return the length of a body as it is sent."""
    return load_u32(record + BODY_LENGTH) if bodies is None else len(<bytes?>bodies[position])


cdef uint8_t *put_header(
    uint8_t *to, const uint8_t *record, Head *head, Py_ssize_t length, Moment *last
) except NULL:
    """Write the header of a message."""
    cdef uint64_t moment, key
    cdef uint32_t fraction
    cdef Py_ssize_t index
    cdef bytes text
    to = put(to, head.left, head.left_size)
    to = put_decimals(put(to, b',"l":', LENGTH_KEY), length)
    to = put(to, head.keys, head.keys_size)
    if head.bookmark:
        to = put_decimals(put(to, b',"bm":"', 7), load_u64(record + CLIENT))
        to = put_decimals(put(to, b"|", 1), load_u64(record + SEQUENCE))
        to = put(to, b'|"', 2)
    if head.timestamp:
        moment = load_u64(record + TIMESTAMP)
        if moment // MICROSECONDS != last.second:
            last.second = moment // MICROSECONDS
            text = iso_timestamp(<double>last.second).encode()
            if PyBytes_GET_SIZE(text) != MOMENT:
                raise OverflowError(f"{moment} microseconds since 1970 are no moment")
            memcpy(last.text, PyBytes_AS_STRING(text), MOMENT - FRACTION)
        to = put(put(to, b',"ts":"', 7), last.text, MOMENT - FRACTION)
        fraction = moment % MICROSECONDS
        index = FRACTION - 1
        while index:
            index -= 1
            to[index] = <uint8_t>(48 + fraction % 10)
            fraction //= 10
        to = put(to + FRACTION - 1, b'Z"', 2)
    key = load_u64(record + SOW_KEY)
    if head.sow_key and key:
        to = put(put_decimals(put(to, b',"k":"', 6), key), b'"', 1)
    return put(to, head.right, head.right_size)


cdef inline Py_ssize_t header_size(const uint8_t *record, Head *head) noexcept nogil:
    """Return the length of a message's header, without the digits of its body's length."""
    cdef Py_ssize_t size = head.fixed
    if head.bookmark:
        size += count_decimals(load_u64(record + CLIENT)) + count_decimals(load_u64(record + SEQUENCE))
    if head.sow_key and load_u64(record + SOW_KEY):
        size += SOW_KEY_KEY + count_decimals(load_u64(record + SOW_KEY))
    return size
