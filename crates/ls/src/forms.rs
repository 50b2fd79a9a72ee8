//! The forms of an entry: names in lines or columns, the long format, JSON and CSV.

pub mod csv;
pub mod dired;
pub mod json;
pub mod long;
pub mod row;
