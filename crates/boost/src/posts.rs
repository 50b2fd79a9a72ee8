//! What programs say: datagrams, each with the descriptor of a directory.

use std::{
    hash::{BuildHasher, RandomState},
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    os::fd::OwnedFd,
};

use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType, sockopt,
};

use crate::board::MAGIC;

/// A directory that is being read.
#[derive(Debug)]
pub(crate) struct Post {
    pub(crate) directory: OwnedFd,
    /// Which reading of the directory; zero if nothing more will be said of it.
    pub(crate) token: u64,
    /// How many names the program has got. `u64::MAX` where that is not known: it reads all of them in one call.
    pub(crate) seen: u64,
    /// Where the program reads next, if it has seen some.
    pub(crate) position: u64,
}

/// The socket at which they arrive.
#[derive(Debug)]
pub(crate) struct Posts {
    socket: OwnedFd,
    name: Vec<u8>,
}

impl Posts {
    /// Listens at an abstract address that nobody can guess beforehand.
    ///
    /// # Errors
    /// The system refuses sockets.
    pub(crate) fn listen() -> io::Result<Self> {
        let random = RandomState::new().hash_one(std::process::id());
        let name = format!("pando-boost-{}-{random:016x}", std::process::id()).into_bytes();
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_passcred(&socket, true)?;
        net::bind(&socket, &SocketAddrUnix::new_abstract_name(&name)?)?;
        Ok(Self { socket, name })
    }

    /// The abstract name, without the zero before it.
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Waits for the next message that is one. `None` when it was stopped.
    pub(crate) fn next(&self) -> Option<Post> {
        loop {
            match self.receive() {
                Ok(Received::Post(post)) => return Some(post),
                Ok(Received::Stopped) => return None,
                Ok(Received::Foreign) => {}
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
        if let Err(error) = net::shutdown(&self.socket, Shutdown::Both) {
            tracing::debug!(%error, "shutdown");
        }
    }

    fn receive(&self) -> io::Result<Received> {
        let mut bytes = [0_u8; 32];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1), ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let message =
            net::recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let (mut directory, mut sender) = (None, None);
        for part in control.drain() {
            match part {
                RecvAncillaryMessage::ScmRights(descriptors) => directory = descriptors.last(),
                RecvAncillaryMessage::ScmCredentials(credentials) => sender = Some(credentials.uid),
                _ => {}
            }
        }
        // An empty datagram would have a sender.
        if message.bytes == 0 && sender.is_none() {
            return Ok(Received::Stopped);
        }
        // The address is no secret: whoever else writes to it is not heard. The kernel says who it is.
        let trusted = sender.is_some_and(|uid| uid == rustix::process::getuid() || uid.is_root());
        let word = |index: usize| u64::from_ne_bytes(bytes[index * 8..][..8].try_into().expect("eight bytes"));
        match directory {
            Some(directory) if trusted && message.bytes == bytes.len() && word(0) == MAGIC => {
                Ok(Received::Post(Post { directory, token: word(1), seen: word(2), position: word(3) }))
            }
            _ => Ok(Received::Foreign),
        }
    }
}

enum Received {
    Post(Post),
    Foreign,
    Stopped,
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::IoSlice, os::fd::AsFd};

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

    use super::*;

    fn send(posts: &Posts, bytes: &[u8], with_directory: bool) {
        let socket = net::socket(AddressFamily::UNIX, SocketType::DGRAM, None).unwrap();
        let directory = File::open("/").unwrap();
        let descriptors = [directory.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if with_directory {
            assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        }
        let address = SocketAddrUnix::new_abstract_name(posts.name()).unwrap();
        net::sendmsg_addr(&socket, &address, &[IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
    }

    fn message(words: [u64; 4]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn what_is_no_message_is_passed_over() {
        let posts = Posts::listen().unwrap();
        send(&posts, b"hello", true);
        send(&posts, b"", false);
        send(&posts, &message([MAGIC, 1, 1, 0]), false);
        send(&posts, &message([MAGIC + 1, 1, 1, 0]), true);
        send(&posts, &message([MAGIC, 5, 512, 77]), true);
        let post = posts.next().unwrap();
        assert_eq!((post.token, post.seen, post.position), (5, 512, 77));
        assert!(File::from(post.directory).metadata().unwrap().is_dir());
        posts.stop();
        assert!(posts.next().is_none());
    }
}
