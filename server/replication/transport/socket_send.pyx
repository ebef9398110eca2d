# cython: language_level=3
"""Sends large amounts of data over a non-blocking socket, without holding the GIL."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport errno
from libc.stdlib cimport free, malloc

import os

cdef extern from *:
    """
    #include <poll.h>

    #include "../../util/send_pieces.h"

    static int wait_until_writable(int descriptor) {
        struct pollfd one = {descriptor, POLLOUT, 0};
        int result;
        do
            result = poll(&one, 1, -1);
        while (result < 0 && errno == EINTR);
        return result < 0 ? -1 : 0;
    }

    /* Modifies the pieces: the bytes already sent are removed from them. */
    static int send_waiting(int descriptor, struct iovec *pieces, size_t count) {
        int error;
        while ((error = send_pieces(descriptor, &pieces, &count)) == EAGAIN)
            if (wait_until_writable(descriptor) < 0)
                return -1;
        errno = error;
        return error ? -1 : 0;
    }
    """
    struct iovec:
        void *iov_base
        size_t iov_len

    int send_waiting(int descriptor, iovec *pieces, size_t count) nogil


def send_all(int descriptor, list pieces):
    cdef size_t count = len(pieces), i
    cdef int result, problem = 0
    cdef bytes data
    cdef iovec *each = <iovec *>malloc((count + 1) * sizeof(iovec))
    if each == NULL:
        raise MemoryError
    try:
        for i in range(count):
            data = pieces[i]  # the list keeps it alive while the GIL is released
            each[i].iov_base = PyBytes_AS_STRING(data)
            each[i].iov_len = PyBytes_GET_SIZE(data)
        with nogil:
            result = send_waiting(descriptor, each, count)
            if result < 0:
                problem = errno
    finally:
        free(each)
    if result < 0:
        raise OSError(problem, os.strerror(problem))
