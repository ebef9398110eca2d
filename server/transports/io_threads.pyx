# cython: language_level=3
"""Threads that write to the sockets of clients, without the GIL.

More than half of the time of a delivery is the system's copying in `send`. So the engine's thread
leaves large writes, and the writes to many clients at once, to a few threads (io_threads.h):

    SocketWriter.write --- submitted ---> I/O thread: sendmsg, epoll while the socket is full
          ^                                   |
          +-- IoThreads.reap_writes <- done --+   (the event loop polls an eventfd)

A `SocketWriter` has at most one write in progress, so the bytes of a client stay in order. Bytes
that follow are collected meanwhile, and are the next write. A small write to a client without a
write in progress is executed at once, on the engine's thread: handing it over would cost as much,
and a client that talks alone does not wait for another thread. If many clients have output to be
flushed, only single messages count as small.

A client is behind when its socket is full, as without threads, not when a thread is: what waits for
a thread waits here, and goes back to the client's backlog when a thread finds the socket full.

The pieces of a write are not copied. The writer holds a reference to them until the write is done,
and closes its descriptor no earlier: it is a duplicate of the connection's, which the event loop may
close at any time. The loop itself writes nothing meanwhile, so its buffer stays empty.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_Check, PyMemoryView_GET_BUFFER
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport errno
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from posix.unistd cimport close

from amperage.wire.frame_slices cimport SharedFrames, iovec

import os
from collections import deque
from time import monotonic

cdef extern from "io_threads.h":
    ctypedef struct io_write:
        io_write *next
        io_write *next_full
        void *owner
        iovec *unsent
        size_t unsent_count
        int descriptor
        int error
        int is_polled
        size_t thread
        iovec *pieces

    ctypedef struct io_threads:
        int wake
        size_t count

    int EAGAIN
    int SHUT_RDWR
    int shutdown(int descriptor, int how)
    io_threads *io_start(size_t count)
    void io_stop(io_threads *pool) nogil
    void io_submit(io_threads *pool, io_write *write)
    io_write *io_collect(io_threads *pool, io_write **full)
    void io_drain(io_threads *pool) nogil
    int io_is_polled(io_write *write)
    int send_pieces(int descriptor, iovec **pieces, size_t *count)
    void io_wake(int descriptor)
    void io_clear(int descriptor)
    int io_duplicate(int descriptor)

cdef Py_ssize_t MIN_SUBMITTED_BYTES = 16 * 1024  # bytes that are worth a thread: some microseconds

cdef Py_ssize_t MIN_SHORT_BYTES = 2 * 1024  # the same beside MIN_PENDING_OUTBOXES other clients

cdef size_t MIN_PENDING_OUTBOXES = 16

cdef Py_ssize_t MAX_UNSENT_BYTES = 64 * 1024  # while the socket is full; the backlog keeps the others

cdef Py_ssize_t MAX_WAITING_BYTES = 4 * 1024 * 1024  # behind a write whose thread is late

cdef Py_ssize_t MAX_WRITE_BYTES = 512 * 1024  # of one write, and a piece: they stay with the thread


cdef class IoThreads:
    cdef io_threads *_threads
    cdef list _pending_outboxes
    cdef list _full  # writers whose socket was found full
    cdef object _ended  # writers, the errors of their writes, and whether the socket was full
    cdef size_t _submitted_count  # writes ever submitted

    def __init__(self, int count, list pending_outboxes):
        self._pending_outboxes = pending_outboxes
        self._full = []
        self._ended = deque()
        self._threads = io_start(count)
        if self._threads == NULL:
            raise OSError(errno, os.strerror(errno))

    def fileno(self):
        return self._threads.wake

    def reap_writes(self):
        cdef io_write *write
        cdef io_write *next_write
        cdef io_write *full
        if self._threads == NULL:
            return
        io_clear(self._threads.wake)
        next_write = io_collect(self._threads, &full)
        while full != NULL:
            self._full.append(<SocketWriter>full.owner)
            full = full.next_full
        while next_write != NULL:
            write = next_write
            next_write = write.next
            self._ended.append((<SocketWriter>write.owner, write.error, io_is_polled(write)))
            Py_DECREF(<SocketWriter>write.owner)
            free(write)
        try:
            while self._full:
                (<SocketWriter>self._full.pop())._note_full()
            while self._ended:
                writer, error, was_full = self._ended.popleft()
                (<SocketWriter>writer)._end_write(error, was_full)
        except BaseException:
            io_wake(self._threads.wake)  # the others are next
            raise

    def stop(self):
        cdef io_threads *threads = self._threads
        cdef size_t count
        while True:
            count = self._submitted_count
            with nogil:
                io_drain(threads)
            self.reap_writes()
            if self._submitted_count == count:
                break
        self._threads = NULL
        with nogil:
            io_stop(threads)


cdef class SocketWriter:
    cdef readonly Py_ssize_t unsent_bytes
    cdef IoThreads _threads
    cdef int _connection_descriptor
    cdef int _descriptor  # a duplicate; -1 until a thread needs it
    cdef size_t _thread
    cdef io_write *_write  # the write in progress, which threads own; NULL for none
    cdef double _submitted_s
    cdef list _in_progress  # the pieces of the write in progress; None for none
    cdef list _waiting
    cdef Py_ssize_t _waiting_bytes
    cdef bint _was_full  # whether the socket was full during the write before
    cdef bint _is_paused
    cdef bint _is_closed
    cdef bint _uses_transport  # there is no duplicate, or no thread any more
    cdef object _transport
    cdef object _pause
    cdef object _resume
    cdef object _take_back
    cdef object _on_sent

    def __init__(self, IoThreads threads, transport, pause, resume, take_back, on_sent):
        self._threads = threads
        self._transport = transport
        self._connection_descriptor = transport.get_extra_info("socket").fileno()
        self._descriptor = -1
        self._waiting = []
        self._pause = pause
        self._resume = resume
        self._take_back = take_back
        self._on_sent = on_sent

    @property
    def full_since_s(self):
        if self._write != NULL and io_is_polled(self._write):
            return self._submitted_s
        return None

    def write(self, data):
        cdef Py_ssize_t size = len(data)
        if self._is_closed or size == 0:
            return
        if self._in_progress is not None:
            self._waiting.append(data)
            self._waiting_bytes += size
            self.unsent_bytes += size
            if not self._is_paused and (
                self._waiting_bytes >= MAX_WAITING_BYTES
                or self.unsent_bytes >= MAX_UNSENT_BYTES
                and (self._was_full or io_is_polled(self._write))
            ):
                self._is_paused = True
                self._pause()
        elif self._uses_transport:
            self._transport.write(bytes(data))
        elif (
            type(data) is SharedFrames
            or size >= MIN_SUBMITTED_BYTES
            or size >= MIN_SHORT_BYTES
            and <size_t>len(self._threads._pending_outboxes) >= MIN_PENDING_OUTBOXES
        ):
            self._submit([data], size)
        else:
            self._write_now(data, size)

    def abort(self):
        self._waiting = []
        self._waiting_bytes = 0
        if self._in_progress is not None:
            shutdown(self._descriptor, SHUT_RDWR)  # so it ends soon
        self.close()

    def close(self):
        self._is_closed = True
        self._transport = self._pause = self._resume = self._take_back = self._on_sent = None
        if self._in_progress is None and self._descriptor >= 0:
            close(self._descriptor)
            self._descriptor = -1

    cdef _write_now(self, data, Py_ssize_t size):
        """Send what the socket takes; an I/O thread waits until it takes the rest."""
        cdef iovec piece = _piece_of(data)
        cdef iovec *unsent = &piece
        cdef size_t count = 1
        cdef int error = send_pieces(self._connection_descriptor, &unsent, &count)
        if error == EAGAIN:
            rest = data if piece.iov_len == <size_t>size else memoryview(data)[size - piece.iov_len :]
            self._submit([rest], piece.iov_len)
        elif error:
            self._transport.abort()

    cdef _submit_waiting(self):
        """Submit what waits, the first of it if it is much."""
        cdef Py_ssize_t size = 0, count = 0
        while count < len(self._waiting) and size < MAX_WRITE_BYTES:
            size += len(self._waiting[count])
            count += 1
        pieces = self._waiting[:count]
        del self._waiting[:count]
        self._waiting_bytes -= size
        self._submit(pieces, size)

    cdef _note_full(self):
        """Let the backlog keep what waits: the socket is full, so the client may be slow."""
        if self._is_closed or self._write == NULL:
            return
        if self.unsent_bytes >= MAX_UNSENT_BYTES and not self._is_paused:
            self._is_paused = True
            self._pause()
        if not self._is_paused or not self._waiting:
            return
        pieces, size = self._waiting, self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0
        self.unsent_bytes -= size
        if not self._take_back(pieces):
            self._waiting, self._waiting_bytes = pieces, size
            self.unsent_bytes += size

    cdef _submit(self, list pieces, Py_ssize_t size):
        cdef io_write *write
        cdef iovec *to
        cdef SharedFrames parts
        cdef size_t count = 0
        if self._descriptor < 0 and self._threads._threads != NULL:
            self._descriptor = io_duplicate(self._connection_descriptor)
            self._thread = self._threads._submitted_count % self._threads._threads.count
        if self._descriptor < 0 or self._threads._threads == NULL:
            self._uses_transport = True
            for data in pieces:
                self._transport.write(bytes(data))
            return
        for data in pieces:
            count += (<SharedFrames>data).piece_count if type(data) is SharedFrames else 1
        write = <io_write *>malloc(sizeof(io_write) + count * sizeof(iovec))
        if write == NULL:
            self._transport.abort()  # the stream would have a gap
            raise MemoryError
        write.unsent = write.pieces
        write.unsent_count = count
        to = write.pieces
        for data in pieces:
            if type(data) is SharedFrames:
                parts = <SharedFrames>data
                memcpy(to, parts.pieces, parts.piece_count * sizeof(iovec))
                to += parts.piece_count
            else:
                to[0] = _piece_of(data)
                to += 1
        write.descriptor = self._descriptor
        write.thread = self._thread
        write.error = write.is_polled = 0
        write.owner = <void *>self
        Py_INCREF(self)
        self._in_progress = pieces
        self._write = write
        self._submitted_s = monotonic()
        self.unsent_bytes = size + self._waiting_bytes
        self._threads._submitted_count += 1
        io_submit(self._threads._threads, write)

    cdef _end_write(self, int error, bint was_full):
        self._was_full = was_full
        self._in_progress = None
        self._write = NULL
        self.unsent_bytes = self._waiting_bytes
        if error:
            self._waiting = []
            self._waiting_bytes = 0
            if not self._is_closed:
                self._transport.abort()
                return
        elif self._waiting:
            self._submit_waiting()
        if self._is_closed and self._in_progress is None:
            self.close()
        if self._is_paused and not self._is_closed:
            self._is_paused = False
            self._resume()
        if self._in_progress is None and not self._is_closed:
            self._on_sent()


cdef iovec _piece_of(data) except *:
    """Return the address of bytes; the caller keeps them alive."""
    cdef iovec piece
    if PyBytes_CheckExact(data):
        piece.iov_base = PyBytes_AS_STRING(data)
        piece.iov_len = PyBytes_GET_SIZE(data)
    elif not PyMemoryView_Check(data):
        raise TypeError("expected bytes or a memoryview")
    else:
        piece.iov_base = PyMemoryView_GET_BUFFER(data).buf
        piece.iov_len = PyMemoryView_GET_BUFFER(data).len
    return piece
