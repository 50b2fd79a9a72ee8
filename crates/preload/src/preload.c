/*
 * The library that `pando boost` loads into programs.
 *
 * It replaces the C library's functions that read directories. It reports to a helper outside which
 * directory is being read, by a descriptor, and how far, and then calls the replaced function. It
 * answers nothing itself. It allocates nothing, starts no thread, handles no signal, keeps no
 * descriptor, and writes to no memory that the helper reads. errno is as the C library left it. The
 * documentation of the crate has the reasons.
 *
 * The C library's own scandir, fts, nftw and glob call its readdir without the dynamic linker, so
 * they are replaced too. opendir needs no hook: a directory that is opened and not read is not
 * reported.
 *
 * This is one file of some 800 lines: the hooks share static state (the page, the table of streams,
 * the replaced functions), and the build script compiles and embeds a single file.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <fts.h>
#else
#include <pthread.h>
#endif

#if __SIZEOF_POINTER__ != 8
#error "structures with and without 64-bit offsets are taken to be the same"
#endif

#define HOOK __attribute__((visibility("default")))
#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_RELAXED)

/*
 * ---- The helper's page, which it writes and programs read. It is written by
 * crates/boost/src/board.rs.
 */

#define BOARD_MAGIC UINT64_C(0x34746f6f626f6470) /* "pdoboot4" */
#define BOARD_DEVICES 32
#define NEVER UINT32_MAX
#define CLOSELY 64 /* for so many directories of a process, all devices are looked up */

struct board {
    uint64_t magic;
    uint32_t alive; /* 0: the helper has ended */
    uint32_t count; /* devices below */
    uint32_t every; /* look up the device of one directory in so many; at most 8 */
    char socket[108]; /* the path of the helper's socket, and which inode it is */
    uint64_t socket_device, socket_inode;
    uint64_t filters; /* the helper's seccomp mode and filters; see below */
    struct {
        uint64_t device;   /* major << 32 | minor */
        uint32_t interval; /* report one directory in so many; NEVER: none */
        uint32_t reserved;
    } devices[BOARD_DEVICES];
};

static const struct board *board;

/* Set for good if the helper cannot be reached, or if a filter may refuse a system call of ours. */
static bool silent;

/*
 * The number of directories that were read, in all and on each device. With an interval of n, each
 * n-th is reported.
 */
static uint32_t directories, turns[BOARD_DEVICES];

static bool listening(void)
{
    return board != NULL && !LOAD(silent) && LOAD(board->alive) != 0;
}

static uint64_t device_number(unsigned int high, unsigned int low)
{
    return (uint64_t)high << 32 | low;
}

/* The interval of a device. `turn` points to its count of directories. */
static uint32_t interval_of(uint64_t device, uint32_t **turn)
{
    uint32_t count = LOAD(board->count);
    for (uint32_t i = 0; i < count && i < BOARD_DEVICES; i++) {
        if (LOAD(board->devices[i].device) == device) {
            *turn = &turns[i];
            return LOAD(board->devices[i].interval);
        }
    }
    return 1;
}

/* Whether to report a directory on this device. It counts as `step` directories. */
static bool is_due(uint64_t device, uint32_t step)
{
    uint32_t *turn = NULL;
    uint32_t interval = interval_of(device, &turn);
    if (interval <= 1)
        return true;
    return interval != NEVER && __atomic_fetch_add(turn, step, __ATOMIC_RELAXED) % interval < step;
}

/* statx as far as the kernel knows the answer without asking a server. */
static bool statx_cached(int directory, const char *path, int flags, struct statx *found)
{
    return syscall(SYS_statx, directory, path, flags | AT_STATX_DONT_SYNC, STATX_INO, found) == 0;
}

/* The device of an open directory. */
static bool device_of(int directory, const char *path, uint64_t *device)
{
    struct statx found;
    if (!statx_cached(directory, path, *path == '\0' ? AT_EMPTY_PATH : 0, &found))
        return false;
    *device = device_number(found.stx_dev_major, found.stx_dev_minor);
    return true;
}

/*
 * Whether the path is the helper's socket here too. With another root or in another mount
 * namespace, another process may listen at it, and must not get a descriptor of a directory of this
 * program.
 */
