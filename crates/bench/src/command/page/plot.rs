//! Plots as SVG, for a page or as a file of their own. They support light and dark mode, have no
//! script, and are readable on a phone.

use std::{borrow::Cow, fmt::Write as _};

/// Number of colours for lines and bars; a target's index selects one.
const SERIES: usize = 6;
/// Width in drawing units. A phone is about as many pixels wide.
const WIDTH: f64 = 420.0;

/// Colours for light and dark mode. They also differ in lightness, so that they can be
/// distinguished without colour.
pub(super) const STYLE: &str = "\
svg{font:13px system-ui,sans-serif;--ink:#1d2329;--soft:#68737d;--rule:#d8dde2;\
--s0:#0b6e4f;--s1:#c8553d;--s2:#3667a6;--s3:#b8860b;--s4:#7d4e9e;--s5:#5a6570}\
@media(prefers-color-scheme:dark){svg{--ink:#e8ecef;--soft:#9aa5af;--rule:#3a434c;\
--s0:#5fd3a6;--s1:#ff9d83;--s2:#8db8f2;--s3:#f0c75e;--s4:#cfa3ea;--s5:#aab4be}}\
text{fill:var(--ink)}.soft{fill:var(--soft)}.rule{stroke:var(--rule)}.line{fill:none;stroke-width:2.5}";

/// The axes of a plot with lines.
pub(super) struct Axes<'a> {
    /// The places of the points, from left to right.
    pub(super) places: &'a [String],
    pub(super) scale: Scale,
    /// Follows the value of a line's last point.
    pub(super) unit: &'a str,
}

/// A line.
pub(super) struct Line<'a> {
    pub(super) label: &'a str,
    /// By place: minimum, median, maximum.
    pub(super) points: Vec<Option<(f64, f64, f64)>>,
}

/// A bar.
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) value: f64,
    /// The value as text.
    pub(super) text: String,
    /// The index of its colour.
    pub(super) series: usize,
}

/// A group of bars under one heading.
pub(super) struct Group<'a> {
    pub(super) heading: &'a str,
    pub(super) bars: Vec<Bar>,
}

fn open(height: f64, label: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
         aria-label=\"{}\"><style>{STYLE}</style>",
        escape(label)
    )
}

/// Escapes text for HTML elements and attributes.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Three digits and a unit, such as 1.23 M.
pub(super) fn short(value: f64) -> String {
    let (scaled, unit) = match value {
        v if v >= 1e9 => (v / 1e9, " G"),
        v if v >= 1e6 => (v / 1e6, " M"),
        v if v >= 1e3 => (v / 1e3, " k"),
        v => (v, ""),
    };
    let digits = if scaled >= 99.95 || (unit.is_empty() && scaled.fract() == 0.0) {
        0
    } else if scaled >= 9.995 {
        1
    } else {
        2
    };
    format!("{scaled:.digits$}{unit}")
}

/// Positions of a plot's axes.
const LEFT: f64 = 52.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 14.0;
const BASE: f64 = 200.0;
/// Distance between two rows of text.
const ROW: f64 = 20.0;

/// The vertical axis.
struct Axis {
    scale: Scale,
    /// Its ends, as the scale transforms them.
    ends: (f64, f64),
    /// The values with a horizontal line.
    rules: Vec<f64>,
}

impl Axis {
    /// An axis with room for these values.
    fn new(scale: Scale, values: impl Iterator<Item = f64>) -> Self {
        let (least, most) = values.fold((f64::INFINITY, 0.0_f64), |(least, most), v| (least.min(v), most.max(v)));
        match scale {
            // It begins at zero, so twice the height is twice the value.
            Scale::Linear => {
                let top = axis_end(most);
                Self { scale, ends: (0.0, top), rules: (0..=4).map(|n| top * f64::from(n) / 4.0).collect() }
            }
            Scale::Ratio => {
                let exponent = |value: f64| if value.is_finite() && value > 0.0 { value.log2() } else { 0.0 };
                let low = exponent(least).floor().min(0.0);
                let high = exponent(most).ceil().max(low + 1.0);
                // Every power of two, or of four, and so on.
                let step = ((high - low) / 6.0).ceil();
                let rules = std::iter::successors(Some(low), |at| Some(at + step)).take_while(|at| *at <= high);
                Self { scale, ends: (low, high), rules: rules.map(f64::exp2).collect() }
            }
        }
    }

