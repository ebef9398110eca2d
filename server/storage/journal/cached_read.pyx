# cython: language_level=3
"""Reads from the page cache, without releasing the interpreter's lock.

Python releases the lock for every read, and has to wait for it when other threads want it, too:
they may keep it for half a millisecond. Recently written bytes are nearly always still in memory,
and take a few microseconds to copy. Otherwise the call returns at once, and Python reads them.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

cdef extern from *:
    """
    #include <errno.h>
    #include <sys/types.h>
    #include <sys/uio.h>

    #if defined(__linux__) && defined(RWF_NOWAIT)
    static ssize_t read_from_memory(int descriptor, void *to, size_t size, long long offset) {
        struct iovec part = {to, size};
        return preadv2(descriptor, &part, 1, (off_t)offset, RWF_NOWAIT);
    }
    #else
    static ssize_t read_from_memory(int descriptor, void *to, size_t size, long long offset) {
        errno = EAGAIN;
        return -1;
    }
    #endif
    """
    Py_ssize_t read_from_memory(int descriptor, void *to, size_t size, long long offset)


def read_in_memory(int descriptor, Py_ssize_t length, long long offset):
    cdef bytes data = PyBytes_FromStringAndSize(NULL, length)
    if read_from_memory(descriptor, PyBytes_AS_STRING(data), length, offset) != length:
        return None
    return data