static bool leads_to_helper(const char *path)
{
    struct statx found;
    return statx_cached(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, &found) && found.stx_ino == board->socket_inode
        && device_number(found.stx_dev_major, found.stx_dev_minor) == board->socket_device;
}

/*
 * Whether to report a directory whose device is not known yet. After many directories, and if calls
 * are fast on all devices of the page, most directories cost no system call at all. The price is
 * that the first few directories on a new device are missed.
 */
static bool is_due_at(int directory, const char *path)
{
    uint64_t device;
    if (LOAD(board->count) == 0)
        return true;
    uint32_t before = __atomic_fetch_add(&directories, 1, __ATOMIC_RELAXED);
    uint32_t every = before < CLOSELY ? 1 : LOAD(board->every);
    if (every > 1 && before % every != 0)
        return false;
    return device_of(directory, path, &device) && is_due(device, every > 1 ? every : 1);
}

/*
 * ---- Reporting. A child gets all descriptors of its parent, and keeps them until it executes
 * another program. So no thread reports while a thread forks.
 */

/*
 * The number of threads that report, of threads that fork, and of reports by this thread: a signal
 * handler may report or fork during a report. A thread that leaves a report by longjmp stays
 * counted until a fork has waited for it in vain. So the count may also be too low.
 */
static int32_t reporting, forking;
static __thread int32_t telling_here;

static bool begin_to_tell(void)
{
    __atomic_fetch_add(&reporting, 1, __ATOMIC_SEQ_CST);
    telling_here++;
    return __atomic_load_n(&forking, __ATOMIC_SEQ_CST) == 0;
}

static void end_telling(void)
{
    telling_here--;
    __atomic_fetch_sub(&reporting, 1, __ATOMIC_SEQ_CST);
}

/*
 * For a second at most: a path may lead to a store that does not answer, and then one descriptor
 * too many is less harmful.
 */
static void before_fork(void)
{
    int kept = errno;
    __atomic_fetch_add(&forking, 1, __ATOMIC_SEQ_CST);
    int waits = 10000;
    while (__atomic_load_n(&reporting, __ATOMIC_SEQ_CST) > telling_here && waits-- > 0)
        syscall(SYS_nanosleep, &(struct timespec){0, 100000}, NULL);
    if (waits < 0)
        __atomic_store_n(&reporting, telling_here, __ATOMIC_SEQ_CST);
    errno = kept;
}

static void after_fork(void)
{
    __atomic_fetch_sub(&forking, 1, __ATOMIC_SEQ_CST);
}

/* The child has no other threads. */
static void after_fork_in_child(void)
{
    __atomic_store_n(&forking, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&reporting, telling_here, __ATOMIC_SEQ_CST);
}

/* How the program uses links: see crates/boost/src/posts.rs. */
enum links { UNREAD, READ, FIRST_READ };

/* Set for good when the program has read the target of a link. */
static bool reads_links;

struct post {
    uint64_t magic;
    uint64_t token; /* identifies a reading of a directory; 0: no more posts of it will follow */
    uint64_t seen;  /* names that the program has read */
    uint64_t position; /* where it reads next; 0 if it has read none */
    uint64_t links; /* an `enum links` */
};

/*
 * Sends one datagram with a descriptor of the directory, over a socket made for it. A descriptor
 * that is kept would be in the way of programs that close all, or rely on the next number. The
 * program's own descriptor is not sent: until the helper has read the message, it would keep a
 * lock, or the directory itself. With O_PATH, a server sees no request. System calls are made
 * directly, since the C library's functions are points where a thread may be cancelled. The caller
 * keeps errno.
 */
