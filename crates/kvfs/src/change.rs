//! Changes of the tree. Each first reads what it needs and checks it; what then follows cannot
//! fail. All of it is in one generation.
//!
//! The namespace makes the changes of one name one after the other. Records that different names
//! share, such as the inode of the directory, are changed under the lock of their part.

use pando_vfs::{Ack, AttrMask, Change, CommitError, Error, FileKind, NodeAttr, RenameFlags, Result};

use crate::{
    key::Key,
    record::{Contents, Inode, Names, decode_xattrs, encode_xattrs},
    staged::{Below, Changing},
    tree::Tree,
};

/// The most names of an inode, as in ext4.
const LINKS_MAX: u32 = 65_000;

/// A name, as it was read under a [`Changing`].
struct Place<'n> {
    key: Key,
    name: &'n [u8],
    below: Below,
    /// What the name leads to.
    found: Option<(FileKind, u64)>,
}

/// An inode, as it was read under a [`Changing`].
struct Loaded {
    inode: Inode,
    below: Below,
}

impl Loaded {
    fn of(ino: u64, below: Below) -> Result<Self> {
        let inode = Inode::decode(ino, below.value().ok_or(Error::NoEntry)?)?;
        Ok(Self { inode, below })
    }
}

impl Tree {
    /// Makes a change.
    ///
    /// # Errors
    /// Those of [`Change`], and those of the engine.
    pub(crate) fn change(&self, change: &Change<'_>) -> std::result::Result<Ack, CommitError> {
        let done = match *change {
            Change::Create { dir, name, attr, .. } => return Ok(Ack::Made(self.create(dir, name, attr)?)),
            Change::CreateAnonymous { dir, attr, .. } => return Ok(Ack::Made(self.create_anonymous(dir, attr)?)),
            Change::Link { ino, dir, name } => self.link(ino, dir, name),
            Change::Remove { dir, name, .. } => self.remove(dir, name),
            Change::Rename { from, to, flags, whiteout, .. } => self.rename(from, to, flags, whiteout),
            Change::SetAttr { ino, attr, meant } => self.set_attr(ino, attr, meant),
            Change::SetXattr { ino, name, value } => self.set_xattr(ino, name, value),
            _ => Err(Error::NotSupported),
        };
        Ok(done.map(|()| Ack::Done)?)
    }

    fn place<'n>(&self, changing: &Changing<'_>, dir: u64, name: &'n [u8]) -> Result<Place<'n>> {
        let key = self.names_key(dir, name);
        let below = self.staged.load(changing, key)?;
        let names = Names::decode(below.value())?;
        let found = names.get(name).map(|name| (name.kind, name.ino));
        Ok(Place { key, name, below, found })
    }

    /// Binds a name to an inode.
    ///
    /// # Errors
    /// ENOENT if the directory was removed, ENOSPC if too many of its names have this hash.
    fn bind(&self, changing: &Changing<'_>, place: &Place<'_>, (kind, ino): (FileKind, u64)) -> Result<()> {
        self.staged.add_name(changing, place.key, &place.below, |value| {
            // It was decoded before, and changes only here.
            let mut names = Names::decode(value).unwrap_or_default();
            let fits = names.bind(place.name, kind, ino);
            (names.encode(), if fits { Ok(()) } else { Err(Error::NoSpace) })
        })?
    }

    /// Binds a name that is there to another inode, or to none.
    fn rebind(&self, changing: &Changing<'_>, place: &Place<'_>, to: Option<(FileKind, u64)>) {
        self.staged.modify(changing, place.key, &place.below, |value| {
            let mut names = Names::decode(value).unwrap_or_default();
            match to {
                Some((kind, ino)) => _ = names.bind(place.name, kind, ino),
                None => names.unbind(place.name),
            }
            (names.encode(), ())
        });
    }

    fn load(&self, changing: &Changing<'_>, ino: u64) -> Result<Loaded> {
        Loaded::of(ino, self.staged.load(changing, Key::inode(ino))?)
    }

    /// Changes an inode that was loaded. Others may have changed it since.
    fn update<T>(&self, changing: &Changing<'_>, loaded: &Loaded, update: impl FnOnce(&mut Inode) -> T) -> T {
        let ino = loaded.inode.attr.ino;
        self.staged.modify(changing, Key::inode(ino), &loaded.below, |value| {
            let now = value.and_then(|value| Inode::decode(ino, value).ok());
            let mut inode = now.unwrap_or_else(|| loaded.inode.clone());
            let result = update(&mut inode);
            (Some(inode.encode()), result)
        })
    }

    /// Stores a new inode, which was charged for. Its name, if it has one, is in the record `name`.
    fn add(&self, changing: &Changing<'_>, dir: u64, attr: &NodeAttr, name: Option<Key>) -> NodeAttr {
        let mut inode = Inode::new(attr.clone());
        inode.named_in.extend(name);
        (inode.attr.ino, inode.attr.blocks) = (self.numbers.next(dir), 0);
        self.staged.add(changing, Key::inode(inode.attr.ino), inode.encode());
        inode.attr
    }

