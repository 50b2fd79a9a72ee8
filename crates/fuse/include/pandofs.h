/*
 * Two calls for directories on a mount of pandofs.
 *
 * xgetdents reads names, attributes and extended attributes of many entries in one call.
 *
 *     struct pandofs_xgetdents call = {.mask = PANDOFS_STAT};
 *     do {
 *         if (ioctl(directory, PANDOFS_XGETDENTS, &call) != 0)
 *             return errno;
 *         const struct pandofs_record *record;
 *         for (uint32_t at = 0; (record = pandofs_record(&call, at)); at += record->length)
 *             puts(pandofs_name(record));
 *     } while (call.next == PANDOFS_MORE);
 *
 * Records come in the order of readdir, and the cookies are its positions (d_off). The caller needs
 * the permissions that single calls need: an entry or a value that it may not read has an errno.
 *
 * errno: ENOTTY on another file system, on a file, or if the server may not see the permissions of
 * the caller (then use single calls); EINVAL for unknown bits of the mask or an
 * invalid cookie; ENOENT if the directory was removed; EIO.
 *
 * xcreate makes many small entries in one call: setxattr(2) of the directory with the name
 * PANDOFS_XCREATE, or PANDOFS_XCREATE_ROOT for root, and at most 64 KiB of records. The target of a
 * file is its contents. Each record needs a type other than DT_DIR, and attributes. Of these, mode,
 * uid, gid, atime and mtime are used if they are valid (STATX_MODE, ...). Without a mode it is 0600.
 *
 * The entries before a failing one are made. Their number is the value of the attribute then, as
 * text, once and for the same thread. errno: EOPNOTSUPP if nothing was made and single calls must be
 * used; EBUSY if the entries after them are to be sent again; EINVAL if the records are malformed;
 * and those of single calls. getxattr(2) fails if the directory takes no records.
 *
 * 32-bit and 64-bit programs use the same structures. All numbers have the byte order of the machine.
 */
#ifndef PANDOFS_H
#define PANDOFS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

/* What a record has besides the name (mask). */
#define PANDOFS_STAT 1         /* struct pandofs_attr */
#define PANDOFS_XATTR_NAMES 2  /* the names of extended attributes */
#define PANDOFS_XATTR_VALUES 4 /* names and values */
#define PANDOFS_LINK_TARGETS 8 /* the targets of symbolic links */

/* What follows (next). */
#define PANDOFS_END 0
#define PANDOFS_MORE 1

struct pandofs_xgetdents {
    uint64_t cookie;  /* in: 0 to begin. out: where the next call continues */
    uint32_t mask;    /* in */
    uint32_t next;    /* out */
    uint32_t bytes;   /* out: how many of the records are in use */
    uint32_t entries; /* out: how many records these are */
    uint8_t records[16352] __attribute__((aligned(8)));
};

#define PANDOFS_XCREATE "pandofs.xcreate"
#define PANDOFS_XCREATE_ROOT "trusted.pandofs.xcreate"
#define PANDOFS_XGETDENTS _IOWR(0xb6, 1, struct pandofs_xgetdents)

struct pandofs_record {
    uint32_t length; /* of the whole record */
    uint16_t name_length;
    uint8_t type; /* DT_* of <dirent.h> */
    uint8_t flags;
    uint64_t ino;
    uint64_t cookie;      /* the position after this entry */
    int32_t error;        /* why there are no attributes: an errno, or 0 */
    int32_t xattr_error;  /* why there are no extended attributes: an errno such as ERANGE if their
                             names did not fit, or 0 */
    uint32_t xattr_count; /* how many there are */
    uint32_t target_length;
};
#define PANDOFS_HAS_ATTR 1
#define PANDOFS_HAS_TARGET 2

/* As in statx(2). */
struct pandofs_attr {
    uint32_t valid, mode, nlink, uid, gid, blksize, rdev_major, rdev_minor, dev_major, dev_minor;
    uint64_t ino, size, blocks, attributes, attributes_mask;
    int64_t atime, mtime, ctime, btime;
    uint32_t atime_nsec, mtime_nsec, ctime_nsec, btime_nsec;
};

/* An extended attribute. Its name follows, with a NUL, and then its value. */
struct pandofs_xattr {
    uint32_t size;  /* of the value, also if it is not here */
    uint16_t error; /* why the value is not here: an errno, such as ERANGE if it did not fit, or 0 */
    uint8_t name_length;
    uint8_t has_value;
};

/* The record at this offset, or NULL after the last one. */
static inline const struct pandofs_record *pandofs_record(const struct pandofs_xgetdents *call, uint32_t at)
{
    return at < call->bytes ? (const void *)(call->records + at) : NULL;
}

/* The attributes, or NULL. */
static inline const struct pandofs_attr *pandofs_attr(const struct pandofs_record *record)
{
    return record->flags & PANDOFS_HAS_ATTR ? (const void *)(record + 1) : NULL;
}

static inline const char *pandofs_name(const struct pandofs_record *record)
{
    return (const char *)(record + 1) + (record->flags & PANDOFS_HAS_ATTR ? sizeof(struct pandofs_attr) : 0);
}

/* The target of a symbolic link, or NULL. */
static inline const char *pandofs_target(const struct pandofs_record *record)
{
    return record->flags & PANDOFS_HAS_TARGET ? pandofs_name(record) + record->name_length + 1 : NULL;
}

/* The first extended attribute; there are record->xattr_count. */
static inline const struct pandofs_xattr *pandofs_xattrs(const struct pandofs_record *record)
{
    const char *name = pandofs_name(record);
    size_t at = (size_t)(name - (const char *)record) + record->name_length + 1;
    at += record->flags & PANDOFS_HAS_TARGET ? record->target_length + 1 : 0;
    return (const void *)((const char *)record + (at + 7) / 8 * 8);
}

static inline const char *pandofs_xattr_name(const struct pandofs_xattr *xattr)
{
    return (const char *)(xattr + 1);
}

/* The value, of xattr->size bytes, or NULL. */
static inline const void *pandofs_xattr_value(const struct pandofs_xattr *xattr)
{
    return xattr->has_value ? pandofs_xattr_name(xattr) + xattr->name_length + 1 : NULL;
}

static inline const struct pandofs_xattr *pandofs_next_xattr(const struct pandofs_xattr *xattr)
{
    size_t length = sizeof *xattr + xattr->name_length + 1 + (xattr->has_value ? xattr->size : 0);
    return (const void *)((const char *)xattr + (length + 7) / 8 * 8);
}

#endif
