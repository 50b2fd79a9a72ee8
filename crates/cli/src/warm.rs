//! `pando warm`: reads metadata ahead. `pando_scan::Warm` does the work; this reports it.

mod args;
mod bar;

use std::{
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use indicatif::{HumanBytes, HumanCount, HumanDuration};
use pando_console::{
    cache_room::{ENTRY_BYTES, Memory, Room},
    failure::{Failure, Result, say, shown},
    output::print,
    signals::ending,
};
use pando_scan::{Order, Warm, WarmEvent, WarmFailure, WarmOptions, WarmProgress};
use tracing::{debug, info};

pub use args::{WarmArgs, WarmOrder};

/// How often the bar is drawn, and signals and memory are checked.
const TICK: Duration = Duration::from_millis(100);

/// Exit codes, as in the help.
const SOME_FAILED: u8 = 1;
const NO_ROOM: u8 = 3;
const INTERRUPTED: u8 = 130;

/// What --nice adds to the nice value: half of the range.
const NICE: i32 = 10;

/// Why it stopped early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    Signal,
    Room,
}

/// Reads ahead, and reports the result.
///
/// # Errors
/// Signals cannot be caught, or no thread can be started. If the summary cannot be written, that is
/// reported, and only the exit code for success changes.
pub fn run(args: &WarmArgs) -> Result<ExitCode> {
    let signalled = catch_signals().map_err(|error| Failure::system("cannot catch signals", &error))?;
    if args.nice {
        // If this is refused, go on: others are affected more by the number of calls.
        let niced = rustix::process::nice(NICE);
        debug!(?niced, "priority");
    }
    let memory = Memory::here();
    let room = room(&memory, args.max_memory);
    if let Some(room) = &room {
        let (entries, bytes) = (HumanCount(room.entries()), HumanBytes(room.bytes));
        info!("the kernel's caches have room for about {entries} entries ({bytes}, bounded by {})", room.bound_by);
    }
    let warm = Warm::start(args.paths.clone(), options(args, room.as_ref()))
        .map_err(|error| Failure::system("cannot start a thread", &error))?;
    let begun = Instant::now();
    let stop = watch(&warm, &memory, &signalled, args.quiet);
    let progress = warm.progress();
    let cut_short = stop.or(progress.ran_out.then_some(Stop::Room));
    let mut code = match cut_short {
        Some(Stop::Signal) => INTERRUPTED,
        Some(Stop::Room) => NO_ROOM,
        None if progress.failed > 0 => SOME_FAILED,
        None => 0,
    };
    if !args.quiet
        && let Err(failure) = print(summary(&progress, begun.elapsed(), cut_short, room.as_ref()).as_bytes())
        && !failure.is_quiet()
    {
        say(failure);
        code = code.max(SOME_FAILED);
    }
    Ok(code.into())
}

/// True after a signal. A second signal ends the process at once, even with calls in flight.
fn catch_signals() -> std::io::Result<Arc<AtomicBool>> {
    let signalled = Arc::new(AtomicBool::new(false));
    for signal in ending() {
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&signalled))?;
        signal_hook::flag::register(signal, Arc::clone(&signalled))?;
    }
    Ok(signalled)
}

/// The room in the caches, or less if the user allows less.
fn room(memory: &Memory, allowed: Option<u64>) -> Option<Room> {
    let allowed = allowed.map(|bytes| Room { bytes, bound_by: "--max-memory".into() });
    memory.room().into_iter().chain(allowed).min_by_key(|room| room.bytes)
}

fn options(args: &WarmArgs, room: Option<&Room>) -> WarmOptions {
    let order = match args.order {
        WarmOrder::Inode => Order::Inode,
        WarmOrder::Directory => Order::Directory,
    };
    WarmOptions::new()
        .recursive(args.recursive)
        .xattrs(args.xattrs)
        .one_file_system(args.one_file_system)
        .max_in_flight(args.max_inflight)
        .rate(args.rate)
        .yields(args.nice)
        .at_most(room.map(Room::entries))
        .order(order)
}

