# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Writes JSON bodies from columns, in C: an object for each row.

Columns have the layout of Arrow: a validity bit for each value, contiguous values, and offsets of
texts and lists. A row's object has no members for NULL values; objects and arrays within it have
`null`. Numbers are written in the fewest digits that represent them.

Memory: a column retains its buffers as long as it exists. Its creator must ensure that the buffers
contain the values at the stated places.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.math cimport fabs, floor
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from server.message_types.json_tokens cimport quote_or_escape  # and what stands above it in C


cdef extern from "Python.h":
    char *PyOS_double_to_string(double value, char form, int precision, int flags, int *kind) except NULL
    int Py_DTSF_ADD_DOT_0
    void free_text "PyMem_Free"(void *text)


cdef extern from *:
    """
    /* Whether any of eight bytes has to be escaped. */
    static inline int has_escape(const char *at) {
        uint64_t word;
        memcpy(&word, at, 8);
        return (zero_bytes(word ^ EACH_BYTE('"')) | zero_bytes(word ^ EACH_BYTE('\\\\'))
                | ((word - EACH_BYTE(0x20)) & ~word & EACH_BYTE(0x80))) != 0;
    }
    """
    bint has_escape(const char *at) noexcept nogil


cpdef enum Form:
    WHOLE = 1             # an integer of `width` bytes
    REAL = 2              # a floating point number of `width` bytes
    TRUTH = 3             # a bit
    TEXT = 4
    MOMENT = 5            # microseconds since 1970, in UTC
    CLOCK = 6             # the same, in no time zone
    DAY = 7               # days since 1970
    BYTES = 8             # in base64
    JSON = 9              # texts that are JSON already
    OBJECT = 10
    ARRAY = 11

cdef enum:
    MAX_NUMBER_LENGTH = 32
    MAX_DECIMALS = 6     # that are tried before a number is written the long way

cdef int64_t MICROS_A_DAY = 86_400_000_000
cdef double MAX_EXACT = 1e15
cdef double[7] POWERS
POWERS[:] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6]
cdef const char *HEXADECIMAL = b"0123456789abcdef"
cdef const char *BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


cdef class Source:
    """See json_write.pyi."""

    cdef bytes _name        # with quotes and colon
    cdef int _form, _width
    cdef Py_ssize_t _offset
    cdef const int8_t[::1] _valid_view, _value_view, _place_view
    cdef const uint8_t *_valid
    cdef const uint8_t *_values
    cdef const int32_t *_places
    cdef list _members
    cdef bint _has_valid

    def __init__(self, name, form, width, offset, valid, values, places, members):
        self._name, self._form, self._width, self._offset = name, form, width, offset
        self._members = list(members)
        self._has_valid = valid is not None and len(valid)
        if self._has_valid:
            self._valid_view = valid
            self._valid = <const uint8_t *> &self._valid_view[0]
        if values is not None and len(values):
            self._value_view = values
            self._values = <const uint8_t *> &self._value_view[0]
        if places is not None and len(places):
            self._place_view = places
            self._places = <const int32_t *> &self._place_view[0]

    cdef inline bint has(self, Py_ssize_t row) noexcept:
        if not self._has_valid:
            return True
        row += self._offset
        return self._valid[row >> 3] >> (row & 7) & 1