    /// The height of a value.
    fn y(&self, value: f64) -> f64 {
        let at = match self.scale {
            Scale::Linear => value,
            Scale::Ratio => value.log2(),
        };
        BASE - (BASE - TOP) * (at - self.ends.0) / (self.ends.1 - self.ends.0)
    }
}

/// Lines. The vertical lines at the points span the repeats.
pub(super) fn lines(label: &str, axes: &Axes<'_>, lines: &[Line<'_>]) -> String {
    let points = lines.iter().flat_map(|line| line.points.iter().flatten());
    let axis = Axis::new(axes.scale, points.flat_map(|point| [point.0, point.2]));
    let height = BASE + 34.0 + ROW * lines.len() as f64;
    let mut svg = open(height, label);
    let y = |value: f64| axis.y(value);
    #[allow(clippy::cast_precision_loss)] // A few points.
    let x = |place: usize| {
        let steps = axes.places.len().saturating_sub(1).max(1) as f64;
        LEFT + 16.0 + (WIDTH - LEFT - RIGHT - 32.0) * place as f64 / steps
    };
    for &value in &axis.rules {
        let at = y(value);
        let _ = write!(
            svg,
            "<line class=\"rule\" x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text class=\"soft\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.5,
            short(value)
        );
    }
    for (place, name) in axes.places.iter().enumerate() {
        let _ = write!(
            svg,
            "<text class=\"soft\" x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            x(place),
            BASE + 18.0,
            escape(name)
        );
    }
    for (series, line) in lines.iter().enumerate() {
        let colour = series % SERIES;
        let points = || line.points.iter().enumerate().filter_map(|(place, point)| Some((x(place), (*point)?)));
        let path: Vec<String> = points().map(|(x, (_, median, _))| format!("{x:.1},{:.1}", y(median))).collect();
        let _ = write!(svg, "<polyline class=\"line\" stroke=\"var(--s{colour})\" points=\"{}\"/>", path.join(" "));
        for (x, (least, median, greatest)) in points() {
            let _ = write!(
                svg,
                "<line stroke=\"var(--s{colour})\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>\
                 <circle fill=\"var(--s{colour})\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"4\"/>",
                y(least),
                y(greatest),
                y(median)
            );
        }
        #[allow(clippy::cast_precision_loss)] // A few lines.
        let at = BASE + 34.0 + ROW * series as f64;
        let last = points().next_back().map_or_else(|| "n/a".to_owned(), |(_, point)| short(point.1) + axes.unit);
        let _ = write!(
            svg,
            "<rect fill=\"var(--s{colour})\" x=\"{LEFT}\" y=\"{:.0}\" width=\"14\" height=\"10\" rx=\"2\"/>\
             <text x=\"{:.0}\" y=\"{:.0}\">{} <tspan class=\"soft\">{last}</tspan></text>",
            at,
            LEFT + 22.0,
            at + 10.0,
            escape(&fitted(line.label))
        );
    }
    svg + "</svg>\n"
}

/// A label that fits beside its value. The middle of a long one is left out; the table below the
/// plot has all of it.
fn fitted(label: &str) -> Cow<'_, str> {
    const MOST: usize = 40;
    let letters: Vec<char> = label.chars().collect();
    if letters.len() <= MOST {
        return label.into();
    }
    let half = (MOST - 1) / 2;
    let (begin, end) = (&letters[..half], &letters[letters.len() - half..]);
    begin.iter().chain(&['…']).chain(end).collect::<String>().into()
}

/// A number with few digits that is not below `value`.
fn axis_end(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let unit = 10_f64.powf(value.log10().floor());
    [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0]
        .map(|n| n * unit)
        .into_iter()
        .find(|n| *n >= value)
        .unwrap_or(value)
}

/// The scale of values.
#[derive(Clone, Copy)]
pub(super) enum Scale {
    /// From zero.
    Linear,
    /// Logarithmic, from one or less. Bars begin at one, and values below it have none.
    Ratio,
}

