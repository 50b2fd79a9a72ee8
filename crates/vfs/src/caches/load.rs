//! Loads of names into the cache of a tree with a backing: one that a walk wants, or many that a
//! scan has found.
//!
//! Difficulties, and the solution of each:
//! 1. *Many threads want the same name.* One asks; the others wait and share the answer or the
//!    error (single-flight, `pando_sync::SingleFlight`).
//! 2. *The backing may be slow, and a stripe is shared with other names.* The backing is asked with
//!    no lock held. Then the name is locked, and the answer is valid unless something has changed
//!    meanwhile ([`Version`]).
//! 3. *Something changes all the time.* The second request is made with locks held: that of the
//!    name, and that of the inode in the first answer. Neither can change then.
//! 4. *Others change the tree in the backing.* The counts of its reports are compared before and
//!    after: that of the names, and that of inodes, which the answer may show as they were.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use pando_records::Mask;
use pando_sync::{Counted, Guard, Moment, pin};

use crate::{
    Charge, Error, NodeAttr, Record, RecordMask, Result,
    caches::{
        binding::{adopt_loaded, ask_for_names, bind_loaded, body_of, inode_report_count, report_count, unbind_stale},
        evict::evict_frozen,
        refresh::{move_directory, refresh_if_outdated},
    },
    objects::{
        dentry::Dentry,
        inode::Inode,
        lockable::Lockable,
        stat::attr_of,
        superblock::{Namespace, Request, SuperBlock},
    },
    types::xattr_map::XattrMap,
};

/// Loads a name that is not cached. By single-flight, no other thread loads it at the same time.
pub(crate) fn load(namespace: &Namespace, dir: &Counted<Dentry>, name: &[u8]) -> Result<()> {
    dir.sb().send_forgets();
    // Without parallel directory operations, the name lock is the lock of the directory.
    let at_first = if dir.sb().whole_directories { Locking::Locked(None) } else { Locking::Unlocked };
    let mut locking = at_first;
    loop {
        match try_load(namespace, dir, name, locking)? {
            Loaded::Done => return Ok(()),
            Loaded::Again(next) => {
                locking = if next == Locking::Unlocked { at_first } else { next };
                std::thread::yield_now();
            }
            Loaded::Elsewhere(moved) => {
                move_directory(namespace, dir, name, &moved)?;
                refresh_if_outdated(moved.inode())?;
            }
            Loaded::Bound(dentry) => return refresh_if_outdated(dentry.inode()),
        }
    }
}

/// The locks that are held during a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Locking {
    /// None. The answer is valid if nothing has happened meanwhile that could make it stale.
    Unlocked,
    /// The name lock, and the lock of the inode with this number, which the last answer was about.
    /// The answer is valid if it is about the same inode.
    Locked(Option<u64>),
}

/// The result of a load without an error.
enum Loaded {
    /// The cache has the name now, or a negative dentry.
    Done,
    /// Something has changed meanwhile: ask again, with these locks.
    Again(Locking),
    /// The name is bound to a directory that the cache has in another place.
    Elsewhere(Counted<Dentry>),
    /// The cache has the name now. Its inode was cached before.
    Bound(Counted<Dentry>),
}

