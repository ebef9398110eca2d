# cython: language_level=3
"""Handles mapped files that lose their content while they are in use, without ending the process.

A thread gets SIGBUS when it touches a page of a memory map that the file does not have any more, since
another process has truncated it, or that the disk cannot read; by default the process ends. Here that
page and all after it in the map are replaced by memory of zeros, and the interrupted code continues: it
reads zeros, which fail every checksum, or writes to memory that is not used. The guard of the file notes
the loss, and readers and writers check the guard afterwards.

The signal is delivered to the thread that touched the page, regardless of the locks that it holds. So
the handler takes no lock, and calls nothing but mmap, which on Linux is only a system call. It
reads a list of ranges that only ever grows at its front: all changes are made under the interpreter's
lock, a range is written before it can be found, and one that is not covered any more has no bytes but
stays in the list (some bytes for each map that there ever was). A range has to be given up before it
is unmapped, since its addresses may belong to another map then.

A bus error anywhere else, or a signal sent by another process, is passed to the previous handler: by
default the system, which ends the process.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uintptr_t

cdef extern from *:
    """
    #include <errno.h>
    #include <signal.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <sys/mman.h>
    #include <unistd.h>

    typedef struct range {
        uintptr_t begin;
        uintptr_t end;        /* equal to begin when nothing is covered any more */
        int *lost;
        struct range *next;
    } range;

    static range *ranges;
    static struct sigaction handler_before;
    static uintptr_t page_mask;

    static int replace_by_zeros(uintptr_t address) {
        range *one = __atomic_load_n(&ranges, __ATOMIC_ACQUIRE);
        for (; one != NULL; one = one->next) {
            uintptr_t end = __atomic_load_n(&one->end, __ATOMIC_ACQUIRE);
            uintptr_t page = address & page_mask;
            if (address < one->begin || address >= end)
                continue;
            if (mmap((void *)page, end - page, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED)
                return 0;
            __atomic_store_n(one->lost, 1, __ATOMIC_RELEASE);
            return 1;
        }
        return 0;
    }

    static void on_bus_error(int number, siginfo_t *info, void *context) {
        int error = errno;
        if (info->si_code > 0 && replace_by_zeros((uintptr_t)info->si_addr)) {
            errno = error;
            return;
        }
        if (handler_before.sa_flags & SA_SIGINFO) {
            handler_before.sa_sigaction(number, info, context);
        } else if (handler_before.sa_handler != SIG_DFL && handler_before.sa_handler != SIG_IGN) {
            handler_before.sa_handler(number);
        } else {
            signal(number, SIG_DFL);
            if (info->si_code <= 0)
                raise(number);  /* nothing will touch that page again */
        }
        errno = error;
    }

    static int install_handler(void) {
        struct sigaction action = {0};
        page_mask = ~(uintptr_t)(sysconf(_SC_PAGESIZE) - 1);
        action.sa_sigaction = on_bus_error;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigemptyset(&action.sa_mask);
        return sigaction(SIGBUS, &action, &handler_before);
    }

    static int cover_range(uintptr_t begin, uintptr_t end, int *lost) {
        range *one = malloc(sizeof(range));
        if (one == NULL)
            return -1;
        one->begin = begin;
        one->end = end;
        one->lost = lost;
        one->next = ranges;
        __atomic_store_n(&ranges, one, __ATOMIC_RELEASE);
        return 0;
    }

    static void give_up_ranges(const int *lost, uintptr_t begin, int all) {
        for (range *one = ranges; one != NULL; one = one->next)
            if (one->lost == lost && (all || one->begin == begin))
                __atomic_store_n(&one->end, one->begin, __ATOMIC_RELEASE);
    }
    """
    int install_handler()
    int cover_range(uintptr_t begin, uintptr_t end, int *lost)
    void give_up_ranges(const int *lost, uintptr_t begin, int every)


cdef class MapGuard:
    """See map_guard.pyi."""

    def __dealloc__(self):
        give_up_ranges(&self.lost, 0, True)

    def cover(self, mapped):
        """See map_guard.pyi."""
        cdef Py_buffer view
        PyObject_GetBuffer(mapped, &view, PyBUF_SIMPLE)
        cdef uintptr_t begin = <uintptr_t> view.buf
        cdef int outcome = cover_range(begin, begin + view.len, &self.lost)
        PyBuffer_Release(&view)
        if outcome:
            raise MemoryError

    def give_up(self, mapped):
        """See map_guard.pyi."""
        cdef Py_buffer view
        PyObject_GetBuffer(mapped, &view, PyBUF_SIMPLE)
        give_up_ranges(&self.lost, <uintptr_t> view.buf, False)
        PyBuffer_Release(&view)


if install_handler():
    raise OSError("no handler for SIGBUS can be installed")
