//! Between the tree in a store and a tar stream or a directory.

use std::{
    fs::File,
    io::{self, BufWriter, IsTerminal, Write},
    path::Path,
    process::ExitCode,
};

use pando_console::{
    failure::{Failure, Result},
    quote::for_shell,
};
use pando_kvfs::{Closed, KvFs, StoreOptions, info};
use pando_transfer::{Options, Summary, export_tar, import_dir, import_tar};
use pando_vfs::{Context, Credentials, Vfs, fs::Fs};
use rustix::process::{getegid, geteuid};

use crate::import::{finished, tar_stream};

/// The buffer of the stream.
const BUFFER: usize = 1 << 20;

/// Packs the tree in a store into a tar stream on standard output.
pub fn export(store: &Path) -> Result<ExitCode> {
    if io::stdout().is_terminal() {
        return Err(Failure::new("standard output is a terminal, and a tar stream is not text")
            .remedy(format!("write it to a file: pando store export {} >FILE", for_shell(store))));
    }
    // It must exist.
    super::open(store, || info(store))?;
    let (fs, closed) = open(store, Credentials::root())?;
    let mut out = BufWriter::with_capacity(BUFFER, io::stdout().lock());
    let packed = export_tar(&fs, "/", &mut out, &Options::new().privileged(true));
    out.flush().map_err(|error| Failure::output(&error))?;
    close(fs, &closed, store)?;
    finished(packed, store)
}

/// Copies a directory or a tar stream into the tree in a store.
pub fn import(source: &Path, store: &Path, options: Options) -> Result<ExitCode> {
    let (from, into) = (source.canonicalize(), store.canonicalize());
    if from.is_ok_and(|from| into.is_ok_and(|into| into.starts_with(from))) {
        return Err(Failure::new(format!("{}: is in {}", for_shell(store), for_shell(source)))
            .remedy("the store would be copied into itself: choose a store elsewhere"));
    }
    let own = Credentials::user(geteuid().as_raw(), getegid().as_raw(), &[]);
    let (fs, closed) = open(store, if options.privileged { Credentials::root() } else { own })?;
    let copied = copy(source, &fs, options);
    close(fs, &closed, store)?;
    finished(copied?, store)
}

fn copy(source: &Path, fs: &Fs, options: Options) -> Result<pando_transfer::Result<Summary>> {
    let unusable = |error: &io::Error| Failure::system(for_shell(source), error);
    if source.as_os_str() == "-" {
        return Ok(import_tar(tar_stream(io::stdin().lock(), source)?, fs, "/", &options));
    }
    if source.is_dir() {
        return Ok(import_dir(source, fs, "/", &options));
    }
    let file = File::open(source).map_err(|error| unusable(&error))?;
    Ok(import_tar(tar_stream(io::BufReader::new(file), source)?, fs, "/", &options))
}

fn open(store: &Path, credentials: Credentials) -> Result<(Fs, Closed)> {
    let driver = super::open(store, || KvFs::open(store, StoreOptions::new()))?;
    let closed = driver.closed();
    let vfs = Vfs::new(driver).map_err(|error| Failure::system(for_shell(store), &error.into()))?;
    let context = Context::new(&vfs, credentials);
    Ok((Fs::with_context(vfs, context), closed))
}

/// Commits what was changed.
fn close(fs: Fs, closed: &Closed, store: &Path) -> Result<()> {
    let stored = fs.vfs().sync();
    drop(fs);
    stored.and(closed.wait()).map_err(|error| Failure::system(for_shell(store), &error.into()))
}
