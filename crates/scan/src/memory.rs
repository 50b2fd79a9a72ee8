//! The pages of a scan or a walk, within its budget. They are reused.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use pando_records::{PAGE_BYTES, Page, Part};

/// The cost of a page of names, in pages: itself and its index. An index entry has 36 bytes, and a
/// directory entry takes at least 24.
const NAMES_COST: usize = 3;

/// Free pages and parts, and how many more may be made.
pub struct Arena {
    pages: Mutex<Vec<Page>>,
    parts: Mutex<Vec<Part>>,
    /// Memory, in pages, that is free or may still be made. A single independent value.
    left: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Arena {
    pub fn new(budget_bytes: usize) -> Self {
        Self { pages: Mutex::default(), parts: Mutex::default(), left: AtomicUsize::new(budget_bytes / PAGE_BYTES) }
    }

    /// Takes `cost` from the free memory, unless less than `reserve` would be left.
    fn charge(&self, cost: usize, reserve: usize) -> bool {
        let take = |left: usize| left.checked_sub(cost).filter(|&rest| rest >= reserve);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    fn credit(&self, cost: usize) {
        self.left.fetch_add(cost, Ordering::Relaxed);
    }

    /// A free page, or a new one. A new one is made only when neither a page nor a part is free, so
    /// all that were ever made are within the budget.
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

    /// An empty part.
    pub fn take_part(&self) -> Option<Part> {
        self.charge(1, 0).then(|| self.part())
    }

    /// Moves the free memory, except for `keep` pages, to another arena, with the pages that were
    /// made.
    pub fn move_to(&self, other: &Self, keep: usize) {
        let moved = self.left.load(Ordering::Relaxed).saturating_sub(keep);
        self.left.fetch_sub(moved, Ordering::Relaxed);
        let mut pages = std::mem::take(&mut *lock(&self.pages));
        let mut parts = std::mem::take(&mut *lock(&self.parts));
        // No more pages may exist than the memory that goes with them.
        pages.truncate(moved);
        parts.truncate(moved - pages.len());
        lock(&other.pages).append(&mut pages);
        lock(&other.parts).append(&mut parts);
        other.credit(moved);
    }

    /// Returns a page of names.
    pub fn give_names(&self, page: Page) {
        lock(&self.pages).push(page);
        self.credit(NAMES_COST);
    }

    /// Returns a page.
    pub fn give_page(&self, page: Page) {
        lock(&self.pages).push(page);
        self.credit(1);
    }

    /// Returns a part and its pages.
    pub fn give_part(&self, mut part: Part) {
        part.clear(|page| self.give_page(page));
        lock(&self.parts).push(part);
        self.credit(1);
    }
}
