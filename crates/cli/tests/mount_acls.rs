//! Several users on a mount, and POSIX ACLs. On `pando mount --source`, each user may do what that
//! user may do in the source. In memory and in a store, each user may do what that user may do on a
//! tmpfs that has the same files.

#[path = "../../vfs/tests/support/acl.rs"]
mod acl;
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

use acl::{ACCESS, DEFAULT, GROUP, GROUP_OBJ, MASK, OTHER, USER, USER_OBJ, value as acl};
use common::{Mounted, can_mount, has, set, skipped};
use pandofs_testkit::await_value;
use requests::alone;
use rustix::{
    fs::{Access, AtFlags, CWD, Gid, Mode, StatxFlags, Uid, XattrFlags, accessat},
    io::Errno,
    process::umask,
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use source_pair::{Pair, has_all_users};
use tempfile::TempDir;

fn acl_of(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 1024];
    let len = rustix::fs::lgetxattr(path, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

/// A mount for all users. None if the directory has no ACLs.
fn pair_for_all(options: &[&str]) -> Option<Pair> {
    pair(&[&["--allow-other"], options].concat())
}

/// A mount of a directory with ACLs. None if there are none.
fn pair(options: &[&str]) -> Option<Pair> {
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
    let pair = Pair::of(source, options);
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
    for options in [&["--allow-other"][..], &[]] {
        let Some(pair) = pair(options) else { return };
        stay_in_step(&pair);
    }
}

fn stay_in_step(pair: &Pair) {
    let [file, shown] = both(pair, "file");
    fs::write(&file, "").unwrap();
    await_value(true, || shown.exists());
    let facts = |path: &Path| {
        let (mode, [acl, _]) = facts(path);
        (acl, u32::from(mode))
    };
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

/// A directory of a tmpfs, and a mount of a tree that checks ACLs itself.
struct Twins {
    host: TempDir,
    mounted: Mounted,
    options: Vec<String>,
    store: Option<TempDir>,
}

impl Twins {
    /// One in memory, and one in a store, for all users. None if the host has no ACLs, or allows no
    /// mounts.
    fn each(test: impl FnMut(Self)) {
        Self::each_with(&["--allow-other"], test);
    }

    fn each_with(mount: &[&str], mut test: impl FnMut(Self)) {
        let _alone = alone();
        if pair_for_all(&[]).is_none() {
            return;
        }
        for store in [None, Some(tempfile::tempdir().unwrap())] {
            let mut options: Vec<String> = mount.iter().copied().map(str::to_owned).collect();
            if let Some(store) = &store {
                options.extend(["--store".to_owned(), store.path().to_str().unwrap().to_owned()]);
            }
            let Ok(host) = tempfile::tempdir_in("/dev/shm") else { return skipped("no /dev/shm") };
            let mounted = Self::mount(&options);
            for open in [host.path(), mounted.root().parent().unwrap()] {
                fs::set_permissions(open, Permissions::from_mode(0o755)).unwrap();
            }
            test(Self { host, mounted, options, store });
        }
    }

    fn mount(options: &[String]) -> Mounted {
        Mounted::new(&options.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The path of a name on both sides.
    fn both(&self, name: &str) -> [PathBuf; 2] {
        [self.host.path().join(name), self.mounted.path(name)]
    }

    /// Does the same on both sides, and expects the same result.
    fn same<T: PartialEq + std::fmt::Debug>(&self, name: &str, what: &str, act: impl Fn(&Path) -> T) {
        let [expected, found] = self.both(name).map(|path| act(&path));
        assert_eq!(found, expected, "{what}");
    }
}

fn set_acl(path: &Path, name: &str, value: &[u8]) -> Result<(), Errno> {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())
}

/// The mode and the ACLs of a file. As `ls` does, it asks for the mode and for no time: the kernel
/// may answer from its cache.
fn facts(path: &Path) -> (u16, [Result<Vec<u8>, Errno>; 2]) {
    let found = rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::MODE | StatxFlags::TYPE).unwrap();
    (found.stx_mode, [ACCESS, DEFAULT].map(|name| acl_of(path, name)))
}

#[test]
fn each_user_may_do_what_it_may_do_on_the_host() {
    Twins::each(|twins| {
        twins.same("", "the files", |root| {
            fs::write(root.join("file"), "contents").unwrap();
            set(&root.join("file"), "user.name", b"value");
            fs::create_dir(root.join("dir")).unwrap();
            fs::write(root.join("dir/below"), "contents").unwrap();
            ["file", "dir"].into_iter().for_each(|name| chown(root.join(name), Some(1001), Some(2000)).unwrap());
        });
        for (number, value) in acls().into_iter().enumerate() {
            for name in ["file", "dir"] {
                twins.same(name, "the ACL", |path| (set_acl(path, ACCESS, &value), facts(path)));
            }
            for user in USERS {
                let what = format!("{user:?}, ACL {number}");
                twins.same("", &what, |root| allowed(user, &root.join("file"), &root.join("dir")));
            }
        }
    });
}

/// Modes, with a sign for an ACL, owners and groups.
#[test]
fn a_listing_shows_each_user_what_it_shows_on_the_host() {
    Twins::each(|twins| {
        let program = common::copy_to(twins.mounted.root().parent().unwrap());
        twins.same("dir", "the files", |dir| {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join("below"), "contents").unwrap();
            set_acl(&dir.join("below"), ACCESS, &acls()[1]).unwrap();
            chown(dir, Some(1001), Some(2000)).unwrap();
        });
        for value in acls() {
            twins.same("dir", "the ACL", |dir| set_acl(dir, ACCESS, &value));
            for user in USERS.into_iter().filter(|user| user.2.is_empty()) {
                twins.same("dir", &format!("{user:?}"), |dir| {
                    let mut command = Command::new(&program);
                    let output = command.args(["ls", "-ln"]).arg(dir).uid(user.0).gid(user.1).output().unwrap();
                    let text = String::from_utf8(output.stdout).unwrap();
                    let fields = |line: &str| line.split_whitespace().take(4).map(str::to_owned).collect::<Vec<_>>();
                    (output.status.code(), text.lines().skip(1).map(fields).collect::<Vec<_>>())
                });
            }
        }
    });
}

/// Values that are refused, and chmod, chown and removals after ones that are not.
#[test]
fn mode_and_acl_change_together_as_on_the_host() {
    // Without the option, the kernel does not know that an ACL changes the mode.
    for options in [&["--allow-other"][..], &[], &["--attr-timeout", "60"]] {
        Twins::each_with(options, |twins| {
            twins.same("", "the files", |root| {
                fs::write(root.join("file"), "").unwrap();
                fs::create_dir(root.join("dir")).unwrap();
                std::os::unix::fs::symlink("file", root.join("link")).unwrap();
            });
            let places = ["file", "dir", "link"].map(|name| [(name, ACCESS), (name, DEFAULT)]).concat();
            let good = acls();
            let mut values: Vec<Vec<u8>> = good.clone();
            values.extend([vec![], good[1][..4].to_vec(), good[1][..good[1].len() - 8].to_vec(), b"nonsense".to_vec()]);
            for (number, value) in values.iter().enumerate() {
                for &(name, kind) in &places {
                    let what = format!("ACL {number} as {kind} of {name}");
                    twins.same(name, &what, |path| (set_acl(path, kind, value), facts(path)));
                }
                for mode in [0o640, 0o2705, 0o4777] {
                    let chmod = |path: &Path| {
                        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
                        let changed = facts(path);
                        chown(path, Some(1001), Some(2000)).unwrap();
                        (changed, facts(path))
                    };
                    for name in ["file", "dir"] {
                        twins.same(name, &format!("ACL {number}, {mode:o}"), chmod);
                    }
                }
                if number % 2 == 0 {
                    for &(name, kind) in &places {
                        let removed = |path: &Path| (rustix::fs::lremovexattr(path, kind), facts(path));
                        twins.same(name, &format!("{kind} of {name}, removed"), removed);
                    }
                }
            }
        });
    }
}

/// By strangers to the group, and by strangers to the file.
#[test]
fn strangers_change_acls_as_on_the_host() {
    Twins::each(|twins| {
        twins.same("", "the files", |root| {
            fs::write(root.join("file"), "").unwrap();
            fs::create_dir(root.join("dir")).unwrap();
            for name in ["file", "dir"] {
                chown(root.join(name), Some(1001), Some(2000)).unwrap();
            }
        });
        let good = acls();
        for user in USERS {
            let open = |path: &Path| fs::set_permissions(path, Permissions::from_mode(0o2775)).unwrap();
            let set_by = |path: &Path| {
                open(path);
                (user.run(|| set_acl(path, ACCESS, &good[1])), facts(path))
            };
            let removed_by = |path: &Path| {
                open(path);
                (user.run(|| rustix::fs::lremovexattr(path, ACCESS)), facts(path))
            };
            for name in ["file", "dir"] {
                twins.same(name, &format!("{user:?}"), set_by);
                twins.same(name, &format!("{user:?}, removed"), removed_by);
            }
        }
    });
}

/// Inodes of each kind, by each user, with two umasks.
#[test]
fn new_inodes_inherit_as_on_the_host() {
    Twins::each(|twins| {
        for (number, value) in acls().into_iter().enumerate() {
            let dir = format!("dir{number}");
            twins.same(&dir, "the directory", |dir| {
                fs::create_dir(dir).unwrap();
                fs::set_permissions(dir, Permissions::from_mode(0o2777)).unwrap();
                (set_acl(dir, DEFAULT, &value), facts(dir))
            });
            for (user, mask) in
                [USERS[0], USERS[3], USERS[7]].into_iter().flat_map(|user| [(user, 0o022), (user, 0o077)])
            {
                let make = |dir: &Path| {
                    let old = umask(Mode::from_raw_mode(mask));
                    let names =
                        ["file", "dir", "pipe", "link"].map(|kind| dir.join(format!("{kind}-{}-{mask}", user.0)));
                    let [file, below, pipe, link] = &names;
                    user.run(|| {
                        fs::write(file, "").unwrap();
                        fs::create_dir(below).unwrap();
                        rustix::fs::mknodat(CWD, pipe, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o666), 0)
                            .unwrap();
                        std::os::unix::fs::symlink("file", link).unwrap();
                    });
                    umask(old);
                    names.map(|path| facts(&path))
                };
                twins.same(&dir, &format!("{user:?}, ACL {number}, umask {mask:o}"), make);
            }
        }
    });
}

/// The ACLs of all files of a tree, as text.
fn listed(root: &Path) -> Vec<String> {
    let output = Command::new("getfacl").args(["-R", "."]).current_dir(root).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut files: Vec<String> = text.split_terminator("\n\n").map(str::to_owned).collect();
    files.sort();
    files
}

/// By the programs that people use, from the host to the mount and back. In a store they are there
/// after another mount.
#[test]
fn acls_survive_copies_by_programs() {
    if !has(&["setfacl", "getfacl", "rsync", "tar", "cp"]) {
        return;
    }
    Twins::each(|twins| {
        let [host, shown] = twins.both("").map(PathBuf::into_os_string);
        let script = "mkdir -p \"$HOST/tree/a/b\"; echo 1 > \"$HOST/tree/a/file\"; echo 2 > \"$HOST/tree/a/b/file\"
             cd \"$HOST/tree\"; setfacl -R -m u:1003:rX,g:3001:rwx,d:u:1004:rwx,d:o::- .; setfacl -b a/b/file
             cp -a . \"$SHOWN/cp\"; rsync -aA ./ \"$SHOWN/rsync\"
             mkdir \"$SHOWN/tar\"; tar --acls -cf - . | tar --acls -C \"$SHOWN/tar\" -xf -
             for way in cp rsync tar; do
                 cp -a \"$SHOWN/$way\" \"$HOST/by-cp-$way\"
                 rsync -aA \"$SHOWN/$way/\" \"$HOST/by-rsync-$way\"
             done
             cp -a . \"$SHOWN/own\"; setfacl -R -b \"$SHOWN/own\"
             mkdir \"$SHOWN/gives\" \"$SHOWN/gives/import\"; setfacl -d -m u:1009:rwx \"$SHOWN/gives\"
             \"$PANDO\" cp -a . \"$SHOWN/gives/cp\"; \"$PANDO\" import . \"$SHOWN/gives/import\"";
        let mut command = Command::new("sh");
        command.args(["-ec", script]).env("HOST", &host).env("SHOWN", &shown);
        let output = command.env("PANDO", env!("CARGO_BIN_EXE_pando")).output().unwrap();
        assert!(output.status.success(), "{}", common::said(&output));
        let expected = listed(&twins.host.path().join("tree"));
        assert!(expected.iter().any(|file| file.contains("default:user:1004:rwx")), "{expected:?}");
        for way in ["cp", "rsync", "tar"] {
            for [host, shown] in [way, &format!("by-cp-{way}"), &format!("by-rsync-{way}")].map(|name| twins.both(name))
            {
                let copy = if shown.exists() { shown } else { host };
                assert_eq!(listed(&copy), expected, "{copy:?}");
            }
        }
        for way in ["cp", "import"] {
            assert_eq!(listed(&twins.mounted.path("gives").join(way)), expected, "pando {way}");
        }
        assert!(!listed(&twins.mounted.path("own")).concat().contains("1004"));
        let Twins { host: _host, mounted, options, store: Some(_store) } = twins else { return };
        mounted.umount();
        assert_eq!(listed(&Twins::mount(&options).path("cp")), expected);
    });
}
