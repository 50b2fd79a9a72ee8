//! What the answers are: each request of the kernel in terms of the tree.

mod attr;
mod caller;
mod dir;
mod file;
mod handles;
mod mappable;
mod namespace;
mod room;
mod slow;
mod xattr;

use std::{
    num::NonZeroUsize,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use pando_vfs::{Context, Credentials, DentryRef, Error, File, FileKind, Result, Stat, Vfs};
use tracing::{debug, error};

use crate::{MountOptions, nodes::Nodes, store::Store};
use handles::Handles;
use mappable::Mappable;
use room::Room;

pub use caller::Caller;
pub use slow::REQUESTS_XATTR;
pub use xattr::SERVER_PID_XATTR;

/// What the kernel is told beyond answers: how long it may answer without asking, and what it need not ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerOptions {
    /// How long attributes and names (also missing ones) stay true. The tree changes only through this mount, and the
    /// kernel sees all of those changes, so a long time is right; zero asks each time, for trees that change behind
    /// the mount's back. Zero also turns off the caching of contents from one open to the next.
    pub valid: Duration,
    /// Say when inodes were made (statx). The kernel has that from nothing else that it asks, so each inode of which a program
    /// wants to know, as many do that do not look at it, costs one request more.
    pub birth_times: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self { valid: Duration::from_secs(24 * 60 * 60), birth_times: false }
    }
}

/// An inode as the kernel is told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// What the kernel is to call it by.
    pub node: u64,
    /// With `node`, a file handle. The same for all nodes of a mount but the root, and hardly ever that of another mount.
    pub generation: u32,
    /// Its attributes.
    pub stat: Stat,
}

/// Answers requests for one mounted tree. Any number of threads may ask at once.
///
/// What is mounted in that tree is served too, if all of it is in memory: a [backing](pando_vfs::Backing) has numbers of its
/// own, and an inode of another tree may have the same. Where only some have a backing, those are not served that are mounted
/// in others, nor is any that is mounted in one: [`Server::lookup`] answers [`Error::CrossDevice`].
///
/// Errors are those of the tree; besides, each method answers [`Error::Stale`] for a node and [`Error::BadHandle`] for
/// a handle that was never handed out, and [`Error::Io`] if the operation panicked (which is logged, and harms no
/// other request).
pub struct Server {
    vfs: Vfs,
    nodes: Nodes,
    handles: Handles,
    mappable: Mappable,
    room: Room,
    options: ServerOptions,
    /// Reading leaves no time of access.
    no_atime: bool,
    /// Nor does listing a directory.
    no_dir_atime: bool,
    /// Setuid and setgid bits are honoured: the kernel says which of them go, and when.
    suid: bool,
    /// What counts requests, and can be slow; a plain mount has none.
    store: Option<Arc<Store>>,
}

impl Server {
    /// A server for the tree `vfs`.
    #[must_use]
    pub fn new(vfs: Vfs, options: ServerOptions) -> Self {
        Self {
            nodes: Nodes::new(&vfs),
            vfs,
            handles: Handles::new(),
            mappable: Mappable::new(),
            room: Room::new(NonZeroUsize::MIN),
            options,
            no_atime: false,
            no_dir_atime: false,
            suid: false,
            store: None,
        }
    }

    /// The same server for a tree that is mounted so. The kernel leaves times of access to the server, whatever it was told
    /// when it mounted. And where several threads read its requests, what finds no room just after something was removed
    /// may wait until the kernel has given that up.
    pub(crate) fn mounted(self, options: &MountOptions) -> Self {
        let MountOptions { no_atime, no_dir_atime, suid, threads, .. } = *options;
        Self { no_atime, no_dir_atime, suid, room: Room::new(threads), ..self }
    }

    /// Of so many threads that answer requests, all but one may wait for room here. So one alone does not: what finds none is
    /// refused at once, and a transport that can asks again, in the time that [`Server::pause`] says.
    pub(crate) fn waits_among(&mut self, threads: NonZeroUsize) {
        self.room = Room::new(threads);
    }

