//! The directory of the host: how its inodes are found, identified and opened.
//!
//! Every name is looked up in an open directory, with openat2(2). RESOLVE_BENEATH and its relatives
//! make sure that no name leads out of that directory: not by `..`, not by a symbolic link that was
//! put in its place, not by something that is mounted on it.
//!
//! An inode is opened again by its file handle. Without CAP_DAC_READ_SEARCH, or on a file system
//! without handles, it is opened by the path from the root, name by name. The inode that is found
//! there must be the same one.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex},
};

use pando_vfs::{Error, FileKind, NodeAttr, Result};
use rustix::{
    fs::{Mode, OFlags, RawDir, ResolveFlags, Statx, fsync, open, openat, openat2, readlinkat},
    io::Errno,
};

use crate::{
    HostOptions, Recheck,
    attr::{attr_of, born, from_errno, kind_of, mount_of, stat, stat_at},
    descriptors::{Descriptors, Use},
    nodes::{HostInode, Identity, Node, Nodes, Version},
    sys::{Handle, OpenFile},
    watch::Watch,
};

/// No name leads out of its directory.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_XDEV)
    .union(ResolveFlags::NO_MAGICLINKS);

const READ_DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// No path from the root is longer. The known places of directories that others have moved may even
/// form a circle.
const DEPTH_MAX: usize = 10_000;

/// A directory of the host, and what is known of its inodes.
#[derive(Debug)]
pub(crate) struct Tree {
    /// Open for reading, since handles are opened relative to it.
    pub root_fd: Arc<OwnedFd>,
    pub root: Arc<Node>,
    /// `/proc/self/fd`, where a descriptor of O_PATH can be opened in another way.
    proc_fds: OwnedFd,
    pub nodes: Nodes,
    pub descriptors: Descriptors,
    /// Inodes are opened by their handles.
    by_handle: bool,
    /// The number of the mount that the directory is on, if the kernel gives numbers.
    mount: Option<u64>,
    /// Reports changes by others, until a thread takes it. None if the host cannot report them.
    pub watch: Mutex<Option<Watch>>,
}

/// An inode of the host, and the attributes that it had when it was found.
pub(crate) struct Found {
    pub node: Arc<Node>,
    pub attr: NodeAttr,
}

impl Tree {
    pub(crate) fn new(dir: BorrowedFd<'_>, options: &HostOptions) -> io::Result<Self> {
        let root_fd = Arc::new(openat(dir, c".", READ_DIRECTORY, Mode::empty())?);
        let proc_fds = open(c"/proc/self/fd", READ_DIRECTORY, Mode::empty())?;
        let by_handle = !options.walks
            && Handle::of(root_fd.as_fd()).is_ok_and(|handle| handle.open(root_fd.as_fd(), OFlags::PATH).is_ok());
        let (identity, found) = identify(root_fd.as_fd())?;
        let watch = match (&identity.version, options.recheck) {
            (Version::Handle(handle), Recheck::Watch { .. }) => Watch::new(root_fd.as_fd(), handle).ok(),
            _ => None,
        };
        let nodes = Nodes::new(by_handle);
        let root = nodes.iget5(&identity, kind_of(&found)?, born(&found));
        let mount = mount_of(root_fd.as_fd());
        *root.pinned() = Some(root_fd.clone());
        let descriptors = Descriptors::new(options.descriptors);
        let watch = Mutex::new(watch);
        Ok(Self { root_fd, root, proc_fds, nodes, descriptors, by_handle, mount, watch })
    }

    /// The inode with this number.
    ///
    /// # Errors
    /// ESTALE if the tree does not use it.
    pub(crate) fn node(&self, number: u64) -> Result<Arc<Node>> {
        self.nodes.ilookup(number).ok_or(Error::Stale)
    }

    /// A descriptor of an inode, for everything except its contents.
    ///
    /// # Errors
    /// ESTALE if the inode is gone, or is not where it was when it was found last.
    pub(crate) fn path_fd(&self, node: &Arc<Node>) -> Result<Arc<OwnedFd>> {
        if let Some(open) = self.open_now(node) {
            return Ok(open);
        }
        if self.by_handle
            && let Version::Handle(handle) = &node.identity.version
        {
            let file = handle.open(self.root_fd.as_fd(), OFlags::PATH)?;
            return Ok(self.descriptors.keep(node.serial, Use::Path, file));
        }
        self.walk_to(&node.inode)
    }

    /// The descriptor of an inode, if it is open. The root always is.
    fn open_now(&self, inode: &HostInode) -> Option<Arc<OwnedFd>> {
        let pinned = inode.pinned().clone();
        pinned.or_else(|| self.descriptors.get(inode.serial, Use::Path))
    }

