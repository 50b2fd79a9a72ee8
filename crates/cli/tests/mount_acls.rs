//! Several users on `pando mount --source`, and POSIX ACLs: each user may do on the mount what that
//! user may do in the source.

mod common;
mod requests;
mod source_pair;

use std::{
    fs::{self, OpenOptions, Permissions},
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
};

use common::{can_mount, set, skipped};
use pandofs_testkit::await_value;
use requests::alone;
use rustix::{
    fs::{Access, AtFlags, CWD, Gid, Mode, Uid, XattrFlags, accessat},
    io::Errno,
    process::umask,
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use source_pair::{Pair, has_all_users};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// Tags of the entries of an ACL, as Linux encodes them.
const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;

/// The value of the extended attribute for an ACL: tag, permissions, user or group.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(if matches!(*tag, USER | GROUP) { *id } else { u32::MAX }.to_le_bytes());
    }
    value
}

fn acl_of(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 1024];
    let len = rustix::fs::lgetxattr(path, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

/// A mount for all users. None if the directory has no ACLs.
fn pair_for_all(options: &[&str]) -> Option<Pair> {
    if !can_mount() || !has_all_users("a mount for other users") {
        return None;
    }
    let source = tempfile::tempdir().unwrap();
    let probe = acl(&[(USER_OBJ, 7, 0), (USER, 5, 0), (GROUP_OBJ, 5, 0), (MASK, 5, 0), (OTHER, 5, 0)]);
    for (name, value) in [(ACCESS, &probe[..]), ("user.name", b"value")] {
        if let Err(error) = rustix::fs::lsetxattr(source.path(), name, value, XattrFlags::empty()) {
            skipped(&format!("no {name} in the temporary directory: {error}"));
            return None;
        }
    }
    let pair = Pair::of(source, &[&["--allow-other"], options].concat());
    fs::set_permissions(pair.mounted.root().parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    Some(pair)
}

/// The two paths of a name: in the source, and on the mount.
fn both(pair: &Pair, name: &str) -> [PathBuf; 2] {
    [pair.host(name), pair.mounted.path(name)]
}

/// A user with a group and supplementary groups.
#[derive(Debug, Clone, Copy)]
struct User(u32, u32, &'static [u32]);

/// The owner, members of the owning group, users and groups that an ACL names, and others.
const USERS: [User; 8] = [
    User(0, 0, &[]),
    User(1001, 3000, &[]),
    User(1002, 2000, &[]),
    User(1002, 3000, &[2000]),
    User(1003, 3000, &[]),
    User(1003, 2000, &[3002]),
    User(1004, 3001, &[3002]),
    User(1005, 3000, &[]),
];

impl User {
    /// Runs `act` in a thread of this user.
    fn run<T: Send>(self, act: impl FnOnce() -> T + Send) -> T {
        let act = move || {
            let groups: Vec<Gid> = self.2.iter().map(|group| Gid::from_raw(*group)).collect();
            let (uid, gid) = (Uid::from_raw(self.0), Gid::from_raw(self.1));
            set_thread_groups(&groups).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            act()
        };
        std::thread::scope(|scope| scope.spawn(act).join().unwrap())
    }
}

/// Makes calls on a file and in a directory as a user. Returns their names and results.
fn allowed(user: User, file: &Path, dir: &Path) -> Vec<(&'static str, Result<(), Option<i32>>)> {
    let io = |done: std::io::Result<()>| done.map_err(|error| error.raw_os_error());
    let errno = |done: rustix::io::Result<()>| done.map_err(|error| Some(error.raw_os_error()));
    user.run(|| {
        let access = |path, want| errno(accessat(CWD, path, want, AtFlags::EACCESS));
        let new = dir.join("new");
        vec![
            ("read", io(OpenOptions::new().read(true).open(file).map(drop))),
            ("write", io(OpenOptions::new().write(true).open(file).map(drop))),
            ("access x", access(file, Access::EXEC_OK)),
            ("getxattr", errno(rustix::fs::getxattr(file, "user.name", &mut [0; 16][..]).map(drop))),
            ("setxattr", errno(rustix::fs::setxattr(file, "user.name", b"value", XattrFlags::empty()))),
            ("list", io(fs::read_dir(dir).map(drop))),
            ("stat below", io(fs::metadata(dir.join("below")).map(drop))),
            ("read below", io(fs::read(dir.join("below")).map(drop))),
            ("create", io(OpenOptions::new().write(true).create_new(true).open(&new).map(drop))),
            ("remove", io(fs::remove_file(&new))),
            ("access of the directory", access(dir, Access::WRITE_OK)),
            ("chmod", io(fs::metadata(file).and_then(|found| fs::set_permissions(file, found.permissions())))),
        ]
    })
}

/// The ACLs to try. The mode shows the mask as the permissions of the group, so it says less than
/// some of them allow, and more than others do.
fn acls() -> Vec<Vec<u8>> {
    let base = |user, group, mask, other, named: &[(u16, u16, u32)]| {
        let of = |tag| named.iter().copied().filter(move |entry| entry.0 == tag);
        let mut entries = vec![(USER_OBJ, user, 0)];
        entries.extend(of(USER));
        entries.push((GROUP_OBJ, group, 0));
        entries.extend(of(GROUP));
        entries.extend([(MASK, mask, 0), (OTHER, other, 0)]);
        acl(&entries)
    };
    vec![
        acl(&[(USER_OBJ, 6, 0), (GROUP_OBJ, 4, 0), (OTHER, 0, 0)]),
        base(7, 0, 7, 0, &[(USER, 7, 1003)]),
        base(7, 0, 7, 7, &[(USER, 0, 1003), (GROUP, 5, 3002)]),
        base(7, 7, 4, 0, &[(USER, 7, 1003), (GROUP, 3, 3001)]),
        base(5, 5, 7, 5, &[(USER, 7, 1002), (GROUP, 0, 3000)]),
        base(0, 0, 7, 0, &[(GROUP, 7, 3000), (USER, 1, 1004)]),
        base(7, 4, 7, 0, &[(USER, 7, 1003)]),
    ]
}

#[test]
fn each_user_may_do_what_it_may_do_in_the_source() {
    let _alone = alone();
    for options in [&[][..], &["--io-uring", "never", "--no-watch"]] {
        let Some(pair) = pair_for_all(options) else { return };
        let ([file, shown_file], [dir, shown_dir]) = (both(&pair, "file"), both(&pair, "dir"));
        fs::write(&file, "contents").unwrap();
        set(&file, "user.name", b"value");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("below"), "contents").unwrap();
        [&file, &dir].into_iter().for_each(|path| chown(path, Some(1001), Some(2000)).unwrap());
        await_value(true, || shown_file.exists() && shown_dir.join("below").exists());
        for (number, value) in acls().into_iter().enumerate() {
            // By either side, in turns.
            let by_source = number % 2 == 0;
            for path in if by_source { [&file, &dir] } else { [&shown_file, &shown_dir] } {
                set(path, ACCESS, &value);
            }
            let mode = |path: &Path| fs::metadata(path).unwrap().mode();
            for (here, there) in [(&file, &shown_file), (&dir, &shown_dir)] {
                await_value((acl_of(here, ACCESS), mode(here)), || (acl_of(there, ACCESS), mode(there)));
            }
            for user in USERS {
                let expected = allowed(user, &file, &dir);
                assert_eq!(allowed(user, &shown_file, &shown_dir), expected, "{user:?}, ACL {number}, {options:?}");
            }
        }
        pair.mounted.umount();
    }
}

/// The server does not read ACLs, so it gives many entries in one call to root only.
#[test]
fn a_listing_shows_each_user_what_the_source_shows() {
    let _alone = alone();
    let Some(pair) = pair_for_all(&[]) else { return };
    let program = common::copy_to(pair.mounted.root().parent().unwrap());
    let [dir, shown] = both(&pair, "dir");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("below"), "contents").unwrap();
    chown(&dir, Some(1001), Some(2000)).unwrap();
    await_value(true, || shown.join("below").exists());
    let listed = |user: User, dir: &Path| {
        let mut command = Command::new(&program);
        let output = command.args(["ls", "-l"]).arg(dir).uid(user.0).gid(user.1).output().unwrap();
        (output.status.code(), output.stdout)
    };
    for value in acls() {
        set(&shown, ACCESS, &value);
        for user in USERS.into_iter().filter(|user| user.2.is_empty()) {
            assert_eq!(listed(user, &shown), listed(user, &dir), "{user:?}");
        }
    }
}

/// A chmod changes the mask, an ACL changes the mode, and one that says no more than a mode is not
/// kept.
#[test]
fn mode_and_acl_stay_in_step() {
    let _alone = alone();
    let Some(pair) = pair_for_all(&[]) else { return };
    let [file, shown] = both(&pair, "file");
    fs::write(&file, "").unwrap();
    await_value(true, || shown.exists());
    let facts = |path: &Path| (acl_of(path, ACCESS), fs::metadata(path).unwrap().mode());
    let same = || {
        assert_eq!(facts(&shown), facts(&file));
        facts(&shown)
    };
    set(&shown, ACCESS, &acls()[1]);
    let with_acl = same();
    assert_eq!((with_acl.0.as_ref(), with_acl.1 & 0o777), (Ok(&acls()[1]), 0o770));
    fs::set_permissions(&shown, Permissions::from_mode(0o640)).unwrap();
    let masked = same();
    assert!(masked.0 != with_acl.0 && masked.1 & 0o777 == 0o640, "{masked:?}");
    set(&shown, ACCESS, &acls()[0]);
    assert_eq!(same(), (Err(Errno::NODATA), 0o100_640));
    set(&shown, ACCESS, &acls()[1]);
    rustix::fs::removexattr(&shown, ACCESS).unwrap();
    assert_eq!(same().0, Err(Errno::NODATA));
    let refused = |path: &Path, name, value: &[u8]| rustix::fs::setxattr(path, name, value, XattrFlags::empty());
    assert_eq!(refused(&shown, ACCESS, b"nonsense"), refused(&file, ACCESS, b"nonsense"));
    assert_eq!(refused(&shown, DEFAULT, &acls()[1]), refused(&file, DEFAULT, &acls()[1]));
    assert_eq!(refused(&shown, "system.other", b""), Err(Errno::OPNOTSUPP));
}

/// `CAP_SYS_RESOURCE`, which would exceed quotas, in none of the server's threads.
#[test]
fn the_server_heeds_quotas() {
    let _alone = alone();
    let Some(pair) = pair_for_all(&[]) else { return };
    fs::write(both(&pair, "file")[1].as_path(), "").unwrap();
    let threads = fs::read_dir(format!("/proc/{}/task", pair.mounted.pid())).unwrap();
    let capabilities = threads.map(|thread| {
        let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap().trim().to_owned();
        u64::from_str_radix(&line, 16).unwrap()
    });
    let found: Vec<u64> = capabilities.map(|set| set >> 24 & 1).collect();
    assert!(found.len() > 1 && found.iter().all(|bit| *bit == 0), "{found:?}");
}

/// A default ACL takes the place of the umask.
#[test]
fn new_inodes_inherit_as_in_the_source() {
    let _alone = alone();
    let Some(pair) = pair_for_all(&[]) else { return };
    for (number, value) in acls().into_iter().enumerate() {
        let [dir, shown] = both(&pair, &format!("dir{number}"));
        fs::create_dir(&dir).unwrap();
        await_value(true, || shown.exists());
        set(&shown, DEFAULT, &value);
        assert_eq!(acl_of(&dir, DEFAULT).as_ref(), Ok(&value));
        for mask in [0o022, 0o077] {
            let old = umask(Mode::from_raw_mode(mask));
            let made = [&dir, &shown].map(|at| {
                let side = if at == &dir { "source" } else { "mount" };
                let [file, below, pipe] = ["file", "dir", "pipe"].map(|kind| at.join(format!("{kind}-{side}-{mask}")));
                fs::write(&file, "").unwrap();
                fs::create_dir(&below).unwrap();
                rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
                [file, below, pipe]
                    .map(|path| (fs::metadata(&path).unwrap().mode(), acl_of(&path, ACCESS), acl_of(&path, DEFAULT)))
            });
            umask(old);
            assert_eq!(made[0], made[1], "ACL {number}, umask {mask:o}");
        }
    }
}

/// Owner and group of what a user makes, and setgid, which an ACL of a stranger clears.
#[test]
fn what_a_user_makes_belongs_to_that_user() {
    let _alone = alone();
    let Some(pair) = pair_for_all(&[]) else { return };
    fs::set_permissions(pair.source.path(), Permissions::from_mode(0o1777)).unwrap();
    await_value(0o1777, || fs::metadata(pair.mounted.root()).unwrap().mode() & 0o7777);
    for user in USERS {
        let name = format!("{}-{}-{}", user.0, user.1, user.2.len());
        let [here, there] = ["source", "mount"].map(|side| both(&pair, &format!("{side}-{name}")));
        let [made, expected] = [&there[1], &here[0]].map(|file| {
            user.run(|| {
                fs::write(file, "contents").unwrap();
                fs::set_permissions(file, Permissions::from_mode(0o2755)).unwrap();
                set(file, ACCESS, &acls()[1]);
            });
            let found = fs::metadata(file).unwrap();
            (found.uid(), found.gid(), found.mode(), acl_of(file, ACCESS))
        });
        assert_eq!(made, expected, "{user:?}");
        assert_eq!((made.0, made.1), (user.0, user.1));
        // A file of the user whose group it is not a member of.
        chown(&here[0], None, Some(4000)).unwrap();
        chown(&there[1], None, Some(4000)).unwrap();
        let [left, expected] = [&there[1], &here[0]].map(|file| {
            fs::set_permissions(file, Permissions::from_mode(0o2755)).unwrap();
            user.run(|| set(file, ACCESS, &acls()[1]));
            fs::metadata(file).unwrap().mode()
        });
        assert_eq!(left, expected, "{user:?}");
        let others = User(1006, 1006, &[]);
        let error = others.run(|| fs::remove_file(&there[1])).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::PERM), "the directory is sticky");
    }
}
