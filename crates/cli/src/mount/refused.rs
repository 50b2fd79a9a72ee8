//! Why mounting was refused, and the remedy.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

use pando_console::{failure::Failure, quote::for_shell};
use rustix::io::Errno;

const DEVICE: &str = "/dev/fuse";

/// The number of this device in all of Linux (Documentation/admin-guide/devices.txt).
const DEVICE_NUMBER: (u32, u32) = (10, 229);

const IN_A_CONTAINER: &str = "docker run --device /dev/fuse --cap-add SYS_ADMIN ...";

const WITHOUT: &str = "the library (pando-vfs) and `pando bench` need no mount";

/// The failure, with the remedy if it is known. A wrong remedy would be worse than none.
pub fn explain(dir: &Path, error: &io::Error) -> Failure {
    let said = error.to_string();
    let failure = Failure::new(format!("{}: cannot be mounted: {}", for_shell(dir), said.trim()));
    match of_device(open()).or_else(|| of_words(&said, rustix::process::geteuid().is_root())) {
        Some(remedy) => failure.remedy(remedy),
        None => failure,
    }
}

/// Opens the device to get its number.
fn open() -> io::Result<(u32, u32)> {
    let device: File = OpenOptions::new().read(true).write(true).open(DEVICE)?;
    let found = device.metadata()?;
    let number = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
    Ok(if found.file_type().is_char_device() { number } else { (0, 0) })
}

/// The remedy if the device is the reason.
fn of_device(opened: io::Result<(u32, u32)>) -> Option<String> {
    let load = "load the kernel's module (modprobe fuse)";
    let pass = format!("in a container pass it:\n{IN_A_CONTAINER}\n{WITHOUT}");
    let error = match opened {
        Ok(DEVICE_NUMBER) => return None,
        Ok(_) => {
            let (major, minor) = DEVICE_NUMBER;
            return Some(format!(
                "{DEVICE} is not FUSE's device here, but something else of that name: as root make it\n\
                 (mknod -m 666 {DEVICE} c {major} {minor}), or {pass}"
            ));
        }
        Err(error) => error,
    };
    Some(match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => format!("there is no {DEVICE}: {load}, or {pass}"),
        Some(Errno::NODEV | Errno::NXIO) => format!("nothing is behind {DEVICE}: {load}"),
        Some(Errno::ACCESS) => {
            format!("{DEVICE} cannot be opened ({error}): as root, chmod 666 {DEVICE}, or {pass}")
        }
        Some(Errno::PERM) => format!("{DEVICE} cannot be opened ({error}): {pass}"),
        _ => return None,
    })
}

/// The remedy by the message of mount(2) or fusermount3. fusermount3 always prints English.
fn of_words(said: &str, root: bool) -> Option<String> {
    let has = |words: &str| said.contains(words);
    let remedy = if has(pando_fuse::NO_IO_URING) {
        "omit --io-uring: then requests come by the device where they must".to_owned()
    } else if has("user_allow_other") {
        "let root add a line user_allow_other to /etc/fuse.conf, or omit --allow-other".to_owned()
    } else if has("no write access to mountpoint") || has("not owned by user") || has("failed to access mountpoint") {
        "users other than root mount on directories of their own: choose one, as in: pando mount ~/grove".to_owned()
    } else if has("mounting over filesystem type") {
        "fusermount3 mounts for users on common file systems only: choose a directory elsewhere".to_owned()
    } else if has("too many FUSE filesystems") {
        "unmount one that is not needed, or let root raise mount_max in /etc/fuse.conf".to_owned()
    } else if has("there is no fusermount3") && !root {
        format!(
            "users other than root mount through fusermount3: install it (apt install fuse3, dnf install fuse3)\n{WITHOUT}"
        )
    } else if has("not permitted") && root {
        format!(
            "this root may not mount: with unshare, add --mount; in a container, permit it:\n{IN_A_CONTAINER}\n{WITHOUT}"
        )
    } else if has("not permitted") {
        format!(
            "fusermount3 itself may not mount: it has to belong to root and be setuid (as root: chmod u+s \
             \"$(command -v fusermount3)\"),\nwhich counts for nothing where privileges cannot be gained \
             (no_new_privs, nosuid); or in a container:\n{IN_A_CONTAINER}\n{WITHOUT}"
        )
    } else {
        return None;
    };
    Some(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_its_own_remedy_or_none() {
        for (said, root, says) in [
            (
                "fusermount3: option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf",
                false,
                "add a line",
            ),
            ("fusermount3: user has no write access to mountpoint /mnt", false, "of their own"),
            ("fusermount3: mountpoint /tmp not owned by user", false, "of their own"),
            ("fusermount3: failed to access mountpoint /root/x: Permission denied", false, "of their own"),
            ("fusermount3: mounting over filesystem type 0x00009fa0 is forbidden", false, "elsewhere"),
            (
                "fusermount3: too many FUSE filesystems mounted; mount_max=N can be set in /etc/fuse.conf",
                false,
                "raise",
            ),
            (
                "no FUSE over io_uring: its threads cannot be started: Operation not permitted (os error 1)",
                true,
                "--io-uring",
            ),
            ("mount(2): Permission denied (os error 13), and there is no fusermount3 to ask", false, "install it"),
            ("mount(2): Operation not permitted (os error 1), and there is no fusermount3 to ask", false, "install it"),
            ("mount(2): Operation not permitted (os error 1), and there is no fusermount3 to ask", true, "SYS_ADMIN"),
            ("fusermount3: mount failed: Operation not permitted", false, "setuid"),
            ("fusermount3: mount failed: Operation not permitted", true, "SYS_ADMIN"),
        ] {
            let remedy = of_words(said, root).unwrap_or_default();
            assert!(remedy.contains(says), "{said}: {remedy}");
        }
        for said in
            ["Invalid argument (os error 22)", "fusermount3: mount failed: Invalid argument", "fusermount3: swims"]
        {
            assert_eq!((of_words(said, false), of_words(said, true)), (None, None), "{said}");
        }
    }

    #[test]
    fn an_unusable_device_is_recognized() {
        assert_eq!(of_device(Ok((10, 229))), None);
        let refused = |errno: Errno| of_device(Err(errno.into())).unwrap_or_default();
        assert!(of_device(Ok((1, 3))).is_some_and(|remedy| remedy.contains("not FUSE's device")), "/dev/null");
        assert!(refused(Errno::NOENT).contains("there is no /dev/fuse"));
        assert!(refused(Errno::ACCESS).contains("chmod 666") && !refused(Errno::ACCESS).contains("modprobe"));
        assert!(refused(Errno::PERM).contains("--device") && !refused(Errno::PERM).contains("chmod"));
        assert_eq!(refused(Errno::MFILE), "", "the device is not the reason");
        assert!(refused(Errno::NXIO).contains("modprobe") && !refused(Errno::NXIO).contains("docker"));
    }
}