fn try_load(namespace: &Namespace, dir: &Counted<Dentry>, name: &[u8], locking: Locking) -> Result<Loaded> {
    let inode = dir.inode();
    let sb = &inode.shard.sb;
    let backing = sb.ask_backing().ok_or(Error::NotSupported)?;
    let hash = sb.hash(inode.ino, name);
    let key = Lockable::name(inode, hash)?.key;
    let lock = |ino: Option<u64>| namespace.names.lock(&[key, ino.map_or(key, |ino| sb.inode_key(ino))]);
    let mut locks = if let Locking::Locked(ino) = locking { Some(lock(ino)) } else { None };
    // Whether another thread has loaded or created the name meanwhile.
    let is_known = |guard: &Guard| -> Result<bool> {
        let directory = inode.directory()?;
        let known = directory.dirent(hash, name, guard).is_some();
        Ok(known || directory.is_known_negative(hash, name, guard))
    };
    if is_known(&pin())? {
        return Ok(Loaded::Done);
    }
    let before = Version::of(inode)?;
    let answer = backing.lookup_one(inode.ino, name)?;
    if locks.is_none() {
        locks = Some(lock(None));
    }
    let guard = pin();
    let found = answer.as_ref().map(|attr| attr.ino);
    // An answer about an inode is valid if the inode's lock was held, or if the inode has not left
    // the cache since.
    let asked = if locking == Locking::Locked(found) { None } else { Some(before.moment) };
    if locking == Locking::Unlocked {
        if is_known(&guard)? {
            return Ok(Loaded::Done);
        }
        if !Version::of(inode)?.same_if_claimed(before) {
            return Ok(Loaded::Again(Locking::Locked(found)));
        }
    }
    // An answer that is older than a report must not be seen. A report that comes from here on
    // finds the name locked.
    if report_count(sb, inode.ino) != before.reports {
        return Ok(Loaded::Again(Locking::Unlocked));
    }
    let directory = inode.directory()?;
    let backed = directory.backed.as_ref().ok_or(Error::NotSupported)?;
    let result = match answer {
        None => {
            backed.insert_negative(hash, name, &guard);
            Loaded::Done
        }
        Some(attr) => match dentry_for(sb, &attr, None, asked, before.inode_reports, &guard)? {
            None => return Ok(Loaded::Again(Locking::Locked(found))),
            Some(DentryFor::Elsewhere(dentry)) => {
                report_if_changed(&dentry, &attr, &guard);
                return Ok(Loaded::Elsewhere(dentry));
            }
            Some(DentryFor::New(dentry)) => {
                bind_loaded(dir, directory, hash, name, dentry, &guard)?;
                Loaded::Done
            }
            Some(DentryFor::Link(dentry)) => {
                report_if_changed(&dentry, &attr, &guard);
                bind_loaded(dir, directory, hash, name, dentry.clone(), &guard)?;
                Loaded::Bound(dentry)
            }
        },
    };
    // A refresh or a report that came before the insertion has not seen the new entry. So if the
    // number of reports has changed, the entry is dropped.
    if report_count(sb, inode.ino) != before.reports {
        backed.remove_negative(hash, name, &guard);
        unbind_stale(directory, hash, name, &guard);
        return Ok(Loaded::Again(Locking::Unlocked));
    }
    drop(locks);
    Ok(result)
}

/// If the backing has newer attributes of a cached inode, threads that find it by the new name ask
/// for them.
fn report_if_changed(dentry: &Dentry, attr: &NodeAttr, guard: &Guard) {
    if attr_of(dentry.inode(), guard) != *attr {
        dentry.inode().set_reported();
    }
}

/// The dentry for a loaded name.
enum DentryFor {
    /// A new inode was loaded. This is its first dentry, or, if the inode has several names, an
    /// alias.
    New(Counted<Dentry>),
    /// An alias of an inode that was cached.
    Link(Counted<Dentry>),
    /// A directory that was cached. It can have only one place.
    Elsewhere(Counted<Dentry>),
}

/// A dentry for a name of the inode that an answer describes. None in two cases. Either the old
/// inode of this number is being released, and the evicting thread must finish first. Or the answer
/// may be from before an eviction: older than attributes that the cache had, or with a number that
/// the backing was told to forget.
///
/// `asked` is the moment before the request. None if the inode's lock was held since then.
/// `reports` is the number of reports of inodes from before the request.
fn dentry_for(
    sb: &Arc<SuperBlock>,
    attr: &NodeAttr,
    xattrs: Option<XattrMap>,
    asked: Option<Moment>,
    reports: u64,
    guard: &Guard,
) -> Result<Option<DentryFor>> {
    sb.expect_mounted()?;
    let found = |known: Counted<Dentry>| {
        Some(if known.is_dir() {
            DentryFor::Elsewhere(known)
        } else {
            DentryFor::Link(Dentry::new_link(known, sb.links.next_id()))
        })
    };
    let has_left = || asked.is_some_and(|moment| sb.inodes.departures.any_since(attr.ino, moment));
    if let Some(known) = sb.inodes.get(attr.ino, guard) {
        return Ok(if has_left() { None } else { found(known) });
    }
    // The inode seemed to have lost its last name, because others had created one that this cache
    // did not know, and a server still counts its number. This cannot happen to a directory: it has
    // one name, whose removal is final.
    if let Some(known) = sb.nodes.get(attr.ino, guard).filter(|known| !known.is_dir())
        && adopt_loaded(sb, &known, reports, guard)
    {
        return Ok(found(known));
    }
    let shard = sb.shard(guard)?;
    sb.driver.charge(Charge::Inode)?;
    let dentry = Counted::new(Dentry::new(Inode::loaded(shard, attr, body_of(sb, attr))));
    // Before other threads find the inode: a refresh then finds these, too.
    if let Some(xattrs) = xattrs {
        dentry.inode().keep_xattrs(xattrs);
    }
    // Two threads may load one inode by two names. One inode wins, and both use it (P7).
    if !adopt_loaded(sb, &dentry, reports, guard) {
        return Ok(sb.inodes.get(attr.ino, guard).filter(|_| !has_left()).and_then(found));
    }
    // Checked after the insertion: no inode of this number was cached and evicted since the
    // request. Otherwise the new inode is removed again. If another thread uses it already, its own
    // answer was valid.
    if has_left() {
        if let Some(frozen) = sb.inodes.freeze(&dentry, 1, guard) {
            evict_frozen(sb, dentry.inode(), frozen, guard);
            // A guard is held here. The next load sends the forget.
            sb.forgets.leave_to_others(attr.ino);
        }
        return Ok(None);
    }
    let single = attr.nlink <= 1 || dentry.is_dir();
    Ok(Some(DentryFor::New(if single { dentry } else { Dentry::new_link(dentry, sb.links.next_id()) })))
}