cdef class Writer:
    """See json_write.pyi."""

    cdef char *_text
    cdef Py_ssize_t _size, _room

    def __dealloc__(self):
        PyMem_Free(self._text)

    def write(self, list sources not None, Py_ssize_t rows):
        cdef Py_ssize_t row
        cdef Source source
        cdef bint is_first
        ends = bytearray(rows * sizeof(int64_t))
        cdef int64_t *end = <int64_t *> <char *> ends
        self._size = 0
        for row in range(rows):
            self._need(2)
            self._text[self._size] = c'{'
            self._size += 1
            is_first = True
            for source in sources:
                if source.has(row):
                    self._put_name(source._name, is_first)
                    is_first = False
                    self._put(source, row)
            self._put_byte(c'}')
            end[row] = self._size
        return PyBytes_FromStringAndSize(self._text, self._size), ends

    cdef inline int _need(self, Py_ssize_t size) except -1:
        cdef void *text
        cdef Py_ssize_t room
        if self._size + size > self._room:
            room = 2 * (self._size + size) + 4096
            text = PyMem_Realloc(self._text, room)
            if text == NULL:
                raise MemoryError
            self._text, self._room = <char *> text, room
        return 0

    cdef inline int _put_byte(self, char byte) except -1:
        self._need(1)
        self._text[self._size] = byte
        self._size += 1
        return 0

    cdef inline int _put_all(self, const char *text, Py_ssize_t size) except -1:
        self._need(size)
        memcpy(self._text + self._size, text, size)
        self._size += size
        return 0

    cdef inline int _put_name(self, bytes name, bint is_first) except -1:
        if not is_first:
            self._put_byte(c',')
        return self._put_all(PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))

    cdef int _put(self, Source source, Py_ssize_t row) except -1:
        """Write a value that is not NULL."""
        cdef Py_ssize_t place = source._offset + row
        cdef Py_ssize_t start, stop
        cdef int form = source._form
        if form == WHOLE:
            return self._put_whole(whole_at(source, place))
        if form == REAL:
            if source._width == 4:
                return self._put_real((<const float *> source._values)[place])
            return self._put_real((<const double *> source._values)[place])
        if form == TRUTH:
            if source._values[place >> 3] >> (place & 7) & 1:
                return self._put_all(b"true", 4)
            return self._put_all(b"false", 5)
        if form == MOMENT or form == CLOCK:
            return self._put_moment((<const int64_t *> source._values)[place], form == MOMENT)
        if form == DAY:
            self._put_byte(c'"')
            self._put_day((<const int32_t *> source._values)[place])
            return self._put_byte(c'"')
        if form == OBJECT:
            return self._put_object(source, row)
        start, stop = source._places[place], source._places[place + 1]
        if form == TEXT:
            return self._put_text(<const char *> source._values + start, stop - start)
        if form == BYTES:
            return self._put_bytes(source._values + start, stop - start)
        if form == JSON:
            return self._put_all(<const char *> source._values + start, stop - start)
        return self._put_array(<Source> source._members[0], start, stop)

    cdef int _put_or_null(self, Source source, Py_ssize_t row) except -1:
        if source.has(row):
            return self._put(source, row)
        return self._put_all(b"null", 4)

    cdef int _put_object(self, Source source, Py_ssize_t row) except -1:
        cdef Source member
        cdef bint is_first = True
        self._put_byte(c'{')
        for member in source._members:
            self._put_name(member._name, is_first)
            is_first = False
            self._put_or_null(member, row)
        return self._put_byte(c'}')

    cdef int _put_array(self, Source elements, Py_ssize_t start, Py_ssize_t stop) except -1:
        cdef Py_ssize_t place
        self._put_byte(c'[')
        for place in range(start, stop):
            if place > start:
                self._put_byte(c',')
            self._put_or_null(elements, place)
        return self._put_byte(c']')

    cdef int _put_whole(self, int64_t value) except -1:
        cdef char[MAX_NUMBER_LENGTH] digits
        cdef int at = MAX_NUMBER_LENGTH
        cdef uint64_t left = <uint64_t> value
        if value < 0:
            left = 0 - left
        while True:
            at -= 1
            digits[at] = <char> (c'0' + left % 10)
            left //= 10
            if left == 0:
                break
        if value < 0:
            at -= 1
            digits[at] = c'-'
        return self._put_all(&digits[at], MAX_NUMBER_LENGTH - at)

    cdef int _put_real(self, double value) except -1:
        """Write the shortest decimal that is read as the value.

        With no more than 15 digits, a decimal that is read as the value is the only one with so few
        decimals, so it is found by trying increasing numbers of decimals.
        """
        cdef double scaled
        cdef int decimals
        if value - value != 0:
            return self._put_all(b"null", 4)  # NaN, Infinity: JSON does not have them
        if value == 0:
            return self._put_long(value) if 1 / value < 0 else self._put_all(b"0.0", 3)
        if 1e-3 <= fabs(value) < MAX_EXACT:
            for decimals in range(MAX_DECIMALS + 1):
                scaled = fabs(value) * POWERS[decimals]
                if scaled >= MAX_EXACT:
                    break
                scaled = floor(scaled + 0.5)
                if scaled / POWERS[decimals] == fabs(value):
                    return self._put_decimal(<int64_t> scaled, decimals, value < 0)
        return self._put_long(value)

    cdef int _put_decimal(self, int64_t digits, int decimals, bint is_negative) except -1:
        cdef int64_t power = <int64_t> POWERS[decimals]
        cdef int64_t rest = digits % power
        if is_negative:
            self._put_byte(c'-')
        self._put_whole(digits // power)
        self._put_byte(c'.')
        if decimals == 0:
            return self._put_byte(c'0')
        self._put_padded(rest, decimals)
        return 0

    cdef int _put_padded(self, int64_t number, int width) except -1:
        cdef int place
        self._need(width)
        for place in range(width - 1, -1, -1):
            self._text[self._size + place] = <char> (c'0' + number % 10)
            number //= 10
        self._size += width
        return 0

    cdef int _put_long(self, double value) except -1:
        """Write any value as Python does, except for exponents: `1e16`, not `1e+16`."""
        cdef char *text = PyOS_double_to_string(value, c'r', 0, Py_DTSF_ADD_DOT_0, NULL)
        cdef char *at = text
        cdef int exponent = 0
        cdef bint is_negative
        try:
            while at[0] != 0 and at[0] != c'e':
                at += 1
            if at[0] == 0:
                return self._put_all(text, at - text)
            is_negative = at[1] == c'-'
            exponent = exponent_of(at + 2)
            if is_negative and exponent == 5:
                return self._put_small(text, at)
            self._put_all(text, at - text)
            self._put_byte(c'e')
            return self._put_whole(-exponent if is_negative else exponent)
        finally:
            free_text(text)

    cdef int _put_small(self, const char *at, const char *end) except -1:
        """Write digits as hundred-thousandths."""
        if at[0] == c'-':
            self._put_byte(c'-')
            at += 1
        self._put_all(b"0.0000", 6)
        while at < end:
            if at[0] != c'.':
                self._put_byte(at[0])
            at += 1
        return 0

    cdef int _put_text(self, const char *at, Py_ssize_t size) except -1:
        cdef const char *end = at + size
        cdef char *to
        self._need(6 * size + 2)
        to = self._text + self._size
        to[0] = c'"'
        to += 1
        while at < end:
            if end - at >= 8 and not has_escape(at):
                memcpy(to, at, 8)
                at += 8
                to += 8
                continue
            to = put_character(to, at[0])
            at += 1
        to[0] = c'"'
        self._size = to + 1 - self._text
        return 0

    cdef int _put_bytes(self, const uint8_t *at, Py_ssize_t size) except -1:
        cdef char *to
        cdef unsigned int three
        self._need(4 * (size // 3) + 6)
        to = self._text + self._size
        to[0] = c'"'
        to += 1
        while size > 0:
            three = at[0] << 16 | (at[1] << 8 if size > 1 else 0) | (at[2] if size > 2 else 0)
            to[0] = BASE64[three >> 18]
            to[1] = BASE64[three >> 12 & 63]
            to[2] = BASE64[three >> 6 & 63] if size > 1 else c'='
            to[3] = BASE64[three & 63] if size > 2 else c'='
            to += 4
            at += 3
            size -= 3
        to[0] = c'"'
        self._size = to + 1 - self._text
        return 0

    cdef int _put_moment(self, int64_t micros, bint is_utc) except -1:
        cdef int64_t days = micros // MICROS_A_DAY
        cdef int64_t rest = micros - days * MICROS_A_DAY
        cdef int64_t seconds
        if rest < 0:
            days -= 1
            rest += MICROS_A_DAY
        seconds = rest // 1_000_000
        rest -= seconds * 1_000_000
        self._put_byte(c'"')
        self._put_day(days)
        self._put_byte(c'T')
        self._put_padded(seconds // 3600, 2)
        self._put_byte(c':')
        self._put_padded(seconds // 60 % 60, 2)
        self._put_byte(c':')
        self._put_padded(seconds % 60, 2)
        if rest:
            self._put_byte(c'.')
            self._put_padded(rest, 6)
        if is_utc:
            self._put_byte(c'Z')
        return self._put_byte(c'"')

    cdef int _put_day(self, int64_t days) except -1:
        """Write a date of the years 1 to 9999.

        Years are counted from March, so that a leap day is the last one of its year.
        """
        cdef int64_t era, of_era, year, of_year, month
        if not -719_162 <= days <= 2_932_896:
            raise OverflowError("a time is not in the years 1 to 9999")
        days += 719_468
        era = days // 146_097
        of_era = days - era * 146_097
        year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
        of_year = of_era - (365 * year + year // 4 - year // 100)
        month = (5 * of_year + 2) // 153
        self._put_padded(year + era * 400 + (month >= 10), 4)
        self._put_byte(c'-')
        self._put_padded(month + 3 if month < 10 else month - 9, 2)
        self._put_byte(c'-')
        return self._put_padded(of_year - (153 * month + 2) // 5 + 1, 2)


cdef inline int64_t whole_at(Source source, Py_ssize_t place) noexcept:
    if source._width == 8:
        return (<const int64_t *> source._values)[place]
    if source._width == 4:
        return (<const int32_t *> source._values)[place]
    if source._width == 2:
        return (<const int16_t *> source._values)[place]
    return (<const int8_t *> source._values)[place]


cdef inline int exponent_of(const char *digits) noexcept:
    cdef int number = 0
    while digits[0] != 0:
        number = number * 10 + digits[0] - c'0'
        digits += 1
    return number


cdef inline char *put_character(char *to, char byte) noexcept:
    """Write a byte of a text, escaped if necessary; return the position after it."""
    cdef char letter = 0
    if <unsigned char> byte >= 0x20 and byte != c'"' and byte != c'\\':
        to[0] = byte
        return to + 1
    to[0] = c'\\'
    if byte == c'"' or byte == c'\\':
        letter = byte
    elif byte == c'\n':
        letter = c'n'
    elif byte == c'\r':
        letter = c'r'
    elif byte == c'\t':
        letter = c't'
    elif byte == c'\b':
        letter = c'b'
    elif byte == c'\f':
        letter = c'f'
    if letter:
        to[1] = letter
        return to + 2
    memcpy(to + 1, b"u00", 3)
    to[4] = HEXADECIMAL[<unsigned char> byte >> 4]
    to[5] = HEXADECIMAL[byte & 15]
    return to + 6
