//! Dentries and directory entries: the place of an inode in the tree, and the place of a name in a
//! directory.
//!
//! A *directory entry* stands in the table of a directory for a name. Its `value` says which dentry
//! the name is bound to, and is replaced in place. A *dentry* is the identity that an open file
//! keeps. It knows its inode. Its `place`, one atomic pointer, says in which directory entry it
//! stands now. The rename of a file changes that pointer and writes nothing global.
//!
//! The first dentry of an inode contains the inode itself. The dentries of its other hard links
//! (*aliases*) hold a reference to the first.
//!
//! Linux has one object for both: `struct dentry` has `d_parent`, `d_name` and `d_inode`, and
//! `d_move()` changes the first two under a sequence count.

use pando_sync::{Counted, Guard, Node, Object, OpCell, PerCpuRefs, Shared};

use crate::{
    Error, Result,
    objects::{directory::Directory, inode::Inode, superblock::SuperBlock},
    types::name::Name,
};

/// A directory entry: a name, and the dentry that it is bound to. Immutable except for `value`.
pub(crate) struct Dirent {
    /// The directory, through the parent reference of this entry's stripe. Immutable.
    pub parent_ref: Counted<ParentRef>,
    /// Immutable.
    pub name: Name,
    /// The dentry that the name is bound to. Guarded by the name lock; published by the rules of
    /// [`OpCell`].
    pub value: OpCell<Dentry>,
}

// With the link of the list and the count, this is one cache line.
const _: () = assert!(size_of::<Dirent>() == 40);

/// The striped parent reference: a directory has one for each stripe, and the entries of that
/// stripe hold the directory through it. So threads that create names in one directory count on
/// different cache lines.
pub(crate) struct ParentRef {
    /// The directory. Immutable.
    pub dir: Counted<Dentry>,
    /// With its count, the object fills more than half a cache line. So no two parent references
    /// lie in one line, and those of two stripes never share one.
    _line: [usize; 3],
}

impl ParentRef {
    pub(crate) fn new(dir: Counted<Dentry>) -> Self {
        Self { dir, _line: [0; 3] }
    }
}

const _: () = assert!(size_of::<ParentRef>() + size_of::<usize>() > 32);

impl Object for ParentRef {
    /// It holds the directory. It is dropped last by a thread that was still changing a name when
    /// the directory was removed.
    fn is_awaited(&self) -> bool {
        true
    }
}

/// An identity in the tree. It is allocated together with its directory entry, which fills the
/// cache line before it. A path walk reads the first line of the dentry, and stat reads the second
/// as well. The third line has the reference count, which each open writes unless the dentry has
/// per-CPU reference counts.
#[repr(C)]
pub(crate) struct Dentry {
    /// The inode, or for an alias a reference to the first dentry. Immutable.
    target: Target,
    /// The directory entry in which the dentry stands, or stood last. None for a root, and for a
    /// file that never had a name. Guarded by the name lock of the present place.
    pub place: OpCell<Node<Dirent>>,
    /// Per-CPU reference counts, for a file that many threads open at the same time. Made under the
    /// name lock. Collapsed under it, too, or by the shutdown of the tree.
    pub open_counts: DentryOpenCounts,
}

const _: () = assert!(std::mem::offset_of!(Dentry, place) == 128);

enum Target {
    Own(Inode),
    /// The first dentry, and the number of this alias in [`crate::objects::tables::CachedLinks`].
    Link(Counted<Dentry>, u64),
}

impl Object for Dentry {
    /// The path-prefix caches of threads have [weak](pando_sync::Weak) references to directories
    /// ([`crate::caches::prefixes`]).
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

    /// Whether the drop releases something that other threads may be waiting for. The drop of an
    /// alias puts its reference to the inode, and the drop of an inode gives back the charge for
    /// its extended attributes.
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
        Self { place: OpCell::new(None), target: Target::Own(inode), open_counts: DentryOpenCounts::new() }
    }

    /// An alias: a dentry for another hard link of an inode. `id` is its number among the cached
    /// aliases. It is 0 in a tree in memory, where nothing needs the number and a shared counter
    /// would be a contended cache line.
    pub(crate) fn new_link(first: Counted<Self>, id: u64) -> Counted<Self> {
        debug_assert!(matches!(first.target, Target::Own(_)), "links go to the first dentry");
        Counted::new(Self {
            place: OpCell::new(None),
            target: Target::Link(first, id),
            open_counts: DentryOpenCounts::new(),
        })
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

    /// The first dentry of the inode, which contains it.
    pub(crate) fn first(this: &Counted<Self>) -> Counted<Self> {
        match &this.target {
            Target::Own(_) => this.clone(),
            Target::Link(first, _) => first.clone(),
        }
    }

    /// The number among the cached aliases. None for a first dentry.
    pub(crate) fn link_id(&self) -> Option<u64> {
        match self.target {
            Target::Own(_) => None,
            Target::Link(_, id) => Some(id),
        }
    }

    /// Whether this is an alias. An alias holds its inode until the alias is reclaimed.
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

    /// The directory in which this dentry stands, or stood last. None for a root. Analogous to
    /// `d_parent`.
    pub(crate) fn parent<'g>(&self, guard: &'g Guard) -> Option<Shared<'g, Dentry>> {
        let dirent = self.place.load(guard)?.to_ref();
        Some(dirent.parent_dir())
    }

    /// As [`Dentry::parent`], but with a counted reference.
    pub(crate) fn to_parent(&self, guard: &Guard) -> Option<Counted<Dentry>> {
        self.parent(guard)?.get()
    }

    /// The inode, if it is a directory; ENOTDIR otherwise.
    pub(crate) fn expect_dir(&self) -> Result<&Inode> {
        let inode = self.inode();
        if inode.is_dir() { Ok(inode) } else { Err(Error::NotDirectory) }
    }
}

impl Dirent {
    /// An entry for a name, to be inserted into the directory that the parent reference belongs to.
    pub(crate) fn new(parent_ref: Counted<ParentRef>, name: &[u8], value: OpCell<Dentry>) -> Self {
        Self { parent_ref, name: Name::new(name), value }
    }

    /// The directory. It is alive as long as this entry can be seen.
    pub(crate) fn parent_dir(&self) -> Shared<'_, Dentry> {
        // Method-call auto-deref: the parent reference of the node itself keeps the directory
        // alive.
        self.parent_ref.dir.as_shared()
    }
}

/// A counted reference to a dentry, and with it to an inode. It stays usable when the names of the
/// inode are removed or renamed.
///
/// A clone increments one reference count, which belongs to this file alone.
#[derive(Clone)]
pub struct DentryRef(pub(crate) Counted<Dentry>);

impl DentryRef {
    /// The inode number.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.0.inode().ino
    }

    /// The file type.
    #[must_use]
    pub fn kind(&self) -> crate::FileKind {
        self.0.inode().kind
    }

    /// Whether both refer to the same dentry: the same name of the same inode.
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

/// The per-CPU reference counts of a dentry.
pub(crate) type DentryOpenCounts = PerCpuRefs<DentryRef>;
