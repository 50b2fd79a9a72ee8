//! path_resolution(7): limits, links, slashes, dots, bytes of names, directory descriptors.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
};

use nix::{
    errno::Errno,
    fcntl::{self, AtFlags, OFlag, openat, readlinkat},
    sys::stat::{FchmodatFlags, FileStat, Mode, fstatat, lstat, mkdirat, stat},
    unistd::{UnlinkatFlags, unlinkat},
};

use crate::place::{Case, MEMBER, OWNER, Place, STRANGER, case, fails, inode, name, open, users};

const FOLLOW: AtFlags = AtFlags::empty();
const NOFOLLOW: AtFlags = AtFlags::AT_SYMLINK_NOFOLLOW;

/// A descriptor of the place itself.
fn here(place: &Place) -> OwnedFd {
    open(place, "", OFlag::O_RDONLY | OFlag::O_DIRECTORY)
}

/// Resolves a path relative to the place.
fn find(place: &Place, path: &str) -> nix::Result<FileStat> {
    fstatat(here(place), path, FOLLOW)
}

/// Asserts that both paths lead to one inode.
#[track_caller]
fn leads(place: &Place, path: &str, to: &str) {
    assert_eq!(find(place, path).map(|found| found.st_ino), Ok(inode(place, to)), "{path}");
}

fn opened(dir: &OwnedFd, path: &str, flags: OFlag) -> nix::Result<OwnedFd> {
    openat(dir, path, flags | OFlag::O_CLOEXEC, Mode::from_bits_truncate(0o666))
}

/// A path of this length that leads where `last` does.
fn long(last: &str, bytes: usize) -> String {
    let steps = bytes - last.len();
    let odd = if steps % 2 == 1 { "/" } else { "" };
    format!("{}{odd}{last}", "./".repeat(steps / 2))
}

