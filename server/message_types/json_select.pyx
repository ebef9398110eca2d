# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Keeps a few members of JSON objects, in C, for select lists that name all fields to include.

Of a plain body (json_plain.pxd) in which a wanted member comes once, and is no object, whose white
space would have to be removed, the texts of the wanted members are copied, in their order. All others
are read to their end, because a malformed body has no members to select from. Any other body is left
to `JsonType.select`, of which the result for plain bodies is the same.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.string cimport memset

from server.message_types.json_names cimport Name, NameTable, find_name, make_table
from server.message_types.json_plain cimport Member, end_of_name, end_of_value, join_members
from server.message_types.json_tokens cimport skip_space


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
        cdef int count = self._find(start, start + PyBytes_GET_SIZE(body))
        return None if count < 0 else join_members(self._found, count)

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
                self._found[count].name = name
                self._found[count].name_size = self._table_names[number].length
                self._found[count].value, self._found[count].size = at, stop - at
                count += 1
            at = skip_space(stop)
            if at[0] == c'}':
                return count if skip_space(at + 1) == end else -1
            if at[0] != c',':
                return -1
            at = skip_space(at + 1)