    /// Charges for an inode.
    fn charge(&self) -> Result<()> {
        self.inodes.charge(1).map_err(|_| Error::NoSpace)
    }

    fn create(&self, dir: u64, name: &[u8], attr: &NodeAttr) -> Result<NodeAttr> {
        let changing = self.staged.change();
        let place = self.place(&changing, dir, name)?;
        if place.found.is_some() {
            return Err(Error::Exists);
        }
        let parent = (attr.kind == FileKind::Directory).then(|| self.load(&changing, dir)).transpose()?;
        self.charge()?;
        let attr = self.add(&changing, dir, attr, Some(place.key));
        if let Err(error) = self.bind(&changing, &place, (attr.kind, attr.ino)) {
            self.staged.remove(&changing, Key::inode(attr.ino));
            self.inodes.release(1);
            return Err(error);
        }
        if let Some(parent) = parent {
            self.update(&changing, &parent, |parent| parent.attr.nlink += 1);
        }
        Ok(attr)
    }

    fn create_anonymous(&self, dir: u64, attr: &NodeAttr) -> Result<NodeAttr> {
        let changing = self.staged.change();
        self.charge()?;
        let mut attr = attr.clone();
        attr.nlink = 0;
        let attr = self.add(&changing, dir, &attr, None);
        self.staged.add(&changing, Key::unnamed(attr.ino), Vec::new());
        self.unnamed.insert(attr.ino);
        Ok(attr)
    }

    fn link(&self, ino: u64, dir: u64, name: &[u8]) -> Result<()> {
        let changing = self.staged.change();
        let place = self.place(&changing, dir, name)?;
        if place.found.is_some() {
            return Err(Error::Exists);
        }
        let loaded = self.load(&changing, ino)?;
        if loaded.inode.attr.nlink >= LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        self.bind(&changing, &place, (loaded.inode.attr.kind, ino))?;
        let was_unnamed = self.update(&changing, &loaded, |inode| {
            inode.attr.nlink += 1;
            inode.note_name(place.key);
            inode.attr.nlink == 1
        });
        if was_unnamed {
            self.staged.remove(&changing, Key::unnamed(ino));
            self.unnamed.remove(ino);
        }
        Ok(())
    }

    /// Takes a name from an inode. The last one leaves it without a name until it is forgotten. A
    /// directory has one name.
    fn take_name(&self, changing: &Changing<'_>, loaded: &Loaded, name: &Place<'_>) {
        let ino = loaded.inode.attr.ino;
        let is_unnamed = self.update(changing, loaded, |inode| {
            inode.forget_name(&name.key);
            let left = inode.attr.nlink.saturating_sub(1);
            inode.attr.nlink = if inode.attr.kind == FileKind::Directory { 0 } else { left };
            inode.has_more_names &= inode.named_in.len() < inode.attr.nlink as usize;
            inode.attr.nlink == 0
        });
        if is_unnamed {
            self.unnamed.insert(ino);
            self.staged.add(changing, Key::unnamed(ino), Vec::new());
        }
    }

    /// Makes sure that an inode may lose a name: a directory that has none gets none any more.
    ///
    /// # Errors
    /// ENOTEMPTY.
    fn may_lose_name(&self, (kind, ino): (FileKind, u64)) -> Result<()> {
        if kind == FileKind::Directory { self.staged.remove_directory(ino, || self.is_empty(ino)) } else { Ok(()) }
    }

    fn remove(&self, dir: u64, name: &[u8]) -> Result<()> {
        let changing = self.staged.change();
        let place = self.place(&changing, dir, name)?;
        let found = place.found.ok_or(Error::NoEntry)?;
        let removed = self.load(&changing, found.1)?;
        let parent = (found.0 == FileKind::Directory).then(|| self.load(&changing, dir)).transpose()?;
        self.may_lose_name(found)?;
        self.rebind(&changing, &place, None);
        self.take_name(&changing, &removed, &place);
        if let Some(parent) = parent {
            self.update(&changing, &parent, |parent| parent.attr.nlink = parent.attr.nlink.saturating_sub(1));
        }
        Ok(())
    }

