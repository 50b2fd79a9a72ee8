//! Parts of a line as text, with the words of the command line and the environment for them.

pub mod columns;
pub mod human;
pub mod hyperlink;
pub mod owner;
pub mod pattern;
pub mod scale;
pub mod time;
pub mod values;
pub mod words;
