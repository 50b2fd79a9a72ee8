//! The conflict matrix of a report, stored beside the page.

use std::{fs, io, path::Path};

use serde::{Deserialize, Serialize};

use super::args::NAME;
use crate::{
    base::{
        cancel::Cancel,
        failure::{During, Failure, ignore_not_found},
    },
    command::conflicts::{self, KEYS, Matrix},
};

/// The stored matrix, beside the page.
pub(super) const FILE: &str = "conflicts.json";

/// The stored matrix, or why there is none.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum StoredMatrix {
    Measured(Box<Matrix>),
    NotMeasured { not_measured: String },
}

/// Traces the matrix, or finds the reason why that is impossible here, and stores either beside the
/// page. With one key it takes a third of the time. Returns whether tracing failed. A machine that
/// cannot trace is not a failure.
///
/// # Errors
/// The file system's error, or [`Failure::Interrupted`].
pub(super) fn measure(out: &Path, quick: bool, cancel: &Cancel) -> Result<Result<(), Failure>, Failure> {
    let (stored, outcome) = match conflicts::measure(NAME, if quick { 1 } else { KEYS }, cancel) {
        Ok(matrix) => (StoredMatrix::Measured(Box::new(matrix)), Ok(())),
        Err(Failure::Interrupted) => return Err(Failure::Interrupted),
        Err(Failure::Refused(why)) => (StoredMatrix::NotMeasured { not_measured: why }, Ok(())),
        Err(failed) => (StoredMatrix::NotMeasured { not_measured: failed.to_string() }, Err(failed)),
    };
    let path = out.join(FILE);
    let during = || format!("writing {}", path.display());
    let text = serde_json::to_string_pretty(&stored).during(during)?;
    fs::write(&path, text + "\n").during(during)?;
    Ok(outcome)
}

/// Removes the matrix of an earlier report.
///
/// # Errors
/// The file system's error.
pub(super) fn remove(out: &Path) -> Result<(), Failure> {
    let path = out.join(FILE);
    ignore_not_found(fs::remove_file(&path)).during(|| format!("removing {}", path.display()))
}

/// Reads the stored matrix; none if the report is of an older version without one.
///
/// # Errors
/// The file cannot be read, or has other content.
pub(super) fn read(out: &Path) -> Result<Option<StoredMatrix>, Failure> {
    let path = out.join(FILE);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.during(|| format!("reading {}", path.display()))?,
    };
    let stored = serde_json::from_str(&text);
    stored
        .map(Some)
        .map_err(|error| Failure::Refused(format!("{} was not written by a report: {error}", path.display())))
}
