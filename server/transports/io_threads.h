/* Threads that write to sockets, outside of the interpreter; see io_threads.pyx.

   A write belongs to the engine's thread until it is submitted, to an I/O thread until it is done,
   and to the engine's thread again when it is taken from the list of the writes that are done. */

#ifndef AMPERAGE_IO_THREADS_H
#define AMPERAGE_IO_THREADS_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../util/send_pieces.h"

#define IO_MAX_EVENTS 64       /* sockets that one poll reports */

typedef struct io_write {
    struct io_write *next;
    struct io_write *next_full; /* see io_threads.full */
    void *owner;
    struct iovec *unsent; /* the first piece that is not sent completely */
    size_t unsent_count;
    int descriptor;
    int error;     /* errno; 0 if all is sent */
    int is_polled; /* whether the socket has been full; also read by the engine's thread */
    size_t thread; /* the number of its thread */
    struct iovec pieces[];
} io_write;

typedef struct {
    io_write *first;
    io_write *last;
} io_list;

typedef struct {
    struct io_threads *pool;
    pthread_t thread;
    pthread_mutex_t lock;
    io_list submitted;     /* guarded by lock */
    int is_stopping;   /* guarded by lock */
    int is_polling;    /* guarded by lock: whether it has to be woken for submitted writes */
    int wake;          /* an eventfd */
    int epoll;
} io_thread;

typedef struct io_threads {
    pthread_mutex_t lock;
    pthread_cond_t idle;
    io_list done;       /* guarded by lock */
    io_write *full;     /* guarded by lock: writes whose sockets have been found full since */
    size_t busy_count;  /* guarded by lock: writes that wait for a thread, not for their socket */
    int wake;           /* an eventfd: readable while there are writes that are done */
    size_t count;
    io_thread threads[];
} io_threads;

static void io_append(io_list *list, io_write *write) {
    write->next = NULL;
    if (list->last)
        list->last->next = write;
    else
        list->first = write;
    list->last = write;
}

static io_write *io_take(io_list *list) {
    io_write *first = list->first;
    list->first = list->last = NULL;
    return first;
}

