/* Sending pieces of memory over a socket, without waiting. */

#ifndef AMPERAGE_SEND_PIECES_H
#define AMPERAGE_SEND_PIECES_H

#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define MAX_PIECES_OF_CALL 1024 /* IOV_MAX of Linux */

/* Send as much as the socket takes, and remove that from the pieces. Return 0, or the error; EAGAIN
   if the rest has to wait. */
static int send_pieces(int descriptor, struct iovec **pieces, size_t *count) {
    while (*count) {
        struct msghdr message = {0};
        ssize_t sent;
        message.msg_iov = *pieces;
        message.msg_iovlen = *count < MAX_PIECES_OF_CALL ? *count : MAX_PIECES_OF_CALL;
        sent = sendmsg(descriptor, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
            if (errno == EINTR)
                continue;
            return errno == EWOULDBLOCK ? EAGAIN : errno;
        }
        while (*count && (size_t)sent >= (*pieces)->iov_len) {
            sent -= (ssize_t)(*pieces)->iov_len;
            ++*pieces;
            --*count;
        }
        if (*count) {
            (*pieces)->iov_base = (char *)(*pieces)->iov_base + sent;
            (*pieces)->iov_len -= (size_t)sent;
        }
    }
    return 0;
}

#endif
