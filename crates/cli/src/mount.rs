//! `pando mount`: mounts a tree and serves it, or changes the properties of a mounted tree.
//!
//! ```text
//!  helper           mount(8) calls the command by another name
//!  serve            mounts and serves; `leave` unmounts
//!  remount          `-o remount`
//!  asked            what words and options ask for together
//!  args             the options
//!  options          words after -o
//!  limits           how large the tree may grow
//!  source, store    trees that are not in memory
//!  point, refused   the directory to mount on; why it cannot be mounted
//!  injector         options of the latency and fault injector
//!  daemon           the process in the background
//! ```

mod args;
mod asked;
mod daemon;
pub mod helper;
mod injector;
mod leave;
mod limits;
mod memory;
mod notify;
mod options;
mod point;
mod refused;
mod remount;
mod serve;
mod source;
mod store;

use std::{ffi::OsString, process::ExitCode};

use pando_console::{failure::Result, output::show};

use self::daemon::Started;

pub use self::args::MountArgs;

/// Mounts a tree, in the background if asked; or changes the properties of a mounted tree. `line`
/// is the command line without the name of the command.
///
/// # Errors
/// The tree cannot be mounted or changed, each reason with its remedy, or its device failed.
pub fn run(args: &MountArgs, line: &[OsString]) -> Result<ExitCode> {
    let asked = asked::fold(args)?;
    if asked.remount {
        return remount::run(args, &asked).map(|()| ExitCode::SUCCESS);
    }
    if !args.daemon || daemon::is_child() {
        return serve::run(args, asked, args.daemon);
    }
    match daemon::start(line)? {
        Started::Ready(ready) => {
            show(&ready);
            Ok(ExitCode::SUCCESS)
        }
        Started::Failed(code) => Ok(ExitCode::from(code)),
    }
}
