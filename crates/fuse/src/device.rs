//! Mounting: a file descriptor of `/dev/fuse` that a mount point hangs on.
//!
//! Root mounts by mount(2). Others ask fusermount3, which is setuid root and hands the descriptor back over a socket.

use std::{
    ffi::CString,
    fs::OpenOptions,
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    process::{Command, Stdio},
};

use rustix::{
    io::Errno,
    mount::MountFlags,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
};

use crate::{MountOptions, held::for_others};

/// The program that mounts and unmounts for those who are not root.
pub(crate) const HELPER: &str = "fusermount3";

pub(crate) const DEVICE: &str = "/dev/fuse";

/// Mounts at `mount_point`; the kernel sends requests to the descriptor.
///
/// # Errors
/// The device cannot be opened, mount(2) is refused, the helper is missing or refuses: which, in words.
pub(crate) fn mount(mount_point: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    match mount_directly(mount_point, options) {
        Err(refused) if refused.kind() == io::ErrorKind::PermissionDenied => mount_by_helper(mount_point, options)
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => {
                    let message = format!("mount(2): {refused}, and there is no {HELPER} to ask");
                    io::Error::new(io::ErrorKind::PermissionDenied, message)
                }
                _ => error,
            }),
        result => result,
    }
}

fn mount_directly(mount_point: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{DEVICE}: {error}"));
    let device = OpenOptions::new().read(true).write(true).open(DEVICE).map_err(named)?;
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut data = format!("fd={},rootmode=40000,user_id={uid},group_id={gid}", device.as_raw_fd());
    for word in words_for_fuse(options) {
        data.push(',');
        data.push_str(&word);
    }
    let data = CString::new(data)?;
    rustix::mount::mount(options.source.as_str(), mount_point, "fuse", flags(options), data.as_c_str())?;
    Ok(device.into())
}

/// What FUSE itself is told. `default_permissions`: the kernel checks permission bits.
fn words_for_fuse(options: &MountOptions) -> Vec<String> {
    let mut words = vec!["subtype=pandofs".to_owned(), "default_permissions".to_owned()];
    words.extend(options.allow_other.then(|| "allow_other".to_owned()));
    words.extend(options.max_read.map(|bytes| format!("max_read={bytes}")));
    words.extend(options.labels.iter().cloned());
    words
}

/// What every file system is told: for mount(2) as a flag, for the helper as a word, if it knows one.
fn common(options: &MountOptions) -> [(bool, MountFlags, &'static str); 10] {
    [
        (!options.suid, MountFlags::NOSUID, "nosuid"),
        (!options.dev, MountFlags::NODEV, "nodev"),
        (!options.exec, MountFlags::NOEXEC, "noexec"),
        (options.read_only, MountFlags::RDONLY, "ro"),
        (options.no_atime, MountFlags::NOATIME, "noatime"),
        (options.sync, MountFlags::SYNCHRONOUS, "sync"),
        (options.dir_sync, MountFlags::DIRSYNC, "dirsync"),
        (options.no_dir_atime, MountFlags::NODIRATIME, ""),
        (options.lazy_time, MountFlags::LAZYTIME, ""),
        (options.no_symfollow, MountFlags::NOSYMFOLLOW, ""),
    ]
}

fn flags(options: &MountOptions) -> MountFlags {
    common(options).iter().filter(|(on, ..)| *on).fold(MountFlags::empty(), |flags, (_, flag, _)| flags | *flag)
}

fn words_for_helper(options: &MountOptions) -> String {
    let common = common(options);
    let common = common.iter().filter(|(on, _, word)| *on && !word.is_empty()).map(|(_, _, word)| (*word).to_owned());
    let source = format!("fsname={}", options.source);
    // The helper's words are separated by commas; a backslash keeps one that belongs to a word.
    let escaped = |word: String| word.replace('\\', "\\\\").replace(',', "\\,");
    let words: Vec<String> = [source].into_iter().chain(words_for_fuse(options)).chain(common).map(escaped).collect();
    words.join(",")
}

fn mount_by_helper(mount_point: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let helper = Command::new(HELPER)
        .arg("-o")
        .arg(words_for_helper(options))
        .arg("--")
        .arg(&*for_others(mount_point))
        // It sends the descriptor over the socket whose number it is told; as its standard input, that is 0.
        .env("_FUSE_COMMFD", "0")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    // The end of the socket comes with the helper's, so this cannot wait for ever.
    let received = receive(&ours);
    let output = helper.wait_with_output()?;
    if output.status.success()
        && let Some(device) = received?
    {
        return Ok(device);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim();
    Err(io::Error::other(if said.is_empty() { format!("{HELPER} failed: {}", output.status) } else { said.to_owned() }))
}

/// The descriptor that comes over a socket; none if the sender hung up.
fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    loop {
        let parts = &mut [IoSliceMut::new(&mut byte)];
        match recvmsg(socket, parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            result => {
                result?;
                break;
            }
        }
    }
    let mut descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(descriptors.next().and_then(|mut descriptors| descriptors.next()))
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    use super::*;

    #[test]
    fn unsafe_bits_are_off_unless_asked_for() {
        let plain = MountOptions::default();
        assert_eq!(flags(&plain), MountFlags::NOSUID | MountFlags::NODEV);
        assert_eq!(words_for_helper(&plain), "fsname=pandofs,subtype=pandofs,default_permissions,nosuid,nodev");
        let asked = MountOptions {
            suid: true,
            dev: true,
            read_only: true,
            allow_other: true,
            no_dir_atime: true,
            lazy_time: true,
            no_symfollow: true,
            max_read: Some(8192),
            source: "a,b\\c".into(),
            ..MountOptions::default()
        };
        let unknown_to_helper = MountFlags::NODIRATIME | MountFlags::LAZYTIME | MountFlags::NOSYMFOLLOW;
        assert_eq!(flags(&asked), MountFlags::RDONLY | unknown_to_helper);
        let words = words_for_helper(&asked);
        assert_eq!(words, "fsname=a\\,b\\\\c,subtype=pandofs,default_permissions,allow_other,max_read=8192,ro");
    }

    #[test]
    fn a_descriptor_comes_over_the_socket() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (reader, writer) = io::pipe().unwrap();
        let descriptors = [std::os::fd::AsFd::as_fd(&reader)];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
        sendmsg(&theirs, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::empty()).unwrap();
        let received = receive(&ours).unwrap().expect("a descriptor");
        rustix::io::write(&writer, b"through").unwrap();
        let mut text = [0; 8];
        assert_eq!(rustix::io::read(&received, &mut text), Ok(7));
        drop(theirs);
        assert!(receive(&ours).unwrap().is_none(), "hung up");
    }
}
