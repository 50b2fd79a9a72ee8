//! utimensat(2), futimens(3).

use std::{
    fs,
    os::unix::fs::{MetadataExt, lchown},
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, OFlag},
    sys::{
        stat::{self, Mode, UtimensatFlags, futimens},
        time::TimeSpec,
    },
};

use crate::place::{Case, MEMBER, OWNER, Place, STRANGER, case, fails, name, users};

const NOW: TimeSpec = TimeSpec::UTIME_NOW;
const OMIT: TimeSpec = TimeSpec::UTIME_OMIT;
/// Two explicit times.
const EARLIER: TimeSpec = TimeSpec::new(1_100_000_000, 123_456_789);
const LATER: TimeSpec = TimeSpec::new(1_200_000_000, 987_654_321);

fn set(place: &Place, path: &str, atime: TimeSpec, mtime: TimeSpec) -> nix::Result<()> {
    stat::utimensat(AT_FDCWD, &place.path(path), &atime, &mtime, UtimensatFlags::FollowSymlink)
}

/// Sets the times of a symbolic link itself.
fn set_link(place: &Place, path: &str, atime: TimeSpec, mtime: TimeSpec) -> nix::Result<()> {
    stat::utimensat(AT_FDCWD, &place.path(path), &atime, &mtime, UtimensatFlags::NoFollowSymlink)
}

/// The atime and the mtime.
fn times(path: &Path) -> [TimeSpec; 2] {
    let found = fs::symlink_metadata(path).expect("there");
    [TimeSpec::new(found.atime(), found.atime_nsec()), TimeSpec::new(found.mtime(), found.mtime_nsec())]
}

