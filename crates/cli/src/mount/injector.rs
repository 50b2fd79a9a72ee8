//! Options of `pando mount` for the latency and fault injector, which also counts requests.

use std::{fs::File, io::Write, num::NonZeroUsize, path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use pando_console::failure::{Failure, Result};
use pando_fuse::{Fault, Injector, InjectorOptions, Operation, Report, When};
use pando_hostfs::Latency;
use pando_vfs::Error;

/// Latency, faults, and files for counts.
#[derive(Debug, Args)]
#[command(next_help_heading = "Latency and fault injector, for experiments")]
pub struct InjectorArgs {
    /// How long operations take, as in lookup=500us,getattr=500us,read=2ms
    ///
    /// Operations: lookup, getattr, readlink, open, readdir, read, write, getxattr, listxattr.
    /// Units: us, ms, s. An answer with attributes costs a getattr too: a lookup that finds
    /// something, and each entry of a readdirplus, which also costs a readdir and a lookup.
    #[arg(long, value_name = "OPERATION=TIME", value_delimiter = ',', value_parser = parse_delay)]
    pub delay: Vec<(Operation, Duration)>,

    /// How many items are served at once; others wait in order of arrival [default: no limit]
    #[arg(long, value_name = "N", value_parser = parse_depth, allow_negative_numbers = true)]
    pub depth: Option<NonZeroUsize>,

    /// The extra time of a read if the disk's arm moves across the whole file; shorter moves take
    /// less
    ///
    /// The arm is where the last read ended. Its time grows with the square root of the distance.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub seek: Option<Duration>,

    /// How long SOURCE takes for each item, below the caches of the tree, as in 500us
    ///
    /// An item is a name that is looked up, an inode whose attributes are read, a list of extended
    /// attributes, the start of a listing, or a change. An item that is cached takes no time.
    /// Unlike --delay, which makes the mount slow, this makes its source slow.
    #[arg(long, requires = "source", conflicts_with = "store", value_name = "TIME", value_parser = parse_time, hide_short_help = true)]
    pub source_delay: Option<Duration>,

    /// How many calls SOURCE serves at once
    #[arg(long, requires = "source_delay", value_name = "N", value_parser = parse_depth,
          allow_negative_numbers = true, default_value = "32", hide_short_help = true)]
    pub source_depth: NonZeroUsize,

    /// Answer readdir with names alone and not with attributes (no readdirplus), as simple servers
    /// do
    #[arg(long)]
    pub no_readdirplus: bool,

    /// Fail operations, as in read=EIO, getattr=ESTALE@3 (the third), lookup=EIO:NAME (of that
    /// name)
    #[arg(long, value_name = "OPERATION=ERROR", value_parser = parse_fault, hide_short_help = true)]
    pub fault: Vec<Fault>,

    /// Write the number of requests of each kind to a file, as JSON, at the end (-v logs it)
    ///
    /// While the tree is mounted, `getfattr --only-values -n system.pandofs.requests DIR` prints
    /// the same.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub stats: Option<PathBuf>,

    /// Write a list of all reads to a file, as CSV: start_us,end_us,node,offset,bytes
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub trace_reads: Option<PathBuf>,
}

impl InjectorArgs {
    /// The latency of the source, if it has any.
    pub fn latency_of_source(&self) -> Option<Latency> {
        self.source_delay.map(|delay| Latency::new(delay, self.source_depth))
    }
}

/// An injector, and the file for its counts.
pub struct Counted {
    injector: Arc<Injector>,
    stats: Option<(PathBuf, File)>,
}

