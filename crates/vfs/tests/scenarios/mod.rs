//! Sequential tests of the namespace: the effect of each operation, and the errno of each refusal.
//!
//! They run on every driver. A test crate that includes this module defines `driver`, which makes
//! an empty tree with or without a limit of inodes. Its constant `TRAITS` says where its driver
//! legitimately differs.

#[path = "../support/acl.rs"]
pub mod acl;
mod acls;
mod attributes;
mod bulk;
mod files;
mod handles;
mod names;
mod walks;

use pando_vfs::{At, Context, Credentials, OpenFlags, Vfs, Walk};

use super::driver;

const FOLLOW: Walk = Walk::empty();
const RW: OpenFlags = OpenFlags::RDWR;

/// The properties in which drivers may differ.
#[derive(Debug, Clone, Copy)]
pub struct Traits {
    /// The size of a directory counts its entries, 20 bytes each, as on tmpfs. In a backed tree a
    /// directory has the size that the backing reports.
    pub dir_size: bool,
    /// No two inodes of a namespace have the same number. A backing has numbers of its own.
    pub unique_numbers: bool,
    /// An inode is found by its number, so there are file handles.
    pub handles: bool,
}

fn tree() -> (Vfs, Context) {
    let vfs = Vfs::new(driver(None)).expect("a new tree");
    let context = Context::new(&vfs, Credentials::root()).with_umask(0o022);
    (vfs, context)
}

fn touch(vfs: &Vfs, context: &Context, path: &str) {
    vfs.open(context, At::Cwd, path, RW | OpenFlags::CREAT, 0o644).unwrap_or_else(|e| panic!("{path}: {e}"));
}

fn names(vfs: &Vfs, context: &Context, path: &str) -> Vec<String> {
    let dir = vfs.open(context, At::Cwd, path, OpenFlags::DIRECTORY, 0).expect("opens");
    let mut names = Vec::new();
    dir.readdir(0, |entry| {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        true
    })
    .expect("reads");
    names.sort();
    names
}