static void report_now(int base, const char *path, struct post post)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {.space = {0}};
    struct iovec part = {&post, sizeof post};
    struct msghdr message = {
        .msg_name = &address,
        .msg_namelen = sizeof address,
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof control,
    };
    memcpy(address.sun_path, board->socket, sizeof board->socket);
    if (!leads_to_helper(address.sun_path)) {
        __atomic_store_n(&silent, true, __ATOMIC_RELAXED);
        return;
    }
    int directory = syscall(SYS_openat, base, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return;
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof directory);
    memcpy(CMSG_DATA(rights), &directory, sizeof directory);

    int channel = syscall(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (channel >= 0) {
        long sent = syscall(SYS_sendmsg, channel, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        /* A full queue (EAGAIN) is temporary. A policy is not. */
        if (sent < 0 && (errno == ECONNREFUSED || errno == EACCES || errno == EPERM))
            __atomic_store_n(&silent, true, __ATOMIC_RELAXED);
        syscall(SYS_close, channel);
    }
    syscall(SYS_close, directory);
}

/*
 * Set when anything was reported. A program that reads links before that resolves a path, and lists
 * nothing.
 */
static bool reported;

static void report(int base, const char *path, struct post post)
{
    if (post.links == UNREAD && LOAD(reads_links))
        post.links = READ;
    __atomic_store_n(&reported, true, __ATOMIC_RELAXED);
    if (begin_to_tell())
        report_now(base, path, post);
    end_telling();
}

/* Reports the directory at `path`, which the C library is about to read as a whole. */
static void report_path(int base, const char *path)
{
    report(base, path, (struct post){BOARD_MAGIC, 0, UINT64_MAX, 0, UNREAD});
}

static void about_to_read_path(int base, const char *path)
{
    int kept = errno;
    if (listening() && path != NULL && *path != '\0' && is_due_at(base, path))
        report_path(base, path);
    errno = kept;
}

/* The same, if the device is known. */
static void about_to_read_on(dev_t device, const char *path)
{
    int kept = errno;
    if (listening() && is_due(device_number(major(device), minor(device)), 1))
        report_path(AT_FDCWD, path);
    errno = kept;
}

/*
 * ---- Links. Targets are asked for ahead only for a program that reads some itself, since that may
 * change the atime. When the program reads its first one, the attributes of the names around it may
 * already have been asked for. So the first one is reported at once, and later ones never.
 */

/*
 * Whether the path of a link is as it was before its target was stored. A program may pass one
 * buffer for both. Then the path is now the target, without a zero byte at its end, or the end of
 * the path is overwritten by the target.
 */
static bool is_intact(const char *link, const char *target, size_t room)
{
    uintptr_t from = (uintptr_t)link, to = (uintptr_t)target;
    if (from >= to)
        return from - to >= room;
    return to - from >= PATH_MAX || strnlen(link, to - from) < to - from;
}

static void read_first_link(int base, const char *link)
{
    char path[PATH_MAX];
    size_t above = strnlen(link, sizeof path);
    if (!listening() || above == 0 || above >= sizeof path - 1 || strncmp(link, "/proc/", 6) == 0)
        return;
    __atomic_store_n(&reads_links, true, __ATOMIC_RELAXED);
    while (above > 0 && link[above - 1] != '/')
        above--;
    memcpy(path, link, above);
    strcpy(path + above, ".");
    if (is_due_at(base, path))
        report(base, path, (struct post){BOARD_MAGIC, 0, 0, 0, FIRST_READ});
}

static ssize_t after_link(ssize_t result, int base, const char *link, const char *target, size_t room)
{
    if (result >= 0 && LOAD(reported) && !LOAD(reads_links) && is_intact(link, target, room)) {
        int kept = errno;
        read_first_link(base, link);
        errno = kept;
    }
    return result;
}

/* ---- Directories that are being read: a fixed table, indexed by the stream's address. */

#define ROWS 32
#define COLUMNS 8
#define STEP 1024 /* names between two posts of one directory */

static struct reading {
    DIR *stream;    /* guards the rest: one thread at a time reads a stream */
    uint64_t token;
    uint64_t seen;
} readings[ROWS][COLUMNS];

static uint64_t last_token; /* with the PID, unique in a directory for long enough */

static struct reading *row_of(DIR *stream)
{
    return readings[((uintptr_t)stream >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 59];
}

static void first_read(DIR *stream, struct reading *row)
{
    for (int i = 0; i < COLUMNS; i++) {
        DIR *none = NULL;
        if (!__atomic_compare_exchange_n(&row[i].stream, &none, stream, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            continue;
        int directory = dirfd(stream);
        row[i].token = __atomic_add_fetch(&last_token, 1, __ATOMIC_RELAXED) | (uint64_t)getpid() << 40;
        row[i].seen = 0;
        if (is_due_at(directory, ""))
            report(directory, ".", (struct post){BOARD_MAGIC, row[i].token, 0, 0, UNREAD});
        return;
    }
    /* More streams are open than fit: this one is read without the library's help. */
}

/*
 * A large directory is reported repeatedly: the helper stays somewhat ahead of the program, and not
 * more.
 */
static void read_on(DIR *stream, struct reading *reading)
{
    if (++reading->seen % STEP != STEP / 2)
        return;
    int directory = dirfd(stream);
    uint64_t device;
    uint32_t *turn;
    if (!device_of(directory, "", &device) || interval_of(device, &turn) == NEVER)
        return;
    long position = syscall(SYS_lseek, directory, 0, SEEK_CUR);
    report(directory, ".", (struct post){BOARD_MAGIC, reading->token, reading->seen, position < 0 ? 0 : position, UNREAD});
}

static void about_to_read(DIR *stream)
{
    if (!listening() || stream == NULL)
        return;
    int kept = errno;
    struct reading *row = row_of(stream);
    int i = 0;
    while (i < COLUMNS && LOAD(row[i].stream) != stream)
        i++;
    if (i < COLUMNS)
        read_on(stream, &row[i]);
    else
        first_read(stream, row);
    errno = kept;
}

static void about_to_close(DIR *stream)
{
    struct reading *row = row_of(stream);
    for (int i = 0; stream != NULL && i < COLUMNS; i++) {
        if (LOAD(row[i].stream) == stream)
            __atomic_store_n(&row[i].stream, NULL, __ATOMIC_RELEASE);
    }
}

/* ---- The replaced functions. */

#ifdef __GLIBC__
#define EACH_GLIBC(X)                                                                                                   \
    X(readdir64) X(readdir64_r) X(scandir64) X(scandirat) X(scandirat64) X(ftw64) X(nftw64) X(glob64)                   \
    X(fts_read) X(fts_children) X(fts64_read) X(fts64_children)
#else
#define EACH_GLIBC(X)
#endif
#define EACH(X)                                                                                                         \
    X(readdir) X(readdir_r) X(closedir) X(scandir) X(ftw) X(nftw) X(glob) X(readlink) X(readlinkat) X(chroot) X(prctl)      \
    EACH_GLIBC(X)

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* readdir_r is still called by old programs */
#define DECLARE(name) static __typeof__(&name) next_##name;
EACH(DECLARE)

/*
 * musl (1.2.4) hides the names for 64-bit offsets from dlsym. There, they are the names without the
 * number.
 */
static void *find(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    const char *number = strstr(name, "64");
    if (found != NULL || number == NULL)
        return found;
    char plain[32] = "";
    memcpy(plain, name, (size_t)(number - name));
    return dlsym(RTLD_NEXT, strcat(plain, number + 2));
}

static void find_next(void)
{
#define FIND(name) next_##name = (__typeof__(&name))find(#name);
    EACH(FIND)
    dlerror();
}

/* Constructors of other libraries may call a hook before our constructor has run. */
#define NEXT(name) (next_##name != NULL ? next_##name : (find_next(), next_##name))

/*
 * Memory allocators read links, and call prctl, under their lock when they are first used. That may
 * be before our constructor. To look up a name may allocate (in glibc before 2.34), and would wait
 * for the lock for ever. So these hooks then make the system call that the C library would make.
 */
#ifdef SYS_readlink
#define CALL_READLINK SYS_readlink
#else
#define CALL_READLINK SYS_readlinkat, AT_FDCWD
#endif

#ifdef __GLIBC__
/*
 * Whether a program with musl has loaded the library, although it was compiled with glibc's
 * headers. An fts has other structures there.
 */
extern const char *gnu_get_libc_version(void) __attribute__((weak));
#define IN_MUSL (gnu_get_libc_version == NULL)
#else
#define IN_MUSL false
#endif

static char *preload_variable;

/*
 * The number after a name in the text of /proc/self/status. The C library's strtoull has another
 * name in newer versions.
 */
static uint64_t number_of(const char *text, const char *name)
{
    uint64_t number = 0;
    const char *at = strstr(text, name);
    for (at = at == NULL ? "" : at + strlen(name) + 1; *at >= '0' && *at <= '9'; at++)
        number = number * 10 + (uint64_t)(*at - '0');
    return number;
}

/*
 * The filters on this process's system calls (seccomp), as a number. The process that started it
 * without another filter has the same number. One more filter may end a program for a call that it
 * was never seen to make. Where filters are not counted (before Linux 5.9), no process has the
 * number of one with filters.
 */
static uint64_t filters(void)
{
    char status[1 << 14]; /* all of it in one read, except for users with hundreds of groups */
    int file = syscall(SYS_openat, AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC);
    long length = file < 0 ? -1 : syscall(SYS_read, file, status, sizeof status);
    if (file >= 0)
        syscall(SYS_close, file);
    if (length < 0 || length == sizeof status)
        return UINT64_MAX;
    status[length] = '\0';
    uint64_t mode = number_of(status, "\nSeccomp:");
    if (mode != 0 && strstr(status, "\nSeccomp_filters:") == NULL)
        return UINT64_MAX;
    return mode << 32 | number_of(status, "\nSeccomp_filters:");
}

/* glibc has pthread_atfork in its static part, under this name. musl has no such name. */
#ifdef __GLIBC__
extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *) __attribute__((weak));
#else
#define __register_atfork(before, parent, child, handle) pthread_atfork(before, parent, child)
#endif

static void heed_forks(void)
{
    if (!IN_MUSL) {
        __register_atfork(before_fork, after_fork, after_fork_in_child, NULL);
        return;
    }
    int (*at_fork)(void (*)(void), void (*)(void), void (*)(void)) =
        (__typeof__(at_fork))dlsym(RTLD_DEFAULT, "pthread_atfork");
    if (at_fork != NULL)
        at_fork(before_fork, after_fork, after_fork_in_child);
}

__attribute__((constructor)) static void start(void)
{
    int kept = errno;
    if (next_readdir == NULL)
        find_next();
    const char *path = getenv("PANDO_BOOST");
    preload_variable = getenv("LD_PRELOAD");
    int file = path == NULL ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (file >= 0) {
        struct stat found;
        const struct board *page = MAP_FAILED;
        if (fstat(file, &found) == 0 && found.st_size >= (off_t)sizeof *page)
            page = mmap(NULL, sizeof *page, PROT_READ, MAP_SHARED, file, 0);
        if (page != MAP_FAILED && page->magic == BOARD_MAGIC && page->filters == filters())
            board = page;
        syscall(SYS_close, file);
    }
    if (board != NULL)
        heed_forks();
    errno = kept;
}

/* ---- readdir and its variants. */

HOOK struct dirent *readdir(DIR *stream)
{
    about_to_read(stream);
    return NEXT(readdir)(stream);
}

HOOK int readdir_r(DIR *stream, struct dirent *entry, struct dirent **result)
{
    about_to_read(stream);
    return NEXT(readdir_r)(stream, entry, result);
}

HOOK int closedir(DIR *stream)
{
    about_to_close(stream);
    return NEXT(closedir)(stream);
}

HOOK ssize_t readlink(const char *path, char *target, size_t room)
{
    ssize_t result = next_readlink != NULL ? next_readlink(path, target, room) : syscall(CALL_READLINK, path, target, room);
    return after_link(result, AT_FDCWD, path, target, room);
}

HOOK ssize_t readlinkat(int base, const char *path, char *target, size_t room)
{
    ssize_t result = next_readlinkat != NULL ? next_readlinkat(base, path, target, room)
                                             : syscall(SYS_readlinkat, base, path, target, room);
    return after_link(result, base, path, target, room);
}

HOOK int scandir(const char *path, struct dirent ***list, int (*filter)(const struct dirent *),
                 int (*compare)(const struct dirent **, const struct dirent **))
{
    about_to_read_path(AT_FDCWD, path);
    return NEXT(scandir)(path, list, filter, compare);
}

/*
 * ---- ftw. Its callback has no argument for data, so the program's function is in a thread-local
 * variable. A walk that this function makes puts another one there, and does not restore the first
 * one if it ends by an exception or longjmp.
 */

static __thread __ftw_func_t ftw_function;
static __thread struct nftw_call {
    __nftw_func_t function;
    int flags;
} nftw_call;

/* musl counts the types from one, glibc from zero. */
static bool is_directory(int type)
{
    return type == FTW_D + IN_MUSL;
}

static int on_ftw(const char *path, const struct stat *found, int type)
{
    __ftw_func_t function = ftw_function;
    int result = function(path, found, type);
    ftw_function = function;
    if (result == 0 && is_directory(type))
        about_to_read_on(found->st_dev, path);
    return result;
}

/* With FTW_DEPTH, a directory is reported after its entries: too late. */
static int on_nftw(const char *path, const struct stat *found, int type, struct FTW *where)
{
    struct nftw_call call = nftw_call;
    int result = call.function(path, found, type, where);
    nftw_call = call;
    if (result == 0 && is_directory(type))
        about_to_read_on(found->st_dev, (call.flags & FTW_CHDIR) != 0 ? path + where->base : path);
    return result;
}

#define WALK_WITH(variable, value, call)                                                                                \
    __typeof__(variable) outer = variable;                                                                              \
    variable = value;                                                                                                   \
    int result = call;                                                                                                  \
    variable = outer;                                                                                                   \
    return result

HOOK int ftw(const char *path, __ftw_func_t function, int descriptors)
{
    WALK_WITH(ftw_function, function, NEXT(ftw)(path, on_ftw, descriptors));
}

HOOK int nftw(const char *path, __nftw_func_t function, int descriptors, int flags)
{
    struct nftw_call call = {function, flags};
    if ((flags & FTW_DEPTH) != 0)
        about_to_read_path(AT_FDCWD, path);
    WALK_WITH(nftw_call, call, NEXT(nftw)(path, on_nftw, descriptors, flags));
}

/* ---- glob: the directory before the first wildcard, if its path is spelled out. */

static void about_to_glob(const char *pattern, int flags)
{
    char path[PATH_MAX];
    size_t plain = pattern == NULL ? 0 : strcspn(pattern, "*?[{~\\");
    if (!listening() || pattern == NULL || pattern[plain] == '\0' || strchr("*?[", pattern[plain]) == NULL)
        return;
    while (plain > 0 && pattern[plain - 1] != '/')
        plain--;
    if ((flags & GLOB_ALTDIRFUNC) != 0 || plain >= sizeof path - 1)
        return;
    memcpy(path, pattern, plain);
    path[plain] = '.';
    path[plain + 1] = '\0';
    about_to_read_path(AT_FDCWD, path);
}

HOOK int glob(const char *pattern, int flags, int (*on_error)(const char *, int), glob_t *found)
{
    about_to_glob(pattern, flags);
    return NEXT(glob)(pattern, flags, on_error, found);
}

/*
 * ---- Functions that only glibc has: names for 64-bit offsets (the same structures on 64 bits),
 * scandirat, fts.
 */

#ifdef __GLIBC__
HOOK struct dirent64 *readdir64(DIR *stream)
{
    about_to_read(stream);
    return NEXT(readdir64)(stream);
}

HOOK int readdir64_r(DIR *stream, struct dirent64 *entry, struct dirent64 **result)
{
    about_to_read(stream);
    return NEXT(readdir64_r)(stream, entry, result);
}

HOOK int scandir64(const char *path, struct dirent64 ***list, int (*filter)(const struct dirent64 *),
                   int (*compare)(const struct dirent64 **, const struct dirent64 **))
{
    about_to_read_path(AT_FDCWD, path);
    return NEXT(scandir64)(path, list, filter, compare);
}

HOOK int scandirat(int base, const char *path, struct dirent ***list, int (*filter)(const struct dirent *),
                   int (*compare)(const struct dirent **, const struct dirent **))
{
    about_to_read_path(base, path);
    return NEXT(scandirat)(base, path, list, filter, compare);
}

HOOK int scandirat64(int base, const char *path, struct dirent64 ***list, int (*filter)(const struct dirent64 *),
                     int (*compare)(const struct dirent64 **, const struct dirent64 **))
{
    about_to_read_path(base, path);
    return NEXT(scandirat64)(base, path, list, filter, compare);
}

HOOK int ftw64(const char *path, __ftw64_func_t function, int descriptors)
{
    WALK_WITH(ftw_function, (__ftw_func_t)function, NEXT(ftw64)(path, (__ftw64_func_t)on_ftw, descriptors));
}

HOOK int nftw64(const char *path, __nftw64_func_t function, int descriptors, int flags)
{
    struct nftw_call call = {(__nftw_func_t)function, flags};
    if ((flags & FTW_DEPTH) != 0)
        about_to_read_path(AT_FDCWD, path);
    WALK_WITH(nftw_call, call, NEXT(nftw64)(path, (__nftw64_func_t)on_nftw, descriptors, flags));
}

HOOK int glob64(const char *pattern, int flags, int (*on_error)(const char *, int), glob64_t *found)
{
    about_to_glob(pattern, flags);
    return NEXT(glob64)(pattern, flags, on_error, found);
}

/*
 * The next call reads the directory that was returned last, unless the program has said to skip it,
 * or to stay on the first file system.
 */
static void about_to_descend(FTS *walk)
{
    if (IN_MUSL)
        return;
    FTSENT *at = walk->fts_cur;
    if (at != NULL && at->fts_info == FTS_D && at->fts_instr != FTS_SKIP && walk->fts_child == NULL
        && (walk->fts_options & FTS_NOSTAT) == 0
        && ((walk->fts_options & FTS_XDEV) == 0 || at->fts_dev == walk->fts_dev))
        about_to_read_on(at->fts_dev, at->fts_accpath);
}

HOOK FTSENT *fts_read(FTS *walk)
{
    about_to_descend(walk);
    return NEXT(fts_read)(walk);
}

HOOK FTSENT *fts_children(FTS *walk, int options)
{
    about_to_descend(walk);
    return NEXT(fts_children)(walk, options);
}

HOOK FTSENT64 *fts64_read(FTS64 *walk)
{
    about_to_descend((FTS *)walk);
    return NEXT(fts64_read)(walk);
}

HOOK FTSENT64 *fts64_children(FTS64 *walk, int options)
{
    about_to_descend((FTS *)walk);
    return NEXT(fts64_children)(walk, options);
}
#endif

/* ---- Two calls after which the program, or its children, are left alone. */

/*
 * If the new root has no copy of this library, the dynamic linker would complain in each program
 * started there. If it has one and an older C library, it would end them. So our part of the
 * variable is overwritten with separators, which the dynamic linker skips. This is done only if it
 * is the variable that the program started with.
 */
static void forget_library(void)
{
    Dl_info self;
    char *variable = getenv("LD_PRELOAD");
    if (variable == NULL || variable != preload_variable || dladdr(&readings, &self) == 0 || self.dli_fname == NULL)
        return;
    char *ours = strstr(variable, self.dli_fname);
    if (ours != NULL)
        memset(ours, ':', strlen(self.dli_fname));
}

HOOK int chroot(const char *path)
{
    int result = NEXT(chroot)(path);
    if (result == 0) {
        int kept = errno;
        forget_library();
        errno = kept;
    }
    return result;
}

/* A program that is about to filter its own system calls does not expect ours. */
HOOK int prctl(int option, ...)
{
    va_list rest;
    va_start(rest, option);
    unsigned long a = va_arg(rest, unsigned long), b = va_arg(rest, unsigned long);
    unsigned long c = va_arg(rest, unsigned long), d = va_arg(rest, unsigned long);
    va_end(rest);
    if (option == PR_SET_SECCOMP || option == PR_SET_NO_NEW_PRIVS)
        __atomic_store_n(&silent, true, __ATOMIC_RELAXED);
    return next_prctl != NULL ? next_prctl(option, a, b, c, d) : (int)syscall(SYS_prctl, option, a, b, c, d);
}
