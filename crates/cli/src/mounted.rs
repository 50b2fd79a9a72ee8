//! Mounts of pando: found in the mount table, and held.

pub mod held;

use pando_console::{
    mountinfo::{self, Mount},
    quote::for_shell,
};

/// Says where trees are mounted, for users who named another place.
pub fn list() -> String {
    let mut ours = mountinfo::all().unwrap_or_default();
    ours.retain(Mount::is_ours);
    match ours.as_slice() {
        [] => "no pando tree is mounted".into(),
        ours => format!("pando trees are mounted at: {}", points(ours)),
    }
}

/// The paths of mounts as text. Other users chose these paths, so they are quoted.
pub fn points(mounts: &[Mount]) -> String {
    mounts.iter().map(|mount| for_shell(&mount.point)).collect::<Vec<String>>().join(", ")
}
