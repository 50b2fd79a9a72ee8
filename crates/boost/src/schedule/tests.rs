//! The schedule, with made-up directories and outcomes.

use std::fs::File;

use super::*;
use crate::ask::Votes;

const HERE: Identity = Identity { device: 1, inode: 100 };

fn post(token: u64, seen: u64) -> Post {
    Post { directory: File::open("/").expect("a directory").into(), token, seen, position: 0, links: Links::Unread }
}

/// A directory of `entries` that is read in blocks of 1000, on a store where calls wait or not.
struct Store {
    entries: u64,
    waits: bool,
    forgets: bool,
    /// Positions at which blocks were read.
    blocks: Vec<u64>,
    /// The most calls for names that were in flight at once, and the most tasks.
    open_asks: usize,
    open_tasks: usize,
}

impl Store {
    fn new(entries: u64, waits: bool) -> Self {
        Self { entries, waits, forgets: false, blocks: Vec::new(), open_asks: 0, open_tasks: 0 }
    }

    fn block(&mut self, position: u64) -> Block {
        self.blocks.push(position);
        let end = (position + 1000).min(self.entries);
        let names = (position..end).map(|i| CString::new(i.to_string()).expect("no zero")).collect();
        Block { names, entries: end - position, position: end }
    }

    /// Takes all tasks and then answers them, until none is left.
    fn run(&mut self, schedule: &mut Schedule) {
        let mut position = 0;
        loop {
            let tasks: Vec<Task> = std::iter::from_fn(|| schedule.next()).collect();
            if tasks.is_empty() {
                assert!(!schedule.has_more());
                return;
            }
            let questions = tasks.iter().filter(|task| matches!(task.work, Work::Ask(..))).count();
            self.open_asks = self.open_asks.max(questions);
            self.open_tasks = self.open_tasks.max(tasks.len());
            for task in tasks {
                match task.work {
                    Work::Open(at) => {
                        let block = self.block(at);
                        position = block.position;
                        schedule.read(task.reading, Some(File::open("/").unwrap().into()), Ok(block));
                    }
                    Work::Read => {
                        let block = self.block(position);
                        position = block.position;
                        schedule.read(task.reading, None, Ok(block));
                    }
                    Work::Ask(names, manner) => self.answer(schedule, task.reading, names, manner),
                }
            }
        }
    }

    fn answer(&self, schedule: &mut Schedule, reading: ReadingId, mut names: Vec<CString>, manner: Manner) {
        let calls = if self.waits && manner.stop_at_wait { 1 } else { names.len() };
        let left = names.split_off(calls);
        let twice = if manner.twice && self.waits { calls } else { 0 };
        let asked = Asked {
            calls,
            waited: if self.waits { calls } else { 0 },
            trouble: 0,
            links: if manner.links { calls } else { 0 },
            attributes: Votes {
                forgotten: if self.forgets { twice } else { 0 },
                kept: if self.forgets { 0 } else { twice },
            },
            targets: Votes::default(),
        };
        schedule.asked(reading, &asked, left, Duration::from_millis(1));
    }
}

#[test]
fn names_are_asked_for_once_and_many_at_a_time() {
    let (mut schedule, mut store) = (Schedule::new(64, false), Store::new(2500, true));
    schedule.reported(post(1, 0), HERE);
    store.run(&mut schedule);
    let totals = schedule.totals();
    assert_eq!((totals.asked, totals.waited, totals.directories), (2500, 2500, 1));
    assert_eq!(store.blocks, [0, 1000, 2000, 2500]);
    assert!(store.open_asks > 4 && totals.most_at_once == store.open_tasks, "{totals:?}");
    // It is done: a later post of it begins nothing.
    schedule.reported(post(1, 2048), HERE);
    assert!(schedule.next().is_none());
}

#[test]
fn fast_directory_gets_only_a_trial() {
    let (mut schedule, mut store) = (Schedule::new(64, false), Store::new(5000, false));
    schedule.reported(post(1, 0), HERE);
    store.run(&mut schedule);
    assert_eq!((schedule.totals().asked, schedule.totals().fast), (16, 1));
    assert_eq!(store.blocks, [0]);
    assert_eq!(store.open_asks, 1);
    assert_eq!(schedule.new_intervals(), [(1, 1)], "one directory is not enough");
    // The program reads further, and calls are tried again at its position.
    schedule.reported(Post { position: 3000, ..post(1, 1536) }, HERE);
    store.waits = true;
    store.run(&mut schedule);
    assert_eq!(store.blocks[1], 3000);
    assert_eq!(schedule.totals().asked, 16 + 2000);
    assert!(schedule.new_intervals().is_empty());
}

