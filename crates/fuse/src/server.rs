//! The server: each request of the kernel as operations on the tree.

mod attr;
#[allow(unsafe_code)]
mod backing_file;
mod caller;
mod dir;
mod file;
mod handles;
mod idle_memory;
mod inode_flags;
mod listings;
mod namespace;
mod negatives;
mod open_inodes;
mod shut_down;
mod space;
mod xattr;
mod xcreate;

use std::{
    io,
    num::NonZeroUsize,
    os::fd::{AsFd, OwnedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak, atomic::AtomicBool},
    time::Duration,
};

use pando_vfs::{AclSupport, Context, Credentials, DentryRef, Error, File, Result, Stat, Subscriber, Vfs};
use tracing::{debug, error, warn};
use zerocopy::IntoBytes;

use crate::{
    channel::notification,
    nodes::{Attr, Nodes},
    wire::abi::{Notification, NotifyInodeOut},
};
use handles::Handles;
use idle_memory::IdleMemory;
pub use listings::Directory;
use listings::Listings;
use negatives::Negatives;
use open_inodes::{OpenInodes, Unseen};
use space::SpaceWaiter;
use xcreate::FailedCalls;

pub use caller::Caller;
pub use xattr::SERVER_PID_XATTR;

pub(crate) use xcreate::is_xcreate;

/// How long the kernel may answer system calls from its cache, and which requests it need not send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerOptions {
    /// How long attributes and names stay valid. Negative dentries are valid as long, but for a
    /// minute at most. If the kernel sees all changes, a long time is right. Zero makes the kernel
    /// ask each time. Zero also drops cached contents at each open.
    pub valid: Duration,
    /// How the tree changes.
    pub changes: Changes,
    /// Report the birth time (btime) to statx. The kernel has no other request for it. So this
    /// costs one more request for each inode of which a program wants the btime, as many programs
    /// do without using it.
    pub birth_times: bool,
    /// Before a change is acknowledged, it is made durable ([`Vfs::sync`]). If that fails, the
    /// caller gets the error, and the change may be lost with a crash.
    pub durable: bool,
}

/// How a mounted tree changes, and how the kernel learns of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Changes {
    /// The tree changes only through this mount.
    OnlyHere,
    /// It also changes in other ways. The kernel drops cached contents at each open, and when it
    /// learns that size or mtime have changed.
    Elsewhere,
    /// As [`Changes::Elsewhere`], and the tree reports what others change, soon after
    /// ([`Vfs::subscribe`], [`Vfs::subscribe_in_process`]). The server tells the kernel. This needs
    /// Linux 6.16. For a tree that is also used in this process, or mounted at several places.
    Reported {
        /// How long attributes and names stay valid if the kernel cannot be told, and negative
        /// dentries in any case.
        otherwise: Duration,
    },
}

impl ServerOptions {
    /// Whether the kernel may keep contents from one open to the next.
    pub(crate) fn keeps_contents(&self) -> bool {
        !self.valid.is_zero() && self.changes == Changes::OnlyHere
    }

    /// Whether the server tells the kernel of changes by others.
    pub(crate) fn tells_kernel(&self) -> bool {
        matches!(self.changes, Changes::Reported { .. })
    }

    /// How long a negative dentry stays valid. Linux 6.19 and 7.0 drop none when they are told to.
    pub(crate) fn negative_valid(&self) -> Duration {
        let valid = self.valid.min(negatives::VALID_MAX);
        if let Changes::Reported { otherwise } = self.changes { valid.min(otherwise) } else { valid }
    }

    /// Whether the kernel may keep listings and the targets of links.
    pub(crate) fn keeps_listings(&self) -> bool {
        !self.valid.is_zero() && self.changes != Changes::Elsewhere
    }
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            valid: Duration::from_secs(24 * 60 * 60),
            changes: Changes::OnlyHere,
            birth_times: false,
            durable: false,
        }
    }
}

/// The mount options that the server must know.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MountFlags {
    /// Reading leaves atime as it is. The kernel leaves atime to the server, whatever the options
    /// of the mount are.
    pub(crate) no_atime: bool,
    /// So does listing a directory.
    pub(crate) no_dir_atime: bool,
    /// Setuid and setgid bits are honoured. Then the kernel says which of them to clear, and when.
    pub(crate) suid: bool,
    /// Other users than the one who mounts have access.
    pub(crate) has_others: bool,
    /// The number of threads that serve requests.
    pub(crate) threads: NonZeroUsize,
}

