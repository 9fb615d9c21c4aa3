/* Loaded before the C library: the wall clock of the process is as wrong as a file says, in whole
   seconds. The file is read at each call, so that the clock can step. Every other clock is true. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long ahead_s(void) {
    char text[32] = "";
    const char *path = getenv("WRONG_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
    close(file);
    return atol(text);
}

int clock_gettime(clockid_t which, struct timespec *at) {
    static int (*true_time)(clockid_t, struct timespec *);
    if (!true_time) *(void **)&true_time = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = true_time(which, at);
    if (!failed && which == CLOCK_REALTIME) at->tv_sec += ahead_s();
    return failed;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
