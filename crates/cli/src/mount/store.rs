//! A store as the tree of a mount.

use std::{path::Path, time::Duration};

use indicatif::HumanDuration;

use pando_console::{
    failure::{Failure, Result, say},
    quote::for_shell,
};
use pando_kvfs::{Closed, KvFs, Recovered, StoreOptions};
use pando_vfs::{Vfs, VfsOptions};
use rustix::process::{getgid, getuid};

use super::{
    args::{CommitWhen, MountArgs},
    limits,
    memory::MemoryWatch,
};
use crate::store;

/// More open files would be of little use.
const DESCRIPTORS_MAX: usize = 20_000;

/// The tree of a mount.
pub struct StoreTree {
    pub vfs: Vfs,
    closed: Closed,
    memory: MemoryWatch,
}

impl StoreTree {
    /// The tree in a store.
    ///
    /// # Errors
    /// The store cannot be opened or made.
    pub fn open(dir: &Path, args: &MountArgs, options: VfsOptions) -> Result<Self> {
        // For the descriptors of large files.
        let descriptors = limits::raise_descriptors();
        let options_of_store = store_options(args).descriptors(descriptors.min(DESCRIPTORS_MAX) / 2);
        let store = store::open(dir, || KvFs::open(dir, options_of_store))?;
        if let Some(recovered) = store.recovered() {
            say(format_args!("pando: {}: {}", for_shell(dir), shown(recovered)));
        }
        let closed = store.closed();
        let vfs = Vfs::with_options(store, options)
            .map_err(|error| Failure::new(format!("{}: cannot make the tree: {error}", for_shell(dir))))?;
        let memory = MemoryWatch::start(vfs.clone())?;
        Ok(Self { vfs, closed, memory })
    }

    /// Commits what is left. Nothing else uses the tree any more.
    ///
    /// # Errors
    /// The last changes may be lost.
    pub fn close(self, dir: &Path) -> Result<()> {
        drop(self.memory);
        store::close(self.vfs, &self.closed, dir)
    }
}

fn store_options(args: &MountArgs) -> StoreOptions {
    let uid = args.uid.unwrap_or_else(|| getuid().as_raw());
    let gid = args.gid.unwrap_or_else(|| getgid().as_raw());
    let mut options = StoreOptions::new().owner(uid, gid).mode(args.mode);
    match args.commit {
        Some(CommitWhen::Within(time)) => options = options.interval(time),
        Some(CommitWhen::Fsync) => options = options.interval(Duration::MAX),
        // An interval is for what programs do not wait for, such as atime.
        Some(CommitWhen::Acknowledged) | None => {}
    }
    if let Some(bytes) = args.size {
        options = options.bytes(bytes);
    }
    if let Some(inodes) = args.inodes {
        options = options.inodes(inodes);
    }
    options
}

/// The message about a store that was not closed before.
fn shown(recovered: &Recovered) -> String {
    let since = std::time::SystemTime::from(recovered.committed).elapsed().unwrap_or_default();
    let mut text = format!(
        "the server was killed or the machine crashed; the tree is as it was committed {} ago",
        HumanDuration(since)
    );
    if recovered.unnamed > 0 {
        text += &format!("; freed (removed files that were still open): {}", recovered.unnamed);
    }
    text
}
