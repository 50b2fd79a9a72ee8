//! The name space, one operation after the other: what each does, and which errno each refusal gets.
//!
//! The same on every driver: a test crate that includes this module defines `driver`, which makes an empty tree (with a
//! limit of inodes, or without), and says in `TRAITS` where its driver legitimately differs.

mod attributes;
mod files;
mod names;
mod walks;

use pando_vfs::{At, Context, Credentials, OpenFlags, Vfs, Walk};

use super::driver;

const FOLLOW: Walk = Walk::empty();
const RW: OpenFlags = OpenFlags::RDWR;

/// In what drivers may differ.
#[derive(Debug, Clone, Copy)]
pub struct Traits {
    /// Files without a name can be made (O_TMPFILE). A backing has no place for them.
    pub tmpfile: bool,
    /// A directory's size counts its entries, 20 bytes each, as tmpfs has it. A backing's directory has the backing's size.
    pub dir_size: bool,
    /// No two inodes of a name space have one number. A backing has numbers of its own.
    pub unique_numbers: bool,
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