/// Answers requests for one mounted tree. Any number of threads may call it at once.
///
/// Trees that are mounted in that tree are served too, if all of them are in memory. A
/// [backing](pando_vfs::Backing) has inode numbers of its own, and an inode of another tree may
/// have the same number. So if only some trees have a backing, these are not served: a tree with a
/// backing that is mounted in another tree, and any tree that is mounted in a tree with a backing.
/// [`Server::lookup`] returns [`Error::CrossDevice`] for them.
///
/// Errors are those of the tree. In addition, each method returns [`Error::Stale`] for a node and
/// [`Error::BadHandle`] for a handle that the kernel was never given, and [`Error::Io`] if the
/// operation panicked. A panic is logged and harms no other request.
pub struct Server {
    vfs: Vfs,
    nodes: Nodes,
    handles: Handles,
    listings: Listings,
    open_inodes: OpenInodes,
    space: SpaceWaiter,
    negatives: Negatives,
    failed_calls: FailedCalls,
    /// Where the kernel listens. Gone unless the tree is mounted.
    device: Weak<OwnedFd>,
    /// None unless the tree is mounted.
    idle_memory: Option<IdleMemory>,
    /// The function that is told of changes by others, for the kernel. None if there is none.
    subscriber: Option<Arc<Subscriber>>,
    options: ServerOptions,
    /// Atomic: a single independent value.
    is_shut_down: AtomicBool,
    lists_by_node: bool,
    /// The kernel checks ACLs.
    kernel_knows_acls: bool,
    /// The kernel checks who changes the flags of inodes.
    kernel_checks_flags: bool,
    no_atime: bool,
    no_dir_atime: bool,
    suid: bool,
    has_others: bool,
}

impl Server {
    /// A server for the tree `vfs`.
    #[must_use]
    pub fn new(vfs: Vfs, options: ServerOptions) -> Self {
        Self {
            nodes: Nodes::new(&vfs),
            vfs,
            handles: Handles::new(),
            listings: Listings::default(),
            open_inodes: OpenInodes::new(),
            space: SpaceWaiter::new(NonZeroUsize::MIN),
            negatives: Negatives::new(),
            failed_calls: FailedCalls::default(),
            device: Weak::new(),
            idle_memory: None,
            subscriber: None,
            options,
            is_shut_down: AtomicBool::new(false),
            lists_by_node: false,
            kernel_knows_acls: false,
            kernel_checks_flags: false,
            no_atime: false,
            no_dir_atime: false,
            suid: false,
            has_others: false,
        }
    }

    /// The same server for a tree that is mounted with these flags. If several threads serve its
    /// requests, a request that finds no space shortly after a removal may wait until the kernel
    /// has released what was removed.
    pub(crate) fn mounted(self, flags: MountFlags) -> Self {
        let MountFlags { no_atime, no_dir_atime, suid, has_others, threads } = flags;
        self.share_waits(threads);
        let idle_memory = IdleMemory::start(pando_vfs::release_free_memory)
            .inspect_err(|error| warn!(%error, "no thread: an idle mount may keep freed memory"))
            .ok();
        Self { no_atime, no_dir_atime, suid, has_others, idle_memory, ..self }
    }

    /// Of `threads` threads that serve requests, all but one may wait for space in here. So a
    /// single thread does not wait: a request that finds no space fails at once, and the transport
    /// may dispatch it again after [`Server::pause`].
    pub(crate) fn share_waits(&self, threads: NonZeroUsize) {
        self.space.share_among(threads);
    }

    /// The time after which to dispatch a request again that has found no space, after this many
    /// `tries`. None if no space is expected.
    pub(crate) fn pause(&self, tries: u32) -> Option<Duration> {
        self.space.pause(tries)
    }

    /// The kernel listens at this device.
    pub(crate) fn connect(&mut self, device: &Arc<OwnedFd>) {
        self.device = Arc::downgrade(device);
    }

    /// This subscriber tells the kernel of changes. It need not be told of those that the kernel
    /// asks for.
    pub(crate) fn tell_changes_by(&mut self, subscriber: &Arc<Subscriber>) {
        self.subscriber = Some(Arc::clone(subscriber));
    }

    /// Answers a request of the kernel.
    pub(crate) fn answer<T>(&self, answer: impl FnOnce() -> T) -> T {
        match &self.subscriber {
            Some(subscriber) => Vfs::as_subscriber(subscriber, answer),
            None => answer(),
        }
    }

