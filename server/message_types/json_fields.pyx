# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Reads a few fields of a JSON body, in C; the first of equal keys counts.

json_members.pyx scans a body; only wanted values become objects. The semantics are those of
`json_scan.scan`, which reads any body, even a malformed one. Python reads texts and numbers that
are not plain, one by one, and arrays. This reader leaves two kinds of bodies to the scan: an array
in place of the body, and a malformed wanted array, of which the scan finds the readable part.

Many bodies become columns without an object for each value. A value that is not plain is read by
Python and stored by the type of the result.
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
from libc.string cimport memcpy

from server.message_types.json_members cimport (
    Member, MemberWalk, Number, Text, ODD, READ, STOPPED, read_number
)
from server.message_types.json_tokens cimport skip_value


cdef extern from "Python.h":
    PyObject *PyUnicode_DecodeUTF8(const char *text, Py_ssize_t size, const char *errors)
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1
    void PyTuple_SET_ITEM(object values, Py_ssize_t position, PyObject *value)  # takes it over


cdef enum Tag:
    NULL_VALUE = 0
    WHOLE = 1             # an integer of 64 bits
    REAL = 2
    TEXT = 4
    OTHER = 8             # anything else, as an object


cdef struct Column:
    int8_t *tags          # the kind of value in each row
    int64_t *numbers      # or the bits of doubles
    int32_t *offsets      # of texts: where each begins
    char *text
    Py_ssize_t size       # of all texts so far
    Py_ssize_t capacity


cdef class FieldReader(MemberWalk):
    """See json_fields.pyi."""

    cdef PyObject **_values  # by slot, while a body is read
    cdef Column *_columns   # by slot, while columns are read; NULL at other times
    cdef Py_ssize_t _row
    cdef int _slots
    cdef object _text, _number, _part, _scan, _octets

    def __cinit__(self, members, int slots, text, number, part, scan, octets):
        self._octets = octets
        self._text, self._number, self._part, self._scan = text, number, part, scan
        self._slots = slots
        self._values = <PyObject **> PyMem_Calloc(max(1, slots), sizeof(PyObject *))
        if not self._values:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self._values)

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
        try:
            self._guess_names()
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
                raise ValueError("there are fewer bodies than announced")
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
        cdef Py_ssize_t index, start = 0, end
        cdef int slot
        cdef Column *column
        if self._row + ends.shape[0] > count:
            raise ValueError("there are more bodies than was said")
        for index in range(ends.shape[0]):
            end = ends[index]
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
            column.numbers[self._row] = number.integer
        else:
            column.tags[self._row] = REAL
            memcpy(&column.numbers[self._row], &number.value, sizeof(double))
        return True

    cdef void _keep(self, int slot, object value) noexcept:
        Py_INCREF(value)
        self._values[slot] = <PyObject *> value

    cdef void _keep_all(self, tuple values) except *:
        cdef int slot
        for slot in range(self._slots):
            self._keep(slot, values[slot])

    cdef PyObject *_take(self, int slot) noexcept:
        """Return the value of a slot; its reference passes to the caller."""
        cdef PyObject *value = self._values[slot]
        if value == NULL:
            Py_INCREF(None)
            return <PyObject *> None
        self._values[slot] = NULL
        return value

    cdef bint _read(self, bytes body) except -1:
        """Read a body; return whether it was plain. If not, there are no values."""
        return self._read_at(PyBytes_AS_STRING(body), PyBytes_AS_STRING(body) + PyBytes_GET_SIZE(body))

    cdef bint _read_at(self, const char *start, const char *end) except -1:
        """Read a body that is followed by a NUL; see `_read`."""
        cdef int slot, outcome = ODD
        try:
            outcome = self._walk(start, end)
        finally:
            if outcome <= ODD:
                for slot in range(self._slots):
                    if self._values[slot] != NULL:
                        Py_DECREF(<object> self._values[slot])
                        self._values[slot] = NULL
        return outcome > ODD

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
        """Read an array, or a value below a subscript, in Python."""
        values = self._part(PyBytes_FromStringAndSize(start, stop - start), self._below[number])
        if values is None:
            return ODD
        for (slot, _), value in zip(self._below[number], values):
            self._keep(slot, value)
        return READ

    cdef object _scalar(self, const char *start, const char *stop, bint escapes):
        """Return a text, word or number."""
        cdef PyObject *text
        cdef Number number
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
        if not read_number(start, stop, &number):
            return self._number(PyBytes_FromStringAndSize(start, stop - start))
        if number.is_integer:
            return PyLong_FromLongLong(number.integer)
        return PyFloat_FromDouble(number.value)


cdef bint is_ascii(const char *text, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t index
    cdef unsigned char found = 0
    for index in range(length):
        found |= <unsigned char> text[index]
    return found < 0x80


cdef bint keep_text(Column *column, const char *text, Py_ssize_t length, Py_ssize_t row) except -1:
    """Append a text to those of a column; return False if it is full."""
    cdef char *moved
    if column.size + length > INT32_MAX:
        return False
    if column.size + length > column.capacity:
        moved = <char *> PyMem_Realloc(column.text, 2 * (column.size + length))
        if moved == NULL:
            raise MemoryError
        column.text, column.capacity = moved, 2 * (column.size + length)
    if length:
        memcpy(column.text + column.size, text, length)
    column.size += length
    column.tags[row] = TEXT
    return True
