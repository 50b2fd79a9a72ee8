//! Dentries and slots: an inode's place in the tree, and a name's place in a directory.
//!
//! A *slot* stands in a directory's table for a name; which dentry it shows is swapped in place. A *dentry* is the
//! identity that an open file keeps: it knows its inode and, by one atomic pointer, the slot that is its present
//! place. A file that moves swaps that pointer and touches nothing global.
//!
//! The first dentry of an inode holds the inode itself; further hard links hold a reference to the first.

use pando_sync::{Counted, Guard, Node, Object, OpCell, PerCpuRefs, Shared};

use crate::{
    Error, Result,
    objects::{directory::Directory, inode::Inode, superblock::SuperBlock},
    types::name::Name,
};

/// A name in a directory. Immutable but for `value`.
pub(crate) struct Slot {
    /// The directory, by way of a counter of this slot's stripe.
    pub anchor: Counted<Anchor>,
    pub name: Name,
    /// What the name is bound to. Guarded by the name lock, published by [`OpCell`]'s rules.
    pub value: OpCell<Dentry>,
}

// With the list's link and the count: one cache line.
const _: () = assert!(size_of::<Slot>() == 40);

/// What slots hold of their directory: one per stripe, so that names made by different threads count on different lines.
pub(crate) struct Anchor {
    pub dir: Counted<Dentry>,
    /// With its count it fills more than half a line: so no two anchors, of two stripes say, lie in one.
    _line: [usize; 3],
}

impl Anchor {
    pub(crate) fn new(dir: Counted<Dentry>) -> Self {
        Self { dir, _line: [0; 3] }
    }
}

const _: () = assert!(size_of::<Anchor>() + size_of::<usize>() > 32);

impl Object for Anchor {}

/// An identity in the tree. Made with its slot, whose line is the one before, it fills lines: the first is what a walk
/// reads, the second what stat reads besides, and the count, which each open writes unless there are proxies, is in the third.
#[repr(C)]
pub(crate) struct Dentry {
    target: Target,
    /// The present place, or the last one; none for a root and for a file that never had a name. Guarded by the name lock of the
    /// present place.
    pub place: OpCell<Node<Slot>>,
    /// Of a file that many open at the same time.
    pub proxies: DentryProxies,
}

const _: () = assert!(std::mem::offset_of!(Dentry, place) == 128);

enum Target {
    Own(Inode),
    /// The first dentry, and this one's number among [`crate::objects::tables::CachedLinks`].
    Link(Counted<Dentry>, u64),
}

impl Object for Dentry {
    /// Directories are remembered by those who walk through them ([`crate::caches::prefixes`]).
    fn allows_weak(&self) -> bool {
        matches!(&self.target, Target::Own(inode) if inode.is_dir())
    }

    fn last_put(&self) {
        if let Target::Own(inode) = &self.target {
            inode.last_put();
        }
    }

    fn held_bytes(&self) -> usize {
        match &self.target {
            Target::Own(inode) => inode.target_len(),
            Target::Link(..) => 0,
        }
    }

    /// A further link holds its inode, and an inode its attributes, which are charged for.
    fn is_awaited(&self) -> bool {
        match &self.target {
            Target::Own(inode) => inode.has_xattrs(),
            Target::Link(..) => true,
        }
    }
}

impl Dentry {
    /// The first dentry of a new inode.
    pub(crate) fn new(inode: Inode) -> Self {
        Self { place: OpCell::new(None), target: Target::Own(inode), proxies: DentryProxies::new() }
    }

    /// A further dentry of an inode. `id`: its number among the cached links; 0 in a tree in memory, where nobody asks, and
    /// all would write one line.
    pub(crate) fn new_link(first: Counted<Self>, id: u64) -> Counted<Self> {
        debug_assert!(matches!(first.target, Target::Own(_)), "links go to the first dentry");
        Counted::new(Self { place: OpCell::new(None), target: Target::Link(first, id), proxies: DentryProxies::new() })
    }

    /// The inode.
    #[inline]
    pub(crate) fn inode(&self) -> &Inode {
        match &self.target {
            Target::Own(inode) => inode,
            Target::Link(first, _) => match &first.target {
                Target::Own(inode) => inode,
                Target::Link(..) => unreachable!("links go to the first dentry"),
            },
        }
    }

    /// The dentry that holds the inode.
    pub(crate) fn first(this: &Counted<Self>) -> Counted<Self> {
        match &this.target {
            Target::Own(_) => this.clone(),
            Target::Link(first, _) => first.clone(),
        }
    }

    /// Its number among the further links; none for a first dentry.
    pub(crate) fn link_id(&self) -> Option<u64> {
        match self.target {
            Target::Own(_) => None,
            Target::Link(_, id) => Some(id),
        }
    }

    /// Whether this is a further link: it holds its inode until it is reclaimed.
    pub(crate) fn is_link(&self) -> bool {
        matches!(self.target, Target::Link(..))
    }

    pub(crate) fn sb(&self) -> &SuperBlock {
        &self.inode().shard.sb
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.inode().is_dir()
    }

    pub(crate) fn directory(&self) -> Result<&Directory> {
        self.inode().directory()
    }

    /// The directory this dentry lies in (or lay in last); none for a root.
    pub(crate) fn parent<'g>(&self, guard: &'g Guard) -> Option<Shared<'g, Dentry>> {
        let slot = self.place.load(guard)?.to_ref();
        Some(slot.anchor_dir())
    }

    /// As [`Dentry::parent`], held.
    pub(crate) fn to_parent(&self, guard: &Guard) -> Option<Counted<Dentry>> {
        self.parent(guard)?.get()
    }

    /// The inode, if it is a directory.
    pub(crate) fn expect_dir(&self) -> Result<&Inode> {
        let inode = self.inode();
        if inode.is_dir() { Ok(inode) } else { Err(Error::NotDirectory) }
    }
}

impl Slot {
    /// A slot for a name, to be inserted into the directory that `anchor` belongs to.
    pub(crate) fn new(anchor: Counted<Anchor>, name: &[u8], value: OpCell<Dentry>) -> Self {
        Self { anchor, name: Name::new(name), value }
    }

    /// The directory, as long as this slot can be seen.
    pub(crate) fn anchor_dir(&self) -> Shared<'_, Dentry> {
        // Method-call auto-deref: the node's own anchor keeps the directory alive.
        self.anchor.dir.as_shared()
    }
}

/// What a caller holds on to: a dentry, and with it an inode, that stays usable whatever becomes of its names.
///
/// Cheap to clone: one count, of this file only.
#[derive(Clone)]
pub struct DentryRef(pub(crate) Counted<Dentry>);

impl DentryRef {
    /// The inode's number.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.0.inode().ino
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> crate::FileKind {
        self.0.inode().kind
    }

    /// Whether both are the same dentry (the same name of the same inode).
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl std::fmt::Debug for DentryRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DentryRef").field("ino", &self.ino()).field("kind", &self.kind()).finish()
    }
}

/// A dentry's proxies.
pub(crate) type DentryProxies = PerCpuRefs<DentryRef>;
