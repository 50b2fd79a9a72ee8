//! `pando store`: what can be done with a store while it is not mounted.

mod archive;
mod progress;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::{Duration, Instant, SystemTime},
};

use clap::{Args, Subcommand};
use indicatif::{BinaryBytes, HumanCount, HumanDuration};
use pando_console::{
    failure::{Failure, Result},
    output::print,
    quote::for_shell,
};
use pando_kvfs::{Closed, Info, OpenError, Report, check, compact, info, repair};
use pando_vfs::Vfs;
use serde_json::json;

use self::progress::Progress;
use crate::import::Owners;

const EXAMPLES: &str = "\
Examples:
  pando mount --store trees/home grove      makes a store and mounts its tree
  pando store check trees/home              checks all records (not mounted)
  pando store export trees/home >home.tar   packs the tree into a tar stream

Exit codes: 0 done, 1 it failed, or the check has found something, 2 the command
line is wrong.";

/// Options of `pando store`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct StoreArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what a store has
    Info(Shown),
    /// Check each reference and each count of a store, and say what is wrong
    ///
    /// All records are read. The contents of large files, which are files of the host in
    /// pandofs-contents, are not.
    Check(Shown),
    /// Make a consistent tree of what a store has, after a check has found problems
    ///
    /// Without --yes nothing is changed: the command prints the changes that it would make. Files
    /// that have lost their names get new ones in lost+found. The old records stay in
    /// pandofs-records.before.
    Repair {
        /// The directory of the store
        #[arg(value_name = "STORE")]
        store: PathBuf,
        /// Change the store
        #[arg(long)]
        yes: bool,
    },
    /// Make the file of a store's records as small as it can be
    Compact {
        /// The directory of the store
        #[arg(value_name = "STORE")]
        store: PathBuf,
    },
    /// Pack the tree in a store into a tar stream on standard output
    ///
    /// The stream is ustar with names as GNU tar has them, and PAX records for nanoseconds and
    /// extended attributes. It has no sockets.
    Export {
        /// The directory of the store
        #[arg(value_name = "STORE")]
        store: PathBuf,
    },
    /// Copy a directory or a tar stream into the tree in a store, which is made if it is missing
    ///
    /// A file that exists is an error. A directory that exists, the root too, gets the metadata of
    /// its source.
    Import {
        /// A directory, whose contents are copied; a file with a tar stream; or - for standard
        /// input
        #[arg(value_name = "SOURCE")]
        source: PathBuf,
        /// The directory of the store
        #[arg(value_name = "STORE")]
        store: PathBuf,
        #[command(flatten)]
        owners: Owners,
    },
}

#[derive(Debug, Args)]
struct Shown {
    /// The directory of the store
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How long to wait for another server that still uses the store: after umount(8), a server commits
/// what is left.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens a store for one of the commands.
///
/// # Errors
/// It cannot be opened, each reason with its remedy.
pub fn open<T>(store: &Path, open: impl Fn() -> std::result::Result<T, OpenError>) -> Result<T> {
    let begin = Instant::now();
    loop {
        match open() {
            Err(OpenError::InUse) if begin.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(20)),
            opened => return opened.map_err(|error| cannot_open(store, &error)),
        }
    }
}

/// Drops the tree of a store, and waits until everything is committed. Nothing else uses the tree
/// any more.
///
/// # Errors
/// The last changes may be lost.
pub fn close(vfs: Vfs, closed: &Closed, store: &Path) -> Result<()> {
    let stored = vfs.sync();
    drop(vfs);
    stored.and(closed.wait()).map_err(|error| {
        Failure::system(for_shell(store), &error.into()).remedy("the last changes may be lost; all before are there")
    })
}