    /// Opens an inode by the path from its nearest ancestor that is open.
    fn walk_to(&self, inode: &Arc<HostInode>) -> Result<Arc<OwnedFd>> {
        let mut path: Vec<(Arc<HostInode>, Box<[u8]>)> = Vec::new();
        let mut at = inode.clone();
        let mut file = loop {
            if let Some(open) = self.open_now(&at) {
                break open;
            }
            if path.len() == DEPTH_MAX {
                return Err(Error::Stale);
            }
            let (dir, name) = at.place().clone().ok_or(Error::Stale)?;
            path.push((at, name));
            at = dir;
        };
        for (inode, name) in path.into_iter().rev() {
            let found = open_beneath(file.as_fd(), &name).map_err(|error| match error {
                Error::NoEntry | Error::NotDirectory => Error::Stale,
                other => other,
            })?;
            if identify(found.as_fd())?.0 != inode.identity {
                return Err(Error::Stale);
            }
            file = self.descriptors.keep(inode.serial, Use::Path, found);
        }
        Ok(file)
    }

    /// A descriptor for reading or writing the contents of a file.
    ///
    /// # Errors
    /// As [`Tree::path_fd`], and those of open(2).
    pub(crate) fn data_fd(&self, node: &Arc<Node>, with: Use) -> Result<Arc<OwnedFd>> {
        if let Some(open) = self.descriptors.get(node.serial, with) {
            return Ok(open);
        }
        let flags = if with == Use::Write { OFlags::WRONLY } else { OFlags::RDONLY };
        let file = self.path_fd(node)?;
        Ok(self.descriptors.keep(node.serial, with, self.reopen(file.as_fd(), flags)?))
    }