static void io_wake(int descriptor) {
    uint64_t one = 1;
    while (write(descriptor, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

static void io_clear(int descriptor) {
    uint64_t count;
    while (read(descriptor, &count, sizeof count) < 0 && errno == EINTR)
        ;
}

static int io_is_polled(io_write *write) {
    return __atomic_load_n(&write->is_polled, __ATOMIC_RELAXED);
}

/* Tell the engine's thread that the socket of a write is full. */
static void io_report_full(io_threads *pool, io_write *write) {
    int is_first;
    pthread_mutex_lock(&pool->lock);
    is_first = !pool->done.first && !pool->full;
    write->next_full = pool->full;
    pool->full = write;
    pthread_mutex_unlock(&pool->lock);
    if (is_first)
        io_wake(pool->wake);
}

static int io_poll(io_thread *thread, io_write *write) {
    struct epoll_event event = {0};
    int was_polled = io_is_polled(write);
    int operation = was_polled ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    event.events = EPOLLOUT | EPOLLONESHOT;
    event.data.ptr = write;
    __atomic_store_n(&write->is_polled, 1, __ATOMIC_RELAXED);
    if (!was_polled)
        io_report_full(thread->pool, write);
    return epoll_ctl(thread->epoll, operation, write->descriptor, &event) < 0 ? errno : 0;
}

static void io_change_busy(io_threads *pool, int change) {
    pthread_mutex_lock(&pool->lock);
    pool->busy_count += (size_t)change;
    if (!pool->busy_count)
        pthread_cond_broadcast(&pool->idle);
    pthread_mutex_unlock(&pool->lock);
}

/* Send what the socket takes. Poll it if there is more, else the write is done. */
static void io_advance(io_thread *thread, io_write *write) {
    io_threads *pool = thread->pool;
    int is_first, error = send_pieces(write->descriptor, &write->unsent, &write->unsent_count);
    if (error == EAGAIN) {
        /* Counted first: when it is polled, another event may follow at once. */
        io_change_busy(pool, -1);
        error = io_poll(thread, write);
        if (!error)
            return;
        io_change_busy(pool, 1);
    }
    if (io_is_polled(write))
        epoll_ctl(thread->epoll, EPOLL_CTL_DEL, write->descriptor, NULL);
    write->error = error;
    pthread_mutex_lock(&pool->lock);
    is_first = !pool->done.first && !pool->full;
    io_append(&pool->done, write);
    if (!--pool->busy_count)
        pthread_cond_broadcast(&pool->idle);
    pthread_mutex_unlock(&pool->lock);
    if (is_first)
        io_wake(pool->wake);
}

/* Return the writes submitted; set whether the thread is to end, else whether it has to poll. */
static io_write *io_next_writes(io_thread *thread, int *is_stopping) {
    io_write *first;
    pthread_mutex_lock(&thread->lock);
    first = io_take(&thread->submitted);
    *is_stopping = thread->is_stopping;
    thread->is_polling = !first;
    pthread_mutex_unlock(&thread->lock);
    return first;
}

static void *io_run(void *argument) {
    io_thread *thread = argument;
    struct epoll_event events[IO_MAX_EVENTS];
    prctl(PR_SET_NAME, "io");
    for (;;) {
        int is_stopping, i, count;
        io_write *next, *write = io_next_writes(thread, &is_stopping);
        int wait = write ? 0 : -1;
        if (!write && is_stopping)
            return NULL;
        for (; write; write = next) {
            next = write->next;
            io_advance(thread, write);
        }
        count = epoll_wait(thread->epoll, events, IO_MAX_EVENTS, wait);
        for (i = 0; i < count; i++) {
            if (!events[i].data.ptr) {
                io_clear(thread->wake);
                continue;
            }
            io_change_busy(thread->pool, 1);
            io_advance(thread, events[i].data.ptr);
        }
    }
}

/* Give a write to the thread of its socket. */
static void io_submit(io_threads *pool, io_write *write) {
    io_thread *thread = &pool->threads[write->thread];
    int has_to_wake;
    io_change_busy(pool, 1);
    pthread_mutex_lock(&thread->lock);
    io_append(&thread->submitted, write);
    has_to_wake = thread->is_polling;
    thread->is_polling = 0;
    pthread_mutex_unlock(&thread->lock);
    if (has_to_wake)
        io_wake(thread->wake);
}

/* Return the writes that are done. Set those whose sockets have been found full, which are in
   progress or among those that are done. */
static io_write *io_collect(io_threads *pool, io_write **full) {
    io_write *first;
    pthread_mutex_lock(&pool->lock);
    first = io_take(&pool->done);
    *full = pool->full;
    pool->full = NULL;
    pthread_mutex_unlock(&pool->lock);
    return first;
}

/* Wait until sockets have taken what they take at once. */
static void io_drain(io_threads *pool) {
    pthread_mutex_lock(&pool->lock);
    while (pool->busy_count)
        pthread_cond_wait(&pool->idle, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

static int io_start_thread(io_threads *pool, io_thread *thread) {
    struct epoll_event event = {0};
    sigset_t blocked, before;
    int error;
    thread->pool = pool;
    pthread_mutex_init(&thread->lock, NULL);
    thread->wake = eventfd(0, EFD_CLOEXEC);
    thread->epoll = epoll_create1(EPOLL_CLOEXEC);
    event.events = EPOLLIN;
    if (thread->wake < 0 || thread->epoll < 0
        || epoll_ctl(thread->epoll, EPOLL_CTL_ADD, thread->wake, &event) < 0)
        return errno;
    sigfillset(&blocked); /* signals are for the interpreter's threads */
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    error = pthread_create(&thread->thread, NULL, io_run, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static void io_end_thread(io_thread *thread) {
    pthread_mutex_lock(&thread->lock);
    thread->is_stopping = 1;
    thread->is_polling = 0;
    pthread_mutex_unlock(&thread->lock);
    io_wake(thread->wake);
    pthread_join(thread->thread, NULL);
}

static void io_close_thread(io_thread *thread) {
    if (thread->wake >= 0)
        close(thread->wake);
    if (thread->epoll >= 0)
        close(thread->epoll);
    pthread_mutex_destroy(&thread->lock);
}

/* End the threads, after they have sent what sockets take at once. */
static void io_stop(io_threads *pool) {
    size_t i;
    for (i = 0; i < pool->count; i++) {
        io_end_thread(&pool->threads[i]);
        io_close_thread(&pool->threads[i]);
    }
    close(pool->wake);
    pthread_cond_destroy(&pool->idle);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

/* Start threads. Return NULL, with errno set, if the system does not allow it. */
static io_threads *io_start(size_t count) {
    io_threads *pool = calloc(1, sizeof *pool + count * sizeof(io_thread));
    int error;
    if (!pool)
        return NULL;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->idle, NULL);
    pool->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    error = pool->wake < 0 ? errno : 0;
    while (!error && pool->count < count) {
        error = io_start_thread(pool, &pool->threads[pool->count]);
        if (error)
            io_close_thread(&pool->threads[pool->count]);
        else
            pool->count++;
    }
    if (!error)
        return pool;
    io_stop(pool);
    errno = error;
    return NULL;
}

/* Return a duplicate of a descriptor; -1 if connections could need the descriptor themselves: the
   first half of those that the process may have is for connections and their duplicates. */
static int io_duplicate(int descriptor) {
    struct rlimit limit;
    int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (copy >= 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY
        && (rlim_t)copy >= limit.rlim_cur / 2) {
        close(copy);
        copy = -1;
    }
    return copy;
}

#endif
