# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The shared part of column readers: the columns, and the storage of single values.

A value is stored only if it has exactly the type of its column, in the form that most publishers
use. For any other value the caller reads the body again, with a reader that knows every form.

Memory: bodies are in one bytes object, and no step over digits passes its final NUL. Such a step
may run into the next body: the value read is valid if it ends before its own body does.
"""

from cpython.exc cimport PyErr_Clear
from cpython.mem cimport PyMem_Realloc
from cpython.ref cimport Py_DECREF, PyObject
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint64_t
from libc.string cimport memcmp, memcpy

from server.message_types.json_names cimport Name, NameTable, find_name


cdef extern from "Python.h":
    PyObject *PyUnicode_DecodeUTF8(const char *text, Py_ssize_t size, const char *errors)
    double PyOS_string_to_double(const char *text, char **end, PyObject *overflow) except? -1.0


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #define EVERY_BYTE(byte) (UINT64_C(0x0101010101010101) * (byte))

    /* What stands in a text: 1 for bytes beyond ASCII, 2 for control characters. */
    static inline int look_through(const char *at, Py_ssize_t length) {
        int found = 0;
        Py_ssize_t place = 0;
        for (; length - place >= 8; place += 8) {
            uint64_t word;
            memcpy(&word, at + place, 8);
            if (word & EVERY_BYTE(0x80))
                found |= 1;
            if ((word - EVERY_BYTE(0x20)) & ~word & EVERY_BYTE(0x80))
                found |= 2;
        }
        for (; place < length; place++) {
            unsigned char byte = (unsigned char)at[place];
            found |= (byte >= 0x80) | (byte < 0x20) << 1;
        }
        return found;
    }

    /* Powers of ten, all that are exact. */
    static const double POWERS[23] = {
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
        1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    static const int DAYS_BEFORE[13] = {0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    static const int DAYS_OF[13] = {0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    """
    int look_through(const char *at, Py_ssize_t length) noexcept nogil
    const double[23] POWERS
    const int[13] DAYS_BEFORE
    const int[13] DAYS_OF


cpdef enum Kind:
    WHOLE = 1             # an integer of `width` bytes
    REAL = 2              # a floating point number of `width` bytes
    TRUTH = 3             # true or false, as a byte
    TEXT = 4
    MOMENT = 5            # a time, as microseconds since 1970
    DAY = 6               # a date, as days since 1970
    PART = 7              # any value, verbatim: the offsets of its begin and end
    OBJECT = 8            # an object of which members are wanted
    ARRAY = 9             # an array, of which all elements are wanted


cdef struct Column:
    int kind
    int width             # of a value in bytes
    int level             # of the members of an object, or of the element of an array
    int array             # the column of the array whose elements are its rows, -1 if there is none
    char *values
    char *valid           # a byte for each row
    int32_t *offsets      # of texts and arrays: where each begins
    char *text
    Py_ssize_t size       # of all texts, or the number of all elements, so far
    Py_ssize_t room
    Py_ssize_t dropped    # the number of elements before those of the last row were dropped
    int64_t seen          # the row in which its key was found last, counted from 1


cdef struct Guess:
    const char *text      # the key that was at this place of the last object
    Py_ssize_t length
    int number            # index of the column, -1 if there is none


cdef struct Level:
    NameTable table
    int first             # column, and behind the last one
    int stop
    Guess *guesses


cdef enum:
    GUESSED = 64          # places of an object with a cached key
    MAX_DIGITS = 18      # of an integer that certainly fits into 64 bits
    NO_DAY = -10_000_000  # not a date
    FIRST_DAY = -719_162  # of the year 1
    LAST_DAY = 2_932_896  # of the year 9999
    FIRST_ROOM = 1024     # elements of arrays, to begin with
    MAX_ELEMENTS = 0x7FFFFFFF

cdef extern from *:
    """
    #define DAY_LONG INT64_C(86400000000)
    """
    const int64_t DAY_LONG  # microseconds


cdef class ColumnReader:
    cdef Column *_columns
    cdef Name *_names
    cdef Level *_levels
    cdef Py_ssize_t _longest_name
    cdef int _count, _level_count
    cdef list _encoded    # names of the columns: `Name.text` points there
    cdef list _found      # the buffers of each column: valid, values, offsets

    cdef int _add_element(self, Column *array) except -1
    cdef void _end_row(self, int array, Py_ssize_t row) noexcept
    cdef int _resize(self, int number, Py_ssize_t rows) except -1
    cdef void _forget(self, Py_ssize_t row) noexcept
    cdef bint _read_body(
        self, const char *at, const char *end, Py_ssize_t row, const char *base
    ) except -1