    fn rename(
        &self,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        flags: RenameFlags,
        whiteout: Option<&NodeAttr>,
    ) -> Result<()> {
        let changing = self.staged.change();
        let [source, target] = [from, to].map(|(dir, name)| self.place(&changing, dir, name));
        let (source, target) = (source?, target?);
        let moved = source.found.ok_or(Error::NoEntry)?;
        let is_dir = |found: Option<(FileKind, u64)>| matches!(found, Some((FileKind::Directory, _)));
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if exchange && target.found.is_none() {
            return Err(Error::NoEntry);
        }
        if flags.contains(RenameFlags::NOREPLACE) && target.found.is_some() {
            return Err(Error::Exists);
        }
        if target.found.is_some_and(|(_, ino)| ino == moved.1) {
            // Two names of one inode: nothing happens.
            return Ok(());
        }
        let replaced = target.found.filter(|_| !exchange);
        match replaced {
            Some((FileKind::Directory, _)) if !is_dir(Some(moved)) => return Err(Error::IsDirectory),
            Some((kind, _)) if kind != FileKind::Directory && is_dir(Some(moved)) => return Err(Error::NotDirectory),
            _ => {}
        }
        // How many directories each of the two gets.
        let left = i32::from(exchange && is_dir(target.found)) - i32::from(is_dir(Some(moved)));
        let gained = i32::from(is_dir(Some(moved))) - i32::from(is_dir(target.found));
        let parents =
            if from.0 == to.0 { [(from.0, left + gained), (to.0, 0)] } else { [(from.0, left), (to.0, gained)] };
        let load = |(dir, more): (u64, i32)| Ok::<_, Error>((self.load(&changing, dir)?, more));
        let parents: Vec<_> = parents.into_iter().filter(|(_, more)| *more != 0).map(load).collect::<Result<_>>()?;
        let load = |found: Option<(FileKind, u64)>| found.map(|(_, ino)| self.load(&changing, ino)).transpose();
        let (mover, exchanged) = (load(Some(moved))?, load(target.found.filter(|_| exchange))?);
        let loaded = load(replaced)?;
        if whiteout.is_some() {
            self.charge()?;
        }
        let refused = |error| {
            self.inodes.release(u64::from(whiteout.is_some()));
            Err(error)
        };
        if let Some(replaced) = replaced
            && let Err(error) = self.may_lose_name(replaced)
        {
            return refused(error);
        }
        if let Err(error) = self.bind(&changing, &target, moved) {
            if let Some((_, ino)) = replaced {
                self.staged.forget_directory(ino);
            }
            return refused(error);
        }
        let old = match whiteout {
            Some(attr) => {
                let attr = self.add(&changing, from.0, attr, Some(source.key));
                Some((attr.kind, attr.ino))
            }
            None => target.found.filter(|_| exchange),
        };
        self.rebind(&changing, &source, old);
        for (loaded, old, new) in [(mover, &source, &target), (exchanged, &target, &source)] {
            if let Some(loaded) = loaded {
                self.update(&changing, &loaded, |inode| {
                    inode.forget_name(&old.key);
                    inode.note_name(new.key);
                });
            }
        }
        if let Some(replaced) = loaded {
            self.take_name(&changing, &replaced, &target);
        }
        for (parent, more) in parents {
            self.update(&changing, &parent, |parent| {
                parent.attr.nlink = parent.attr.nlink.saturating_add_signed(more);
            });
        }
        Ok(())
    }

    fn set_attr(&self, ino: u64, attr: &NodeAttr, meant: AttrMask) -> Result<()> {
        let changing = self.staged.change();
        let loaded = self.load(&changing, ino)?;
        self.update(&changing, &loaded, |inode| inode.attr.assign(attr, meant));
        Ok(())
    }

    fn set_xattr(&self, ino: u64, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        let changing = self.staged.change();
        let loaded = self.load(&changing, ino)?;
        let below = self.staged.load(&changing, Key::xattrs(ino))?;
        let known = decode_xattrs(below.value())?;
        if value.is_none() && !known.iter().any(|(known, _)| **known == *name) {
            return Err(Error::NoData);
        }
        let is_left = self.staged.modify(&changing, Key::xattrs(ino), &below, |stored| {
            let mut xattrs = decode_xattrs(stored).unwrap_or_default();
            xattrs.retain(|(known, _)| **known != *name);
            xattrs.extend(value.map(|value| (name.into(), value.into())));
            let encoded = encode_xattrs(&xattrs);
            let is_left = encoded.is_some();
            (encoded, is_left)
        });
        self.update(&changing, &loaded, |inode| inode.has_xattrs = is_left);
        Ok(())
    }

    /// Frees an inode without a name that the namespace does not use any more. `may_wait`: for the
    /// engine. False if it would have to wait.
    pub(crate) fn free(&self, changing: &Changing<'_>, ino: u64, may_wait: bool) -> Result<bool> {
        let staged = self.staged.load_staged(changing, Key::inode(ino));
        let loaded = match staged {
            Some(below) => Loaded::of(ino, below),
            None if may_wait => self.load(changing, ino),
            None => return Ok(false),
        };
        let loaded = match loaded {
            Err(Error::NoEntry) => return Ok(true),
            loaded => loaded?,
        };
        if loaded.inode.attr.nlink > 0 {
            return Ok(true);
        }
        self.staged.modify(changing, Key::inode(ino), &loaded.below, |_| (None, ()));
        self.inodes.release(1);
        self.space.settle(loaded.inode.attr.blocks, 0);
        for (key, is_there) in [
            (Key::unnamed(ino), true),
            (Key::xattrs(ino), loaded.inode.has_xattrs),
            (Key::contents(ino), loaded.inode.contents == Contents::Record && loaded.inode.attr.blocks > 0),
        ] {
            if is_there {
                self.staged.remove(changing, key);
            }
        }
        if let Contents::File(number) = loaded.inode.contents {
            self.file_changes().remove(number);
        }
        if loaded.inode.attr.kind == FileKind::Directory {
            self.numbers.forget(ino);
            self.staged.forget_directory(ino);
        }
        Ok(true)
    }
}
