//! readdir of a backed tree, in the backing's order and with its cookies.

use std::{sync::atomic::Ordering, time::Instant};

use pando_concurrency::CALL_WAITED;
use pando_records::Mask;
use pando_sync::{Guard, Shared, lock};

use crate::{
    DentryRef, Error, File, RecordMask, Result, Stat,
    caches::{
        load::{Answer, Found, Purpose, Version, bind_scanned, load_many, parts},
        read_ahead::{AHEAD, Job},
    },
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

/// Names that a listing loads at once before it knows whether they wait.
const PART: usize = 16;

/// Gathers the next entries of a backed tree, in the backing's order and with its cookies, until
/// the batch has `limit` of them. With their inodes if `plus` has the parts that the reader wants.
/// The caller holds no guard.
pub(crate) fn gather(file: &File, cookie: u64, plus: Option<Mask>, limit: usize, batch: &mut Batch) -> Result<()> {
    let dir = file.dentry();
    let inode = dir.0.inode();
    let backing = inode.shard.sb.ask_backing().ok_or(Error::NotSupported)?;
    let cookie = if cookie == AFTER_DOTDOT { 0 } else { cookie };
    let before = Version::of(inode)?;
    let first = batch.entries.len();
    let sb = dir.0.sb();
    if let Some(backed) = inode.backed_dir() {
        lock(&backed.statahead).listed(cookie, plus.is_none(), backed.ahead());
        lock(&backed.xattr_ahead).listed(cookie, !plus.is_some_and(Mask::wants_xattrs), backed.ahead());
    }
    let waiting = sb.foreground.enter();
    let lock = sb.lock_directory(inode.ino);
    let mut answers = Vec::new();
    let wanted = plus.map_or(RecordMask::empty(), parts);
    backing.scan(inode.ino, cookie, wanted, &mut |entry| {
        if plus.is_some() {
            answers.push(Answer::of(&entry));
        }
        batch.add(entry.name, (entry.ino, entry.kind), entry.cookie, None);
        batch.entries.len() < limit
    })?;
    drop(lock);
    let Some(mask) = plus else { return Ok(()) };
    let found = batch.iter().skip(first).zip(answers).map(|((name, _), answer)| Found { name, answer });
    let missing = bind_scanned(&dir.0, found, before, Purpose::Operation)?;
    let failed = load_missing(file, cookie, mask, &missing, batch.entries.len() - first).err();
    drop(waiting);
    // If a request has failed as a whole, no name of it is asked for alone.
    let child = |name: &[u8]| match failed {
        Some((error, names)) if names.contains(&name) => Err(error),
        _ => child(dir, name),
    };
    let children: Vec<_> = batch.iter().skip(first).map(|(name, _)| child(name)).collect();
    for (entry, child) in batch.entries[first..].iter_mut().zip(children) {
        match child {
            Ok(Some((stat, found))) => {
                // A scan may not know by which number the backing identifies an inode.
                if found.0.sb().id == dir.0.sb().id {
                    (entry.ino, entry.kind) = (found.0.inode().ino, found.0.inode().kind);
                }
                entry.plus = Some((stat, found));
            }
            // It disappeared meanwhile.
            Ok(None) => entry.error = Some(Error::NoEntry),
            Err(error) => entry.error = Some(error),
        }
    }
    Ok(())
}

/// Loads the names of a batch that are not cached. `listed` is the number of entries of the batch,
/// which begins after `cookie`.
///
/// If each name waits for a disk or a server, a read-ahead is started, which the open file keeps.
/// It also loads the names that are left out here, and [`child`] waits for them.
///
/// # Errors
/// Those of a request as a whole, and the names in it.
fn load_missing<'a, 'b>(
    file: &File,
    cookie: u64,
    mask: Mask,
    missing: &'a [&'b [u8]],
    listed: usize,
) -> std::result::Result<(), (Error, &'a [&'b [u8]])> {
    let (dir, sb) = (&file.dentry().0, file.dentry().0.sb());
    if let Some(ahead) = file.ahead.get() {
        if cookie == 0 {
            ahead.replace(None);
        } else if ahead.follow(listed) {
            return Ok(());
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    // Where names waited lately, a few tell whether they still do. Elsewhere one call is best.
    let tries = sb.namespace.options.read_ahead && sb.names_wait.load(Ordering::Relaxed);
    let few = if tries { PART.min(missing.len()) } else { missing.len() };
    let (first, rest) = missing.split_at(few);
    let began = Instant::now();
    let asked = load_many(dir, first, Purpose::Operation).map_err(|error| (error, missing))?;
    if asked >= PART / 2 {
        let have_waited = began.elapsed() >= CALL_WAITED * asked as u32;
        if sb.names_wait.load(Ordering::Relaxed) != have_waited {
            sb.names_wait.store(have_waited, Ordering::Relaxed);
        }
        if have_waited && sb.namespace.options.read_ahead {
            // Without one, this listing goes on alone.
            if let Ok(job) = Job::start(dir.clone(), cookie, AHEAD, mask) {
                job.follow(listed);
                file.ahead.get_or_init(Box::default).replace(Some(job));
                return Ok(());
            }
        }
    }
    load_many(dir, rest, Purpose::Operation).map(drop).map_err(|error| (error, rest))
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
