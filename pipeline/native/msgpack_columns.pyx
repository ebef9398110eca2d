# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Reads the fields of many MessagePack bodies into columns, in C; see columns.pyx.

A body is a map with text keys, read to its end. Odd are keys of other kinds, a wanted key that
occurs twice, and values that need a conversion: `bin`, numbers in place of texts, and the like.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from pipeline.native.columns cimport (
    DAY, MOMENT, OBJECT, REAL, TEXT, TRUTH, WHOLE, Column, ColumnReader, Guess, Level, find_column,
    guess_at, keep_real, keep_text, keep_time, keep_whole, read_day, read_moment
)


cdef enum Family:
    NIL, FALSE, TRUE, INTEGER, FLOAT, STRING, BINARY, EXTENSION, ARRAY, MAP, OTHER


cdef struct Item:
    Family family
    uint64_t size         # bytes of the payload; of arrays and maps how many items follow
    int64_t whole
    double real


cdef enum:
    DEEPEST = 64          # maximum nesting depth of arrays and maps that are skipped
    TIMESTAMP = 0xFF      # the type of the extension that is a time


cdef class MsgpackColumnReader(ColumnReader):
    """See msgpack_columns.pyi."""

    cdef int64_t _unit

    def __init__(self, wanted, int64_t unit):
        self._unit = unit

    cdef bint _read_body(
        self, const char *at, const char *end, Py_ssize_t row, const char *base
    ) except -1:
        cdef Item item
        at = read_head(at, end, &item)
        if at == NULL or item.family != MAP:
            return False
        return self._read_pairs(at, end, item.size, &self._levels[0], row) == end

    cdef const char *_read_pairs(
        self, const char *at, const char *end, uint64_t count, Level *level, Py_ssize_t row
    ) except? NULL:
        """Read the pairs of a map; return the position after them, NULL if the body is odd."""
        cdef Item item
        cdef Guess *guess
        cdef Column *column
        cdef Py_ssize_t length
        cdef uint64_t place
        cdef int number
        for place in range(count):
            at = read_head(at, end, &item)
            if at == NULL or item.family != STRING:
                return NULL
            length = <Py_ssize_t> item.size
            guess = guess_at(level, <int> min(place, 1 << 20))
            if (
                guess != NULL
                and guess.text != NULL
                and guess.length == length
                and memcmp(guess.text, at, length) == 0
            ):
                number = guess.number
            else:
                number = find_column(level, self._names, guess, at, length)
            at += length
            if number < 0:
                at = skip_item(at, end, 0)
            else:
                column = &self._columns[number]
                if column.seen == row + 1:
                    return NULL
                column.seen = row + 1
                at = self._read_value(at, end, column, row)
            if at == NULL:
                return NULL
        return at

    cdef const char *_read_value(
        self, const char *at, const char *end, Column *column, Py_ssize_t row
    ) except? NULL:
        """Read the value of a column; return the position after it, NULL if it is odd."""
        cdef Item item
        cdef const char *stop
        at = read_head(at, end, &item)
        if at == NULL or item.family == NIL:
            return at
        column.valid[row] = 1
        if column.kind == OBJECT:
            if item.family != MAP:
                return NULL
            return self._read_pairs(at, end, item.size, &self._levels[column.level], row)
        if item.family == ARRAY or item.family == MAP:
            return NULL
        stop = at + item.size
        return stop if self._keep(&item, at, stop, column, row) else NULL

    cdef bint _keep(
        self, Item *item, const char *at, const char *stop, Column *column, Py_ssize_t row
    ) except -1:
        """Store a value that is neither array nor map; return False if its type does not match."""
        if column.kind == TEXT:
            return item.family == STRING and keep_text(at, stop - at, column)
        if column.kind == WHOLE:
            return item.family == INTEGER and keep_whole(item.whole, column, row)
        if column.kind == REAL:
            if item.family != INTEGER and item.family != FLOAT:
                return False
            keep_real(<double> item.whole if item.family == INTEGER else item.real, column, row)
            return True
        if column.kind == TRUTH:
            column.values[row] = item.family == TRUE
            return item.family == TRUE or item.family == FALSE
        if item.family == INTEGER:
            return keep_time(item.whole, self._unit, column, row)
        if item.family == EXTENSION:
            return read_timestamp(at, stop, column, row)
        if item.family != STRING:
            return False
        if column.kind == MOMENT:
            return read_moment(at, stop, column, row)
        return read_day(at, stop, column, row)


