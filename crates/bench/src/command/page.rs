//! `pando bench report`: the five published results measured again, on one HTML page.
//!
//! ```text
//!   plan    the measurements, and the published results
//!   html    the page: headings, text, tables
//!   listing listings of directories, by their size
//!   plot    the plots, as SVG
//!   kept    the rate that path rendering keeps beside renames
//!   matrix  the conflict matrix: cache lines for which operations compete
//! ```
//!
//! The page is drawn from the files `report.json`, `footprint.json`, `conflicts.json` and
//! `command.txt` beside it, and can be drawn again from them. It needs no script and no external
//! resource.

mod args;
mod html;
mod kept;
mod listing;
mod matrix;
mod plan;
mod plot;
mod stored;

use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, IsTerminal},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::Path,
};

pub(crate) use self::args::ReportArgs;
use self::{
    args::NAME,
    plan::{Directories, Speed},
    stored::StoredMatrix,
};
use crate::{
    base::{
        cancel::Cancel,
        failure::{During, Failure, print_error},
        output::Output,
    },
    command::footprint::{self, Bytes},
    report::{self, Run},
    run::schedule,
    target::TargetSpec,
};

/// The figures, beside the page.
const FIGURES: &str = "report.json";
const FOOTPRINT: &str = "footprint.json";
/// The command that measured the figures.
const COMMAND: &str = "command.txt";
/// Measures, and draws the page. Returns the text to print, and whether tracing failed; in that
/// case the page has no matrix.
///
/// # Errors
/// A target's or the file system's error, or [`Failure::Interrupted`].
pub(crate) fn run(args: &ReportArgs, cancel: &Cancel) -> Result<(String, Result<(), Failure>), Failure> {
    let speed = Speed::new(args);
    let directories = directories(args)?;
    if footprint::is_child() {
        return footprint::run(&footprint_targets(&directories.kernel), speed.names(), cancel);
    }
    let traced = if args.redraw { Ok(()) } else { measure(args, &speed, &directories, cancel)? };
    let records = report::json::read(&args.out.join(FIGURES))?;
    let bytes = read_bytes(&args.out.join(FOOTPRINT))?;
    let stored = stored::read(&args.out)?;
    let command = match fs::read_to_string(args.out.join(COMMAND)) {
        // The report of an older version did not store it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => format!("pando bench {NAME}"),
        command => command.during(|| format!("reading {}", args.out.join(COMMAND).display()))?,
    };
    let page = html::page(&records, &bytes, stored.as_ref(), command.trim_end());
    for (name, svg) in &page.plots {
        let path = args.out.join(format!("{name}.svg"));
        fs::write(&path, svg).during(|| format!("writing {}", path.display()))?;
    }
    let path = args.out.join("index.html");
    fs::write(&path, &page.html).during(|| format!("writing {}", path.display()))?;
    let missing = match &stored {
        Some(StoredMatrix::NotMeasured { not_measured }) => format!("no conflict matrix: {not_measured}\n"),
        _ => String::new(),
    };
    let told = format!("{missing}{}: {} plots, {} measurements\n", path.display(), page.plots.len(), records.len());
    Ok((told, traced))
}

/// Those on the disk are subdirectories, so that all of them are on its file system.
fn directories(args: &ReportArgs) -> Result<Directories, Failure> {
    let target = |kind: &str, path: &Path| -> Result<TargetSpec, Failure> {
        let not_utf8 = || Failure::Refused(format!("{} is not UTF-8: name another", path.display()));
        format!("{kind}={}", path.to_str().ok_or_else(not_utf8)?).parse().map_err(Failure::Refused)
    };
    Ok(Directories {
        kernel: target("dir", &args.dir)?,
        disk: target("dir", &args.disk.join("kernel"))?,
        host: target("host", &args.disk.join("host"))?,
        host_before: target("host:before", &args.disk.join("before"))?,
    })
}

