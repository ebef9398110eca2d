# cython: language_level=3
"""Frees large bytes without the interpreter's lock."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uintptr_t


cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(object one)


cdef extern from "<sys/mman.h>" nogil:
    int madvise(void *address, size_t size, int advice)
    int MADV_DONTNEED


cdef extern from "<unistd.h>" nogil:
    long sysconf(int name)
    int _SC_PAGESIZE


cdef size_t _STEP = 8 << 20  # bytes for which the kernel locks the process's memory map at once


def free_unshared(dict waiting not None):
    cdef bytes data
    for key in list(waiting):
        data = waiting[key]
        if Py_REFCNT(data) == 2:  # `waiting` and this function
            del waiting[key]
            _give_back(data)
        data = None


cdef void _give_back(bytes data):
    """Let the system take back the whole pages within some bytes."""
    cdef uintptr_t page = sysconf(_SC_PAGESIZE)
    cdef uintptr_t at = <uintptr_t>PyBytes_AS_STRING(data)
    cdef uintptr_t end = (at + PyBytes_GET_SIZE(data)) // page * page
    cdef size_t size
    at = (at + page - 1) // page * page
    with nogil:
        while at < end:
            size = min(_STEP, end - at)
            madvise(<void *>at, size, MADV_DONTNEED)
            at += size
