/* Lists a directory in one of many ways, and prints what it found: the same lines with and without boost. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int failed(const char *what)
{
    printf("%s: %s\n", what, strerror(errno));
    return 1;
}

static void show(const char *name, const struct stat *found)
{
    printf("%s %o %lld errno=%d\n", name, found->st_mode, (long long)found->st_size, errno);
}

/* A stale errno must survive each call that succeeds, and the end of the directory too. */
static int by_readdir(const char *path)
{
    DIR *stream = opendir(path);
    if (stream == NULL)
        return failed(path);
    struct dirent *entry;
    struct stat found;
    int entries = 0;
    for (errno = 77; (entry = readdir(stream)) != NULL; errno = 77) {
        printf("errno=%d ", errno);
        if (fstatat(dirfd(stream), entry->d_name, &found, AT_SYMLINK_NOFOLLOW) != 0)
            return failed(entry->d_name);
        show(entry->d_name, &found);
        entries++;
    }
    printf("end, errno=%d, %d entries\n", errno, entries);
    rewinddir(stream);
    for (entries = 0; readdir(stream) != NULL; entries++)
        continue;
    int closed = closedir(stream);
    printf("again %d, closed %d, next descriptor %d\n", entries, closed, dup(0));
    return 0;
}

static int by_readdir_r(const char *path)
{
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    DIR *stream = opendir(path);
    struct dirent entry, *result;
    struct stat found;
    while (stream != NULL && readdir_r(stream, &entry, &result) == 0 && result != NULL) {
        fstatat(dirfd(stream), entry.d_name, &found, AT_SYMLINK_NOFOLLOW);
        show(entry.d_name, &found);
    }
    return stream == NULL ? failed(path) : closedir(stream);
}

static int by_scandir(const char *path)
{
    struct dirent **list;
    int count = scandir(path, &list, NULL, alphasort);
    printf("%d, errno=%d\n", count, errno);
    for (int i = 0; i < count; i++) {
        char name[4096];
        struct stat found;
        snprintf(name, sizeof name, "%s/%s", path, list[i]->d_name);
        lstat(name, &found);
        show(list[i]->d_name, &found);
    }
    return count < 0;
}

static int by_fts(const char *path, int options)
{
    char *paths[] = {(char *)path, NULL};
    FTS *walk = fts_open(paths, options, NULL);
    FTSENT *entry;
    while ((errno = 0, entry = fts_read(walk)) != NULL) {
        printf("%d %s %lld ", entry->fts_info, entry->fts_path, (long long)entry->fts_statp->st_size);
        printf("errno=%d\n", entry->fts_info == FTS_DNR ? entry->fts_errno : 0);
        if (entry->fts_info == FTS_D && strcmp(entry->fts_name, "skipped") == 0)
            fts_set(walk, entry, FTS_SKIP);
    }
    printf("end, errno=%d\n", errno);
    return fts_close(walk);
}

static int depth_of_walks;

static int on_entry(const char *path, const struct stat *found, int type, struct FTW *where)
{
    printf("%*s%d %s %d %d ", depth_of_walks * 2, "", type, path, where->base, where->level);
    show(path, found);
    /* A walk in a walk, once. */
    if (depth_of_walks == 0 && type == FTW_D && where->level == 1) {
        depth_of_walks++;
        nftw(path, on_entry, 4, FTW_PHYS);
        depth_of_walks--;
    }
    return where->level > 1 && strstr(path, "stop") != NULL ? 42 : 0;
}

static int on_old_entry(const char *path, const struct stat *found, int type)
{
    printf("%d ", type);
    show(path, found);
    return 0;
}

static int by_nftw(const char *path, int flags)
{
    int result = nftw(path, on_entry, 4, flags);
    printf("result %d\n", result);
    return 0;
}

static jmp_buf out_of_walk;

static int on_inner_entry(const char *path, const struct stat *found, int type, struct FTW *where)
{
    printf("inner ");
    show(path, found);
    longjmp(out_of_walk, 1);
}

/* A walk in a walk that ends past the C library, as with an exception. */
static int on_outer_entry(const char *path, const struct stat *found, int type, struct FTW *where)
{
    printf("outer ");
    show(path, found);
    if (type == FTW_D && setjmp(out_of_walk) == 0)
        nftw(path, on_inner_entry, 4, FTW_PHYS);
    return 0;
}

static int by_glob(const char *path)
{
    char pattern[4096];
    glob_t matches;
    snprintf(pattern, sizeof pattern, "%s/*", path);
    int result = glob(pattern, GLOB_MARK, NULL, &matches);
    printf("%d, %zu\n", result, matches.gl_pathc);
    for (size_t i = 0; i < matches.gl_pathc; i++) {
        struct stat found;
        lstat(matches.gl_pathv[i], &found);
        show(matches.gl_pathv[i], &found);
    }
    return 0;
}

