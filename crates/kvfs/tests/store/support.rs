//! A tree as the namespace shows it, and random numbers.

use std::collections::BTreeMap;

use pando_kvfs::KvFs;
use pando_vfs::{
    Ack, At, Backing, Change, CommitError, Context, FileKind, InodeFlags, NodeAttr, OpenFlags, Timestamp, Vfs, Walk,
};

#[path = "../../../vfs/tests/support/random.rs"]
mod random;

pub use random::{Rng, seed};

/// Makes an inode below the namespace, and returns its number.
pub fn create(store: &KvFs, dir: u64, name: &[u8], kind: FileKind) -> Result<u64, CommitError> {
    let attr = NodeAttr::new(0, kind, 0o755, Timestamp(0));
    match store.commit(&Change::Create { dir, name, attr: &attr, umasked: 0 })? {
        Ack::Made(attr) => Ok(attr.ino),
        Ack::Done => unreachable!("it was made"),
    }
}

/// The inode at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub kind: FileKind,
    mode: u32,
    owner: (u32, u32),
    nlink: u32,
    rdev: u64,
    flags: Option<InodeFlags>,
    pub bytes: Vec<u8>,
    target: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Paths and their inodes.
pub type Tree = BTreeMap<String, Node>;

fn names(vfs: &Vfs, context: &Context, path: &str) -> Vec<String> {
    let dir = vfs.open(context, At::Cwd, path, OpenFlags::DIRECTORY, 0).expect("opens");
    let mut names = Vec::new();
    let listed = dir.readdir(0, |entry| {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        true
    });
    listed.expect("lists");
    names.retain(|name| name != "." && name != "..");
    names
}

/// The whole tree.
pub fn seen(vfs: &Vfs, context: &Context) -> Tree {
    let (mut tree, mut todo) = (Tree::new(), vec![String::from("/")]);
    while let Some(path) = todo.pop() {
        let stat = vfs.stat(context, At::Cwd, &path, Walk::NOFOLLOW).unwrap_or_else(|error| panic!("{path}: {error}"));
        let (mut bytes, mut target) = (Vec::new(), Vec::new());
        match stat.kind {
            FileKind::File => {
                let file = vfs.open(context, At::Cwd, &path, OpenFlags::NOATIME, 0).expect("opens");
                bytes = vec![0; stat.size as usize];
                assert_eq!(file.pread(&mut bytes, 0), Ok(bytes.len()), "{path}");
            }
            FileKind::Directory => {
                let slash = if path == "/" { "" } else { "/" };
                todo.extend(names(vfs, context, &path).into_iter().map(|name| format!("{path}{slash}{name}")));
            }
            FileKind::Symlink => target = vfs.readlink(context, At::Cwd, &path, Walk::NOFOLLOW).expect("reads"),
            _ => {}
        }
        let value = |name: &Vec<u8>| vfs.getxattr(context, At::Cwd, &path, name, Walk::NOFOLLOW).expect("there");
        let xattrs = vfs.listxattr(context, At::Cwd, &path, Walk::NOFOLLOW).expect("lists");
        let xattrs = xattrs.into_iter().map(|name| (name.clone(), value(&name))).collect();
        let owner = (stat.uid, stat.gid);
        let (kind, mode, nlink, rdev, flags) = (stat.kind, stat.mode, stat.nlink, stat.rdev, stat.flags);
        tree.insert(path, Node { kind, mode, owner, nlink, rdev, flags, bytes, target, xattrs });
    }
    tree
}

/// The first difference between two trees.
pub fn difference(one: &Tree, other: &Tree) -> Option<String> {
    let paths = one.keys().chain(other.keys());
    let different = paths.into_iter().find(|path| one.get(*path) != other.get(*path))?;
    let short = |node: Option<&Node>| {
        node.map(|node| {
            format!("{:?} {} bytes {:?}", node.kind, node.bytes.len(), node.bytes.iter().take(4).collect::<Vec<_>>())
        })
    };
    Some(format!("{different}: {:?} and {:?}", short(one.get(different)), short(other.get(different))))
}
