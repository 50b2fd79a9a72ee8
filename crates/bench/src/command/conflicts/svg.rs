//! The matrix as a picture: a triangle for each scene, side by side. It has no script and no font
//! of its own, and supports light and dark mode.

use std::fmt::Write as _;

use super::{
    Matrix,
    matrix::{Case, Verdict},
    pairs::{Operation, Scene, commutes},
};

/// The side of a cell.
const CELL: usize = 20;
/// Width of the row names.
const LEFT: usize = 80;
/// Height of a scene's heading.
const TOP: usize = 34;
/// Height of the column names.
const BOTTOM: usize = 74;
const SIDE: usize = CELL * Operation::ALL.len();
/// Height of the legend's last line.
const LEGEND: usize = 30;

const STYLE: &str = "\
.pc text { font: 12px system-ui, sans-serif; fill: #1c1c1c } .pc .h { font-weight: 600 }
.pc .free { fill: #2e8b57 } .pc .chance { fill: #8fbf5f } .pc .memory { fill: #d9a520 } .pc .conflict { fill: #b3262e } .pc .none { fill: #8882 }
.pc .x { stroke: #fff; stroke-width: 1.5; pointer-events: none }
@media (prefers-color-scheme: dark) { .pc text { fill: #e6e6e6 } }";

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Free => "free",
        Verdict::Chance => "chance",
        Verdict::Memory => "memory",
        Verdict::Conflict => "conflict",
    }
}

/// The arrangement of the scenes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Side by side.
    Wide,
    /// One below the other, for the width of a phone.
    Tall,
}

impl Layout {
    /// The position of a scene.
    fn place(self, scene: usize) -> (usize, usize) {
        match self {
            Self::Wide => (scene * (LEFT + SIDE + CELL), 0),
            Self::Tall => (0, scene * (TOP + SIDE + BOTTOM)),
        }
    }

    /// The position of a legend entry; the scenes end at `bottom`.
    fn entry(self, number: usize, bottom: usize) -> (usize, usize) {
        match self {
            Self::Wide => (LEFT + number * 250, bottom),
            Self::Tall => (LEFT, bottom + number * CELL),
        }
    }
}

/// The meanings of the colours.
const MEANINGS: [(&str, &str); 5] = [
    ("free", "free of conflicts"),
    ("chance", "neighbouring names by chance"),
    ("memory", "only allocator or reclaimer lines"),
    ("conflict", "a line of the file system"),
    ("none", "they do not commute"),
];

/// The picture, as an `svg` element for a page or for a file of its own. Each cell has a title that
/// explains it.
pub(crate) fn svg(matrix: &Matrix, layout: Layout) -> String {
    let (right, below) = layout.place(Scene::ALL.len() - 1);
    let (width, bottom) = (right + LEFT + SIDE + CELL, below + TOP + SIDE + BOTTOM);
    let height = layout.entry(MEANINGS.len() - 1, bottom).1 + LEGEND;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"pc\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"Which pairs of operations conflict\"><style>{STYLE}</style>\n"
    );
    for (i, scene) in Scene::ALL.into_iter().enumerate() {
        let (x, y) = layout.place(i);
        let percent = matrix.free_percent_in(scene);
        let (text_x, text_y) = (x + LEFT, y + 20);
        let _ =
            writeln!(svg, "<text class=\"h\" x=\"{text_x}\" y=\"{text_y}\">{}: {percent} % free</text>", scene.name());
        triangle(&mut svg, matrix, scene, (x + LEFT, y + TOP));
    }
    for (i, (class, text)) in MEANINGS.into_iter().enumerate() {
        let (x, y) = layout.entry(i, bottom);
        let _ = writeln!(svg, "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"14\" height=\"14\"/>");
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\">{text}</text>", x + 20, y + 11);
    }
    svg + "</svg>\n"
}

fn triangle(svg: &mut String, matrix: &Matrix, scene: Scene, (left, top): (usize, usize)) {
    for (row, &a) in Operation::ALL.iter().enumerate() {
        let y = top + row * CELL;
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", left - 6, y + 14, a.name());
        for (column, &b) in Operation::ALL[..=row].iter().enumerate() {
            let x = left + column * CELL;
            let case = matrix.cases.iter().find(|case| (case.scene, case.a, case.b) == (scene, b, a));
            let class = case.map_or("none", |case| class(case.verdict));
            let title = title(matrix, scene, a, b, case);
            let side = CELL - 2;
            let _ = writeln!(
                svg,
                "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{side}\" height=\"{side}\"><title>{title}</title></rect>"
            );
            if class == "conflict" {
                // Red and green look alike to some people.
                let (x, y) = (x + 5, y + 5);
                let _ = writeln!(svg, "<path class=\"x\" d=\"M{x} {y}l8 8m0 -8l-8 8\"/>");
            }
        }
        let (x, y) = (left + row * CELL + 13, top + SIDE + 8);
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\" transform=\"rotate(-90 {x} {y})\">{}</text>",
            a.name()
        );
    }
}

fn title(matrix: &Matrix, scene: Scene, a: Operation, b: Operation, case: Option<&Case>) -> String {
    let what = match case {
        None => commutes(scene, a, b).err().unwrap_or_default().to_owned(),
        Some(case) if case.offenders.is_empty() => "free".to_owned(),
        Some(case) => {
            let names: Vec<&str> = case.offenders.iter().map(|&i| matrix.offenders[i].written.as_str()).collect();
            names.join(", ")
        }
    };
    escape(&format!("{} and {}: {what}", b.name(), a.name()))
}

/// Escapes text inside an element. Names of generic types have angle brackets.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::conflicts::matrix_for_tests as matrix;

    #[test]
    fn each_pair_is_a_cell_with_an_escaped_title() {
        let svg = svg(&matrix(), Layout::Wide);
        let cells = Scene::ALL.len() * Operation::ALL.len() * (Operation::ALL.len() + 1) / 2;
        assert_eq!(svg.matches("<title>").count(), cells);
        assert_eq!(svg.matches("class=\"conflict\"").count(), 2, "one cell, and the legend");
        assert!(svg.contains("stat and stat: Vec&lt;T&gt; &amp; more"), "{svg}");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn all_drawings_are_inside_both_layouts() {
        for layout in [Layout::Wide, Layout::Tall] {
            let svg = svg(&matrix(), layout);
            let size = svg.split("viewBox=\"0 0 ").nth(1).and_then(|rest| rest.split('"').next()).expect("a size");
            let (width, height) = size.split_once(' ').expect("width and height");
            let greatest = |attribute: &str| {
                let values = svg.split(attribute).skip(1).filter_map(|rest| rest.split('"').next()?.parse().ok());
                values.max().unwrap_or(0_usize)
            };
            let inside = |greatest: usize, size: &str| size.parse().is_ok_and(|size: usize| greatest < size);
            assert!(inside(greatest(" x=\"") + CELL, width) && inside(greatest(" y=\""), height), "{layout:?}: {size}");
            assert_eq!(svg.matches("class=\"x\"").count(), 1);
        }
    }

    #[test]
    fn table_names_the_offender_and_both_percentages() {
        let text = crate::command::conflicts::table::render(&matrix());
        assert!(text.contains("Vec<T> & more") && text.contains("written at a.rs:1; touched at b.rs:2"), "{text}");
        assert!(text.contains("99.7 % of the cases are free of conflicts; 99.7 % if"), "{text}");
        assert!(text.contains("different directories: 99.3 % free"), "{text}");
    }
}
