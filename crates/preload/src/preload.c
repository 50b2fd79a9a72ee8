/*
 * The library that `pando boost` puts into programs.
 *
 * It stands before the C library's functions that read directories, and tells a helper outside which directory is being
 * read, by a descriptor, and how far. Then it calls the function that the program meant. It answers nothing itself. It
 * allocates nothing, starts no thread, handles no signal, keeps no descriptor and writes to no memory that the helper
 * reads; errno is as the C library left it. See the documentation of the crate for why it is so.
 *
 * The C library's own scandir, fts, nftw and glob call its readdir past the dynamic linker: they are hooked themselves.
 * opendir needs no hook, since a directory that nobody reads is not worth a word.
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

/* ---- What the helper shows: one page, which it writes and programs read. crates/boost/src/board.rs is its writer. */

#define BOARD_MAGIC UINT64_C(0x34746f6f626f6470) /* "pdoboot4" */
#define BOARD_DEVICES 32
#define NEVER UINT32_MAX
#define CLOSELY 64 /* directories of a process whose devices are all looked up */

struct board {
    uint64_t magic;
    uint32_t alive; /* 0: the helper has ended */
    uint32_t count; /* devices below */
    uint32_t every; /* look up the device of one directory in so many: the least of the intervals, at most 8 */
    char socket[108]; /* the path to the helper's, and which inode it is */
    uint64_t socket_device, socket_inode;
    uint64_t filters; /* of system calls, on the helper; see below */
    struct {
        uint64_t device;   /* major << 32 | minor */
        uint32_t interval; /* tell of one directory in so many; NEVER: of none */
        uint32_t reserved;
    } devices[BOARD_DEVICES];
};

static const struct board *board;

/* Set for good where the helper cannot be reached, or where a system call of ours may be taken amiss. */
static bool silent;

/* How many directories were read, and how many of each device: where an interval is set, each n-th is told of. */
static uint32_t met, turns[BOARD_DEVICES];

static bool listening(void)
{
    return board != NULL && !LOAD(silent) && LOAD(board->alive) != 0;
}

static uint64_t device_number(unsigned int high, unsigned int low)
{
    return (uint64_t)high << 32 | low;
}

/* The interval of a device; `turn` is where its directories are counted. */
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

/* Whether to tell of a directory on this device; it stands for `step` directories. */
static bool is_due(uint64_t device, uint32_t step)
{
    uint32_t *turn = NULL;
    uint32_t interval = interval_of(device, &turn);
    if (interval <= 1)
        return true;
    return interval != NEVER && __atomic_fetch_add(turn, step, __ATOMIC_RELAXED) % interval < step;
}

/* What the kernel knows of a file without asking a server. */
static bool look_at(int directory, const char *path, int flags, struct statx *found)
{
    return syscall(SYS_statx, directory, path, flags | AT_STATX_DONT_SYNC, STATX_INO, found) == 0;
}

/* The device of an open directory. */
static bool device_of(int directory, const char *path, uint64_t *device)
{
    struct statx found;
    if (!look_at(directory, path, *path == '\0' ? AT_EMPTY_PATH : 0, &found))
        return false;
    *device = device_number(found.stx_dev_major, found.stx_dev_minor);
    return true;
}

/*
 * Whether the path is the helper's socket here too. In another root or mount name space somebody else may listen at it, to
 * whom a descriptor of a directory of ours would be of use.
 */
static bool leads_to_helper(const char *path)
{
    struct statx found;
    return look_at(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, &found) && found.stx_ino == board->socket_inode
        && device_number(found.stx_dev_major, found.stx_dev_minor) == board->socket_device;
}

/*
 * Whether to tell of a directory whose device is not known yet. After many directories, and where calls are fast on all
 * devices shown, most cost no system call at all: of a device that is not shown yet, the first few are missed for that.
 */
static bool is_due_at(int directory, const char *path)
{
    uint64_t device;
    if (LOAD(board->count) == 0)
        return true;
    uint32_t before = __atomic_fetch_add(&met, 1, __ATOMIC_RELAXED);
    uint32_t every = before < CLOSELY ? 1 : LOAD(board->every);
    if (every > 1 && before % every != 0)
        return false;
    return device_of(directory, path, &device) && is_due(device, every > 1 ? every : 1);
}

