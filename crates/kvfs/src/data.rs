//! The contents of regular files. Those of a small file are a record. A larger one has a file of
//! the host, which stays until the file of the tree is empty or gone.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{Arc, OnceLock},
};

use pando_vfs::{Error, FileData, Result};

use crate::{
    committer::Committer,
    files::ContentsFile,
    key::Key,
    record::{Contents, Inode},
    small::{SMALL, Small},
    tree::Tree,
};

/// The directory of which the numbers of files of the host are. No directory of the tree has it.
const CONTENTS: u64 = 0;

/// The contents of one file, as the namespace uses them.
pub(crate) struct StoreData {
    tree: Arc<Tree>,
    committer: Arc<Committer>,
    ino: u64,
    /// What was loaded of it.
    loaded: OnceLock<Loaded>,
}

#[derive(Debug, Clone)]
enum Loaded {
    Small(Small),
    Large(u64, Arc<dyn ContentsFile>),
}

impl StoreData {
    pub(crate) const fn new(tree: Arc<Tree>, committer: Arc<Committer>, ino: u64) -> Self {
        Self { tree, committer, ino, loaded: OnceLock::new() }
    }

    fn load(&self) -> Result<Loaded> {
        let inode = self.tree.inode(self.ino)?;
        match inode.contents {
            Contents::Record => {
                let value = self.tree.staged.get(Key::contents(self.ino))?;
                Small::decode(value.as_deref(), inode.attr.size).map(Loaded::Small)
            }
            Contents::File(number) => {
                let file = self.tree.files.open(number)?;
                let large = Loaded::Large(number, Arc::clone(&file));
                // A crash may have left more than the last commit knew of.
                if file.size()? > inode.attr.size {
                    file.set_len(inode.attr.size)?;
                    self.store_now(&large, |size| size)?;
                }
                Ok(large)
            }
        }
    }

    /// What the file has.
    fn loaded(&self) -> Result<&Loaded> {
        if let Some(loaded) = self.loaded.get() {
            return Ok(loaded);
        }
        let loaded = self.load()?;
        Ok(self.loaded.get_or_init(|| loaded))
    }

    fn loaded_mut(&mut self) -> Result<&mut Loaded> {
        self.loaded()?;
        self.loaded.get_mut().ok_or(Error::Io)
    }

    /// Stores the size of the file, and all of its bytes if it is small.
    fn store(&self, loaded: &Loaded, size: impl Fn(u64) -> u64) -> Result<()> {
        self.committer.make_room(&self.tree)?;
        self.store_now(loaded, size)
    }

    /// As [`StoreData::store`], also if the memory for changes is full.
    fn store_now(&self, loaded: &Loaded, size: impl Fn(u64) -> u64) -> Result<()> {
        let (tree, changing) = (&self.tree, self.tree.staged.change());
        let inode_below = tree.staged.load(&changing, Key::inode(self.ino))?;
        let before = Inode::decode(self.ino, inode_below.value().ok_or(Error::Stale)?)?;
        let (contents, blocks, value) = match loaded {
            Loaded::Small(small) => (Contents::Record, small.blocks(), small.encode()),
            Loaded::Large(number, file) => {
                tree.note_written(*number, &**file)?;
                (Contents::File(*number), file.blocks()?, None)
            }
        };
        let was_record = before.contents == Contents::Record && before.attr.blocks > 0;
        if was_record || value.is_some() {
            let below = tree.staged.load(&changing, Key::contents(self.ino))?;
            tree.staged.modify(&changing, Key::contents(self.ino), &below, |_| (value, ()));
        }
        tree.space.settle(before.attr.blocks, blocks);
        tree.staged.modify(&changing, Key::inode(self.ino), &inode_below, |now| {
            let now = now.and_then(|now| Inode::decode(self.ino, now).ok());
            let mut inode = now.unwrap_or_else(|| before.clone());
            (inode.contents, inode.attr.blocks) = (contents, blocks);
            inode.attr.size = size(inode.attr.size);
            (Some(inode.encode()), ())
        });
        if let Contents::File(old) = before.contents
            && contents != before.contents
        {
            tree.file_changes().remove(old);
        }
        Ok(())
    }

