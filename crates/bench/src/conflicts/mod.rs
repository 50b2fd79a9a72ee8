//! `pando bench conflicts`: which cache lines does one operation write that the other touches?
//!
//! ```text
//!   pairs   the pairs that are looked at, and why each commutes
//! ```

mod pairs;

use std::fmt::Write as _;

use clap::Args;

use self::pairs::{Operation, Scene, commutes};
use crate::failure::Failure;

/// Options of `pando bench conflicts`.
#[derive(Debug, Args)]
pub(crate) struct ConflictsArgs {
    /// Print the pairs and why they commute, and measure nothing
    #[arg(long)]
    list: bool,
}

/// Does what was asked for; returns what to print.
pub(crate) fn run(args: &ConflictsArgs) -> Result<String, Failure> {
    if args.list { Ok(list()) } else { Err(Failure::Refused("only --list so far".into())) }
}

/// All pairs, those that do not commute included.
fn list() -> String {
    let mut text = String::new();
    for scene in Scene::ALL {
        let _ = writeln!(text, "{}:", scene.name());
        for (row, &a) in Operation::ALL.iter().enumerate() {
            for &b in &Operation::ALL[row..] {
                let (verdict, why) = match commutes(scene, a, b) {
                    Ok(why) => ("commute", why),
                    Err(why) => ("do not commute", why),
                };
                let _ = writeln!(text, "  {} and {} {verdict}: {why}", a.name(), b.name());
            }
        }
    }
    let _ = writeln!(text, "{} pairs commute", pairs::pairs().len());
    text
}
