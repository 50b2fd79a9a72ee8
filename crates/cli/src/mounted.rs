//! Mounts of pando: found in the mount table, and held.

pub mod held;

use pando_console::{
    mountinfo::{self, Mount},
    quote::for_shell,
};

/// Where trees of ours are mounted, for those who named another place.
pub fn list() -> String {
    let mut ours = mountinfo::all().unwrap_or_default();
    ours.retain(Mount::is_ours);
    match ours.as_slice() {
        [] => "no pando tree is mounted".into(),
        ours => format!("pando trees are mounted at: {}", points(ours)),
    }
}

/// Where they are, whoever has named these places.
pub fn points(mounts: &[Mount]) -> String {
    mounts.iter().map(|mount| for_shell(&mount.point)).collect::<Vec<String>>().join(", ")
}