static int by_fork(const char *path)
{
    DIR *stream = opendir(path);
    for (int i = 0; i < 10; i++)
        readdir(stream);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int rest = 0;
        while (readdir(stream) != NULL)
            rest++;
        printf("the child has %d more\n", rest);
        fflush(stdout);
        _exit(by_readdir(path));
    }
    int status;
    waitpid(child, &status, 0);
    printf("status %d, no other child: %d\n", status, waitpid(-1, &status, 0));
    closedir(stream);
    return by_readdir(path);
}

static void *count_entries(void *path)
{
    long entries = 0;
    for (int round = 0; round < 50; round++) {
        DIR *stream = opendir(path);
        while (readdir(stream) != NULL)
            entries++;
        closedir(stream);
    }
    return (void *)entries;
}

static int by_threads(const char *path)
{
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, count_entries, (void *)path);
    for (int i = 0; i < 8; i++) {
        void *entries;
        pthread_join(threads[i], &entries);
        printf("%ld\n", (long)entries);
    }
    return 0;
}

static int over;

static void *list_until_over(void *path)
{
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        DIR *stream = opendir(path);
        while (readdir(stream) != NULL)
            continue;
        closedir(stream);
    }
    return NULL;
}

/* What a child has of its parent's other threads it keeps: no descriptor but what the program has opened. */
static int by_fork_beside(const char *path)
{
    pthread_t threads[2];
    int status, laden = 0;
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, list_until_over, (void *)path);
    for (int i = 0; i < 500; i++) {
        pid_t child = fork();
        if (child == 0) {
            struct stat found;
            for (int file = 3; file < 20; file++)
                if (fstat(file, &found) == 0 && (S_ISSOCK(found.st_mode) || (fcntl(file, F_GETFL) & O_PATH) != 0))
                    _exit(1);
            _exit(0);
        }
        waitpid(child, &status, 0);
        laden += status != 0;
    }
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    printf("%d children have what the program has not\n", laden);
    return by_readdir(path);
}

/* More streams than the library has room for, all open. */
static int by_many(const char *path)
{
    static DIR *streams[600];
    long entries = 0;
    for (int i = 0; i < 600; i++)
        if ((streams[i] = opendir(path)) == NULL)
            return failed(path);
    for (int i = 0; i < 600; i++)
        while (readdir(streams[i]) != NULL)
            entries++;
    for (int i = 0; i < 600; i++)
        closedir(streams[i]);
    printf("%ld\n", entries);
    return by_readdir(path);
}

/* No descriptor is left for a socket. */
static int by_limit(const char *path)
{
    DIR *stream = opendir(path);
    struct rlimit limit = {(rlim_t)dirfd(stream) + 1, (rlim_t)dirfd(stream) + 1};
    setrlimit(RLIMIT_NOFILE, &limit);
    int entries = 0;
    while ((errno = 5, readdir(stream)) != NULL)
        entries++;
    printf("%d errno=%d\n", entries, errno);
    return closedir(stream);
}

