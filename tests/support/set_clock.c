/* Sets the wall clock of one process: the file $SET_CLOCK has the seconds that it is ahead, as a
   little-endian double. Nothing else is touched; the monotonic clock stays as it is. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile double *ahead;

__attribute__((constructor)) static void open_file(void)
{
    const char *path = getenv("SET_CLOCK");
    int descriptor = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return;
    void *place = mmap(NULL, sizeof(double), PROT_READ, MAP_SHARED, descriptor, 0);
    if (place != MAP_FAILED)
        ahead = place;
    close(descriptor);
}

int clock_gettime(clockid_t clock, struct timespec *found)
{
    int result = syscall(SYS_clock_gettime, clock, found);
    if (result == 0 && ahead != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        found->tv_sec += (time_t)*ahead;
    return result;
}

int gettimeofday(struct timeval *found, void *zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    found->tv_sec = now.tv_sec;
    found->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *found)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found != NULL)
        *found = now.tv_sec;
    return now.tv_sec;
}
