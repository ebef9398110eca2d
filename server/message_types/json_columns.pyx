# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Reading the fields of many JSON bodies into columns, in C: a row for each body.

A body is gone through once, from the front to its last brace. What is wanted is checked to be exactly
what its column holds; what is not wanted is passed over by its quotes and brackets. Of equal keys,
the first counts, as it does for filters. A body that is not as plain as that is left to others: its
row is without values, and named as odd.

Publishers write the same keys in the same order, mostly. So it is remembered which key came at which
place of the last body; only where another one comes, it is looked up.

Memory: bodies lie in one bytes object, whose NUL no step passes. That of a body may be followed by
another one: what has been read counts if it ends before the body does.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_Clear
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Realloc
from cpython.ref cimport Py_DECREF, PyObject
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint64_t
from libc.string cimport memcmp, memcpy, strncmp

from server.message_types.json_names cimport Name, NameTable, find_name, make_table
from server.message_types.json_tokens cimport (
    closing_quote, ends_token, hexadecimal, skip_space, skip_value, unescape
)


cdef extern from "Python.h":
    PyObject *PyUnicode_DecodeUTF8(const char *text, Py_ssize_t size, const char *errors)
    double PyOS_string_to_double(const char *text, char **end, PyObject *overflow) except? -1.0


cdef extern from *:
    """
    /* What stands in a text: 1 for bytes beyond ASCII, 2 for control characters. */
    static inline int look_through(const char *at, Py_ssize_t length) {
        int found = 0;
        Py_ssize_t place = 0;
        for (; length - place >= 8; place += 8) {
            uint64_t word;
            memcpy(&word, at + place, 8);
            if (word & EACH_BYTE(0x80))
                found |= 1;
            if ((word - EACH_BYTE(0x20)) & ~word & EACH_BYTE(0x80))
                found |= 2;
        }
        for (; place < length; place++) {
            unsigned char byte = (unsigned char)at[place];
            found |= (byte >= 0x80) | (byte < 0x20) << 1;
        }
        return found;
    }
    """
    int look_through(const char *at, Py_ssize_t length) noexcept nogil


cpdef enum Kind:
    WHOLE = 1             # an integer of `width` bytes
    REAL = 2              # a floating point number of `width` bytes
    TRUTH = 3             # true or false, as a byte
    TEXT = 4
    MOMENT = 5            # a text that is a time of RFC 3339, as microseconds since 1970
    DAY = 6               # a text that is a date of it, as days since 1970
    PART = 7              # whatever there is, as it stands: where it begins and ends
    OBJECT = 8            # an object of which members are wanted


cdef struct Column:
    int kind
    int width             # of a value in bytes
    int level             # of the members of an object
    int parent            # the column of the object that it is a member of, -1 if there is none
    char *values
    char *valid           # a byte for each row
    int32_t *offsets      # of texts: where each begins
    char *text
    Py_ssize_t size       # of all texts so far
    Py_ssize_t room
    int64_t seen          # the row in which its key was found last, counted from 1


cdef struct Guess:
    const char *text      # the key that was at this place of the last object
    Py_ssize_t length
    int number            # which column that is, -1 if none


cdef struct Level:
    NameTable table
    int first             # column, and behind the last one
    int stop
    Guess *guesses


cdef enum:
    GUESSED = 64          # places of an object that are remembered
    MOST_ESCAPED = 6      # bytes that stand for one of a name
    MOST_DIGITS = 18      # of an integer that certainly fits into 64 bits

cdef long long MOST_EXACT = 1LL << 53
cdef double[23] POWERS    # of ten, all that are exact
POWERS[:] = [10.0**exponent for exponent in range(23)]
cdef const char *BYTE_ORDER_MARK = b"\xef\xbb\xbf"
cdef int[13] DAYS_BEFORE
DAYS_BEFORE[:] = [0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334]
cdef int[13] DAYS_OF
DAYS_OF[:] = [0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]


