//! Read-ahead of inode clusters, while the caller works alone.
//!
//! XFS and btrfs place inodes in the order of their creation, many in a block that is read at once.
//! Where names come in that order too, one entry in dozens waits for the device, and the entries
//! after it do not. More threads that read the same entries would be in one another's way. A thread
//! that reads the first entry of each cluster, ahead of the caller, is not: the caller finds the
//! inodes in the kernel's caches. (gfs2's dirreadahead did this within the file system, 2012 to
//! 2014.)

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, channel},
    },
};

use pando_records::Names;
use rustix::fs::StatxFlags;

use crate::{
    kernel::{
        calls::{UNFOLLOWED, retry},
        meter::{Cost, Meter},
    },
    workers::threads::{Threads, Work},
};

/// Consecutive inode numbers that are read once. A cluster of XFS has 32 inodes of 512 bytes. A
/// leaf of btrfs has so many with their names and a few attributes.
const CLUSTER: u64 = 16;
/// Names whose clusters have fewer entries are not in inode order, and each would be read twice.
const LEAST_PER_CLUSTER: usize = 4;

/// A thread that is ahead of the caller in the same names.
pub(super) struct ClusterReadahead {
    ended: Arc<AtomicBool>,
    /// The cost, sent when the thread no longer holds the names.
    cost: Receiver<Cost>,
}

/// The first entry of each cluster after the one at `from`.
fn leaders(names: &Names, from: usize) -> impl Iterator<Item = usize> {
    let cluster = |index| names.ino(index) / CLUSTER;
    (from + 1..names.len()).filter(move |&index| cluster(index) != cluster(index - 1))
}

impl ClusterReadahead {
    /// For the names from `from` on. None if they are not in inode order, or if there is no thread.
    pub(super) fn start(threads: &Threads, dir: &Arc<OwnedFd>, names: &Arc<Names>, from: usize) -> Option<Self> {
        let most = (names.len() - from) / LEAST_PER_CLUSTER;
        if leaders(names, from).nth(most).is_some() {
            return None;
        }
        let ended = Arc::new(AtomicBool::new(false));
        let (done, cost) = channel();
        let (dir, names, told) = (dir.clone(), names.clone(), ended.clone());
        let ask = move || {
            let cost = ask(&dir, &names, from, &told);
            drop(names);
            // The receiver may be gone, and needs no cost then.
            let _ = done.send(cost);
        };
        threads.submit(Work::Single(Box::new(ask)), 1).then_some(Self { ended, cost })
    }

    /// Waits for the call that is in the kernel. Returns what the calls cost, or none if no thread
    /// began.
    pub(super) fn end(self) -> Option<Cost> {
        self.ended.store(true, Ordering::Relaxed);
        self.cost.recv().ok()
    }
}

fn ask(dir: &OwnedFd, names: &Names, from: usize, ended: &AtomicBool) -> Cost {
    let (meter, mut asked) = (Meter::start(), 0);
    for index in leaders(names, from) {
        if ended.load(Ordering::Relaxed) {
            break;
        }
        // The caller will see the answer itself.
        let _ = retry(|| rustix::fs::statx(dir.as_fd(), names.name_c(index), UNFOLLOWED, StatxFlags::TYPE));
        asked += 1;
    }
    meter.read(asked)
}

#[cfg(test)]
mod tests {
    use pando_records::Page;

    use super::*;

    /// Names `0`, `1` and so on, with these inode numbers.
    fn names(inos: &[u64]) -> Arc<Names> {
        let mut names = Names::default();
        names.push_page(Page::new());
        let mut at = 0;
        for (name, &ino) in inos.iter().enumerate() {
            let name = format!("{name}\0");
            let end = at + name.len();
            names.last_page_mut()[at..end].copy_from_slice(name.as_bytes());
            names.push_entry(at, end, ino, 0, 0);
            at = end;
        }
        Arc::new(names)
    }

    fn dir() -> Arc<OwnedFd> {
        Arc::new(std::fs::File::open("/").unwrap().into())
    }

    #[test]
    fn leaders_are_the_first_of_each_cluster() {
        let ascending: Vec<u64> = (30..70).collect();
        assert_eq!(leaders(&names(&ascending), 0).collect::<Vec<_>>(), [2, 18, 34]);
        assert_eq!(leaders(&names(&ascending), 18).collect::<Vec<_>>(), [34], "the caller reads 18 itself");
        let descending: Vec<u64> = (30..70).rev().collect();
        assert_eq!(leaders(&names(&descending), 0).collect::<Vec<_>>(), [6, 22, 38]);
        assert_eq!(leaders(&names(&[7]), 0).count(), 0);
    }

    #[test]
    fn each_cluster_is_read_once_until_the_end() {
        let names = names(&(0..160).collect::<Vec<_>>());
        let asked = |ended| ask(&dir(), &names, 0, &AtomicBool::new(ended)).entries;
        assert_eq!((asked(false), asked(true)), (9, 0));
    }

    #[test]
    fn names_are_free_after_the_end() {
        let threads = Threads::new();
        for _ in 0..100 {
            let mut names = names(&(0..1000).collect::<Vec<_>>());
            let readahead = ClusterReadahead::start(&threads, &dir(), &names, 0).expect("they are in inode order");
            assert!(readahead.end().is_some());
            assert!(Arc::get_mut(&mut names).is_some());
        }
    }

    #[test]
    fn names_in_another_order_are_not_read_ahead() {
        let scattered: Vec<u64> = (0..1000).map(|index| index * 7919 % 100_003).collect();
        assert!(ClusterReadahead::start(&Threads::new(), &dir(), &names(&scattered), 0).is_none());
    }

    /// The threads end first. Work that they have not begun is not waited for.
    #[test]
    fn readahead_that_no_thread_begins_ends_too() {
        let threads = Threads::new();
        let (hold, held) = std::sync::mpsc::channel::<()>();
        assert!(threads.submit(Work::Single(Box::new(move || _ = held.recv())), 1));
        let names = names(&(0..1000).collect::<Vec<_>>());
        let readahead = ClusterReadahead::start(&threads, &dir(), &names, 0).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| threads.stop());
            assert_eq!(readahead.end().map(|cost| cost.entries), None);
            drop(hold);
        });
    }
}
