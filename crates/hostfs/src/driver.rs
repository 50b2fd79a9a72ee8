//! The driver: the tree's calls, made on the host.

use std::{
    io,
    os::fd::AsFd,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, OnceLock, Weak},
    thread,
};

use pando_sync::lock;
use pando_vfs::{
    Ack, AclSupport, Backing, Change, Charge, CommitError, Driver, Error, Feed, FileData, NodeAttr, Record, RecordMask,
    Result, StatFs, Xattr, is_acl,
};
use rustix::fs::{Mode, OFlags, fstatvfs, open, syncfs};

use crate::{
    HostFs, HostOptions, Recheck, attr::from_errno, data::HostData, descriptors::Use, latency::Slots, sys, tree::Tree,
    watch::Watch,
};

/// How often a value is read again that has grown since its size was asked for.
const GROWN_MAX: u32 = 16;

/// Lists of names and values up to this size are read by one call.
const SHORT: usize = 1024;

impl HostFs {
    /// A directory of the host as a tree.
    ///
    /// # Errors
    /// Those of open(2): ENOENT, EACCES, and ENOTDIR if it is no directory.
    pub fn open(dir: impl AsRef<Path>, options: HostOptions) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self::of(open(dir.as_ref(), flags, Mode::empty())?, options)
    }

    /// An open directory as a tree. It may also be one that no path leads to.
    ///
    /// # Errors
    /// As [`HostFs::open`].
    pub fn of(dir: impl AsFd, options: HostOptions) -> io::Result<Self> {
        let tree = Arc::new(Tree::new(dir.as_fd(), &options)?);
        let is_watched = lock(&tree.watch).is_some();
        let latency = options.latency.map(Slots::new);
        Ok(Self { tree, latency, is_watched, recheck: options.recheck, feed: OnceLock::new() })
    }

    /// Whether the host reports changes by others ([`Recheck::Watch`]).
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.is_watched
    }

    /// How many descriptors are open for inodes, and how many inodes the tree uses.
    #[must_use]
    pub fn usage(&self) -> (usize, usize) {
        (self.tree.descriptors.len(), self.tree.nodes.len())
    }
}

impl Driver for HostFs {
    fn statfs(&self) -> Result<StatFs> {
        let host = fstatvfs(&self.tree.root_fd).map_err(from_errno)?;
        let unit = u32::try_from(host.f_frsize).unwrap_or(4096);
        let mut stat = StatFs::new(unit).blocks(host.f_blocks, host.f_bfree).inodes(host.f_files, host.f_ffree);
        stat.bavail = host.f_bavail;
        Ok(stat)
    }

    fn charge(&self, _what: Charge) -> Result<()> {
        Ok(())
    }

    fn release(&self, _what: Charge) {}

    fn data(&self, ino: u64) -> Box<dyn FileData> {
        Box::new(HostData::new(&self.tree, ino))
    }

    fn sync(&self) -> Result<()> {
        syncfs(&self.tree.root_fd).map_err(from_errno)
    }

    fn backing(&self) -> Option<&dyn Backing> {
        Some(self)
    }
}

impl Backing for HostFs {
    fn stamps_times(&self) -> bool {
        true
    }

    fn acls(&self) -> AclSupport {
        AclSupport::Store
    }

    fn accessed(&self, ino: u64) -> Result<()> {
        self.tree.access(&self.tree.node(ino)?)
    }

    fn connect(&self, feed: Feed) -> Result<NodeAttr> {
        self.feed.set(feed.clone()).map_err(|_| Error::Busy)?;
        let (Recheck::Every(interval) | Recheck::Watch { otherwise: interval }) = self.recheck else {
            return self.tree.getattr(&self.tree.root);
        };
        let (tree, watch) = (Arc::downgrade(&self.tree), lock(&self.tree.watch).take());
        let notice = move || {
            // A watch that has failed, or panicked, reports nothing any more.
            let run = |watch: Watch| catch_unwind(AssertUnwindSafe(|| watch.run(&tree, &feed)));
            if watch.is_some_and(|watch| matches!(run(watch), Ok(Ok(())))) {
                return;
            }
            while Weak::strong_count(&tree) > 0 {
                feed.everything_changed();
                thread::sleep(interval);
            }
        };
        thread::Builder::new().name("pando-notice".into()).spawn(notice)?;
        self.tree.getattr(&self.tree.root)
    }

    fn lookup(&self, dir: u64, names: &[&[u8]], each: &mut dyn FnMut(usize, Result<Option<NodeAttr>>)) -> Result<()> {
        self.wait(names.len());
        let dir = self.tree.node(dir).map_err(|_| Error::NoEntry)?;
        for (place, name) in names.iter().enumerate() {
            each(place, self.tree.lookup(&dir, name).map(|found| found.map(|found| found.attr)));
        }
        Ok(())
    }

