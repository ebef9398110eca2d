# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Reading a few fields of a JSON body, in C: where the first of equal keys counts.

A body is gone through once, from the front, until all wanted members have been found. What is not
wanted is passed over by its quotes and brackets; only what is wanted becomes an object. The meaning
is that of `json_scan.scan`, which reads any body, however odd: where a body is malformed, reading
stops with what has been found. Texts and numbers that are not plain are handed to Python one by one,
and so are arrays. What this reader gives up at, so that the scan can have it, is an array in place of
the body, and a malformed one that is wanted, of which the scan finds the part that can be read.

The names of one level are in a hash table.

Many bodies become columns without an object for each value. Publishers write the same keys in the same
order, mostly: so it is remembered there which key came at which place of the last body, and only where
another one comes, it is looked up. What is not plain is read as ever, and filed by what it has become.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_Clear
from cpython.float cimport PyFloat_FromDouble
from cpython.long cimport PyLong_FromLongLong
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Realloc
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from cpython.tuple cimport PyTuple_New
from libc.stdint cimport INT32_MAX, int8_t, int32_t, int64_t
from libc.string cimport memcmp, memcpy, memset, strncmp

from server.message_types.json_names cimport Name, NameTable, find_name, make_table
from server.message_types.json_tokens cimport closing_quote, skip_space, skip_value, unescape


cdef extern from "Python.h":
    PyObject *PyUnicode_DecodeUTF8(const char *text, Py_ssize_t size, const char *errors)
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1
    void PyTuple_SET_ITEM(object values, Py_ssize_t position, PyObject *value)  # takes it over


cdef struct Member:
    int slot              # of the value, -1 if no path ends here
    int level             # of the members below it, -1 if there are none
    int by_parts          # Python reads whatever its value is


cdef struct Text:
    const char *position  # the next byte
    const char *end
    int missing           # members of the outermost level that have not been found


cdef struct Number:
    bint is_integer
    long long whole
    double real


cdef enum Outcome:
    FAILED = -1           # a Python exception is set
    ODD = 0               # this is for the scan
    READ = 1
    STOPPED = 2           # all that was wanted has been found, or no more can be

cdef enum Tag:
    NULL_VALUE = 0
    WHOLE = 1             # an integer of 64 bits
    REAL = 2
    TEXT = 4
    OTHER = 8             # anything else, as an object


cdef struct Column:
    int8_t *tags          # what there is in each row
    int64_t *numbers      # or the bits of doubles
    int32_t *offsets      # of texts: where each begins
    char *text
    Py_ssize_t size       # of all texts so far
    Py_ssize_t room


cdef enum:
    GUESSED = 64          # places of an object that are remembered
    LONGEST_GUESS = 27    # bytes of a key that is, with the quote behind it


cdef struct Guess:
    char text[LONGEST_GUESS]
    int8_t length         # with the quote, 0 if there is no guess
    int number            # which member that is, -1 if none

cdef const char *BYTE_ORDER_MARK = b"\xef\xbb\xbf"
cdef int MOST_ESCAPED = 6           # bytes that stand for one of a name
cdef int MOST_DIGITS = 18           # of an integer that certainly fits into 64 bits
cdef long long MOST_EXACT = 1LL << 53
cdef double[23] POWERS              # of ten, all that are exact
POWERS[:] = [10.0**exponent for exponent in range(23)]


