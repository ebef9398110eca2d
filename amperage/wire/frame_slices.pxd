# cython: language_level=3
"""Pieces of what was read, for other modules in C; see frame_slices.pyx."""


cdef extern from "<sys/uio.h>":
    struct iovec:
        void *iov_base
        size_t iov_len


cdef struct FrameSlice:
    Py_ssize_t start
    Py_ssize_t size


cdef class Table:
    cdef FrameSlice *slices
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity

    cdef int add(self, Py_ssize_t start, Py_ssize_t size) except -1


cdef class FrameSlices:
    cdef bytes chunk       # of which these are slices
    cdef Table table       # which keeps them
    cdef FrameSlice *first
    cdef Py_ssize_t size
    cdef list _made        # all of them as objects, once somebody has wanted that

    cdef bytes _make(self, Py_ssize_t number)
    cdef FrameSlices _part(self, Py_ssize_t start, Py_ssize_t stop)


cdef class SharedFrames:
    cdef bytes heads       # all headers, with the lengths of the frames
    cdef bytes chunk       # of which the bodies are slices
    cdef iovec *pieces     # header, body, header, body, ...
    cdef Py_ssize_t piece_count
    cdef Py_ssize_t size   # bytes of all frames


cdef FrameSlices slices_of(bytes chunk, Table table)
