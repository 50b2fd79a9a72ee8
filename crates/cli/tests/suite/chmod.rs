//! chmod(2), fchmod(2), fchmodat(2).

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::chown,
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, OFlag},
    sys::stat::{self, FchmodatFlags, Mode},
};

use crate::place::{Case, MEMBER, OWNER, Place, STRANGER, case, fails, mode, name, needs_search, users};

fn chmod(place: &Place, path: &str, mode: u32) -> nix::Result<()> {
    stat::fchmodat(AT_FDCWD, &place.path(path), bits(mode), FchmodatFlags::FollowSymlink)
}

fn bits(mode: u32) -> Mode {
    Mode::from_bits_truncate(mode)
}

pub const CASES: &[Case] = &[
    case("all twelve bits are kept", |place| {
        place.dir("dir");
        place.file("file");
        place.fifo("fifo");
        for path in ["dir", "file", "fifo"] {
            for new in (0..12).map(|bit| 1 << bit).chain([0, 0o644, 0o755, 0o1777, 0o7777]) {
                chmod(place, path, new).expect("set");
                assert_eq!(mode(&place.path(path)), new, "{path}");
            }
        }
    }),
    case("the file type stays", |place| {
        place.file("file");
        let kind = || stat::stat(&place.path("file")).expect("there").st_mode & !0o7777;
        let before = kind();
        chmod(place, "file", 0).expect("set");
        assert_eq!(kind(), before);
    }),
    case("all hard links of a file show the new mode", |place| {
        place.file("file");
        fs::hard_link(place.path("file"), place.path("alias")).expect("linked");
        chmod(place, "file", 0o751).expect("set");
        assert_eq!(mode(&place.path("alias")), 0o751);
    }),
    case("a symbolic link is followed", |place| {
        place.file("file");
        place.symlink("file", "link");
        let of_link = mode(&place.path("link"));
        chmod(place, "link", 0o751).expect("set");
        assert_eq!((mode(&place.path("file")), mode(&place.path("link"))), (0o751, of_link));
    }),
    case("the mode of a symbolic link itself cannot be set: EOPNOTSUPP", |place| {
        let file = place.file("file");
        let link = place.symlink("file", "link");
        let set = |path| stat::fchmodat(AT_FDCWD, path, bits(0o751), FchmodatFlags::NoFollowSymlink);
        let before = mode(&file);
        fails(Errno::EOPNOTSUPP, set(&link));
        assert_eq!(mode(&file), before);
        set(&file).expect("no link");
        assert_eq!(mode(&file), 0o751);
    }),
    case("a path may begin at an open directory", |place| {
        let dir = fs::File::open(place.dir("dir")).expect("opened");
        place.file("dir/file");
        stat::fchmodat(&dir, "file", bits(0o751), FchmodatFlags::FollowSymlink).expect("set");
        assert_eq!(mode(&place.path("dir/file")), 0o751);
    }),
    case("an open descriptor is enough, even for reading only, and even after the file was removed", |place| {
        let file = fs::File::open(place.file("file")).expect("opened");
        stat::fchmod(&file, bits(0o751)).expect("set");
        assert_eq!(mode(&place.path("file")), 0o751);
        fs::remove_file(place.path("file")).expect("removed");
        stat::fchmod(&file, bits(0o640)).expect("set");
        assert_eq!(stat::fstat(&file).expect("open").st_mode & 0o7777, 0o640);
    }),
    case("a file opened with O_PATH is EBADF", |place| {
        let file = nix::fcntl::open(&place.file("file"), OFlag::O_PATH, Mode::empty()).expect("opened");
        fails(Errno::EBADF, stat::fchmod(&file, bits(0o751)));
    }),
    case("a file that is open stays usable", |place| {
        let path = place.file("file");
        let mut file = fs::OpenOptions::new().read(true).write(true).open(path).expect("opened");
        chmod(place, "file", 0).expect("set");
        let mut found = String::new();
        file.read_to_string(&mut found).expect("read");
        file.write_all(b"more").expect("written");
        assert_eq!(found, "some bytes");
    }),
    case("a missing file or directory is ENOENT", |place| {
        place.symlink("missing", "dangling");
        for path in ["missing", "missing/file", "dangling"] {
            fails(Errno::ENOENT, chmod(place, path, 0o751));
        }
    }),
    case("a file in place of a directory is ENOTDIR", |place| {
        place.file("file");
        fails(Errno::ENOTDIR, chmod(place, "file/inner", 0o751));
        fails(Errno::ENOTDIR, chmod(place, "file/", 0o751));
    }),
    case("a loop of symbolic links is ELOOP", |place| {
        place.symlink("two", "one");
        place.symlink("one", "two");
        fails(Errno::ELOOP, chmod(place, "one", 0o751));
        fails(Errno::ELOOP, chmod(place, "one/file", 0o751));
    }),
    case("a name that is too long is ENAMETOOLONG", |place| {
        fails(Errno::ENAMETOOLONG, chmod(place, &name(256), 0o751));
        fails(Errno::ENOENT, chmod(place, &name(255), 0o751));
    }),
    case("the ctime changes, even if the mode stays the same", |place| {
        place.file("file");
        place.dir("dir");
        for path in ["file", "dir"] {
            for _ in 0..2 {
                let changed = place.changed(&["", path], || chmod(place, path, 0o751));
                assert_eq!(changed, format!("{path}: ctime"));
            }
        }
        let open = fs::File::open(place.path("file")).expect("opened");
        let changed = place.changed(&["", "file"], || stat::fchmod(&open, bits(0o640)));
        assert_eq!(changed, "file: ctime");
    }),
    users("a call that fails changes nothing", |place| {
        place.file("file");
        place.give("file", 0o666);
        let failing = || {
            fails(Errno::EPERM, STRANGER.does(|| chmod(place, "file", 0)));
            Ok(())
        };
        assert_eq!(place.changed(&["", "file"], failing), "");
        assert_eq!(mode(&place.path("file")), 0o666);
    }),
    users("only the owner and root may set the mode, whatever it is", |place| {
        place.dir("dir");
        place.file("file");
        for path in ["dir", "file"] {
            for before in [0, 0o777] {
                place.give(path, before);
                for user in [MEMBER, STRANGER] {
                    fails(Errno::EPERM, user.does(|| chmod(place, path, 0o751)));
                    fails(Errno::EPERM, user.does(|| chmod(place, path, before)));
                }
                OWNER.does(|| chmod(place, path, 0o751)).expect("permitted");
                assert_eq!(mode(&place.path(path)), 0o751);
                chmod(place, path, 0o640).expect("root");
            }
        }
    }),
    users("only the owner and root may set the mode of an open file", |place| {
        place.file("file");
        let path = place.give("file", 0o666);
        let open = || fs::OpenOptions::new().read(true).write(true).open(&path).expect("permitted");
        fails(Errno::EPERM, STRANGER.does(|| stat::fchmod(open(), bits(0o751))));
        OWNER.does(|| stat::fchmod(open(), bits(0o751))).expect("permitted");
    }),
    users("search permission is needed in the path prefix", |place| {
        place.dir("way");
        place.file("way/file");
        place.give("way/file", 0o777);
        needs_search(place, || chmod(place, "way/file", 0o751));
    }),
    users("setgid is not set if the caller is not in the group", |place| {
        place.dir("dir");
        place.file("file");
        for path in ["dir", "file"] {
            let at = place.give(path, 0o755);
            OWNER.does(|| chmod(place, path, 0o6755)).expect("permitted");
            assert_eq!(mode(&at), 0o6755, "{path}");
            chown(&at, Some(OWNER.uid), Some(STRANGER.gid)).expect("root");
            OWNER.does(|| chmod(place, path, 0o6755)).expect("permitted");
            assert_eq!(mode(&at), 0o4755, "{path}");
            chmod(place, path, 0o6755).expect("root");
            assert_eq!(mode(&at), 0o6755, "{path}");
        }
    }),
    users("one of several groups is enough for setgid", |place| {
        let file = place.file("file");
        chown(&file, Some(MEMBER.uid), Some(OWNER.gid)).expect("root");
        MEMBER.does(|| chmod(place, "file", 0o2755)).expect("permitted");
        assert_eq!(mode(&file), 0o2755);
    }),
];
