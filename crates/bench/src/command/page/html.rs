//! The page: text, plots, and a table under each plot.

use std::fmt::Write as _;

use super::{
    listing::Listings,
    plan::{LISTING, MORE, PUBLISHED, PublishedResult, name, records_of},
    plot::{self, Axes, Bar, Group, Line, Scale, escape, short},
    stored::StoredMatrix,
};
use crate::{
    base::measure::Summary,
    command::footprint::Bytes,
    report::{self, json::Record},
};

/// The page, and its plots with their file names.
pub(super) struct Page {
    pub(super) html: String,
    pub(super) plots: Vec<(String, String)>,
}

const STYLE: &str = include_str!("style.css");

/// The name of a target on the page.
pub(super) fn display_name(target: &str) -> String {
    match target {
        "mem" => "pandofs".into(),
        "mem:before" => "pandofs, old locks".into(),
        "backed" => "pandofs, misses".into(),
        "backed:before" => "misses, old locks".into(),
        "mount" => "pandofs, mounted".into(),
        _ => match target.split_once('=') {
            Some(("dir", path)) => format!("kernel, {path}"),
            Some(("host", path)) => format!("pandofs over {path}"),
            Some(("host:before", path)) => format!("over {path}, old locks"),
            _ => target.to_owned(),
        },
    }
}

/// A short name for a plot. The table below the plot has the full name.
pub(super) fn short_name(target: &str) -> String {
    match target.split_once('=') {
        Some(("dir", _)) => "kernel".into(),
        Some(("host", _)) => "pandofs".into(),
        _ => display_name(target),
    }
}

pub(super) fn page(records: &[Record], bytes: &[Bytes], stored: Option<&StoredMatrix>, command: &str) -> Page {
    let mut page = Page { html: String::new(), plots: Vec::new() };
    page.head(records, command);
    page.results(records);
    for result in PUBLISHED {
        match (result.workload, result.target) {
            (LISTING, "mem") => page.listings(records),
            (LISTING, _) => {}
            (workload, target) => page.throughput(records, (workload, target), result.what),
        }
    }
    for (workload, what) in MORE {
        page.throughput(records, (workload, "mem"), what);
    }
    page.kept(records);
    page.switches(records);
    page.footprint(bytes);
    page.conflicts(stored);
    page.foot(records);
    page.html.push_str("</main></body></html>\n");
    page
}

/// One of the published results, as measured here.
struct MeasuredHere {
    /// The rate divided by the rate with old locks.
    before_after: Option<Summary>,
    /// The rate divided by the kernel's.
    to_kernel: Option<Summary>,
    threads: usize,
}

/// The records of one run: of a workload on a target, on the same with old locks, and on the
/// kernel. Trees in maps are not compared with the kernel.
fn of_result<'a>(records: &'a [Record], workload: &str, target: &str) -> Vec<&'a Record> {
    let mut records = records_of(records, workload);
    records
        .retain(|record| record.target.starts_with(target) || record.target.starts_with("dir=") && target != "backed");
    records
}

fn inverse(ratio: Summary) -> Summary {
    Summary { min: 1.0 / ratio.max, median: 1.0 / ratio.median, max: 1.0 / ratio.min }
}

impl MeasuredHere {
    fn new(records: &[Record], result: &PublishedResult) -> Self {
        if result.workload == LISTING {
            let (before_after, to_kernel) = Listings::new(records).compared(result.target);
            return Self { before_after, to_kernel, threads: 1 };
        }
        // Of its own targets: another result may have the same workload on others.
        let records = of_result(records, result.workload, result.target);
        let threads = records.iter().map(|record| record.threads).max().unwrap_or(1);
        let at_most = || records.iter().filter(|record| record.threads == threads);
        let ratio = |wanted: &dyn Fn(&str) -> bool| {
            at_most().find(|record| wanted(&record.target))?.ratio_to_first.map(inverse)
        };
        Self {
            before_after: ratio(&|target| target.contains(":before")),
            to_kernel: ratio(&|target| target.starts_with("dir=")),
            threads,
        }
    }
}

fn times(ratio: Option<Summary>) -> String {
    ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{:.2}x", ratio.median))
}

fn times_in_full(ratio: Option<Summary>) -> String {
    ratio.map_or_else(
        || "–".to_owned(),
        |ratio| format!("<b>{:.2}x</b> <small>({:.2}–{:.2})</small>", ratio.median, ratio.min, ratio.max),
    )
}

