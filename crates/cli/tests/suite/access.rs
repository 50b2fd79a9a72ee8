//! access(2), faccessat(2), faccessat2(2).

use std::{fs, thread};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags},
    unistd::{AccessFlags, faccessat},
};
use rustix::{process::Uid, thread::set_thread_res_uid};

use crate::place::{Case, MEMBER, OWNER, Place, STRANGER, case, fails, name, set_mode, users};

const EXISTS: AccessFlags = AccessFlags::F_OK;
const READ: AccessFlags = AccessFlags::R_OK;
const WRITE: AccessFlags = AccessFlags::W_OK;
const EXECUTE: AccessFlags = AccessFlags::X_OK;
/// Each permission, with the bit that grants it to others.
const PERMISSIONS: [(AccessFlags, u32); 3] = [(READ, 4), (WRITE, 2), (EXECUTE, 1)];

fn access(place: &Place, path: &str, wanted: AccessFlags) -> nix::Result<()> {
    faccessat(AT_FDCWD, &place.path(path), wanted, AtFlags::empty())
}

pub const CASES: &[Case] = &[
    case("anything that exists is found, whatever its mode is", |place| {
        place.dir("dir");
        place.file("file");
        place.symlink("file", "link");
        set_mode(&place.path("file"), 0);
        set_mode(&place.path("dir"), 0);
        for path in ["", "dir", "file", "link", "dir///"] {
            access(place, path, EXISTS).expect("there");
        }
    }),
    case("the caller's own file is accessible as its mode says", |place| {
        place.file("file");
        set_mode(&place.path("file"), 0o700);
        access(place, "file", READ | WRITE | EXECUTE).expect("permitted");
        set_mode(&place.path("file"), 0o600);
        access(place, "file", READ | WRITE).expect("permitted");
        // Root may not execute it either.
        fails(Errno::EACCES, access(place, "file", EXECUTE));
        fails(Errno::EACCES, access(place, "file", READ | EXECUTE));
    }),
    case("a missing file or directory is ENOENT", |place| {
        place.symlink("missing", "dangling");
        for path in ["missing", "missing/file", "dangling"] {
            for wanted in [EXISTS, READ, WRITE, EXECUTE] {
                fails(Errno::ENOENT, access(place, path, wanted));
            }
        }
    }),
    case("a file in place of a directory is ENOTDIR", |place| {
        place.file("file");
        for path in ["file/inner", "file/"] {
            fails(Errno::ENOTDIR, access(place, path, EXISTS));
        }
    }),
    case("a loop of symbolic links is ELOOP", |place| {
        place.symlink("two", "one");
        place.symlink("one", "two");
        fails(Errno::ELOOP, access(place, "one", EXISTS));
        fails(Errno::ELOOP, access(place, "one/file", EXISTS));
    }),
    case("a name that is too long is ENAMETOOLONG", |place| {
        fails(Errno::ENAMETOOLONG, access(place, &name(256), EXISTS));
        fails(Errno::ENOENT, access(place, &name(255), EXISTS));
    }),
    case("an unknown permission is EINVAL", |place| {
        place.file("file");
        fails(Errno::EINVAL, access(place, "file", AccessFlags::from_bits_retain(8)));
    }),
    case("with AT_SYMLINK_NOFOLLOW, a symbolic link itself is found", |place| {
        let dangling = place.symlink("missing", "dangling");
        for wanted in [EXISTS, READ, WRITE] {
            faccessat(AT_FDCWD, &dangling, wanted, AtFlags::AT_SYMLINK_NOFOLLOW).expect("there");
        }
    }),
    case("a path may begin at an open directory", |place| {
        let dir = fs::File::open(place.dir("dir")).expect("opened");
        place.file("dir/file");
        faccessat(&dir, "file", READ, AtFlags::empty()).expect("permitted");
        fails(Errno::ENOENT, faccessat(&dir, "missing", READ, AtFlags::empty()));
    }),
    case("no time changes", |place| {
        place.dir("dir");
        place.file("dir/file");
        let looked = || access(place, "dir/file", READ | WRITE);
        assert_eq!(place.changed(&["", "dir", "dir/file"], looked), "");
    }),
    users("owner, group and others have their own bits, and no other bits count", |place| {
        place.dir("dir");
        place.file("file");
        for path in ["dir", "file"] {
            for (user, shift) in [(OWNER, 6), (MEMBER, 3), (STRANGER, 0)] {
                for (wanted, bit) in PERMISSIONS {
                    place.give(path, bit << shift);
                    user.does(|| access(place, path, wanted)).expect("permitted");
                    place.give(path, 0o777 & !(bit << shift));
                    fails(Errno::EACCES, user.does(|| access(place, path, wanted)));
                }
            }
        }
    }),
    users("all permissions that the call names must be granted", |place| {
        place.file("file");
        for (bits, permitted) in [(7, true), (6, false), (5, false), (3, false), (0, false)] {
            place.give("file", bits);
            let found = STRANGER.does(|| access(place, "file", READ | WRITE | EXECUTE));
            assert_eq!(found.is_ok(), permitted, "{bits}");
            STRANGER.does(|| access(place, "file", EXISTS)).expect("there");
        }
    }),
    users("a symbolic link is followed, and the mode of its target counts", |place| {
        place.file("file");
        place.symlink("file", "link");
        place.give("file", 0o004);
        STRANGER.does(|| access(place, "link", READ)).expect("permitted");
        fails(Errno::EACCES, STRANGER.does(|| access(place, "link", WRITE)));
    }),
    users("search permission is needed in the path prefix", |place| {
        place.dir("way");
        place.file("way/file");
        place.give("way/file", 0o777);
        for (user, search) in [(OWNER, 0o100), (MEMBER, 0o010), (STRANGER, 0o001)] {
            place.give("way", search);
            user.does(|| access(place, "way/file", READ)).expect("permitted");
            fails(Errno::ENOENT, user.does(|| access(place, "way/missing", EXISTS)));
            place.give("way", 0o777 & !search);
            for path in ["way/file", "way/missing", "way/."] {
                fails(Errno::EACCES, user.does(|| access(place, path, EXISTS)));
            }
        }
    }),
    users("root may read and write everything, and search every directory", |place| {
        place.dir("dir");
        place.file("file");
        place.give("dir", 0);
        place.give("file", 0);
        access(place, "dir", READ | WRITE | EXECUTE).expect("root");
        access(place, "file", READ | WRITE).expect("root");
    }),
    users("root may execute a file if anyone may", |place| {
        place.file("file");
        place.give("file", 0o666);
        fails(Errno::EACCES, access(place, "file", EXECUTE));
        for mode in [0o100, 0o010, 0o001] {
            place.give("file", mode);
            access(place, "file", EXECUTE).expect("root");
        }
    }),
    users("the real ids count, and with AT_EACCESS the effective ones", |place| {
        place.file("file");
        let file = place.give("file", 0o600);
        let as_both = || {
            let (real, effective) = (Uid::from_raw(STRANGER.uid), Uid::from_raw(OWNER.uid));
            set_thread_res_uid(real, effective, effective).expect("root");
            let look = |flags| faccessat(AT_FDCWD, &file, READ | WRITE, flags);
            (look(AtFlags::empty()), look(AtFlags::AT_EACCESS))
        };
        let (by_real, by_effective) = thread::scope(|scope| scope.spawn(as_both).join().expect("no panic"));
        fails(Errno::EACCES, by_real);
        by_effective.expect("permitted");
    }),
];
