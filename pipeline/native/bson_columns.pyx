# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Reads the fields of many BSON documents into columns, in C; see columns.pyx.

A document is read to its end, and its contents must be well-formed. Odd are a wanted name that
occurs twice, and values that need a conversion, such as a number in place of a text.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy

from pipeline.native.columns cimport (
    DAY, MOMENT, OBJECT, REAL, TEXT, TRUTH, WHOLE, Column, ColumnReader, Guess, Level, find_column,
    guess_at, is_guess, keep_real, keep_text, keep_time, keep_whole, read_day, read_moment, room_for
)


cdef enum Element:
    DOUBLE = 0x01
    STRING = 0x02
    DOCUMENT = 0x03
    ARRAY = 0x04
    BINARY = 0x05
    UNDEFINED = 0x06
    OBJECT_ID = 0x07
    BOOLEAN = 0x08
    DATE = 0x09
    NIL = 0x0A
    CODE = 0x0D
    SYMBOL = 0x0E
    INT32 = 0x10
    TIMESTAMP = 0x11
    INT64 = 0x12
    DECIMAL = 0x13

cdef enum:
    DEEPEST = 64          # maximum nesting depth of documents that are skipped

cdef const char *DIGITS = b"0123456789abcdef"


cdef class BsonColumnReader(ColumnReader):
    """See bson_columns.pyi."""

    cdef int64_t _unit

    def __init__(self, wanted, int64_t unit):
        self._unit = unit

    cdef bint _read_body(
        self, const char *at, const char *end, Py_ssize_t row, const char *base
    ) except -1:
        return self._read_document(at, end, &self._levels[0], row)

    cdef bint _read_document(
        self, const char *at, const char *end, Level *level, Py_ssize_t row
    ) except -1:
        """Read a document that ends at its stated length; return whether it was plain."""
        cdef const char *name
        cdef const char *stop
        cdef Guess *guess
        cdef Column *column
        cdef int element, number, place = 0
        if not is_document(at, end):
            return False
        at += 4
        end -= 1
        while at < end:
            element = <uint8_t> at[0]
            name = at + 1
            guess = guess_at(level, place)
            place += 1
            if is_guess(guess, name, end):
                number = guess.number
                at = name + guess.length + 1
            else:
                at = <const char *> memchr(name, 0, end - name)
                if at == NULL:
                    return False
                number = find_column(level, self._names, guess, name, at - name)
                at += 1
            stop = end_of(element, at, end)
            if stop == NULL:
                return False
            if number < 0:
                if not is_well_formed(element, at, stop, 0):
                    return False
            else:
                column = &self._columns[number]
                if column.seen == row + 1:
                    return False
                column.seen = row + 1
                if element != NIL and element != UNDEFINED:
                    column.valid[row] = 1
                    if not self._read_value(element, at, stop, column, row):
                        return False
            at = stop
        return True

    cdef bint _read_value(
        self, int element, const char *at, const char *stop, Column *column, Py_ssize_t row
    ) except -1:
        """Read the value of a column; return whether it was plain."""
        cdef bint is_whole = element == INT32 or element == INT64 or element == DATE
        cdef int64_t whole = 0
        if column.kind == OBJECT:
            if element != DOCUMENT:
                return False
            return self._read_document(at, stop, &self._levels[column.level], row)
        if is_whole:
            whole = int32_at(at) if element == INT32 else <int64_t> little_endian(at, 8)
        if column.kind == TEXT:
            if element == OBJECT_ID:
                keep_digits(at, stop, column)
                return True
            return element == STRING and keep_text(at + 4, stop - at - 5, column)
        if column.kind == WHOLE:
            return is_whole and keep_whole(whole, column, row)
        if column.kind == REAL:
            if not is_whole and element != DOUBLE:
                return False
            keep_real(<double> whole if is_whole else double_at(at), column, row)
            return True
        if column.kind == TRUTH:
            column.values[row] = at[0] == 1
            return element == BOOLEAN and (at[0] == 0 or at[0] == 1)
        if is_whole:
            return keep_time(whole, self._unit, column, row)
        if element != STRING:
            return False
        if column.kind == MOMENT:
            return read_moment(at + 4, stop - 1, column, row)
        return read_day(at + 4, stop - 1, column, row)


cdef inline uint64_t little_endian(const char *at, int width) noexcept nogil:
    cdef uint64_t number = 0
    while width > 0:
        width -= 1
        number = number << 8 | <uint8_t> at[width]
    return number


cdef inline int32_t int32_at(const char *at) noexcept nogil:
    return <int32_t> <uint32_t> little_endian(at, 4)


cdef inline double double_at(const char *at) noexcept nogil:
    cdef uint64_t found = little_endian(at, 8)
    cdef double number
    memcpy(&number, &found, 8)
    return number


cdef int keep_digits(const char *at, const char *stop, Column *column) except -1:
    """Append bytes as hexadecimal digits."""
    cdef char *room = room_for(column, 2 * (stop - at))
    while at < stop:
        room[0] = DIGITS[<uint8_t> at[0] >> 4]
        room[1] = DIGITS[<uint8_t> at[0] & 15]
        room += 2
        column.size += 2
        at += 1
    return 0


cdef inline bint is_document(const char *at, const char *end) noexcept nogil:
    return end - at >= 5 and int32_at(at) == end - at and (end - 1)[0] == 0


cdef const char *end_of(int element, const char *at, const char *end) noexcept nogil:
    """Return the end of a value; NULL if not within its document, or if it is of a rare kind."""
    cdef Py_ssize_t size
    if element == UNDEFINED or element == NIL:
        size = 0
    elif element == BOOLEAN:
        size = 1
    elif element == INT32:
        size = 4
    elif element == DOUBLE or element == DATE or element == INT64 or element == TIMESTAMP:
        size = 8
    elif element == OBJECT_ID:
        size = 12
    elif element == DECIMAL:
        size = 16
    elif end - at < 4 or int32_at(at) < 0:
        return NULL
    elif element == DOCUMENT or element == ARRAY:
        size = int32_at(at)
    elif element == BINARY:
        size = 5 + <Py_ssize_t> int32_at(at)
    elif element == STRING or element == CODE or element == SYMBOL:
        size = 4 + <Py_ssize_t> int32_at(at)
        if size < 5 or end - at < size or at[size - 1] != 0:
            return NULL
    else:
        return NULL
    return at + size if size <= end - at else NULL


cdef bint is_well_formed(int element, const char *at, const char *stop, int depth) noexcept nogil:
    """Return whether the contents of a value are well-formed, and not deep."""
    cdef const char *end
    if element != DOCUMENT and element != ARRAY:
        return True
    if depth == DEEPEST or not is_document(at, stop):
        return False
    at += 4
    stop -= 1
    while at < stop:
        element = <uint8_t> at[0]
        at = <const char *> memchr(at + 1, 0, stop - at - 1)
        if at == NULL:
            return False
        at += 1
        end = end_of(element, at, stop)
        if end == NULL or not is_well_formed(element, at, end, depth + 1):
            return False
        at = end
    return True
