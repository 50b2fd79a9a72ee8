//! The times of an inode: automatic stamps, and times that utimens has set.

use std::sync::atomic::{AtomicI64, Ordering};

use pando_sync::{AtomicCounted, Counted, Guard, Object};

use crate::{AttrMask, NodeAttr, Timestamp};

/// Times that utimens has set, each as (value, time of the call). A value is in force until an
/// automatic stamp that is younger than the call.
#[derive(Debug, Clone, Copy)]
struct ExplicitTimes {
    atime: Option<(i64, i64)>,
    mtime: Option<(i64, i64)>,
}

impl Object for ExplicitTimes {}

/// The times of an inode. Automatic stamps only rise, each above the one before, so a change is
/// visible whatever the clock says. A time that utimens has set is in force until the next
/// automatic stamp.
///
/// The fields are atomic words without order among each other; `btime` is immutable. Readers merge
/// them, for a directory together with the stamps of its stripes.
pub(crate) struct Times {
    atime: AtomicI64,
    pub mtime: AtomicI64,
    pub ctime: AtomicI64,
    btime: i64,
    explicit: AtomicCounted<ExplicitTimes>,
}

impl Times {
    pub(crate) fn new(now: i64) -> Self {
        Self {
            atime: AtomicI64::new(now),
            mtime: AtomicI64::new(now),
            ctime: AtomicI64::new(now),
            btime: now,
            explicit: AtomicCounted::new(None),
        }
    }

    pub(crate) fn loaded(attr: &NodeAttr) -> Self {
        let now = Timestamp::now().0;
        // A time in the future can only have been set explicitly. It is in force until the next
        // change, and automatic stamps do not start from it.
        let explicit = |time: Timestamp| (time.0 > now).then_some((time.0, now));
        let (atime, mtime) = (explicit(attr.atime), explicit(attr.mtime));
        let record = (atime.is_some() || mtime.is_some()).then(|| Counted::new(ExplicitTimes { atime, mtime }));
        Self {
            atime: AtomicI64::new(attr.atime.0.min(now)),
            mtime: AtomicI64::new(attr.mtime.0.min(now)),
            ctime: AtomicI64::new(attr.ctime.0),
            btime: attr.btime.0,
            explicit: AtomicCounted::new(record),
        }
    }

    /// Applies the times that the backing has given, as if utimens had set them: each is in force
    /// until a younger change. The attributes in `known` are newer here and stay.
    pub(crate) fn refresh(&self, attr: &NodeAttr, known: AttrMask, striped: i64, guard: &Guard) {
        let unless_known = |time, which| (!known.contains(which)).then_some(time);
        let (atime, mtime) = (unless_known(attr.atime, AttrMask::ATIME), unless_known(attr.mtime, AttrMask::MTIME));
        self.set(guard, atime, mtime, striped, Timestamp::now().0);
        if !known.contains(AttrMask::CTIME) {
            // Relaxed: an independent value.
            self.ctime.store(attr.ctime.0, Ordering::Relaxed);
        }
    }

    /// The contents have changed.
    pub(crate) fn modified(&self, now: i64) {
        raise(&self.mtime, now);
        raise(&self.ctime, now);
    }

    /// The attributes have changed. Returns the stamp.
    pub(crate) fn changed(&self, now: i64) -> i64 {
        raise(&self.ctime, now)
    }

    /// The contents were read. Stamps atime if relatime requires it, and returns whether it did.
    /// `striped`: see [`Times::mtime`]. Analogous to `relatime_need_update()`.
    pub(crate) fn accessed(&self, guard: &Guard, striped: i64, now: impl FnOnce() -> i64) -> bool {
        const DAY_NS: i64 = 24 * 3600 * 1_000_000_000;
        let (atime, mtime, ctime) = (self.atime(guard), self.mtime(guard, striped), self.ctime(striped));
        let now = now();
        // atime is not later than the last change, or is at least a day old.
        let due = atime <= mtime || atime <= ctime || now.saturating_sub(atime) >= DAY_NS;
        if due {
            raise(&self.atime, now);
        }
        due
    }

    pub(crate) fn atime(&self, guard: &Guard) -> i64 {
        merge(self.atime.load(Ordering::Relaxed), self.explicit.load(guard).and_then(|e| e.to_ref().atime))
    }

    /// `striped` is the latest stamp of a directory's stripes
    /// ([`striped_stamp`](crate::objects::inode::Inode::striped_stamp)).
    pub(crate) fn mtime(&self, guard: &Guard, striped: i64) -> i64 {
        let auto = self.mtime.load(Ordering::Relaxed).max(striped);
        merge(auto, self.explicit.load(guard).and_then(|e| e.to_ref().mtime))
    }

    pub(crate) fn ctime(&self, striped: i64) -> i64 {
        self.ctime.load(Ordering::Relaxed).max(striped)
    }

    pub(crate) fn btime(&self) -> i64 {
        self.btime
    }