cdef class ColumnReader:
    """See json_columns.pyi."""

    cdef Column *_columns
    cdef Name *_names
    cdef Level *_levels
    cdef char *_name        # room for a name without its escapes
    cdef Py_ssize_t _longest_name
    cdef int _count, _level_count
    cdef list _encoded      # names of the columns: `Name.text` points there

    def __cinit__(self, wanted):
        cdef int number
        levels = [(-1, wanted)]  # breadth first; the list grows while it is gone through
        plan = []
        for parent, level in levels:
            for one in level:
                if one.kind == OBJECT:
                    levels.append((len(plan), one.members))
                plan.append((one, parent, len(levels) - 1))
        self._encoded = [one.name for one, _, _ in plan]
        self._count, self._level_count = len(plan), len(levels)
        self._columns = <Column *> PyMem_Calloc(max(1, len(plan)), sizeof(Column))
        self._names = <Name *> PyMem_Calloc(max(1, len(plan)), sizeof(Name))
        self._levels = <Level *> PyMem_Calloc(len(levels), sizeof(Level))
        self._longest_name = max([1] + [len(name) for name in self._encoded])
        self._name = <char *> PyMem_Calloc(MOST_ESCAPED * self._longest_name, 1)
        if not (self._columns and self._names and self._levels and self._name):
            raise MemoryError
        for number, (one, parent, level) in enumerate(plan):
            self._names[number].text = PyBytes_AS_STRING(one.name)
            self._names[number].length = PyBytes_GET_SIZE(one.name)
            self._columns[number].kind = one.kind
            self._columns[number].width = one.width
            self._columns[number].parent = parent
            self._columns[number].level = level
        first = 0
        for number, (_, level) in enumerate(levels):
            self._levels[number].first = first
            first += len(level)
            self._levels[number].stop = first
            self._levels[number].guesses = <Guess *> PyMem_Calloc(GUESSED, sizeof(Guess))
            if not self._levels[number].guesses or not make_table(
                &self._levels[number].table, self._names, first - len(level), len(level)
            ):
                raise MemoryError

    def __dealloc__(self):
        cdef int number
        if self._levels:
            for number in range(self._level_count):
                PyMem_Free(self._levels[number].table.places)
                PyMem_Free(self._levels[number].guesses)
        if self._columns:
            for number in range(self._count):
                PyMem_Free(self._columns[number].text)
        PyMem_Free(self._levels)
        PyMem_Free(self._columns)
        PyMem_Free(self._names)
        PyMem_Free(self._name)

    def read(self, bytes data not None, const int64_t[:] starts, const int64_t[:] ends):
        cdef Py_ssize_t row, count = starts.shape[0]
        cdef const char *base = PyBytes_AS_STRING(data)
        cdef int number
        cdef Column *column
        found, odd = [], []
        if ends.shape[0] != count:
            raise ValueError("as many bodies begin as end")
        for row in range(count):
            if not 0 <= starts[row] <= ends[row] <= PyBytes_GET_SIZE(data):
                raise ValueError("a body lies outside the data")
        for number in range(self._count):
            column = &self._columns[number]
            valid, values, offsets = bytearray(count), bytearray(count * column.width), None
            if column.kind == TEXT:
                offsets = bytearray((count + 1) * sizeof(int32_t))
                column.offsets = <int32_t *> PyByteArray_AS_STRING(offsets)
            column.valid = PyByteArray_AS_STRING(valid)
            column.values = PyByteArray_AS_STRING(values)
            column.size = column.seen = 0
            found.append([valid, values, offsets])
        for number in range(self._level_count):  # they point into data that may be gone
            for row in range(GUESSED):
                self._levels[number].guesses[row].text = NULL
        for row in range(count):
            if not self._read_body(base + starts[row], base + ends[row], row, base):
                self._forget(row)
                odd.append(row)
            for number in range(self._count):
                column = &self._columns[number]
                if column.kind == TEXT:
                    column.offsets[row + 1] = <int32_t> column.size
        for number in range(self._count):
            column = &self._columns[number]
            if column.kind == TEXT:
                found[number][1] = PyBytes_FromStringAndSize(column.text, column.size)
        return [tuple(one) for one in found], odd

    cdef void _forget(self, Py_ssize_t row) noexcept:
        """Leave a row without values."""
        cdef int number
        for number in range(self._count):
            self._columns[number].valid[row] = 0
            if self._columns[number].kind == TEXT:
                self._columns[number].size = self._columns[number].offsets[row]

    cdef bint _read_body(
        self, const char *at, const char *end, Py_ssize_t row, const char *base
    ) except -1:
        """Read a body; whether it was plain."""
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
        """Read an object from its brace on; what follows it, NULL if the body is odd."""
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
            guess = &level.guesses[place] if place < GUESSED else NULL
            place += 1
            # The quote behind the key is compared, too.
            if (
                guess != NULL
                and guess.text != NULL
                and guess.length < end - name
                and memcmp(guess.text, name, guess.length + 1) == 0
            ):
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
                    number = find_name(&level.table, self._names, name, length)
                    if guess != NULL:
                        guess.text, guess.length, guess.number = name, length, number
            at = skip_space(at + 1)
            if at >= end or at[0] != c':':
                return NULL
            at = skip_space(at + 1)
            if at >= end:
                return NULL
            if number < 0 or self._columns[number].seen == row + 1:
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

    cdef int _find_escaped(self, Level *level, const char *name, Py_ssize_t length) noexcept:
        if length > MOST_ESCAPED * self._longest_name:
            return -1
        length = unescape(name, name + length, self._name)
        return find_name(&level.table, self._names, self._name, length)

    cdef const char *_read_value(
        self, const char *at, const char *end, Column *column, Py_ssize_t row, const char *base
    ) except? NULL:
        """Read the value of a column; what follows it, NULL if it is odd."""
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
            return stop if keep_text(at + 1, stop - 1, escapes, column) else NULL
        if column.kind == MOMENT:
            return stop if read_moment(at + 1, stop - 1, column, row) else NULL
        return stop if read_day(at + 1, stop - 1, column, row) else NULL


