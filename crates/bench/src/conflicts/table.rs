//! The terminal's view of a matrix.

use std::fmt::Write as _;

use super::{
    Matrix,
    matrix::{Offender, Verdict},
    pairs::{Operation, Scene, commutes, pairs},
    touched::Class,
};

/// One character for a verdict.
fn sign(verdict: Option<Verdict>) -> char {
    match verdict {
        None => ' ',
        Some(Verdict::Free) => '.',
        Some(Verdict::Chance) => 'c',
        Some(Verdict::Memory) => 'm',
        Some(Verdict::Conflict) => 'X',
    }
}

/// A triangle for each scene, the offenders, and the shares.
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
    text += ". no line in common that one writes   m only lines of the allocator or the reclaimer   X a line of the file \
             system's\nc such a line under some hash keys only: names that lie next to each other by chance\n(blank: they do not commute; --list says why; columns in the order of the rows)\n\n";
    for (heading, of_memory) in [("Offenders", false), ("Offenders of the allocator and the reclaimer", true)] {
        let mut some: Vec<&Offender> =
            matrix.offenders.iter().filter(|offender| (offender.class != Class::Own) == of_memory).collect();
        some.sort_by_key(|offender| std::cmp::Reverse(offender.pairs));
        if !some.is_empty() {
            let _ = writeln!(text, "{heading}, and in how many pairs:");
        }
        for offender in some {
            let beside = offender.beside.as_ref().map_or_else(String::new, |other| format!(", beside {other}"));
            let _ = writeln!(text, "  {:>4}  {}{beside}", offender.pairs, offender.written);
            let _ = writeln!(text, "        written at {}; touched at {}", offender.written_at, offender.touched_at);
        }
    }
    let _ = writeln!(
        text,
        "\n{} pairs that commute, under {} hash keys: {} % of the cases are free of conflicts; {} % if the lines of the allocator \
         and the reclaimer count\n{} cores, {}",
        matrix.pairs, matrix.keys, matrix.free_percent, matrix.free_percent_with_memory, matrix.cores, matrix.compiler,
    );
    text
}

/// The columns' heads: one letter or two would be riddles, so only their ends are marked.
fn initials() -> String {
    let count = Operation::ALL.len();
    let (first, last) = (Operation::ALL[0].name(), Operation::ALL[count - 1].name());
    format!("^ {first} {:>width$}", format!("{last} ^"), width = (2 * count - 1).saturating_sub(first.len() + 3))
}

/// All pairs, those that do not commute included.
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
