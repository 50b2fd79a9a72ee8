//! setxattr(2), getxattr(2), listxattr(2), removexattr(2), xattr(7).

use std::{fs, os::fd::AsFd, path::Path};

use nix::{errno::Errno, fcntl::OFlag};
use rustix::fs::XattrFlags;

use crate::place::{Case, MEMBER, OWNER, STRANGER, as_nix, case, fails, name, open, users};

const ANY: XattrFlags = XattrFlags::empty();

fn set_with(path: &Path, name: &str, value: &[u8], flags: XattrFlags) -> nix::Result<()> {
    as_nix(rustix::fs::setxattr(path, name, value, flags))
}

fn set(path: &Path, name: &str, value: &str) -> nix::Result<()> {
    set_with(path, name, value.as_bytes(), ANY)
}

fn get(path: &Path, name: &str) -> nix::Result<String> {
    let mut buffer = [0; 4_096];
    let size = as_nix(rustix::fs::getxattr(path, name, &mut buffer[..]))?;
    Ok(String::from_utf8_lossy(&buffer[..size]).into_owned())
}

fn remove(path: &Path, name: &str) -> nix::Result<()> {
    as_nix(rustix::fs::removexattr(path, name))
}

/// The sorted names, without those that a security module adds.
fn list(path: &Path) -> nix::Result<Vec<String>> {
    let mut buffer = [0; 4_096];
    let size = as_nix(rustix::fs::listxattr(path, &mut buffer[..]))?;
    Ok(names(&buffer[..size]))
}

fn names(listed: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(listed).into_owned();
    assert!(text.is_empty() || text.ends_with('\0'), "{text:?}");
    let mut names: Vec<_> = text.split_terminator('\0').map(str::to_owned).collect();
    names.retain(|name| !name.starts_with("security."));
    names.sort();
    names
}

