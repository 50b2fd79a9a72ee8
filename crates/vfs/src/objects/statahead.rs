//! Statahead: whether a program that has listed a directory looks its names up now, as `du` and
//! `find` do. Named after the read-ahead of Lustre.
//!
//! The program may look the names up in any order, and a hit says nothing of the next look-up. So
//! look-ups that had to wait are the evidence. After [`MISSES`] of them, some entries are read
//! ahead, from the start of the listing. If look-ups wait again afterwards, twice as many follow,
//! and so on. A program that wants few names causes one small read-ahead.
//!
//! The same holds for extended attributes, which `ls -l` and `getfattr` read of each name: a
//! directory has a second state for them.

/// So many look-ups that waited start a read-ahead.
const MISSES: u32 = 3;
/// Entries that are read ahead at first. Each time after that it is twice as many.
const FIRST: usize = 1024;
/// The most entries that are read ahead at once.
const MOST: usize = 65_536;

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
}

impl Statahead {
    /// Names are listed after this cookie, without what would be read ahead.
    pub(crate) fn listed(&mut self, cookie: u64) {
        if !self.is_running && (cookie == 0 || self.next.is_none()) {
            self.next = Some(Next { cookie: 0, entries: FIRST, misses: 0 });
        }
    }

    /// A look-up has waited. Returns the read-ahead that is to be started, if one is: the cookie
    /// where it begins, and the number of entries.
    pub(crate) fn missed(&mut self) -> Option<(u64, usize)> {
        let next = self.next.as_mut().filter(|_| !self.is_running)?;
        next.misses += 1;
        if next.misses < MISSES {
            return None;
        }
        let entries = next.entries;
        (next.misses, next.entries) = (0, MOST.min(2 * entries));
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

    /// What look-ups that wait start, until one starts something.
    fn misses(statahead: &mut Statahead) -> Option<(u64, usize)> {
        (1..MISSES).for_each(|_| assert_eq!(statahead.missed(), None));
        statahead.missed()
    }

    #[test]
    fn look_ups_that_wait_after_a_listing_read_ahead_more_and_more() {
        let mut statahead = Statahead::default();
        assert_eq!(misses(&mut statahead), None, "not listed");
        statahead.listed(5);
        assert_eq!(misses(&mut statahead), Some((0, FIRST)));
        assert_eq!(misses(&mut statahead), None, "it is running");
        statahead.listed(0);
        statahead.ended(Some(77));
        statahead.listed(5);
        assert_eq!(misses(&mut statahead), Some((77, 2 * FIRST)));
        for _ in 0..10 {
            statahead.ended(Some(99));
            misses(&mut statahead);
        }
        statahead.ended(Some(99));
        assert_eq!(misses(&mut statahead), Some((99, MOST)));
        statahead.ended(None);
        assert_eq!(misses(&mut statahead), None, "at the end");
        statahead.listed(0);
        assert_eq!(misses(&mut statahead), Some((0, FIRST)), "from the start again");
    }
}
