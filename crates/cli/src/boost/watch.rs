//! A helper for all programs at a mount.

use std::{io, os::fd::AsFd, path::Path, process::ExitCode};

use pando_boost::{Options, Watch};
use pando_console::{
    failure::{Failure, Result, say},
    output::show,
    quote::for_shell,
    signals,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use signal_hook::low_level::pipe;

use super::totals;

/// How often to check, without events, whether the mount still exists.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Boosts every program at a mount until a signal.
///
/// # Errors
/// The mount cannot be watched.
pub fn run(path: &Path, options: Options) -> Result<ExitCode> {
    let shown = path.display();
    let watch = Watch::start(path, options).map_err(|error| {
        let failure = Failure::system(&shown, &error);
        match Errno::from_io_error(&error) {
            Some(Errno::PERM) => {
                failure.remedy(format!("only root may watch a mount: sudo pando boost --watch {}", for_shell(path)))
            }
            Some(Errno::NODEV | Errno::OPNOTSUPP | Errno::INVAL | Errno::XDEV) => failure
                .remedy("fanotify does not watch this file system; boost programs one by one: pando boost -- CMD"),
            _ => failure,
        }
    })?;
    let system = |error: io::Error| Failure::system("cannot catch signals", &error);
    let (stop, stopper) = io::pipe().map_err(system)?;
    for signal in signals::ending() {
        pipe::register(signal, stopper.try_clone().map_err(system)?).map_err(system)?;
    }
    show(&format!("{shown}: programs here are boosted; end it with Ctrl-C\n"));
    loop {
        let mut ready = [PollFd::new(&stop, PollFlags::IN), PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN)];
        match poll(&mut ready, Some(&LOOK_EVERY)) {
            Err(Errno::INTR) => continue,
            Err(error) => return Err(Failure::system(&shown, &error.into())),
            Ok(0) if watch.is_over() => {
                say(format_args!("pando: {shown}: not mounted any more, so there is nothing left to watch"));
                break;
            }
            Ok(_) => {}
        }
        if !ready[0].revents().is_empty() {
            break;
        }
        watch.take().map_err(|error| Failure::system(&shown, &error))?;
    }
    totals::log(watch.finish());
    Ok(ExitCode::SUCCESS)
}
