//! chown(2), lchown(2), fchown(2), fchownat(2).

use std::{
    fs,
    os::unix::fs::{MetadataExt, fchown, lchown},
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags},
    unistd::{Gid, Uid, fchownat, getgid, getuid},
};

use crate::place::{
    Case, MEMBER, OWNER, Place, STRANGER, User, case, fails, mode, name, needs_search, set_mode, users,
};

fn chown(place: &Place, path: &str, owner: Option<u32>, group: Option<u32>) -> nix::Result<()> {
    chown_with(AtFlags::empty(), place, path, owner, group)
}

fn chown_with(flags: AtFlags, place: &Place, path: &str, owner: Option<u32>, group: Option<u32>) -> nix::Result<()> {
    fchownat(AT_FDCWD, &place.path(path), owner.map(Uid::from_raw), group.map(Gid::from_raw), flags)
}

/// Sets the caller's own ids.
fn keep(place: &Place, path: &str) -> nix::Result<()> {
    chown(place, path, Some(getuid().as_raw()), Some(getgid().as_raw()))
}

/// The owner and the group.
fn ids(path: &Path) -> (u32, u32) {
    let found = fs::symlink_metadata(path).expect("there");
    (found.uid(), found.gid())
}

/// A new file of this user and group, with this mode.
fn file_of(place: &Place, user: User, group: u32, mode: u32) {
    let file = place.file("file");
    std::os::unix::fs::chown(&file, Some(user.uid), Some(group)).expect("root");
    set_mode(&file, mode);
}