cdef const char *read_whole(
    const char *at, const char *end, Column *column, Py_ssize_t row
) noexcept:
    cdef bint negative = at[0] == c'-'
    cdef const char *first
    cdef long long value = 0
    cdef long long limit
    at += negative
    first = at
    while c'0' <= at[0] <= c'9' and at - first <= MOST_DIGITS:
        value = value * 10 + (at[0] - c'0')
        at += 1
    if at >= end or at == first or at - first > MOST_DIGITS or not ends_token(at[0]):
        return NULL
    if first[0] == c'0' and at - first > 1:
        return NULL
    value = -value if negative else value
    if column.width < 8:
        limit = 1LL << (8 * column.width - 1)
        if not -limit <= value < limit:
            return NULL
    if column.width == 8:
        (<int64_t *> column.values)[row] = value
    elif column.width == 4:
        (<int32_t *> column.values)[row] = <int32_t> value
    elif column.width == 2:
        (<int16_t *> column.values)[row] = <int16_t> value
    else:
        (<int8_t *> column.values)[row] = <int8_t> value
    return at


cdef const char *read_real(
    const char *at, const char *end, Column *column, Py_ssize_t row
) except? NULL:
    cdef const char *start = at
    cdef const char *first
    cdef char *behind
    cdef long long digits = 0
    cdef int count = 0, decimals = 0
    cdef bint negative = at[0] == c'-', is_exact = True
    cdef double value
    at += negative
    first = at
    while c'0' <= at[0] <= c'9':
        if count <= MOST_DIGITS:
            digits = digits * 10 + (at[0] - c'0')
        count += 1
        at += 1
    if at == first or (first[0] == c'0' and at - first > 1):
        return NULL
    if at[0] == c'.':
        at += 1
        first = at
        while c'0' <= at[0] <= c'9':
            if count <= MOST_DIGITS:
                digits = digits * 10 + (at[0] - c'0')
            count += 1
            decimals += 1
            at += 1
        if at == first:
            return NULL
    if at[0] == c'e' or at[0] == c'E':
        is_exact = False
        at += 1
        if at[0] == c'+' or at[0] == c'-':
            at += 1
        first = at
        while c'0' <= at[0] <= c'9':
            at += 1
        if at == first:
            return NULL
    if at >= end or not ends_token(at[0]):
        return NULL
    if is_exact and count <= MOST_DIGITS and digits <= MOST_EXACT and decimals <= 22:
        # Both are exact, so that there is one rounding only (Clinger).
        value = digits / POWERS[decimals] if decimals else <double> digits
        if negative and (value or at - start > 2):  # -0.0 has a sign, the integer -0 has none
            value = -value
    else:
        value = PyOS_string_to_double(start, &behind, NULL)  # infinite where it is too large
        if behind != at or value - value != 0:
            return NULL
    if column.width == 8:
        (<double *> column.values)[row] = value
    else:
        (<float *> column.values)[row] = <float> value
    return at


