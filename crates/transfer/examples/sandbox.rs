//! A workspace for code that is not trusted, as an agent runtime or a build service needs it:
//!
//! 1. a copy of a host directory, in memory, with a limit on space and inodes;
//! 2. a guest that cannot leave it, whatever paths and symbolic links it uses;
//! 3. the changes that the guest has made, and a snapshot of the result as a tar stream.
//!
//! `cargo run -p pando-transfer --example sandbox -- [DIRECTORY]`

use std::{collections::BTreeMap, error::Error, path::PathBuf, sync::Arc};

use pando_memfs::{MemFs, MemOptions};
use pando_transfer::{Options, export_tar, import_dir};
use pando_vfs::{Context, Credentials, Driver, Timestamp, Vfs, VfsOptions, fs::Fs};

/// The user that the guest is inside the workspace.
const GUEST: u32 = 1000;

/// A workspace: a namespace of its own, so that nothing but its files can be named in it.
struct Workspace {
    driver: Arc<MemFs>,
    vfs: Vfs,
    /// The state of each file before the guest ran.
    before: BTreeMap<PathBuf, (u64, Timestamp)>,
}

impl Workspace {
    /// Copies a directory of the host into a new workspace that may grow to `size_bytes`.
    fn from_dir(dir: &str, size_bytes: u64, inodes: u64) -> Result<Self, Box<dyn Error>> {
        let driver = Arc::new(MemFs::new(MemOptions::new().size_bytes(size_bytes).inodes(inodes)));
        let vfs = Vfs::with_options(driver.clone(), VfsOptions::new().owner(GUEST, GUEST))?;
        let mut workspace = Self { driver, vfs, before: BTreeMap::new() };
        let copied = import_dir(dir, &workspace.guest()?, "/", &Options::new())?;
        println!("copied {} entries, {} bytes", copied.entries, copied.bytes);
        workspace.before = workspace.state()?;
        Ok(workspace)
    }

    /// The file system that the guest gets. Its root is the workspace, and so is that of each
    /// clone.
    fn guest(&self) -> pando_vfs::Result<Fs> {
        let context = Context::rooted(&self.vfs.root(), Credentials::user(GUEST, GUEST, &[]))?;
        Ok(Fs::with_context(self.vfs.clone(), context))
    }

    /// A view for an observer, such as a monitor: the same files, and every change is EROFS.
    fn observer(&self) -> Fs {
        let context = Context::new(&self.vfs, Credentials::root()).read_only(true);
        Fs::with_context(self.vfs.clone(), context)
    }

    /// The size and the ctime of each file. No caller can set a ctime, so it tells every change.
    fn state(&self) -> Result<BTreeMap<PathBuf, (u64, Timestamp)>, Box<dyn Error>> {
        let mut state = BTreeMap::new();
        for entry in self.observer().walk("/") {
            let entry = entry?;
            let stat = entry.metadata()?;
            if !stat.is_dir() {
                state.insert(entry.path(), (stat.size, stat.ctime));
            }
        }
        Ok(state)
    }

    /// Prints which files the guest has made (+), changed (~) and removed (-).
    fn print_changes(&self) -> Result<(), Box<dyn Error>> {
        let after = self.state()?;
        for (path, state) in &after {
            match self.before.get(path) {
                None => println!("+ {}", path.display()),
                Some(old) if old != state => println!("~ {}", path.display()),
                Some(_) => {}
            }
        }
        for path in self.before.keys().filter(|path| !after.contains_key(*path)) {
            println!("- {}", path.display());
        }
        Ok(())
    }
}

/// The guest. It tries to behave badly.
fn guest(fs: &Fs) -> pando_vfs::Result<()> {
    fs.write("/notes.txt", "I was here\n")?;
    fs.symlink("/etc/passwd", "/passwd")?;
    for path in ["/passwd", "/../../etc/passwd"] {
        println!("the guest reads {path}: {}", fs.read(path).expect_err("not in the workspace"));
    }
    println!("the guest fills the disk: {}", fs.write("/huge", vec![0; 128 << 20]).expect_err("too large"));
    fs.remove_file("/huge")
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "/etc/security".into());
    let workspace = Workspace::from_dir(&dir, 64 << 20, 10_000)?;
    let fs = workspace.guest()?;
    guest(&fs)?;
    println!("an observer writes: {}", workspace.observer().write("/x", "").expect_err("read-only"));
    workspace.print_changes()?;
    let mut snapshot = Vec::new();
    export_tar(&workspace.observer(), "/", &mut snapshot, &Options::new())?;
    let free = workspace.driver.statfs()?;
    println!("snapshot: {} bytes; {} of {} inodes in use", snapshot.len(), free.files - free.ffree, free.files);
    Ok(())
}