cdef inline Guess *guess_at(Level *level, int place) noexcept nogil:
    """Return the cached key of a place of an object; NULL if the place is beyond GUESSED."""
    return &level.guesses[place] if place < GUESSED else NULL


cdef inline bint is_guess(const Guess *guess, const char *name, const char *end) noexcept nogil:
    """Return whether the key at `name` is the cached one; the byte after it is compared, too."""
    return (
        guess != NULL
        and guess.text != NULL
        and guess.length < end - name
        and memcmp(guess.text, name, guess.length + 1) == 0
    )


cdef inline int find_column(
    Level *level, const Name *names, Guess *guess, const char *name, Py_ssize_t length
) noexcept nogil:
    """Look up the column of a key, -1 if it is not wanted, and cache it."""
    cdef int number = find_name(&level.table, names, name, length)
    if guess != NULL:
        guess.text, guess.length, guess.number = name, length, number
    return number


cdef inline const char *scan_whole(const char *at, long long *value) noexcept nogil:
    """Return the position after an integer; NULL if there is none, or it exceeds MAX_DIGITS."""
    cdef bint negative = at[0] == c'-'
    cdef const char *first
    cdef long long found = 0
    at += negative
    first = at
    while c'0' <= at[0] <= c'9' and at - first <= MAX_DIGITS:
        found = found * 10 + (at[0] - c'0')
        at += 1
    if at == first or at - first > MAX_DIGITS or (first[0] == c'0' and at - first > 1):
        return NULL
    value[0] = -found if negative else found
    return at


cdef inline bint keep_whole(long long value, Column *column, Py_ssize_t row) noexcept nogil:
    """Store an integer; return False if it is too large."""
    cdef long long limit
    if column.width < 8:
        limit = 1LL << (8 * column.width - 1)
        if not -limit <= value < limit:
            return False
    if column.width == 8:
        (<int64_t *> column.values)[row] = value
    elif column.width == 4:
        (<int32_t *> column.values)[row] = <int32_t> value
    elif column.width == 2:
        (<int16_t *> column.values)[row] = <int16_t> value
    else:
        (<int8_t *> column.values)[row] = <int8_t> value
    return True


cdef inline const char *scan_real(const char *at, double *value) except? NULL:
    """Return the position after a number; NULL if there is none, or it exceeds a double's range."""
    cdef const char *start = at
    cdef const char *first
    cdef char *behind
    cdef long long digits = 0
    cdef int count = 0, decimals = 0
    cdef bint negative = at[0] == c'-', is_exact = True
    at += negative
    first = at
    while c'0' <= at[0] <= c'9':
        if count <= MAX_DIGITS:
            digits = digits * 10 + (at[0] - c'0')
        count += 1
        at += 1
    if at == first or (first[0] == c'0' and at - first > 1):
        return NULL
    if at[0] == c'.':
        at += 1
        first = at
        while c'0' <= at[0] <= c'9':
            if count <= MAX_DIGITS:
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
    if is_exact and count <= MAX_DIGITS and digits <= 1LL << 53 and decimals <= 22:
        # Both operands are exact, so there is only one rounding (Clinger).
        value[0] = digits / POWERS[decimals] if decimals else <double> digits
        if negative and (value[0] or at - start > 2):  # -0.0 has a sign, the integer -0 has none
            value[0] = -value[0]
        return at
    value[0] = PyOS_string_to_double(start, &behind, NULL)  # infinite where it is too large
    return at if behind == at and value[0] - value[0] == 0 else NULL


cdef inline void keep_real(double value, Column *column, Py_ssize_t row) noexcept nogil:
    if column.width == 8:
        (<double *> column.values)[row] = value
    else:
        (<float *> column.values)[row] = <float> value


cdef inline bint is_text(const char *at, Py_ssize_t length, int found) except -1:
    """Return whether bytes are UTF-8. `found`: the result of `look_through` for them."""
    cdef PyObject *decoded
    if not found & 1:
        return True
    decoded = PyUnicode_DecodeUTF8(at, length, NULL)
    if decoded == NULL:
        PyErr_Clear()
        return False
    Py_DECREF(<object> decoded)
    return True


cdef inline char *room_for(Column *column, Py_ssize_t length) except NULL:
    """Return the position of the next text of a column; grow its buffer if necessary."""
    cdef char *grown
    if column.size + length >= column.room:
        if column.size + length > 0x7FFFFFFF:
            raise OverflowError("the texts of a column have more than 2 GB together")
        column.room = 2 * (column.size + length) + 1024
        grown = <char *> PyMem_Realloc(column.text, column.room)
        if grown == NULL:
            raise MemoryError
        column.text = grown
    return column.text + column.size


