//! readdir of a backed tree, in the backing's order and with its cookies.

use crate::{
    DentryRef, Error, RecordMask, Result, Stat,
    caches::load::{Found, Version, fill},
    objects::stat::stat_of,
    operations::{
        attempt::run_lockless,
        batch::{AFTER_DOTDOT, BATCH, Batch, Gathered},
        namei::lookup,
        remote::lookup::expect_attributes,
        step::Stop,
    },
    types::Walk,
};

/// Gathers the next entries of a backed tree, in the backing's order and with its cookies. The
/// caller holds no guard.
pub(crate) fn gather(dir: &DentryRef, cookie: u64, plus: bool, batch: &mut Batch) -> Result<()> {
    let inode = dir.0.inode();
    let backing = inode.shard.sb.ask_backing().ok_or(Error::NotSupported)?;
    let cookie = if cookie == AFTER_DOTDOT { 0 } else { cookie };
    let before = Version::of(inode)?;
    let first = batch.entries.len();
    let sb = dir.0.sb();
    let lock = sb.whole_directories.then(|| sb.namespace.names.lock(&[sb.inode_key(inode.ino)]));
    let mut attributes = Vec::new();
    let wanted = if plus { RecordMask::ATTR } else { RecordMask::empty() };
    backing.scan(inode.ino, cookie, wanted, &mut |entry| {
        if plus {
            attributes.push(entry.attr.cloned());
        }
        batch.names.extend_from_slice(entry.name);
        batch.entries.push(Gathered {
            name_end: batch.names.len(),
            ino: entry.ino,
            kind: entry.kind,
            cookie: entry.cookie,
            plus: None,
        });
        batch.entries.len() < BATCH
    })?;
    drop(lock);
    if !plus {
        return Ok(());
    }
    let mut name_start = first.checked_sub(1).map_or(0, |last| batch.entries[last].name_end);
    let mut found = Vec::with_capacity(batch.entries.len() - first);
    for (entry, attr) in batch.entries[first..].iter().zip(attributes) {
        found.push(Found { name: &batch.names[name_start..entry.name_end], ino: entry.ino, attr });
        name_start = entry.name_end;
    }
    let names: Vec<&[u8]> = found.iter().map(|found| found.name).collect();
    fill(&dir.0, found, before)?;
    for (entry, name) in batch.entries[first..].iter_mut().zip(names) {
        // An entry that disappeared meanwhile, or cannot be loaded, is returned without attributes.
        entry.plus = child(dir, name).ok().flatten();
    }
    Ok(())
}

/// The dentry that a name in this directory is bound to, and its attributes. The backing is asked
/// if the cache does not know it.
fn child(dir: &DentryRef, name: &[u8]) -> Result<Option<(Stat, DentryRef)>> {
    run_lockless(&dir.0.sb().namespace, |guard| {
        let Some(found) = lookup(dir.0.share(guard), name, guard)? else { return Ok(None) };
        expect_attributes(found, Walk::ATTRIBUTES)?;
        let held = found.get().ok_or(Stop::Again)?;
        Ok(Some((stat_of(held.inode(), guard), DentryRef(held))))
    })
}
