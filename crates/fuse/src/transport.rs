//! How requests reach the server, and how replies reach the kernel.

mod device;
mod kills;
mod ring;

use std::{
    io, mem,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use crate::{
    mount::MountOptions,
    server::{MountFlags, Server, ServerOptions},
};

pub use device::DeviceTransport;
pub use ring::{NO_IO_URING, RingTransport};

/// A way to serve FUSE requests.
pub trait Transport {
    /// Mounts at `mount_point`, and agrees with the kernel on the features of both sides. From then
    /// on requests are queued, and [`Connection::serve`] answers them. A caller that must exclude
    /// that the path is replaced after it has looked at the directory passes `/proc/self/fd/N`,
    /// with a descriptor of the directory.
    ///
    /// # Errors
    /// The device cannot be opened, the mount is refused, or the kernel is too old.
    fn connect(&self, server: Server, mount_point: &Path, options: &MountOptions) -> io::Result<Box<dyn Connection>> {
        let MountOptions { no_atime, no_dir_atime, suid, allow_other, threads, .. } = *options;
        let flags = MountFlags { no_atime, no_dir_atime, suid, has_others: allow_other, threads: threads.least };
        self.attach(server.mounted(flags), mount_point, options)
    }

    /// The part of [`Transport::connect`] that differs between transports. The server already knows
    /// the options that concern it.
    ///
    /// # Errors
    /// As [`Transport::connect`].
    fn attach(&self, server: Server, mount_point: &Path, options: &MountOptions) -> io::Result<Box<dyn Connection>>;
}

/// A mounted tree.
pub trait Connection: Send {
    /// The options of the server, as far as the kernel allows them.
    fn options(&self) -> ServerOptions;

    /// Answers requests until the tree is unmounted.
    ///
    /// # Errors
    /// The device failed in a way that an unmount does not explain.
    fn serve(self: Box<Self>) -> io::Result<()>;
}

/// The result of a joined thread.
///
/// # Errors
/// That of the thread; or it panicked.
fn joined<T>(result: thread::Result<io::Result<T>>) -> io::Result<T> {
    result.unwrap_or_else(|_| Err(io::Error::other("a thread of the server panicked")))
}

/// Threads that a connection starts while it is served.
struct Started(Mutex<ThreadList>);

struct ThreadList {
    running: Vec<JoinHandle<io::Result<()>>>,
    /// The first error of those that have ended.
    ended: io::Result<()>,
}

impl Started {
    const fn new() -> Self {
        Self(Mutex::new(ThreadList { running: Vec::new(), ended: Ok(()) }))
    }

    fn threads(&self) -> MutexGuard<'_, ThreadList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a thread in the place of those that have ended.
    fn add(&self, thread: JoinHandle<io::Result<()>>) {
        let mut threads = self.threads();
        let ThreadList { running, ended } = &mut *threads;
        for thread in running.extract_if(.., |thread| thread.is_finished()) {
            let result = joined(thread.join());
            if ended.is_ok() {
                *ended = result;
            }
        }
        running.push(thread);
    }

    /// Waits for all of them.
    ///
    /// # Errors
    /// That of a thread; or one panicked.
    fn join(&self) -> io::Result<()> {
        let mut result = Ok(());
        loop {
            // Not while the list is locked: a thread may add another one.
            let Some(thread) = self.threads().running.pop() else { break };
            result = result.and(joined(thread.join()));
        }
        result.and(mem::replace(&mut self.threads().ended, Ok(())))
    }
}
