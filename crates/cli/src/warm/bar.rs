//! The progress bar. There is none if stderr is not a terminal.

use std::io::{self, IsTerminal, Write};

use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};
use pando_scan::WarmProgress;

/// The most redraws a second.
const DRAWS: u8 = 10;

/// A bar that has not been drawn yet.
pub fn new(quiet: bool) -> ProgressBar {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let target = if quiet || dumb || !io::stderr().is_terminal() {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::term_like_with_hz(Box::new(Stderr), DRAWS)
    };
    let bar = ProgressBar::with_draw_target(Some(0), target);
    let cells = Stderr.width().saturating_sub(TEXT_COLUMNS).clamp(5, 30);
    let style = format!("{{bar:{cells}}} {{wide_msg}}");
    bar.set_style(ProgressStyle::with_template(&style).expect("a template that is known to be right"));
    bar
}

/// Draws the progress. While directories are still read, neither the total nor the remaining time
/// is known.
pub fn draw(bar: &ProgressBar, progress: &WarmProgress) {
    let (done, found) = (HumanCount(progress.done), HumanCount(progress.found));
    let (rate, left) = (HumanCount(bar.per_sec().round() as u64), HumanDuration(bar.eta()));
    bar.set_message(if progress.all_found {
        format!("{done} of {found}  {rate}/s  ETA {left:#}")
    } else {
        format!("{done} of {found} so far  {rate}/s")
    });
    bar.set_length(progress.found);
    bar.set_position(progress.done);
}

/// The text rarely exceeds this, and the bar gets the rest of the line. On narrower screens the
/// text is cut off.
const TEXT_COLUMNS: u16 = 46;

/// Free columns at the right. A bar leaves the cursor at its end. At the edge of the screen, the
/// `^C` that a terminal prints for Ctrl-C would go to the next line, and clearing the bar would
/// miss the bar.
const FREE_COLUMNS: u16 = 4;

/// The terminal, reported a little narrower than it is.
#[derive(Debug)]
struct Stderr;

impl Stderr {
    fn size(&self) -> (u16, u16) {
        let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
        // A terminal that does not tell its size is taken for the oldest: 80 by 24.
        let known = |length: Option<u16>, oldest| length.filter(|&length| length > 0).unwrap_or(oldest);
        (known(size.map(|size| size.ws_col), 80), known(size.map(|size| size.ws_row), 24))
    }

    fn moved(&self, count: usize, direction: char) -> io::Result<()> {
        if count > 0 { write!(io::stderr(), "\x1b[{count}{direction}") } else { Ok(()) }
    }
}

impl TermLike for Stderr {
    fn width(&self) -> u16 {
        self.size().0.saturating_sub(FREE_COLUMNS).max(1)
    }

    fn height(&self) -> u16 {
        self.size().1
    }

    fn move_cursor_up(&self, count: usize) -> io::Result<()> {
        self.moved(count, 'A')
    }

    fn move_cursor_down(&self, count: usize) -> io::Result<()> {
        self.moved(count, 'B')
    }

    fn move_cursor_right(&self, count: usize) -> io::Result<()> {
        self.moved(count, 'C')
    }

    fn move_cursor_left(&self, count: usize) -> io::Result<()> {
        self.moved(count, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        writeln!(io::stderr(), "{text}")
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        write!(io::stderr(), "{text}")
    }

    fn clear_line(&self) -> io::Result<()> {
        write!(io::stderr(), "\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        io::stderr().flush()
    }
}
