//! A tree as the namespace shows it, and the same tree in the store.

use std::collections::BTreeMap;

use pando_mapfs::{MapFs, MapHandle, MapOptions};
use pando_vfs::{At, Context, Credentials, FileKind, OpenFlags, Vfs, VfsOptions, Walk};

use crate::EXACT_REPORTS;

#[path = "../../../vfs/tests/support/collect.rs"]
mod collect;
#[path = "../../../vfs/tests/support/random.rs"]
mod random;
#[path = "../../../vfs/tests/support/watched.rs"]
mod watched;

pub use collect::collect_until;
pub use random::{Rng, seed};
pub use watched::{Used, Watched};

/// The inode at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub kind: FileKind,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub bytes: Vec<u8>,
    pub target: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Paths and their inodes.
pub type Tree = BTreeMap<String, Node>;

/// A namespace over an empty store, a context of its superuser, and the store. Listings do not read
/// ahead by themselves: on a busy machine they would, and tests that count calls would fail.
pub fn mounted(options: MapOptions) -> (Vfs, Context, MapHandle) {
    with_reports(EXACT_REPORTS, options)
}

/// The same. Changes by others are reported for names and inodes if `exact`, else for directories.
pub fn with_reports(exact: bool, options: MapOptions) -> (Vfs, Context, MapHandle) {
    let driver = MapFs::new(MapOptions { exact_reports: exact, ..options });
    let store = driver.handle();
    let vfs = Vfs::with_options(driver, VfsOptions::new().read_ahead(false)).expect("a new tree");
    let context = Context::new(&vfs, Credentials::root());
    (vfs, context, store)
}

/// The same, with another such tree mounted at `/m`. The returned store is that of the mounted
/// tree.
pub fn mounted_below() -> (Vfs, Context, MapHandle) {
    let (vfs, context, _) = mounted(MapOptions::default());
    vfs.mkdir(&context, At::Cwd, "/m", 0o755).expect("made");
    let driver = MapFs::new(MapOptions { exact_reports: EXACT_REPORTS, ..MapOptions::default() });
    let store = driver.handle();
    vfs.mount(&context, At::Cwd, "/m", driver).expect("mounted");
    (vfs, context, store)
}

/// The names in a directory without `.` and `..`.
pub fn names(vfs: &Vfs, context: &Context, path: &str) -> Vec<String> {
    let dir = vfs.open(context, At::Cwd, path, OpenFlags::DIRECTORY, 0).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut names = Vec::new();
    dir.readdir(0, |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
        }
        true
    })
    .unwrap_or_else(|e| panic!("{path}: {e}"));
    names
}

/// The whole tree, as the namespace shows it.
pub fn seen(vfs: &Vfs, context: &Context) -> Tree {
    let (mut tree, mut todo) = (Tree::new(), vec![String::from("/")]);
    while let Some(path) = todo.pop() {
        let stat = vfs.stat(context, At::Cwd, &path, Walk::NOFOLLOW).unwrap_or_else(|e| panic!("{path}: {e}"));
        let mut bytes = Vec::new();
        if stat.kind == FileKind::File {
            let file =
                vfs.open(context, At::Cwd, &path, OpenFlags::NOATIME, 0).unwrap_or_else(|e| panic!("{path}: {e}"));
            bytes = vec![0; usize::try_from(stat.size).expect("small")];
            assert_eq!(file.pread(&mut bytes, 0), Ok(bytes.len()), "{path}");
        }
        if stat.kind == FileKind::Directory {
            let slash = if path == "/" { "" } else { "/" };
            todo.extend(names(vfs, context, &path).into_iter().map(|name| format!("{path}{slash}{name}")));
        }
        let link = stat.kind == FileKind::Symlink;
        let target =
            if link { vfs.readlink(context, At::Cwd, &path, Walk::NOFOLLOW).expect("reads") } else { Vec::new() };
        let value = |name: &Vec<u8>| vfs.getxattr(context, At::Cwd, &path, name, Walk::NOFOLLOW).expect("there");
        let xattrs = vfs.listxattr(context, At::Cwd, &path, Walk::NOFOLLOW).expect("lists");
        let xattrs = xattrs.into_iter().map(|name| (name.clone(), value(&name))).collect();
        let (kind, mode, uid, gid, nlink) = (stat.kind, stat.mode, stat.uid, stat.gid, stat.nlink);
        tree.insert(path, Node { kind, mode, uid, gid, nlink, bytes, target, xattrs });
    }
    tree
}

/// The whole tree, as it is in the store.
pub fn stored(store: &MapHandle) -> Tree {
    let (mut tree, mut todo) = (Tree::new(), vec![(String::from("/"), MapHandle::ROOT)]);
    while let Some((path, ino)) = todo.pop() {
        let node = store.node(ino).unwrap_or_else(|e| panic!("{path}: {e}"));
        let slash = if path == "/" { "" } else { "/" };
        for (name, child) in &node.names {
            todo.push((format!("{path}{slash}{}", String::from_utf8_lossy(name)), *child));
        }
        let seen = Node {
            kind: node.attr.kind,
            mode: node.attr.mode,
            uid: node.attr.uid,
            gid: node.attr.gid,
            nlink: node.attr.nlink,
            bytes: node.bytes,
            target: node.attr.target.to_vec(),
            xattrs: node.xattrs.into_iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect(),
        };
        tree.insert(path, seen);
    }
    tree
}

/// Fails with the first difference.
pub fn assert_same(left: &Tree, right: &Tree, what: &str) {
    for path in left.keys().chain(right.keys()) {
        assert_eq!(left.get(path), right.get(path), "{what}: {path}");
    }
}

/// Evicts until this many inodes are cached and none is left without a name. Dropped inodes may
/// wait for tests that run beside this one and read, each for a moment.
pub fn evict_down_to(vfs: &Vfs, store: &MapHandle, inodes: u64) {
    let reached = || {
        evict_all(vfs);
        store.cached_inodes() == inodes && store.unnamed_inodes().is_empty()
    };
    assert!(
        (0..1000).any(|_| reached()),
        "{} inodes are cached, unnamed {:?}",
        store.cached_inodes(),
        store.unnamed_inodes()
    );
}

/// Evicts until no unused inode is left. Dropped ones may still wait to be reclaimed.
pub fn evict_all(vfs: &Vfs) -> usize {
    let mut gone = 0;
    for _ in 0..50 {
        pando_sync::collect();
        let more = vfs.evict(usize::MAX).expect("stored");
        gone += more;
        std::thread::yield_now();
    }
    gone
}
