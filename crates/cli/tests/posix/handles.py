"""File handles for a test: a line on stdin is one call, a line on stdout its answer.

take PATH       name_to_handle_at(2): the handle, its type first, as hexadecimal digits
open DIR HEX    open_by_handle_at(2) in the mount of DIR, and what is there: KIND INO MODE NLINK PATH
read DIR HEX    the same for reading: the contents
Each failure is answered with its errno's name."""
import ctypes, errno, os, stat, sys

libc = ctypes.CDLL(None, use_errno=True)
BYTES = 128


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_ubyte * BYTES)]


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result


def take(path):
    handle, mount = Handle(BYTES), ctypes.c_int()
    checked(libc.name_to_handle_at(-100, os.fsencode(path), ctypes.byref(handle), ctypes.byref(mount), 0))
    return (handle.type.to_bytes(4, "big") + bytes(handle.data[: handle.bytes])).hex()


def opened(dir, text, flags):
    raw = bytes.fromhex(text)
    handle = Handle(len(raw) - 4, int.from_bytes(raw[:4], "big"))
    handle.data[: len(raw) - 4] = raw[4:]
    mount = os.open(dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return checked(libc.open_by_handle_at(mount, ctypes.byref(handle), flags))
    finally:
        os.close(mount)


def show(dir, text):
    fd = opened(dir, text, os.O_PATH)
    try:
        found = os.fstat(fd)
        kind = "dir" if stat.S_ISDIR(found.st_mode) else "link" if stat.S_ISLNK(found.st_mode) else "file"
        return f"{kind} {found.st_ino} {stat.S_IMODE(found.st_mode):o} {found.st_nlink} {os.readlink(f'/proc/self/fd/{fd}')}"
    finally:
        os.close(fd)


def read(dir, text):
    with os.fdopen(opened(dir, text, os.O_RDONLY), "rb") as file:
        return file.read().decode()


calls = {"take": take, "open": show, "read": read}
for line in sys.stdin:
    name, *args = line.split()
    try:
        print(calls[name](*args), flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