/// The injector that the options ask for. A plain mount has none, unless the log wants counts of
/// requests.
///
/// # Errors
/// An output file cannot be created.
pub fn injector(args: &InjectorArgs, for_log: bool) -> Result<Option<Counted>> {
    let InjectorArgs { delay, depth, seek, fault, stats, trace_reads, .. } = args;
    let at_once = delay.iter().map(|&(_, time)| time).chain(*seek).all(|time| time.is_zero());
    if at_once && depth.is_some() {
        let failure = Failure::new("--depth limits how many items wait at once, and no delay is given");
        return Err(failure.remedy("add a delay, as in --delay lookup=500us, or omit --depth"));
    }
    let plain = delay.is_empty() && seek.is_none() && fault.is_empty() && stats.is_none() && trace_reads.is_none();
    if plain && !for_log {
        return Ok(None);
    }
    let options = InjectorOptions::new()
        .delays(delay.clone())
        .depth(*depth)
        .seek(seek.unwrap_or_default())
        .faults(fault.clone())
        .trace_reads(trace_reads.clone());
    let injector = Injector::new(options)
        .map_err(|error| Failure::system("cannot start the latency and fault injector", &error))?;
    // Created now, so that a bad path is reported now, and because a daemon changes its working
    // directory.
    let made = |path: &PathBuf| File::create(path).map_err(|error| Failure::system(path.display(), &error));
    let stats = match stats {
        Some(path) => Some((path.clone(), made(path)?)),
        None => None,
    };
    Ok(Some(Counted { injector: Arc::new(injector), stats }))
}

impl Counted {
    /// The injector.
    pub fn injector(&self) -> Arc<Injector> {
        Arc::clone(&self.injector)
    }

    /// Writes the counts at the end.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn finish(self) -> Result<Report> {
        self.injector.close().map_err(|error| Failure::system("the list of reads", &error))?;
        let report = self.injector.report();
        if let Some((path, mut file)) = self.stats {
            writeln!(file, "{}", report.to_json()).map_err(|error| Failure::system(path.display(), &error))?;
        }
        Ok(report)
    }
}

fn parse_depth(text: &str) -> std::result::Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "the number of items at once is a whole number from 1 on, as in 8".to_owned())
}

/// A longer time would look like a hang.
const LONGEST: Duration = Duration::from_secs(60);

const UNITS: [(&str, f64); 3] = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];

/// The time for one item.
fn parse_time(text: &str) -> std::result::Result<Duration, String> {
    match parse_duration(text)? {
        time if time <= LONGEST => Ok(time),
        _ => Err(format!("{text} is too long: up to {} s for one item", LONGEST.as_secs())),
    }
}

/// Parses a time with its unit.
pub fn parse_duration(text: &str) -> std::result::Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let Ok(number) = number.parse::<f64>() else {
        return Err(format!("{text:?} is not a time: a number and a unit, as in 500us, 2ms or 0.1s"));
    };
    let Some((_, seconds)) = UNITS.iter().find(|(known, _)| *known == unit) else {
        return Err(format!("{text:?} has no known unit: write us, ms or s, as in 500us, 2ms or 0.1s"));
    };
    Duration::try_from_secs_f64(number * seconds).map_err(|_| format!("{text} is too long"))
}

fn parse_delay(text: &str) -> std::result::Result<(Operation, Duration), String> {
    let Some((operation, time)) = text.split_once('=') else {
        return Err(format!("{text:?} has no time: write OPERATION=TIME, as in lookup=500us"));
    };
    Ok((parse_operation(operation)?, parse_time(time)?))
}

fn parse_operation(text: &str) -> std::result::Result<Operation, String> {
    let known = Operation::INJECTABLE;
    known.iter().copied().find(|operation| operation.name() == text).ok_or_else(|| {
        let known: Vec<&str> = known.iter().map(|operation| operation.name()).collect();
        format!("there is no operation {text:?}: the operations are {}", known.join(", "))
    })
}

/// The errors that can be injected.
const ERRORS: [(&str, Error); 9] = [
    ("EIO", Error::Io),
    ("ESTALE", Error::Stale),
    ("EACCES", Error::Access),
    ("EPERM", Error::NotPermitted),
    ("ENOENT", Error::NoEntry),
    ("ENOMEM", Error::NoMemory),
    ("EINTR", Error::Interrupted),
    ("EOPNOTSUPP", Error::NotSupported),
    ("ENODATA", Error::NoData),
];

