//! The conflict matrix on the page, and the table of the cache lines that cause conflicts.

use std::fmt::Write as _;

use super::{html::Page, plot::escape, stored::StoredMatrix};
use crate::command::conflicts::{self, Class, Layout, Matrix, Offender};

impl Page {
    /// The picture, and the table of offenders below it.
    pub(super) fn conflicts(&mut self, stored: Option<&StoredMatrix>) {
        self.html.push_str("<h2>Conflicts: cache lines for which two operations compete</h2>");
        let matrix = match stored {
            Some(StoredMatrix::Measured(matrix)) => matrix,
            missing => {
                let why = match missing {
                    Some(StoredMatrix::NotMeasured { not_measured }) => not_measured.as_str(),
                    _ => "not measured with this report",
                };
                let _ = write!(
                    self.html,
                    "<p id=\"no-conflicts\">This report has no conflict matrix: {}. \
                     <code>pando bench conflicts --svg matrix.svg</code> draws the matrix alone.</p>",
                    escape(why)
                );
                return;
            }
        };
        let keys = if matrix.keys == 1 { "one hash key".to_owned() } else { format!("{} hash keys", matrix.keys) };
        let _ = write!(
            self.html,
            "<p>Two operations conflict if one writes a cache line that the other touches. Each operation is traced alone \
             under valgrind, from the same state. Nothing is timed, so load does not \
             change the result. <b>{} %</b> of the cases are free of conflicts: {} pairs that commute, under {keys}, {} cores. \
             Published for a different list of cases: Linux 3.8 68 %, sv6 99 % (Clements et al., SOSP 2013).</p>",
            matrix.free_percent, matrix.pairs, matrix.cores
        );
        let caption = if matrix.keys == 1 {
            "Each cell is a pair of operations; its tooltip names the cause. With one hash key, a conflict by chance \
             cannot be told from a real one."
        } else {
            "Each cell is a pair of operations; its tooltip names the cause."
        };
        self.plot("conflicts", conflicts::svg(matrix, Layout::Tall), caption);
        self.offenders(matrix);
    }

    fn offenders(&mut self, matrix: &Matrix) {
        let mut offenders: Vec<&Offender> = matrix.offenders.iter().collect();
        offenders.sort_by_key(|offender| (offender.class, std::cmp::Reverse(offender.pairs)));
        self.html.push_str(
            "<table id=\"offenders\"><tr><th>written</th><th>pairs</th><th>also on this cache line</th>\
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
            self.html.push_str("<p>No offenders.</p>");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{
        base::failure::Failure,
        command::page::stored::{FILE, read},
    };

    fn page() -> Page {
        Page { html: String::new(), plots: Vec::new() }
    }

    #[test]
    fn missing_matrix_is_explained_with_reason_and_command() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        assert!(read(temp.path()).expect("nothing is no error").is_none());
        let why = "valgrind is <missing>";
        fs::write(temp.path().join(FILE), format!("{{\"not_measured\": \"{why}\"}}")).expect("writing");
        let stored = read(temp.path()).expect("it is read");
        let mut page = page();
        page.conflicts(stored.as_ref());
        assert!(page.html.contains("valgrind is &lt;missing&gt;. <code>pando bench conflicts"), "{}", page.html);
        assert!(page.plots.is_empty());
        page.conflicts(None);
        assert!(page.html.contains("not measured with this report"), "{}", page.html);
    }

    #[test]
    fn matrix_and_offenders_survive_the_file() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let matrix = conflicts::matrix_for_tests();
        let text = serde_json::to_string(&matrix).expect("it is JSON");
        fs::write(temp.path().join(FILE), text).expect("writing");
        let stored = read(temp.path()).expect("it is read").expect("it is there");
        let mut page = page();
        page.conflicts(Some(&stored));
        assert!(page.html.contains("<figure id=\"conflicts\">") && page.plots.len() == 1);
        assert!(page.html.contains("<tr><td>Vec&lt;T&gt; &amp; more</td><td>1</td><td>–</td>"), "{}", page.html);
        assert!(page.html.contains("under 3 hash keys, 2 cores"), "{}", page.html);
    }

    #[test]
    fn file_with_other_content_is_named() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        fs::write(temp.path().join(FILE), "[]").expect("writing");
        assert!(matches!(read(temp.path()), Err(Failure::Refused(why)) if why.contains(FILE)));
    }
}