pub const CASES: &[Case] = &[
    case("files and directories have attributes with values of any bytes", |place| {
        let every: Vec<u8> = (0..=255).collect();
        for path in [place.file("file"), place.dir("dir")] {
            assert_eq!(list(&path), Ok(vec![]));
            set(&path, "user.one", "1").expect("set");
            set(&path, "user.empty", "").expect("set");
            set_with(&path, "user.bytes", &every, ANY).expect("set");
            assert_eq!((get(&path, "user.one"), get(&path, "user.empty")), (Ok("1".into()), Ok(String::new())));
            let mut found = [0; 300];
            assert_eq!(rustix::fs::getxattr(&path, "user.bytes", &mut found), Ok(256));
            assert_eq!(found[..256], every);
            assert_eq!(list(&path).expect("listed"), ["user.bytes", "user.empty", "user.one"]);
            remove(&path, "user.empty").expect("removed");
            assert_eq!(list(&path).expect("listed"), ["user.bytes", "user.one"]);
        }
    }),
    case("a value is replaced by a shorter and by a longer one", |place| {
        let file = place.file("file");
        for value in ["some", "s", "", "some more bytes"] {
            set(&file, "user.a", value).expect("set");
            assert_eq!(get(&file, "user.a").expect("there"), value);
        }
        assert_eq!(list(&file).expect("listed"), ["user.a"]);
    }),
    case("XATTR_CREATE of a name that exists is EEXIST", |place| {
        let file = place.file("file");
        let create = |value| set_with(&file, "user.a", value, XattrFlags::CREATE);
        create(b"one").expect("made");
        fails(Errno::EEXIST, create(b"two"));
        assert_eq!(get(&file, "user.a").expect("there"), "one");
    }),
    case("XATTR_REPLACE of a name that is missing is ENODATA", |place| {
        let file = place.file("file");
        let replace = |value| set_with(&file, "user.a", value, XattrFlags::REPLACE);
        fails(Errno::ENODATA, replace(b"one"));
        fails(Errno::ENODATA, get(&file, "user.a"));
        set(&file, "user.a", "one").expect("set");
        replace(b"two").expect("replaced");
        assert_eq!(get(&file, "user.a").expect("there"), "two");
    }),
    case("an unknown flag is EINVAL", |place| {
        let file = place.file("file");
        fails(Errno::EINVAL, set_with(&file, "user.a", b"", XattrFlags::from_bits_retain(4)));
    }),
    case("a name that is missing is ENODATA", |place| {
        let file = place.file("file");
        set(&file, "user.a", "").expect("set");
        for missing in ["user.b", "user.A", "user.aa"] {
            fails(Errno::ENODATA, get(&file, missing));
            fails(Errno::ENODATA, as_nix(rustix::fs::getxattr_query(&file, missing)));
            fails(Errno::ENODATA, remove(&file, missing));
        }
    }),
    case("a buffer that is too short is ERANGE, and an empty one asks for the size", |place| {
        let file = place.file("file");
        set(&file, "user.name", "value").expect("set");
        assert_eq!(rustix::fs::getxattr_query(&file, "user.name"), Ok(5));
        assert_eq!(rustix::fs::getxattr(&file, "user.name", &mut [0; 5]), Ok(5));
        let size = rustix::fs::listxattr_query(&file).expect("a size");
        assert!(size >= "user.name\0".len(), "{size}");
        let mut buffer = vec![0; size];
        assert_eq!(rustix::fs::listxattr(&file, &mut buffer[..]), Ok(size));
        assert_eq!(names(&buffer), ["user.name"]);
        for short in [1, 4] {
            fails(Errno::ERANGE, as_nix(rustix::fs::getxattr(&file, "user.name", &mut vec![0; short][..])));
            fails(Errno::ERANGE, as_nix(rustix::fs::listxattr(&file, &mut vec![0; short][..])));
        }
        fails(Errno::ERANGE, as_nix(rustix::fs::listxattr(&file, &mut buffer[1..])));
    }),
    case("a prefix that is unknown or missing is EOPNOTSUPP", |place| {
        let file = place.file("file");
        for unknown in ["a", "nothing.a", "users.a", "user"] {
            fails(Errno::EOPNOTSUPP, set(&file, unknown, ""));
            fails(Errno::EOPNOTSUPP, get(&file, unknown));
            fails(Errno::EOPNOTSUPP, remove(&file, unknown));
        }
    }),
    case("a prefix alone is EINVAL", |place| {
        let file = place.file("file");
        fails(Errno::EINVAL, set(&file, "user.", ""));
        fails(Errno::EINVAL, get(&file, "user."));
        fails(Errno::EINVAL, remove(&file, "user."));
    }),
    case("a name has 1 to 255 bytes, and others are ERANGE", |place| {
        let file = place.file("file");
        let longest = format!("user.{}", name(250));
        set(&file, &longest, "1").expect("set");
        assert_eq!(get(&file, &longest).expect("there"), "1");
        assert_eq!(list(&file).expect("listed"), [longest.as_str()]);
        for wrong in [format!("{longest}n"), String::new()] {
            fails(Errno::ERANGE, set(&file, &wrong, "1"));
            fails(Errno::ERANGE, get(&file, &wrong));
            fails(Errno::ERANGE, remove(&file, &wrong));
        }
        remove(&file, &longest).expect("removed");
    }),
    case("a value over 64 KiB is E2BIG", |place| {
        let file = place.file("file");
        fails(Errno::E2BIG, set_with(&file, "user.a", &[0; 65_537], ANY));
        assert_eq!(list(&file), Ok(vec![]));
    }),
    case("a symbolic link is followed, and has no user attributes itself", |place| {
        let (file, link) = (place.file("file"), place.symlink("file", "link"));
        set(&link, "user.a", "1").expect("set");
        assert_eq!(get(&file, "user.a").expect("there"), "1");
        assert_eq!(list(&link).expect("listed"), ["user.a"]);
        fails(Errno::EPERM, as_nix(rustix::fs::lsetxattr(&link, "user.a", b"", ANY)));
        fails(Errno::ENODATA, as_nix(rustix::fs::lgetxattr(&link, "user.a", &mut [0; 9])));
        fails(Errno::EPERM, as_nix(rustix::fs::lremovexattr(&link, "user.a")));
        let mut buffer = [0; 300];
        let size = rustix::fs::llistxattr(&link, &mut buffer).expect("listed");
        assert!(names(&buffer[..size]).is_empty());
        remove(&link, "user.a").expect("removed");
        assert_eq!(list(&file), Ok(vec![]));
    }),
    case("a FIFO has no user attributes", |place| {
        let fifo = place.fifo("fifo");
        fails(Errno::EPERM, set(&fifo, "user.a", ""));
        fails(Errno::ENODATA, get(&fifo, "user.a"));
        fails(Errno::EPERM, remove(&fifo, "user.a"));
    }),
    case("a descriptor for reading is enough, and one of O_PATH is EBADF", |place| {
        place.file("file");
        let file = open(place, "file", OFlag::O_RDONLY);
        rustix::fs::fsetxattr(&file, "user.a", b"1", ANY).expect("set");
        assert_eq!(rustix::fs::fgetxattr(&file, "user.a", &mut [0; 9]), Ok(1));
        let mut buffer = [0; 300];
        let size = rustix::fs::flistxattr(&file, &mut buffer).expect("listed");
        assert_eq!(names(&buffer[..size]), ["user.a"]);
        rustix::fs::fremovexattr(&file, "user.a").expect("removed");
        let found = open(place, "file", OFlag::O_PATH);
        fails(Errno::EBADF, as_nix(rustix::fs::fsetxattr(&found, "user.a", b"1", ANY)));
        fails(Errno::EBADF, as_nix(rustix::fs::fgetxattr(&found, "user.a", &mut [0; 9])));
        fails(Errno::EBADF, as_nix(rustix::fs::flistxattr(&found, &mut [0; 9])));
        fails(Errno::EBADF, as_nix(rustix::fs::fremovexattr(found.as_fd(), "user.a")));
    }),
    case("a path that cannot be resolved fails as for other calls", |place| {
        place.file("file");
        place.symlink("two", "one");
        place.symlink("one", "two");
        let long = name(256);
        for (path, errno) in [
            ("missing", Errno::ENOENT),
            ("missing/file", Errno::ENOENT),
            ("file/file", Errno::ENOTDIR),
            ("file/", Errno::ENOTDIR),
            ("one", Errno::ELOOP),
            (&long, Errno::ENAMETOOLONG),
        ] {
            fails(errno, set(&place.path(path), "user.a", ""));
            fails(errno, get(&place.path(path), "user.a"));
            fails(errno, list(&place.path(path)));
            fails(errno, remove(&place.path(path), "user.a"));
        }
    }),
    case("all hard links of a file show its attributes, and a new file has none", |place| {
        let file = place.file("file");
        set(&file, "user.a", "1").expect("set");
        fs::hard_link(&file, place.path("alias")).expect("linked");
        fs::rename(&file, place.path("moved")).expect("renamed");
        for path in ["alias", "moved"] {
            assert_eq!(get(&place.path(path), "user.a").expect("there"), "1");
        }
        assert_eq!(list(&place.file("file")), Ok(vec![]));
    }),
    case("a change of an attribute changes the ctime, and no other time", |place| {
        for path in [place.file("file"), place.dir("dir")] {
            let here = path.file_name().and_then(|name| name.to_str()).expect("a name");
            let ctime = format!("{here}: ctime");
            assert_eq!(place.changed(&["", here], || set(&path, "user.a", "1")), ctime);
            assert_eq!(place.changed(&["", here], || set(&path, "user.a", "two")), ctime);
            assert_eq!(place.changed(&["", here], || get(&path, "user.a")), "");
            assert_eq!(place.changed(&["", here], || list(&path)), "");
            assert_eq!(place.changed(&["", here], || remove(&path, "user.a")), ctime);
        }
    }),
    case("a call that fails changes no time", |place| {
        let file = place.file("file");
        let failing = || {
            fails(Errno::ENODATA, set_with(&file, "user.a", b"", XattrFlags::REPLACE));
            fails(Errno::ENODATA, remove(&file, "user.a"));
            fails(Errno::ENODATA, get(&file, "user.a"));
            Ok(())
        };
        assert_eq!(place.changed(&["", "file"], failing), "");
    }),
    users("read permission is needed to get, write permission to set and to remove", |place| {
        for path in [place.file("it"), place.dir("dir")] {
            let here = path.file_name().and_then(|name| name.to_str()).expect("a name");
            for (user, read, write) in [(OWNER, 0o400, 0o200), (MEMBER, 0o040, 0o020), (STRANGER, 0o004, 0o002)] {
                set(&path, "user.a", "1").expect("root");
                place.give(here, read);
                user.does(|| get(&path, "user.a")).expect("permitted");
                fails(Errno::EACCES, user.does(|| set(&path, "user.a", "2")));
                fails(Errno::EACCES, user.does(|| remove(&path, "user.a")));
                place.give(here, write);
                fails(Errno::EACCES, user.does(|| get(&path, "user.a")));
                user.does(|| set(&path, "user.a", "2")).expect("permitted");
                user.does(|| remove(&path, "user.a")).expect("permitted");
                place.give(here, 0);
                user.does(|| list(&path)).expect("no permission is needed");
            }
        }
    }),
    users("search permission is needed in the path prefix", |place| {
        place.dir("way");
        let file = place.file("way/file");
        place.give("way/file", 0o666);
        place.give("way", 0o666);
        fails(Errno::EACCES, OWNER.does(|| set(&file, "user.a", "")));
        fails(Errno::EACCES, OWNER.does(|| get(&file, "user.a")));
        fails(Errno::EACCES, OWNER.does(|| list(&file)));
        place.give("way", 0o100);
        OWNER.does(|| set(&file, "user.a", "")).expect("permitted");
        assert_eq!(OWNER.does(|| list(&file)).expect("permitted"), ["user.a"]);
    }),
    users("only the owner of a sticky directory may change its attributes", |place| {
        let dir = place.dir("dir");
        place.give("dir", 0o1777);
        fails(Errno::EPERM, STRANGER.does(|| set(&dir, "user.a", "")));
        OWNER.does(|| set(&dir, "user.a", "1")).expect("permitted");
        fails(Errno::EPERM, STRANGER.does(|| remove(&dir, "user.a")));
        STRANGER.does(|| get(&dir, "user.a")).expect("permitted");
    }),
    users("trusted attributes need CAP_SYS_ADMIN", |place| {
        let file = place.file("file");
        place.give("file", 0o777);
        fails(Errno::EPERM, OWNER.does(|| set(&file, "trusted.a", "")));
        fails(Errno::ENODATA, OWNER.does(|| get(&file, "trusted.a")));
        fails(Errno::EPERM, OWNER.does(|| remove(&file, "trusted.a")));
    }),
];
