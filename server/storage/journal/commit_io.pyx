# cython: language_level=3
"""The system calls of a commit as one call, without taking the interpreter's lock in between.

Each call from Python releases the lock and acquires it again. A busy engine keeps the lock for half
a millisecond before it releases it, and a commit with six calls waits for it six times; with an
idle engine, the hand-over there and back costs more processor time than the calls.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport errno
from libc.stdlib cimport free, malloc

import os

cdef extern from *:
    """
    #include <errno.h>
    #include <sys/stat.h>
    #include <unistd.h>

    typedef struct {
        const char *data;
        size_t size;
        off_t offset;
    } piece;

    static int write_piece(int descriptor, const piece *one) {
        size_t written = 0;
        while (written < one->size) {
            ssize_t more = pwrite(descriptor, one->data + written, one->size - written,
                                  one->offset + (off_t)written);
            if (more < 0 && errno == EINTR)
                continue;
            if (more <= 0) {
                if (more == 0)
                    errno = EIO;
                return -1;
            }
            written += (size_t)more;
        }
        return 0;
    }

    static int synchronise(int descriptor) {
        int result;
        do
            result = fdatasync(descriptor);
        while (result < 0 && errno == EINTR);
        return result;
    }

    static int is_in_place(int descriptor, const char *path, long long size) {
        struct stat held, found;
        return fstat(descriptor, &held) == 0 && stat(path, &found) == 0
            && held.st_dev == found.st_dev && held.st_ino == found.st_ino && held.st_size == size;
    }

    /* The last piece is written after all the others, once these are durable and in place. */
    static int store_pieces(int descriptor, const piece *pieces, size_t count, const char *path,
                            long long size) {
        size_t last = count - 1;
        for (size_t i = 0; i < last; i++)
            if (write_piece(descriptor, pieces + i) < 0)
                return -1;
        if (synchronise(descriptor) < 0)
            return -1;
        if (!is_in_place(descriptor, path, size))
            return 0;
        return write_piece(descriptor, pieces + last) < 0 ? -1 : 1;
    }
    """
    ctypedef struct piece:
        const char *data
        size_t size
        long long offset

    int store_pieces(
        int descriptor, const piece *pieces, size_t count, const char *path, long long size
    ) nogil


def store(int descriptor, pieces, bytes path, long long size, mark):
    cdef list parts = [*pieces, mark]
    cdef size_t count = len(parts), i
    cdef const char *name = PyBytes_AS_STRING(path)
    cdef int result, problem = 0
    cdef bytes data
    cdef piece *each = <piece *>malloc(count * sizeof(piece))
    if each == NULL:
        raise MemoryError
    try:
        for i in range(count):
            offset, data = parts[i]
            each[i].data = PyBytes_AS_STRING(data)  # `parts` keeps it
            each[i].size = PyBytes_GET_SIZE(data)
            each[i].offset = offset
        with nogil:
            result = store_pieces(descriptor, each, count, name, size)
            if result < 0:
                problem = errno
    finally:
        free(each)
    if result < 0:
        raise OSError(problem, os.strerror(problem))
    return result > 0
