//! The matrix as text for the terminal.

use std::fmt::Write as _;

use super::{
    Matrix,
    matrix::{Offender, Verdict},
    pairs::{Operation, Scene, commutes, pairs},
    touched::Class,
};

/// The character of a verdict.
fn sign(verdict: Option<Verdict>) -> char {
    match verdict {
        None => ' ',
        Some(Verdict::Free) => '.',
        Some(Verdict::Chance) => 'c',
        Some(Verdict::Memory) => 'm',
        Some(Verdict::Conflict) => 'X',
    }
}

/// A triangle for each scene, the offenders, and the percentages.
pub(super) fn render(matrix: &Matrix) -> String {
    let mut text = String::new();
    for scene in Scene::ALL {
        let _ = writeln!(text, "{}: {} % free of conflicts", scene.name(), matrix.free_percent_in(scene));
        for (row, &a) in Operation::ALL.iter().enumerate() {
            let signs: String =
                Operation::ALL[..=row].iter().flat_map(|&b| [sign(matrix.verdict(scene, a, b)), ' ']).collect();
            let _ = writeln!(text, "  {:>8}  {}", a.name(), signs.trim_end());
        }
        let _ = writeln!(text, "  {:>8}  {}\n", "", initials());
    }
    text += ". no conflict   m only on lines of the allocator or the reclaimer   X on a line of the file system\n\
             c the same, but only under some hash keys: names that are neighbours by chance\n\
             (blank: they do not commute, see --list; columns are in the order of the rows)\n\n";
    for (heading, of_memory) in [("Offenders", false), ("Offenders of the allocator and the reclaimer", true)] {
        let mut some: Vec<&Offender> =
            matrix.offenders.iter().filter(|offender| (offender.class != Class::Own) == of_memory).collect();
        some.sort_by_key(|offender| std::cmp::Reverse(offender.pairs));
        if !some.is_empty() {
            let _ = writeln!(text, "{heading}, with the number of pairs:");
        }
        for offender in some {
            let beside = offender.beside.as_ref().map_or_else(String::new, |other| format!(", beside {other}"));
            let _ = writeln!(text, "  {:>4}  {}{beside}", offender.pairs, offender.written);
            let _ = writeln!(text, "        written at {}; touched at {}", offender.written_at, offender.touched_at);
        }
    }
    let _ = writeln!(
        text,
        "\n{} pairs that commute, under {} hash keys: {} % of the cases are free of conflicts; {} % if lines of the allocator \
         and the reclaimer are included\n{} cores, {}",
        matrix.pairs, matrix.keys, matrix.free_percent, matrix.free_percent_with_memory, matrix.cores, matrix.compiler,
    );
    text
}

/// The column heading. Only the first and the last column are named, as there is no room for more.
fn initials() -> String {
    let count = Operation::ALL.len();
    let (first, last) = (Operation::ALL[0].name(), Operation::ALL[count - 1].name());
    format!("^ {first} {:>width$}", format!("{last} ^"), width = (2 * count - 1).saturating_sub(first.len() + 3))
}

/// All pairs, including those that do not commute.
pub(super) fn list() -> String {
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
    let _ = writeln!(text, "{} pairs commute", pairs().len());
    text
}