impl Page {
    fn head(&mut self, records: &[Record], command: &str) {
        let machine = records.first().map(|record| &record.machine);
        let machine = machine.map_or_else(String::new, |machine| {
            format!("{} cores, {}, {}", machine.cores, escape(&machine.cpu), escape(&machine.kernel))
        });
        let seed = records.first().map_or(0, |record| record.seed);
        let _ = write!(
            self.html,
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
             <title>pandofs: five results, measured here</title><style>{STYLE}</style></head><body><main>\
             <h1>Five results from the kernel's history, measured here</h1>\
             <p>{machine}<br><code>{}</code>, names drawn from seed {seed}.</p>\
             <p>Targets alternate within one run. Ratios are computed within one repeat unless noted otherwise, and given as <b>median</b> \
             <small>(minimum–maximum)</small>. <i>Old locks</i> means the same operations of pandofs, each with \
             the locks that kernels took around it before the technique was introduced. Their spinlocks are not fair: a \
             waiting thread can be overtaken by one that came later.</p>",
            escape(command)
        );
    }

    /// Advice about the run to the reader, below the figures.
    fn foot(&mut self, records: &[Record]) {
        if let Some(advice) = records.first().and_then(|record| report::load_advice(record.load_before)) {
            let _ = write!(self.html, "<p>{advice}</p>");
        }
        if records.iter().any(|record| record.ops_per_s.is_some_and(|rate| rate.is_noisy())) {
            self.html.push_str(
                "<p>A spread is shown where the repeats differ by more than a fifth of their median. Compare CPU ns/op \
                 there, or run the report again with a larger <code>--repeat</code>.</p>",
            );
        }
    }

    pub(super) fn plot(&mut self, file: &str, svg: String, caption: &str) {
        let _ = write!(self.html, "<figure id=\"{file}\">{svg}<figcaption>{}</figcaption></figure>", escape(caption));
        self.plots.push((file.into(), svg));
    }

    /// Before and after: as published, and as measured here.
    fn results(&mut self, records: &[Record]) {
        let here: Vec<MeasuredHere> = PUBLISHED.iter().map(|result| MeasuredHere::new(records, result)).collect();
        let groups: Vec<Group<'_>> = PUBLISHED
            .iter()
            .zip(&here)
            .map(|(result, here)| {
                let bar = |label: &str, ratio: Option<Summary>, series| {
                    ratio.map(|ratio| Bar {
                        label: label.into(),
                        value: ratio.median,
                        text: times(Some(ratio)),
                        series,
                    })
                };
                let published = result.published_ratio;
                let text = format!("{published:.1}x");
                let published = Bar { label: "published".into(), value: published, text, series: 5 };
                let bars =
                    [Some(published), bar("here", here.before_after, 0), bar("over the kernel", here.to_kernel, 2)];
                Group { heading: result.what, bars: bars.into_iter().flatten().collect() }
            })
            .collect();
        self.html.push_str("<h2>Before and after</h2>");
        let svg = plot::bars("Speed-up of each technique, published and measured here", &groups, Scale::Ratio);
        self.plot(
            "results",
            svg,
            "Rate after divided by rate before. The axis is logarithmic: each doubling has the same length.",
        );
        self.html.push_str(
            "<table><tr><th>technique</th><th>published</th><th>published ratio</th><th>here, after / before</th>\
             <th>here, pandofs / kernel</th><th>threads</th></tr>",
        );
        for (result, here) in PUBLISHED.iter().zip(&here) {
            let note =
                if result.note.is_empty() { String::new() } else { format!("<br><small>{}</small>", result.note) };
            let _ = write!(
                self.html,
                "<tr><td>{}<br><small>{}; <code>{} {}</code></small>{note}</td><td>{}</td><td>{:.1}x</td><td>{}</td>\
                 <td>{}</td><td>{}</td></tr>",
                result.what,
                result.source,
                result.workload,
                result.target,
                result.published,
                result.published_ratio,
                times_in_full(here.before_after),
                times_in_full(here.to_kernel),
                here.threads
            );
        }
        self.html.push_str("</table>");
    }

