//! `mount.fuse.pandofs`: the helper that mount(8) runs for `mount -t fuse.pandofs`, also for lines
//! of fstab and mount units of systemd. It is a link to the command, which looks at the name that
//! it was called by.

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{ArgAction, Parser};
use pando_console::{
    failure::{Failure, say},
    mountinfo::OUR_TYPE,
    output::show,
    quote::for_shell,
};
use rustix::{
    process::geteuid,
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

use super::{
    args::{self, MountArgs},
    asked,
    daemon::{self, Started},
    options, remount,
};

/// The names of the helper.
const NAMES: [&str; 2] = ["mount.fuse.pandofs", "mount.pandofs"];

/// Exit codes as of mount(8).
const USAGE: u8 = 1;
const SYSTEM: u8 = 2;
const NOT_MOUNTED: u8 = 32;

const HELP: &str = "\
Usually mount(8) runs this command: for mount -t fuse.pandofs NAME DIR, or for a line of /etc/fstab. `pando mount --help` \
lists the options, and says how to install the link.

Exit codes, as of mount(8): 0 done, 1 the command line is wrong, 2 a system error, 32 it could not be mounted.";

/// Mount an in-memory tree for mount(8)
#[derive(Debug, Parser)]
#[command(name = "mount.fuse.pandofs", version, after_help = HELP, max_term_width = 100, args_override_self = true)]
struct HelperArgs {
    /// The source that mount tables show: any name
    source: String,

    /// The directory to mount on
    dir: PathBuf,

    /// Mount options, separated by commas
    #[arg(short, value_name = "OPTIONS", action = ArgAction::Append)]
    options: Vec<String>,

    /// Ignore unknown options
    #[arg(short)]
    sloppy: bool,

    /// Check the options, and mount nothing
    #[arg(short)]
    fake: bool,

    /// Accepted without effect: there is no /etc/mtab to write
    #[arg(short)]
    no_mtab: bool,

    /// Report what was mounted
    #[arg(short, action = ArgAction::Count)]
    verbose: u8,

    /// The mount namespace to mount in: a file, as in /proc/PID/ns/mnt
    #[arg(short = 'N', value_name = "FILE")]
    namespace: Option<PathBuf>,

    /// The type, which is fuse.pandofs
    #[arg(short, value_name = "TYPE", value_parser = [OUR_TYPE, "pandofs"], hide_possible_values = true)]
    type_: Option<String>,
}

/// Whether the command was called by a name of the helper.
pub fn is_called() -> bool {
    let name = std::env::args_os().next();
    name.as_deref()
        .and_then(|name| Path::new(name).file_name())
        .is_some_and(|name| NAMES.iter().any(|known| name == *known))
}

/// Mounts or remounts for mount(8). Returns when that is done.
pub fn run() -> ExitCode {
    let args = match HelperArgs::try_parse() {
        Ok(args) => args,
        Err(message) => return misused(&message),
    };
    let line = match line(&args) {
        Ok(line) => line,
        Err(message) => return failed(&Failure::new(message), USAGE),
    };
    let mount = match MountArgs::read(&line) {
        Ok(mount) => mount,
        Err(message) => return misused(&message),
    };
    if let Some(file) = &args.namespace
        && let Err(error) = enter(file)
    {
        return failed(&Failure::system(format_args!("-N {}", for_shell(file)), &error), SYSTEM);
    }
    let asked = match asked::fold(&mount) {
        Ok(asked) => asked,
        Err(failure) => return failed(&failure, USAGE),
    };
    if let Some(failure) = missing(&mount) {
        return failed(&failure, NOT_MOUNTED);
    }
    if args.fake {
        return ExitCode::SUCCESS;
    }
    if asked.remount {
        return remount::run(&mount, &asked)
            .map_or_else(|failure| failed(&failure, NOT_MOUNTED), |()| ExitCode::SUCCESS);
    }
    let line: Vec<OsString> = [OsString::from("mount")].into_iter().chain(line).collect();
    match daemon::start(&line) {
        Ok(Started::Ready(ready)) => {
            if args.verbose > 0 {
                show(&ready);
            }
            ExitCode::SUCCESS
        }
        Ok(Started::Failed(_)) => ExitCode::from(NOT_MOUNTED),
        Err(failure) => failed(&failure, SYSTEM),
    }
}

/// The arguments of `pando mount` for the same request.
fn line(args: &HelperArgs) -> Result<Vec<OsString>, String> {
    if args.source.is_empty() {
        return Err("the source is empty: give it a name, which mount tables will show".into());
    }
    let asked: Vec<String> = args.options.iter().flat_map(|words| options::split(words)).collect();
    let mut words = vec![format!("fsname={}", args.source)];
    if geteuid().is_root() && !asked.iter().any(|word| word == "remount") {
        // These are defaults of mount(8), which it does not pass on.
        words.extend(["suid", "dev"].map(str::to_owned));
    }
    for word in asked {
        match options::parse(&word, args::is_long_option) {
            Ok(_) => words.push(word),
            Err(message) if args.sloppy => {
                if args.verbose > 0 {
                    say(format_args!("pando: {word}: left away: {message}"));
                }
            }
            Err(message) => return Err(message),
        }
    }
    let words: Vec<String> = words.iter().map(|word| options::escape(word)).collect();
    let mut line: Vec<OsString> = ["--daemon", "-o"].map(Into::into).to_vec();
    line.extend([words.join(",").into(), "--".into(), args.dir.clone().into()]);
    Ok(line)
}

/// mount(8) creates no directory without x-mount.mkdir.
fn missing(mount: &MountArgs) -> Option<Failure> {
    match std::fs::symlink_metadata(&mount.dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let shown = for_shell(&mount.dir);
            let failure = Failure::new(format!("{shown}: mount point does not exist"));
            Some(failure.remedy(format!("make it first (mkdir {shown}), or add -o x-mount.mkdir")))
        }
        _ => None,
    }
}

fn enter(file: &Path) -> io::Result<()> {
    let namespace = File::open(file)?;
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?)
}

/// Prints help or an error of clap.
fn misused(message: &clap::Error) -> ExitCode {
    let _ = message.print();
    if message.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
}

fn failed(failure: &Failure, code: u8) -> ExitCode {
    say(failure);
    ExitCode::from(code)
}