cdef inline uint64_t big_endian(const char *at, int width) noexcept nogil:
    cdef uint64_t number = 0
    cdef int place
    for place in range(width):
        number = number << 8 | <uint8_t> at[place]
    return number


cdef const char *read_head(const char *at, const char *end, Item *item) noexcept nogil:
    """Read an item's head; return its payload, NULL if it does not end within the body.

    A number is read, and has no payload.
    """
    cdef uint8_t first
    cdef int width = 0    # of a number, or of the length
    cdef uint64_t found
    cdef uint32_t word
    if at >= end:
        return NULL
    first = <uint8_t> at[0]
    at += 1
    item.size = 0
    if first < 0x80 or first >= 0xE0:
        item.family, item.whole = INTEGER, <int8_t> first
        return at
    if first < 0x90:
        item.family, item.size = MAP, first & 0x0F
    elif first < 0xA0:
        item.family, item.size = ARRAY, first & 0x0F
    elif first < 0xC0:
        item.family, item.size = STRING, first & 0x1F
    elif first == 0xC0:
        item.family = NIL
    elif first == 0xC2 or first == 0xC3:
        item.family = TRUE if first == 0xC3 else FALSE
    elif 0xC4 <= first <= 0xC6:
        item.family, width = BINARY, 1 << (first - 0xC4)
    elif 0xC7 <= first <= 0xC9:
        item.family, item.size, width = EXTENSION, 1, 1 << (first - 0xC7)
    elif first == 0xCA or first == 0xCB:
        item.family, width = FLOAT, 4 << (first - 0xCA)
    elif 0xCC <= first <= 0xD3:
        item.family, width = INTEGER, 1 << ((first - 0xCC) & 3)
    elif 0xD4 <= first <= 0xD8:
        item.family, item.size = EXTENSION, 1 + (1 << (first - 0xD4))
    elif 0xD9 <= first <= 0xDB:
        item.family, width = STRING, 1 << (first - 0xD9)
    elif 0xDC <= first <= 0xDD:
        item.family, width = ARRAY, 2 << (first - 0xDC)
    elif 0xDE <= first:
        item.family, width = MAP, 2 << (first - 0xDE)
    else:
        return NULL
    if end - at < width:
        return NULL
    found = big_endian(at, width)
    at += width
    if item.family == INTEGER:
        item.whole = <int64_t> found
        if first == 0xD0:
            item.whole = <int8_t> found
        elif first == 0xD1:
            item.whole = <int16_t> found
        elif first == 0xD2:
            item.whole = <int32_t> found
        elif first == 0xCF and item.whole < 0:  # beyond 64 bits with a sign
            item.family = OTHER
        return at
    if item.family == FLOAT:
        if width == 8:
            memcpy(&item.real, &found, 8)
        else:
            word = <uint32_t> found
            item.real = single(word)
        return at
    item.size += found
    return at if item.size <= <uint64_t> (end - at) else NULL  # an item takes at least one byte


cdef inline double single(uint32_t word) noexcept nogil:
    cdef float number
    memcpy(&number, &word, 4)
    return number


cdef const char *skip_item(const char *at, const char *end, int depth) noexcept nogil:
    """Return the position after an item; NULL if it is malformed, or deep."""
    cdef Item item
    cdef uint64_t count, number
    at = read_head(at, end, &item)
    if at == NULL:
        return NULL
    if item.family != ARRAY and item.family != MAP:
        return at + item.size
    if depth == DEEPEST:
        return NULL
    count = item.size if item.family == ARRAY else 2 * item.size
    for number in range(count):
        at = skip_item(at, end, depth + 1)
        if at == NULL:
            return NULL
    return at


cdef bint read_timestamp(
    const char *at, const char *stop, Column *column, Py_ssize_t row
) noexcept nogil:
    """Read a timestamp after the length of an extension; return False if it is none."""
    cdef uint64_t found, nanos = 0
    cdef int64_t seconds
    if <uint8_t> at[0] != TIMESTAMP:
        return False
    if stop - at == 5:
        seconds = <int64_t> big_endian(at + 1, 4)
    elif stop - at == 9:
        found = big_endian(at + 1, 8)
        nanos, seconds = found >> 34, <int64_t> (found & ((1ULL << 34) - 1))
    elif stop - at == 13:
        nanos, seconds = big_endian(at + 1, 4), <int64_t> big_endian(at + 5, 8)
    else:
        return False
    if nanos % 1000 or nanos >= 1_000_000_000 or not keep_time(seconds, 1_000_000, column, row):
        return False
    if column.kind == MOMENT:
        (<int64_t *> column.values)[row] += nanos // 1000
    return True