fn parse_fault(text: &str) -> std::result::Result<Fault, String> {
    let Some((operation, what)) = text.split_once('=') else {
        return Err(format!("{text:?} has no error: write OPERATION=ERROR, as in read=EIO"));
    };
    let operation = parse_operation(operation)?;
    let end = what.find(['@', ':']).unwrap_or(what.len());
    let (error, which) = what.split_at(end);
    let Some((_, error)) = ERRORS.iter().find(|(known, _)| *known == error) else {
        // A comma may belong to a name, so it does not separate faults.
        if text.contains(',') {
            return Err(format!("{text:?} is more than one fault: write --fault for each, as in --fault read=EIO"));
        }
        let known: Vec<&str> = ERRORS.iter().map(|(known, _)| *known).collect();
        return Err(format!("there is no error {error:?} to inject: the errors are {}", known.join(", ")));
    };
    let when = match (which.get(..1), which.get(1..).unwrap_or_default()) {
        (Some("@"), number) => match number.parse() {
            Ok(nth) if nth > 0 => When::Nth(nth),
            _ => return Err(format!("{number:?} is not a count from 1 on: getattr=EIO@3 fails the third")),
        },
        (Some(_), name) if operation == Operation::Lookup && !name.is_empty() => When::Named(name.into()),
        (Some(_), _) => return Err(format!("{text:?}: only look-ups have a name, as in lookup=EIO:NAME")),
        (None, _) => When::Always,
    };
    Ok(Fault { operation, error: *error, when })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, us) in
            [("500us", 500), ("2ms", 2000), ("0.5ms", 500), ("1s", 1_000_000), ("0us", 0), ("60s", 60_000_000)]
        {
            assert_eq!(parse_time(text), Ok(Duration::from_micros(us)), "{text}");
        }
        for (text, says) in [
            ("500", "no known unit"),
            ("5m", "us, ms or s"),
            ("ms", "not a time"),
            ("", "not a time"),
            ("-1ms", "not a time"),
            ("1.2.3ms", "not a time"),
            ("61s", "too long"),
            ("99999999999999999999999999s", "too long"),
            ("1é", "no known unit"),
        ] {
            let error = parse_time(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn delays_name_an_operation() {
        assert_eq!(parse_delay("lookup=500us"), Ok((Operation::Lookup, Duration::from_micros(500))));
        assert!(parse_delay("lookup").unwrap_err().contains("OPERATION=TIME"));
        let unknown = parse_delay("swim=5ms").unwrap_err();
        assert!(unknown.contains("\"swim\"") && unknown.contains("lookup, getattr"), "{unknown}");
        assert!(parse_delay("mkdir=5ms").is_err(), "changes have no delay");
    }

    #[test]
    fn faults_say_which() {
        let fault = |text| parse_fault(text).unwrap();
        assert_eq!(fault("read=EIO").when, When::Always);
        assert_eq!((fault("getattr=ESTALE@3").error, fault("getattr=ESTALE@3").when), (Error::Stale, When::Nth(3)));
        assert_eq!(fault("lookup=EIO:a@b").when, When::Named(b"a@b".into()));
        for (text, says) in [
            ("read", "OPERATION=ERROR"),
            ("read=EFUN", "EIO, ESTALE"),
            ("read=EIO,lookup=EIO", "--fault for each"),
            ("a,b", "OPERATION=ERROR"),
            ("swim=EIO", "lookup"),
            ("read=EIO@0", "not a count"),
            ("read=EIO@x", "not a count"),
            ("read=EIO:name", "only look-ups"),
            ("lookup=EIO:", "only look-ups"),
        ] {
            let error = parse_fault(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
