//! Listings of one directory, by its size: entry by entry, with one call for many entries, and with
//! a read-ahead.

use std::{collections::BTreeSet, fmt::Write as _};

use super::{
    html::{Page, display_name, short_name},
    plan::{LISTING, records_of},
    plot::{self, Axes, Line, Scale, escape, short},
};
use crate::{base::measure::Summary, report::json::Record};

/// A way to list a directory with the attributes and the extended attributes of its entries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// One call for each entry, and for each of its extended attributes.
    OneByOne,
    /// One call for many entries.
    Records,
    /// Entry by entry, while a read-ahead is in progress.
    ReadAhead,
}

impl Way {
    /// The ways that are measured. With hot caches there is nothing to read ahead.
    pub(super) const HOT: &[Self] = &[Self::OneByOne, Self::Records];
    pub(super) const COLD: &[Self] = &[Self::OneByOne, Self::ReadAhead, Self::Records];

    /// The workload.
    pub(super) fn workload(self, files: u64, cold: bool) -> String {
        let records = u8::from(self == Self::Records);
        let ahead = if self == Self::ReadAhead { ",ahead=1" } else { "" };
        let cold = if cold { ",cold=1" } else { "" };
        format!("{LISTING}:level=3,files={files},records={records}{ahead}{cold}")
    }

    fn name(self) -> &'static str {
        match self {
            Self::OneByOne => "one by one",
            Self::Records => "many in one call",
            Self::ReadAhead => "read-ahead, then one by one",
        }
    }
}

/// Sizes of the directory.
pub(super) const QUICK_SIZES: &[u64] = &[1_000, 5_000];
pub(super) const SIZES: &[u64] = &[1_000, 5_000, 100_000, 500_000];

/// The published ratios are those of a directory of this size. They are compared with this size, or
/// with the largest that was measured.
const PUBLISHED_SIZE: u64 = 100_000;
const PUBLISHED_HOT: f64 = 0.639 / 0.099;
/// Of `ls -l` with a read-ahead.
const PUBLISHED_COLD: f64 = 519.0 / 27.7;

/// The rates of listings, in entries per second.
pub(super) struct Listings<'a>(Vec<&'a Record>);

impl<'a> Listings<'a> {
    pub(super) fn new(records: &'a [Record]) -> Self {
        Self(records_of(records, LISTING))
    }

    /// The rate of a target.
    fn rate(&self, target: &str, way: Way, files: u64, cold: bool) -> Option<Summary> {
        let workload = way.workload(files, cold);
        self.0.iter().find(|record| record.workload == workload && record.target == target)?.ops_per_s
    }

    /// The targets that were measured, in order.
    fn targets(&self, cold: bool) -> Vec<&'a str> {
        let mut targets = Vec::new();
        for record in self.0.iter().filter(|record| record.workload.ends_with("cold=1") == cold) {
            if !targets.contains(&record.target.as_str()) {
                targets.push(&*record.target);
            }
        }
        targets
    }

    /// The sizes that were measured.
    fn sizes(&self) -> Vec<u64> {
        let size = |record: &&Record| {
            record.workload.split([':', ',']).find_map(|setting| setting.strip_prefix("files=")?.parse().ok())
        };
        self.0.iter().filter_map(size).collect::<BTreeSet<u64>>().into_iter().collect()
    }

    /// With hot caches, and the size that the published ratios are compared with: the rate of many
    /// in one call divided by that of one by one, on the target and on the kernel.
    pub(super) fn compared(&self, target: &str) -> (Option<Summary>, Option<Summary>) {
        let sizes = self.sizes();
        let Some(&files) = sizes.iter().rfind(|size| **size <= PUBLISHED_SIZE).or(sizes.first()) else {
            return (None, None);
        };
        let records = self.rate(target, Way::Records, files, false);
        let kernel = self.targets(false).into_iter().find(|target| target.starts_with("dir="));
        let over = |target: &str| Some(ratio(records?, self.rate(target, Way::OneByOne, files, false)?));
        (over(target), kernel.and_then(over))
    }
}

/// These run one after the other, so there are no pairs of repeats. The page says so.
fn ratio(after: Summary, before: Summary) -> Summary {
    Summary { min: after.min / before.max, median: after.median / before.median, max: after.max / before.min }
}

