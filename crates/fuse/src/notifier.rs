//! Tells the kernel what others have changed in the tree, so that it can keep names and attributes
//! for long; and which inodes it should forget, because the tree's cache is full.
//!
//! When the tree reports a change ([`Vfs::subscribe`]), it shows it already. A thread that holds no
//! lock passes the report on. It may have to wait in the kernel: for a lock that the caller of some
//! request holds, and so for an answer of the server.
//!
//! The kernel may be processing an answer that is older than the change. It does not keep it:
//! 1. *A name.* The kernel looks up names and lists entries under the lock of their directory, and
//!    takes the same lock to drop a name. So it drops the name that an older answer has given it.
//! 2. *An inode that the kernel knows.* Attributes that were requested before the notification are
//!    ignored, since each notification gives the inode a new version. (Those of LINK are not. They
//!    are given no time for which they are valid.)
//! 3. *An inode that the kernel does not know yet.* The server counts a look-up of an inode before
//!    it reads the attributes for the reply. As long as an inode is counted and the kernel does not
//!    know it, it is notified again.
//! 4. *Too many changes, or unknown ones.* All names are looked up again, and all counted inodes
//!    are notified.
//!
//! An inode that the kernel knows stays in the tree's cache. When the cache is full, the tree names
//! such inodes ([`Exports::prune_with`]), and the kernel drops those that no program uses.

use std::{
    collections::HashSet,
    io,
    os::fd::OwnedFd,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use pando_vfs::{ChangeByOthers, Exports, Pruner, Subscriber, Subscription, Vfs};
use rustix::io::Errno;
use tracing::{debug, warn};
use zerocopy::IntoBytes;

use crate::{
    channel::notification,
    nodes::swap_root,
    wire::abi::{Notification, NotifyEntryOut, NotifyInodeOut, NotifyPruneOut},
};

/// More changes are treated as a change of everything. About 10 MB with names of usual length.
const PENDING_MAX: usize = 1 << 16;
/// How long the kernel is given to process a reply.
const RETRY: Duration = Duration::from_millis(10);

/// How often the end looks whether the thread has ended, with a pause of [`RETRY`]: for a second.
const ENDS: u32 = 100;

/// The oldest minor version of the protocol with which the kernel can be told of all changes
/// (`FUSE_NOTIFY_INC_EPOCH`, Linux 6.16).
pub(crate) const MINOR_OF_CHANGES: u32 = 44;
/// The oldest one with which the kernel can be told to forget inodes (`FUSE_NOTIFY_PRUNE`, Linux
/// 6.18).
const MINOR_OF_PRUNING: u32 = 45;
/// The most numbers that wait to be forgotten. Further ones are left out: the tree names them again
/// as long as its cache is full.
const PRUNED_MAX: usize = 1 << 14;

/// Passes reports on to the kernel until it is dropped.
pub(crate) struct Notifier {
    queue: Arc<Queue>,
    /// The tree has only weak references.
    subscriber: Arc<Subscriber>,
    _in_process: Option<Subscription>,
    _pruner: Arc<Pruner>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    /// Guarded by its own mutex, a leaf.
    pending: Mutex<Pending>,
    changed: Condvar,
}

/// The changes that the kernel was not told of yet.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pending {
    names: HashSet<(u64, Box<[u8]>)>,
    inodes: HashSet<u64>,
    everything: bool,
    /// Inodes to forget.
    pruned: Vec<u64>,
    ended: bool,
}

impl Pending {
    fn add(&mut self, change: ChangeByOthers<'_>) {
        if self.everything {
            return;
        }
        match change {
            ChangeByOthers::Name { dir, name } => {
                self.names.insert((dir, name.into()));
            }
            ChangeByOthers::Inode(ino) => {
                self.inodes.insert(ino);
            }
            // The names of a directory that the kernel has are not known here.
            _ => self.everything = true,
        }
        if self.names.len() + self.inodes.len() > PENDING_MAX {
            self.everything = true;
        }
        if self.everything {
            self.names.clear();
            self.inodes.clear();
        }
    }

    fn is_empty(&self) -> bool {
        !self.everything && self.names.is_empty() && self.inodes.is_empty() && self.pruned.is_empty()
    }
}

impl Queue {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something is pending, and returns it. With `retry`, waits for [`RETRY`] at most.
    /// None at the end.
    fn take(&self, retry: bool) -> Option<Pending> {
        let wait = |pending: &mut Pending| pending.is_empty() && !pending.ended;
        let mut pending = if retry {
            self.changed.wait_timeout_while(self.pending(), RETRY, wait).unwrap_or_else(PoisonError::into_inner).0
        } else {
            self.changed.wait_while(self.pending(), wait).unwrap_or_else(PoisonError::into_inner)
        };
        if pending.ended { None } else { Some(std::mem::take(&mut pending)) }
    }
}

