//! Directory entries that a scan gathers in one call and returns one by one.

use crate::{DentryRef, Error, FileKind, Stat, objects::inode::Inode};

/// The cookie after `.`. A listing starts at 0.
pub(crate) const AFTER_DOT: u64 = 1;
/// The cookie after `..`. Those of drivers are larger.
pub(crate) const AFTER_DOTDOT: u64 = 2;
/// The number of entries gathered under one guard.
pub(crate) const BATCH: usize = 256;

/// One gathered entry. Its name lies in the batch's arena.
pub(crate) struct Gathered {
    pub name_end: usize,
    pub ino: u64,
    pub kind: FileKind,
    pub cookie: u64,
    pub plus: Option<(Stat, DentryRef)>,
    /// Why there are no attributes, if they were requested.
    pub error: Option<Error>,
    /// Why there are no extended attributes, if they were requested.
    pub xattr_error: Option<Error>,
}

/// Gathered entries and the bytes of their names. A scan reuses one batch.
#[derive(Default)]
pub(crate) struct Batch {
    pub names: Vec<u8>,
    pub entries: Vec<Gathered>,
}

impl Batch {
    pub(crate) fn push(&mut self, name: &[u8], inode: &Inode, cookie: u64, plus: Option<(Stat, DentryRef)>) {
        self.add(name, (inode.ino, inode.kind), cookie, plus);
    }

    pub(crate) fn add(
        &mut self,
        name: &[u8],
        (ino, kind): (u64, FileKind),
        cookie: u64,
        plus: Option<(Stat, DentryRef)>,
    ) {
        self.names.extend_from_slice(name);
        let name_end = self.names.len();
        self.entries.push(Gathered { name_end, ino, kind, cookie, plus, error: None, xattr_error: None });
    }

    /// The entries and their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &Gathered)> {
        let mut name_start = 0;
        self.entries.iter().map(move |entry| {
            let name = &self.names[name_start..entry.name_end];
            name_start = entry.name_end;
            (name, entry)
        })
    }
}
