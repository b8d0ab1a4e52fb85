/* Preloaded, it makes a process's clock wrong by CLOCK_SHIFT seconds, or by the number (a long) that is in the file
   CLOCK_SHIFT_FILE at any moment. Clocks that only measure go right.
   Why not libfaketime: its clock_nanosleep refuses what Python's time.sleep asks for. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile long *shared;

__attribute__((constructor)) static void share(void) {
    const char *path = getenv("CLOCK_SHIFT_FILE");
    int file = path ? open(path, O_RDONLY) : -1;
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) shared = mapped;
}

static time_t shift(void) {
    if (shared) return *shared;
    const char *text = getenv("CLOCK_SHIFT");
    return text ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec precise;
    int failed = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *now) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now) *now = precise.tv_sec;
    return precise.tv_sec;
}

/* Who waits until a time by the shifted clock would wait for the shift as well: the kernel's clock is not shifted. */
int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    typedef int (*wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    static wait real;
    if (!real) real = (wait)dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real) real = (wait)dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    struct timespec unshifted = *until;
    if (unshifted.tv_sec > 1000000000) unshifted.tv_sec -= shift(); /* else it is by a clock that measures */
    return real(condition, mutex, &unshifted);
}