/// Runs the command.
///
/// # Errors
/// The store cannot be opened, each reason with its remedy, or reading or writing has failed.
pub fn run(args: &StoreArgs) -> Result<ExitCode> {
    match &args.command {
        Command::Info(Shown { store, json }) => {
            let info = open(store, || info(store))?;
            print(show_info(store, &info, *json).as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Check(Shown { store, json }) => {
            let progress = Progress::new("records");
            let checked = open(store, || check(store, &mut |records| progress.set(records)));
            progress.end();
            let report = checked?;
            print(show_report(&report, *json).as_bytes())?;
            Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Repair { store, yes } => {
            let changes = open(store, || repair(store, *yes))?;
            print(show_changes(store, &changes, *yes).as_bytes()).map(|()| ExitCode::SUCCESS)
        }
        Command::Compact { store } => {
            let (before, after) = open(store, || compact(store))?;
            let line = format!("records: {} before, {} now\n", BinaryBytes(before), BinaryBytes(after));
            print(line.as_bytes()).map(|()| ExitCode::SUCCESS)
        }
        Command::Export { store } => archive::export(store),
        Command::Import { source, store, owners } => archive::import(source, store, owners.options()),
    }
}

/// Says why a store cannot be opened, and what helps.
fn cannot_open(store: &Path, error: &OpenError) -> Failure {
    let shown = for_shell(store);
    let failure = Failure::new(format!("{shown}: {error}"));
    match error {
        OpenError::InUse => failure.remedy(
            "unmount its tree first: pando umount DIR (findmnt -t fuse.pandofs lists mounts); a server that is \
             unmounted may still commit what is left",
        ),
        OpenError::NoStore => failure.remedy(format!("pando mount --store {shown} DIR makes one")),
        OpenError::NotAStore => failure.remedy("choose an empty directory, or one that does not exist"),
        OpenError::Older => failure.remedy("export it with that version, and import the tar stream into a new store"),
        OpenError::Newer => failure.remedy("use the version of pando that has made it, or a later one"),
        OpenError::Damaged(_) => failure.remedy(format!(
            "restore {shown} as a whole from a backup; {} is the damaged file",
            for_shell(&store.join("pandofs-records"))
        )),
        OpenError::Io(error) if error.kind() == std::io::ErrorKind::NotADirectory => failure,
        OpenError::Io(_) => failure.remedy(format!("pando store check {shown} may say more")),
        _ => failure,
    }
}

fn show_info(store: &Path, info: &Info, as_json: bool) -> String {
    let committed = SystemTime::from(info.committed);
    if as_json {
        let seconds = committed.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let object = json!({
            "id": format!("{:016x}", info.id),
            "closed": info.is_closed,
            "commits": info.commits,
            "committed": seconds,
            "inodes": info.inodes,
            "bytes": info.bytes,
            "large_files": info.large,
            "record_bytes": info.record_bytes,
        });
        return format!("{object}\n");
    }
    let commits = match info.commits {
        0 => "none".into(),
        commits => {
            let ago = HumanDuration(committed.elapsed().unwrap_or_default());
            format!("{}, the last {ago} ago", HumanCount(commits))
        }
    };
    let closed = if info.is_closed {
        "yes"
    } else {
        "no: its server was killed, the machine crashed, or its last commit failed"
    };
    let lines = [
        ("store", for_shell(store)),
        ("id", format!("{:016x}", info.id)),
        ("closed", closed.into()),
        ("commits", commits),
        ("inodes", HumanCount(info.inodes).to_string()),
        ("contents", BinaryBytes(info.bytes).to_string()),
        ("large files", HumanCount(info.large).to_string()),
        ("records", BinaryBytes(info.record_bytes).to_string()),
    ];
    lines.iter().map(|(name, value)| format!("{name:<12} {value}\n")).collect()
}

fn show_changes(store: &Path, changes: &[String], are_made: bool) -> String {
    let lines: String = changes.iter().map(|change| format!("{change}\n")).collect();
    let (count, shown) = (HumanCount(changes.len() as u64), for_shell(store));
    match (changes.len(), are_made) {
        (0, _) => "no problem: nothing is to be repaired\n".into(),
        (_, true) => format!("{lines}changes made: {count}; the old records are {shown}/pandofs-records.before*\n"),
        (_, false) => {
            format!("{lines}changes: {count}, none is made yet: pando store repair --yes {shown} makes them\n")
        }
    }
}

fn show_report(report: &Report, as_json: bool) -> String {
    if as_json {
        let Report { inodes, names, problems, .. } = report;
        return format!("{}\n", json!({ "inodes": inodes, "names": names, "problems": problems }));
    }
    let found = match report.problems.len() {
        0 => "no problem".into(),
        1 => "1 problem".into(),
        problems => format!("{} problems", HumanCount(problems as u64)),
    };
    let problems: String = report.problems.iter().map(|problem| format!("{problem}\n")).collect();
    format!("{problems}{} inodes, {} names: {found}\n", HumanCount(report.inodes), HumanCount(report.names))
}
