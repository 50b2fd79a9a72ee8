//! What a thread remembers of its walks: which directory a path's prefix has led to.
//!
//! Whoever works in a deep tree asks for many files of one directory, and walks the same way down each time. The way is
//! remembered for each thread, by the bytes of the path up to its last slash, so that a walk goes on from where the last one
//! was: one look instead of one for each component.
//!
//! **Why that is right.** A prefix is remembered with the rename sequence that stood before the walk. While the sequence
//! stands, no directory has changed its place, nor lost permissions, nor changed what is mounted on it: whoever does one of these
//! writes the sequence around that instant. So the way can only have been cut by removals. A directory is removed when it is
//! empty; so if the last one of the way is not removed, none of the others is, and at the instant at which the sequence
//! was read the whole way was there, and open to this caller. Whether the last one is removed is asked each time, and whether
//! its tree is being taken down, which takes directories apart that are not empty. What is made new is no matter: a name that is
//! bound stays bound until it is renamed or removed. Nor is it one who may go through that might not before: only what was
//! open is remembered.
//!
//! What is not remembered: ways through symbolic links and `..`, since they depend on more than that; ways through a tree with
//! a backing, which is asked again and again; and ways from one tree into another, which may have one. The directories are
//! remembered by [`Weak`] pointers: they go when nobody else holds them.
//!
//! (A table of the system, by path, with permissions remembered apart: Tsai et al., *How to get more value from your file
//! system directory cache*, SOSP 2015. Here it is the thread's own, so that no walk writes what others read.)

use std::cell::RefCell;

use pando_sync::{Guard, IndexAddress, Shared, Weak, prefetch};

use crate::{
    objects::{dentry::Dentry, directory::Directory, superblock::NameSpace},
    types::name::{NameHash, equal, last_slash},
};

/// The longest prefix that is remembered.
const LONGEST: usize = 127;
/// How many entries a thread begins with, by how much it has more when these are too few, and how many at most: 3 KiB to
/// 768 KiB.
const FEWEST: usize = 16;
const GROWTH: usize = 4;
const MOST: usize = 4096;

/// A prefix of a path, and what it is remembered with.
#[derive(Clone, Copy)]
pub(crate) struct Prefix<'p> {
    bytes: &'p [u8],
    context: u64,
    sequence: u64,
}

/// Where a prefix has led.
struct Way {
    dir: Weak<Dentry>,
    /// Where the directory's own part lies: to be asked for before it is wanted, and for nothing else, since it goes with `dir`.
    directory: *const Directory,
    /// How names in there are hashed: known without waiting for the inode.
    names: NameHash,
    /// Where the directory's index was: asked for as well, before the directory has said where it is.
    index: IndexAddress,
}

/// One entry.
#[repr(C, align(64))]
struct Entry {
    /// Of [`Context::identity`](crate::Context::identity); zero for none.
    context: u64,
    sequence: u64,
    way: Option<Way>,
    len: u8,
    bytes: [u8; LONGEST],
}

const _: () = assert!(size_of::<Entry>() == 192);

impl Entry {
    const EMPTY: Self = Self { context: 0, sequence: 0, way: None, len: 0, bytes: [0; LONGEST] };

    #[inline]
    fn is_of(&self, prefix: &Prefix<'_>) -> bool {
        self.context == prefix.context
            && self.sequence == prefix.sequence
            && usize::from(self.len) == prefix.bytes.len()
            && equal(&self.bytes[..prefix.bytes.len()], prefix.bytes)
    }

    /// Whether it might still be of use to somebody.
    fn is_in_use(&self, sequence: u64, guard: &Guard) -> bool {
        self.sequence == sequence && self.way.as_ref().is_some_and(|way| way.dir.upgrade(guard).is_some())
    }
}

/// A thread's entries: a power of two of them, or none. Each prefix has two places.
struct Table {
    entries: Vec<Entry>,
    /// How many entries in use have been overwritten since there are so many.
    displaced: usize,
}

std::thread_local!(static REMEMBERED: RefCell<Table> = const { RefCell::new(Table::NEW) });

impl<'p> Prefix<'p> {
    /// What is before the path's last component, and that component; none if there is nothing to remember, or too little.
    /// `context`: the caller's [identity](crate::Context::identity), asked for if there is something to remember.
    #[inline]
    pub(crate) fn of(
        path: &'p [u8],
        context: impl FnOnce() -> Option<u64>,
        name_space: &NameSpace,
    ) -> Option<(Self, &'p [u8])> {
        let cut = last_slash(path)?;
        let last = &path[cut + 1..];
        if cut == 0 || cut > LONGEST || last.is_empty() {
            return None;
        }
        let (context, sequence) = (context()?, name_space.rename_seq.sequence());
        Some((Self { bytes: &path[..cut], context, sequence }, last))
    }

