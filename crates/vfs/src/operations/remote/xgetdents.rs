//! xgetdents of a backed tree: names, attributes and extended attributes are requested in batches.

use pando_records::{Mask, least_bytes};
use pando_sync::pin;

use crate::{
    Context, DentryRef, Error, File, Result,
    caches::xattrs::load_many_xattrs,
    operations::{
        attempt::run_lockless,
        batch::{AFTER_DOT, AFTER_DOTDOT, BATCH, Batch, Gathered},
        remote::readdir::{current, gather},
        xgetdents::{Listed, Listing, Wanted, dots},
    },
    types::Next,
};

/// Packs the next entries. None if there may be room for more. The caller holds no guard.
pub(crate) fn pack(file: &File, wanted: &Wanted<'_>, to: &mut Listing<'_>) -> Result<Option<Next>> {
    let dir = file.dentry();
    let plus = wanted.may_search && !wanted.mask.is_empty();
    let mut batch = Batch::default();
    if to.cookie < AFTER_DOTDOT {
        add_dots(dir, wanted.context, to.cookie, plus, &mut batch)?;
    }
    // No more than may fit: what does not is requested again.
    let limit = to.packer.room() / least_bytes(wanted.mask.contains(Mask::STAT));
    let limit = limit.clamp(batch.entries.len() + 1, BATCH);
    gather(file, to.cookie.max(AFTER_DOTDOT), plus.then_some(wanted.mask), limit, &mut batch)?;
    if plus && wanted.mask.wants_xattrs() {
        let found = batch.entries.iter().enumerate();
        let found = found.filter_map(|(place, entry)| Some((place, entry.plus.as_ref()?.1.0.inode())));
        for (place, error) in load_many_xattrs(found) {
            batch.entries[place].xattr_error = Some(error);
        }
    }
    let guard = pin();
    for (name, entry) in batch.iter() {
        let Gathered { ino, kind, cookie, xattr_error, .. } = *entry;
        let listed = Listed { name, ino, kind, cookie, xattr_error };
        let found = match (&entry.plus, entry.error) {
            (Some((_, found)), _) => Ok(found.0.inode()),
            (None, error) => Err(error.unwrap_or(Error::Access)),
        };
        if let Some(next) = to.push(wanted, &listed, found, &guard) {
            return Ok(Some(next));
        }
    }
    Ok((batch.entries.len() < limit).then_some(Next::End))
}

/// Adds `.` and `..`, as far as they are after the cookie.
fn add_dots(dir: &DentryRef, context: &Context, cookie: u64, plus: bool, batch: &mut Batch) -> Result<()> {
    for (name, after) in [(&b"."[..], AFTER_DOT), (b"..", AFTER_DOTDOT)] {
        if cookie < after {
            let (listed, found) = run_lockless(&dir.0.sb().namespace, |guard| {
                let [listed, found] = dots(context, dir.0.share(guard), after, guard);
                let inode = listed.to_ref().inode();
                let found = if plus { Some(current(found, guard)?) } else { None };
                Ok(((inode.ino, inode.kind), found))
            })?;
            batch.add(name, listed, after, found);
        }
    }
    Ok(())
}