/// Follows the work to its end. Returns why it was told to stop.
fn watch(warm: &Warm, memory: &Memory, signalled: &AtomicBool, quiet: bool) -> Option<Stop> {
    let bar = bar::new(quiet);
    let (mut stop, mut next) = (None, Instant::now() + TICK);
    loop {
        match warm.next_event(next.saturating_duration_since(Instant::now())) {
            WarmEvent::Ended => break,
            WarmEvent::Failed(WarmFailure { path, error }) => {
                bar.suspend(|| say(format_args!("pando: {}: {error}", shown(path.as_os_str()))));
            }
            WarmEvent::Nothing => {}
        }
        // Many failures must not keep the bar and the checks from running.
        if Instant::now() < next {
            continue;
        }
        next = Instant::now() + TICK;
        bar::draw(&bar, &warm.progress());
        if stop.is_none() {
            stop = if signalled.load(Ordering::Relaxed) {
                Some(Stop::Signal)
            } else if memory.room().is_some_and(|room| room.bytes < ENTRY_BYTES) {
                Some(Stop::Room)
            } else {
                None
            };
            if stop.is_some() {
                warm.cancel();
            }
        }
    }
    bar.finish_and_clear();
    debug!(workers = warm.workers(), "calls at once");
    stop
}

fn summary(progress: &WarmProgress, took: Duration, stop: Option<Stop>, room: Option<&Room>) -> String {
    let WarmProgress { directories, found, done, failed, ran_out: _, all_found } = *progress;
    let plural =
        |count: u64, one: &str, many: &str| format!("{} {}", HumanCount(count), if count == 1 { one } else { many });
    let rate = done as f64 / took.as_secs_f64().max(1e-9);
    let mut text = format!(
        "{} in {} read in {} ({}/s)",
        plural(done, "entry", "entries"),
        plural(directories, "directory", "directories"),
        if took < Duration::from_secs(60) {
            format!("{:.2} s", took.as_secs_f64())
        } else {
            HumanDuration(took).to_string()
        },
        if done > 0 && rate < 1.0 { "less than 1".into() } else { HumanCount(rate as u64).to_string() },
    );
    if failed > 0 {
        text += &format!(", {} could not be read", HumanCount(failed));
    }
    let left =
        if all_found { HumanCount(found - done).to_string() } else { format!("at least {}", HumanCount(found - done)) };
    match stop {
        None => {}
        Some(Stop::Signal) => text += &format!("; stopped, with {left} left"),
        Some(Stop::Room) => {
            text += &format!("; stopped, with {left} left for which there is no room");
        }
    }
    text.push('\n');
    if let Some(Room { bytes, bound_by }) = room {
        text += &format!(
            "The kernel's caches had room for about {} entries: {} at {} each, bounded by {bound_by}.\n",
            HumanCount(bytes / ENTRY_BYTES),
            HumanBytes(*bytes),
            HumanBytes(ENTRY_BYTES),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_says_what_is_left_and_why() {
        let room = Room { bytes: 15_360_000, bound_by: "the machine's memory".into() };
        let progress =
            WarmProgress { directories: 1, found: 20_000, done: 20_000, all_found: true, ..Default::default() };
        let text = summary(&progress, Duration::from_secs(2), None, Some(&room));
        assert!(text.starts_with("20,000 entries in 1 directory read in 2.00 s (10,000/s)\n"), "{text}");
        assert!(text.contains("about 10,000 entries: 14.65 MiB at 1.50 KiB each, bounded by the machine's"), "{text}");
        let progress = WarmProgress { directories: 2, found: 50, done: 1, failed: 3, ..Default::default() };
        let text = summary(&progress, Duration::from_secs(2), Some(Stop::Signal), None);
        assert!(text.starts_with("1 entry in 2 directories read"), "{text}");
        assert!(text.ends_with("3 could not be read; stopped, with at least 49 left\n"), "{text}");
        let text = summary(&progress, Duration::from_secs(24), None, None);
        assert!(text.contains(" read in 24.00 s (less than 1/s)"), "{text}");
        let text = summary(&progress, Duration::from_secs(2), Some(Stop::Room), None);
        assert!(text.ends_with("left for which there is no room\n"), "{text}");
    }
}
