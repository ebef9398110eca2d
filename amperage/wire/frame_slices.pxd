# cython: language_level=3
"""Pieces of what was read, for other modules in C; see frame_slices.pyx."""


cdef struct Place:
    Py_ssize_t start
    Py_ssize_t size


cdef class Table:
    cdef Place *places
    cdef Py_ssize_t count
    cdef Py_ssize_t room

    cdef int add(self, Py_ssize_t start, Py_ssize_t size) except -1


cdef class Places:
    cdef bytes chunk       # which the places are in
    cdef Table table       # which keeps them
    cdef Place *first
    cdef Py_ssize_t size
    cdef list _made        # all of them as objects, once somebody has wanted that

    cdef bytes _make(self, Py_ssize_t number)
    cdef Places _part(self, Py_ssize_t start, Py_ssize_t stop)


cdef Places places_of(bytes chunk, Table table)
