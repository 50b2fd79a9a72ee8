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
    /// How many entries were read ahead since the listing began, and how many had been used before.
    read: u64,
    used_before: u64,
}

impl Next {
    /// How many entries may be read ahead. `used`: how many were used so far. `room`: how many may
    /// stay cached until they are used.
    fn allowed(&self, used: u64, room: usize) -> usize {
        let used = used.saturating_sub(self.used_before);
        let allowed = (room as u64).saturating_add(FOR_EACH_USED.saturating_mul(used)).saturating_sub(self.read);
        usize::try_from(allowed).unwrap_or(usize::MAX).min(room)
    }
}

impl Statahead {
    /// Names are listed after this cookie, without what would be read ahead. `used`: how many
    /// entries of the directory that were read ahead were used so far.
    pub(crate) fn listed(&mut self, cookie: u64, used: u64) {
        if !self.is_running && (cookie == 0 || self.next.is_none()) {
            self.next = Some(Next { cookie: 0, entries: FIRST, misses: 0, read: 0, used_before: used });
        }
    }

    /// A look-up has waited. Returns the read-ahead that is to be started, if one is: the cookie
    /// where it begins, and the number of entries. `room`: how many may stay cached until they are
    /// used.
    pub(crate) fn missed(&mut self, used: u64, room: usize) -> Option<(u64, usize)> {
        let next = self.next.as_mut().filter(|_| !self.is_running)?;
        next.misses += 1;
        if next.misses < MISSES {
            return None;
        }
        next.misses = 0;
        let allowed = next.allowed(used, room);
        if allowed < FIRST.min(room) {
            return None;
        }
        let entries = next.entries.min(allowed);
        (next.read, next.entries) = (next.read + entries as u64, MOST.min(2 * entries));
        self.is_running = true;
        Some((next.cookie, entries))
    }

    /// Whether too little was used of what was read ahead.
    pub(crate) fn is_vain(&self, used: u64, room: usize) -> bool {
        self.next.as_ref().is_some_and(|next| next.allowed(used, room) < FIRST.min(room))
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

    /// Any number fits into the cache.
    const ROOM: usize = usize::MAX / 4;

    /// What look-ups that wait start, until one starts something.
    fn misses(statahead: &mut Statahead, used: u64, room: usize) -> Option<(u64, usize)> {
        (1..MISSES).for_each(|_| assert_eq!(statahead.missed(used, room), None));
        statahead.missed(used, room)
    }

    #[test]
    fn look_ups_that_wait_after_a_listing_read_ahead_more_and_more() {
        let mut statahead = Statahead::default();
        let misses = |statahead: &mut Statahead| misses(statahead, 0, ROOM);
        assert_eq!(misses(&mut statahead), None, "not listed");
        statahead.listed(5, 0);
        assert_eq!(misses(&mut statahead), Some((0, FIRST)));
        assert_eq!(misses(&mut statahead), None, "it is running");
        statahead.listed(0, 0);
        statahead.ended(Some(77));
        statahead.listed(5, 0);
        assert_eq!(misses(&mut statahead), Some((77, 2 * FIRST)));
        for _ in 0..10 {
            statahead.ended(Some(99));
            misses(&mut statahead);
        }
        statahead.ended(Some(99));
        assert_eq!(misses(&mut statahead), Some((99, MOST)));
        statahead.ended(None);
        assert_eq!(misses(&mut statahead), None, "at the end");
        statahead.listed(0, 0);
        assert_eq!(misses(&mut statahead), Some((0, FIRST)), "from the start again");
    }

    /// Reads ahead as often as it may. Returns how many entries.
    fn read(statahead: &mut Statahead, used: u64, room: usize) -> u64 {
        let one = |_| {
            let (cookie, entries) = misses(statahead, used, room)?;
            statahead.ended(Some(cookie + 1));
            Some(entries as u64)
        };
        (0..).map_while(one).sum()
    }

    #[test]
    fn what_is_read_ahead_in_vain_is_bounded() {
        const ROOM: usize = 50_000;
        let mut statahead = Statahead::default();
        statahead.listed(0, 7);
        let first = read(&mut statahead, 7, ROOM);
        assert!(first > (ROOM - FIRST) as u64 && first <= ROOM as u64, "{first}");
        assert!(statahead.is_vain(7, ROOM));
        // 10,000 of them are used.
        let second = read(&mut statahead, 10_007, ROOM);
        assert!(second > 40_000 - FIRST as u64 && first + second <= ROOM as u64 + 40_000, "{second}");
        statahead.listed(0, 10_007);
        assert!(!statahead.is_vain(10_007, ROOM), "another listing");
        // A small cache.
        assert_eq!(read(&mut statahead, 10_007, 4), 4);
    }
}