#[test]
fn small_fast_directories_count_too() {
    let mut schedule = Schedule::new(64, false);
    for inode in 0..20 {
        schedule.reported(post(inode + 1, 0), Identity { device: 1, inode });
        Store::new(3, false).run(&mut schedule);
    }
    assert_eq!(schedule.new_intervals().last(), Some(&(1, 64)));
    assert!(schedule.readings.is_empty());
}

#[test]
fn lead_is_kept_and_reading_continues_at_its_position() {
    let (mut schedule, mut store) = (Schedule::new(64, false), Store::new(20_000, true));
    schedule.reported(post(7, 0), HERE);
    store.run(&mut schedule);
    assert_eq!(schedule.totals().asked, 5000);
    assert!(schedule.readings.is_empty(), "no descriptor is kept");
    schedule.reported(post(7, 512), HERE);
    assert!(schedule.next().is_none(), "it is far enough ahead");
    schedule.reported(post(7, 1536), HERE);
    store.run(&mut schedule);
    assert_eq!(schedule.totals().asked, 6000);
    assert_eq!(store.blocks.last(), Some(&5000), "at the bookmark, not at the program");
    schedule.reported(post(7, 30_000), HERE);
    store.run(&mut schedule);
    assert_eq!(schedule.totals().asked, 20_000);
}

#[test]
fn trials_keep_the_limit() {
    let (mut schedule, mut store) = (Schedule::new(1, false), Store::new(100, true));
    (0..4).for_each(|inode| schedule.reported(post(inode + 1, 0), Identity { device: 1, inode }));
    store.run(&mut schedule);
    assert_eq!((store.open_tasks, schedule.totals().directories), (1, 4));
}

#[test]
fn opening_keeps_the_limit_and_errors_lower_it() {
    let mut schedule = Schedule::new(64, false);
    (0..40).for_each(|inode| schedule.reported(post(inode + 1, 0), Identity { device: 1, inode }));
    let begin = |schedule: &mut Schedule| std::iter::from_fn(|| schedule.next()).collect::<Vec<_>>();
    let tasks = begin(&mut schedule);
    let limit = Device::new(64).concurrency.limit();
    assert_eq!((tasks.len(), schedule.totals().most_at_once), (limit, limit));
    assert!(!schedule.has_more());
    for task in tasks {
        schedule.read(task.reading, None, Err(rustix::io::Errno::IO));
    }
    assert_eq!(begin(&mut schedule).len(), 1);
}

#[test]
fn directory_reported_twice_is_asked_for_once() {
    let (mut schedule, mut store) = (Schedule::new(64, false), Store::new(100, true));
    schedule.reported(post(1, 0), HERE);
    schedule.reported(post(2, 0), HERE);
    schedule.reported(post(0, u64::MAX), HERE);
    schedule.reported(post(3, 0), Identity { device: 1, inode: 101 });
    store.run(&mut schedule);
    assert_eq!((schedule.totals().directories, schedule.totals().posts), (2, 4));
}

/// A token is repeated if a process is replaced by exec, and in another PID namespace.
#[test]
fn directories_with_one_token_are_distinguished() {
    let there = Identity { inode: 101, ..HERE };
    let (mut schedule, mut store) = (Schedule::new(64, false), Store::new(100, true));
    schedule.reported(post(1, 0), HERE);
    schedule.reported(post(1, 0), there);
    assert_eq!(schedule.readings.iter().map(|reading| reading.identity).collect::<Vec<_>>(), [HERE, there]);
    store.run(&mut schedule);
    assert_eq!((schedule.totals().directories, schedule.totals().asked), (2, 200));
    // A reading in progress, and one that is done, must not affect another one that continues.
    for before in 0..2 {
        let (mut schedule, mut store) = (Schedule::new(64, false), Store::new(3000, true));
        schedule.reported(post(1, 0), HERE);
        (0..before).for_each(|_| store.run(&mut schedule));
        schedule.reported(Post { position: 2500, ..post(1, 2500) }, there);
        let reading = schedule.readings.back().expect("it is in progress");
        assert_eq!((reading.identity, reading.unopened, reading.read), (there, Some(2500), 2500));
    }
}

#[test]
fn later_reading_of_one_token_counts() {
    let (mut schedule, mut store) = (Schedule::new(64, false), Store::new(20_000, true));
    for seen in [0, 19_000, 0] {
        schedule.reported(post(1, seen), HERE);
        store.run(&mut schedule);
    }
    assert_eq!(store.blocks.last(), Some(&4000));
    schedule.reported(post(1, 1536), HERE);
    store.run(&mut schedule);
    assert_eq!(store.blocks.last(), Some(&5000));
}