    /// The directory that it has led to and still does, and that the caller may go through; the hash of a name in there. Of
    /// what others read, nothing is written.
    #[inline]
    pub(crate) fn recall<'g>(
        &self,
        name: &[u8],
        name_space: &NameSpace,
        guard: &'g Guard,
    ) -> Option<(Shared<'g, Dentry>, u64)> {
        let found = REMEMBERED.try_with(|table| {
            let table = table.try_borrow().ok()?;
            let way = table.find(self)?;
            way.dir.prefetch();
            prefetch(way.directory);
            let hash = way.names.hash(name);
            way.index.prefetch(hash);
            Some((way.dir.upgrade(guard)?, hash, way.index))
        });
        let (dir, hash, index) = found.ok().flatten()?;
        let (directory, sb) = (dir.to_ref().directory().ok()?, dir.to_ref().sb());
        let is_removed = directory.is_removed(guard);
        if directory.index_address(guard) != index {
            self.put(dir, guard);
        }
        // A context of another system was used with this one: that is refused, and the sequences are not the same.
        let is_ours = std::ptr::eq(&raw const *sb.name_space, name_space);
        // A tree that is taken down, which others hold parts of, comes apart at any place.
        (!is_removed && is_ours && sb.expect_open().is_ok()).then_some((dir, hash))
    }

    /// Remembers that it leads to `dir`, through which the caller may go: the walk has begun after [`Prefix::of`], at `start`,
    /// and passed names only.
    #[cold]
    pub(crate) fn remember(&self, start: Shared<'_, Dentry>, dir: Shared<'_, Dentry>, guard: &Guard) {
        let is_changing = !self.sequence.is_multiple_of(2);
        if is_changing || start.to_ref().inode().is_backed() || !std::ptr::eq(start.to_ref().sb(), dir.to_ref().sb()) {
            return;
        }
        self.put(dir, guard);
    }

    /// It leads to `dir`.
    #[cold]
    fn put(&self, dir: Shared<'_, Dentry>, guard: &Guard) {
        // Without: the thread is ending.
        let _ = REMEMBERED.try_with(|table| {
            if let Ok(mut table) = table.try_borrow_mut() {
                table.put(self, Way::to(dir, guard), guard);
            }
        });
    }

    /// Where to look for it. Who knows this can make a thread forget, and no more.
    #[inline]
    fn hash(&self) -> usize {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mix = |state: u64, word: u64| {
            let product = u128::from(state ^ word) * u128::from(ODD);
            product as u64 ^ (product >> 64) as u64
        };
        let (words, rest) = self.bytes.as_chunks::<8>();
        let all = words.iter().fold(self.context ^ ODD, |state, word| mix(state, u64::from_le_bytes(*word)));
        let tail = match self.bytes.last_chunk::<8>() {
            // Overlaps what was taken already.
            Some(last) => u64::from_le_bytes(*last),
            None => rest.iter().fold(0, |tail, byte| tail << 8 | u64::from(*byte)),
        };
        (mix(all, tail) >> 32) as usize
    }
}

impl Way {
    /// None if nobody else holds the directory.
    fn to(dir: Shared<'_, Dentry>, guard: &Guard) -> Option<Self> {
        let inode = dir.to_ref().inode();
        let (directory, names) = (inode.directory().ok()?, inode.shard.sb.names(inode.ino));
        Some(Self { dir: dir.downgrade()?, directory, names, index: directory.index_address(guard) })
    }
}

impl Table {
    const NEW: Self = Self { entries: Vec::new(), displaced: 0 };

    /// The two places of a prefix.
    #[inline]
    fn places(&self, prefix: &Prefix<'_>) -> [usize; 2] {
        let place = prefix.hash() & (self.entries.len() - 1);
        [place, place ^ 1]
    }

    #[inline]
    fn find(&self, prefix: &Prefix<'_>) -> Option<&Way> {
        if self.entries.is_empty() {
            return None;
        }
        let mut entries = self.places(prefix).into_iter().map(|place| &self.entries[place]);
        entries.find(|entry| entry.is_of(prefix))?.way.as_ref()
    }

    fn put(&mut self, prefix: &Prefix<'_>, way: Option<Way>, guard: &Guard) {
        let len = self.entries.len();
        if len == 0 || (self.displaced >= len && len < MOST) {
            let len = if len == 0 { FEWEST } else { len * GROWTH };
            *self = Self { entries: (0..len).map(|_| Entry::EMPTY).collect(), displaced: 0 };
        }
        let places = self.places(prefix);
        let is_free = |&place: &usize| !self.entries[place].is_in_use(prefix.sequence, guard);
        let place = places.into_iter().find(|&place| self.entries[place].is_of(prefix));
        let place = place.or_else(|| places.into_iter().find(is_free)).unwrap_or_else(|| {
            self.displaced += 1;
            places[0]
        });
        let entry = &mut self.entries[place];
        (entry.context, entry.sequence, entry.way) = (prefix.context, prefix.sequence, way);
        entry.bytes[..prefix.bytes.len()].copy_from_slice(prefix.bytes);
        entry.len = prefix.bytes.len() as u8;
    }
}

#[cfg(test)]
mod tests {
    use pando_sync::pin;

    use super::*;
    use crate::{At, Context, Credentials, Vfs, Walk, driver::tests::Nothing};

    /// Seen to fail: a way that tells of the index for good that its directory had at first.
    #[test]
    fn a_way_tells_of_the_index_that_is_there_now() {
        let vfs = Vfs::new(Nothing).expect("a tree");
        let context = Context::new(&vfs, Credentials::root());
        let dir = vfs.mkdir(&context, At::Cwd, "/d", 0o755).expect("mkdir").0;
        let now = || dir.inode().directory().expect("a directory").index_address(&pin());
        let told = || {
            let of_entry = |entry: &Entry| entry.way.as_ref().map(|way| way.index);
            REMEMBERED.with_borrow(|table| table.entries.iter().filter_map(of_entry).collect::<Vec<_>>())
        };
        let mut seen = Vec::new();
        for n in 0..200 {
            vfs.mkdir(&context, At::Cwd, format!("/d/{n}"), 0o755).expect("mkdir");
            vfs.stat(&context, At::Cwd, "/d/0", Walk::empty()).expect("there");
            if n > 10 {
                assert_eq!(told(), [now()], "{n} names");
                seen.push(now());
            }
        }
        seen.dedup();
        assert!(seen.len() > 2, "it was replaced");
    }
}
