//! Messages for users who may not mount: the reason, and the remedy for that reason.

mod common;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Output},
};

use common::{can_mount, copy_to, has, said};
use tempfile::TempDir;

/// A place where a user without rights can run `pando`, in a mount namespace of its own.
struct Place {
    temp: TempDir,
}

impl Place {
    /// None, after reporting why, if that is impossible here.
    fn new() -> Option<Self> {
        if !can_mount() {
            return None;
        }
        if !has(&["unshare", "setpriv", "fusermount3", "mount"]) {
            return None;
        }
        let open = fs::Permissions::from_mode(0o755);
        let temp = tempfile::Builder::new().permissions(open).tempdir().unwrap();
        copy_to(temp.path());
        fs::create_dir(temp.path().join("theirs")).unwrap();
        std::os::unix::fs::chown(temp.path().join("theirs"), Some(65534), Some(65534)).unwrap();
        Some(Self { temp })
    }

    /// Runs `script` as nobody, after root has run `prepared`; both are shell scripts. The
    /// device is open to all.
    fn run(&self, prepared: &str, script: &str) -> Output {
        let private = "rm -f fuse && mknod -m 666 fuse c 10 229 && mount --bind fuse /dev/fuse";
        let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups /bin/sh -c \"$1\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "/bin/sh", "-c"]);
        command.args([&format!("{private} && {prepared} && {nobody}"), "sh", script]);
        command.current_dir(self.temp.path()).env_remove("RUST_LOG").output().unwrap()
    }
}

#[test]
fn the_remedy_fits_the_reason() {
    let Some(place) = Place::new() else { return };
    // To unmount at the end if a mount succeeds against expectation.
    let mount = |options: &str| format!("./pando mount --daemon {options} && ./pando umount {options}; exit 1");
    let install = "install it";
    let switch = "/sys/module/fuse/parameters/enable_uring";
    let always = "./pando mount --io-uring always theirs/new";
    let (off, by_switch) = match fs::exists(switch) {
        Ok(true) => (format!("echo N > off && mount --bind off {switch}"), "as root: echo Y > "),
        _ => ("true".to_owned(), "Linux 6.14"),
    };
    for (prepared, script, says) in [
        (&*off, always.to_owned(), by_switch),
        ("true", format!("{always} --delay lookup=1ms"), "the device"),
        ("mkdir roots", mount("roots"), "of their own"),
        ("mkdir -p sticky && chmod 1777 sticky", mount("sticky"), "of their own"),
        ("true", "./pando mount --allow-other theirs/new".into(), "user_allow_other"),
        ("mount --bind /dev/null /dev/fuse", mount("theirs/new"), "not FUSE's device"),
        ("chmod 600 /dev/fuse", mount("theirs/new"), "chmod 666 /dev/fuse"),
        ("true", "setpriv --no-new-privs ./pando mount theirs/new".into(), "setuid"),
        ("true", "PATH=/nowhere ./pando mount theirs/new".into(), install),
        ("echo mount_max = 0 > conf && mount --bind conf /etc/fuse.conf", mount("theirs/new"), "raise mount_max"),
    ] {
        let output = place.run(prepared, &script);
        let message = said(&output);
        assert_eq!(output.status.code(), Some(1), "{script}: {message}");
        assert!(message.contains(says), "{prepared}, {script}: {message}");
        assert!(says == install || !message.contains(install), "it is installed: {message}");
        assert!(
            !place.temp.path().join("theirs/new").exists(),
            "{script}: a directory that was created in vain is removed"
        );
    }
}

#[test]
fn options_for_root_are_refused_with_a_reason() {
    let Some(place) = Place::new() else { return };
    let seen = "grep theirs/new /proc/self/mountinfo";
    let script =
        |options| format!("./pando mount --daemon -o {options} theirs/new && {seen}; ./pando umount theirs/new");
    let output = place.run("true", &script("suid,dev,noexec"));
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", said(&output));
    assert!(shown.contains("nosuid,nodev,noexec"), "{shown}");
    assert!(said(&output).contains("-o suid,dev: ignored"), "{}", said(&output));
    let output = place.run("true", &script("noexec"));
    assert!(output.status.success() && output.stderr.is_empty(), "{}", said(&output));
}