    /// Rates over threads, one line per target.
    fn throughput(&mut self, records: &[Record], (workload, target): (&str, &str), what: &str) {
        let records = of_result(records, workload, target);
        let Some(first) = records.first() else { return };
        let mut threads: Vec<usize> = records.iter().map(|record| record.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        let targets: Vec<&str> =
            records.iter().filter(|record| record.threads == threads[0]).map(|record| record.target.as_str()).collect();
        let labels: Vec<String> = targets.iter().map(|target| display_name(target)).collect();
        let lines: Vec<Line<'_>> = targets
            .iter()
            .zip(&labels)
            .map(|(target, label)| {
                let rate = |n: &usize| {
                    let record = records.iter().find(|record| record.threads == *n && record.target == *target)?;
                    record.ops_per_s.map(|rate| (rate.min, rate.median, rate.max))
                };
                Line { label, points: threads.iter().map(rate).collect() }
            })
            .collect();
        let _ = write!(self.html, "<h2>{what} <code>{}</code></h2>", escape(&first.workload));
        let places: Vec<String> =
            threads.iter().map(|n| if *n == 1 { "1 thread".into() } else { n.to_string() }).collect();
        let axes = Axes { places: &places, scale: Scale::Linear, unit: "/s" };
        let svg = plot::lines(&format!("{workload}: operations per second over threads"), &axes, &lines);
        let file = if target == "host" { format!("{}-host", name(workload)) } else { name(workload).into() };
        self.plot(&file, svg, "Operations per second of all threads together.");
        self.figures(&records);
    }

    fn figures(&mut self, records: &[&Record]) {
        self.html.push_str(
            "<table class=\"n\"><tr><th>target</th><th>threads</th><th>ops/s</th><th>CPU ns/op</th><th>switches/s</th>\
             <th>ratio to the first target</th></tr>",
        );
        for record in records {
            let _ =
                write!(self.html, "<tr><td>{}</td><td>{}</td>", escape(&display_name(&record.target)), record.threads);
            let Some(rate) = record.ops_per_s else {
                let why = record.not_measured.as_deref().unwrap_or("not measured");
                let _ = write!(self.html, "<td colspan=\"4\">{}</td></tr>", escape(why));
                continue;
            };
            let spread = format!(" <small>spread {:.0} %</small>", rate.spread() * 100.0);
            let spread = if rate.is_noisy() { spread.as_str() } else { "" };
            let _ = write!(
                self.html,
                "<td><b>{}</b> <small>({}–{})</small>{spread}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                short(rate.median),
                short(rate.min),
                short(rate.max),
                record.cpu_ns_per_op.map_or_else(String::new, short),
                record.ctx_switches_per_s.map_or_else(String::new, short),
                times_in_full(record.ratio_to_first)
            );
        }
        self.html.push_str("</table>");
    }

    /// Voluntary context switches, with the largest number of threads.
    fn switches(&mut self, records: &[Record]) {
        let most = records.iter().map(|record| record.threads).max().unwrap_or(1);
        let owned: Vec<(&str, Vec<(&str, f64)>)> = ["crunl", "rndrename", "dpath", "open-same"]
            .into_iter()
            .map(|workload| {
                let with = records_of(records, workload).into_iter().filter(|record| record.threads == most);
                (workload, with.filter_map(|r| Some((r.target.as_str(), r.ctx_switches_per_s?))).collect())
            })
            .collect();
        let bar = |(series, (target, value)): (usize, &(&str, f64))| Bar {
            label: short_name(target),
            value: *value,
            text: short(*value),
            series,
        };
        let groups: Vec<Group<'_>> = owned
            .iter()
            .map(|(heading, bars)| Group { heading, bars: bars.iter().enumerate().map(bar).collect() })
            .collect();
        let _ = write!(self.html, "<h2>Waiting: voluntary context switches per second, {most} threads</h2>");
        let svg = plot::bars("Voluntary context switches per second", &groups, Scale::Ratio);
        self.plot("switches", svg, "The axis is logarithmic. Published in 2005 for crunl: 215,000 before, 45 after.");
        self.html.push_str("<table><tr><th>workload</th><th>target</th><th>switches/s</th></tr>");
        for (workload, bars) in &owned {
            for (target, value) in bars {
                let target = escape(&display_name(target));
                let _ = write!(self.html, "<tr><td>{workload}</td><td>{target}</td><td>{}</td></tr>", short(*value));
            }
        }
        self.html.push_str("</table>");
    }

    fn footprint(&mut self, bytes: &[Bytes]) {
        let mut kinds: Vec<&str> = bytes.iter().map(|bytes| bytes.what.as_str()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let mut targets: Vec<&str> = bytes.iter().map(|bytes| bytes.target.as_str()).collect();
        targets.dedup();
        let groups: Vec<Group<'_>> = kinds
            .iter()
            .map(|kind| {
                let bar = |bytes: &Bytes| {
                    let value = bytes.bytes_each?;
                    let series = targets.iter().position(|target| *target == bytes.target).unwrap_or(0);
                    Some(Bar { label: short_name(&bytes.target), value, text: format!("{value:.0}"), series })
                };
                let bars = bytes.iter().filter(|bytes| bytes.what == *kind).filter_map(bar).collect();
                Group { heading: kind, bars }
            })
            .collect();
        self.html.push_str("<h2>Memory: bytes per object, all overhead included</h2>");
        let svg = plot::bars("Bytes of memory per file, directory and cached inode", &groups, Scale::Linear);
        self.plot(
            "footprint",
            svg,
            "One directory, names of 16 bytes. In process: resident memory; kernel: its slabs.",
        );
        self.html.push_str("<table><tr><th>object</th><th>target</th><th>bytes each</th></tr>");
        for bytes in bytes {
            let each = bytes.bytes_each.map_or_else(|| "n/a".to_owned(), |each| format!("{each:.1}"));
            let _ = write!(
                self.html,
                "<tr><td>{}</td><td>{}</td><td>{each}</td></tr>",
                bytes.what,
                escape(&display_name(&bytes.target))
            );
        }
        self.html.push_str("</table>");
    }
}
