//! What POSIX and Linux ask of a mounted tree, beside tmpfs where that can be asked too.

#[path = "../common/mod.rs"]
mod common;
mod handles;
#[path = "../requests/mod.rs"]
mod requests;
mod setgid;
mod times;
mod trees;