/// The state of a directory's cached names and of the tree's inodes at some instant. Each change
/// gives one of the fields a new value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Version {
    /// Names that were created or removed.
    changes: u64,
    /// Names that were dropped from the cache without a change.
    dropped: u64,
    /// Names that scans have bound.
    scanned: u64,
    /// Inodes that leave the cache from now on do so after this moment.
    moment: Moment,
    /// The number of reports that concern names of the directory.
    reports: u64,
    /// The number of reports of inodes.
    inode_reports: u64,
}

impl Version {
    pub(crate) fn of(dir: &Inode) -> Result<Self> {
        let (sb, directory) = (&dir.shard.sb, dir.directory()?);
        // Read first: the answer to the following request may already contain changes that others
        // make after this.
        let (reports, inode_reports) = (report_count(sb, dir.ino), inode_report_count(sb));
        let (dropped, scanned) = directory
            .backed
            .as_ref()
            .map_or((0, 0), |backed| (backed.dropped(), backed.scanned.load(Ordering::Relaxed)));
        Ok(Self {
            changes: directory.changes(),
            dropped,
            scanned,
            moment: sb.inodes.departures.now(),
            reports,
            inode_reports,
        })
    }

    /// Whether nothing has happened to a name since `before`. The caller holds its lock, and the
    /// name is not bound.
    ///
    /// A thread that has changed the name, or has bound it and dropped it again, has counted that
    /// under the name lock.
    fn same_names(self, before: Self) -> bool {
        (self.changes, self.dropped) == (before.changes, before.dropped)
    }

    /// As [`Version::same_names`], for a thread that has claimed the name since before `before`.
    /// Only scans bind names that others have claimed. So names that an eviction drops do not
    /// count. There are many while the cache is full.
    fn same_if_claimed(self, before: Self) -> bool {
        (self.changes, self.scanned) == (before.changes, before.scanned)
    }
}

/// The optional parts of records, for a reader that wants these parts of each entry.
pub(crate) fn parts(mask: Mask) -> RecordMask {
    if mask.wants_xattrs() { RecordMask::ATTR | RecordMask::XATTRS } else { RecordMask::ATTR }
}

/// A name that a scan has found.
pub(crate) struct Found<'b> {
    pub name: &'b [u8],
    /// None if the backing has not added the attributes.
    pub answer: Option<Answer>,
}

/// The backing's answer about a name.
pub(crate) struct Answer {
    attr: NodeAttr,
    /// None if they are unknown.
    xattrs: Option<XattrMap>,
}

impl Answer {
    /// The optional parts of a record. None if the backing has not added the attributes.
    pub(crate) fn of(record: &Record<'_>) -> Option<Self> {
        let xattrs = record.xattrs.map(|xattrs| xattrs.iter().map(|(name, value)| (name, value)).collect());
        record.attr.map(|attr| Self { attr: attr.clone(), xattrs })
    }
}

impl From<NodeAttr> for Answer {
    fn from(attr: NodeAttr) -> Self {
        Self { attr, xattrs: None }
    }
}

/// The purpose of names that are loaded together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// An operation, now.
    Operation,
    /// An operation perhaps, later.
    ReadAhead,
}

/// Binds the names of a directory that a scan has found with their attributes. `before` was taken
/// before the scan. A name that has changed since is left out, and a walk that wants it loads it.
/// Returns the names that are not cached and came without attributes.
pub(crate) fn bind_scanned<'b>(
    dir: &Counted<Dentry>,
    found: impl Iterator<Item = Found<'b>>,
    before: Version,
    purpose: Purpose,
) -> Result<Vec<&'b [u8]>> {
    let directory = dir.inode().directory()?;
    let hashes = dir.sb().names(dir.inode().ino);
    let missing: Vec<_> = {
        let guard = pin();
        found.filter(|found| directory.dirent(hashes.hash(found.name), found.name, &guard).is_none()).collect()
    };
    let sb = &dir.inode().shard.sb;
    sb.make_room(missing.len());
    let (mut bare, mut names) = (Vec::new(), Names { dir, before, by: By::Scan, purpose, pauses: LOCK_PAUSES });
    for Found { name, answer } in missing {
        match answer {
            Some(answer) => names.bind(name, answer)?,
            None => bare.push(name),
        }
    }
    Ok(bare)
}