impl Notifier {
    /// Starts the thread. From now on it tells the kernel of all changes by others if `changes`,
    /// and, if the kernel's `minor` version allows it, what to forget. None if it would have
    /// nothing to tell.
    ///
    /// # Errors
    /// No thread can be made.
    pub(crate) fn start(vfs: &Vfs, device: &Arc<OwnedFd>, changes: bool, minor: u32) -> io::Result<Option<Self>> {
        let queue = Arc::<Queue>::default();
        let subscriber: Arc<Subscriber> = Arc::new({
            let queue = Arc::clone(&queue);
            move |change| {
                queue.pending().add(change);
                queue.changed.notify_one();
            }
        });
        let pruner: Arc<Pruner> = Arc::new({
            let queue = Arc::clone(&queue);
            move |numbers| {
                let mut pending = queue.pending();
                let room = PRUNED_MAX - pending.pruned.len();
                pending.pruned.extend(numbers.iter().take(room));
                queue.changed.notify_one();
            }
        });
        let prunes = minor >= MINOR_OF_PRUNING && vfs.exports().prune_with(&pruner);
        if !changes && !prunes {
            return Ok(None);
        }
        let device = Arc::clone(device);
        let write = Box::new(move |message: &[u8]| rustix::io::write(&*device, message).map(drop));
        let kernel = Kernel { write, exports: vfs.exports(), root: vfs.root().ino() };
        let theirs = Arc::clone(&queue);
        let thread = thread::Builder::new().name("pando-notify".into()).spawn(move || kernel.run(&theirs))?;
        if changes {
            vfs.subscribe(&subscriber);
        }
        let in_process = changes.then(|| vfs.subscribe_in_process(Arc::clone(&subscriber)));
        Ok(Some(Self { queue, subscriber, _in_process: in_process, _pruner: pruner, thread: Some(thread) }))
    }

    /// The function that the tree calls for each change by others.
    pub(crate) const fn subscriber(&self) -> &Arc<Subscriber> {
        &self.subscriber
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.queue.pending().ended = true;
        self.queue.changed.notify_one();
        let Some(thread) = self.thread.take() else { return };
        // If the server fails while the tree is mounted, the thread may wait in the kernel for a
        // request that nobody will answer.
        for _ in 0..ENDS {
            if thread.is_finished() {
                if thread.join().is_err() {
                    warn!("the thread that tells the kernel of changes has panicked");
                }
                return;
            }
            thread::sleep(RETRY);
        }
        warn!("the thread that tells the kernel of changes still waits, and is left alone");
    }
}

type Write = dyn Fn(&[u8]) -> rustix::io::Result<()> + Send;

/// The kernel's end of a connection.
struct Kernel {
    /// Writes a message to the device.
    write: Box<Write>,
    exports: Exports,
    /// The inode number of the root.
    root: u64,
}

impl Kernel {
    fn run(&self, queue: &Queue) {
        // Inodes that are counted, and that the kernel did not know.
        let mut unknown = HashSet::new();
        while let Some(mut pending) = queue.take(!unknown.is_empty()) {
            if let Err(error) = self.pass_on(&mut pending, &mut unknown, queue) {
                // The mount is gone.
                debug!(%error, "the kernel is not told of changes any more");
                return;
            }
        }
    }

    fn pass_on(&self, pending: &mut Pending, unknown: &mut HashSet<u64>, queue: &Queue) -> rustix::io::Result<()> {
        let mut inodes = std::mem::take(&mut pending.inodes);
        if pending.everything {
            self.send(Notification::IncEpoch, &[])?;
            inodes.extend(self.exports.numbers());
            inodes.insert(self.root);
        }
        for (dir, name) in pending.names.drain() {
            let node = self.node(dir);
            let out = NotifyEntryOut { parent: node, name_len: name.len() as u32, flags: 0 };
            self.send(Notification::InvalEntry, &[out.as_bytes(), &name, &[0]])?;
            // The listing and the attributes of the directory, also if the kernel does not have
            // the name.
            inodes.insert(dir);
        }
        inodes.extend(unknown.drain());
        for ino in inodes {
            if queue.pending().ended {
                break;
            }
            // The attributes, and all contents.
            let out = NotifyInodeOut { node: self.node(ino), offset: 0, len: 0 };
            let is_known = self.send(Notification::InvalInode, &[out.as_bytes()])?;
            if !is_known && self.exports.ilookup(ino).is_some() {
                unknown.insert(ino);
            }
        }
        if !pending.pruned.is_empty() {
            let nodes: Vec<u64> = pending.pruned.drain(..).map(|ino| self.node(ino)).collect();
            let out = NotifyPruneOut { count: nodes.len() as u32, ..NotifyPruneOut::default() };
            self.send(Notification::Prune, &[out.as_bytes(), nodes.as_bytes()])?;
        }
        Ok(())
    }

