/* Lists a directory by what any C library has, as programs do that are not linked with glibc. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The name that programs were linked with before musl 1.2.4. */
struct dirent *readdir_of_old(DIR *stream) __asm__("readdir64");

static int show(const char *path, const struct stat *found, int type, struct FTW *where)
{
    return printf("%s %d %d %lld\n", path, type, where->level, (long long)found->st_size) < 0;
}

static void show_name(int directory, const char *name)
{
    struct stat found;
    if (fstatat(directory, name, &found, AT_SYMLINK_NOFOLLOW) == 0)
        printf("%s %lld\n", name, (long long)found.st_size);
}

int main(int count, char **arguments)
{
    if (count != 3)
        return 2;
    const char *way = arguments[1], *path = arguments[2];
    if (strcmp(way, "nftw") == 0)
        return nftw(path, show, 4, FTW_PHYS);
    DIR *stream = opendir(path);
    if (stream == NULL)
        return 1;
    if (strcmp(way, "scandir") == 0) {
        struct dirent **list;
        int names = scandir(path, &list, NULL, alphasort);
        for (int i = 0; i < names; i++)
            show_name(dirfd(stream), list[i]->d_name);
        return names < 0;
    }
    struct dirent *(*next)(DIR *) = strcmp(way, "readdir64") == 0 ? readdir_of_old : readdir;
    for (struct dirent *entry; (entry = next(stream)) != NULL;)
        show_name(dirfd(stream), entry->d_name);
    return closedir(stream);
}
