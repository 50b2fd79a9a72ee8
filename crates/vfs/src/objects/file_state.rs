//! The contents of a regular file: their lock, and what is read of them without it.
//!
//! | field | guarded by |
//! | --- | --- |
//! | `contents` | its own lock: the data lock |
//! | `blocks` | written under the data lock, read atomically without it |
//! | `layout` | changed under the data lock, together with the inode's size, and read without it (P6) |
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

/// The contents of a regular file, made when they are first needed. First what is read without the lock: by stat and by
/// seeks, beside whoever reads and writes.
#[repr(C, align(64))]
pub(crate) struct FileState {
    /// Occupied space, in units of 512 bytes: stored by whoever changes the contents, so that stat waits for nobody.
    blocks: AtomicU64,
    /// Where data is; none: everywhere up to the size. Changed with the lock held, read without (P6).
    layout: VersionedPair<Layout>,
    /// Whether the driver says so; otherwise `layout` means nothing.
    tracked: bool,
    /// None once the inode is gone. Lock class `Data`: the last in the order. Readers write to it, too, unless they are many.
    contents: OwnLine<BiasedRwLock<Option<Box<dyn FileData>>>>,
}

const _: () = assert!(size_of::<FileState>() == 128);

impl FileState {
    /// Changes the contents with the data lock held, and publishes what stat shows of them. The caller holds no guard.
    ///
    /// # Errors
    /// Those of `change`; ESTALE when the inode is gone.
    pub(crate) fn change<T>(&self, inode: &Inode, change: impl FnOnce(&mut dyn FileData) -> Result<T>) -> Result<T> {
        assert_unpinned("a file's data");
        let _order = lock_order::enter(LockClass::Data);
        let mut data = counted(LockClass::Data, || self.contents.0.try_write(), || self.contents.0.write());
        let data = data.as_mut().ok_or(Error::Stale)?.as_mut();
        let result = change(data);
        self.blocks.store(data.blocks(), Ordering::Relaxed);
        self.publish(inode.size(), inode.size(), data, || ());
        result
    }

    /// Another size of the file, after its contents were changed to it: where data is changes at the same instant. The
    /// data lock is held exclusively.
    pub(crate) fn resize(&self, inode: &Inode, data: &dyn FileData, size: u64) {
        self.publish(inode.size(), size, data, || inode.set_size(size));
    }

    /// Publishes where data is, if that has changed: not of a file that has no holes and had none.
    fn publish(&self, before: u64, after: u64, data: &dyn FileData, store: impl FnOnce()) {
        let Some(layout) = data.layout() else { return store() };
        let layout = Some(layout).filter(|layout| !layout.is_full(after));
        let unchanged = self.layout.holds(|old| match (old, &layout) {
            (Some(old), Some(new)) => new.is_still(old),
            (None, None) => true,
            _ => false,
        });
        if unchanged { store() } else { self.layout.change(before, after, layout, store) }
    }

    /// The size and where data is, at one instant; none: everywhere. Never waits. `Err` hands `look` back, if the driver does
    /// not say where data is.
    pub(crate) fn seek<T, L>(&self, inode: &Inode, look: L) -> std::result::Result<T, L>
    where
        L: FnOnce(u64, Option<&Layout>) -> T,
    {
        if self.tracked { Ok(self.layout.read(|| inode.size(), look)) } else { Err(look) }
    }

    /// The last reference to the inode is gone: gives the contents back.
    pub(crate) fn last_put(&self) {
        // Nobody does I/O any more (that takes a reference), so nobody holds the lock.
        self.contents.0.write().take();
    }

    /// Where it lies.
    pub(crate) fn parts(&self, parts: &mut Vec<Part>) {
        parts.push(Part::of("FileState", self));
        parts.push(Part::of("FileState.contents (its lock)", &self.contents));
        parts.push(Part::of("FileState.blocks", &self.blocks));
    }

    /// Readers need nothing but a line of their core, until somebody writes: as if many had met here.
    pub(crate) fn favour_readers(&self) {
        self.contents.0.bias();
    }

    /// As [`FileState::look`], unless the contents are being changed.
    pub(crate) fn try_look<T>(&self, look: impl FnOnce(&dyn FileData) -> T) -> Option<T> {
        let data = self.contents.0.try_read()?;
        let _order = lock_order::entered_without_waiting(LockClass::Data);
        data.as_ref().map(|data| look(data.as_ref()))
    }

    /// Looks at the contents with the data lock shared. The caller holds no guard.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&dyn FileData) -> Result<T>) -> Result<T> {
        assert_unpinned("a file's data");
        let _order = lock_order::enter(LockClass::Data);
        let data = counted(LockClass::Data, || self.contents.0.try_read(), || self.contents.0.read());
        look(data.as_ref().ok_or(Error::Stale)?.as_ref())
    }
}

impl Inode {
    /// The contents' state, made if need be.
    pub(crate) fn file_state(&self) -> Result<&FileState> {
        match &self.body {
            Body::File(state) => Ok(state.get_or_init(|| {
                let data = self.shard.sb.driver.data(self.ino);
                let blocks = AtomicU64::new(data.blocks());
                let layout = data.layout();
                let tracked = layout.is_some();
                let layout = VersionedPair::new(layout.filter(|layout| !layout.is_full(self.size())));
                BlockBox::new(FileState { blocks, layout, tracked, contents: OwnLine(BiasedRwLock::new(Some(data))) })
            })),
            Body::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// The contents' state, if there are any contents: none where nothing was ever changed. At that instant the file is empty,
    /// whatever its size is by now.
    pub(crate) fn contents(&self) -> Result<Option<&FileState>> {
        match self.file_state_if_any() {
            None if self.shard.sb.driver.backing().is_some() => self.file_state().map(Some),
            found => Ok(found),
        }
    }

    /// The contents' state, if there has ever been any.
    pub(crate) fn file_state_if_any(&self) -> Option<&FileState> {
        match &self.body {
            Body::File(state) => state.get().map(|boxed| &**boxed),
            _ => None,
        }
    }

    /// Occupied space in units of 512 bytes: one load, also beside a write.
    pub(crate) fn blocks(&self) -> u64 {
        match self.file_state_if_any() {
            Some(state) => state.blocks.load(Ordering::Relaxed),
            // Nothing was ever written, or a backing has it, without holes for all we know.
            None if self.is_backed() => self.size().div_ceil(512),
            None => 0,
        }
    }
}
