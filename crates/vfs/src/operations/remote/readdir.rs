//! readdir of a backed tree, in the backing's order and with its cookies.

use pando_sync::{Guard, Shared};

use crate::{
    DentryRef, Error, RecordMask, Result, Stat,
    caches::load::{Found, Version, fill},
    objects::{dentry::Dentry, stat::stat_of},
    operations::{
        attempt::run_lockless,
        batch::{AFTER_DOTDOT, Batch},
        namei::lookup,
        remote::lookup::expect_attributes,
        step::{Step, Stop},
    },
    types::Walk,
};

/// Gathers the next entries of a backed tree, in the backing's order and with its cookies, until
/// the batch has `limit` of them. The caller holds no guard.
pub(crate) fn gather(dir: &DentryRef, cookie: u64, plus: bool, limit: usize, batch: &mut Batch) -> Result<()> {
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
        batch.add(entry.name, (entry.ino, entry.kind), entry.cookie, None);
        batch.entries.len() < limit
    })?;
    drop(lock);
    if !plus {
        return Ok(());
    }
    let found = batch.iter().skip(first).zip(attributes);
    let found = found.map(|((name, entry), attr)| Found { name, ino: entry.ino, attr }).collect();
    fill(&dir.0, found, before)?;
    let children: Vec<_> = batch.iter().skip(first).map(|(name, _)| child(dir, name)).collect();
    for (entry, child) in batch.entries[first..].iter_mut().zip(children) {
        match child {
            Ok(Some(found)) => entry.plus = Some(found),
            // It disappeared meanwhile.
            Ok(None) => entry.error = Some(Error::NoEntry),
            Err(error) => entry.error = Some(error),
        }
    }
    Ok(())
}

/// The dentry that a name in this directory is bound to, and its attributes. The backing is asked
/// if the cache does not know it.
fn child(dir: &DentryRef, name: &[u8]) -> Result<Option<(Stat, DentryRef)>> {
    run_lockless(&dir.0.sb().namespace, |guard| {
        let found = lookup(dir.0.share(guard), name, guard)?;
        found.map(|found| current(found, guard)).transpose()
    })
}

/// A dentry and its current attributes. The backing is asked if the cache does not have them.
pub(crate) fn current(found: Shared<'_, Dentry>, guard: &Guard) -> Step<(Stat, DentryRef)> {
    expect_attributes(found, Walk::ATTRIBUTES)?;
    let held = found.get().ok_or(Stop::Again)?;
    Ok((stat_of(held.inode(), guard), DentryRef(held)))
}
