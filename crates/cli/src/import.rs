//! `pando import`: copies a directory or a tar stream into a directory.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use pando_console::{
    failure::{Failure, Result, say},
    quote::for_shell,
};
use pando_transfer::{Options, Summary, copy_dir, unpack_tar};
use tracing::info;

const EXAMPLES: &str = "\
Examples:
  pando import linux.tar grove          unpack a tar stream into ./grove
  zcat linux.tar.gz | pando import - grove
  pando import /usr/share/doc grove     copy what is in a directory

A file that exists is an error. A directory that exists, DIR too, gets the metadata
of its source.

Exit codes: 0 done, 1 it failed, or something was left out.";

/// Options of `pando import`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ImportArgs {
    /// A directory, whose contents are copied; a file with a tar stream; or - for standard input
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,

    /// The directory to copy into, which must exist
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,

    #[command(flatten)]
    owners: Owners,
}

/// Whether a copy keeps what only root can set.
#[derive(Debug, Args)]
pub struct Owners {
    /// All files belong to you; leave out device nodes and extended attributes other than user.*
    ///
    /// This is the default for all users but root.
    #[arg(long)]
    no_same_owner: bool,
}

impl Owners {
    /// The options of the copy.
    pub fn options(&self) -> Options {
        Options::new().privileged(!self.no_same_owner && rustix::process::geteuid().is_root())
    }
}

/// The first bytes of compressed files, and what prints their contents.
const COMPRESSED: [(&[u8], &str); 4] =
    [(b"\x1f\x8b", "zcat"), (b"\x28\xb5\x2f\xfd", "zstdcat"), (b"\xfd7zXZ", "xzcat"), (b"BZh", "bzcat")];

/// Copies.
///
/// # Errors
/// The first entry that cannot be read or made, with the reason.
pub fn run(args: &ImportArgs) -> Result<ExitCode> {
    let unusable = |path: &Path, error: &io::Error| Failure::system(for_shell(path), error);
    if !args.dir.metadata().map_err(|error| unusable(&args.dir, &error))?.is_dir() {
        return Err(unusable(&args.dir, &io::ErrorKind::NotADirectory.into()));
    }
    let options = args.owners.options();
    let copied = read(
        &args.source,
        |stream| unpack_tar(stream, &args.dir, &options),
        || copy_dir(&args.source, &args.dir, &options),
    )?;
    finished(copied, &args.dir)
}

/// Gives the tar stream in a file or on standard input (-) to `tar`; a directory is for `dir`.
///
/// # Errors
/// The stream cannot be read, or it is compressed.
pub fn read<T>(source: &Path, tar: impl FnOnce(&mut dyn BufRead) -> T, dir: impl FnOnce() -> T) -> Result<T> {
    if source.as_os_str() == "-" {
        return Ok(tar(&mut tar_stream(io::stdin().lock(), source)?));
    }
    if source.is_dir() {
        return Ok(dir());
    }
    let file = File::open(source).map_err(|error| Failure::system(for_shell(source), &error))?;
    Ok(tar(&mut tar_stream(BufReader::new(file), source)?))
}

/// Reports what became of a copy into `dir`.
///
/// # Errors
/// The error of the copy, with the path of the entry in it.
pub fn finished(copied: pando_transfer::Result<Summary>, dir: &Path) -> Result<ExitCode> {
    let shown = |path: &Path| for_shell(if path.as_os_str().is_empty() { dir } else { path });
    let failed = |error: pando_transfer::Error| Failure::system(shown(error.path()), error.error());
    let summary = copied.map_err(failed)?;
    info!(entries = summary.entries, bytes = summary.bytes, "copied");
    for path in &summary.left_out {
        say(format_args!("pando: {}: a device node, left out", shown(path)));
    }
    Ok(if summary.left_out.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Refuses a stream that is compressed.
fn tar_stream<R: BufRead>(mut stream: R, source: &Path) -> Result<R> {
    let first = stream.fill_buf().map_err(|error| Failure::system(for_shell(source), &error))?;
    let Some((_, program)) = COMPRESSED.iter().find(|(magic, _)| first.starts_with(magic)) else { return Ok(stream) };
    let failure = Failure::new(format!("{}: the tar stream is compressed", for_shell(source)));
    Err(failure.remedy(format!("decompress it first, and import -, standard input: {program} FILE | pando ...")))
}
