# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Reads the fields of many JSON bodies into columns, in C; see columns.pyx.

A body is read to its last brace. Unwanted values are skipped by their quotes and brackets. Of equal
keys the first counts, as it does for filters; a body with equal keys within an array is odd, since
there the last one counts.
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int64_t
from libc.string cimport memcpy, strncmp

from pipeline.native.columns cimport (
    ARRAY, DAY, MOMENT, OBJECT, PART, REAL, TEXT, TRUTH, WHOLE, Column, ColumnReader, Guess, Level,
    find_column, guess_at, is_guess, is_text, keep_real, keep_whole, look_through, read_day,
    read_moment, room_for, scan_real, scan_whole
)
from server.message_types.json_names cimport find_name
from server.message_types.json_tokens cimport (
    closing_quote, ends_token, hexadecimal, skip_space, skip_value, unescape
)


cdef enum:
    MAX_ESCAPED = 6      # bytes that stand for one of a name

cdef const char *BYTE_ORDER_MARK = b"\xef\xbb\xbf"


cdef class JsonColumnReader(ColumnReader):
    """See json_columns.pyi."""

    cdef char *_name      # room for a name without its escapes

    def __cinit__(self, wanted):
        self._name = <char *> PyMem_Calloc(MAX_ESCAPED * self._longest_name, 1)
        if not self._name:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self._name)

    cdef bint _read_body(
        self, const char *at, const char *end, Py_ssize_t row, const char *base
    ) except -1:
        """Read a body; return whether it was plain."""
        if at == end:
            return True
        if end - at >= 3 and strncmp(at, BYTE_ORDER_MARK, 3) == 0:
            at += 3
        at = skip_space(at)
        if at >= end or at[0] != c'{':
            return False
        at = self._read_members(at, end, 0, row, base)
        return at != NULL and skip_space(at) >= end

    cdef const char *_read_members(
        self, const char *at, const char *end, int number_of_level, Py_ssize_t row, const char *base
    ) except? NULL:
        """Read an object from its brace on; return the position after it, NULL if it is odd."""
        cdef Level *level = &self._levels[number_of_level]
        cdef Guess *guess
        cdef const char *name
        cdef Py_ssize_t length
        cdef int number, place = 0
        cdef bint escapes
        at = skip_space(at + 1)
        if at < end and at[0] == c'}':
            return at + 1
        while at < end and at[0] == c'"':
            name = at + 1
            guess = guess_at(level, place)
            place += 1
            if is_guess(guess, name, end):
                number = guess.number
                at = name + guess.length
            else:
                at = closing_quote(name, end, &escapes)
                if at == NULL:
                    return NULL
                length = at - name
                if escapes:
                    number = self._find_escaped(level, name, length)
                else:
                    number = find_column(level, self._names, guess, name, length)
            at = skip_space(at + 1)
            if at >= end or at[0] != c':':
                return NULL
            at = skip_space(at + 1)
            if at >= end:
                return NULL
            if number >= 0 and self._columns[number].seen == row + 1:
                if self._columns[number].array >= 0:
                    return NULL
                number = -1
            if number < 0:
                at = skip_value(at, end, &escapes)
            else:
                self._columns[number].seen = row + 1
                at = self._read_value(at, end, &self._columns[number], row, base)
            if at == NULL:
                return NULL
            at = skip_space(at)
            if at >= end:
                return NULL
            if at[0] == c'}':
                return at + 1
            if at[0] != c',':
                return NULL
            at = skip_space(at + 1)
        return NULL

    cdef const char *_read_elements(
        self, const char *at, const char *end, Column *array, const char *base
    ) except? NULL:
        """Read an array from its bracket on; return the position after it, NULL if it is odd."""
        cdef int number = <int> (array - self._columns)
        cdef Column *element = &self._columns[self._levels[array.level].first]
        at = skip_space(at + 1)
        if at < end and at[0] == c']':
            return at + 1
        while at < end:
            self._add_element(array)
            at = self._read_value(at, end, element, array.size - 1, base)
            if at == NULL:
                return NULL
            self._end_row(number, array.size - 1)
            at = skip_space(at)
            if at >= end:
                return NULL
            if at[0] == c']':
                return at + 1
            if at[0] != c',':
                return NULL
            at = skip_space(at + 1)
        return NULL

    cdef int _find_escaped(self, Level *level, const char *name, Py_ssize_t length) noexcept:
        if length > MAX_ESCAPED * self._longest_name:
            return -1
        length = unescape(name, name + length, self._name)
        return find_name(&level.table, self._names, self._name, length)

    cdef const char *_read_value(
        self, const char *at, const char *end, Column *column, Py_ssize_t row, const char *base
    ) except? NULL:
        """Read the value of a column; return the position after it, NULL if it is odd."""
        cdef const char *stop
        cdef bint escapes
        if at[0] == c'n':
            if end - at >= 4 and strncmp(at, b"null", 4) == 0:
                return at + 4
            return NULL
        column.valid[row] = 1
        if column.kind == WHOLE:
            return read_whole(at, end, column, row)
        if column.kind == REAL:
            return read_real(at, end, column, row)
        if column.kind == TRUTH:
            if end - at >= 4 and strncmp(at, b"true", 4) == 0:
                column.values[row] = 1
                return at + 4
            if end - at >= 5 and strncmp(at, b"false", 5) == 0:
                return at + 5
            return NULL
        if column.kind == OBJECT:
            if at[0] != c'{':
                return NULL
            return self._read_members(at, end, column.level, row, base)
        if column.kind == ARRAY:
            return self._read_elements(at, end, column, base) if at[0] == c'[' else NULL
        stop = skip_value(at, end, &escapes)
        if stop == NULL or stop > end:
            return NULL
        if column.kind == PART:
            (<int64_t *> column.values)[2 * row] = at - base
            (<int64_t *> column.values)[2 * row + 1] = stop - base
            return stop
        if at[0] != c'"':
            return NULL
        if column.kind == TEXT:
            return stop if keep_string(at + 1, stop - 1, escapes, column) else NULL
        if column.kind == MOMENT:
            return stop if read_moment(at + 1, stop - 1, column, row) else NULL
        return stop if read_day(at + 1, stop - 1, column, row) else NULL


