//! The tree as mount(8) sees it: by type, by lines of fstab, remounted. The helper
//! `mount.fuse.pandofs` is installed in a mount namespace of its own.

mod common;
mod requests;

use std::{
    fs,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::PermissionsExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use common::{Mounted, can_mount, copy_to, has, pando, run, said};
use requests::alone;
use tempfile::TempDir;

/// A directory with mount points (`a`, `b`, `c`), in which scripts run.
struct Place {
    temp: TempDir,
}

impl Place {
    /// None, after reporting why, if programs are missing.
    fn new(needed: &[&str]) -> Option<Self> {
        if !can_mount() || !has(&[&["unshare", "mount", "umount", "findmnt", "grep"], needed].concat()) {
            return None;
        }
        let open = fs::Permissions::from_mode(0o755);
        let temp = tempfile::Builder::new().permissions(open).tempdir().unwrap();
        for name in ["a", "b", "c", "bin", "sbin", "none"] {
            fs::create_dir(temp.path().join(name)).unwrap();
        }
        let program = copy_to(&temp.path().join("bin"));
        std::os::unix::fs::symlink(program, temp.path().join("sbin/mount.fuse.pandofs")).unwrap();
        Some(Self { temp })
    }

    fn path(&self, name: &str) -> String {
        self.temp.path().join(name).to_str().unwrap().to_owned()
    }

    /// Runs a script for `sh`, for which /sbin contains only the helper, and unmounts what it
    /// leaves mounted. `line DIR` prints the line of a directory in the mount table.
    fn run(&self, script: &str) -> Output {
        // Copies of mounts of other processes would keep these in use.
        let begin = "umount --all --lazy --types fuse.pandofs; mount --bind sbin /sbin && PATH=$PWD/bin:$PATH || exit 99\n\
            line() { grep \" $PWD/$1 \" /proc/self/mountinfo; }\n\
            trap 'code=$?; umount --quiet --lazy a b c || :; exit $code' EXIT\n";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "/bin/sh", "-c", &format!("{begin}{script}")]);
        command.current_dir(self.temp.path().canonicalize().unwrap()).env_remove("RUST_LOG").output().unwrap()
    }

    /// The output of a script that must succeed without messages.
    fn shown(&self, script: &str) -> String {
        let output = self.run(&format!("set -e\n{script}"));
        assert!(output.status.success() && output.stderr.is_empty(), "{script}: {}: {}", output.status, said(&output));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// The options of a line of the mount table: those of the mount, and those of the superblock.
fn options(line: &str) -> (Vec<&str>, Vec<&str>) {
    let fields: Vec<&str> = line.split_whitespace().collect();
    (fields[5].split(',').collect(), fields.last().unwrap().split(',').collect())
}

#[test]
fn two_mounts_are_distinguished_by_name() {
    let _alone = alone();
    let Some(place) = Place::new(&["df"]) else { return };
    let shown = place.shown(
        "mount -t fuse.pandofs north a -o size=1M\n\
         mount -t fuse.pandofs 'so,uth pole' b -o size=2M\n\
         pando mount --daemon c > /dev/null\n\
         findmnt --noheadings --raw --output SOURCE,FSTYPE a; findmnt --noheadings --raw --output SOURCE,FSTYPE b\n\
         df --output=source,size a b | tail -n 2; findmnt --noheadings --raw --output SOURCE,FSTYPE c\n\
         pando umount a; umount b; ! line a; ! line b",
    );
    let lines: Vec<String> = shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let expected = [
        "north fuse.pandofs",
        "so,uth\\x20pole fuse.pandofs",
        "north 1024",
        "so,uth pole 2048",
        "pandofs fuse.pandofs",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_named_mount_is_traced() {
    let _alone = alone();
    let Some(place) = Place::new(&[]) else { return };
    let shown = place.shown(
        "mount -t fuse.pandofs north a\n\
         pando trace a --op create --count 1 --json > seen 2> /dev/null & n=0\n\
         while kill -0 $! 2> /dev/null; do : > a/$((n+=1)); done\n\
         wait $!; cat seen",
    );
    assert!(shown.contains("\"op\":\"create\""), "{shown}");
}

#[test]
fn lines_of_fstab_are_mounted() {
    let _alone = alone();
    let Some(place) = Place::new(&["stat", "df"]) else { return };
    let fstab = format!(
        "first {} fuse.pandofs size=3M,nr_inodes=2k,mode=1770,uid=7,gid=8,noexec,nofail,x-systemd.automount 0 0\n\
         second {} fuse.pandofs defaults,attr_timeout=0,threads=1,birth_times,allow_other 0 0\n\
         third {} fuse.pandofs noauto,user,ro,_netdev 0 0\n",
        place.path("a"),
        place.path("b"),
        place.path("c"),
    );
    fs::write(place.path("fstab"), fstab).unwrap();
    let shown = place.shown(
        "mount --all --fstab $PWD/fstab; mount --all --fstab $PWD/fstab\n\
         line a; line b; ! line c; mount --fstab $PWD/fstab $PWD/c; line c\n\
         stat --format '%a %u %g' a; df --output=size,itotal a | tail -n 1",
    );
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 5, "mounted once, and what is not to be mounted is not: {shown}");
    assert!(lines[0].contains("fuse.pandofs first") && options(lines[0]).0.contains(&"noexec"), "{shown}");
    assert!(options(lines[1]).1.contains(&"allow_other") && !options(lines[1]).0.contains(&"nosuid"), "{shown}");
    for option in ["ro", "noexec", "nosuid", "nodev"] {
        assert!(options(lines[2]).0.contains(&option), "user means {option}: {shown}");
    }
    assert_eq!(lines[3], "1770 7 8");
    assert_eq!(lines[4].split_whitespace().collect::<Vec<_>>(), ["3072", "2048"]);
}

/// The examples of the help, which are in the manual page too.
#[test]
fn the_examples_of_the_help_mount() {
    let _alone = alone();
    let Some(place) = Place::new(&[]) else { return };
    let help = String::from_utf8(run(&["mount", "--help"]).stdout).unwrap();
    let line = help.lines().find(|line| line.contains(" fuse.pandofs size=")).expect("a line for fstab");
    fs::write(place.path("fstab"), line.trim().replace("/mnt/grove", &place.path("a")) + "\n").unwrap();
    let of_unit = |key: &str| help.lines().find_map(|line| line.trim().strip_prefix(key)).expect("a key of the unit");
    let unit = format!("mount -t {} {} b -o {}", of_unit("Type="), of_unit("What="), of_unit("Options="));
    let shown = place.shown(&format!("mount -a -T $PWD/fstab; {unit}; line a; line b"));
    assert!(shown.lines().count() == 2 && shown.lines().all(|line| line.contains("fuse.pandofs scratch")), "{shown}");
}

#[test]
fn options_of_any_file_system_are_accepted() {
    let _alone = alone();
    let Some(place) = Place::new(&[]) else { return };
    // The effects in the mount table. Words for mount(8), and words that are in effect anyway,
    // have none.
    for (words, seen) in [
        (
            "async,atime,auto,defaults,dev,diratime,exec,nogroup,noiversion,nomand,norelatime,nostrictatime,suid,rw",
            "rw",
        ),
        ("nolazytime,noowner,nofail,_netdev,nouser,silent,loud,symfollow,X-mine=1,x-systemd.requires=a.service", "rw"),
        ("default_permissions,big_writes,async_read,use_ino,kernel_cache,nonempty,subtype=pandofs,clone_fd", "rw"),
        ("context=system_u:object_r:tmp_t:s0,comment=none,allow_root,user_id=0", "rw"),
        ("dirsync", "dirsync"),
        ("sync", "sync"),
        ("lazytime", "lazytime"),
        ("nodiratime", "nodiratime"),
        ("noatime", "noatime"),
        ("nosymfollow", "nosymfollow"),
        ("nodev,noexec,nosuid", "noexec"),
        ("ro", "ro"),
        ("max_read=8192", "max_read=8192"),
        ("allow_other", "allow_other"),
    ] {
        let shown = place.shown(&format!("pando mount --daemon a -o {words} > /dev/null; line a; pando umount a"));
        let (of_mount, of_superblock) = options(&shown);
        assert!(of_mount.contains(&seen) || of_superblock.contains(&seen), "{words}: {shown}");
        let shown = place.shown(&format!("mount -t fuse.pandofs name a -o {words}; line a; umount a"));
        let (of_mount, of_superblock) = options(&shown);
        assert!(of_mount.contains(&seen) || of_superblock.contains(&seen), "mount -o {words}: {shown}");
    }
    let output = place.run("mount -t fuse.pandofs name a -o strictatime,iversion && line a");
    assert!(output.status.success() && said(&output).contains("-o strictatime has no effect"), "{}", said(&output));
    assert!(
        options(&String::from_utf8_lossy(&output.stdout)).0.contains(&"relatime"),
        "nothing is shown that is not so"
    );
}

#[test]
fn options_have_their_effect() {
    let _alone = alone();
    let Some(place) = Place::new(&["stat", "sed"]) else { return };
    // With relatime, reading updates an old atime.
    let atimes = "mkdir a/d; echo text > a/d/f; touch -a -d @1000 a/d a/d/f; ls a/d > ls; cat a/d/f > cat\n\
        stat --format %X a/d a/d/f | sed 's/^[^1].*\\|^1[^0].*/new/'";
    for (word, times) in [("relatime", "new\nnew\n"), ("nodiratime", "1000\nnew\n"), ("noatime", "1000\n1000\n")] {
        let mounted = format!("mount -t fuse.pandofs name a -o attr_timeout=0,{word}\n");
        assert_eq!(place.shown(&(mounted + atimes)), times, "{word}");
    }
    let output = place.run("mount -t fuse.pandofs name a -o nosymfollow; echo > a/f; ln -s f a/l; cat a/f; cat a/l");
    assert!(said(&output).contains("symbolic links"), "{}", said(&output));
}

#[test]
fn remount_changes_only_the_given_options() {
    let _alone = alone();
    let Some(place) = Place::new(&[]) else { return };
    let shown = place.shown(
        "mount -t fuse.pandofs name a -o nosuid,nodev,noexec,nodiratime,lazytime\n\
         echo kept > a/f; line a\n\
         mount -o remount,ro $PWD/a; line a; cat a/f\n\
         ! (echo > a/g) 2> refused; cat refused\n\
         mount -o remount,rw a; echo more >> a/f; line a\n\
         mount -o remount,ro,exec,sync a; line a\n\
         pando mount -o remount,rw a; line a; cat a/f",
    );
    let lines: Vec<&str> = shown.lines().collect();
    let of = |index: usize| options(lines[index]);
    assert!(of(1).0.contains(&"ro") && of(1).1.contains(&"ro"), "{shown}");
    assert_eq!((lines[2], lines[3].contains("Read-only file system")), ("kept", true), "{shown}");
    assert_eq!(of(4), of(0), "as it was");
    for index in [0, 1, 4] {
        assert!(["nosuid", "nodev", "noexec", "nodiratime"].iter().all(|kept| of(index).0.contains(kept)), "{shown}");
        assert!(of(index).1.contains(&"lazytime"), "{shown}");
    }
    assert!(of(5).0.contains(&"ro") && !of(5).0.contains(&"noexec") && of(5).1.contains(&"sync"), "{shown}");
    assert!(of(6).0.contains(&"rw") && of(6).0.contains(&"nodiratime") && of(6).1.contains(&"sync"), "{shown}");
    assert_eq!(lines[7..], ["kept", "more"]);
}

/// mount(8) repeats the options of fstab for the directory.
#[test]
fn remount_of_a_line_of_fstab_works() {
    let _alone = alone();
    let Some(place) = Place::new(&[]) else { return };
    let line = format!(
        "name {} fuse.pandofs size=3M,nr_inodes=2k,mode=1777,noatime,threads=1,allow_other 0 0\n",
        place.path("a")
    );
    fs::write(place.path("fstab"), line).unwrap();
    let shown = place.shown(
        "mount -T $PWD/fstab $PWD/a; mount -T $PWD/fstab -o remount,ro $PWD/a; line a\n\
         mount --bind none /sbin; mount -i -T $PWD/fstab -o remount,rw $PWD/a; line a",
    );
    let lines: Vec<&str> = shown.lines().collect();
    assert!(options(lines[0]).0.contains(&"ro") && options(lines[1]).0.contains(&"rw"), "{shown}");
}

#[test]
fn remount_refuses_options_of_the_server() {
    let _alone = alone();
    let Some(place) = Place::new(&[]) else { return };
    for (words, says) in [
        ("suid", "suid cannot be changed"),
        ("noatime", "the atime option cannot be changed"),
        ("allow_other", "allow_other cannot be changed"),
        ("size=9M", "the size cannot be changed"),
        ("nr_inodes=9", "the number of inodes cannot be changed"),
    ] {
        let script = format!(
            "mount -t fuse.pandofs n a -o size=1M,nosuid; before=$(line a); mount -o remount,{words} a; echo $?; [ \"$before\" = \"$(line a)\" ]"
        );
        let output = place.run(&script);
        assert!(output.status.success() && output.stdout == b"32\n", "{words}: {output:?}");
        assert!(said(&output).contains(says) && said(&output).contains("pando umount"), "{words}: {}", said(&output));
    }
    let busy = place.run("mount -t fuse.pandofs n a; exec 3> a/f; mount -o remount,ro a; echo $?; line a");
    assert!(said(&busy).contains("open for writing") && busy.stdout.starts_with(b"32\n"), "{}", said(&busy));
}

#[test]
fn the_helper_reports_wrong_input() {
    let _alone = alone();
    let Some(place) = Place::new(&[]) else { return };
    fs::write(place.path("file"), "").unwrap();
    fs::create_dir(place.path("full")).unwrap();
    fs::write(place.path("full/entry"), "").unwrap();
    let helper = |args: &str| format!("/sbin/mount.fuse.pandofs {args}");
    for (script, code, says) in [
        (helper(""), 1, "<DIR>"),
        (helper("name"), 1, "<DIR>"),
        (helper("name a b"), 1, "unexpected argument 'b'"),
        (helper("'' a"), 1, "source is empty"),
        (helper("name a --swim"), 1, "--swim"),
        (helper("name a -t ext4"), 1, "ext4"),
        (helper("name a -o swim,ro"), 1, "\"swim\""),
        (helper("name a -o size=8Q"), 1, "8Q"),
        (helper("name a -o umask=22"), 1, "mode="),
        (helper("name a -o user_id=12345"), 1, "uid=N"),
        (helper("name a -f -o swim"), 1, "\"swim\""),
        (helper("name a -N none/nothing"), 2, "No such file"),
        (helper("name nowhere"), 32, "mount point does not exist"),
        (helper("name file"), 32, "not a directory"),
        (helper("name full"), 32, "not empty"),
        (helper("name a -o remount,ro"), 32, "nothing is mounted here"),
        (helper("name /proc -o remount,ro"), 32, "of type proc"),
        (helper("name nowhere -o remount,ro"), 32, "does not exist"),
        ("mount -t fuse.pandofs name a -o swim".into(), 1, "\"swim\""),
        ("mount -t fuse.pandofs name nowhere".into(), 32, "mount point does not exist"),
        ("mount -t fuse.pandofs n a; mount -t fuse.pandofs m a".into(), 32, "mounted here already"),
    ] {
        let output = place.run(&format!("{script}; code=$?; ! line full && exit $code"));
        assert_eq!(output.status.code(), Some(code), "{script}: {}", said(&output));
        assert!(said(&output).contains(says), "{script}: {}", said(&output));
        assert!(!Path::new(&place.path("nowhere")).exists(), "{script}: mount(8) makes no directories");
    }
    // Ignored with -s; and -f mounts nothing.
    let shown =
        place.shown("/sbin/mount.fuse.pandofs n a -s -n -o swim,ro; line a; /sbin/mount.fuse.pandofs n b -f; ! line b");
    assert!(options(&shown).0.contains(&"ro"), "{shown}");
}

/// Other users mount a line of fstab with `user`: mount(8) runs the helper as that user, and the
/// helper mounts through fusermount3.
#[test]
fn a_user_mounts_a_line_of_fstab() {
    let _alone = alone();
    let Some(place) = Place::new(&["setpriv", "fusermount3", "mknod"]) else { return };
    std::os::unix::fs::chown(place.path("a"), Some(65534), Some(65534)).unwrap();
    fs::write(place.path("fstab"), format!("theirs {} fuse.pandofs user,noauto,size=1M 0 0\n", place.path("a")))
        .unwrap();
    let shown = place.shown(
        "mknod -m 666 fuse c 10 229; mount --bind fuse /dev/fuse; mount --bind fstab /etc/fstab\n\
         setpriv --reuid=65534 --regid=65534 --clear-groups sh -c 'mount $PWD/a && echo > a/f && grep theirs /proc/self/mountinfo && umount $PWD/a'\n\
         ! line a",
    );
    assert!(shown.contains("fuse.pandofs theirs") && shown.contains("user_id=65534"), "{shown}");
}

#[test]
fn the_helper_mounts_in_another_namespace() {
    let _alone = alone();
    let Some(place) = Place::new(&["nsenter", "sleep"]) else { return };
    let shown = place.shown(
        "unshare --mount --propagation private sh -c 'echo > ready; exec sleep 60' & other=$!\n\
         while ! [ -e ready ]; do :; done\n\
         mount -N $other -t fuse.pandofs name $PWD/a; ! line a; grep -c \" $PWD/a \" /proc/$other/mountinfo\n\
         nsenter --target $other --mount umount $PWD/a; kill $other",
    );
    assert_eq!(shown, "1\n");
}

/// As a service of `Type=notify`: the message comes when the tree is mounted. Without a manager the
/// mount works all the same.
#[test]
fn service_manager_is_told_of_the_mount() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("notify");
    let name = format!("pandofs-test-{}", std::process::id());
    let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
    let sockets = [
        (path.to_str().unwrap().to_owned(), UnixDatagram::bind(&path).unwrap()),
        (format!("@{name}"), UnixDatagram::bind_addr(&abstract_name).unwrap()),
    ];
    for (name, socket) in sockets {
        let mut command = pando(&[]);
        command.env("NOTIFY_SOCKET", name);
        let mounted = Mounted::by(command, tempfile::tempdir().unwrap(), &[]);
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut message = [0; 100];
        let len = socket.recv(&mut message).unwrap();
        let expected = format!("READY=1\nMAINPID={}\n", mounted.pid().as_raw_nonzero());
        assert_eq!(String::from_utf8_lossy(&message[..len]), expected);
        mounted.umount();
    }
    let mut command = pando(&[]);
    command.env("NOTIFY_SOCKET", temp.path().join("nobody"));
    let mut mounted = Mounted::by(command, tempfile::tempdir().unwrap(), &[]);
    assert!(run(&["umount", mounted.root().to_str().unwrap()]).status.success());
    let (status, messages) = mounted.ended();
    assert!(status.success() && messages.contains("the service manager cannot be told of the mount"), "{messages}");
}
