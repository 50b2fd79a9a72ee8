//! Path rendering: the path of an open file or directory, as it was at some instant of the call
//! (P9). Analogous to `prepend_path()` in fs/d_path.c.
//!
//! The climb from a dentry reads the dentry's place, its parent's place, and so on. These words
//! must be of one instant. Only the move of a directory can make them inconsistent, and such a move
//! writes the rename sequence. So a rendering that saw no write of the sequence is of one instant.
//! Otherwise it starts over. After a few tries it blocks writers of the sequence for one climb.
//!
//! The place of the file itself is read within the same window, because the rename of a file writes
//! nothing global.

use pando_sync::{Guard, OPTIMISTIC_TRIES, Shared, pin};

use crate::{
    Error, Result,
    objects::{dentry::Dentry, superblock::Namespace},
};

/// The suffix that Linux appends to the path of a file whose name was removed.
pub(crate) const DELETED: &[u8] = b" (deleted)";

/// A rendered path.
pub(crate) struct Rendered {
    pub path: Vec<u8>,
    pub deleted: bool,
    pub reachable: bool,
}

impl Rendered {
    /// Rendering without a limit cannot fail, so this value is never used.
    const UNKNOWN: Self = Self { path: Vec::new(), deleted: false, reachable: false };
}

/// The path of a dentry from the root of the namespace, of any length, and the rename sequence
/// under which it was valid. For a directory that is not removed, it stays valid until the sequence
/// changes.
pub(crate) fn whole_path(namespace: &Namespace, dentry: Shared<'_, Dentry>) -> (Vec<u8>, u64) {
    let seq = &namespace.rename_seq;
    let once = || {
        let sequence = seq.read_begin();
        let mut rendered = render(dentry, None, usize::MAX, &pin()).unwrap_or(Rendered::UNKNOWN);
        if rendered.deleted {
            rendered.path.extend_from_slice(DELETED);
        }
        (rendered.path, sequence)
    };
    for _ in 0..OPTIMISTIC_TRIES {
        let (path, sequence) = once();
        if !seq.read_retry(sequence) {
            return (path, sequence);
        }
    }
    let _blocked = seq.lock();
    once()
}

/// One try. The result is valid if no directory was moved meanwhile.
pub(crate) fn render(
    dentry: Shared<'_, Dentry>,
    root: Option<Shared<'_, Dentry>>,
    limit: usize,
    guard: &Guard,
) -> Result<Rendered> {
    // Written in reverse, because the climb begins at the last component.
    let mut reversed: Vec<u8> = Vec::with_capacity(128);
    let mut push = |name: &[u8]| {
        reversed.extend(name.iter().rev());
        reversed.push(b'/');
        if reversed.len() > limit { Err(Error::NameTooLong) } else { Ok(()) }
    };
    let (mut deleted, mut reachable) = (false, true);
    let mut here = dentry;
    while root.is_none_or(|root| !here.ptr_eq(root)) {
        let Some((parent, name, bound)) = place_of(here, guard) else {
            if !here.is_dir() {
                // A file that never had a name.
                push(format!("#{}", here.inode().ino).as_bytes())?;
                deleted = true;
                break;
            }
            let Some(covered) = here.sb().mountpoint.load(guard) else {
                reachable = false;
                break;
            };
            here = covered;
            continue;
        };
        deleted |= here.ptr_eq(dentry) && !bound;
        push(name)?;
        here = parent;
    }
    if reversed.is_empty() {
        reversed.push(b'/');
        // The root itself, whose name the loop has not read.
        deleted = bound(dentry, guard) == Some(false);
    }
    reversed.reverse();
    Ok(Rendered { path: reversed, deleted, reachable })
}

/// Whether a name is bound to a dentry. The opposite of `d_unlinked()`.
pub(crate) fn is_bound(dentry: Shared<'_, Dentry>, guard: &Guard) -> bool {
    bound(dentry, guard) == Some(true)
}

/// Whether the name in which a dentry stands, or stood last, is bound to it.
fn bound(dentry: Shared<'_, Dentry>, guard: &Guard) -> Option<bool> {
    place_of(dentry, guard).map(|(_, _, bound)| bound)
}

/// The parent and the name of a dentry, and whether the name is still bound to it, all of one
/// instant.
#[inline(always)]
pub(crate) fn place_of<'g>(
    dentry: Shared<'g, Dentry>,
    guard: &'g Guard,
) -> Option<(Shared<'g, Dentry>, &'g [u8], bool)> {
    let dentry_ref = dentry.to_ref();
    let mut place = dentry_ref.place.load(guard)?;
    loop {
        let dirent = place.to_ref();
        let shown = dirent.value.load(guard);
        if shown.is_some_and(|shown| shown.ptr_eq(dentry)) {
            return Some((dirent.parent_dir(), dirent.name.as_bytes(), true));
        }
        // The name was removed, or the dentry has moved. An entry that has become empty stays
        // empty, and a move changes entry and place at one instant. So if the place is unchanged
        // and the entry is empty, the name was removed. If the entry shows another dentry, this one
        // was exchanged or replaced, and has another place.
        let again = dentry_ref.place.load(guard)?;
        if again.ptr_eq(place) && shown.is_none() {
            return Some((dirent.parent_dir(), dirent.name.as_bytes(), false));
        }
        place = again;
    }
}
