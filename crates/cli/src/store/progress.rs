//! A count on the terminal, while a store is read. There is none if stderr is not a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How often the count is drawn.
const PERIOD: Duration = Duration::from_millis(100);

/// See the module.
pub struct Progress(ProgressBar);

impl Progress {
    /// A count of such things.
    pub fn new(things: &'static str) -> Self {
        let bar = ProgressBar::new_spinner().with_message(things);
        bar.set_style(
            ProgressStyle::with_template("{spinner} {human_pos} {msg}, {elapsed}")
                .expect("a template that is known to be right"),
        );
        bar.enable_steady_tick(PERIOD);
        Self(bar)
    }

    pub fn set(&self, count: u64) {
        self.0.set_position(count);
    }

    /// Removes it from the terminal.
    pub fn end(self) {
        self.0.finish_and_clear();
    }
}