cdef const char *read_whole(
    const char *at, const char *end, Column *column, Py_ssize_t row
) noexcept:
    cdef long long value
    at = scan_whole(at, &value)
    if at == NULL or at >= end or not ends_token(at[0]):
        return NULL
    return at if keep_whole(value, column, row) else NULL


cdef const char *read_real(
    const char *at, const char *end, Column *column, Py_ssize_t row
) except? NULL:
    cdef double value
    at = scan_real(at, &value)
    if at == NULL or at >= end or not ends_token(at[0]):
        return NULL
    keep_real(value, column, row)
    return at


cdef bint keep_string(const char *at, const char *stop, bint escapes, Column *column) except -1:
    """Append a text to its column; return False if it is not well-formed."""
    cdef Py_ssize_t length = stop - at
    cdef int found = look_through(at, length)
    cdef char *room
    if found & 2 or (escapes and not are_plain(at, stop)) or not is_text(at, length, found):
        return False
    room = room_for(column, length)
    if escapes:
        length = unescape(at, stop, room)
    else:
        memcpy(room, at, length)
    column.size += length
    return True


cdef bint are_plain(const char *at, const char *stop) noexcept:
    """Return whether all escapes of a text are valid in JSON, and denote existing characters."""
    cdef int code
    while at < stop:
        if at[0] != c'\\':
            at += 1
            continue
        at += 1
        if at[0] == c'u':
            code = hexadecimal(at + 1, stop)
            at += 5
            if code < 0 or 0xDC00 <= code <= 0xDFFF:
                return False
            if 0xD800 <= code <= 0xDBFF:
                if stop - at < 6 or at[0] != c'\\' or at[1] != c'u':
                    return False
                if not 0xDC00 <= hexadecimal(at + 2, stop) <= 0xDFFF:
                    return False
                at += 6
        elif at[0] in b'"\\/bfnrt':
            at += 1
        else:
            return False
    return True
