//! The `pando` command.
fn main() {}
