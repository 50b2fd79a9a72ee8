//! The path-prefix cache: each thread caches the directories that path prefixes have led to.
//!
//! A program that works in a deep tree opens many files of one directory, and each walk passes the
//! same components. The cache maps the bytes of a path up to its last slash to the directory. So
//! the next walk continues at that directory: one look-up instead of one per component.
//!
//! **Why it is correct.** An entry holds the rename sequence from before the walk. A thread that
//! moves a directory, revokes a directory's permissions, or changes a mount writes the sequence
//! around that instant. So as long as the sequence is unchanged, only removals can have changed the
//! path. A directory can be removed only when it is empty. So if the last directory of the prefix
//! is not removed, none of the others is. Then at the instant at which the sequence was read, the
//! whole path existed, and the caller could search each directory of it. Each hit checks whether
//! the last directory is removed, and whether its tree is being shut down, because a shutdown takes
//! directories apart that are not empty. New names are harmless: a bound name stays bound until it
//! is renamed or removed. So are permissions that are granted: only paths that were open to the
//! caller are cached.
//!
//! Some paths are not cached. The result of a path with a symbolic link or `..` depends on more
//! than this. A path in a tree with a backing must be checked against the backing each time, and so
//! must one that crosses into another tree, which may have a backing. The cache holds no reference
//! to a directory: it has [`Weak`] pointers, so a directory is freed when nothing else holds it.
//!
//! Tsai et al., *How to get more value from your file system directory cache* (SOSP 2015), have one
//! such table for the system, by path, with permissions cached separately. Here the table belongs
//! to the thread, so no walk writes a line that others read.

use std::cell::RefCell;

use pando_sync::{Guard, IndexAddress, Shared, Weak};

use crate::{
    objects::{dentry::Dentry, superblock::Namespace},
    types::name::{NameHash, equal, last_slash},
};

/// The longest prefix that is cached, in bytes.
const PREFIX_MAX: usize = 127;
/// The number of entries at first, the growth factor when these are too few, and the maximum: 3 KiB
/// to 768 KiB.
const ENTRIES_MIN: usize = 16;
const GROWTH: usize = 4;
const ENTRIES_MAX: usize = 4096;

/// A prefix of a path, and the key that it is cached with.
#[derive(Clone, Copy)]
pub(crate) struct Prefix<'p> {
    bytes: &'p [u8],
    context: u64,
    sequence: u64,
}

/// The directory that a prefix has led to.
struct CachedDir {
    dir: Weak<Dentry>,
    /// The hash function of the directory's names. With it, a name can be hashed while the inode is
    /// still being fetched from memory.
    names: NameHash,
    /// The address of the directory's index. Used to prefetch the bucket before the directory has
    /// been read.
    index: IndexAddress,
}

/// An entry of the cache.
#[repr(C, align(64))]
struct PrefixEntry {
    /// The [identity](crate::Context::identity) of the context. Zero for an empty entry.
    context: u64,
    sequence: u64,
    cached: Option<CachedDir>,
    len: u8,
    bytes: [u8; PREFIX_MAX],
}

const _: () = assert!(size_of::<PrefixEntry>() == 192);

impl PrefixEntry {
    const EMPTY: Self = Self { context: 0, sequence: 0, cached: None, len: 0, bytes: [0; PREFIX_MAX] };

    #[inline]
    fn is_of(&self, prefix: &Prefix<'_>) -> bool {
        self.context == prefix.context
            && self.sequence == prefix.sequence
            && usize::from(self.len) == prefix.bytes.len()
            && equal(&self.bytes[..prefix.bytes.len()], prefix.bytes)
    }

    /// Whether the entry may still produce a hit.
    fn is_in_use(&self, sequence: u64, guard: &Guard) -> bool {
        self.sequence == sequence && self.cached.as_ref().is_some_and(|cached| cached.dir.upgrade(guard).is_some())
    }
}

/// The cache of one thread. The number of entries is zero or a power of two. Each prefix has two
/// possible positions.
struct PrefixCache {
    entries: Vec<PrefixEntry>,
    /// How many entries in use were overwritten since the table has its present size.
    displaced: usize,
}

std::thread_local!(static CACHE: RefCell<PrefixCache> = const { RefCell::new(PrefixCache::NEW) });

impl<'p> Prefix<'p> {
    /// The prefix of a path and its last component. None if the prefix is empty or too long.
    /// `context`, the caller's [identity](crate::Context::identity), is called only for a prefix
    /// that can be cached.
    #[inline]
    pub(crate) fn of(
        path: &'p [u8],
        context: impl FnOnce() -> Option<u64>,
        namespace: &Namespace,
    ) -> Option<(Self, &'p [u8])> {
        let cut = last_slash(path)?;
        let last = &path[cut + 1..];
        if cut == 0 || cut > PREFIX_MAX || last.is_empty() {
            return None;
        }
        let (context, sequence) = (context()?, namespace.rename_seq.sequence());
        Some((Self { bytes: &path[..cut], context, sequence }, last))
    }

