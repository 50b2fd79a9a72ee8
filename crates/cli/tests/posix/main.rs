//! The behaviour that POSIX and Linux require of a mounted tree, compared with tmpfs where
//! possible.

#[path = "../common/mod.rs"]
mod common;
mod handles;
#[path = "../requests/mod.rs"]
mod requests;
mod setgid;
mod times;
mod trees;
