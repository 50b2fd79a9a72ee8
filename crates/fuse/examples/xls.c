/*
 * Lists a directory of a pandofs mount: mode, links, owner, group, size, mtime, name, target and
 * extended attributes. One system call returns about 80 entries.
 *
 *     cc -I crates/fuse/include crates/fuse/examples/xls.c -o xls && ./xls /mnt/grove
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pandofs.h"

static void print_xattrs(const struct pandofs_record *record)
{
    const struct pandofs_xattr *xattr = pandofs_xattrs(record);
    for (uint32_t i = 0; i < record->xattr_count; i++, xattr = pandofs_next_xattr(xattr)) {
        const void *value = pandofs_xattr_value(xattr);
        printf("    %s=", pandofs_xattr_name(xattr));
        if (value)
            fwrite(value, 1, xattr->size, stdout);
        else
            printf("(%" PRIu32 " bytes: %s)", xattr->size, strerror(xattr->error));
        putchar('\n');
    }
}

static void print(const struct pandofs_record *record)
{
    const struct pandofs_attr *attr = pandofs_attr(record);
    const char *target = pandofs_target(record);
    if (attr)
        printf("%06" PRIo32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu64 " %" PRId64 ".%09" PRIu32 " ", attr->mode,
               attr->nlink, attr->uid, attr->gid, attr->size, attr->mtime, attr->mtime_nsec);
    else
        printf("(%s) ", strerror(record->error));
    printf("%s%s%s\n", pandofs_name(record), target ? " -> " : "", target ? target : "");
    if (record->xattr_error)
        printf("    (%s)\n", strerror(record->xattr_error));
    print_xattrs(record);
}

int main(int argc, char **argv)
{
    static struct pandofs_xgetdents call = {.mask = PANDOFS_STAT | PANDOFS_XATTR_VALUES | PANDOFS_LINK_TARGETS};
    const char *path = argc > 1 ? argv[1] : ".";
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    do {
        const struct pandofs_record *record;
        if (directory < 0 || ioctl(directory, PANDOFS_XGETDENTS, &call) != 0) {
            perror(path);
            return 1;
        }
        for (uint32_t at = 0; (record = pandofs_record(&call, at)); at += record->length)
            print(record);
    } while (call.next == PANDOFS_MORE);
    return 0;
}
