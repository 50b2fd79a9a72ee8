//! Statahead: whether a program that has listed a directory looks its names up now, as `du` and
//! `find` do. Named after the read-ahead of Lustre.
//!
//! The program may look the names up in any order, and a hit says nothing of the next look-up. So
//! look-ups that had to wait are the evidence. After [`MISSES`] of them, some entries are read
//! ahead, from the start of the listing. If look-ups wait again afterwards, twice as many follow,
//! and so on. A program that wants few names causes one small read-ahead.
//!
//! In a directory that is larger than the cache, entries may be evicted before the program wants
//! them: it may look names up in another order than that of the listing. So what is read ahead is
//! bounded by what was used of it ([`FOR_EACH_USED`]).
//!
//! The same holds for extended attributes, which `ls -l` and `getfattr` read of each name: a
//! directory has a second state for them.

/// So many look-ups that waited start a read-ahead.
const MISSES: u32 = 3;
/// Entries that are read ahead at first. Each time after that it is twice as many.
const FIRST: usize = 1024;
/// The most entries that are read ahead at once.
const MOST: usize = 65_536;
/// Beside what fits into the cache, so many entries are read ahead for each one that was used.
const FOR_EACH_USED: u64 = 4;

/// When a directory, or its extended attributes, are read ahead next. At first never: its names
/// were not listed.
#[derive(Debug, Default)]
pub(crate) struct Statahead {
    /// None if names were not listed, or if the directory was read ahead to its end.
    next: Option<Next>,
    is_running: bool,
}

/// The next read-ahead.
#[derive(Debug)]
struct Next {
    cookie: u64,
    entries: usize,
    /// Look-ups that have waited since the last one.
    misses: u32,
    /// What read-aheads had done in the directory when the listing began.
    before: Ahead,
}

/// What read-aheads have done in a directory.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ahead {
    /// How many inodes were loaded that were not cached.
    pub loaded: u64,
    /// How many of them were used.
    pub used: u64,
}

impl Statahead {
    /// Entries are listed after this cookie. `by_name`: without what would be read ahead.
    pub(crate) fn listed(&mut self, cookie: u64, by_name: bool, ahead: Ahead) {
        if by_name && !self.is_running && (cookie == 0 || self.next.is_none()) {
            self.next = Some(Next { cookie: 0, entries: FIRST, misses: 0, before: ahead });
        } else if cookie == 0
            && let Some(next) = &mut self.next
        {
            next.before = ahead;
        }
    }

    /// How many entries may be read ahead. `ahead`: what was done so far. `room`: how many may stay
    /// cached until they are used. 0: too few are left.
    pub(crate) fn allowed(&self, ahead: Ahead, room: usize) -> usize {
        let Some(Next { before, .. }) = self.next else { return room };
        let loaded = ahead.loaded.saturating_sub(before.loaded);
        let used = ahead.used.saturating_sub(before.used);
        let allowed = (room as u64).saturating_add(FOR_EACH_USED.saturating_mul(used)).saturating_sub(loaded);
        let allowed = usize::try_from(allowed).unwrap_or(usize::MAX).min(room);
        if allowed < FIRST.min(room) { 0 } else { allowed }
    }

    /// A look-up has waited. Returns the read-ahead that is to be started, if one is: the cookie
    /// where it begins, and the number of entries.
    pub(crate) fn missed(&mut self, allowed: usize) -> Option<(u64, usize)> {
        let next = self.next.as_mut().filter(|_| !self.is_running)?;
        next.misses += 1;
        if next.misses < MISSES {
            return None;
        }
        next.misses = 0;
        let entries = next.entries.min(allowed);
        if entries == 0 {
            return None;
        }
        next.entries = MOST.min(2 * entries);
        self.is_running = true;
        Some((next.cookie, entries))
    }

    /// The read-ahead has ended after this cookie. None: at the end of the directory, or it failed.
    pub(crate) fn ended(&mut self, cookie: Option<u64>) {
        self.is_running = false;
        match (cookie, &mut self.next) {
            (Some(cookie), Some(next)) => next.cookie = cookie,
            _ => self.next = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Ahead = Ahead { loaded: 0, used: 0 };

    /// What look-ups that wait start, until one starts something.
    fn misses(statahead: &mut Statahead, allowed: usize) -> Option<(u64, usize)> {
        (1..MISSES).for_each(|_| assert_eq!(statahead.missed(allowed), None));
        statahead.missed(allowed)
    }

    #[test]
    fn look_ups_that_wait_after_a_listing_read_ahead_more_and_more() {
        let mut statahead = Statahead::default();
        let misses = |statahead: &mut Statahead| misses(statahead, usize::MAX);
        assert_eq!(misses(&mut statahead), None, "not listed");
        statahead.listed(5, true, NOTHING);
        assert_eq!(misses(&mut statahead), Some((0, FIRST)));
        assert_eq!(misses(&mut statahead), None, "it is running");
        statahead.listed(0, true, NOTHING);
        statahead.ended(Some(77));
        statahead.listed(5, true, NOTHING);
        assert_eq!(misses(&mut statahead), Some((77, 2 * FIRST)));
        for _ in 0..10 {
            statahead.ended(Some(99));
            misses(&mut statahead);
        }
        statahead.ended(Some(99));
        assert_eq!(misses(&mut statahead), Some((99, MOST)));
        statahead.ended(None);
        assert_eq!(misses(&mut statahead), None, "at the end");
        statahead.listed(0, true, NOTHING);
        assert_eq!(misses(&mut statahead), Some((0, FIRST)), "from the start again");
    }

    /// Reads ahead as often as it may. `cached`: entries that need not be loaded.
    fn read(statahead: &mut Statahead, ahead: &mut Ahead, room: usize, mut cached: u64) -> u64 {
        let mut loaded = 0;
        loop {
            let allowed = statahead.allowed(*ahead, room);
            let Some((cookie, entries)) = misses(statahead, allowed) else { return loaded };
            let new = (entries as u64).saturating_sub(cached);
            cached = cached.saturating_sub(entries as u64);
            (ahead.loaded, loaded) = (ahead.loaded + new, loaded + new);
            statahead.ended(Some(cookie + 1));
        }
    }

    #[test]
    fn what_is_read_ahead_in_vain_is_bounded() {
        const ROOM: usize = 50_000;
        let (mut statahead, mut ahead) = (Statahead::default(), Ahead { loaded: 70, used: 7 });
        statahead.listed(0, true, ahead);
        let first = read(&mut statahead, &mut ahead, ROOM, 200_000);
        assert!(first > (ROOM - FIRST) as u64 && first <= ROOM as u64, "{first}");
        assert_eq!(statahead.allowed(ahead, ROOM), 0);
        ahead.used += 10_000;
        let second = read(&mut statahead, &mut ahead, ROOM, 0);
        assert!(second > 40_000 - FIRST as u64 && first + second <= ROOM as u64 + 40_000, "{second}");
        // The next listing, on a mount with attributes at first.
        statahead.listed(0, false, ahead);
        assert_eq!(statahead.allowed(ahead, ROOM), ROOM);
        // A small cache.
        assert_eq!(read(&mut statahead, &mut ahead, 4, 0), 4);
    }
}
