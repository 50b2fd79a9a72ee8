//! The contents of a regular file: their lock, and the values that are read without it.
//!
//! | field | guarded by |
//! | --- | --- |
//! | `contents` | its own lock: the data lock |
//! | `blocks` | written under the data lock, read atomically without it |
//! | `layout` | changed under the data lock, together with the size; read without it (P6) |
//! | `tracked` | immutable |

use std::sync::atomic::{AtomicU64, Ordering};

use pando_sync::{
    BiasedRwLock, BlockBox, OwnLine, VersionedPair, assert_unpinned, counted,
    lock_order::{self, LockClass},
};

use crate::{
    Error, FileData, Layout, Result,
    objects::inode::{Body, Inode},
    types::part::Part,
};

/// The contents of a regular file. It is allocated at the first use. The first cache line has the
/// values that stat and seeks read without the lock, beside threads that read and write the
/// contents.
#[repr(C, align(64))]
pub(crate) struct FileState {
    /// Allocated space in units of 512 bytes. The thread that changes the contents stores it, so
    /// stat never waits.
    blocks: AtomicU64,
    /// The ranges that hold data. None: everything up to the size is data. Changed under the data
    /// lock, read without it (P6).
    layout: VersionedPair<Layout>,
    /// Whether the driver reports where data is. If not, `layout` means nothing. Immutable.
    tracked: bool,
    /// None after the inode's last reference was put. Lock class `Data`: the last in the order. A
    /// reader also writes to the lock, unless the lock is biased towards readers.
    contents: OwnLine<BiasedRwLock<Option<Box<dyn FileData>>>>,
}

const _: () = assert!(size_of::<FileState>() == 128);

impl FileState {
    /// Changes the contents under the data lock and publishes the values that stat reads. The
    /// caller holds no guard.
    ///
    /// # Errors
    /// Those of `change`. ESTALE if the last reference to the inode has been put.
    pub(crate) fn change<T>(&self, inode: &Inode, change: impl FnOnce(&mut dyn FileData) -> Result<T>) -> Result<T> {
        assert_unpinned("a file's data");
        let _order = lock_order::enter(LockClass::Data);
        let mut data = counted(LockClass::Data, || self.contents.0.try_write(), || self.contents.0.write());
        let data = data.as_mut().ok_or(Error::Stale)?.as_mut();
        let result = change(data);
        if let Some(blocks) = data.blocks() {
            self.blocks.store(blocks, Ordering::Relaxed);
        }
        self.publish(inode.size(), inode.size(), data, || ());
        result
    }

    /// Allocated space in units of 512 bytes. One load, also during a write.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Stores a new size after the contents were changed to it. The layout changes at the same
    /// instant. The caller holds the data lock exclusively.
    pub(crate) fn resize(&self, inode: &Inode, data: &dyn FileData, size: u64) {
        self.publish(inode.size(), size, data, || inode.set_size(size));
    }

    /// Publishes the layout if it has changed. A file that has no holes and had none needs no
    /// update.
    fn publish(&self, before: u64, after: u64, data: &dyn FileData, store: impl FnOnce()) {
        let Some(layout) = data.layout() else { return store() };
        let layout = Some(layout).filter(|layout| !layout.is_full(after));
        let unchanged = self.layout.holds(|old| match (old, &layout) {
            (Some(old), Some(new)) => new.is_same_version(old),
            (None, None) => true,
            _ => false,
        });
        if unchanged { store() } else { self.layout.change(before, after, layout, store) }
    }

    /// Calls `look` with the size and the layout of one instant. The layout is none if everything
    /// is data. Never waits. `Err` returns `look` to the caller if the driver does not report where
    /// data is.
    pub(crate) fn seek<T, L>(&self, inode: &Inode, look: L) -> std::result::Result<T, L>
    where
        L: FnOnce(u64, Option<&Layout>) -> T,
    {
        if self.tracked { Ok(self.layout.read(|| inode.size(), look)) } else { Err(look) }
    }

    /// The last reference to the inode was put. Releases the contents.
    pub(crate) fn last_put(&self) {
        // I/O needs a reference to the inode, so no thread holds the lock.
        self.contents.0.write().take();
    }

    /// Appends the parts and their addresses.
    pub(crate) fn parts(&self, parts: &mut Vec<Part>) {
        parts.push(Part::of("FileState", self));
        parts.push(Part::of("FileState.contents (its lock)", &self.contents));
        parts.push(Part::of("FileState.blocks", &self.blocks));
    }

    /// Biases the data lock towards readers, as many concurrent readers would do. A reader then
    /// writes only a line of its own CPU, until the next writer.
    pub(crate) fn bias_to_readers(&self) {
        self.contents.0.bias();
    }

    /// As [`FileState::look`], but returns none if a writer holds the lock.
    pub(crate) fn try_look<T>(&self, look: impl FnOnce(&dyn FileData) -> T) -> Option<T> {
        let data = self.contents.0.try_read()?;
        let _order = lock_order::entered_without_waiting(LockClass::Data);
        data.as_ref().map(|data| look(data.as_ref()))
    }

    /// Calls `look` with the contents, under the data lock in shared mode. The caller holds no
    /// guard.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&dyn FileData) -> Result<T>) -> Result<T> {
        assert_unpinned("a file's data");
        let _order = lock_order::enter(LockClass::Data);
        let data = counted(LockClass::Data, || self.contents.0.try_read(), || self.contents.0.read());
        look(data.as_ref().ok_or(Error::Stale)?.as_ref())
    }
}

impl Inode {
    /// The state of the contents, allocated if need be.
    pub(crate) fn file_state(&self) -> Result<&FileState> {
        match &self.body {
            Body::File(state, stored) => Ok(state.get_or_init(|| {
                let data = self.shard.sb.driver.data(self.ino);
                let blocks = AtomicU64::new(data.blocks().unwrap_or(stored.get()));
                let layout = data.layout();
                let tracked = layout.is_some();
                let layout = VersionedPair::new(layout.filter(|layout| !layout.is_full(self.size())));
                BlockBox::new(FileState { blocks, layout, tracked, contents: OwnLine(BiasedRwLock::new(Some(data))) })
            })),
            Body::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// The state of the contents. None if nothing was ever written: at that instant the file is
    /// empty, even if its size has changed by now. In a tree with a backing the state is always
    /// allocated.
    pub(crate) fn contents(&self) -> Result<Option<&FileState>> {
        match self.file_state_if_any() {
            None if self.shard.sb.driver.backing().is_some() => self.file_state().map(Some),
            found => Ok(found),
        }
    }

    /// The state of the contents, if it has been allocated.
    pub(crate) fn file_state_if_any(&self) -> Option<&FileState> {
        match &self.body {
            Body::File(state, _) => state.get().map(|boxed| &**boxed),
            _ => None,
        }
    }

    /// The backing has given the allocated space, in units of 512 bytes.
    pub(crate) fn set_stored_blocks(&self, blocks: u64) {
        match &self.body {
            Body::File(state, stored) => {
                let fits = stored.set(blocks);
                let state = if fits { state.get().map(|state| &**state) } else { self.file_state().ok() };
                if let Some(state) = state {
                    state.blocks.store(blocks, Ordering::Relaxed);
                }
            }
            Body::Symlink(_, stored) | Body::Special(_, stored) => {
                stored.set(blocks);
            }
            Body::Directory(directory) => {
                if let Some(backed) = &directory.backed {
                    backed.set_blocks(blocks);
                }
            }
        }
    }
}