/*
 * ---- Telling. A child gets all descriptors that its parent has, and keeps them until it executes another program: so nobody
 * tells while somebody forks.
 */

/*
 * Threads that tell, threads that fork, and how often the thread at hand tells: a signal's handler may do so once more, or fork.
 * One that jumps out of telling stays counted until somebody has waited for it in vain; so the count may be too low, too.
 */
static int32_t telling, forking;
static __thread int32_t telling_here;

static bool begin_to_tell(void)
{
    __atomic_fetch_add(&telling, 1, __ATOMIC_SEQ_CST);
    telling_here++;
    return __atomic_load_n(&forking, __ATOMIC_SEQ_CST) == 0;
}

static void end_telling(void)
{
    telling_here--;
    __atomic_fetch_sub(&telling, 1, __ATOMIC_SEQ_CST);
}

/* For a second at most: a path may lead to a store that does not answer, and then a descriptor too many is the lesser evil. */
static void before_fork(void)
{
    int kept = errno;
    __atomic_fetch_add(&forking, 1, __ATOMIC_SEQ_CST);
    int waits = 10000;
    while (__atomic_load_n(&telling, __ATOMIC_SEQ_CST) > telling_here && waits-- > 0)
        syscall(SYS_nanosleep, &(struct timespec){0, 100000}, NULL);
    if (waits < 0)
        __atomic_store_n(&telling, telling_here, __ATOMIC_SEQ_CST);
    errno = kept;
}

static void after_fork(void)
{
    __atomic_fetch_sub(&forking, 1, __ATOMIC_SEQ_CST);
}

/* The other threads are not there. */
static void after_fork_in_child(void)
{
    __atomic_store_n(&forking, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&telling, telling_here, __ATOMIC_SEQ_CST);
}

/* What the program does with links: see crates/boost/src/posts.rs. */
enum links { UNREAD, READ, FIRST_READ };

/* Set for good when the program has read where a link leads. */
static bool reads_links;

struct post {
    uint64_t magic;
    uint64_t token; /* which reading of which directory; 0: nothing more will be said of it */
    uint64_t seen;  /* names the program has got */
    uint64_t position; /* where it reads next; 0 where nothing was seen */
    uint64_t links; /* an `enum links` */
};

/*
 * One datagram with a descriptor of the directory, over a socket made for it: a descriptor kept for later would be in the
 * way of programs that close all, or count on the next number. Nor is it the program's own: what that holds (a lock, the
 * directory itself) would be held until the helper has read the message. O_PATH: a server hears nothing of it. System calls
 * are made directly, since the C library's functions are points where a thread may be cancelled. The caller keeps errno.
 */
static void tell_now(int base, const char *path, struct post post)
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
        /* A full queue (EAGAIN) passes. A policy does not. */
        if (sent < 0 && (errno == ECONNREFUSED || errno == EACCES || errno == EPERM))
            __atomic_store_n(&silent, true, __ATOMIC_RELAXED);
        syscall(SYS_close, channel);
    }
    syscall(SYS_close, directory);
}

/* Set when anything was told: who reads links before has a path to resolve, and lists nothing. */
static bool told;

static void tell(int base, const char *path, struct post post)
{
    if (post.links == UNREAD && LOAD(reads_links))
        post.links = READ;
    __atomic_store_n(&told, true, __ATOMIC_RELAXED);
    if (begin_to_tell())
        tell_now(base, path, post);
    end_telling();
}

/* Tells of the directory at `path`, which the C library is about to read as a whole. */
static void tell_path(int base, const char *path)
{
    tell(base, path, (struct post){BOARD_MAGIC, 0, UINT64_MAX, 0, UNREAD});
}

static void about_to_read_path(int base, const char *path)
{
    int kept = errno;
    if (listening() && path != NULL && *path != '\0' && is_due_at(base, path))
        tell_path(base, path);
    errno = kept;
}

/* The same where the device is known. */
static void about_to_read_on(dev_t device, const char *path)
{
    int kept = errno;
    if (listening() && is_due(device_number(major(device), minor(device)), 1))
        tell_path(AT_FDCWD, path);
    errno = kept;
}

/*
 * ---- Links. Where they lead is asked ahead only for a program that asks itself, since it may leave a time of access. When its
 * first one was read, the names around that one may have been asked for already: so this is told at once, later ones never.
 */