/// Bars in groups, each with its value at its end.
pub(super) fn bars(label: &str, groups: &[Group<'_>], scale: Scale) -> String {
    const LABELS: f64 = 150.0;
    const VALUES: f64 = 70.0;
    let length = |value: f64| match scale {
        Scale::Linear => value.max(0.0),
        Scale::Ratio => value.max(1.0).log2(),
    };
    let most = groups.iter().flat_map(|group| &group.bars).map(|bar| length(bar.value)).fold(0.0, f64::max).max(1e-9);
    let rows: usize = groups.iter().map(|group| group.bars.len() + 2).sum();
    #[allow(clippy::cast_precision_loss)] // A few rows.
    let mut svg = open(ROW * rows as f64 + 6.0, label);
    let mut at = 0.0;
    for group in groups {
        at += ROW;
        let _ = write!(svg, "<text x=\"4\" y=\"{:.0}\" font-weight=\"600\">{}</text>", at, escape(group.heading));
        for bar in &group.bars {
            at += ROW;
            let width = (WIDTH - LABELS - VALUES) * length(bar.value) / most;
            let _ = write!(
                svg,
                "<text class=\"soft\" x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>\
                 <rect fill=\"var(--s{})\" x=\"{LABELS}\" y=\"{:.0}\" width=\"{:.1}\" height=\"13\" rx=\"2\"/>\
                 <text x=\"{:.1}\" y=\"{:.0}\">{}</text>",
                LABELS - 8.0,
                at,
                escape(&bar.label),
                bar.series % SERIES,
                at - 11.0,
                width.max(1.5),
                LABELS + width.max(1.5) + 6.0,
                at,
                escape(&bar.text)
            );
        }
        at += ROW;
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (1.234, "1.23"),
            (12.34, "12.3"),
            (999.0, "999"),
            (1234.0, "1.23 k"),
            (99_960.0, "100 k"),
            (2.5e6, "2.50 M"),
            (3e9, "3.00 G"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn long_labels_lose_their_middle() {
        let path = format!("kernel, /{}/end", "long/".repeat(20));
        let label = fitted(&path);
        assert_eq!((label.chars().count(), fitted("short")), (39, "short".into()));
        assert!(label.starts_with("kernel, /long") && label.contains('…') && label.ends_with("/end"), "{label}");
    }

    #[test]
    fn axes_end_above_the_greatest_value() {
        for value in [0.0, 0.3, 1.0, 7.7, 99.0, 1e6, 1_234_567.0] {
            let top = axis_end(value);
            assert!(top >= value && top <= (2.0 * value).max(1.0), "{value}: {top}");
        }
    }

    #[test]
    fn text_is_escaped() {
        let bar = |label: &str| Bar { label: label.into(), value: 2.0, text: "2x".into(), series: 0 };
        let svg = bars("a \"b\"", &[Group { heading: "<i>&", bars: vec![bar("</svg>")] }], Scale::Ratio);
        assert!(svg.contains("&lt;i&gt;&amp;") && svg.contains("&lt;/svg&gt;") && svg.contains("a &quot;b&quot;"));
        assert_eq!(svg.matches("</svg>").count(), 1);
    }

    #[test]
    fn line_without_points_is_labelled_not_available() {
        for scale in [Scale::Linear, Scale::Ratio] {
            let points = vec![Some((1.0, 2.0, 3.0)), None];
            let lines_of = [Line { label: "a", points }, Line { label: "b", points: vec![None, None] }];
            let places = ["1 thread".to_owned(), "2".to_owned()];
            let svg = lines("x", &Axes { places: &places, scale, unit: "/s" }, &lines_of);
            assert_eq!(svg.matches("<circle").count(), 1);
            assert!(svg.contains("n/a") && svg.contains("2/s") && svg.contains("1 thread"));
        }
    }

    #[test]
    fn an_axis_of_ratios_has_room_for_all_values() {
        for values in [vec![], vec![1.0], vec![0.3, 5.0], vec![6.4, 6.5], vec![0.001, 1e6]] {
            let axis = Axis::new(Scale::Ratio, values.iter().copied());
            assert!((2..=8).contains(&axis.rules.len()) && axis.rules.iter().any(|&rule| rule <= 1.0), "{values:?}");
            for value in values {
                assert!((TOP..=BASE).contains(&axis.y(value)), "{value}: {}", axis.y(value));
            }
        }
    }
}