    /// Looks the prefix up. On a hit, returns the directory, which the caller may search, and the
    /// hash of `name` in it. Writes nothing that another thread reads.
    #[inline]
    pub(crate) fn lookup<'g>(
        &self,
        name: &[u8],
        namespace: &Namespace,
        guard: &'g Guard,
    ) -> Option<(Shared<'g, Dentry>, u64)> {
        let found = CACHE.try_with(|table| {
            let table = table.try_borrow().ok()?;
            let cached = table.find(self)?;
            cached.dir.prefetch();
            let hash = cached.names.hash(name);
            cached.index.prefetch(hash);
            Some((cached.dir.upgrade(guard)?, hash, cached.index))
        });
        let (dir, hash, index) = found.ok().flatten()?;
        let (directory, sb) = (dir.to_ref().directory().ok()?, dir.to_ref().sb());
        let is_removed = directory.is_removed(guard);
        if directory.index_address(guard) != index {
            self.put(dir, guard);
        }
        // The context of another namespace was used with this one. The walk will refuse that. The
        // sequences of two namespaces are not comparable.
        let is_ours = std::ptr::eq(&raw const *sb.namespace, namespace);
        // A tree that is shut down while others hold parts of it comes apart at any place.
        (!is_removed && is_ours && sb.expect_mounted().is_ok()).then_some((dir, hash))
    }

    /// Inserts the prefix, which has led from `start` to `dir`. The walk has begun after
    /// [`Prefix::of`], has passed names only, and the caller may search `dir`.
    #[cold]
    pub(crate) fn insert(&self, start: Shared<'_, Dentry>, dir: Shared<'_, Dentry>, guard: &Guard) {
        let is_changing = !self.sequence.is_multiple_of(2);
        if is_changing || start.to_ref().inode().is_backed() || !std::ptr::eq(start.to_ref().sb(), dir.to_ref().sb()) {
            return;
        }
        self.put(dir, guard);
    }

    /// Inserts or replaces the entry of this prefix.
    #[cold]
    fn put(&self, dir: Shared<'_, Dentry>, guard: &Guard) {
        // Fails if the thread is ending.
        let _ = CACHE.try_with(|table| {
            if let Ok(mut table) = table.try_borrow_mut() {
                table.put(self, CachedDir::to(dir, guard), guard);
            }
        });
    }

    /// The position of the prefix. A caller that can predict it can displace entries of its own
    /// thread, and no more.
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
            // The last word overlaps bytes that were hashed already.
            Some(last) => u64::from_le_bytes(*last),
            None => rest.iter().fold(0, |tail, byte| tail << 8 | u64::from(*byte)),
        };
        (mix(all, tail) >> 32) as usize
    }
}

impl CachedDir {
    /// None if the directory is dead: nothing else holds it.
    fn to(dir: Shared<'_, Dentry>, guard: &Guard) -> Option<Self> {
        let inode = dir.to_ref().inode();
        let (index, names) = (inode.directory().ok()?.index_address(guard), inode.shard.sb.names(inode.ino));
        Some(Self { dir: dir.downgrade()?, names, index })
    }
}

impl PrefixCache {
    const NEW: Self = Self { entries: Vec::new(), displaced: 0 };

    /// The two possible positions of a prefix.
    #[inline]
    fn positions(&self, prefix: &Prefix<'_>) -> [usize; 2] {
        let place = prefix.hash() & (self.entries.len() - 1);
        [place, place ^ 1]
    }

    #[inline]
    fn find(&self, prefix: &Prefix<'_>) -> Option<&CachedDir> {
        if self.entries.is_empty() {
            return None;
        }
        let mut entries = self.positions(prefix).into_iter().map(|place| &self.entries[place]);
        entries.find(|entry| entry.is_of(prefix))?.cached.as_ref()
    }

    fn put(&mut self, prefix: &Prefix<'_>, cached: Option<CachedDir>, guard: &Guard) {
        let len = self.entries.len();
        if len == 0 || (self.displaced >= len && len < ENTRIES_MAX) {
            let len = if len == 0 { ENTRIES_MIN } else { len * GROWTH };
            *self = Self { entries: (0..len).map(|_| PrefixEntry::EMPTY).collect(), displaced: 0 };
        }
        let positions = self.positions(prefix);
        let is_free = |&place: &usize| !self.entries[place].is_in_use(prefix.sequence, guard);
        let place = positions.into_iter().find(|&place| self.entries[place].is_of(prefix));
        let place = place.or_else(|| positions.into_iter().find(is_free)).unwrap_or_else(|| {
            self.displaced += 1;
            positions[0]
        });
        let entry = &mut self.entries[place];
        (entry.context, entry.sequence, entry.cached) = (prefix.context, prefix.sequence, cached);
        entry.bytes[..prefix.bytes.len()].copy_from_slice(prefix.bytes);
        entry.len = prefix.bytes.len() as u8;
    }
}

#[cfg(test)]
mod tests {
    use pando_sync::pin;

    use super::*;
    use crate::{At, Context, Credentials, Vfs, Walk, driver::tests::Nothing};

    /// Seen to fail: an entry that keeps the first index of its directory for good.
    #[test]
    fn cached_index_address_is_kept_up_to_date() {
        let vfs = Vfs::new(Nothing).expect("a tree");
        let context = Context::new(&vfs, Credentials::root());
        let dir = vfs.mkdir(&context, At::Cwd, "/d", 0o755).expect("mkdir").0;
        let now = || dir.inode().directory().expect("a directory").index_address(&pin());
        let cached_indexes = || {
            let of_entry = |entry: &PrefixEntry| entry.cached.as_ref().map(|cached| cached.index);
            CACHE.with_borrow(|table| table.entries.iter().filter_map(of_entry).collect::<Vec<_>>())
        };
        let mut seen = Vec::new();
        for n in 0..200 {
            vfs.mkdir(&context, At::Cwd, format!("/d/{n}"), 0o755).expect("mkdir");
            vfs.stat(&context, At::Cwd, "/d/0", Walk::empty()).expect("there");
            if n > 10 {
                assert_eq!(cached_indexes(), [now()], "{n} names");
                seen.push(now());
            }
        }
        seen.dedup();
        assert!(seen.len() > 2, "it was replaced");
    }
}
