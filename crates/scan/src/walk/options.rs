//! How a tree is walked.

use crate::Options;

/// How a tree is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WalkOptions {
    /// How each directory is read. The budget is for all together.
    pub scan: Options,
    /// Directories on another file system than their root are not entered. Their records are handed out.
    pub one_file_system: bool,
    /// Whether the directories within directories are entered.
    pub descent: Descent,
}

/// Whether the directories within directories are entered, and in which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Descent {
    /// As they were found. Where they are many, they wait in a temporary file.
    #[default]
    AsFound,
    /// As they are [sorted](crate::Children::sort_by). They wait in memory.
    Sorted,
    /// They are not.
    No,
}