pub const CASES: &[Case] = &[
    case("a name of 255 bytes is found, and one of 256 is ENAMETOOLONG", |place| {
        let (longest, longer) = (name(255), name(256));
        place.dir(&longest);
        place.file(&format!("{longest}/{longest}"));
        leads(place, &format!("{longest}/{longest}"), &format!("{longest}/{longest}"));
        for path in [longer.clone(), format!("{longer}/file"), format!("{longest}/{longer}")] {
            fails(Errno::ENAMETOOLONG, stat(&place.path(&path)));
            fails(Errno::ENAMETOOLONG, lstat(&place.path(&path)));
            fails(Errno::ENAMETOOLONG, opened(&here(place), &path, OFlag::O_CREAT | OFlag::O_WRONLY));
        }
    }),
    case("the limit counts bytes, not characters", |place| {
        place.file(&"ä".repeat(127));
        fails(Errno::ENAMETOOLONG, find(place, &"ä".repeat(128)));
    }),
    case("a path has at most 4095 bytes", |place| {
        place.file("file");
        for bytes in [100, 101, 4_094, 4_095] {
            assert_eq!(long("file", bytes).len(), bytes);
            leads(place, &long("file", bytes), "file");
            opened(&here(place), &long("file", bytes), OFlag::O_RDONLY).expect("opened");
            leads(place, &format!(".{}file", "/".repeat(bytes - 5)), "file");
        }
        for bytes in [4_096, 4_097, 10_000] {
            fails(Errno::ENAMETOOLONG, find(place, &long("file", bytes)));
            fails(Errno::ENAMETOOLONG, opened(&here(place), &long("file", bytes), OFlag::O_RDONLY));
            fails(Errno::ENAMETOOLONG, mkdirat(here(place), long("new", bytes).as_str(), Mode::S_IRWXU));
        }
    }),
    case("a tree can be deeper than a path", |place| {
        let (mut dir, longest) = (here(place), name(255));
        for _ in 0..20 {
            mkdirat(&dir, longest.as_str(), Mode::S_IRWXU).expect("made");
            dir = opened(&dir, &longest, OFlag::O_RDONLY).expect("opened");
        }
        let mut up = opened(&dir, "../../../../../../../../../..", OFlag::O_RDONLY).expect("opened");
        for _ in 0..10 {
            up = opened(&up, "..", OFlag::O_RDONLY).expect("opened");
        }
        assert_eq!(nix::sys::stat::fstat(up).expect("there").st_ino, inode(place, ""));
    }),
    case("an empty path is ENOENT, unless AT_EMPTY_PATH is given", |place| {
        fails(Errno::ENOENT, stat(""));
        fails(Errno::ENOENT, lstat(""));
        fails(Errno::ENOENT, opened(&here(place), "", OFlag::O_RDONLY));
        fails(Errno::ENOENT, find(place, ""));
        let found = fstatat(here(place), "", AtFlags::AT_EMPTY_PATH).expect("there");
        assert_eq!(found.st_ino, inode(place, ""));
    }),
    case("40 symbolic links are followed, and 41 are ELOOP", |place| {
        place.file("file");
        place.symlink(".", "same");
        leads(place, &format!("{}file", "same/".repeat(40)), "file");
        fails(Errno::ELOOP, find(place, &format!("{}file", "same/".repeat(41))));
        place.symlink("file", "link-1");
        for index in 2..=41 {
            place.symlink(&format!("link-{}", index - 1), &format!("link-{index}"));
        }
        leads(place, "link-40", "file");
        fails(Errno::ELOOP, find(place, "link-41"));
        fails(Errno::ELOOP, opened(&here(place), "link-41", OFlag::O_RDONLY));
        leads(place, "same/link-39", "file");
        fails(Errno::ELOOP, find(place, "same/link-40"));
        fstatat(here(place), "link-41", NOFOLLOW).expect("there");
    }),
    case("a symbolic link to itself is ELOOP, also in the path prefix", |place| {
        place.symlink("itself", "itself");
        for path in ["itself", "itself/file", "itself/"] {
            fails(Errno::ELOOP, find(place, path));
        }
        fstatat(here(place), "itself", NOFOLLOW).expect("there");
        fails(Errno::ELOOP, fstatat(here(place), "itself/", NOFOLLOW));
    }),
    case("a name with a slash after it must be a directory", |place| {
        place.file("file");
        place.dir("dir");
        place.symlink("dir", "to-dir");
        place.symlink("file", "to-file");
        place.symlink("missing", "dangling");
        place.symlink("file/", "to-file-slash");
        for (path, errno) in [
            ("file/", Errno::ENOTDIR),
            ("file/.", Errno::ENOTDIR),
            ("file/..", Errno::ENOTDIR),
            ("to-file/", Errno::ENOTDIR),
            ("missing/", Errno::ENOENT),
            ("dangling/", Errno::ENOENT),
            ("missing/..", Errno::ENOENT),
        ] {
            fails(errno, find(place, path));
            fails(errno, fstatat(here(place), path, NOFOLLOW));
            fails(errno, opened(&here(place), path, OFlag::O_RDONLY));
        }
        fails(Errno::ENOTDIR, find(place, "to-file-slash"));
        for path in ["dir/", "dir///", "to-dir/", "to-dir/.", ".//dir//.//"] {
            leads(place, path, "dir");
        }
        let found = fstatat(here(place), "to-dir/", NOFOLLOW).expect("there");
        assert_eq!(found.st_ino, inode(place, "dir"));
        let found = fstatat(here(place), "to-dir", NOFOLLOW).expect("there");
        assert_eq!(found.st_ino, inode(place, "to-dir"));
    }),
    case("no file is made with a slash after its name", |place| {
        let create = OFlag::O_CREAT | OFlag::O_WRONLY;
        place.file("file");
        fails(Errno::EISDIR, opened(&here(place), "new/", create));
        fails(Errno::EISDIR, opened(&here(place), "file/", create));
        fails(Errno::ENOENT, nix::unistd::symlinkat("target", here(place), "new/"));
        fails(Errno::ENOENT, nix::unistd::mkfifoat(here(place), "new/", Mode::S_IRWXU));
        fails(Errno::ENOENT, nix::unistd::linkat(here(place), "file", here(place), "new/", FOLLOW));
        fails(Errno::ENOTDIR, unlinkat(here(place), "file/", UnlinkatFlags::NoRemoveDir));
        fails(Errno::ENOTDIR, fcntl::renameat(here(place), "file", here(place), "new/"));
        assert_eq!(fs::read_dir(place.path("")).expect("read").count(), 1);
    }),
    case("`.` is the directory itself, and `..` its parent", |place| {
        place.dir("one");
        place.dir("one/two");
        place.file("one/file");
        leads(place, "one/./two/.", "one/two");
        leads(place, "one/two/..", "one");
        leads(place, "one/two/../../one/./file", "one/file");
        leads(place, "one/two/../..", "");
        assert_eq!(inode(place, "one/two/.."), inode(place, "one"));
        fails(Errno::ENOENT, find(place, "one/missing/.."));
        fails(Errno::ENOTDIR, find(place, "one/file/.."));
        fails(Errno::ENOENT, find(place, "one/..."));
    }),
    case("`..` after a symbolic link is the parent of its target", |place| {
        place.dir("one");
        place.dir("one/two");
        place.file("one/file");
        place.dir("other");
        place.symlink("../one/two", "other/link");
        leads(place, "other/link", "one/two");
        leads(place, "other/link/..", "one");
        leads(place, "other/link/../file", "one/file");
        place.symlink("link/..", "other/up");
        leads(place, "other/up/file", "one/file");
    }),
    case("the target of a symbolic link is relative to its directory, or absolute", |place| {
        place.dir("dir");
        place.file("dir/file");
        place.symlink("file", "dir/link");
        place.symlink("dir/link", "chain");
        place.symlink(place.path("dir").to_str().expect("text"), "absolute");
        for path in ["dir/link", "chain", "absolute/file", "absolute/link"] {
            leads(place, path, "dir/file");
        }
        fs::rename(place.path("dir"), place.path("moved")).expect("renamed");
        leads(place, "moved/link", "moved/file");
        for path in ["chain", "absolute/file"] {
            fails(Errno::ENOENT, find(place, path));
        }
    }),
    case("a name has any bytes but a slash and NUL", |place| {
        let names = || {
            let bytes = (1..=255).filter(|byte| *byte != b'/');
            let single = bytes.clone().filter(|byte| *byte != b'.').map(|byte| vec![byte]);
            single.chain(bytes.map(|byte| vec![byte, b'.', byte, 0xff]))
        };
        for name in names() {
            fs::write(place.path("").join(OsStr::from_bytes(&name)), &name).expect("made");
        }
        for name in names() {
            assert_eq!(fs::read(place.path("").join(OsStr::from_bytes(&name))).expect("there"), name);
        }
        let listed = fs::read_dir(place.path("")).expect("read").map(|entry| entry.expect("read").file_name());
        let (mut listed, mut expected): (Vec<OsString>, Vec<OsString>) =
            (listed.collect(), names().map(|name| OsStr::from_bytes(&name).to_owned()).collect());
        listed.sort();
        expected.sort();
        assert!(listed == expected);
    }),
    case("names that look like `.`, or like each other, are different names", |place| {
        let names = ["...", "..a", ".a", "a", "A", " ", "a ", "a.", "\u{e4}", "a\u{308}", "\\", "CON", "*"];
        for name in names {
            fs::write(place.path(name), name).expect("made");
        }
        for name in names {
            assert_eq!(fs::read(place.path(name)).expect("there"), name.as_bytes());
        }
        assert_eq!(fs::read_dir(place.path("")).expect("read").count(), names.len());
    }),
    case("a relative path begins at the descriptor, wherever the directory is", |place| {
        place.dir("dir");
        place.file("dir/file");
        place.dir("other");
        place.symlink("file", "dir/link");
        let dir = open(place, "dir", OFlag::O_RDONLY);
        fs::rename(place.path("dir"), place.path("other/moved")).expect("renamed");
        let found = |path| fstatat(&dir, path, FOLLOW).expect("there").st_ino;
        assert_eq!(found("file"), inode(place, "other/moved/file"));
        assert_eq!(found("link"), inode(place, "other/moved/file"));
        assert_eq!(found(".."), inode(place, "other"));
        assert_eq!(readlinkat(&dir, "link").expect("a link"), OsStr::new("file"));
        mkdirat(&dir, "new", Mode::S_IRWXU).expect("made");
        unlinkat(&dir, "file", UnlinkatFlags::NoRemoveDir).expect("removed");
        fails(Errno::ENOENT, fstatat(&dir, "link", FOLLOW));
        assert!(place.path("other/moved/new").is_dir());
    }),
    case("a descriptor of O_PATH is enough for relative paths", |place| {
        place.dir("dir");
        place.file("dir/file");
        let dir = open(place, "dir", OFlag::O_PATH);
        let found = fstatat(&dir, "file", FOLLOW).expect("there").st_ino;
        assert_eq!(found, inode(place, "dir/file"));
        opened(&dir, "file", OFlag::O_RDONLY).expect("opened");
    }),
    case("an empty path is ENOENT for each operation", |place| {
        let empty = std::path::Path::new("");
        let file = place.file("file");
        fails(Errno::ENOENT, nix::unistd::mkdir(empty, Mode::S_IRWXU));
        fails(Errno::ENOENT, nix::unistd::mkfifo(empty, Mode::S_IRWXU));
        fails(Errno::ENOENT, nix::unistd::unlink(empty));
        fails(Errno::ENOENT, nix::unistd::truncate(empty, 0));
        fails(Errno::ENOENT, nix::unistd::chown(empty, None, None));
        fails(Errno::ENOENT, nix::unistd::access(empty, nix::unistd::AccessFlags::F_OK));
        fails(Errno::ENOENT, readlinkat(fcntl::AT_FDCWD, empty));
        fails(Errno::ENOENT, fcntl::renameat(fcntl::AT_FDCWD, empty, fcntl::AT_FDCWD, &file));
        fails(Errno::ENOENT, fcntl::renameat(fcntl::AT_FDCWD, &file, fcntl::AT_FDCWD, empty));
        fails(Errno::ENOENT, unlinkat(fcntl::AT_FDCWD, empty, UnlinkatFlags::RemoveDir));
        let chmod = nix::sys::stat::fchmodat(fcntl::AT_FDCWD, empty, Mode::S_IRWXU, FchmodatFlags::FollowSymlink);
        fails(Errno::ENOENT, chmod);
    }),
    case("a descriptor of a file is ENOTDIR", |place| {
        place.file("file");
        for flags in [OFlag::O_RDONLY, OFlag::O_PATH] {
            let file = open(place, "file", flags);
            for path in ["file", ".", "..", "missing"] {
                fails(Errno::ENOTDIR, fstatat(&file, path, FOLLOW));
                fails(Errno::ENOTDIR, opened(&file, path, OFlag::O_RDONLY));
                fails(Errno::ENOTDIR, mkdirat(&file, path, Mode::S_IRWXU));
                fails(Errno::ENOTDIR, unlinkat(&file, path, UnlinkatFlags::NoRemoveDir));
            }
        }
    }),
    case("an absolute path does not use the descriptor", |place| {
        let path = place.file("file");
        let found = fstatat(open(place, "file", OFlag::O_RDONLY), &path, FOLLOW).expect("there");
        assert_eq!(found.st_ino, inode(place, "file"));
    }),
    case("a removed directory is still `.`, and has no entries", |place| {
        place.dir("dir");
        let dir = open(place, "dir", OFlag::O_RDONLY);
        fs::remove_dir(place.path("dir")).expect("removed");
        assert_eq!(fstatat(&dir, ".", FOLLOW).expect("there").st_nlink, 0);
        fails(Errno::ENOENT, fstatat(&dir, "file", FOLLOW));
        let new = opened(&dir, "new", OFlag::O_CREAT | OFlag::O_WRONLY);
        fails(Errno::ENOENT, new);
    }),
    case("a lookup changes no time", |place| {
        place.dir("dir");
        place.file("dir/file");
        let look = || {
            fails(Errno::ENOENT, find(place, "dir/missing"));
            find(place, "dir/../dir/file")
        };
        assert_eq!(place.changed(&["", "dir", "dir/file"], look), "");
    }),
    users("search permission is needed on each directory of the path", |place| {
        for dir in ["way", "way/dir", "other"] {
            place.dir(dir);
        }
        place.file("way/dir/file");
        place.symlink("../way/dir/file", "other/link");
        for (user, permitted) in [(OWNER, 0o100), (MEMBER, 0o010), (STRANGER, 0o001)] {
            for path in ["way/dir/file", "other/link", "way/dir/..", "way/dir/.", "way/dir/missing/.."] {
                let look = || user.does(|| stat(&place.path(path))).err();
                place.give("way/dir", permitted);
                place.give("way", permitted);
                assert_eq!(look(), path.contains("missing").then_some(Errno::ENOENT), "{path}");
                place.give("way", 0o777 & !permitted);
                fails(Errno::EACCES, look().map_or(Ok(()), Err));
                place.give("way", permitted);
                place.give("way/dir", 0o777 & !permitted);
                fails(Errno::EACCES, look().map_or(Ok(()), Err));
            }
            user.does(|| stat(&place.path("way/dir"))).expect("needs none of itself");
        }
    }),
    users("search permission is needed for a relative path, whatever the descriptor is", |place| {
        place.dir("dir");
        place.file("dir/file");
        place.give("dir", 0o700);
        let both = OWNER.does(|| [OFlag::O_RDONLY, OFlag::O_PATH].map(|flags| open(place, "dir", flags)));
        place.give("dir", 0o600);
        for dir in both {
            fails(Errno::EACCES, OWNER.does(|| fstatat(&dir, "file", FOLLOW)));
            fails(Errno::EACCES, OWNER.does(|| opened(&dir, "file", OFlag::O_RDONLY)));
            fstatat(&dir, "file", FOLLOW).expect("root");
        }
    }),
    users("without search permission, a missing name is EACCES too", |place| {
        place.dir("dir");
        place.file("dir/file");
        place.give("dir", 0o666);
        for path in ["dir/file", "dir/missing", "dir/file/file"] {
            fails(Errno::EACCES, STRANGER.does(|| stat(&place.path(path))));
        }
    }),
];