cdef inline bint keep_text(const char *at, Py_ssize_t length, Column *column) except -1:
    """Append a text to its column; return False if it is invalid."""
    if not is_text(at, length, look_through(at, length)):
        return False
    memcpy(room_for(column, length), at, length)
    column.size += length
    return True


cdef inline int two_digits(const char *at) noexcept nogil:
    """Return the number of two digits, or one below zero."""
    if c'0' <= at[0] <= c'9' and c'0' <= at[1] <= c'9':
        return (at[0] - c'0') * 10 + (at[1] - c'0')
    return -10_000


cdef inline int64_t days_since_1970(int year, int month, int day) noexcept nogil:
    """Return the days from 1970 to a date; NO_DAY if the date does not exist."""
    cdef bint is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if year < 1 or not 1 <= month <= 12 or not 1 <= day <= DAYS_OF[month] + (is_leap and month == 2):
        return NO_DAY
    day += DAYS_BEFORE[month] + (is_leap and month > 2)
    year -= 1
    return year * 365 + year // 4 - year // 100 + year // 400 + day - 719_163


cdef inline int64_t day_of(const char *at) noexcept nogil:
    """Return the days from 1970 to a date of ten characters; NO_DAY if it is no date."""
    if at[4] != c'-' or at[7] != c'-':
        return NO_DAY
    return days_since_1970(
        two_digits(at) * 100 + two_digits(at + 2), two_digits(at + 5), two_digits(at + 8)
    )


cdef inline const char *scan_clock(
    const char *at, const char *stop, int64_t days, int64_t *moment
) noexcept nogil:
    """Return the position after a time of day, microseconds at most; NULL if there is none.

    Args:
        moment: set to the microseconds from 1970 to that time of the day.
    """
    cdef int hour, minute, second, digits = 0
    cdef int64_t micros = 0
    if stop - at < 8 or at[2] != c':' or at[5] != c':':
        return NULL
    hour, minute, second = two_digits(at), two_digits(at + 3), two_digits(at + 6)
    if not (0 <= hour <= 23 and 0 <= minute <= 59 and 0 <= second <= 59):
        return NULL
    at += 8
    if at < stop and at[0] == c'.':
        at += 1
        while at < stop and c'0' <= at[0] <= c'9':
            micros = micros * 10 + (at[0] - c'0')
            digits += 1
            if digits > 6:
                return NULL
            at += 1
        if digits == 0:
            return NULL
        while digits < 6:
            micros *= 10
            digits += 1
    moment[0] = (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + micros
    return at


cdef inline bint keep_day(int64_t days, Column *column, Py_ssize_t row) noexcept nogil:
    """Store a date; return False if it is invalid."""
    (<int32_t *> column.values)[row] = <int32_t> days
    return days != NO_DAY


cdef inline bint keep_time(int64_t number, int64_t unit, Column *column, Py_ssize_t row) noexcept nogil:
    """Store a time, or its date; return False if it is not between the years 1 and 9999.

    Args:
        number: counts since 1970.
        unit: unit of the number in microseconds, 0 if numbers are no times.
    """
    cdef int64_t days
    if unit == 0 or not FIRST_DAY * (DAY_LONG // unit) <= number < (LAST_DAY + 1) * (DAY_LONG // unit):
        return False
    if column.kind == DAY:
        days = number // (DAY_LONG // unit)
        return keep_day(days - (days * (DAY_LONG // unit) > number), column, row)
    (<int64_t *> column.values)[row] = number * unit
    return True


cdef inline bint read_day(
    const char *at, const char *stop, Column *column, Py_ssize_t row
) noexcept nogil:
    """Read a date of RFC 3339; return False if it is none."""
    return stop - at == 10 and keep_day(day_of(at), column, row)


cdef inline bint read_moment(
    const char *at, const char *stop, Column *column, Py_ssize_t row
) noexcept nogil:
    """Read a time of RFC 3339; return False if it is none."""
    cdef int64_t days, moment
    cdef int hours, minutes
    if stop - at < 19 or at[10] != c'T':
        return False
    days = day_of(at)
    at = scan_clock(at + 11, stop, days, &moment)
    if days == NO_DAY or at == NULL:
        return False
    if stop - at == 6 and (at[0] == c'+' or at[0] == c'-') and at[3] == c':':
        hours, minutes = two_digits(at + 1), two_digits(at + 4)
        if not (0 <= hours <= 23 and 0 <= minutes <= 59):
            return False
        minutes += 60 * hours
        moment -= (-minutes if at[0] == c'-' else minutes) * 60_000_000LL
    elif at < stop and not (stop - at == 1 and at[0] == c'Z'):
        return False
    (<int64_t *> column.values)[row] = moment
    return True
