//! The requests that a mount has served, read from outside; and making the kernel forget.
#![allow(dead_code)] // Each test binary uses its part.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::common::{Mounted, skipped};

/// Numbers by name: requests of each kind, and other numbers of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requests(BTreeMap<String, u64>);

impl Requests {
    /// The requests until now. Reading them is not counted.
    pub fn of(mounted: &Mounted) -> Self {
        let mut value = vec![0; 4096];
        let length = rustix::fs::getxattr(mounted.root(), pando_fuse::REQUESTS_XATTR, &mut value[..]).expect("counts");
        Self::from_json(std::str::from_utf8(&value[..length]).expect("text"))
    }

    /// Parses a report: each number follows its name.
    pub fn from_json(text: &str) -> Self {
        let numbers = text.split(',').filter_map(|part| {
            let (name, number) = part.rsplit_once(": ")?;
            let name = name.trim_end_matches('"').rsplit('"').next()?;
            Some((name.to_owned(), number.trim_end().trim_end_matches('}').parse().ok()?))
        });
        Self(numbers.collect())
    }

    /// One of the numbers.
    pub fn count(&self, name: &str) -> u64 {
        *self.0.get(name).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    /// The requests since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self(self.0.iter().map(|(name, count)| (name.clone(), count - before.count(name))).collect())
    }
}

/// Lists as `ls -l` does: each name, and then its attributes. Returns the number of entries.
pub fn list(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).expect("a directory");
    entries.map(|entry| entry.and_then(|entry| entry.metadata()).expect("attributes")).fold(0, |count, _| count + 1)
}

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Tests run one at a time. They make the kernel forget, which affects all tests. A program that
/// another test starts would inherit the open files of this test until it is executed, and an
/// unmount would find them busy.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    // A failed test that held the lock has not damaged anything.
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the kernel forget.
pub struct Forgetter(());

/// The permission to make the kernel forget. If that is impossible here, reports why, and fails if
/// a skip is not allowed.
pub fn forgetter() -> Option<Forgetter> {
    match fs::OpenOptions::new().write(true).open(DROP_CACHES) {
        Ok(_) => Some(Forgetter(())),
        Err(error) => {
            skipped(&format!("{DROP_CACHES}: {error}"));
            None
        }
    }
}

impl Forgetter {
    /// Drops unused names and attributes. It does so twice, because the first time spares
    /// recently used ones.
    pub fn forget(&self) {
        (0..2).for_each(|_| fs::write(DROP_CACHES, "2").expect("root may"));
    }
}

/// Whether `work` can be done from the kernel's caches alone. Another process may make the kernel
/// forget at any time, so there are a few attempts. Each leaves the caches filled.
pub fn asks_nothing(mounted: &Mounted, mut work: impl FnMut()) -> bool {
    (0..5).any(|_| {
        let before = Requests::of(mounted);
        work();
        let asked = Requests::of(mounted).since(&before);
        ["lookup", "getattr", "open", "release", "readdir", "readdirplus"].iter().all(|name| asked.count(name) == 0)
    })
}
