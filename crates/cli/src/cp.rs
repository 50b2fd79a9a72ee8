//! `pando cp -a`: copies files of any kind, as cp(1) does with that option.

use std::{
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use pando_console::{
    failure::{Failure, Result},
    quote::for_shell,
};
use pando_transfer::copy_files;

use crate::import::{Owners, finished};

const EXAMPLES: &str = "\
Examples:
  pando cp -a /usr/share/doc grove    copies the directory to grove/doc
  pando cp -a a b c grove             copies three files of any kind

A file that exists is an error. A directory that exists gets the metadata of its
source. Access times are not copied, and files of /proc are empty in the copy.

Exit codes: 0 done, 1 it failed, or something was left out.";

/// Options of `pando cp`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CpArgs {
    /// Copy what is below directories, all metadata, and links as links. This is always on
    #[arg(short, long)]
    pub archive: bool,

    #[command(flatten)]
    owners: Owners,

    /// The files and directories to copy
    #[arg(value_name = "SOURCE", required = true)]
    pub sources: Vec<PathBuf>,

    /// The directory to copy into; or, for one SOURCE, the name of the copy
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,
}

/// Copies.
///
/// # Errors
/// The first entry that cannot be read or made, with the reason.
pub fn run(args: &CpArgs) -> Result<ExitCode> {
    let target_failed = |error: &io::Error| Failure::system(for_shell(&args.target), error);
    let is_dir = match args.target.metadata() {
        Ok(metadata) => metadata.is_dir(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(target_failed(&error)),
    };
    let (dir, names) = if is_dir {
        let names = args.sources.iter().map(|source| Ok(name_of(source)?.to_owned()));
        (args.target.clone(), names.collect::<Result<Vec<OsString>>>()?)
    } else if args.sources.len() == 1 {
        let parent = args.target.parent().filter(|parent| !parent.as_os_str().is_empty());
        (parent.unwrap_or(Path::new(".")).to_owned(), vec![name_of(&args.target)?.to_owned()])
    } else {
        return Err(target_failed(&io::ErrorKind::NotADirectory.into()));
    };
    let files = args.sources.iter().map(PathBuf::as_path).zip(names.iter().map(OsString::as_os_str));
    finished(copy_files(files, &dir, &args.owners.options()), &dir)
}

/// The name that the copy of a file has.
fn name_of(path: &Path) -> Result<&OsStr> {
    path.file_name().ok_or_else(|| Failure::new(format!("{}: the copy would have no name", for_shell(path))))
}
