# cython: language_level=3
"""Sends large amounts of data over a non-blocking socket, without holding the GIL."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport errno
from libc.stdlib cimport free, malloc

import os

cdef extern from *:
    """
    #include <errno.h>
    #include <poll.h>
    #include <sys/socket.h>
    #include <sys/uio.h>

    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0
    #endif
    #define MAX_TOGETHER 64

    static int wait_until_writable(int descriptor) {
        struct pollfd one = {descriptor, POLLOUT, 0};
        int result;
        do
            result = poll(&one, 1, -1);
        while (result < 0 && errno == EINTR);
        return result < 0 ? -1 : 0;
    }

    /* Modifies the pieces: the bytes already sent are removed from them. */
    static int send_pieces(int descriptor, struct iovec *pieces, size_t count) {
        while (count) {
            struct msghdr message = {0};
            ssize_t sent;
            message.msg_iov = pieces;
            message.msg_iovlen = count < MAX_TOGETHER ? count : MAX_TOGETHER;
            sent = sendmsg(descriptor, &message, MSG_NOSIGNAL);
            if (sent < 0) {
                if (errno == EINTR)
                    continue;
                if ((errno != EAGAIN && errno != EWOULDBLOCK)
                    || wait_until_writable(descriptor) < 0)
                    return -1;
                continue;
            }
            while (count && (size_t)sent >= pieces->iov_len) {
                sent -= (ssize_t)pieces->iov_len;
                pieces++;
                count--;
            }
            if (count) {
                pieces->iov_base = (char *)pieces->iov_base + sent;
                pieces->iov_len -= (size_t)sent;
            }
        }
        return 0;
    }
    """
    struct iovec:
        void *iov_base
        size_t iov_len

    int send_pieces(int descriptor, iovec *pieces, size_t count) nogil


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
            result = send_pieces(descriptor, each, count)
            if result < 0:
                problem = errno
    finally:
        free(each)
    if result < 0:
        raise OSError(problem, os.strerror(problem))