/// Looks up names of a directory in one call, and binds those that exist. Other threads that want
/// one of them wait for this call. Names that another thread is loading are left out. Returns how
/// many names were asked for.
pub(crate) fn load_many(dir: &Counted<Dentry>, names: &[&[u8]], purpose: Purpose) -> Result<usize> {
    let inode = dir.inode();
    let (sb, directory) = (&inode.shard.sb, inode.directory()?);
    sb.make_room(names.len());
    let requests: Vec<Request> = names.iter().map(|&name| (inode.ino, name.into())).collect();
    let mut claims: Vec<_> =
        requests.iter().filter_map(|request| Some((&*request.1, sb.requests.claim(request)?))).collect();
    {
        // A thread that was loading a name has bound it before it ended its claim.
        let guard = pin();
        claims.retain(|(name, _)| directory.dirent(sb.hash(inode.ino, name), name, &guard).is_none());
    }
    let claimed: Vec<&[u8]> = claims.iter().map(|(name, _)| *name).collect();
    if claimed.is_empty() {
        return Ok(0);
    }
    sb.send_forgets();
    let before = Version::of(inode)?;
    let (found, asked) = ask_for_names(inode, claimed.len(), |backing, each| backing.lookup(inode.ino, &claimed, each));
    asked?;
    if purpose == Purpose::Operation {
        sb.counts.misses.add(claimed.len() as u64);
    }
    let mut names = Names { dir, before, by: By::Claim, purpose, pauses: LOCK_PAUSES };
    for (name, attr) in claimed.iter().zip(found) {
        attr.map_or(Ok(()), |attr| names.bind(name, attr.into()))?;
    }
    Ok(claimed.len())
}

/// How often a batch of names waits for locks, for [`LOCK_PAUSE`] each time. A lock has many names.
/// The change of one of them may wait long for the backing, and a load of others must not wait for
/// it.
const LOCK_PAUSES: u32 = 500;
/// See [`LOCK_PAUSES`].
const LOCK_PAUSE: Duration = Duration::from_micros(200);

/// How a name was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// By a scan. Other threads may have loaded the name meanwhile.
    Scan,
    /// By a look-up, for which the caller has claimed the name.
    Claim,
}

/// Names of a directory that the backing has found together.
struct Names<'a> {
    dir: &'a Counted<Dentry>,
    /// Taken before the request.
    before: Version,
    by: By,
    purpose: Purpose,
    /// How often the batch may still wait for a lock.
    pauses: u32,
}

impl Names<'_> {
    /// Binds a name, unless it stays locked, or may have changed since the request.
    fn bind(&mut self, name: &[u8], answer: Answer) -> Result<()> {
        let is_bound = self.try_bind(name, answer)?;
        if self.purpose == Purpose::ReadAhead {
            let counts = &self.dir.sb().counts;
            counts.ahead.add(1);
            if !is_bound {
                counts.ahead_wasted.add(1);
            }
        }
        Ok(())
    }

    /// Returns whether the name was bound to a new inode.
    fn try_bind(&mut self, name: &[u8], answer: Answer) -> Result<bool> {
        let (dir, before) = (self.dir, self.before);
        let inode = dir.inode();
        let (sb, directory) = (&inode.shard.sb, inode.directory()?);
        let hash = sb.hash(inode.ino, name);
        let key = Lockable::name(inode, hash)?.key;
        let _lock = loop {
            match sb.namespace.names.try_lock_one(key) {
                Some(lock) => break lock,
                None if self.pauses == 0 => return Ok(false),
                None => std::thread::sleep(LOCK_PAUSE),
            }
            self.pauses -= 1;
        };
        let guard = pin();
        // Checked under the name lock: a thread that has changed the name since has counted that
        // before it released the lock.
        let now = Version::of(inode)?;
        let is_same = if self.by == By::Scan { now.same_names(before) } else { now.same_if_claimed(before) };
        if directory.dirent(hash, name, &guard).is_some() || !is_same || now.reports != before.reports {
            return Ok(false);
        }
        // An inode that was cached may be newer than `answer`. A walk that wants this name loads it
        // alone.
        let Answer { attr, xattrs } = answer;
        let dentry = dentry_for(sb, &attr, xattrs, Some(before.moment), before.inode_reports, &guard);
        let Ok(Some(DentryFor::New(dentry))) = dentry else { return Ok(false) };
        if let (By::Scan, Some(backed)) = (self.by, &directory.backed) {
            backed.scanned.fetch_add(1, Ordering::Relaxed);
        }
        if self.purpose == Purpose::ReadAhead {
            dentry.inode().set_read_ahead();
            directory.backed.iter().for_each(|backed| backed.note_ahead(false));
        }
        if bind_loaded(dir, directory, hash, name, dentry, &guard).is_ok()
            && report_count(sb, inode.ino) != before.reports
        {
            unbind_stale(directory, hash, name, &guard);
        }
        Ok(true)
    }
}