cdef class FieldReader:
    """See json_fields.pyi."""

    cdef Member *_members
    cdef Name *_names       # of the members
    cdef char *_seen        # by member
    cdef char *_name        # room for a name without its escapes
    cdef Py_ssize_t _longest_name
    cdef NameTable *_levels
    cdef PyObject **_values  # by slot, while a body is read
    cdef Column *_columns   # by slot, while columns are read; NULL at other times
    cdef Guess *_guesses    # of each level so many, from the first columns on
    cdef Py_ssize_t _row
    cdef int _member_count, _level_count, _slots, _outermost
    cdef list _encoded      # names of the members: `Name.text` points there
    cdef list _below        # of the members: `WantedMember.below`
    cdef object _text, _number, _part, _scan, _octets

    def __cinit__(self, members, int slots, text, number, part, scan, octets):
        cdef int first, member
        self._octets = octets
        self._text, self._number, self._part, self._scan = text, number, part, scan
        self._slots = slots
        self._encoded, self._below = [], []
        levels = [members]  # breadth first; the list grows while it is gone through
        plan = []
        for level in levels:
            for wanted in level:
                self._encoded.append(wanted.name)
                self._below.append(wanted.below)
                plan.append((len(levels) if wanted.members else -1, wanted.slot, wanted.by_parts))
                if wanted.members:
                    levels.append(wanted.members)
        self._member_count, self._level_count = len(plan), len(levels)
        self._outermost = len(members)
        self._members = <Member *> PyMem_Calloc(max(1, len(plan)), sizeof(Member))
        self._names = <Name *> PyMem_Calloc(max(1, len(plan)), sizeof(Name))
        self._seen = <char *> PyMem_Calloc(max(1, len(plan)), 1)
        self._longest_name = max([1] + [len(name) for name in self._encoded])
        self._name = <char *> PyMem_Calloc(MOST_ESCAPED * self._longest_name, 1)
        self._levels = <NameTable *> PyMem_Calloc(len(levels), sizeof(NameTable))
        self._values = <PyObject **> PyMem_Calloc(max(1, slots), sizeof(PyObject *))
        if not (self._members and self._names and self._seen and self._name):
            raise MemoryError
        if not (self._levels and self._values):
            raise MemoryError
        for member, (name, planned) in enumerate(zip(self._encoded, plan)):
            self._names[member].text = PyBytes_AS_STRING(name)
            self._names[member].length = PyBytes_GET_SIZE(name)
            self._members[member].level = planned[0]
            self._members[member].slot = planned[1]
            self._members[member].by_parts = planned[2]
        first = 0
        for number_of_level, level in enumerate(levels):
            if not make_table(&self._levels[number_of_level], self._names, first, len(level)):
                raise MemoryError
            first += len(level)

    def __dealloc__(self):
        cdef int number
        if self._levels:
            for number in range(self._level_count):
                PyMem_Free(self._levels[number].places)
        PyMem_Free(self._levels)
        PyMem_Free(self._members)
        PyMem_Free(self._names)
        PyMem_Free(self._seen)
        PyMem_Free(self._name)
        PyMem_Free(self._values)
        PyMem_Free(self._guesses)

    def read(self, bytes body not None):
        cdef int slot
        if not self._read(body):
            return self._scan(body)
        values = PyTuple_New(self._slots)
        for slot in range(self._slots):
            PyTuple_SET_ITEM(values, slot, self._take(slot))
        return values

    def read_all(self, bodies):
        cdef Py_ssize_t row
        cdef int slot
        bodies = list(bodies)
        columns = [PyTuple_New(len(bodies)) for _ in range(self._slots)]
        for row in range(len(bodies)):
            if not self._read(bodies[row]):
                self._keep_all(self._scan(bodies[row]))
            for slot in range(self._slots):
                PyTuple_SET_ITEM(columns[slot], row, self._take(slot))
        return columns

    def read_columns(self, joined, Py_ssize_t count):
        cdef int slot
        cdef Column *columns = <Column *> PyMem_Calloc(max(1, self._slots), sizeof(Column))
        if columns == NULL:
            raise MemoryError
        if self._guesses == NULL:
            self._guesses = <Guess *> PyMem_Calloc(self._level_count * GUESSED, sizeof(Guess))
        try:
            if self._guesses == NULL:
                raise MemoryError
            held = []
            for slot in range(self._slots):
                tags, numbers = bytearray(count), bytearray(count * sizeof(int64_t))
                offsets = bytearray((count + 1) * sizeof(int32_t))
                columns[slot].tags = <int8_t *> PyByteArray_AS_STRING(tags)
                columns[slot].numbers = <int64_t *> PyByteArray_AS_STRING(numbers)
                columns[slot].offsets = <int32_t *> PyByteArray_AS_STRING(offsets)
                held.append((tags, numbers, offsets, {}))
            self._columns = columns
            self._row = 0
            for data, ends in joined:
                self._read_joined(data, ends, count, held)
            if self._row != count:
                raise ValueError("there are fewer bodies than was said")
            return [
                (*held[slot], PyBytes_FromStringAndSize(columns[slot].text, columns[slot].size))
                for slot in range(self._slots)
            ]
        finally:
            self._columns = NULL
            for slot in range(self._slots):
                PyMem_Free(columns[slot].text)
            PyMem_Free(columns)

    cdef int _read_joined(
        self, bytes data, const int64_t[:] ends, Py_ssize_t count, list held
    ) except -1:
        """Read bodies, each of which is followed by a NUL, into the columns from the next row on."""
        cdef const char *base = PyBytes_AS_STRING(data)
        cdef Py_ssize_t place, start = 0, end
        cdef int slot
        cdef Column *column
        if self._row + ends.shape[0] > count:
            raise ValueError("there are more bodies than was said")
        for place in range(ends.shape[0]):
            end = ends[place]
            if not start <= end < PyBytes_GET_SIZE(data) or base[end] != 0:
                raise ValueError("a body lies outside the data, or has no NUL behind it")
            if not self._read_at(base + start, base + end):
                for slot in range(self._slots):
                    column = &self._columns[slot]
                    column.tags[self._row] = NULL_VALUE
                    column.numbers[self._row] = 0
                    column.size = column.offsets[self._row]
                self._keep_all(self._scan(PyBytes_FromStringAndSize(base + start, end - start)))
            for slot in range(self._slots):
                column = &self._columns[slot]
                if self._values[slot] != NULL:
                    value = <object> self._values[slot]
                    Py_DECREF(value)
                    self._values[slot] = NULL
                    self._file(column, value, held[slot][3])
                column.offsets[self._row + 1] = <int32_t> column.size
            self._row += 1
            start = end + 1
        return 0

    cdef int _file(self, Column *column, value, dict others) except -1:
        """Put a value into a column."""
        cdef double real
        cdef int overflow = 0
        cdef long long whole
        if value is None:
            return 0
        if type(value) is str:
            octets = self._octets(value)
            if keep_text(column, PyBytes_AS_STRING(octets), PyBytes_GET_SIZE(octets), self._row):
                return 0
        elif type(value) is float:
            real = value
            column.tags[self._row] = REAL
            memcpy(&column.numbers[self._row], &real, sizeof(double))
            return 0
        elif type(value) is int:
            whole = PyLong_AsLongLongAndOverflow(value, &overflow)
            if not overflow:
                column.tags[self._row] = WHOLE
                column.numbers[self._row] = whole
                return 0
        column.tags[self._row] = OTHER
        others[self._row] = value
        return 0

    cdef bint _put(self, int slot, const char *start, const char *stop, bint escapes) except -1:
        """Put a text, word or number into a column, if it is plain."""
        cdef Column *column = &self._columns[slot]
        cdef Number number
        cdef PyObject *text
        if start[0] == c'"':
            if escapes:
                return False
            if not is_ascii(start + 1, stop - start - 2):
                text = PyUnicode_DecodeUTF8(start + 1, stop - start - 2, NULL)
                if text == NULL:
                    PyErr_Clear()
                    return False
                Py_DECREF(<object> text)
            return keep_text(column, start + 1, stop - start - 2, self._row)
        if start[0] == c'n':
            return True
        if start[0] == c't' or start[0] == c'f' or not read_number(start, stop, &number):
            return False
        if number.is_integer:
            column.tags[self._row] = WHOLE
            column.numbers[self._row] = number.whole
        else:
            column.tags[self._row] = REAL
            memcpy(&column.numbers[self._row], &number.real, sizeof(double))
        return True

    cdef void _keep(self, int slot, object value) noexcept:
        Py_INCREF(value)
        self._values[slot] = <PyObject *> value

    cdef void _keep_all(self, tuple values) except *:
        cdef int slot
        for slot in range(self._slots):
            self._keep(slot, values[slot])

    cdef PyObject *_take(self, int slot) noexcept:
        """The value of a slot, whose reference goes to whoever asks."""
        cdef PyObject *value = self._values[slot]
        if value == NULL:
            Py_INCREF(None)
            return <PyObject *> None
        self._values[slot] = NULL
        return value

    cdef bint _read(self, bytes body) except -1:
        """Read a body; whether it was plain. If not, there are no values."""
        return self._read_at(PyBytes_AS_STRING(body), PyBytes_AS_STRING(body) + PyBytes_GET_SIZE(body))

    cdef bint _read_at(self, const char *start, const char *end) except -1:
        """Read a body that has a NUL behind it; see `_read`."""
        cdef Text text
        cdef int slot, outcome
        text.position, text.end = start, end
        if strncmp(text.position, BYTE_ORDER_MARK, 3) == 0:
            text.position += 3
        text.position = skip_space(text.position)
        text.missing = self._outermost
        memset(self._seen, 0, self._member_count)
        outcome = ODD
        try:
            if text.missing and text.position[0] == c'{':
                outcome = self._read_members(&text, 0)
            elif not text.missing or text.position[0] != c'[':
                outcome = STOPPED
        finally:
            if outcome <= ODD:
                for slot in range(self._slots):
                    if self._values[slot] != NULL:
                        Py_DECREF(<object> self._values[slot])
                        self._values[slot] = NULL
        return outcome > ODD

    cdef int _find_escaped(self, int level, const char *name, Py_ssize_t length) noexcept nogil:
        if length > MOST_ESCAPED * self._longest_name:
            return -1
        length = unescape(name, name + length, self._name)
        return find_name(&self._levels[level], self._names, self._name, length)

    cdef int _read_members(self, Text *text, int level) except -1:
        """Read an object from its brace on."""
        cdef const char *at = skip_space(text.position + 1)
        cdef const char *end = text.end
        cdef const char *name
        cdef Guess *guess = NULL
        cdef int number, outcome, place = 0
        cdef bint escapes
        if at[0] == c'}':
            text.position = at + 1
            return READ
        while at[0] == c'"':
            name = at + 1
            if self._columns != NULL:
                guess = &self._guesses[level * GUESSED + place] if place < GUESSED else NULL
                place += 1
            if (
                guess != NULL
                and guess.length
                and guess.length <= end - name
                and memcmp(guess.text, name, guess.length) == 0
            ):
                number = guess.number
                at = name + guess.length - 1
            else:
                at = closing_quote(name, end, &escapes)
                if at == NULL:
                    return STOPPED
                if escapes:
                    number = self._find_escaped(level, name, at - name)
                else:
                    number = find_name(&self._levels[level], self._names, name, at - name)
                    if guess != NULL and at - name < LONGEST_GUESS:
                        memcpy(guess.text, name, at - name + 1)
                        guess.length, guess.number = <int8_t> (at - name + 1), number
            at = skip_space(at + 1)
            if at[0] != c':':
                return STOPPED
            at = skip_space(at + 1)
            if number < 0 or self._seen[number]:
                at = skip_value(at, end, &escapes)
                if at == NULL:
                    return STOPPED
            else:
                self._seen[number] = 1
                text.position = at
                outcome = self._read_member(text, &self._members[number], number)
                if outcome != READ:
                    return outcome
                at = text.position
                if level == 0:
                    text.missing -= 1
                    if text.missing == 0:
                        return STOPPED
            at = skip_space(at)
            if at[0] == c'}':
                text.position = at + 1
                return READ
            if at[0] != c',':
                return STOPPED
            at = skip_space(at + 1)
        return STOPPED

    cdef int _read_member(self, Text *text, Member *member, int number) except -1:
        """Read the value of a wanted member."""
        cdef const char *start = text.position
        cdef const char *stop
        cdef bint escapes
        if start[0] == c'{' and member.level >= 0:
            return self._read_members(text, member.level)
        stop = text.position = skip_value(start, text.end, &escapes)
        if stop == NULL:
            return ODD if start[0] == c'[' or member.by_parts else STOPPED
        if start[0] == c'[' or member.by_parts:
            return self._read_part(start, stop, number)
        if member.slot >= 0 and start[0] != c'{':
            if self._columns != NULL and self._put(member.slot, start, stop, escapes):
                return READ
            self._keep(member.slot, self._scalar(start, stop, escapes))
        return READ

    cdef int _read_part(self, const char *start, const char *stop, int number) except -1:
        """Let Python read what is an array, or where a subscript leads into."""
        values = self._part(PyBytes_FromStringAndSize(start, stop - start), self._below[number])
        if values is None:
            return ODD
        for (slot, _), value in zip(self._below[number], values):
            self._keep(slot, value)
        return READ

    cdef object _scalar(self, const char *start, const char *stop, bint escapes):
        """A text, word or number."""
        cdef PyObject *text
        if start[0] == c'"':
            if not escapes:
                text = PyUnicode_DecodeUTF8(start + 1, stop - start - 2, NULL)
                if text != NULL:
                    value = <object> text
                    Py_DECREF(value)
                    return value
                PyErr_Clear()
            return self._text(PyBytes_FromStringAndSize(start, stop - start))
        if start[0] == c't':
            return True
        if start[0] == c'f':
            return False
        if start[0] == c'n':
            return None
        return self._plain_number(start, stop)

    cdef object _plain_number(self, const char *start, const char *stop):
        """A number, which is known to be well-formed; or NaN, or an infinity."""
        cdef Number number
        if not read_number(start, stop, &number):
            return self._number(PyBytes_FromStringAndSize(start, stop - start))
        if number.is_integer:
            return PyLong_FromLongLong(number.whole)
        return PyFloat_FromDouble(number.real)