    /// Before a write to a range.
    ///
    /// # Errors
    /// ENOSPC: the store is full, and part of the range is in a hole.
    fn expect_room(&self, offset: u64, len: u64) -> Result<()> {
        let full = match self.tree.space.expect_room(len) {
            Ok(()) => return Ok(()),
            Err(full) => full,
        };
        let hole = match self.loaded()? {
            Loaded::Small(small) => small.seek_hole(offset),
            Loaded::Large(_, file) => file.seek_hole(offset)?,
        };
        if hole >= offset + len { Ok(()) } else { Err(full) }
    }

    /// Moves the bytes of a small file into a file of the host.
    fn enlarge(&mut self) -> Result<()> {
        if let Loaded::Small(small) = self.loaded()? {
            let number = self.tree.numbers.next(CONTENTS);
            let file = self.tree.files.create(number)?;
            self.tree.file_changes().made = true;
            let large = Loaded::Large(number, Arc::clone(&file));
            let enlarged = small.copy_to(&*file).and_then(|()| self.store(&large, |size| size));
            if enlarged.is_err() {
                self.tree.file_changes().written.remove(&number);
                let _ = self.tree.files.remove(number);
                return enlarged;
            }
            self.loaded = large.into();
        }
        Ok(())
    }

    /// Writes to a large file from `offset` on. `write` returns how many bytes it has written.
    fn write_large(
        &mut self,
        offset: u64,
        write: impl FnOnce(&dyn ContentsFile) -> io::Result<usize>,
    ) -> Result<usize> {
        let large = self.loaded()?.clone();
        let Loaded::Large(_, file) = &large else { return Err(Error::Io) };
        // Before the write: bytes without a size that says so would have to be removed.
        self.committer.make_room(&self.tree)?;
        let written = write(&**file).map_err(Error::from).and_then(|count| {
            self.store_now(&large, |size| size.max(offset + count as u64))?;
            Ok(count)
        });
        if written.is_err() {
            // Loaded again, it is cut to the size that is stored.
            self.loaded.take();
        }
        written
    }

    /// Replaces all bytes of the file by few.
    fn replace(&mut self, small: Small) -> Result<()> {
        let (size, small) = (small.bytes().len() as u64, Loaded::Small(small));
        self.store(&small, |_| size)?;
        self.loaded = small.into();
        Ok(())
    }
}

impl FileData for StoreData {
    fn read_at(&self, buf: &mut [u8], offset: u64, size: u64) -> Result<usize> {
        let count = size.saturating_sub(offset).min(buf.len() as u64) as usize;
        let buf = &mut buf[..count];
        let found = match self.loaded()? {
            Loaded::Small(small) => {
                let rest = small.bytes().get(offset as usize..).unwrap_or_default();
                let found = rest.len().min(count);
                buf[..found].copy_from_slice(&rest[..found]);
                found
            }
            Loaded::Large(_, file) => file.read(offset, buf)?,
        };
        buf[found..].fill(0);
        Ok(count)
    }

    fn write_at(&mut self, data: &[u8], offset: u64) -> Result<usize> {
        let end = offset + data.len() as u64;
        self.expect_room(offset, data.len() as u64)?;
        if end > SMALL {
            self.enlarge()?;
        }
        match self.loaded_mut()? {
            Loaded::Small(small) => {
                let mut small = small.clone();
                small.write(offset as usize, data);
                self.replace(small)?;
                Ok(data.len())
            }
            Loaded::Large(..) => self.write_large(offset, |file| file.write(offset, data)),
        }
    }

