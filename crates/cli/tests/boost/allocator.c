/*
 * A memory allocator that reads its configuration, a link, under its lock when it is first used, as jemalloc does; and a dlsym
 * that allocates, as glibc's did before 2.34.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);

static enum { UNUSED, LOCKED, READY } state;

static void begin(void)
{
    char target[64];
    if (state == READY)
        return;
    /* Whoever holds the lock would wait for it. */
    if (state == LOCKED)
        _exit(99);
    state = LOCKED;
    if (readlink("/proc/self/exe", target, sizeof target) <= 0 || readlinkat(-1, "/proc/self/exe", target, sizeof target) <= 0
        || prctl(PR_GET_DUMPABLE) < 0)
        _exit(98);
    state = READY;
}

void *malloc(size_t size)
{
    begin();
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    begin();
    return __libc_calloc(count, size);
}

void *dlsym(void *handle, const char *name)
{
    static void *(*next)(void *, const char *);
    void *volatile some = malloc(1);
    free(some);
    for (const char *const *version = (const char *[]){"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5", NULL}; next == NULL; version++)
        next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", *version);
    return next(handle, name);
}
