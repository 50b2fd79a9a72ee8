//! The pages of a scan or a walk, within its budget, used again and again.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use pando_records::{PAGE_BYTES, Page, Part};

/// What a page of names costs in pages: itself and its index (36 bytes an entry, and an entry takes at least 24).
const NAMES_COST: usize = 3;

/// Pages and parts that are free, and how many more may be made.
pub struct Arena {
    pages: Mutex<Vec<Page>>,
    parts: Mutex<Vec<Part>>,
    /// Pages' worth of memory that may still be made or is free. A single independent value.
    left: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Arena {
    pub fn new(budget_bytes: usize) -> Self {
        Self { pages: Mutex::default(), parts: Mutex::default(), left: AtomicUsize::new(budget_bytes / PAGE_BYTES) }
    }

    /// Takes `cost` from what is left, but leaves `reserve`.
    fn charge(&self, cost: usize, reserve: usize) -> bool {
        let take = |left: usize| left.checked_sub(cost).filter(|&rest| rest >= reserve);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    fn credit(&self, cost: usize) {
        self.left.fetch_add(cost, Ordering::Relaxed);
    }

    /// A free page, or a new one. A new one is made only when nothing of either kind is free: so what was ever made is
    /// within the budget.
    fn page(&self) -> Page {
        if let Some(page) = lock(&self.pages).pop() {
            return page;
        }
        drop(lock(&self.parts).pop());
        Page::new()
    }

    fn part(&self) -> Part {
        if let Some(part) = lock(&self.parts).pop() {
            return part;
        }
        drop(lock(&self.pages).pop());
        Part::default()
    }

    /// A page for names, if `reserve` pages are left for the answers.
    pub fn take_names(&self, reserve: usize) -> Option<Page> {
        self.charge(NAMES_COST, reserve).then(|| self.page())
    }

    /// A page for extended attributes or their list.
    pub fn take_page(&self) -> Option<Page> {
        self.charge(1, 0).then(|| self.page())
    }

    /// A part, empty.
    pub fn take_part(&self) -> Option<Part> {
        self.charge(1, 0).then(|| self.part())
    }

    /// Moves what is free here, but for `keep` pages' worth, to another arena, with the pages that were made.
    pub fn move_to(&self, other: &Self, keep: usize) {
        let moved = self.left.load(Ordering::Relaxed).saturating_sub(keep);
        self.left.fetch_sub(moved, Ordering::Relaxed);
        let mut pages = std::mem::take(&mut *lock(&self.pages));
        let mut parts = std::mem::take(&mut *lock(&self.parts));
        // What was made must not be more than what may be made.
        pages.truncate(moved);
        parts.truncate(moved - pages.len());
        lock(&other.pages).append(&mut pages);
        lock(&other.parts).append(&mut parts);
        other.credit(moved);
    }

    /// Gives a page of names back.
    pub fn give_names(&self, page: Page) {
        lock(&self.pages).push(page);
        self.credit(NAMES_COST);
    }

    /// Gives a page back.
    pub fn give_page(&self, page: Page) {
        lock(&self.pages).push(page);
        self.credit(1);
    }

    /// Gives a part back, with its pages.
    pub fn give_part(&self, mut part: Part) {
        part.clear(|page| self.give_page(page));
        lock(&self.parts).push(part);
        self.credit(1);
    }
}
