# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Keeps a few members of JSON objects, in C, for select lists that name all fields to include.

Of a plain body (json_plain.pxd) in which a wanted member comes once, and is no object, whose white
space would have to be removed, the texts of the wanted members are copied, in their order. All others
are read to their end, because a malformed body has no members to select from. Any other body is left
to `JsonType.select`, of which the result for plain bodies is the same.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.string cimport memcpy, memset

from server.message_types.json_names cimport Name, NameTable, find_name, make_table
from server.message_types.json_plain cimport end_of_name, end_of_value
from server.message_types.json_tokens cimport skip_space


cdef struct Member:
    int number           # of the name
    const char *start    # of the value
    Py_ssize_t size


cdef class MemberSelector:
    """See json_select.pyi."""

    cdef list _names      # encoded: `Name.text` points there
    cdef Name *_table_names
    cdef NameTable _table
    cdef char *_seen      # by name
    cdef Member *_found
    cdef int _count

    def __cinit__(self, names):
        cdef int number
        self._names = list(names)
        self._count = len(self._names)
        self._table_names = <Name *> PyMem_Calloc(max(1, self._count), sizeof(Name))
        self._seen = <char *> PyMem_Calloc(max(1, self._count), 1)
        self._found = <Member *> PyMem_Calloc(max(1, self._count), sizeof(Member))
        if not (self._table_names and self._seen and self._found):
            raise MemoryError
        for number, name in enumerate(self._names):
            self._table_names[number].text = PyBytes_AS_STRING(name)
            self._table_names[number].length = PyBytes_GET_SIZE(name)
        if not make_table(&self._table, self._table_names, 0, self._count):
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self._table.buckets)
        PyMem_Free(self._table_names)
        PyMem_Free(self._seen)
        PyMem_Free(self._found)

    def select_all(self, bodies):
        return [self._select(body) for body in bodies]

    cdef object _select(self, bytes body):
        """Return the object of the wanted members of a body; None if the body is not plain."""
        cdef const char *start = PyBytes_AS_STRING(body)
        cdef int count = self._find(start, start + PyBytes_GET_SIZE(body)), index
        cdef Py_ssize_t total = 2
        cdef const Name *name
        cdef bytes made
        cdef char *to
        if count < 0:
            return None
        for index in range(count):  # ,"name":value
            total += self._table_names[self._found[index].number].length + self._found[index].size + 4
        if count:
            total -= 1
        made = PyBytes_FromStringAndSize(NULL, total)
        to = PyBytes_AS_STRING(made)
        to[0] = c'{'
        to += 1
        for index in range(count):
            name = &self._table_names[self._found[index].number]
            if index:
                to[0] = c','
                to += 1
            to[0] = c'"'
            memcpy(to + 1, name.text, name.length)
            to += 1 + name.length
            to[0], to[1] = c'"', c':'
            memcpy(to + 2, self._found[index].start, self._found[index].size)
            to += 2 + self._found[index].size
        to[0] = c'}'
        if to + 1 != PyBytes_AS_STRING(made) + total:
            raise SystemError("a selection is not of the size that was computed")
        return made

    cdef int _find(self, const char *at, const char *end) noexcept nogil:
        """Find the wanted members of a body, which a NUL follows.

        Return how many there are, in `_found`; -1 if the body is not plain.
        """
        cdef const char *name
        cdef const char *stop
        cdef int number, count = 0
        memset(self._seen, 0, self._count)
        at = skip_space(at)
        if at[0] != c'{':
            return -1
        at = skip_space(at + 1)
        if at[0] == c'}':
            return 0 if skip_space(at + 1) == end else -1
        while True:
            name, stop = at + 1, end_of_name(at, end)
            if stop == NULL:
                return -1
            number = find_name(&self._table, self._table_names, name, stop - name)
            at = skip_space(stop + 1)
            if at[0] != c':':
                return -1
            at = skip_space(at + 1)
            stop = end_of_value(at, end, 1)
            if stop == NULL:
                return -1
            if number >= 0:
                if self._seen[number] or at[0] == c'{':
                    return -1
                self._seen[number] = 1
                self._found[count].number = number
                self._found[count].start, self._found[count].size = at, stop - at
                count += 1
            at = skip_space(stop)
            if at[0] == c'}':
                return count if skip_space(at + 1) == end else -1
            if at[0] != c',':
                return -1
            at = skip_space(at + 1)
