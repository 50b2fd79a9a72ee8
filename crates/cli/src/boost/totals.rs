//! The totals of a helper, in the log.

use pando_boost::Totals;
use tracing::info;

/// Logs what the helper has done.
pub fn log(totals: Totals) {
    let Totals { posts, directories, asked, links, waited, most_at_once, fast, forgotten } = totals;
    info!(posts, directories, asked, links, waited, most_at_once, fast, forgotten, "boosted");
}