    /// From now on the kernel reads and writes files of the host by itself, if the tree has them.
    pub(crate) fn pass_through(&mut self) {
        self.open_inodes.pass_through(self.device.clone());
    }

    /// From now on the kernel lists directories without opening them.
    pub(crate) fn list_by_node(&mut self) {
        self.lists_by_node = true;
    }

    /// From now on the kernel knows ACLs: after a change of one it asks for the mode.
    pub(crate) fn check_acls_by_kernel(&mut self) {
        self.kernel_knows_acls = true;
    }

    /// From now on the flags of inodes can be read and changed: the kernel checks who changes them.
    pub(crate) fn change_flags_checked_by_kernel(&mut self) {
        self.kernel_checks_flags = true;
    }

    pub(crate) fn lists_by_node(&self) -> bool {
        self.lists_by_node
    }

    /// The directory of a request that names a node and a handle.
    pub(crate) fn directory(&self, node: u64, handle: u64) -> Directory {
        if self.lists_by_node { Directory::Node(node) } else { Directory::Handle(handle) }
    }

    /// Whether an ACL of the store may forbid this caller what the mode allows. The kernel checks
    /// such ACLs, and the server does not read them.
    fn may_be_restricted(&self, caller: Caller) -> bool {
        self.has_others && caller.uid != 0 && self.vfs.acls() == AclSupport::Store
    }

    /// The kernel cannot be told of changes by others: it must ask.
    pub(crate) fn cannot_notify(&mut self) {
        if let Changes::Reported { otherwise } = self.options.changes {
            self.options.changes = Changes::Elsewhere;
            self.options.valid = self.options.valid.min(otherwise);
            self.lists_by_node &= self.options.keeps_listings();
        }
    }

    /// The options that the server was made with, as far as the kernel allows them.
    #[must_use]
    pub fn options(&self) -> &ServerOptions {
        &self.options
    }

    /// The tree.
    pub(crate) fn vfs(&self) -> &Vfs {
        &self.vfs
    }

    /// The kernel drops `lookups` counts of `node`.
    pub fn forget(&self, node: u64, lookups: u64) {
        // The request has no reply that could carry an error.
        let _ = self.guarded("forget", || {
            self.listings.forget(node);
            self.nodes.forget(node, lookups);
            Ok(())
        });
    }

    /// Closes what is kept for listings of `node`: its reader was killed, and the kernel may have
    /// forgotten the node already.
    pub(crate) fn end_listings(&self, node: u64) {
        let _ = self.guarded("listing", || {
            self.listings.forget(node);
            Ok(())
        });
    }

    /// The connection has ended: closes all handles and drops all counts.
    pub fn disconnect(&mut self) {
        debug!("the connection has ended");
        let open = (std::mem::replace(&mut self.handles, Handles::new()), std::mem::take(&mut self.listings));
        let _ = self.guarded("disconnect", || {
            drop(open);
            self.nodes.forget_all();
            Ok(())
        });
    }