/*
 * Whether the path of a link is as it was before its target was put somewhere. A program may have given one place for both, and
 * then the path is the target now, with no end; or it goes on into the target, which has taken the place of its end.
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
        tell(base, path, (struct post){BOARD_MAGIC, 0, 0, 0, FIRST_READ});
}

static ssize_t after_link(ssize_t result, int base, const char *link, const char *target, size_t room)
{
    if (result >= 0 && LOAD(told) && !LOAD(reads_links) && is_intact(link, target, room)) {
        int kept = errno;
        read_first_link(base, link);
        errno = kept;
    }
    return result;
}

/* ---- Directories being read: a fixed table, sought by the stream's address. */

#define ROWS 32
#define COLUMNS 8
#define STEP 1024 /* names between two posts of one directory */

static struct reading {
    DIR *stream;    /* the owner of the rest: one thread at a time reads a stream */
    uint64_t token;
    uint64_t seen;
} readings[ROWS][COLUMNS];

static uint64_t last_token; /* with the process number before it: unique in a directory as long as the helper cares */

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
            tell(directory, ".", (struct post){BOARD_MAGIC, row[i].token, 0, 0, UNREAD});
        return;
    }
    /* More streams are open than there is room for: this one is read as without us. */
}

/* A large directory is told of again and again: the helper keeps somewhat ahead of the program, not more. */
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
    tell(directory, ".", (struct post){BOARD_MAGIC, reading->token, reading->seen, position < 0 ? 0 : position, UNREAD});
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

/* ---- The functions behind ours. */

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

/* musl (1.2.4) hides the names for 64-bit offsets from dlsym: there, they are those without the number. */
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

/* Constructors of other libraries may call before ours has run. */
#define NEXT(name) (next_##name != NULL ? next_##name : (find_next(), next_##name))

/*
 * Memory allocators read links, and call prctl, under their lock when they are first used, which may be before that. To look up a
 * name may allocate (in glibc before 2.34), and would wait for the lock for ever: these hooks make the system call then that the
 * C library would make.
 */
#ifdef SYS_readlink
#define CALL_READLINK SYS_readlink
#else
#define CALL_READLINK SYS_readlinkat, AT_FDCWD
#endif

#ifdef __GLIBC__
/* Whether a program of musl has loaded the library, although glibc's headers made it. An fts has other structures there. */
extern const char *gnu_get_libc_version(void) __attribute__((weak));
#define IN_MUSL (gnu_get_libc_version == NULL)
#else
#define IN_MUSL false
#endif

static char *preload_variable;

/* The number after a name in the text of /proc/self/status. The C library's strtoull has another name in newer versions. */
static uint64_t number_of(const char *text, const char *name)
{
    uint64_t number = 0;
    const char *at = strstr(text, name);
    for (at = at == NULL ? "" : at + strlen(name) + 1; *at >= '0' && *at <= '9'; at++)
        number = number * 10 + (uint64_t)(*at - '0');
    return number;
}

/*
 * How this process's system calls are filtered (seccomp), as a number that whoever started it with no filter more has too.
 * One filter more may end a program that calls what it was never seen to call. Where filters are not counted (before Linux
 * 5.9), nobody has the number of a process that has some.
 */
static uint64_t filters(void)
{
    char status[1 << 14]; /* all of it in one read, but for users with hundreds of groups */
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

/* glibc keeps pthread_atfork in a part that is linked in statically, under this name; musl has no such name. */
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

/* ---- readdir and its kin. */

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
 * ---- ftw: its callback has no place for data, so the program's function lies in a variable of the thread. A walk that the
 * function makes puts another there, and does not put the first one back where it ends by an exception or a jump.
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

/* With FTW_DEPTH a directory comes after what is in it: too late. */
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

/* ---- glob: the directory before the first wildcard, if the path to it is written out. */

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

/* ---- What only glibc has: names for 64-bit offsets (the same structures on 64 bits), scandirat, fts. */

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
 * The directory that was handed out last is read by the next call, unless the program has said to skip it, or to keep to the
 * file system where it began.
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

/* ---- Two calls after which the program, or its children, are better left alone. */

/*
 * Where the new root has no copy of this library, the dynamic linker would complain in each program started there; where
 * it has one and an older C library, it would end them. So our part of the variable is overwritten with separators, which it
 * skips; only if it is the variable we came with.
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

/* A program about to limit its own system calls has not reckoned with ours. */
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
