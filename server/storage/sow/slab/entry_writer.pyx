# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Writes and cleans many entries of a SOW file at once, in C.

The format of an entry is in slab_format.py. Its bytes are written to the slab's map, and the checksum
last: without it, the entry does not exist. The compiler must not change that order either, so the
checksum is stored atomically, like a value that another thread waits for.

A map may lose its pages while it is written to or read (map_guard.pyx): it then reads as zeros, which
are no entry, and the guard has detected the loss afterwards. Nothing that has been written meanwhile
counts.

The content of a slab is not trusted: an entry that exceeds its limit, or with texts that exceed the
entry, is left to the caller, which reports the error.
"""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsUnsignedLongLong
from cpython.ref cimport PyObject
from libc.string cimport memcpy

import array

from server.util.decimals cimport MAX_DECIMALS, put_decimals
from server.storage.journal.format.octets cimport (
    crc32c, load_u32, load_u64, store_u32, store_u64, uint8_t, uint32_t, uint64_t
)
from server.storage.sow.slab.map_guard cimport MapGuard

from server.util.encoding import text_to_bytes

cdef extern from *:
    """
    static inline void seal(uint8_t *entry, uint32_t checksum) {
        __atomic_store_n((uint32_t *)entry, AS_LITTLE_32(checksum), __ATOMIC_RELEASE);
    }

    static inline unsigned load_u16(const uint8_t *at) {
        return at[0] | (unsigned)at[1] << 8;
    }

    static inline void store_u16(uint8_t *at, unsigned value) {
        at[0] = (uint8_t)value;
        at[1] = (uint8_t)(value >> 8);
    }
    """
    void seal(uint8_t *entry, uint32_t checksum) noexcept nogil
    unsigned load_u16(const uint8_t *at) noexcept nogil
    void store_u16(uint8_t *at, unsigned value) noexcept nogil

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char *text, Py_ssize_t size, const char *errors)
    PyObject *PyDict_GetItemWithError(object values, object key) except? NULL

cdef enum:  # offsets of the fields of an entry
    LENGTH = 4
    EPOCH = 8
    KIND = 12
    TOPIC_SIZE = 14
    KEY_SIZE = 16
    CORRELATION_SIZE = 18
    BOOKMARK_SIZE = 20
    SEQUENCE = 24
    STAMP = 32
    EXPIRES = 40
    NUMBER = 48
    TEXTS = 56
    MAX_OF_TEXT = 0xFFFF

cdef enum:
    RECORD = 1
    DELETED = 2
    DROPPED = 5


def write_batch(
    mapped, Py_ssize_t position, Py_ssize_t limit, uint64_t epoch, batch, Py_ssize_t start, own_topic
):
    cdef list bodies = as_list(batch.bodies), keys = as_list(batch.keys)
    cdef list sequences = as_list(batch.sequences), numbers = as_list(batch.numbers)
    cdef list correlation_ids = as_list(batch.correlation_ids)
    cdef list timestamps = column_of(batch.timestamp), moments = column_of(batch.expires)
    cdef list publishers = column_of(batch.publisher), topics = topics_of(batch.topic)
    cdef Py_ssize_t count = len(bodies), index
    cdef Py_ssize_t length, padded_size, key_size, topic_size = 0, correlation_size = 0, bookmark_size = 0
    cdef uint64_t timestamp = 0 if timestamps is not None else batch.timestamp
    cdef uint64_t expires = 0 if moments is not None else batch.expires
    cdef uint8_t[MAX_DECIMALS] digits
    cdef const uint8_t *key
    cdef uint8_t[2 * MAX_DECIMALS + 2] bookmark
    cdef uint8_t *behind_publisher = put_decimals(bookmark, 0 if publishers is not None else batch.publisher)
    cdef uint8_t *at
    cdef uint8_t *to
    cdef bytes body, key_text, topic = b"", correlation_id = b""
    cdef dict names = {own_topic: b""}  # by topic, as entries have them
    cdef array.array sizes = array.clone(NO_SIZES, max(0, count - start), False)
    cdef Py_buffer view
    behind_publisher[0] = 124
    for column in (
        keys, sequences, numbers or None, correlation_ids or None, timestamps, moments, publishers, topics
    ):
        if column is not None and len(column) != count:
            raise ValueError("a batch has as many keys, sequences and numbers as bodies")
    if topics is not None:
        for name in set(topics):
            if name not in names:
                names[name] = text_to_bytes(name)
    PyObject_GetBuffer(mapped, &view, PyBUF_WRITABLE)
    try:
        if position < 0 or position % 8 or limit > view.len:
            raise ValueError("entries lie within their slab")
        for index in range(start, count):
            body = bodies[index]
            if isinstance(keys[index], str):
                key_text = text_to_bytes(keys[index])
                key, key_size = <const uint8_t *>PyBytes_AS_STRING(key_text), PyBytes_GET_SIZE(key_text)
            else:
                key_size = put_decimals(digits, PyLong_AsUnsignedLongLong(keys[index])) - digits
                key = digits
            if timestamps is not None:
                timestamp = PyLong_AsUnsignedLongLong(timestamps[index])
            if moments is not None:
                expires = PyLong_AsUnsignedLongLong(moments[index])
            if numbers:
                if publishers is not None:
                    behind_publisher = put_decimals(
                        bookmark, PyLong_AsUnsignedLongLong(publishers[index])
                    )
                    behind_publisher[0] = 124
                at = put_decimals(behind_publisher + 1, PyLong_AsUnsignedLongLong(numbers[index]))
                at[0] = 124
                bookmark_size = at + 1 - bookmark
            if topics is not None:
                topic = names[topics[index]]
                topic_size = PyBytes_GET_SIZE(topic)
            if correlation_ids:
                correlation_id = text_to_bytes(correlation_ids[index])
                correlation_size = PyBytes_GET_SIZE(correlation_id)
            length = TEXTS + topic_size + key_size + correlation_size + bookmark_size + PyBytes_GET_SIZE(body)
            padded_size = (length + 7) & ~<Py_ssize_t>7
            if padded_size > limit - position or max(topic_size, key_size, correlation_size) > MAX_OF_TEXT:
                array.resize(sizes, index - start)
                break
            at = <uint8_t *>view.buf + position
            store_u32(at + LENGTH, <uint32_t>length)
            store_u32(at + EPOCH, <uint32_t>epoch)
            at[KIND], at[KIND + 1] = RECORD, 0
            store_u16(at + TOPIC_SIZE, <unsigned>topic_size)
            store_u16(at + KEY_SIZE, <unsigned>key_size)
            store_u16(at + CORRELATION_SIZE, <unsigned>correlation_size)
            store_u16(at + BOOKMARK_SIZE, <unsigned>bookmark_size)
            store_u16(at + BOOKMARK_SIZE + 2, 0)
            store_u64(at + SEQUENCE, PyLong_AsUnsignedLongLong(sequences[index]))
            store_u64(at + STAMP, timestamp)
            store_u64(at + EXPIRES, expires)
            store_u64(at + NUMBER, 0)
            to = at + TEXTS
            memcpy(to, PyBytes_AS_STRING(topic), topic_size)
            memcpy(to + topic_size, key, key_size)
            to += topic_size + key_size
            memcpy(to, PyBytes_AS_STRING(correlation_id), correlation_size)
            memcpy(to + correlation_size, bookmark, bookmark_size)
            memcpy(to + correlation_size + bookmark_size, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))
            seal(at, crc32c(at + LENGTH, length - LENGTH))
            sizes.data.as_uints[index - start] = <unsigned>padded_size
            position += padded_size
    finally:
        PyBuffer_Release(&view)
    return sizes


cdef array.array NO_SIZES = array.array("I")


cdef inline list as_list(values):
    return <list>values if type(values) is list else list(values)


cdef list topics_of(topic):
    """Return the topics of records; None if all have the only topic of their table."""
    return None if isinstance(topic, str) else as_list(topic)


cdef list column_of(field):
    """Return the values of a field as a list; None if all records have the same value."""
    return None if isinstance(field, int) else as_list(field)


def index_batch(
    dict rows,
    array.array locations,
    array.array sizes,
    list free,
    batch,
    Py_ssize_t start,
    long long location,
    array.array written,
):
    cdef list keys = as_list(batch.keys), topics = topics_of(batch.topic), placed = [], added = []
    cdef Py_ssize_t count = len(written), index, row
    cdef long long gained = 0
    cdef unsigned padded_size
    cdef uint8_t[MAX_DECIMALS] key
    cdef PyObject *found
    if count > len(keys) - start or written.itemsize != 4 or sizes.itemsize != 4:
        raise ValueError("as many keys as entries")
    if topics is not None and len(topics) != len(keys):
        raise ValueError("as many topics as keys")
    for index in range(count):
        padded_size = written.data.as_uints[index]
        identity = keys[start + index]
        if not isinstance(identity, str):
            identity = PyUnicode_DecodeUTF8(
                <const char *>key, put_decimals(key, PyLong_AsUnsignedLongLong(identity)) - key, NULL
            )
        if topics is not None:
            identity = f"{topics[start + index]}\0{identity}"
        found = PyDict_GetItemWithError(rows, identity)
        if found != NULL:
            number = <object>found
            row = number
            gained -= sizes.data.as_uints[row]
        else:
            if free:
                number = free.pop()
                row = number
            else:
                row = len(locations)
                number = row
                array.resize_smart(locations, row + 1)
                array.resize_smart(sizes, row + 1)
            rows[identity] = number
            added.append(number)
        locations.data.as_longlongs[row] = location
        sizes.data.as_uints[row] = padded_size
        location += padded_size
        gained += padded_size
        placed.append(number)
    return placed, added, gained


def clean(
    MapGuard guard,
    source,
    Py_ssize_t position,
    Py_ssize_t end,
    Py_ssize_t amount,
    long long source_start,
    dict rows,
    array.array locations,
    topic,
    target,
    Py_ssize_t to,
    long long target_start,
    uint64_t epoch,
):
    cdef Py_buffer old, new
    cdef Py_ssize_t begin = position, padded_size
    cdef uint8_t *entry
    cdef uint8_t *copy
    cdef PyObject *found
    cdef Py_ssize_t row
    if position < 0 or position % 8 or to < 0 or to % 8:
        raise ValueError("entries lie within their slab")
    PyObject_GetBuffer(source, &old, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(target, &new, PyBUF_WRITABLE)
        try:
            end = min(end, old.len)
            while position < end and position - begin < amount:
                entry = <uint8_t *>old.buf + position
                padded_size = padded_size_of(entry, end - position)
                if not padded_size:
                    break
                if entry[KIND] == RECORD:
                    found = PyDict_GetItemWithError(rows, identity_of(entry, topic))
                    row = <object>found if found != NULL else -1
                    if row >= 0 and locations.data.as_longlongs[row] == source_start + position:
                        if padded_size > new.len - to:
                            break
                        copy = <uint8_t *>new.buf + to
                        memcpy(copy + LENGTH, entry + LENGTH, load_u32(entry + LENGTH) - LENGTH)
                        store_u32(copy + EPOCH, <uint32_t>epoch)
                        seal(copy, crc32c(copy + LENGTH, load_u32(copy + LENGTH) - LENGTH))
                        if guard.lost:
                            break
                        locations.data.as_longlongs[row] = target_start + to
                        to += padded_size
                elif entry[KIND] != DELETED and entry[KIND] != DROPPED:
                    break
                if guard.lost:
                    break
                position += padded_size
        finally:
            PyBuffer_Release(&new)
    finally:
        PyBuffer_Release(&old)
    return position, to


cdef inline Py_ssize_t padded_size_of(const uint8_t *entry, Py_ssize_t most) noexcept nogil:
    """Return the size of an entry with padding; 0 if it cannot be one."""
    cdef Py_ssize_t length, texts
    if most < TEXTS:
        return 0
    length = load_u32(entry + LENGTH)
    if length < TEXTS or length > most:
        return 0
    texts = (
        <Py_ssize_t>load_u16(entry + TOPIC_SIZE) + load_u16(entry + KEY_SIZE)
        + load_u16(entry + CORRELATION_SIZE) + load_u16(entry + BOOKMARK_SIZE)
    )
    return 0 if texts > length - TEXTS else (length + 7) & ~<Py_ssize_t>7


cdef object identity_of(const uint8_t *entry, topic):
    """Return the identity of an entry's record.

    `topic` is the topic of entries that name none; None if identities contain no topic.
    """
    cdef Py_ssize_t size = load_u16(entry + TOPIC_SIZE)
    key = PyUnicode_DecodeUTF8(
        <const char *>entry + TEXTS + size, load_u16(entry + KEY_SIZE), "surrogateescape"
    )
    if topic is None:
        return key
    if size:
        topic = PyUnicode_DecodeUTF8(<const char *>entry + TEXTS, size, "surrogateescape")
    return f"{topic}\0{key}"
