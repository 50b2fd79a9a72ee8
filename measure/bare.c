/* A bare loop: the minimum cost of a listing. It calls getdents64, then statx for each name. With -x
 * it also reads the extended attributes, by listxattrat and getxattrat if the kernel has them,
 * otherwise by path, as getfattr does.
 *
 *   bare [-x] [-t THREADS] DIRECTORY...
 *
 * With threads, the entries of each directory are sorted by inode number, and the threads take runs
 * of 64 entries. Prints the number of entries and a checksum, so that the compiler cannot remove any
 * work. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

struct entry {
    uint64_t ino;
    char *name;
};

static int want_xattrs, has_xattrat = 1;
static struct entry *entries;
static size_t count, room;
static int dir;
static const char *dir_path;
static atomic_size_t next, sum;

struct xattr_args {
    uint64_t value;
    uint32_t size, flags;
};

static long list_of(const char *name, char *list, size_t size)
{
    if (has_xattrat) {
        long len = syscall(465, dir, name, AT_SYMLINK_NOFOLLOW, list, size);
        if (len >= 0 || errno != ENOSYS)
            return len;
        has_xattrat = 0;
    }
    char path[8192];
    snprintf(path, sizeof path, "%s/%s", dir_path, name);
    return llistxattr(path, list, size);
}

static long value_of(const char *name, const char *xattr, char *value, size_t size)
{
    if (has_xattrat) {
        struct xattr_args args = {(uintptr_t)value, (uint32_t)size, 0};
        return syscall(464, dir, name, AT_SYMLINK_NOFOLLOW, xattr, &args, sizeof args);
    }
    char path[8192];
    snprintf(path, sizeof path, "%s/%s", dir_path, name);
    return lgetxattr(path, xattr, value, size);
}

static void read_entry(const char *name)
{
    struct statx st;
    size_t found = 0;
    if (statx(dir, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_BASIC_STATS | STATX_BTIME, &st) == 0)
        found += st.stx_size + st.stx_mtime.tv_nsec;
    if (want_xattrs) {
        static _Thread_local char list[65536], value[65536];
        long len = list_of(name, list, 512);
        if (len < 0 && errno == ERANGE)
            len = list_of(name, list, sizeof list);
        for (long at = 0; at < len; at += strlen(list + at) + 1) {
            /* The kernel clears as much memory as the buffer has, so the first buffer is small. */
            long size = value_of(name, list + at, value, 256);
            if (size < 0 && errno == ERANGE)
                size = value_of(name, list + at, value, sizeof value);
            if (size > 0)
                found += size + value[0];
        }
    }
    atomic_fetch_add_explicit(&sum, found, memory_order_relaxed);
}

static int by_ino(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return (x->ino > y->ino) - (x->ino < y->ino);
}

static void *work(void *unused)
{
    size_t begin;
    while ((begin = atomic_fetch_add(&next, 64)) < count)
        for (size_t at = begin; at < count && at < begin + 64; at++)
            read_entry(entries[at].name);
    return unused;
}

static void list(const char *path, int threads, size_t *total)
{
    static char buffer[65536];
    long len;
    dir_path = path;
    dir = open(path, O_RDONLY | O_DIRECTORY);
    if (dir < 0) {
        perror(path);
        exit(1);
    }
    count = 0;
    while ((len = syscall(SYS_getdents64, dir, buffer, sizeof buffer)) > 0) {
        for (long at = 0; at < len;) {
            struct dirent64 *d = (struct dirent64 *)(buffer + at);
            at += d->d_reclen;
            if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
                continue;
            ++*total;
            if (threads == 1) {
                read_entry(d->d_name);
                continue;
            }
            if (count == room)
                entries = realloc(entries, (room = room ? room * 2 : 1024) * sizeof *entries);
            entries[count++] = (struct entry){d->d_ino, strdup(d->d_name)};
        }
    }
    if (threads > 1) {
        pthread_t all[256];
        qsort(entries, count, sizeof *entries, by_ino);
        next = 0;
        for (int i = 0; i < threads; i++)
            pthread_create(&all[i], 0, work, 0);
        for (int i = 0; i < threads; i++)
            pthread_join(all[i], 0);
        for (size_t i = 0; i < count; i++)
            free(entries[i].name);
    }
    close(dir);
}

int main(int argc, char **argv)
{
    int option, threads = 1;
    size_t total = 0;
    while ((option = getopt(argc, argv, "xt:")) != -1) {
        if (option == 'x')
            want_xattrs = 1;
        else if (option == 't')
            threads = atoi(optarg);
        else
            return 2;
    }
    if (threads < 1 || threads > 256)
        return 2;
    for (; optind < argc; optind++)
        list(argv[optind], threads, &total);
    printf("%zu entries, %zu\n", total, (size_t)sum);
    return 0;
}