    /// utimens. `now` is the clock at the call; `striped`: see [`Times::mtime`]. The caller stamps
    /// ctime.
    pub(crate) fn set(
        &self,
        guard: &Guard,
        atime: Option<Timestamp>,
        mtime: Option<Timestamp>,
        striped: i64,
        now: i64,
    ) {
        // Not before the present stamps, which may be later than `now` if the clock was set back.
        let atime_at = now.max(self.atime.load(Ordering::Relaxed));
        let mtime_at = now.max(self.mtime.load(Ordering::Relaxed)).max(striped);
        loop {
            let current = self.explicit.load(guard);
            let old = current.map_or(ExplicitTimes { atime: None, mtime: None }, |e| *e.to_ref());
            let new = ExplicitTimes {
                atime: atime.map(|t| (t.0, atime_at)).or(old.atime),
                mtime: mtime.map(|t| (t.0, mtime_at)).or(old.mtime),
            };
            if self.explicit.compare_exchange(current, Some(Counted::new(new))).is_ok() {
                break;
            }
        }
        // The next stamp is later than the call, even by a clock that is set back.
        if atime.is_some() {
            self.atime.fetch_max(atime_at, Ordering::Relaxed);
        }
        if mtime.is_some() {
            self.mtime.fetch_max(mtime_at, Ordering::Relaxed);
        }
    }
}

/// `auto` if it is younger than the call in the explicit `(value, time of the call)`, otherwise the
/// explicit value.
fn merge(auto: i64, explicit: Option<(i64, i64)>) -> i64 {
    match explicit {
        Some((value, set_at)) if auto <= set_at => value,
        _ => auto,
    }
}

/// Raises a stamp to `now`, or by one nanosecond if the clock has not advanced, so that two
/// successive changes differ. Returns the new stamp.
fn raise(stamp: &AtomicI64, now: i64) -> i64 {
    let mut old = stamp.load(Ordering::Relaxed);
    loop {
        let new = if now > old { now } else { old.saturating_add(1) };
        // Relaxed: an independent value, ordered with nothing.
        match stamp.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return new,
            Err(now) => old = now,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pando_sync::{BlockBox, pin};

    use super::*;
    use crate::{
        FileKind,
        driver::tests::Nothing,
        objects::{
            directory::Directory,
            inode::{Body, Inode},
            stat::stat_of,
            superblock::{Namespace, Shard, SuperBlock},
        },
        types::cred::PermView,
    };

    /// Stamps of a clock that was ahead count as older than a time that is set now.
    #[test]
    fn utimens_wins_over_stamps_of_a_clock_that_was_ahead() {
        let (times, guard, set) = (Times::new(2000), pin(), |time| Some(Timestamp(time)));
        times.modified(3000);
        times.set(&guard, set(5), set(6), i64::MIN, 1000);
        assert_eq!((times.atime(&guard), times.mtime(&guard, i64::MIN)), (5, 6));
        let striped = 4000;
        times.set(&guard, None, set(7), striped, 1000);
        assert_eq!((times.atime(&guard), times.mtime(&guard, striped)), (5, 7));
        assert_eq!(times.mtime(&guard, striped + 1), striped + 1, "changed since");
    }

    /// A read stamps atime only if it is not later than the last change of contents or attributes,
    /// or at least a day old.
    #[test]
    fn atime_follows_relatime() {
        const DAY: i64 = 24 * 3600 * 1_000_000_000;
        let guard = pin();
        let cases = [
            // atime, mtime, ctime, now
            (100, 50, 50, 200, false),
            (100, 99, 99, 99 + DAY, false),
            (100, 99, 99, 100 + DAY, true),
            (100, 100, 50, 200, true),
            (100, 50, 100, 200, true),
        ];
        for (atime, mtime, ctime, now, due) in cases {
            for striped in [false, true] {
                let times = Times::new(0);
                times.atime.store(atime, Ordering::Relaxed);
                times.mtime.store(if striped { 0 } else { mtime }, Ordering::Relaxed);
                times.ctime.store(if striped { 0 } else { ctime }, Ordering::Relaxed);
                let stamp = if striped { mtime.max(ctime) } else { i64::MIN };
                assert_eq!(times.accessed(&guard, stamp, || now), due, "{atime} {mtime} {ctime} {now}");
                assert_eq!(times.atime(&guard), if due { now } else { atime });
            }
        }
    }

    /// A change after utimens is visible, although the clock was set back in between.
    #[test]
    fn changes_are_visible_after_the_clock_was_set_back() {
        let (times, guard) = (Times::new(1000), pin());
        times.set(&guard, Some(Timestamp(5)), Some(Timestamp(6)), i64::MIN, 3000);
        times.modified(2000);
        assert_eq!(times.mtime(&guard, i64::MIN), 3001);
        assert!(times.accessed(&guard, i64::MIN, || 2000));
        assert_eq!(times.atime(&guard), 3001);

        let namespace = Namespace::new(&crate::VfsOptions::new());
        let sb = SuperBlock::new(Box::new(Nothing), Arc::new(namespace), None);
        let (shard, perm) = (Arc::new(Shard::new(sb)), PermView { mode: 0o755, uid: 0, gid: 0 });
        let body = Body::Directory(BlockBox::new(Directory::new(false)));
        let dir = Inode::new(shard, FileKind::Directory, perm.into(), body, 1, 3000);
        let shown = || {
            let stat = stat_of(&dir, &guard);
            (stat.mtime.0, stat.ctime.0)
        };
        for changes in 1..4 {
            dir.entries_changed(2000);
            assert_eq!(shown(), (3000 + changes, 3000 + changes));
        }
        for changes in 4..6 {
            dir.touch(2000);
            assert_eq!(shown(), (3003, 3000 + changes), "not hidden behind the entries");
        }
        dir.times.set(&guard, None, Some(Timestamp(6)), dir.striped_stamp(), 5000);
        dir.entries_changed(4000);
        assert_eq!(shown(), (5001, 5001));
        dir.times.changed(7000);
        dir.entries_changed(6000);
        assert_eq!(shown(), (6000, 7001));
    }
}