    fn node(&self, ino: u64) -> u64 {
        swap_root(ino, self.root)
    }

    /// Sends a notification. Returns whether the kernel knows what it is about.
    fn send(&self, what: Notification, parts: &[&[u8]]) -> rustix::io::Result<bool> {
        match (self.write)(&notification(what, parts)) {
            Ok(()) => Ok(true),
            Err(Errno::NODEV | Errno::NOTCONN) => Err(Errno::NODEV),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(error) => {
                warn!(%error, ?what, "the kernel refuses a notification");
                Ok(true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use pando_memfs::{MemFs, MemOptions};
    use pando_vfs::{At, Context, Credentials};

    use super::*;

    /// An inode is notified again until the kernel knows it or it is not counted any more. Seen to
    /// fail: it is notified once.
    #[test]
    fn inodes_that_the_kernel_does_not_know_yet_are_notified_again() {
        let vfs = Vfs::new(MemFs::new(MemOptions::new())).unwrap();
        let context = Context::new(&vfs, Credentials::root());
        let (sent, messages) = mpsc::channel();
        let write = Box::new(move |message: &[u8]| {
            // The node number follows the header.
            let node = u64::from_ne_bytes(message[16..24].try_into().unwrap());
            sent.send(node).unwrap();
            Err(Errno::NOENT)
        });
        let [counted, uncounted] = ["a", "b"].map(|name| vfs.mkdir(&context, At::Cwd, name, 0o755).unwrap());
        let exports = vfs.exports();
        exports.remember(&counted, 1).unwrap();
        let kernel = Kernel { write, exports: vfs.exports(), root: vfs.root().ino() };
        let queue = Arc::<Queue>::default();
        let thread = thread::spawn({
            let queue = Arc::clone(&queue);
            move || kernel.run(&queue)
        });
        for dentry in [&uncounted, &counted] {
            queue.pending().add(ChangeByOthers::Inode(dentry.ino()));
        }
        queue.changed.notify_one();
        let first = [messages.recv().unwrap(), messages.recv().unwrap()];
        assert!(first.contains(&counted.ino()) && first.contains(&uncounted.ino()));
        for _ in 0..3 {
            assert_eq!(messages.recv().unwrap(), counted.ino());
        }
        // In memory, an inode is found by its number as long as it has a name.
        vfs.rmdir(&context, At::Cwd, "a").unwrap();
        exports.forget(counted.ino(), 1);
        drop(counted);
        queue.pending().add(ChangeByOthers::Inode(uncounted.ino()));
        queue.changed.notify_one();
        while messages.recv().unwrap() != uncounted.ino() {}
        // In the order of a set, one of the other may follow.
        let _ = messages.recv_timeout(RETRY);
        assert_eq!(messages.recv_timeout(10 * RETRY), Err(mpsc::RecvTimeoutError::Timeout));
        queue.pending().ended = true;
        queue.changed.notify_one();
        thread.join().unwrap();
    }

    fn name(dir: u64, name: &[u8]) -> ChangeByOthers<'_> {
        ChangeByOthers::Name { dir, name }
    }

    #[test]
    fn changes_are_merged() {
        let mut pending = Pending::default();
        assert!(pending.is_empty());
        for _ in 0..3 {
            pending.add(name(1, b"a"));
            pending.add(name(2, b"a"));
            pending.add(ChangeByOthers::Inode(1));
        }
        assert_eq!((pending.names.len(), pending.inodes.len(), pending.everything), (2, 1, false));
        pending.add(ChangeByOthers::Directory(1));
        assert_eq!(pending, Pending { everything: true, ..Pending::default() });
    }

    #[test]
    fn too_many_changes_are_a_change_of_everything() {
        let mut pending = Pending::default();
        (0..PENDING_MAX as u64).for_each(|ino| pending.add(ChangeByOthers::Inode(ino)));
        assert!(!pending.everything);
        pending.add(name(1, b"a"));
        assert_eq!(pending, Pending { everything: true, ..Pending::default() });
        pending.add(name(1, b"a"));
        assert!(pending.names.is_empty() && !pending.is_empty());
    }
}
