//! Mounting and unmounting.
//!
//! A FUSE mount is served through a descriptor of `/dev/fuse`. Root mounts by mount(2). Other users
//! run fusermount3, which is setuid root and sends the descriptor back over a socket.

mod fd_path;
mod options;
pub mod server_end;
pub mod unmount;

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

use crate::channel::DEVICE;

pub use options::{MountOptions, Threads};

pub(crate) use fd_path::path_for_others;

/// The program that mounts and unmounts for users other than root.
const HELPER: &str = "fusermount3";

/// Mounts at `mount_point`. Returns the descriptor to which the kernel sends requests.
///
/// # Errors
/// The device cannot be opened, mount(2) is refused, or the helper is missing or refuses. The
/// message says which.
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
    for word in fuse_words(options) {
        data.push(',');
        data.push_str(&word);
    }
    let data = CString::new(data)?;
    rustix::mount::mount(options.source.as_str(), mount_point, "fuse", flags(options), data.as_c_str())?;
    Ok(device.into())
}

/// The options of FUSE. `default_permissions`: the kernel checks permission bits.
fn fuse_words(options: &MountOptions) -> Vec<String> {
    let mut words = vec!["subtype=pandofs".to_owned(), "default_permissions".to_owned()];
    words.extend(options.allow_other.then(|| "allow_other".to_owned()));
    words.extend(options.max_read.map(|bytes| format!("max_read={bytes}")));
    words.extend(options.labels.iter().cloned());
    words
}

/// The options that all file systems have: whether each is set, its flag for mount(2), and its word
/// for the helper (empty if the helper has none).
fn common_options(options: &MountOptions) -> [(bool, MountFlags, &'static str); 10] {
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
    common_options(options).iter().filter(|(on, ..)| *on).fold(MountFlags::empty(), |flags, (_, flag, _)| flags | *flag)
}

fn helper_words(options: &MountOptions) -> String {
    let common = common_options(options);
    let common = common.iter().filter(|(on, _, word)| *on && !word.is_empty()).map(|(_, _, word)| (*word).to_owned());
    let source = format!("fsname={}", options.source);
    // Commas separate the helper's words. A backslash escapes a comma within a word.
    let escaped = |word: String| word.replace('\\', "\\\\").replace(',', "\\,");
    let words: Vec<String> = [source].into_iter().chain(fuse_words(options)).chain(common).map(escaped).collect();
    words.join(",")
}

fn mount_by_helper(mount_point: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let helper = Command::new(HELPER)
        .arg("-o")
        .arg(helper_words(options))
        .arg("--")
        .arg(&*path_for_others(mount_point))
        // The helper sends the descriptor over the socket with this number: its standard input.
        .env("_FUSE_COMMFD", "0")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    // The socket closes when the helper ends, so this cannot wait for ever.
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

/// Receives a descriptor over a socket; none if the sender has closed it.
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
mod tests;
