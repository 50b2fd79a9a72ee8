//! Path rendering: the path of an open file or directory, as it was at some instant of the call (P9).
//!
//! Going up from a dentry reads its place, its parent's place, and so on: several words, which must fit together. Only
//! a directory that changes place can make them unfit, and it writes the rename sequence; so a rendering that saw no such
//! write is of one instant, and one that did starts over, after a few tries as a blocking reader. The file's own place
//! is read within the same window: a file that moves touches nothing global.

use pando_sync::{Guard, OPTIMISTIC_TRIES, Shared, pin};

use crate::{
    Error, Result,
    objects::{dentry::Dentry, superblock::NameSpace},
};

/// What Linux appends to the path of a file whose name is gone.
pub(crate) const DELETED: &[u8] = b" (deleted)";

/// A rendering: the path, and what is special about it.
pub(crate) struct Rendered {
    pub path: Vec<u8>,
    pub deleted: bool,
    pub reachable: bool,
}

impl Rendered {
    /// A path without a limit has no error.
    const UNKNOWN: Self = Self { path: Vec::new(), deleted: false, reachable: false };
}

/// The whole path of a dentry, from the root of the name space, however long, and the rename sequence under which it was
/// so: as long as that stands still, it is so for a directory that is not removed.
pub(crate) fn whole_path(name_space: &NameSpace, dentry: Shared<'_, Dentry>) -> (Vec<u8>, u64) {
    let seq = &name_space.rename_seq;
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

/// One try: right if no directory changed its place meanwhile.
pub(crate) fn render(
    dentry: Shared<'_, Dentry>,
    root: Option<Shared<'_, Dentry>>,
    limit: usize,
    guard: &Guard,
) -> Result<Rendered> {
    // Written from its end, as the walk goes.
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
            let Some(covered) = here.sb().covers.load(guard) else {
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
        // The root itself, whose name was not looked at.
        deleted = bound(dentry, guard) == Some(false);
    }
    reversed.reverse();
    Ok(Rendered { path: reversed, deleted, reachable })
}

/// Whether a dentry is what some name is bound to.
pub(crate) fn is_bound(dentry: Shared<'_, Dentry>, guard: &Guard) -> bool {
    bound(dentry, guard) == Some(true)
}

/// Whether the name that a dentry has or had is bound to it.
fn bound(dentry: Shared<'_, Dentry>, guard: &Guard) -> Option<bool> {
    place_of(dentry, guard).map(|(_, _, bound)| bound)
}

/// A dentry's parent and name, and whether the name is still bound to it: of one instant.
#[inline(always)]
fn place_of<'g>(dentry: Shared<'g, Dentry>, guard: &'g Guard) -> Option<(Shared<'g, Dentry>, &'g [u8], bool)> {
    let dentry_ref = dentry.to_ref();
    let mut place = dentry_ref.place.load(guard)?;
    loop {
        let slot = place.to_ref();
        let shown = slot.value.load(guard);
        if shown.is_some_and(|shown| shown.ptr_eq(dentry)) {
            return Some((slot.anchor_dir(), slot.name.as_bytes(), true));
        }
        // Gone, or moved? A slot that shows nothing never shows anything again, and a move changes slot and place at
        // one instant: if the place is still this one, the name is gone. A slot that shows another dentry was exchanged.
        let again = dentry_ref.place.load(guard)?;
        if again.ptr_eq(place) && shown.is_none() {
            return Some((slot.anchor_dir(), slot.name.as_bytes(), false));
        }
        place = again;
    }
}