static void forbid_sockets(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    printf("%d ", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    printf("%d\n", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static int by_sandbox(const char *path)
{
    forbid_sockets();
    return by_readdir(path);
}

/* The program that lists has not called prctl itself. */
static int by_inherited(const char *path)
{
    forbid_sockets();
    fflush(stdout);
    return execl("/proc/self/exe", "probe", "readdir", path, NULL);
}

/* So that what is told of links is heard: something else was told of before. */
static void read_first_name(const char *path)
{
    DIR *stream = opendir(path);
    printf("%d names\n", stream != NULL && readdir(stream) != NULL);
    closedir(stream);
}

/* Where its target is put, the path of a link is gone afterwards, or goes on into the target. */
static int by_readlink_in_place(const char *path)
{
    char name[4096] = "", target[4096];
    size_t length = snprintf(name, sizeof name, "%s/link", path);
    ssize_t room = readlink(name, target, sizeof target);
    if (room < (ssize_t)length + 1)
        return failed("the target is too short");
    read_first_name(path);
    printf("%zd %s\n", readlink(name, name, sizeof name), name);
    /* The last byte that may be touched is the target's last one. */
    long page = sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + page, page, PROT_NONE) != 0)
        return failed("two pages");
    char *end = pages + page, *over = end - room, *behind = over - length;
    sprintf(over, "%s/link", path);
    printf("%zd %.*s\n", readlink(over, over, room), (int)room, over);
    sprintf(behind, "%s/link", path);
    printf("%zd %.*s\n", readlinkat(AT_FDCWD, behind, over, room), (int)(end - behind), behind);
    return 0;
}

/* The path of a link ends right before its target begins, and the other way round. */
static int by_readlink_beside(const char *path, int path_first)
{
    char both[2 * 4096] = "";
    char *name = path_first ? both : both + 100, *target = path_first ? both + strlen(path) + 6 : both;
    read_first_name(path);
    sprintf(name, "%s/link", path);
    ssize_t length = readlink(name, target, 100);
    printf("%s %.*s\n", name, (int)length, target);
    return length <= 0;
}

/* A lock ends with the stream that holds it. */
static int by_lock(const char *path)
{
    for (int i = 0; i < 200; i++) {
        DIR *stream = opendir(path);
        printf("%d", flock(dirfd(stream), LOCK_EX | LOCK_NB));
        readdir(stream);
        closedir(stream);
    }
    return by_readdir(path);
}

static int by_errors(const char *path)
{
    char name[4096];
    const char *odd[] = {"missing", "f1", "f1/below"};
    for (int i = 0; i < 3; i++) {
        struct dirent **list;
        snprintf(name, sizeof name, "%s/%s", path, odd[i]);
        errno = 0;
        printf("opendir %p ", (void *)opendir(name));
        printf("errno=%d ", errno);
        printf("scandir %d ", scandir(name, &list, NULL, NULL));
        printf("errno=%d ", errno);
        printf("nftw %d ", nftw(name, on_entry, 4, 0));
        printf("errno=%d\n", errno);
        by_fts(name, FTS_PHYSICAL);
        by_glob(name);
    }
    /* The descriptor behind a stream is closed, and then another file's. */
    DIR *stream = opendir(path);
    close(dirfd(stream));
    errno = 0;
    printf("readdir %p ", (void *)readdir(stream));
    printf("errno=%d ", errno);
    printf("closedir %d ", closedir(stream));
    printf("errno=%d\n", errno);
    return 0;
}

int main(int count, char **arguments)
{
    if (count != 3)
        return 2;
    const char *way = arguments[1], *path = arguments[2];
#define WAY(name) (strcmp(way, name) == 0)
    if (WAY("readdir"))
        return by_readdir(path);
    if (WAY("readdir_r"))
        return by_readdir_r(path);
    if (WAY("scandir"))
        return by_scandir(path);
    if (WAY("fts"))
        return by_fts(path, FTS_PHYSICAL | FTS_NOCHDIR);
    if (WAY("fts-chdir"))
        return by_fts(path, FTS_PHYSICAL);
    if (WAY("fts-xdev"))
        return by_fts(path, FTS_PHYSICAL | FTS_XDEV);
    if (WAY("ftw"))
        return ftw(path, on_old_entry, 4);
    if (WAY("nftw"))
        return by_nftw(path, FTW_PHYS);
    if (WAY("nftw-chdir"))
        return by_nftw(path, FTW_PHYS | FTW_CHDIR);
    if (WAY("nftw-depth"))
        return by_nftw(path, FTW_PHYS | FTW_DEPTH);
    if (WAY("nftw-jump"))
        return nftw(path, on_outer_entry, 4, FTW_PHYS);
    if (WAY("glob"))
        return by_glob(path);
    if (WAY("fork"))
        return by_fork(path);
    if (WAY("fork-beside"))
        return by_fork_beside(path);
    if (WAY("threads"))
        return by_threads(path);
    if (WAY("many"))
        return by_many(path);
    if (WAY("limit"))
        return by_limit(path);
    if (WAY("sandbox"))
        return by_sandbox(path);
    if (WAY("inherited"))
        return by_inherited(path);
    if (WAY("readlink-in-place"))
        return by_readlink_in_place(path);
    if (WAY("readlink-before") || WAY("readlink-behind"))
        return by_readlink_beside(path, WAY("readlink-before"));
    if (WAY("lock"))
        return by_lock(path);
    if (WAY("errors"))
        return by_errors(path);
    if (WAY("close-all"))
        return close_range(3, ~0U, 0) != 0 || by_readdir(path) || close_range(3, ~0U, 0) != 0 || by_readdir(path);
    if (WAY("chroot"))
        return chroot(path) != 0 ? failed(path) : by_readdir("/");
    if (WAY("unshare"))
        return unshare(CLONE_NEWNET | CLONE_NEWNS) != 0 ? failed(path) : by_readdir(path) || by_scandir(path);
    if (WAY("drop"))
        return setgid(65534) != 0 || setuid(65534) != 0 ? failed(path) : by_readdir(path);
    return 2;
}