    fn revalidate(
        &self,
        dir: u64,
        names: &[(&[u8], u64)],
        each: &mut dyn FnMut(usize, Result<Option<NodeAttr>>),
    ) -> Result<()> {
        self.wait(names.len());
        let dir = self.tree.node(dir).map_err(|_| Error::NoEntry)?;
        for (place, (name, ino)) in names.iter().enumerate() {
            each(place, self.tree.revalidate(&dir, name, *ino).map(|found| found.map(|found| found.attr)));
        }
        Ok(())
    }

    fn getattr(&self, inos: &[u64], each: &mut dyn FnMut(usize, Result<NodeAttr>)) -> Result<()> {
        self.wait(inos.len());
        for (place, ino) in inos.iter().enumerate() {
            each(place, self.tree.node(*ino).and_then(|node| self.tree.getattr(&node)));
        }
        Ok(())
    }

    fn commit(&self, change: &Change<'_>) -> std::result::Result<Ack, CommitError> {
        self.wait(1);
        self.tree.change(change)
    }

    fn forget(&self, ino: u64) {
        // Later, all inodes are dropped with the driver. The thread that drops it may be freeing
        // memory, and must not take a guard.
        if self.feed.get().is_some_and(Feed::is_connected)
            && let Some(node) = self.tree.nodes.remove(ino)
        {
            self.tree.descriptors.remove(node.serial);
        }
    }

    fn sync_inode(&self, ino: u64) -> Result<()> {
        self.tree.sync_inode(&self.tree.node(ino)?)
    }

    fn writer_closed(&self, ino: u64) {
        // The host refuses to execute a file that someone has open for writing.
        if let Ok(node) = self.tree.node(ino) {
            self.tree.descriptors.close(node.serial, Use::Write);
        }
    }

    fn scan(&self, dir: u64, cookie: u64, _: RecordMask, each: &mut dyn FnMut(Record<'_>) -> bool) -> Result<()> {
        self.wait(1);
        let dir = self.tree.node(dir).map_err(|_| Error::NoEntry)?;
        self.tree.scan(&dir, cookie, each)
    }

    fn xattrs(&self, inos: &[u64], each: &mut dyn FnMut(usize, Result<Vec<Xattr>>)) -> Result<()> {
        self.wait(inos.len());
        inos.iter().enumerate().for_each(|(place, ino)| each(place, self.xattrs_of(*ino)));
        Ok(())
    }
}

impl HostFs {
    /// Waits if the host is made slow.
    fn wait(&self, items: usize) {
        if let Some(slots) = &self.latency {
            slots.wait(items);
        }
    }

    fn xattrs_of(&self, ino: u64) -> Result<Vec<Xattr>> {
        let node = self.tree.node(ino)?;
        let file = self.tree.path_fd(&node)?;
        let open = self.tree.open_file(file.as_fd());
        let names = match grown(|buffer| sys::list_xattrs(&open, buffer)) {
            Err(Error::NotSupported) => return Ok(Vec::new()),
            names => names?,
        };
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        let read = |name: &[u8]| match grown(|buffer| sys::get_xattr(&open, name, buffer)) {
            // Removed since, or not for this process.
            Err(Error::NoData | Error::NotPermitted | Error::Access) => None,
            value => Some(value.map(|value| (name.into(), value.into()))),
        };
        // The others of the system are the host's own.
        let is_shown = |name: &&[u8]| !name.starts_with(b"system.") || is_acl(name);
        names.filter(is_shown).filter_map(read).collect()
    }
}

/// The result of a call that fills a buffer, or tells the size of its result if the buffer is
/// empty. On a slow file system each call waits, so a short result takes only one.
fn grown(mut call: impl FnMut(&mut [u8]) -> io::Result<usize>) -> Result<Vec<u8>> {
    let is_too_long = |error: &io::Error| error.raw_os_error() == Some(libc::ERANGE);
    let mut short = [0; SHORT];
    match call(&mut short) {
        Err(error) if is_too_long(&error) => {}
        read => return Ok(short[..read?].to_vec()),
    }
    for _ in 0..GROWN_MAX {
        let size = call(&mut [])?;
        let mut buffer = vec![0; size];
        if size == 0 {
            return Ok(buffer);
        }
        match call(&mut buffer) {
            Err(error) if is_too_long(&error) => {}
            read => {
                buffer.truncate(read?);
                return Ok(buffer);
            }
        }
    }
    Err(Error::Range)
}