    fn copy_source(&self) -> Result<Option<Arc<OwnedFd>>> {
        match self.loaded()? {
            Loaded::Small(_) => Ok(None),
            Loaded::Large(_, file) => Ok(file.descriptor()?.map(Arc::new)),
        }
    }

    fn copy_from(&mut self, offset: u64, source: &OwnedFd, source_offset: u64, len: usize) -> Result<usize> {
        // Without room for all of it, it is left to writes, which fill the store to the last block.
        let has_room = self.expect_room(offset, len as u64).is_ok();
        if !has_room || offset + len as u64 <= SMALL {
            return Err(Error::NotSupported);
        }
        self.enlarge()?;
        self.write_large(offset, |file| {
            let before = file.size()?;
            let copied = file.copy_from(offset, source, source_offset, len);
            // A copy that fails half-way may have made the file longer than it says.
            let end = before.max(offset + *copied.as_ref().unwrap_or(&0) as u64);
            if file.size()? > end {
                file.set_len(end)?;
            }
            copied
        })
    }

    fn truncate(&mut self, old_size: u64, new_size: u64) -> Result<()> {
        if new_size > SMALL && new_size > old_size {
            self.enlarge()?;
        }
        let (number, file) = match self.loaded_mut()? {
            Loaded::Small(small) => {
                let mut small = small.clone();
                small.truncate(new_size as usize);
                return self.replace(small);
            }
            Loaded::Large(number, file) => (*number, Arc::clone(file)),
        };
        if new_size <= SMALL {
            return self.replace(Small::copy_of(&*file, new_size)?);
        }
        if new_size > old_size {
            file.set_len(new_size)?;
        }
        self.store(&Loaded::Large(number, Arc::clone(&file)), |_| new_size)?;
        if new_size < old_size {
            // The bytes are in the last commit. They go only when a later one is without them.
            let committed = self.committer.commit();
            if committed.is_err() {
                self.store_now(&Loaded::Large(number, file), |_| old_size)?;
                return committed;
            }
            if file.set_len(new_size).is_err() {
                // The file is cut when it is loaded again.
                self.loaded.take();
                return Ok(());
            }
            self.store_now(&Loaded::Large(number, file), |_| new_size)?;
        }
        Ok(())
    }

    fn allocate(&mut self, offset: u64, len: u64) -> Result<()> {
        self.expect_room(offset, len)?;
        if offset + len > SMALL {
            self.enlarge()?;
        }
        match self.loaded()? {
            Loaded::Small(_) => Ok(()),
            Loaded::Large(number, file) => {
                file.allocate(offset, len)?;
                self.store(&Loaded::Large(*number, Arc::clone(file)), |size| size)
            }
        }
    }

    fn punch(&mut self, offset: u64, len: u64) -> Result<()> {
        match self.loaded()?.clone() {
            Loaded::Small(mut small) => {
                small.punch(offset, len);
                self.replace(small)
            }
            large @ Loaded::Large(..) => {
                if let Loaded::Large(_, file) = &large {
                    file.punch(offset, len)?;
                }
                self.store(&large, |size| size)
            }
        }
    }

    fn seek_data(&self, offset: u64, size: u64) -> Result<Option<u64>> {
        let found = match self.loaded()? {
            Loaded::Small(small) => small.seek_data(offset),
            Loaded::Large(_, file) => file.seek_data(offset)?,
        };
        Ok(found.filter(|found| *found < size))
    }

    fn seek_hole(&self, offset: u64, size: u64) -> Result<u64> {
        match self.loaded()? {
            Loaded::Small(small) => Ok(small.seek_hole(offset)),
            Loaded::Large(_, file) => Ok(file.seek_hole(offset)?.min(size)),
        }
    }

    fn blocks(&self) -> Option<u64> {
        match self.loaded.get()? {
            Loaded::Small(small) => Some(small.blocks()),
            Loaded::Large(_, file) => file.blocks().ok(),
        }
    }

    fn sync(&mut self) -> Result<()> {
        self.committer.commit()
    }
}