    /// Opens an open file in another way. Reads through the result are not stamped as an access, if
    /// this process may do that.
    pub(crate) fn reopen(&self, file: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd> {
        let file = self.open_file(file);
        let open = |flags| openat(file.dir, &file.name, flags | OFlags::CLOEXEC, Mode::empty());
        match open(flags | OFlags::NOATIME) {
            Err(Errno::PERM) => open(flags),
            opened => opened,
        }
        .map_err(from_errno)
    }

    /// Makes the host stamp an access: reads a little.
    pub(crate) fn access(&self, node: &Arc<Node>) -> Result<()> {
        let file = self.path_fd(node)?;
        let again = self.open_file(file.as_fd());
        let open =
            || openat(again.dir, &again.name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
        match node.kind {
            FileKind::File => {
                rustix::io::pread(open().map_err(from_errno)?, &mut [0; 1], 0).map_err(from_errno)?;
            }
            FileKind::Directory => {
                let mut buffer = [MaybeUninit::uninit(); 1024];
                let _ = RawDir::new(open().map_err(from_errno)?, &mut buffer).next();
            }
            FileKind::Symlink => {
                readlinkat(&*file, c"", Vec::new()).map_err(from_errno)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Looks up a name. None if it does not exist.
    ///
    /// # Errors
    /// EXDEV if something is mounted there, and those of the host.
    pub(crate) fn lookup(&self, dir: &Arc<Node>, name: &[u8]) -> Result<Option<Found>> {
        let dir_fd = self.path_fd(dir)?;
        match open_beneath(dir_fd.as_fd(), name).and_then(|file| self.found(file, dir, name)) {
            Err(Error::NoEntry) => Ok(None),
            found => found.map(Some),
        }
    }

    /// As [`Tree::lookup`], for a name that led to this inode before.
    pub(crate) fn revalidate(&self, dir: &Arc<Node>, name: &[u8], ino: u64) -> Result<Option<Found>> {
        if self.nodes.ilookup(ino).is_some_and(|node| node.is_settled()) {
            let dir_fd = self.path_fd(dir)?;
            match self.known(dir_fd.as_fd(), name) {
                Err(Error::NoEntry) => return Ok(None),
                Ok(None) => {}
                known => return known,
            }
        }
        self.lookup(dir, name)
    }

    /// Looks up a name by statx(2) alone: one call instead of four, and no descriptor. None if that
    /// does not identify the inode, and its handle must.
    ///
    /// # Errors
    /// ENOENT if there is no such name.
    fn known(&self, dir: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Found>> {
        if !self.by_handle || self.mount.is_none() {
            return Ok(None);
        }
        let found = match stat_at(dir, name) {
            Err(Errno::NOENT) => return Err(Error::NoEntry),
            Err(_) => return Ok(None),
            Ok(found) => found,
        };
        let kind = kind_of(&found)?;
        // Something else may be mounted there, and the target of a symbolic link is read from its
        // descriptor.
        if Some(found.stx_mnt_id) != self.mount || kind == FileKind::Symlink {
            return Ok(None);
        }
        let is_it = |node: &Arc<Node>| {
            let Identity { dev, ino, .. } = node.identity;
            (dev, ino, node.kind) == (device(&found), found.stx_ino, kind) && node.is_born(born(&found))
        };
        let Some(node) = self.nodes.ilookup(found.stx_ino).filter(is_it) else { return Ok(None) };
        let attr = attr_of(&found, node.number, dir)?;
        Ok(Some(Found { node, attr }))
    }

    /// An inode that a name has led to.
    pub(crate) fn found(&self, file: OwnedFd, dir: &Arc<Node>, name: &[u8]) -> Result<Found> {
        let found = self.identified(file.as_fd())?;
        self.moved_to(&found.node, dir, name);
        self.descriptors.keep(found.node.serial, Use::Path, file);
        Ok(found)
    }

    /// The inode of an open file.
    pub(crate) fn identified(&self, file: BorrowedFd<'_>) -> Result<Found> {
        let (identity, found) = identify(file)?;
        let node = self.nodes.iget5(&identity, kind_of(&found)?, born(&found));
        let attr = attr_of(&found, node.number, file)?;
        Ok(Found { node, attr })
    }

    /// An inode has this name from now on.
    pub(crate) fn moved_to(&self, node: &Node, dir: &Arc<Node>, name: &[u8]) {
        if !self.by_handle {
            *node.place() = Some((dir.inode.clone(), name.into()));
            self.unpin_if_found(node);
        }
    }

    /// The attributes of an inode.
    pub(crate) fn getattr(&self, node: &Arc<Node>) -> Result<NodeAttr> {
        let file = self.path_fd(node)?;
        attr_of(&stat(file.as_fd())?, node.number, file.as_fd())
    }

    /// Makes a file or a directory durable. The others have nothing but their names.
    pub(crate) fn sync_inode(&self, node: &Arc<Node>) -> Result<()> {
        if !matches!(node.kind, FileKind::File | FileKind::Directory) {
            return Ok(());
        }
        let file = self.path_fd(node)?;
        fsync(self.reopen(file.as_fd(), OFlags::RDONLY)?).map_err(from_errno)
    }

    /// An open file, for the calls that take no descriptor of O_PATH.
    pub(crate) fn open_file<'a>(&'a self, file: BorrowedFd<'a>) -> OpenFile<'a> {
        OpenFile::new(self.proc_fds.as_fd(), file)
    }

    /// Keeps an inode open that may lose its last name, so that threads that use it can go on.
    pub(crate) fn pin(&self, node: &Arc<Node>) -> Result<()> {
        let file = self.path_fd(node)?;
        *node.pinned() = Some(file);
        Ok(())
    }

    /// An inode that was kept open may still have names. If it can be opened again, it is not kept
    /// open any more.
    pub(crate) fn unpin_if_found(&self, node: &Node) {
        let pinned = node.pinned().clone();
        let is_named = pinned.is_some_and(|file| stat(file.as_fd()).is_ok_and(|found| found.stx_nlink > 0));
        if is_named && (self.by_handle || node.place().is_some()) {
            node.pinned().take();
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // The places of inodes that wait to be reclaimed lead to the root, which is kept open.
        self.root.pinned().take();
    }
}

/// The identity and the attributes of an open file.
fn identify(file: BorrowedFd<'_>) -> Result<(Identity, Statx)> {
    let found = stat(file)?;
    let version = match Handle::of(file) {
        Ok(handle) => Version::Handle(handle),
        Err(_) => Version::Born(born(&found)),
    };
    Ok((Identity { dev: device(&found), ino: found.stx_ino, version }, found))
}

fn device(found: &Statx) -> u64 {
    u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor)
}

/// Opens what a name in a directory leads to, but not for its contents. A symbolic link is opened
/// itself.
pub(crate) fn open_beneath(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat2(dir, name, flags, Mode::empty(), BENEATH).map_err(from_errno)
}

#[cfg(test)]
mod tests {
    use pando_vfs::Change;

    use super::*;
    use crate::nodes::SETTLES;

    /// An open file loses the name by which it was looked up, and then another one that is not its
    /// last.
    #[test]
    fn inode_without_a_known_path_stays_open() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "").unwrap();
        for name in ["b", "c"] {
            std::fs::hard_link(dir.path().join("a"), dir.path().join(name)).unwrap();
        }
        let options = HostOptions::new().without_handles();
        let tree = Tree::new(std::fs::File::open(dir.path()).unwrap().as_fd(), &options).unwrap();
        let file = tree.lookup(&tree.root, b"a").unwrap().unwrap().node;
        for name in [b"a", b"b"] {
            let change = Change::Remove { dir: tree.root.number, name, ino: file.number };
            assert!(tree.change(&change).is_ok());
            tree.descriptors.remove(file.serial);
            assert!(tree.path_fd(&file).is_ok(), "{name:?}");
        }
        tree.lookup(&tree.root, b"c").unwrap();
        assert!(file.pinned().is_none(), "by its path again");
    }

    /// The directory of a file that is in use was forgotten, was looked up again, and was moved.
    #[test]
    fn path_of_an_inode_follows_directories_that_were_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("a/f"), "").unwrap();
        let options = HostOptions::new().without_handles();
        let tree = Tree::new(std::fs::File::open(dir.path()).unwrap().as_fd(), &options).unwrap();
        let look = |dir: &Arc<Node>, name: &[u8]| tree.lookup(dir, name).unwrap().unwrap().node;
        let f = look(&look(&tree.root, b"a"), b"f");
        for (from, to) in [("a", "b"), ("b", "c")] {
            let forgotten = tree.nodes.remove(look(&tree.root, from.as_bytes()).number).unwrap();
            let again = look(&tree.root, from.as_bytes());
            std::fs::rename(dir.path().join(from), dir.path().join(to)).unwrap();
            tree.moved_to(&again, &tree.root, to.as_bytes());
            for node in [&f, &again, &forgotten] {
                tree.descriptors.remove(node.serial);
            }
            assert!(tree.path_fd(&f).is_ok(), "{to}");
        }
    }

    /// A name leads to another inode since, or the inode is below something that was mounted.
    #[test]
    fn inodes_that_are_known_for_long_are_identified_by_one_call() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str| std::fs::write(dir.path().join(name), name).unwrap();
        make("a");
        make("b");
        let tree = Tree::new(std::fs::File::open(dir.path()).unwrap().as_fd(), &HostOptions::new()).unwrap();
        if !tree.by_handle || tree.mount.is_none() {
            return;
        }
        let look = |name: &[u8]| tree.lookup(&tree.root, name).map(|found| found.map(|found| found.node));
        let known = |name: &[u8]| tree.known(tree.root_fd.as_fd(), name).map(|found| found.map(|found| found.node));
        let a = look(b"a").unwrap().unwrap();
        assert!(known(b"a").unwrap().is_none());
        std::thread::sleep(SETTLES);
        look(b"a").unwrap();
        assert!(Arc::ptr_eq(&known(b"a").unwrap().unwrap(), &a));
        assert!(known(b"b").unwrap().is_none() && known(b"c").is_err_and(|error| error == Error::NoEntry));
        std::fs::rename(dir.path().join("b"), dir.path().join("a")).unwrap();
        assert!(known(b"a").unwrap().is_none());
        let b = look(b"a").unwrap().unwrap();
        assert_ne!(b.number, a.number);
        // A directory is known as well, until something is mounted on it.
        std::fs::create_dir(dir.path().join("d")).unwrap();
        look(b"d").unwrap();
        std::thread::sleep(SETTLES);
        look(b"d").unwrap();
        assert!(known(b"d").unwrap().is_some());
        let on = dir.path().join("d");
        let mounted = std::process::Command::new("mount").arg("--bind").args([&on, &on]).status();
        if mounted.is_ok_and(|status| status.success()) {
            let (known, looked) = (known(b"d").map(|found| found.is_some()), look(b"d").map(|found| found.is_some()));
            assert!(std::process::Command::new("umount").arg(&on).status().unwrap().success());
            assert_eq!((known, looked), (Ok(false), Err(Error::CrossDevice)));
        }
    }

    /// Two directories were moved on the host, and each was then looked up in the other.
    #[test]
    fn known_places_may_form_a_circle() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        let options = HostOptions::new().without_handles();
        let tree = Tree::new(std::fs::File::open(dir.path()).unwrap().as_fd(), &options).unwrap();
        let a = tree.lookup(&tree.root, b"a").unwrap().unwrap().node;
        let b = tree.lookup(&a, b"b").unwrap().unwrap().node;
        let close = || [&a, &b].map(|node| tree.descriptors.remove(node.serial));
        close();
        assert!(tree.path_fd(&b).is_ok(), "by the path from the root");
        tree.moved_to(&a, &b, b"a");
        close();
        assert_eq!(tree.path_fd(&b).unwrap_err(), Error::Stale);
    }
}
