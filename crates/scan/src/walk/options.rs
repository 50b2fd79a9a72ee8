//! Options of a walk.

use crate::Options;

/// How a tree is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use]
#[non_exhaustive]
pub struct WalkOptions {
    /// How each directory is read. The budget is for all of them together.
    pub scan: Options,
    /// Directories on another file system than their root are not entered. Their records are
    /// returned.
    pub one_file_system: bool,
    /// Whether the directories within directories are entered.
    pub descent: Descent,
}

impl WalkOptions {
    /// All directories, as they are found, with the default [`Options`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`WalkOptions::scan`].
    pub fn scan(mut self, scan: Options) -> Self {
        self.scan = scan;
        self
    }

    /// Sets [`WalkOptions::one_file_system`].
    pub fn one_file_system(mut self, one_file_system: bool) -> Self {
        self.one_file_system = one_file_system;
        self
    }

    /// Sets [`WalkOptions::descent`].
    pub fn descent(mut self, descent: Descent) -> Self {
        self.descent = descent;
        self
    }
}

/// Whether the directories within directories are entered, and in which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Descent {
    /// In the order in which they were found. If there are many, they wait in a temporary file.
    #[default]
    AsFound,
    /// The caller [sorts](crate::Children::sort_by) them. They wait in memory.
    Sorted,
    /// They are not entered.
    No,
}