/// A line of a plot, and a row of the table below it.
struct Row<'a> {
    target: &'a str,
    way: Way,
    /// The target whose listing entry by entry the rate is divided by.
    base: &'a str,
}

impl Page {
    /// Ratios over the size of the directory, with hot and with cold caches.
    pub(super) fn listings(&mut self, records: &[Record]) {
        let listings = Listings::new(records);
        let _ = write!(
            self.html,
            "<h2>Listings with extended attributes, by the size of the directory <code>{LISTING}</code></h2>\
             <p>All names, attributes and extended attributes of a directory, each file with 0 to 4. Ratios are of \
             medians, as the ways to list run one after the other.</p>"
        );
        let hot: Vec<Row<'_>> =
            listings.targets(false).into_iter().map(|target| Row { target, way: Way::Records, base: target }).collect();
        self.sizes(
            (&listings, false),
            &hot,
            PUBLISHED_HOT,
            "Hot caches: the rate of one call for many entries, divided by that of one call for each. On the kernel's file \
             systems, pando ls reads many at once with single system calls.",
        );
        let targets = listings.targets(true);
        let Some(base) = targets.iter().copied().find(|target| target.starts_with("dir=")) else { return };
        let cold: Vec<Row<'_>> = targets
            .iter()
            .flat_map(|&target| Way::COLD.iter().map(move |&way| Row { target, way, base }))
            .filter(|row| row.target != base || row.way != Way::OneByOne)
            .collect();
        self.sizes(
            (&listings, true),
            &cold,
            PUBLISHED_COLD,
            "Cold caches: rates divided by that of system calls one by one. Published is a read-ahead before ls -l on a \
             disk. pandofs itself reads ahead of a listing where calls wait.",
        );
    }

    /// A plot and a table, with hot or with `cold` caches.
    fn sizes(&mut self, (listings, cold): (&Listings<'_>, bool), rows: &[Row<'_>], published: f64, caption: &str) {
        let (file, sizes) = (if cold { "listing-cold" } else { "listing-hot" }, listings.sizes());
        let over = |row: &Row<'_>, files: u64| {
            let before = listings.rate(row.base, Way::OneByOne, files, cold)?;
            Some(ratio(listings.rate(row.target, row.way, files, cold)?, before))
        };
        let label = |row: &Row<'_>| match cold {
            true => format!("{}: {}", short_name(row.target), row.way.name()),
            false => display_name(row.target),
        };
        let labels: Vec<String> = rows.iter().map(label).collect();
        let point = |summary: Summary| (summary.min, summary.median, summary.max);
        let mut lines: Vec<Line<'_>> = rows
            .iter()
            .zip(&labels)
            .map(|(row, label)| Line { label, points: sizes.iter().map(|&n| over(row, n).map(point)).collect() })
            .collect();
        let constant = (published, published, published);
        lines.push(Line { label: "published", points: vec![Some(constant); sizes.len()] });
        #[allow(clippy::cast_precision_loss)] // Sizes of directories.
        let places: Vec<String> = sizes.iter().map(|&n| short(n as f64)).collect();
        let axes = Axes { places: &places, scale: Scale::Ratio, unit: "x" };
        let svg = plot::lines(&format!("{file}: ratios over the size of the directory"), &axes, &lines);
        self.plot(file, svg, caption);
        self.html.push_str(
            "<table class=\"n\"><tr><th>target</th><th>files</th><th>entries/s, one by one</th><th>entries/s</th><th>ratio</th></tr>",
        );
        for (row, &files) in rows.iter().flat_map(|row| sizes.iter().map(move |files| (row, files))) {
            let rate = |rate: Option<Summary>| rate.map_or_else(|| "n/a".to_owned(), |rate| short(rate.median));
            let _ = write!(
                self.html,
                "<tr><td>{}<br><small>{}</small></td><td>{files}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                escape(&display_name(row.target)),
                row.way.name(),
                rate(listings.rate(row.base, Way::OneByOne, files, cold)),
                rate(listings.rate(row.target, row.way, files, cold)),
                over(row, files).map_or_else(|| "–".to_owned(), |over| format!("<b>{:.2}x</b>", over.median))
            );
        }
        self.html.push_str("</table>");
    }
}
