//! The rate that path rendering keeps beside renames.

use std::fmt::Write as _;

use super::{
    html::{Page, display_name, short_name},
    plan::records_of,
    plot::{self, Bar, Group, Scale, escape, short},
};
use crate::report::{beside::behind, json::Record};

/// A note if the renamers fell behind the requested rate.
fn behind_note(record: &Record) -> &'static str {
    let behind = record.helper_ops_per_s.zip(record.helper_asked_per_s).is_some_and(|(did, asked)| behind(did, asked));
    if behind { " <small>BEHIND the requested rate</small>" } else { "" }
}

/// The workloads, and the requested rate of renames.
const WORKLOADS: [(&str, &str); 2] =
    [("dpath", "beside 50,000 directory renames per second"), ("dpath-full", "beside renames at full speed")];

impl Page {
    /// Both workloads, each beside the rate without renamers. Nothing if the figures are of an
    /// older version without these fields.
    pub(super) fn kept(&mut self, records: &[Record]) {
        let mut rows = Vec::new();
        for (workload, what) in WORKLOADS {
            let with = records_of(records, workload).into_iter().filter(|record| record.kept_of_alone.is_some());
            rows.extend(with.map(|record| (what, record)));
        }
        let mut sets: Vec<(&str, usize)> = rows.iter().map(|(what, record)| (*what, record.threads)).collect();
        sets.dedup();
        if sets.is_empty() {
            return;
        }
        let headings: Vec<String> = sets
            .iter()
            .map(|(what, threads)| format!("{what}, {threads} thread{}", if *threads == 1 { "" } else { "s" }))
            .collect();
        let bars = |set: &(&str, usize)| {
            let inside = rows.iter().filter(|(what, record)| (*what, record.threads) == *set);
            let bar = |(series, (_, record)): (usize, &(&str, &Record))| {
                let percent = 100.0 * record.kept_of_alone?.median;
                Some(Bar { label: short_name(&record.target), value: percent, text: format!("{percent:.0} %"), series })
            };
            inside.enumerate().filter_map(bar).collect()
        };
        let groups: Vec<Group<'_>> =
            sets.iter().zip(&headings).map(|(set, heading)| Group { heading, bars: bars(set) }).collect();
        self.html.push_str("<h2>Rate that path rendering keeps beside renames <code>dpath-kept</code></h2>");
        let svg = plot::bars("Share of the rate without renames", &groups, Scale::Linear);
        self.plot(
            "dpath-kept",
            svg,
            "Rate beside a renamer divided by the rate without one, measured just before. If there are as many threads \
             as cores, the renamer also takes CPU time from them.",
        );
        self.html.push_str(
            "<table class=\"n\"><tr><th>target</th><th>threads</th><th>renames/s</th><th>paths/s without</th><th>kept</th></tr>",
        );
        for (what, record) in &rows {
            let rate = |summary: Option<crate::base::measure::Summary>| {
                summary.map_or_else(|| "–".to_owned(), |summary| short(summary.median))
            };
            let kept = record.kept_of_alone.map_or_else(String::new, |kept| {
                let [median, min, max] = [kept.median, kept.min, kept.max].map(|part| 100.0 * part);
                format!("<b>{median:.0} %</b> <small>({min:.0}–{max:.0})</small>")
            });
            let _ = write!(
                self.html,
                "<tr><td>{}<br><small>{what}</small></td><td>{}</td><td>{}{}</td><td>{}</td><td>{kept}</td></tr>",
                escape(&display_name(&record.target)),
                record.threads,
                rate(record.helper_ops_per_s),
                behind_note(record),
                rate(record.alone_ops_per_s),
            );
        }
        self.html.push_str("</table>");
    }
}
