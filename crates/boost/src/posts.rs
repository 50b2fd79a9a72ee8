//! The messages of programs: datagrams, each with the descriptor of a directory.

use std::{
    fs,
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::fs::PermissionsExt},
    path::Path,
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
};

use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType,
};

use crate::board::MAGIC;

/// A directory that is being read.
#[derive(Debug)]
pub(crate) struct Post {
    pub(crate) directory: OwnedFd,
    /// Identifies a reading of the directory; zero if no more posts of it will follow. Two
    /// processes may use the same token for different readings.
    pub(crate) token: u64,
    /// How many names the program has read. `u64::MAX` if that is not known: it reads all of them
    /// in one call.
    pub(crate) seen: u64,
    /// Where the program reads next, if it has read some.
    pub(crate) position: u64,
    pub(crate) links: Links,
}

/// Whether the program reads targets of links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    /// As far as is known, it does not.
    Unread,
    Read,
    /// It has just read the first one, in this directory. The attributes of other entries there may
    /// have been asked for already. The message says nothing else of the directory.
    FirstRead,
}

/// The socket that receives them.
#[derive(Debug)]
pub(crate) struct Posts {
    socket: OwnedFd,
    stopped: AtomicBool,
}

impl Posts {
    /// Listens at a path, in a directory that only this user may enter, so the kernel refuses
    /// messages of other users. A descriptor in such a message would have to be closed, and its
    /// owner can make that last for ever.
    ///
    /// # Errors
    /// The system refuses sockets, or their names there. `ENAMETOOLONG`: such a name has 107 bytes
    /// at most.
    pub(crate) fn listen(path: &Path) -> io::Result<Self> {
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        // Programs of this user write to it, whatever the umask of the helper.
        fs::set_permissions(path, PermissionsExt::from_mode(0o600))?;
        Ok(Self { socket, stopped: AtomicBool::new(false) })
    }

    /// Waits for the next valid message. `None` after [`Posts::stop`].
    pub(crate) fn next(&self) -> Option<Post> {
        loop {
            match self.receive() {
                Ok(Some(post)) => return Some(post),
                Ok(None) if self.stopped.load(Acquire) => return None,
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!(%error, "no more messages from programs");
                    return None;
                }
            }
        }
    }

    /// Makes [`next`](Self::next) return `None`, now and later.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Release);
        if let Err(error) = net::shutdown(&self.socket, Shutdown::Both) {
            tracing::debug!(%error, "shutdown");
        }
    }

    /// A message, or none if it is not valid.
    fn receive(&self) -> io::Result<Option<Post>> {
        let mut bytes = [0_u8; 40];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let message =
            net::recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let mut directory = None;
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = part {
                directory = descriptors.last();
            }
        }
        let word = |index: usize| u64::from_ne_bytes(bytes[index * 8..][..8].try_into().expect("eight bytes"));
        let is_post = message.bytes == bytes.len() && word(0) == MAGIC;
        let directory = directory.filter(|_| is_post);
        let links = match word(4) {
            0 => Links::Unread,
            1 => Links::Read,
            _ => Links::FirstRead,
        };
        Ok(directory.map(|directory| Post { directory, token: word(1), seen: word(2), position: word(3), links }))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::IoSlice, os::fd::AsFd};

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

    use super::*;

    fn send(to: &Path, bytes: &[u8], with_directory: bool) {
        let socket = net::socket(AddressFamily::UNIX, SocketType::DGRAM, None).unwrap();
        let directory = File::open("/").unwrap();
        let descriptors = [directory.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if with_directory {
            assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        }
        let address = SocketAddrUnix::new(to).unwrap();
        net::sendmsg_addr(&socket, &address, &[IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
    }

    fn message(words: [u64; 5]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn invalid_messages_are_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("posts");
        let posts = Posts::listen(&path).unwrap();
        send(&path, b"hello", true);
        send(&path, b"", false);
        send(&path, &message([MAGIC, 1, 1, 0, 0]), false);
        send(&path, &message([MAGIC + 1, 1, 1, 0, 0]), true);
        send(&path, &message([MAGIC, 5, 512, 77, 1]), true);
        let post = posts.next().unwrap();
        assert_eq!((post.token, post.seen, post.position, post.links), (5, 512, 77, Links::Read));
        assert!(File::from(post.directory).metadata().unwrap().is_dir());
        posts.stop();
        assert!(posts.next().is_none());
    }
}
