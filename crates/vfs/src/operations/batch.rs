//! Directory entries that a scan gathers in one call and returns one by one.

use crate::{DentryRef, FileKind, Stat, objects::inode::Inode};

/// The cookie after `..`, which drivers do not use. The cookie after `.` is one less.
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
}

/// Gathered entries and the bytes of their names. A scan reuses one batch.
#[derive(Default)]
pub(crate) struct Batch {
    pub names: Vec<u8>,
    pub entries: Vec<Gathered>,
}

impl Batch {
    pub(crate) fn push(&mut self, name: &[u8], inode: &Inode, cookie: u64, plus: Option<(Stat, DentryRef)>) {
        self.names.extend_from_slice(name);
        self.entries.push(Gathered { name_end: self.names.len(), ino: inode.ino, kind: inode.kind, cookie, plus });
    }
}