/// The directory on the disk. It is removed at the end if it was made here.
struct DiskDirectory<'a>(Option<&'a Path>);

impl<'a> DiskDirectory<'a> {
    fn make(path: &'a Path) -> Result<Self, Failure> {
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => return Ok(Self(Some(path))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).during(|| format!("making {}", path.display())),
        }
        let owner = fs::metadata(path).during(|| format!("reading {}", path.display()))?.uid();
        if owner != rustix::process::geteuid().as_raw() {
            return Err(Failure::Refused(format!(
                "{} belongs to another user ({owner}): choose a directory of your own with --disk",
                path.display()
            )));
        }
        Ok(Self(None))
    }
}

impl Drop for DiskDirectory<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            // It stays if something in it could not be removed, which was reported.
            let _ = fs::remove_dir(path);
        }
    }
}

fn footprint_targets(kernel: &TargetSpec) -> Vec<TargetSpec> {
    vec!["mem".parse().expect("a target"), "backed".parse().expect("a target"), kernel.clone()]
}

/// Measures everything; returns whether tracing failed.
fn measure(
    args: &ReportArgs,
    speed: &Speed,
    directories: &Directories,
    cancel: &Cancel,
) -> Result<Result<(), Failure>, Failure> {
    fs::create_dir_all(&args.out).during(|| format!("making {}", args.out.display()))?;
    let _disk = DiskDirectory::make(&args.disk)?;
    let begun = Run::begin(fastrand::u64(..));
    let jobs = plan::jobs(speed, directories, begun.seed);
    let [figures, footprint, asked] = [FIGURES, FOOTPRINT, COMMAND].map(|name| Output::open(&args.out.join(name)));
    let (figures, footprint, asked) = (figures?, footprint?, asked?);
    let bar = schedule::progress(jobs.iter().map(|job| job.plan.measurements(job.targets.len())).sum());
    let mut rows = Vec::new();
    for job in &jobs {
        let (results, cleaned_up) = schedule::run(&job.workload, &job.targets, &job.plan, &bar, cancel)?;
        if rows.is_empty() {
            // The figures of an earlier run stay until this run has the first result. Then all of
            // them are replaced.
            asked.write(command(env::args_os()) + "\n")?;
            footprint.write("[]\n")?;
            stored::remove(&args.out)?;
        }
        rows.extend(report::rows(&results));
        report::json::write(&rows, begun, &figures)?;
        cleaned_up?;
    }
    bar.set_message("bytes per file");
    let (bytes, outcome) = footprint::measured(&footprint_targets(&directories.kernel), speed.names(), cancel);
    bar.finish_and_clear();
    footprint.write(serde_json::to_string_pretty(&bytes).during(|| "writing figures".into())? + "\n")?;
    outcome?;
    if io::stderr().is_terminal() {
        print_error("tracing the conflict matrix under valgrind");
    }
    stored::measure(&args.out, args.quick, cancel)
}

/// The command line of this report, quoted for a shell.
fn command(arguments: impl Iterator<Item = OsString>) -> String {
    let ours = arguments.skip_while(|argument| argument != NAME);
    let words: Vec<String> = ours.map(|argument| quoted(&argument.to_string_lossy())).collect();
    format!("pando bench {}", words.join(" "))
}

/// One word, quoted for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn read_bytes(path: &Path) -> Result<Vec<Bytes>, Failure> {
    let text = fs::read_to_string(path).during(|| format!("reading {}", path.display()))?;
    serde_json::from_str(&text)
        .map_err(|error| Failure::Refused(format!("{} was not written by a report: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_quoted_for_a_shell() {
        let arguments = ["target/release/pando", "bench", "report", "--out=a b", "--threads", "1,2", "--dir", "it's"];
        assert_eq!(
            command(arguments.into_iter().map(OsString::from)),
            r"pando bench report '--out=a b' --threads 1,2 --dir 'it'\''s'"
        );
    }
}
