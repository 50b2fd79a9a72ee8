//! The tree: inodes and names in maps. It knows nothing of calls, delays or locks. Each function is
//! one change.

use std::collections::{BTreeMap, HashMap};

use pando_vfs::{Ack, Change, Error, FileKind, NodeAttr, RenameFlags, Result, Timestamp, Xattr};

use crate::bytes::Bytes;

/// The inode number of the root directory.
pub(crate) const ROOT: u64 = 1;
/// The cookie of the first name ever made. Smaller cookies mean start, `.` and `..`.
const FIRST_COOKIE: u64 = 3;

/// An inode.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// Complete except for the `size` of files, which is that of `bytes`.
    pub attr: NodeAttr,
    pub bytes: Bytes,
    pub xattrs: BTreeMap<Box<[u8]>, Box<[u8]>>,
    /// It never had a name, and may get one.
    is_anonymous: bool,
    /// For a directory.
    pub names: Names,
}

impl Node {
    /// Whether it has a name or is the root. The link count of a directory includes the directory
    /// itself.
    pub(crate) fn is_named(&self) -> bool {
        self.attr.nlink > u32::from(self.attr.kind == FileKind::Directory)
    }
}

/// The names in a directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    by_name: HashMap<Box<[u8]>, Entry>,
    /// By cookie, for scans.
    in_order: BTreeMap<u64, Box<[u8]>>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    ino: u64,
    cookie: u64,
}

impl Names {
    pub(crate) fn get(&self, name: &[u8]) -> Option<u64> {
        self.by_name.get(name).map(|entry| entry.ino)
    }

    /// Cookies, names and inode numbers after a cookie.
    pub(crate) fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &[u8], u64)> {
        self.in_order.range(cookie + 1..).map(|(cookie, name)| (*cookie, &**name, self.by_name[name].ino))
    }

    fn insert(&mut self, name: &[u8], ino: u64, cookie: u64) {
        self.by_name.insert(name.into(), Entry { ino, cookie });
        self.in_order.insert(cookie, name.into());
    }

    fn remove(&mut self, name: &[u8]) {
        if let Some(entry) = self.by_name.remove(name) {
            self.in_order.remove(&entry.cookie);
        }
    }

    /// Binds an existing name to another inode. The name keeps its cookie.
    fn rebind(&mut self, name: &[u8], ino: u64) {
        if let Some(entry) = self.by_name.get_mut(name) {
            entry.ino = ino;
        }
    }
}

/// All inodes.
#[derive(Debug)]
pub(crate) struct Store {
    nodes: HashMap<u64, Node>,
    limit: u64,
    next_ino: u64,
    next_cookie: u64,
}

impl Store {
    /// A root directory and nothing else.
    pub(crate) fn new(limit: u64) -> Self {
        let attr = NodeAttr::new(ROOT, FileKind::Directory, 0o755, Timestamp::now());
        let mut store = Self { nodes: HashMap::new(), limit, next_ino: ROOT, next_cookie: FIRST_COOKIE };
        store.insert(&attr);
        store
    }

    pub(crate) fn len(&self) -> u64 {
        self.nodes.len() as u64
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.nodes.keys().copied()
    }

    pub(crate) fn node(&self, ino: u64) -> Result<&Node> {
        self.nodes.get(&ino).ok_or(Error::Stale)
    }

    pub(crate) fn node_mut(&mut self, ino: u64) -> Result<&mut Node> {
        self.nodes.get_mut(&ino).ok_or(Error::Stale)
    }

