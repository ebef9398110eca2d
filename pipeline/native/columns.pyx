# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Reads the fields of many bodies into columns, in C: a row for each body.

A body is read once, from the front. A wanted value must have exactly the type of its column;
unwanted values are skipped. Any other body is left to the caller: its row has no values, and is
reported as odd.

Mostly, publishers write the same keys in the same order. So the key at each place of the last body
is cached; a key is looked up only if it differs.

The elements of an array are the rows of the columns below it. Their number is known when all bodies
have been read; until then the buffers of these columns grow.
"""

from cpython.bytearray cimport (
    PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from server.message_types.json_names cimport Name, make_table


cdef class ColumnReader:
    """See columns.pyi."""

    def __cinit__(self, wanted, *_given, **_named):
        cdef int number
        levels = [(-1, wanted)]  # breadth first; the list grows during the iteration
        plan = []
        for parent, level in levels:
            for one in level:
                if one.kind in (OBJECT, ARRAY):
                    levels.append((len(plan), one.members))
                plan.append((one, parent, len(levels) - 1))
        self._encoded = [one.name for one, _, _ in plan]
        self._count, self._level_count = len(plan), len(levels)
        self._columns = <Column *> PyMem_Calloc(max(1, len(plan)), sizeof(Column))
        self._names = <Name *> PyMem_Calloc(max(1, len(plan)), sizeof(Name))
        self._levels = <Level *> PyMem_Calloc(len(levels), sizeof(Level))
        self._longest_name = max([1] + [len(name) for name in self._encoded])
        if not (self._columns and self._names and self._levels):
            raise MemoryError
        for number, (one, parent, level) in enumerate(plan):
            self._names[number].text = PyBytes_AS_STRING(one.name)
            self._names[number].length = PyBytes_GET_SIZE(one.name)
            self._columns[number].kind = one.kind
            self._columns[number].width = one.width
            self._columns[number].level = level
            self._columns[number].array = -1
            if parent >= 0:
                is_element = self._columns[parent].kind == ARRAY
                self._columns[number].array = parent if is_element else self._columns[parent].array
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
                PyMem_Free(self._levels[number].table.buckets)
                PyMem_Free(self._levels[number].guesses)
        if self._columns:
            for number in range(self._count):
                PyMem_Free(self._columns[number].text)
        PyMem_Free(self._levels)
        PyMem_Free(self._columns)
        PyMem_Free(self._names)

    def read(self, bytes data not None, const int64_t[:] starts, const int64_t[:] ends):
        cdef Py_ssize_t row, count = starts.shape[0]
        cdef const char *base = PyBytes_AS_STRING(data)
        cdef int number
        cdef Column *column
        odd = []
        if ends.shape[0] != count:
            raise ValueError("as many bodies begin as end")
        for row in range(count):
            if not 0 <= starts[row] <= ends[row] <= PyBytes_GET_SIZE(data):
                raise ValueError("a body lies outside the data")
        self._found = []
        for number in range(self._count):
            column = &self._columns[number]
            offsets = bytearray() if column.kind in (TEXT, ARRAY) else None
            self._found.append([bytearray(), bytearray(), offsets])
            column.size = column.seen = 0
            if column.kind == ARRAY:
                column.room = 0
            self._resize(number, count if column.array < 0 else 0)
        for number in range(self._level_count):  # they point into data that may have been freed
            for row in range(GUESSED):
                self._levels[number].guesses[row].text = NULL
        for row in range(count):
            if not self._read_body(base + starts[row], base + ends[row], row, base):
                self._forget(row)
                odd.append(row)
            self._end_row(-1, row)
        for number in range(self._count):
            column = &self._columns[number]
            if column.array >= 0:
                self._resize(number, self._columns[column.array].size)
            if column.kind == TEXT:
                self._found[number][1] = PyBytes_FromStringAndSize(column.text, column.size)
        found, self._found = [tuple(one) for one in self._found], None
        return found, odd

    cdef int _resize(self, int number, Py_ssize_t rows) except -1:
        """Make room for the rows of a column; new ones have no value."""
        cdef Column *column = &self._columns[number]
        valid, values, offsets = self._found[number]
        resize(valid, rows)
        resize(values, rows * column.width)
        column.valid = PyByteArray_AS_STRING(valid)
        column.values = PyByteArray_AS_STRING(values)
        if offsets is not None:
            resize(offsets, (rows + 1) * sizeof(int32_t))
            column.offsets = <int32_t *> PyByteArray_AS_STRING(offsets)
        return 0

    cdef int _add_element(self, Column *array) except -1:
        """Begin an element of an array: a row of the columns below it."""
        cdef int number, place = <int> (array - self._columns)
        cdef Py_ssize_t rows = 2 * array.size + FIRST_ROOM
        if array.size == array.room:
            if rows > MAX_ELEMENTS:
                raise OverflowError("the arrays of a column have too many elements together")
            for number in range(place + 1, self._count):
                if self._columns[number].array == place:
                    self._resize(number, rows)
            array.room = rows
        array.size += 1
        return 0

    cdef void _end_row(self, int array, Py_ssize_t row) noexcept:
        """End a row: a body, or an element of an array."""
        cdef int number
        cdef Column *column
        for number in range(array + 1, self._count):
            column = &self._columns[number]
            if column.array == array and column.offsets != NULL:
                column.offsets[row + 1] = <int32_t> column.size

    cdef void _forget(self, Py_ssize_t row) noexcept:
        """Leave a row without values; its elements are dropped."""
        cdef int number
        cdef Py_ssize_t start, stop
        cdef Column *column
        for number in range(self._count):  # arrays come before what is below them
            column = &self._columns[number]
            start, stop = row, row + 1
            if column.array >= 0:
                start = self._columns[column.array].size
                stop = self._columns[column.array].dropped
                column.seen = 0
            memset(column.valid + start, 0, stop - start)
            memset(column.values + start * column.width, 0, (stop - start) * column.width)
            if column.offsets != NULL:
                column.dropped = column.size
                column.size = column.offsets[start]

    cdef bint _read_body(
        self, const char *at, const char *end, Py_ssize_t row, const char *base
    ) except -1:
        """Read a body; return whether it was plain. The reader of each type implements it."""
        raise NotImplementedError


cdef int resize(bytearray buffer, Py_ssize_t size) except -1:
    """Resize a buffer; new bytes are zero."""
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(buffer)
    PyByteArray_Resize(buffer, size)
    if size > before:
        memset(PyByteArray_AS_STRING(buffer) + before, 0, size - before)
    return 0
