# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Reads the fields of many bodies into columns, in C: a row for each body.

A body is read once, from the front. A wanted value must have exactly the type of its column;
unwanted values are skipped. Any other body is left to the caller: its row has no values, and is
reported as odd.

Mostly, publishers write the same keys in the same order. So the key at each place of the last body
is cached; a key is looked up only if it differs.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int32_t, int64_t

from server.message_types.json_names cimport Name, make_table


cdef class ColumnReader:
    """See columns.pyi."""

    def __cinit__(self, wanted, *_given, **_named):
        cdef int number
        levels = [(-1, wanted)]  # breadth first; the list grows during the iteration
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
        if not (self._columns and self._names and self._levels):
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
        for number in range(self._level_count):  # they point into data that may have been freed
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
        """Read a body; return whether it was plain. The reader of each type implements it."""
        raise NotImplementedError