#[test]
fn device_without_caching_is_not_asked() {
    let (mut schedule, mut store) = (Schedule::new(64, false), Store::new(1000, true));
    store.forgets = true;
    schedule.reported(post(1, 0), HERE);
    store.run(&mut schedule);
    let totals = schedule.totals();
    assert!(totals.asked < 50 && totals.forgotten == 1, "{totals:?}");
    assert_eq!(schedule.new_intervals().last(), Some(&(1, NEVER)));
    schedule.reported(post(2, 0), HERE);
    assert!(schedule.next().is_none());
    assert!(!schedule.is_due(1));
}

/// All of this store's entries are links.
#[test]
fn targets_are_asked_for_once_the_program_reads_one() {
    let (mut schedule, mut store) = (Schedule::new(64, false), Store::new(2000, true));
    schedule.reported(post(1, 0), HERE);
    store.run(&mut schedule);
    assert_eq!((schedule.totals().asked, schedule.totals().links), (2000, 0), "the program may never read one");
    let first = || Post { links: Links::FirstRead, ..post(0, 0) };
    schedule.reported(first(), HERE);
    assert!(schedule.readings.iter().all(|reading| reading.pick == Pick::Links));
    store.run(&mut schedule);
    assert_eq!((schedule.totals().asked, schedule.totals().links), (4000, 2000));
    // The next directory, and one in progress.
    let there = Identity { inode: 101, ..HERE };
    schedule.reported(Post { links: Links::Read, ..post(2, 0) }, there);
    store.run(&mut schedule);
    assert_eq!((schedule.totals().asked, schedule.totals().links), (6000, 4000));
    schedule.reported(post(3, 0), HERE);
    schedule.reported(first(), HERE);
    assert_eq!(
        schedule.readings.iter().map(|reading| (reading.pick, reading.links)).collect::<Vec<_>>(),
        [(Pick::All, true), (Pick::Links, true)]
    );
}

/// As far as attributes were asked for by then. For later entries, both are asked for together.
#[test]
fn second_pass_for_targets_ends_where_attributes_ended() {
    let first = || Post { links: Links::FirstRead, ..post(0, 0) };
    let begin = |posts: &[u64]| {
        let (mut schedule, mut store) = (Schedule::new(64, false), Store::new(20_000, true));
        for &seen in posts {
            schedule.reported(post(u64::from(seen != u64::MAX), seen), HERE);
            store.run(&mut schedule);
        }
        (schedule, store)
    };
    // The posts before, and how many entries were asked for then.
    for (posts, asked) in [(&[0][..], 5000), (&[0, 3000, 7500], 12_000), (&[u64::MAX], 20_000)] {
        let (mut schedule, mut store) = begin(posts);
        assert_eq!((schedule.totals().asked, schedule.totals().links), (asked, 0));
        schedule.reported(first(), HERE);
        store.run(&mut schedule);
        assert_eq!(schedule.totals().links, asked, "{posts:?}");
        if posts.len() > 1 {
            schedule.reported(Post { links: Links::Read, ..post(1, 9500) }, HERE);
            store.run(&mut schedule);
            assert_eq!(schedule.totals().links, 14_000);
        }
    }
    // While it is being read.
    let (mut schedule, mut store) = begin(&[]);
    schedule.reported(post(1, 6000), HERE);
    let task = schedule.next().expect("it is to be opened");
    schedule.read(task.reading, None, Ok(store.block(6000)));
    schedule.reported(first(), HERE);
    let reach = |schedule: &Schedule, pick| {
        schedule.readings.iter().find(|reading| reading.pick == pick).map(|reading| reading.allowed)
    };
    assert_eq!((reach(&schedule, Pick::All), reach(&schedule, Pick::Links)), (Some(10_096), Some(7000)));
    // A directory of which nothing is known.
    let (mut schedule, mut store) = begin(&[]);
    schedule.reported(first(), HERE);
    store.run(&mut schedule);
    assert_eq!(schedule.totals().links, 20_000);
}

#[test]
fn unreadable_directory_ends() {
    let mut schedule = Schedule::new(64, false);
    schedule.reported(post(1, 0), HERE);
    let task = schedule.next().unwrap();
    schedule.read(task.reading, None, Err(rustix::io::Errno::ACCESS));
    assert!(schedule.next().is_none() && schedule.readings.is_empty());
}

#[test]
fn directories_and_bookmarks_are_bounded() {
    let mut schedule = Schedule::new(64, false);
    (0..1000).for_each(|inode| schedule.reported(post(inode + 1, 0), Identity { device: 1, inode }));
    assert_eq!(schedule.readings.len(), READINGS);
    (0..1000).for_each(|_| {
        if let Some(task) = schedule.next() {
            schedule.read(task.reading, None, Ok(Block { names: Vec::new(), entries: 0, position: 0 }));
        }
    });
    assert!(schedule.readings.is_empty() && schedule.bookmarks.len() <= BOOKMARKS);
}