    /// In what time to ask again what has found no room, after so many tries; none if none is about to come back.
    pub(crate) fn pause(&self, tries: u32) -> Option<Duration> {
        self.room.pause(tries)
    }

    /// How long the kernel may answer without asking.
    #[must_use]
    pub fn options(&self) -> &ServerOptions {
        &self.options
    }

    /// The kernel gives up `lookups` counts of `node`.
    pub fn forget(&self, node: u64, lookups: u64) {
        // There is no answer to carry an error.
        let _ = self.guarded("forget", || {
            self.nodes.forget(node, lookups);
            Ok(())
        });
    }

    /// The connection has ended: closes all handles and drops all counts.
    pub fn disconnect(&mut self) {
        if let Some(store) = &self.store {
            store.drop_answers();
        }
        debug!("the connection has ended");
        let handles = std::mem::replace(&mut self.handles, Handles::new());
        let _ = self.guarded("disconnect", || {
            drop(handles);
            self.nodes.forget_all();
            Ok(())
        });
    }

    /// Runs one operation on its own: a panic in it is logged and answered with EIO.
    fn guarded<T>(&self, operation: &'static str, run: impl FnOnce() -> Result<T>) -> Result<T> {
        self.count(operation);
        // Unwind safety: the tree undoes what a panic interrupts (each of its guards is a value with a destructor),
        // the slab's slots are replaced whole, and hand-outs take their counts back when dropped.
        let outcome = catch_unwind(AssertUnwindSafe(run));
        // This thread may be the last one to get a request.
        self.vfs.thread_idle();
        match outcome {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                debug!(operation, %error, "refused");
                Err(error)
            }
            Err(panic) => {
                let reason = panic
                    .downcast_ref::<&str>()
                    .copied()
                    .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
                    .unwrap_or("not a text");
                error!(operation, reason, "a request panicked and was answered with EIO; the mount goes on");
                Err(Error::Io)
            }
        }
    }

    /// In whose name the tree is changed. The kernel has checked permission already.
    fn context(&self, caller: Caller, umask: u32) -> Context {
        self.context_of(caller.credentials()).with_umask(umask)
    }

    fn context_of(&self, cred: Credentials) -> Context {
        Context::new(&self.vfs, cred).checked_by_caller(true)
    }

    fn attr_of(&self, dentry: &DentryRef) -> Attr {
        // What is answered besides is no request of its own, and not traced as one.
        self.attr_from(dentry.stat())
    }

    fn attr_from(&self, mut stat: Stat) -> Attr {
        if stat.kind == FileKind::File && stat.size > 0 {
            // Of what takes nothing, tar takes all for a hole, and the kernel may have pages of it. (ext4 does so too, for
            // what it keeps in inodes.)
            stat.blocks = stat.blocks.max(1);
        }
        let node = self.nodes.number(stat.ino);
        Attr { node, generation: self.nodes.generation(node), stat }
    }

    /// Keeps an open file under a handle.
    fn keep(&self, file: File) -> Result<u64> {
        self.handles.keep(file, |file| self.mappable.opened(file))
    }

    /// Runs `with` with the open file of a handle.
    fn with_file<T>(&self, handle: u64, with: impl FnOnce(&File) -> Result<T>) -> Result<T> {
        self.handles.with(handle, with)
    }

    /// Closes a handle.
    fn close(&self, handle: u64) -> Result<()> {
        let file = self.handles.take(handle)?;
        self.mappable.closed(&file);
        if file.stat().nlink == 0 {
            self.room.removed();
        }
        Ok(())
    }
}

/// One component of a path, as requests carry it: anything else would walk, or is malformed.
fn component(name: &[u8]) -> Result<&[u8]> {
    match name {
        b"" | b"." | b".." => Err(Error::Invalid),
        name if name.contains(&b'/') || name.contains(&0) => Err(Error::Invalid),
        name => Ok(name),
    }
}