cdef bint keep_text(const char *at, const char *stop, bint escapes, Column *column) except -1:
    """Append a text to its column; False if it is not well-formed."""
    cdef Py_ssize_t length = stop - at
    cdef int found = look_through(at, length)
    cdef char *grown
    cdef PyObject *decoded
    if found & 2 or (escapes and not are_plain(at, stop)):
        return False
    if found:
        decoded = PyUnicode_DecodeUTF8(at, length, NULL)
        if decoded == NULL:
            PyErr_Clear()
            return False
        Py_DECREF(<object> decoded)
    if column.size + length > column.room:
        if column.size + length > 0x7FFFFFFF:
            raise OverflowError("the texts of a column have more than 2 GB together")
        column.room = 2 * (column.size + length) + 1024
        grown = <char *> PyMem_Realloc(column.text, column.room)
        if grown == NULL:
            raise MemoryError
        column.text = grown
    if escapes:
        length = unescape(at, stop, column.text + column.size)
    else:
        memcpy(column.text + column.size, at, length)
    column.size += length
    return True


cdef bint are_plain(const char *at, const char *stop) noexcept:
    """Whether all escapes of a text are those that JSON has, and characters that there are."""
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


cdef inline int two_digits(const char *at) noexcept:
    """The number that two digits are, or one below zero."""
    if c'0' <= at[0] <= c'9' and c'0' <= at[1] <= c'9':
        return (at[0] - c'0') * 10 + (at[1] - c'0')
    return -10_000


cdef int64_t days_of(const char *at) noexcept:
    """Days from 1970 to a date of ten characters; one far below zero if that is none."""
    cdef int year = two_digits(at) * 100 + two_digits(at + 2)
    cdef int month = two_digits(at + 5), day = two_digits(at + 8)
    cdef bint is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if year < 1 or at[4] != c'-' or at[7] != c'-' or not 1 <= month <= 12:
        return -10_000_000
    if not 1 <= day <= DAYS_OF[month] + (is_leap and month == 2):
        return -10_000_000
    day += DAYS_BEFORE[month] + (is_leap and month > 2)
    year -= 1
    return year * 365 + year // 4 - year // 100 + year // 400 + day - 719_163


cdef bint read_day(const char *at, const char *stop, Column *column, Py_ssize_t row) noexcept:
    cdef int64_t days
    if stop - at != 10:
        return False
    days = days_of(at)
    (<int32_t *> column.values)[row] = <int32_t> days
    return days > -10_000_000


cdef bint read_moment(const char *at, const char *stop, Column *column, Py_ssize_t row) noexcept:
    cdef int64_t days, micros = 0
    cdef int hour, minute, second, digits = 0, offset = 0
    if stop - at < 19:
        return False
    days = days_of(at)
    hour, minute, second = two_digits(at + 11), two_digits(at + 14), two_digits(at + 17)
    if days == -10_000_000 or at[10] != c'T' or at[13] != c':' or at[16] != c':':
        return False
    if not (0 <= hour <= 23 and 0 <= minute <= 59 and 0 <= second <= 59):
        return False
    at += 19
    if at < stop and at[0] == c'.':
        at += 1
        while at < stop and c'0' <= at[0] <= c'9':
            micros = micros * 10 + (at[0] - c'0')
            digits += 1
            if digits > 6:
                return False
            at += 1
        if digits == 0:
            return False
        while digits < 6:
            micros *= 10
            digits += 1
    if at < stop and at[0] == c'Z':
        at += 1
    elif stop - at == 6 and (at[0] == c'+' or at[0] == c'-') and at[3] == c':':
        offset = two_digits(at + 4)
        if not (0 <= two_digits(at + 1) <= 23 and 0 <= offset <= 59):
            return False
        offset += 60 * two_digits(at + 1)
        if at[0] == c'-':
            offset = -offset
        at += 6
    if at != stop:
        return False
    (<int64_t *> column.values)[row] = (
        ((days * 24 + hour) * 60 + minute - offset) * 60 + second
    ) * 1_000_000 + micros
    return True