cdef bint read_number(const char *start, const char *stop, Number *number) noexcept nogil:
    """Read a well-formed number; False if it is not plain."""
    cdef const char *at = start
    cdef long long digits = 0
    cdef int count = 0, decimals = 0, exponent = 0, exponent_digits = 0
    cdef bint negative = start[0] == c'-', lowers = False
    number.is_integer = True
    if negative:
        at += 1
    while c'0' <= at[0] <= c'9' and count <= MOST_DIGITS:
        digits = digits * 10 + (at[0] - c'0')
        count += 1
        at += 1
    if at[0] == c'.':
        number.is_integer = False
        at += 1
        while c'0' <= at[0] <= c'9' and count <= MOST_DIGITS:
            digits = digits * 10 + (at[0] - c'0')
            count += 1
            decimals += 1
            at += 1
    if at[0] == c'e' or at[0] == c'E':
        number.is_integer = False
        at += 1
        if at[0] == c'+' or at[0] == c'-':
            lowers = at[0] == c'-'
            at += 1
        while c'0' <= at[0] <= c'9' and exponent_digits < 4:
            exponent = exponent * 10 + (at[0] - c'0')
            exponent_digits += 1
            at += 1
    if at != stop or count > MOST_DIGITS:
        return False
    if number.is_integer:
        number.whole = -digits if negative else digits
        return True
    exponent = (-exponent if lowers else exponent) - decimals
    if digits > MOST_EXACT or not -22 <= exponent <= 22:
        return False
    # Both are exact, so that there is one rounding only (Clinger).
    number.real = digits / POWERS[-exponent] if exponent < 0 else digits * POWERS[exponent]
    if negative:
        number.real = -number.real
    return True


cdef bint is_ascii(const char *text, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t place
    cdef unsigned char found = 0
    for place in range(length):
        found |= <unsigned char> text[place]
    return found < 0x80


cdef bint keep_text(Column *column, const char *text, Py_ssize_t length, Py_ssize_t row) except -1:
    """Put a text behind those of a column; False if that has no room for more."""
    cdef char *moved
    if column.size + length > INT32_MAX:
        return False
    if column.size + length > column.room:
        moved = <char *> PyMem_Realloc(column.text, 2 * (column.size + length))
        if moved == NULL:
            raise MemoryError
        column.text, column.room = moved, 2 * (column.size + length)
    if length:
        memcpy(column.text + column.size, text, length)
    column.size += length
    column.tags[row] = TEXT
    return True
