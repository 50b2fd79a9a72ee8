//! The matrix of conflicts on the page, and what stands in its way.

use std::{fmt::Write as _, fs, io, path::Path};

use serde::{Deserialize, Serialize};

use super::{html::Page, plot::escape};
use crate::{
    conflicts::{self, Class, KEYS, Layout, Matrix, Offender},
    failure::{Failure, While, unless_gone},
    halt::Halt,
};

/// Beside the page.
const FILE: &str = "conflicts.json";

/// What is known of it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Seen {
    Measured(Box<Matrix>),
    NotMeasured { not_measured: String },
}

/// Measures, or finds why it cannot be measured here; keeps either beside the page. With one key it takes a third of
/// the time. Returns whether it failed: that it is not for this machine is no failure.
///
/// # Errors
/// What the file system answers, or that the run was interrupted.
pub(super) fn measure(out: &Path, quick: bool, halt: &Halt) -> Result<Result<(), Failure>, Failure> {
    let (seen, outcome) = match conflicts::measure(super::NAME, if quick { 1 } else { KEYS }, halt) {
        Ok(matrix) => (Seen::Measured(Box::new(matrix)), Ok(())),
        Err(Failure::Interrupted) => return Err(Failure::Interrupted),
        Err(Failure::Refused(why)) => (Seen::NotMeasured { not_measured: why }, Ok(())),
        Err(failed) => (Seen::NotMeasured { not_measured: failed.to_string() }, Err(failed)),
    };
    let path = out.join(FILE);
    let during = || format!("writing {}", path.display());
    let text = serde_json::to_string_pretty(&seen).during(during)?;
    fs::write(&path, text + "\n").during(during)?;
    Ok(outcome)
}

/// Removes what an earlier report has kept.
///
/// # Errors
/// What the file system answers.
pub(super) fn forget(out: &Path) -> Result<(), Failure> {
    let path = out.join(FILE);
    unless_gone(fs::remove_file(&path)).during(|| format!("removing {}", path.display()))
}

/// As it was kept; none by a report of before there was a matrix.
///
/// # Errors
/// That it cannot be read, or is something else.
pub(super) fn read(out: &Path) -> Result<Option<Seen>, Failure> {
    let path = out.join(FILE);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.during(|| format!("reading {}", path.display()))?,
    };
    let seen = serde_json::from_str(&text);
    seen.map(Some).map_err(|error| Failure::Refused(format!("{} is not what a report writes: {error}", path.display())))
}

impl Page {
    /// The picture, and the offenders below it.
    pub(super) fn conflicts(&mut self, seen: Option<&Seen>) {
        self.html.push_str("<h2>Cost that needs no cores to see: cache lines in common</h2>");
        let matrix = match seen {
            Some(Seen::Measured(matrix)) => matrix,
            unseen => {
                let why = match unseen {
                    Some(Seen::NotMeasured { not_measured }) => not_measured.as_str(),
                    _ => "not measured with this report",
                };
                let _ = write!(
                    self.html,
                    "<p id=\"no-conflicts\">The matrix of conflicts is missing here: {}. \
                     <code>pando bench conflicts --svg matrix.svg</code> makes it alone.</p>",
                    escape(why)
                );
                return;
            }
        };
        let keys = if matrix.keys == 1 { "one hash key".to_owned() } else { format!("{} hash keys", matrix.keys) };
        let _ = write!(
            self.html,
            "<p>Two operations conflict if one writes a cache line that the other touches. Each is traced alone under \
             valgrind, on one state; nothing is timed. <b>{} %</b> of the cases are free of conflicts: {} pairs that \
             commute, under {keys}, {} cores. Published, by another list of cases: Linux 3.8 68 %, sv6 99 % (Clements et \
             al., SOSP 2013).</p>",
            matrix.free_percent, matrix.pairs, matrix.cores
        );
        let caption = if matrix.keys == 1 {
            "Each cell is a pair, and says more when pointed at. Under one hash key, what meets by chance shows as a \
             conflict, or not at all."
        } else {
            "Each cell is a pair, and says more when pointed at."
        };
        self.plot("conflicts", conflicts::svg(matrix, Layout::Tall), caption);
        self.offenders(matrix);
    }

    fn offenders(&mut self, matrix: &Matrix) {
        let mut offenders: Vec<&Offender> = matrix.offenders.iter().collect();
        offenders.sort_by_key(|offender| (offender.class, std::cmp::Reverse(offender.pairs)));
        self.html.push_str(
            "<table id=\"offenders\"><tr><th>written</th><th>pairs</th><th>what else lies on the line</th>\
             <th>written at</th><th>touched at</th></tr>",
        );
        for offender in offenders {
            let class = match offender.class {
                Class::Own => "",
                Class::Allocator | Class::Reclamation => " <small>not the file system's</small>",
            };
            let cell = |text: &str| format!("<td>{}</td>", escape(text));
            let code = |text: &str| format!("<td><small><code>{}</code></small></td>", escape(text));
            let _ = write!(
                self.html,
                "<tr><td>{}{class}</td><td>{}</td>{}{}{}</tr>",
                escape(&offender.written),
                offender.pairs,
                cell(offender.beside.as_deref().unwrap_or("–")),
                code(&offender.written_at),
                code(&offender.touched_at)
            );
        }
        self.html.push_str("</table>");
        if matrix.offenders.is_empty() {
            self.html.push_str("<p>No offender.</p>");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        Page { html: String::new(), plots: Vec::new() }
    }

    #[test]
    fn what_is_missing_is_said_with_the_reason_and_the_command() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        assert!(read(temp.path()).expect("nothing is no error").is_none());
        let why = "valgrind is <missing>";
        fs::write(temp.path().join(FILE), format!("{{\"not_measured\": \"{why}\"}}")).expect("writing");
        let seen = read(temp.path()).expect("it is read");
        let mut page = page();
        page.conflicts(seen.as_ref());
        assert!(page.html.contains("valgrind is &lt;missing&gt;. <code>pando bench conflicts"), "{}", page.html);
        assert!(page.plots.is_empty());
        page.conflicts(None);
        assert!(page.html.contains("not measured with this report"), "{}", page.html);
    }

    #[test]
    fn the_picture_and_its_offenders_are_on_the_page_and_survive_the_file() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let matrix = conflicts::matrix_for_tests();
        let text = serde_json::to_string(&matrix).expect("it is JSON");
        fs::write(temp.path().join(FILE), text).expect("writing");
        let seen = read(temp.path()).expect("it is read").expect("it is there");
        let mut page = page();
        page.conflicts(Some(&seen));
        assert!(page.html.contains("<figure id=\"conflicts\">") && page.plots.len() == 1);
        assert!(page.html.contains("<tr><td>Vec&lt;T&gt; &amp; more</td><td>1</td><td>–</td>"), "{}", page.html);
        assert!(page.html.contains("under 3 hash keys, 2 cores"), "{}", page.html);
    }

    #[test]
    fn a_file_that_is_something_else_is_named() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        fs::write(temp.path().join(FILE), "[]").expect("writing");
        assert!(matches!(read(temp.path()), Err(Failure::Refused(why)) if why.contains(FILE)));
    }
}
