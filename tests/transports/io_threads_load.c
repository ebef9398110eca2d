/* Writes to many sockets by three I/O threads, while readers read in pieces of random sizes. Ends
   with 1 if any socket has got other bytes, or a write is lost. */

#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "io_threads.h"

enum { SOCKETS = 48, WRITES = 100, MAX_SIZE = 40000, BROKEN = 5 };

typedef struct {
    int ends[2];
    unsigned char next;     /* the byte that is written next */
    size_t written, read;
    unsigned char expected; /* the byte that is read next */
    int writes_left, is_busy, is_broken;
    io_write *write;
    unsigned char bytes[MAX_SIZE];
} peer;

static peer peers[SOCKETS];
static volatile int is_over; /* set under over_lock */
static pthread_mutex_t over_lock = PTHREAD_MUTEX_INITIALIZER;
static int failure_count;

static void *read_all(void *argument) {
    unsigned seed = (unsigned)(size_t)argument;
    static const int readers = 2;
    unsigned char buffer[8192];
    for (;;) {
        int i, over, has_read = 0;
        pthread_mutex_lock(&over_lock);
        over = is_over;
        pthread_mutex_unlock(&over_lock);
        for (i = (int)(size_t)argument; i < SOCKETS; i += readers) {
            peer *one = &peers[i];
            size_t wanted = 1 + (size_t)rand_r(&seed) % sizeof buffer;
            ssize_t j, count = recv(one->ends[1], buffer, wanted, MSG_DONTWAIT);
            for (j = 0; j < count; j++)
                if (buffer[j] != one->expected++) {
                    pthread_mutex_lock(&over_lock);
                    failure_count++;
                    pthread_mutex_unlock(&over_lock);
                    return NULL;
                }
            if (count > 0) {
                one->read += (size_t)count;
                has_read = 1;
            }
        }
        if (over && !has_read)
            return NULL;
    }
}

static void begin_write(io_threads *pool, peer *one, unsigned *seed) {
    size_t size = 1 + (size_t)rand_r(seed) % (MAX_SIZE - 1), half = size / 3, i;
    for (i = 0; i < size; i++)
        one->bytes[i] = one->next++;
    one->write = calloc(1, sizeof(io_write) + 2 * sizeof(struct iovec));
    one->write->pieces[0].iov_base = one->bytes;
    one->write->pieces[0].iov_len = half;
    one->write->pieces[1].iov_base = one->bytes + half;
    one->write->pieces[1].iov_len = size - half;
    one->write->unsent = one->write->pieces;
    one->write->unsent_count = 2;
    one->write->descriptor = one->ends[0];
    one->write->owner = one;
    one->write->thread = (size_t)(one - peers) % 3;
    one->written += size;
    one->writes_left--;
    one->is_busy = 1;
    io_submit(pool, one->write);
}

int main(void) {
    io_threads *pool = io_start(3);
    pthread_t readers[2];
    unsigned seed = 7;
    size_t i;
    int writes = 0, left = SOCKETS;
    if (!pool)
        return 1;
    for (i = 0; i < SOCKETS; i++) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, peers[i].ends) < 0)
            return 1;
        peers[i].writes_left = WRITES;
    }
    for (i = 0; i < 2; i++)
        pthread_create(&readers[i], NULL, read_all, (void *)i);
    for (i = 0; i < SOCKETS; i++, writes++)
        begin_write(pool, &peers[i], &seed);
    while (left) {
        io_write *next, *write, *full;
        io_clear(pool->wake);
        for (write = io_collect(pool, &full); write; write = next) {
            peer *one = write->owner;
            next = write->next;
            if (write->error)
                return 1;
            free(write);
            one->is_busy = 0;
            if (one->writes_left) {
                begin_write(pool, one, &seed);
                writes++;
            } else {
                left--;
            }
        }
    }
    io_drain(pool);
    pthread_mutex_lock(&over_lock);
    is_over = 1;
    pthread_mutex_unlock(&over_lock);
    for (i = 0; i < 2; i++)
        pthread_join(readers[i], NULL);
    for (i = 0; i < SOCKETS; i++)
        failure_count += peers[i].written != peers[i].read;
    /* Writes that wait for their sockets end when these are shut down. */
    for (i = 0; i < BROKEN; i++) {
        size_t k;
        peers[i].writes_left = 1000;
        for (k = 0; k < 20 && !peers[i].is_broken; k++) {
            io_write *write, *full;
            begin_write(pool, &peers[i], &seed);
            io_drain(pool);
            write = io_collect(pool, &full);
            peers[i].is_broken = !write;
            failure_count += peers[i].is_broken != (full == peers[i].write);
            free(write);
        }
        shutdown(peers[i].ends[0], SHUT_RDWR);
        io_write *full, *write = NULL;
        while (!write)
            write = io_collect(pool, &full);
        failure_count += write->error != EPIPE;
        free(write);
    }
    io_stop(pool);
    for (i = 0; i < SOCKETS; i++) {
        close(peers[i].ends[0]);
        close(peers[i].ends[1]);
    }
    printf("%d sockets, %d writes\n", SOCKETS, writes);
    return failure_count != 0;
}
