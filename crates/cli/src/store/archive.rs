//! Between the tree in a store and a tar stream or a directory.

use std::{
    io::{self, BufWriter, IsTerminal, Write},
    path::Path,
    process::ExitCode,
};

use pando_console::{
    failure::{Failure, Result},
    quote::for_shell,
};
use pando_kvfs::{Closed, KvFs, StoreOptions};
use pando_transfer::{Options, export_tar, import_dir, import_tar};
use pando_vfs::{Context, Credentials, Vfs, fs::Fs};
use rustix::process::{getegid, geteuid};

use crate::import::{self, finished};

/// The buffer of the stream.
const BUFFER: usize = 1 << 20;

/// Packs the tree in a store into a tar stream on standard output.
pub fn export(store: &Path) -> Result<ExitCode> {
    if io::stdout().is_terminal() {
        return Err(Failure::new("standard output is a terminal, and a tar stream is not text")
            .remedy(format!("write it to a file: pando store export {} >FILE", for_shell(store))));
    }
    let driver = super::open(store, || KvFs::open_existing(store, StoreOptions::new()))?;
    let (fs, closed) = tree(driver, Credentials::root(), store)?;
    let mut out = BufWriter::with_capacity(BUFFER, io::stdout().lock());
    let packed = export_tar(&fs, "/", &mut out, &Options::new().privileged(true));
    out.flush().map_err(|error| Failure::output(&error))?;
    close(fs, &closed, store)?;
    finished(packed, store)
}

/// Copies a directory or a tar stream into the tree in a store.
pub fn import(source: &Path, store: &Path, options: Options) -> Result<ExitCode> {
    // A store that is missing is made below the directory that is there.
    let there = |dir: &Path| if dir.as_os_str().is_empty() { Path::new(".") } else { dir }.canonicalize().ok();
    let (from, into) = (source.canonicalize(), store.ancestors().find_map(there));
    if from.is_ok_and(|from| into.is_some_and(|into| into.starts_with(from))) {
        return Err(Failure::new(format!("{}: is in {}", for_shell(store), for_shell(source)))
            .remedy("the store would be copied into itself: choose a store elsewhere"));
    }
    let own = Credentials::user(geteuid().as_raw(), getegid().as_raw(), &[]);
    let driver = super::open(store, || KvFs::open(store, StoreOptions::new()))?;
    let (fs, closed) = tree(driver, if options.privileged { Credentials::root() } else { own }, store)?;
    let copied = import::read(
        source,
        |stream| import_tar(stream, &fs, "/", &options),
        || import_dir(source, &fs, "/", &options),
    );
    close(fs, &closed, store)?;
    finished(copied?, store)
}

/// The tree in a store.
fn tree(driver: KvFs, credentials: Credentials, store: &Path) -> Result<(Fs, Closed)> {
    let closed = driver.closed();
    let vfs = Vfs::new(driver).map_err(|error| Failure::system(for_shell(store), &error.into()))?;
    let context = Context::new(&vfs, credentials);
    Ok((Fs::with_context(vfs, context), closed))
}

/// Commits what was changed.
fn close(fs: Fs, closed: &Closed, store: &Path) -> Result<()> {
    let vfs = fs.vfs().clone();
    drop(fs);
    super::close(vfs, closed, store)
}