    pub(crate) fn xattrs(&self, ino: u64) -> Result<Vec<Xattr>> {
        Ok(self.node(ino)?.xattrs.iter().map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    pub(crate) fn attr(&self, ino: u64) -> Result<NodeAttr> {
        let node = self.node(ino)?;
        let size = if node.attr.kind == FileKind::File { node.bytes.size() } else { node.attr.size };
        let nlink = if node.is_named() { node.attr.nlink } else { 0 };
        let mut attr = node.attr.clone();
        (attr.size, attr.nlink) = (size, nlink);
        attr.blocks = node.bytes.blocks();
        Ok(attr)
    }

    /// A directory that has not been removed.
    pub(crate) fn dir(&self, ino: u64) -> Result<&Node> {
        let node = self.nodes.get(&ino).ok_or(Error::NoEntry)?;
        match node.attr.kind {
            FileKind::Directory if node.is_named() => Ok(node),
            FileKind::Directory => Err(Error::NoEntry),
            _ => Err(Error::NotDirectory),
        }
    }

    pub(crate) fn lookup(&self, dir: u64, name: &[u8]) -> Result<Option<u64>> {
        Ok(self.dir(dir)?.names.get(name))
    }

    /// The directories in which an inode has names.
    pub(crate) fn parents(&self, ino: u64) -> Vec<u64> {
        let holds = |node: &Node| node.names.after(0).any(|(_, _, child)| child == ino);
        self.nodes.iter().filter(|(_, node)| holds(node)).map(|(number, _)| *number).collect()
    }

    /// Makes a change.
    pub(crate) fn change(&mut self, change: &Change<'_>) -> Result<Ack> {
        match *change {
            Change::Create { dir, name, attr, .. } => {
                return self.create(dir, name, attr).and_then(|ino| self.attr(ino)).map(Ack::Made);
            }
            Change::CreateAnonymous { dir, attr, .. } => {
                self.dir(dir)?;
                return self.make(attr).and_then(|ino| self.attr(ino)).map(Ack::Made);
            }
            Change::Link { ino, dir, name } => self.link(ino, dir, name)?,
            Change::Remove { dir, name, .. } => drop(self.remove(dir, name)?),
            Change::Rename { from, to, flags, whiteout, .. } => self.rename(from, to, flags, whiteout)?,
            Change::SetAttr { ino, attr, meant } => self.node_mut(ino)?.attr.assign(attr, meant),
            Change::SetXattr { ino, name, value } => {
                let xattrs = &mut self.node_mut(ino)?.xattrs;
                match value {
                    Some(value) => drop(xattrs.insert(name.into(), value.into())),
                    None => drop(xattrs.remove(name).ok_or(Error::NoData)?),
                }
            }
            _ => return Err(Error::NotSupported),
        }
        Ok(Ack::Done)
    }

    pub(crate) fn create(&mut self, dir: u64, name: &[u8], attr: &NodeAttr) -> Result<u64> {
        self.free(dir, name)?;
        let ino = self.make(attr)?;
        self.bind(dir, name, ino);
        Ok(ino)
    }

    /// Makes an inode without a name.
    fn make(&mut self, attr: &NodeAttr) -> Result<u64> {
        if self.len() >= self.limit { Err(Error::NoSpace) } else { Ok(self.insert(attr)) }
    }

    fn insert(&mut self, attr: &NodeAttr) -> u64 {
        let ino = self.next_ino;
        self.next_ino += 1;
        // Each name counts itself. A directory also counts itself, and the root has no name.
        let nlink = match attr.kind {
            FileKind::Directory if ino == ROOT => 2,
            FileKind::Directory => 1,
            _ => 0,
        };
        let mut attr = attr.clone();
        (attr.ino, attr.nlink) = (ino, nlink);
        let (bytes, xattrs, names) = (Bytes::default(), BTreeMap::new(), Names::default());
        self.nodes.insert(ino, Node { attr, bytes, xattrs, is_anonymous: true, names });
        ino
    }

    pub(crate) fn link(&mut self, ino: u64, dir: u64, name: &[u8]) -> Result<()> {
        self.free(dir, name)?;
        let node = self.nodes.get(&ino).filter(|node| node.is_named() || node.is_anonymous).ok_or(Error::NoEntry)?;
        if node.attr.kind == FileKind::Directory {
            return Err(Error::NotPermitted);
        }
        self.bind(dir, name, ino);
        Ok(())
    }

    pub(crate) fn link_directory(&mut self, ino: u64, dir: u64, name: &[u8]) -> Result<()> {
        self.dir(ino)?;
        self.free(dir, name)?;
        self.bind(dir, name, ino);
        Ok(())
    }

    pub(crate) fn remove(&mut self, dir: u64, name: &[u8]) -> Result<u64> {
        let ino = self.lookup(dir, name)?.ok_or(Error::NoEntry)?;
        self.empty(ino)?;
        self.unbind(dir, name, ino);
        Ok(ino)
    }

    /// Renames. `whiteout`: the attributes of the inode that takes the old name.
    pub(crate) fn rename(
        &mut self,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        flags: RenameFlags,
        whiteout: Option<&NodeAttr>,
    ) -> Result<()> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let moved = self.lookup(from.0, from.1)?.ok_or(Error::NoEntry)?;
        let target = self.lookup(to.0, to.1)?;
        self.not_below(moved, to.0)?;
        let Some(target) = target else {
            if exchange {
                return Err(Error::NoEntry);
            }
            self.leave(from, moved, whiteout)?;
            self.bind(to.0, to.1, moved);
            return Ok(());
        };
        if flags.contains(RenameFlags::NOREPLACE) {
            return Err(Error::Exists);
        }
        if target == moved {
            return Ok(());
        }
        if exchange {
            self.not_below(target, from.0)?;
            self.rebind(from.0, from.1, moved, target);
            self.rebind(to.0, to.1, target, moved);
            return Ok(());
        }
        match (self.is_dir(moved), self.is_dir(target)) {
            (true, false) => return Err(Error::NotDirectory),
            (false, true) => return Err(Error::IsDirectory),
            _ => self.empty(target)?,
        }
        self.leave(from, moved, whiteout)?;
        self.rebind(to.0, to.1, target, moved);
        Ok(())
    }

    /// Removes the old name of a renamed inode, or binds it to a whiteout if there is to be one.
    fn leave(&mut self, (dir, name): (u64, &[u8]), moved: u64, whiteout: Option<&NodeAttr>) -> Result<()> {
        match whiteout {
            Some(attr) => {
                let made = self.make(attr)?;
                self.rebind(dir, name, moved, made);
            }
            None => self.unbind(dir, name, moved),
        }
        Ok(())
    }

    /// Frees an inode that has no names.
    pub(crate) fn forget(&mut self, ino: u64) {
        if self.nodes.get(&ino).is_some_and(|node| !node.is_named()) {
            self.nodes.remove(&ino);
        }
    }

    fn is_dir(&self, ino: u64) -> bool {
        self.nodes.get(&ino).is_some_and(|node| node.attr.kind == FileKind::Directory)
    }

    /// Checks that a name can be made.
    fn free(&self, dir: u64, name: &[u8]) -> Result<()> {
        if self.lookup(dir, name)?.is_some() { Err(Error::Exists) } else { Ok(()) }
    }

    /// Checks that a directory is empty, so that it can be removed.
    fn empty(&self, ino: u64) -> Result<()> {
        let names = &self.node(ino)?.names;
        if names.by_name.is_empty() { Ok(()) } else { Err(Error::NotEmpty) }
    }

    /// Checks that a directory does not move into itself.
    fn not_below(&self, ino: u64, dir: u64) -> Result<()> {
        let mut up = dir;
        while self.is_dir(ino) && up != ROOT {
            if up == ino {
                return Err(Error::Invalid);
            }
            up = self.parents(up).first().copied().ok_or(Error::NoEntry)?;
        }
        Ok(())
    }

    fn bind(&mut self, dir: u64, name: &[u8], ino: u64) {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.count(dir, ino, 1);
        if let Some(node) = self.nodes.get_mut(&dir) {
            node.names.insert(name, ino, cookie);
        }
    }

    fn unbind(&mut self, dir: u64, name: &[u8], ino: u64) {
        self.count(dir, ino, -1);
        if let Some(node) = self.nodes.get_mut(&dir) {
            node.names.remove(name);
        }
    }

    fn rebind(&mut self, dir: u64, name: &[u8], old: u64, new: u64) {
        self.count(dir, old, -1);
        self.count(dir, new, 1);
        if let Some(node) = self.nodes.get_mut(&dir) {
            node.names.rebind(name, new);
        }
    }

    /// Counts a name for `ino` that is added to `dir` or removed from it.
    fn count(&mut self, dir: u64, ino: u64, by: i32) {
        let is_dir = self.is_dir(ino);
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.attr.nlink = node.attr.nlink.saturating_add_signed(by);
            node.is_anonymous = false;
        }
        if is_dir && let Some(node) = self.nodes.get_mut(&dir) {
            node.attr.nlink = node.attr.nlink.saturating_add_signed(by);
        }
    }
}