    /// Runs one operation. A panic in it is caught, logged and answered with EIO.
    fn guarded<T>(&self, operation: &'static str, run: impl FnOnce() -> Result<T>) -> Result<T> {
        // Unwind safety: the tree undoes what a panic interrupts, since each of its guards is a
        // value with a destructor. The slab's slots are replaced as a whole. Look-up counts of an
        // unsent reply are taken back when they are dropped.
        let outcome = catch_unwind(AssertUnwindSafe(run));
        // This thread may wait for long now. Other threads can then free what it has removed.
        if catch_unwind(AssertUnwindSafe(|| self.vfs.thread_idle())).is_err() {
            error!(operation, "the tree panicked while it was told of inodes that are not used any more");
        }
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

    /// A context with the caller's credentials. The kernel has already checked permission.
    fn context(&self, caller: Caller, umask: u32) -> Context {
        self.context_of(caller.credentials()).with_umask(umask)
    }

    fn context_of(&self, cred: Credentials) -> Context {
        Context::new(&self.vfs, cred).checked_by_caller(true)
    }

    /// The attributes of `dentry`, to go with another result. They are read past the tracer,
    /// because no program has asked for them by themselves.
    fn attr_of(&self, dentry: &DentryRef) -> Attr {
        let written = self.is_written(dentry);
        // Without an answer of the tree, the kernel gets the last attributes that are known.
        let unseen = self.see_changes(dentry).is_err();
        Attr { expired: written || unseen, ..self.nodes.attr(dentry.stat()) }
    }

    /// Attributes that an operation returns, for the kernel.
    fn attr_from(&self, dentry: &DentryRef, operation: impl FnOnce() -> Result<Stat>) -> Result<Attr> {
        // Asked before: the file may be closed meanwhile, and the attributes be older.
        let expired = self.is_written(dentry);
        Ok(Attr { expired, ..self.nodes.attr(operation()?) })
    }

    /// Whether the kernel may be writing to a backing file. It does not notice that a program
    /// writes to a mapping of it.
    fn is_written(&self, dentry: &DentryRef) -> bool {
        self.unseen(dentry).writes
    }

    /// What the kernel may do with this file by its backing file, without a request.
    fn unseen(&self, dentry: &DentryRef) -> Unseen {
        if self.open_inodes.passes_through() { self.open_inodes.unseen(dentry.ino()) } else { Unseen::default() }
    }

    /// If the kernel writes to this file without a request, the tree asks for its attributes again.
    fn see_changes(&self, dentry: &DentryRef) -> Result<()> {
        if self.expect_changes(dentry) {
            self.vfs.getattr(dentry)?;
        }
        Ok(())
    }

    /// Tells the tree that this file may have changed, if the kernel uses its backing file.
    fn expect_changes(&self, dentry: &DentryRef) -> bool {
        let may_have_changed = self.unseen(dentry).backing.is_some();
        if may_have_changed {
            self.vfs.changed_elsewhere(dentry);
        }
        may_have_changed
    }

    /// How long the kernel may keep these attributes.
    pub(crate) fn attr_valid(&self, attr: &Attr) -> Duration {
        if attr.expired { Duration::ZERO } else { self.options.valid }
    }

    /// Stores an open file, and returns its handle.
    fn keep(&self, file: File) -> Result<u64> {
        let node = self.nodes.number(file.dentry().ino());
        let mut unseen = Unseen::default();
        // A trace is to see each read and write.
        let is_backed = !self.vfs.is_traced();
        let count = |file: &File| self.open_inodes.opened(file, is_backed).map(|now| unseen = now);
        let handle = self.handles.keep(file, count)?;
        if unseen.writes {
            // The kernel may have cached the attributes before. It does not know a new inode yet.
            let _ = self.invalidate(node, -1);
        }
        Ok(handle)
    }

    /// Makes the kernel drop the attributes of a node, and the contents from `offset` on, unless
    /// that is negative.
    fn invalidate(&self, node: u64, offset: i64) -> io::Result<()> {
        let Some(device) = self.device.upgrade() else { return Ok(()) };
        let out = NotifyInodeOut { node, offset, len: 0 };
        rustix::io::write(device.as_fd(), &notification(Notification::InvalInode, &[out.as_bytes()]))?;
        Ok(())
    }

    /// The number of the backing file that the kernel uses for this handle.
    pub(crate) fn backing_of(&self, handle: u64) -> Option<u32> {
        if !self.open_inodes.passes_through() {
            return None;
        }
        self.with_file(handle, |file| Ok(self.unseen(file.dentry()).backing)).ok().flatten()
    }

    /// Runs `with` with the open file of a handle.
    fn with_file<T>(&self, handle: u64, with: impl FnOnce(&File) -> Result<T>) -> Result<T> {
        self.handles.with(handle, with)
    }

    /// Closes a handle.
    fn close(&self, handle: u64) -> Result<()> {
        let file = self.handles.take(handle)?;
        // Before the handle ceases to count: from then on nothing else says that the kernel has
        // written. It has, for the last time by this handle.
        self.expect_changes(file.dentry());
        self.open_inodes.closed(&file);
        if file.dentry().is_unlinked() {
            self.removed();
        }
        Ok(())
    }

    /// A file or a directory may have been removed.
    fn removed(&self) {
        self.space.removed();
        self.freed();
    }

    /// Memory may have been freed.
    fn freed(&self) {
        if let Some(memory) = &self.idle_memory {
            memory.freed();
        }
    }
}

/// Checks that a name in a request is one component of a path. Any other name would start a path
/// walk, or is malformed.
fn component(name: &[u8]) -> Result<&[u8]> {
    match name {
        b"" | b"." | b".." => Err(Error::Invalid),
        name if name.contains(&b'/') || name.contains(&0) => Err(Error::Invalid),
        name => Ok(name),
    }
}
