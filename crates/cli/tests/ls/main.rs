//! `pando ls` compared with GNU ls and find, on its own file systems and on those of this machine.
//! Also its exit codes, limits, and output on a terminal.

#[path = "../../../vfs/tests/support/acl.rs"]
mod acl;
mod colours;
#[path = "../common/mod.rs"]
mod common;
mod damaged;
mod faults;
mod find;
mod gnu;
mod limits;
#[path = "../memory_group/mod.rs"]
mod memory_group;
#[allow(dead_code)] // Its other user mounts more than this one.
#[path = "../../../scan/tests/common/mount.rs"]
mod mount;
mod option_table;
mod options;
mod pty;
#[path = "../requests/mod.rs"]
mod requests;
mod scale;
mod terminal;
mod times;
mod tree;