pub const CASES: &[Case] = &[
    case("the times are kept, to the nanosecond", |place| {
        place.dir("dir");
        place.file("file");
        place.fifo("fifo");
        for path in ["dir", "file", "fifo"] {
            for [atime, mtime] in [[EARLIER, LATER], [LATER, EARLIER], [LATER, LATER]] {
                set(place, path, atime, mtime).expect("set");
                assert_eq!(times(&place.path(path)), [atime, mtime], "{path}");
            }
        }
    }),
    case("times before 1970 and after 2038 are kept", |place| {
        let file = place.file("file");
        let (before, after) = (TimeSpec::new(-2, 1), TimeSpec::new(5_000_000_000, 999_999_999));
        for [atime, mtime] in [[before, after], [after, before]] {
            set(place, "file", atime, mtime).expect("set");
            assert_eq!(times(&file), [atime, mtime]);
        }
    }),
    case("the ctime changes, too", |place| {
        place.file("file");
        place.dir("dir");
        for path in ["file", "dir"] {
            let changed = place.changed(&["", path], || set(place, path, EARLIER, LATER));
            assert_eq!(changed, format!("{path}: atime mtime ctime"));
        }
    }),
    case("UTIME_NOW sets now, whatever the seconds are", |place| {
        let file = place.file("file");
        for now in [NOW, TimeSpec::new(5, NOW.tv_nsec())] {
            let changed = place.changed(&["", "file"], || set(place, "file", now, now));
            assert_eq!(changed, "file: atime mtime ctime");
            let [atime, mtime] = times(&file);
            assert!(atime == mtime && atime > LATER, "{atime} {mtime}");
        }
    }),
    case("UTIME_OMIT keeps one time, whatever the seconds are", |place| {
        place.file("file");
        for omit in [OMIT, TimeSpec::new(5, OMIT.tv_nsec())] {
            for new in [LATER, NOW] {
                let atime = place.changed(&["", "file"], || set(place, "file", new, omit));
                let mtime = place.changed(&["", "file"], || set(place, "file", omit, new));
                assert_eq!((atime.as_str(), mtime.as_str()), ("file: atime ctime", "file: mtime ctime"));
            }
        }
    }),
    case("UTIME_NOW and an explicit time go together", |place| {
        let file = place.file("file");
        set(place, "file", NOW, EARLIER).expect("set");
        let [atime, mtime] = times(&file);
        assert!(atime > LATER && mtime == EARLIER, "{atime} {mtime}");
        set(place, "file", EARLIER, NOW).expect("set");
        let [atime, mtime] = times(&file);
        assert!(atime == EARLIER && mtime > LATER, "{atime} {mtime}");
    }),
    case("UTIME_OMIT twice changes nothing", |place| {
        place.file("file");
        assert_eq!(place.changed(&["", "file"], || set(place, "file", OMIT, OMIT)), "");
    }),
    case("nanoseconds out of range are EINVAL, and change nothing", |place| {
        place.file("file");
        let failing = || {
            for nanoseconds in [-1, 1_000_000_000, i64::MAX] {
                let wrong = TimeSpec::new(1, nanoseconds);
                for (atime, mtime) in [(wrong, LATER), (LATER, wrong), (wrong, NOW), (OMIT, wrong)] {
                    fails(Errno::EINVAL, set(place, "file", atime, mtime));
                }
            }
            Ok(())
        };
        assert_eq!(place.changed(&["", "file"], failing), "");
    }),
    case("a symbolic link is followed, unless AT_SYMLINK_NOFOLLOW is given", |place| {
        let (file, link) = (place.file("file"), place.symlink("file", "link"));
        set(place, "link", EARLIER, EARLIER).expect("set");
        assert_eq!(times(&file), [EARLIER, EARLIER]);
        assert_ne!(times(&link)[1], EARLIER);
        let changed = place.changed(&["", "file", "link"], || set_link(place, "link", LATER, LATER));
        assert_eq!(changed, "link: atime mtime ctime");
        assert_eq!(times(&link)[1], LATER);
    }),
    case("an open descriptor is enough, even for reading only, and even after the file was removed", |place| {
        let path = place.file("file");
        let file = fs::File::open(&path).expect("opened");
        futimens(&file, &EARLIER, &LATER).expect("set");
        assert_eq!(times(&path), [EARLIER, LATER]);
        fs::remove_file(&path).expect("removed");
        futimens(&file, &LATER, &EARLIER).expect("set");
        let found = file.metadata().expect("open");
        assert_eq!((found.atime(), found.mtime()), (LATER.tv_sec(), EARLIER.tv_sec()));
    }),
    case("a file opened with O_PATH is EBADF", |place| {
        let file = nix::fcntl::open(&place.file("file"), OFlag::O_PATH, Mode::empty()).expect("opened");
        fails(Errno::EBADF, futimens(&file, &EARLIER, &LATER));
    }),
    case("all hard links of a file show the new times", |place| {
        place.file("file");
        fs::hard_link(place.path("file"), place.path("alias")).expect("linked");
        set(place, "file", EARLIER, LATER).expect("set");
        assert_eq!(times(&place.path("alias")), [EARLIER, LATER]);
    }),
    case("a missing file or directory is ENOENT", |place| {
        place.symlink("missing", "dangling");
        for path in ["missing", "missing/file", "dangling"] {
            fails(Errno::ENOENT, set(place, path, EARLIER, LATER));
            fails(Errno::ENOENT, set(place, path, NOW, NOW));
        }
        set_link(place, "dangling", EARLIER, LATER).expect("the link itself");
    }),
    case("a file in place of a directory is ENOTDIR", |place| {
        place.file("file");
        fails(Errno::ENOTDIR, set(place, "file/inner", EARLIER, LATER));
        fails(Errno::ENOTDIR, set(place, "file/", EARLIER, LATER));
    }),
    case("a loop of symbolic links is ELOOP", |place| {
        place.symlink("two", "one");
        place.symlink("one", "two");
        fails(Errno::ELOOP, set(place, "one", EARLIER, LATER));
        fails(Errno::ELOOP, set(place, "one/file", EARLIER, LATER));
        set_link(place, "one", EARLIER, LATER).expect("the link itself");
    }),
    case("a name that is too long is ENAMETOOLONG", |place| {
        fails(Errno::ENAMETOOLONG, set(place, &name(256), EARLIER, LATER));
        fails(Errno::ENOENT, set(place, &name(255), EARLIER, LATER));
    }),
    users("setting both times to now needs write permission or ownership, else EACCES", |place| {
        place.dir("dir");
        place.file("file");
        for path in ["dir", "file"] {
            for (user, permitted) in [(MEMBER, 0o020), (STRANGER, 0o002)] {
                place.give(path, permitted);
                let changed = place.changed(&["", path], || user.does(|| set(place, path, NOW, NOW)));
                assert_eq!(changed, format!("{path}: atime mtime ctime"));
                place.give(path, 0o777 & !permitted);
                fails(Errno::EACCES, user.does(|| set(place, path, NOW, NOW)));
            }
            place.give(path, 0);
            OWNER.does(|| set(place, path, NOW, NOW)).expect("permitted");
        }
    }),
    users("an explicit time needs ownership, and so does one UTIME_NOW alone, else EPERM", |place| {
        place.file("file");
        let calls = [(EARLIER, LATER), (NOW, OMIT), (OMIT, NOW), (NOW, LATER), (LATER, NOW), (OMIT, LATER)];
        for mode in [0, 0o777] {
            place.give("file", mode);
            for (atime, mtime) in calls {
                for user in [MEMBER, STRANGER] {
                    fails(Errno::EPERM, user.does(|| set(place, "file", atime, mtime)));
                }
                OWNER.does(|| set(place, "file", atime, mtime)).expect("permitted");
                set(place, "file", atime, mtime).expect("root");
            }
        }
    }),
    users("an open file needs the same permissions as a path", |place| {
        place.file("file");
        let path = place.give("file", 0o444);
        let open = || fs::File::open(&path).expect("permitted");
        fails(Errno::EACCES, STRANGER.does(|| futimens(open(), &NOW, &NOW)));
        fails(Errno::EPERM, STRANGER.does(|| futimens(open(), &EARLIER, &LATER)));
        OWNER.does(|| futimens(open(), &NOW, &NOW)).expect("permitted");
        OWNER.does(|| futimens(open(), &EARLIER, &LATER)).expect("permitted");
        assert_eq!(times(&path), [EARLIER, LATER]);
    }),
    users("UTIME_OMIT twice needs no permission", |place| {
        place.file("file");
        place.give("file", 0);
        let omitted = || STRANGER.does(|| set(place, "file", OMIT, OMIT));
        assert_eq!(place.changed(&["", "file"], omitted), "");
    }),
    users("only the owner of a symbolic link and root may set its times, else EPERM", |place| {
        let (file, link) = (place.file("file"), place.symlink("file", "link"));
        lchown(&link, Some(OWNER.uid), Some(OWNER.gid)).expect("root");
        fails(Errno::EPERM, STRANGER.does(|| set_link(place, "link", EARLIER, LATER)));
        OWNER.does(|| set_link(place, "link", EARLIER, LATER)).expect("permitted");
        assert_eq!(times(&link)[1], LATER);
        assert_ne!(times(&file), [EARLIER, LATER]);
    }),
    users("search permission is needed in the path prefix", |place| {
        place.dir("way");
        place.file("way/file");
        place.give("way/file", 0o777);
        place.give("way", 0o666);
        for (atime, mtime) in [(NOW, NOW), (EARLIER, LATER)] {
            fails(Errno::EACCES, OWNER.does(|| set(place, "way/file", atime, mtime)));
        }
        place.give("way", 0o100);
        OWNER.does(|| set(place, "way/file", EARLIER, LATER)).expect("permitted");
    }),
    users("a call that fails changes no time", |place| {
        place.file("file");
        place.give("file", 0o444);
        let failing = || {
            fails(Errno::EACCES, STRANGER.does(|| set(place, "file", NOW, NOW)));
            fails(Errno::EPERM, STRANGER.does(|| set(place, "file", EARLIER, OMIT)));
            Ok(())
        };
        assert_eq!(place.changed(&["", "file"], failing), "");
    }),
];