pub const CASES: &[Case] = &[
    case("callers may set their own ids on their own files", |place| {
        let file = place.file("file");
        keep(place, "file").expect("permitted");
        assert_eq!(ids(&file), (getuid().as_raw(), getgid().as_raw()));
    }),
    case("a missing file or directory is ENOENT", |place| {
        place.symlink("missing", "dangling");
        for path in ["missing", "missing/file", "dangling"] {
            fails(Errno::ENOENT, keep(place, path));
        }
    }),
    case("a file in place of a directory is ENOTDIR", |place| {
        place.file("file");
        fails(Errno::ENOTDIR, keep(place, "file/inner"));
        fails(Errno::ENOTDIR, keep(place, "file/"));
    }),
    case("a loop of symbolic links is ELOOP, but a link itself can be changed", |place| {
        place.symlink("two", "one");
        place.symlink("one", "two");
        fails(Errno::ELOOP, keep(place, "one"));
        fails(Errno::ELOOP, keep(place, "one/file"));
        lchown(place.path("one"), Some(getuid().as_raw()), None).expect("permitted");
    }),
    case("a name that is too long is ENAMETOOLONG", |place| {
        fails(Errno::ENAMETOOLONG, keep(place, &name(256)));
        fails(Errno::ENOENT, keep(place, &name(255)));
    }),
    case("the ctime changes, even if the ids stay the same", |place| {
        place.file("file");
        place.dir("dir");
        for path in ["file", "dir"] {
            let changed = place.changed(&["", path], || keep(place, path));
            assert_eq!(changed, format!("{path}: ctime"));
        }
    }),
    users("root sets any ids, of anything", |place| {
        place.dir("dir");
        place.file("file");
        place.fifo("fifo");
        for path in ["dir", "file", "fifo"] {
            for (owner, group) in [(OWNER.uid, STRANGER.gid), (0x7fff_ffff, 0xffff_fffe), (0, 0)] {
                chown(place, path, Some(owner), Some(group)).expect("root");
                assert_eq!(ids(&place.path(path)), (owner, group), "{path}");
            }
        }
    }),
    users("an id of -1 leaves the id as it is", |place| {
        let file = place.file("file");
        place.give("file", 0o644);
        chown(place, "file", Some(STRANGER.uid), None).expect("root");
        assert_eq!(ids(&file), (STRANGER.uid, OWNER.gid));
        chown(place, "file", None, Some(STRANGER.gid)).expect("root");
        assert_eq!(ids(&file), (STRANGER.uid, STRANGER.gid));
        chown(place, "file", None, None).expect("root");
        assert_eq!(ids(&file), (STRANGER.uid, STRANGER.gid));
    }),
    users("a symbolic link is followed, unless AT_SYMLINK_NOFOLLOW is given", |place| {
        let (file, link) = (place.file("file"), place.symlink("file", "link"));
        chown(place, "link", Some(OWNER.uid), Some(OWNER.gid)).expect("root");
        assert_eq!((ids(&file), ids(&link).0), ((OWNER.uid, OWNER.gid), 0));
        let itself = AtFlags::AT_SYMLINK_NOFOLLOW;
        chown_with(itself, place, "link", Some(STRANGER.uid), Some(STRANGER.gid)).expect("root");
        assert_eq!((ids(&file), ids(&link)), ((OWNER.uid, OWNER.gid), (STRANGER.uid, STRANGER.gid)));
        place.symlink("missing", "dangling");
        lchown(place.path("dangling"), Some(OWNER.uid), Some(OWNER.gid)).expect("root");
        assert_eq!(ids(&place.path("dangling")), (OWNER.uid, OWNER.gid));
    }),
    users("new ids change the ctime, and no other time", |place| {
        place.file("file");
        place.symlink("file", "link");
        let new = || chown(place, "file", Some(OWNER.uid), None);
        assert_eq!(place.changed(&["", "file", "link"], new), "file: ctime");
        let itself = AtFlags::AT_SYMLINK_NOFOLLOW;
        let new = || chown_with(itself, place, "link", None, Some(OWNER.gid));
        // A tree over a directory of the host may read the link, which stamps its atime.
        let changed = place.changed(&["", "file", "link"], new);
        assert!(matches!(changed.as_str(), "link: ctime" | "link: atime ctime"), "{changed}");
    }),
    users("an open descriptor is enough, even for reading only, and even after the file was removed", |place| {
        let file = fs::File::open(place.file("file")).expect("opened");
        fchown(&file, Some(OWNER.uid), Some(OWNER.gid)).expect("root");
        assert_eq!(ids(&place.path("file")), (OWNER.uid, OWNER.gid));
        let (owner, group) = (Some(Uid::from_raw(STRANGER.uid)), Some(Gid::from_raw(STRANGER.gid)));
        fchownat(&file, "", owner, group, AtFlags::AT_EMPTY_PATH).expect("root");
        assert_eq!(ids(&place.path("file")), (STRANGER.uid, STRANGER.gid));
        fs::remove_file(place.path("file")).expect("removed");
        fchown(&file, Some(OWNER.uid), Some(OWNER.gid)).expect("root");
        let found = file.metadata().expect("open");
        assert_eq!((found.uid(), found.gid()), (OWNER.uid, OWNER.gid));
    }),
    users("only root may change the owner, else EPERM", |place| {
        file_of(place, OWNER, OWNER.gid, 0o777);
        for user in [OWNER, MEMBER, STRANGER] {
            for other in [OWNER, MEMBER, STRANGER] {
                if user.uid != OWNER.uid || other.uid != OWNER.uid {
                    fails(Errno::EPERM, user.does(|| chown(place, "file", Some(other.uid), None)));
                }
            }
        }
        OWNER.does(|| chown(place, "file", Some(OWNER.uid), None)).expect("permitted");
        assert_eq!(ids(&place.path("file")), (OWNER.uid, OWNER.gid));
    }),
    users("the owner may give a file to a group that the owner is in, else EPERM", |place| {
        file_of(place, MEMBER, MEMBER.gid, 0o644);
        let to = |group: u32| MEMBER.does(|| chown(place, "file", Some(MEMBER.uid), Some(group)));
        for group in [OWNER.gid, MEMBER.gid] {
            to(group).expect("permitted");
            assert_eq!(ids(&place.path("file")), (MEMBER.uid, group));
        }
        fails(Errno::EPERM, to(STRANGER.gid));
        fails(Errno::EPERM, to(0));
        assert_eq!(ids(&place.path("file")), (MEMBER.uid, MEMBER.gid));
    }),
    users("the owner may keep a group that the owner is not in", |place| {
        file_of(place, OWNER, STRANGER.gid, 0o644);
        OWNER.does(|| chown(place, "file", Some(OWNER.uid), Some(STRANGER.gid))).expect("permitted");
        fails(Errno::EPERM, OWNER.does(|| chown(place, "file", None, Some(MEMBER.gid))));
        OWNER.does(|| chown(place, "file", None, Some(OWNER.gid))).expect("permitted");
    }),
    users("a member of the group who is not the owner may not change it: EPERM", |place| {
        file_of(place, OWNER, STRANGER.gid, 0o777);
        fails(Errno::EPERM, MEMBER.does(|| chown(place, "file", None, Some(OWNER.gid))));
        fails(Errno::EPERM, STRANGER.does(|| chown(place, "file", None, Some(STRANGER.gid))));
    }),
    users("only the owner of a symbolic link and root may change its group, else EPERM", |place| {
        let link = place.symlink("missing", "link");
        lchown(&link, Some(MEMBER.uid), Some(MEMBER.gid)).expect("root");
        let itself = AtFlags::AT_SYMLINK_NOFOLLOW;
        let new = || chown_with(itself, place, "link", None, Some(OWNER.gid));
        fails(Errno::EPERM, OWNER.does(new));
        MEMBER.does(new).expect("permitted");
        assert_eq!(ids(&link), (MEMBER.uid, OWNER.gid));
        new().expect("root");
    }),
    users("search permission is needed in the path prefix", |place| {
        place.dir("way");
        place.file("way/file");
        place.give("way/file", 0o777);
        needs_search(place, || chown(place, "way/file", None, Some(OWNER.gid)));
    }),
    users("a call that fails changes nothing", |place| {
        file_of(place, OWNER, OWNER.gid, 0o6755);
        let failing = || {
            fails(Errno::EPERM, OWNER.does(|| chown(place, "file", None, Some(STRANGER.gid))));
            fails(Errno::EPERM, STRANGER.does(|| chown(place, "file", Some(STRANGER.uid), None)));
            Ok(())
        };
        assert_eq!(place.changed(&["", "file"], failing), "");
        assert_eq!(mode(&place.path("file")), 0o6755);
    }),
    users("an executable loses setuid and setgid by a change of an id, even by root", |place| {
        let file = place.path("file");
        file_of(place, MEMBER, MEMBER.gid, 0o6755);
        MEMBER.does(|| chown(place, "file", None, Some(OWNER.gid))).expect("permitted");
        assert_eq!(mode(&file), 0o755);
        set_mode(&file, 0o6755);
        MEMBER.does(|| chown(place, "file", Some(MEMBER.uid), Some(OWNER.gid))).expect("permitted");
        assert_eq!(mode(&file), 0o755);
        set_mode(&file, 0o6755);
        chown(place, "file", Some(STRANGER.uid), None).expect("root");
        assert_eq!(mode(&file), 0o755);
    }),
    // Without group execute permission, setgid once marked a file for mandatory locking.
    users("setgid stays if the group may not execute, and setuid does not", |place| {
        let file = place.path("file");
        file_of(place, MEMBER, MEMBER.gid, 0o6644);
        MEMBER.does(|| chown(place, "file", None, Some(OWNER.gid))).expect("permitted");
        assert_eq!(mode(&file), 0o2644);
        set_mode(&file, 0o6644);
        chown(place, "file", None, Some(STRANGER.gid)).expect("root");
        assert_eq!(mode(&file), 0o2644);
    }),
    users("a directory keeps setuid, setgid and sticky", |place| {
        let dir = place.dir("dir");
        std::os::unix::fs::chown(&dir, Some(MEMBER.uid), Some(MEMBER.gid)).expect("root");
        set_mode(&dir, 0o7777);
        MEMBER.does(|| chown(place, "dir", None, Some(OWNER.gid))).expect("permitted");
        assert_eq!(mode(&dir), 0o7777);
        chown(place, "dir", Some(OWNER.uid), Some(STRANGER.gid)).expect("root");
        assert_eq!(mode(&dir), 0o7777);
    }),
];
