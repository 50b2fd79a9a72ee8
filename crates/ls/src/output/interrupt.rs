//! Signals during output to a terminal: no colour stays behind in the middle of a name.
//!
//! While nothing is being written, a signal has its usual effect at once. A signal during a
//! write(2) ends that write: the terminal takes no more, and reports how much it took. Then the
//! line is finished and the colour is reset, and the signal has its usual effect. A second signal
//! does not wait for that, because the terminal may take nothing.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use pando_console::{output::print, signals};
use rustix::stdio::stdout;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP},
    flag, low_level,
};

const SIGNALS: [i32; 5] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP];

/// Resets the colour when a signal ends a write.
pub struct Restorer {
    /// Whether signals have their usual effect.
    idle: Arc<AtomicBool>,
    /// The signal that arrived during a write; zero for none.
    caught: Arc<AtomicUsize>,
    /// The sequence that resets the colour.
    sequence: Vec<u8>,
}

impl Restorer {
    /// Catches signals from now on, except for ignored ones (by nohup, for example).
    ///
    /// # Errors
    /// As sigaction(2).
    pub fn new(sequence: &[u8]) -> io::Result<Self> {
        let (idle, caught) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        for signal in signals::heeded(SIGNALS) {
            flag::register_conditional_default(signal, idle.clone())?;
            // A write that has written nothing yet is restarted. The next signal must not wait for
            // it.
            flag::register(signal, idle.clone())?;
            flag::register_usize(signal, caught.clone(), signal.unsigned_abs() as usize)?;
        }
        Ok(Self { idle, caught, sequence: sequence.to_vec() })
    }

    /// Like write(2) on standard output. It does not return if a signal arrives that ends the
    /// process.
    ///
    /// # Errors
    /// As write(2).
    pub fn write(&self, text: &[u8]) -> rustix::io::Result<usize> {
        // The signal before this write has had its effect.
        self.caught.store(0, Ordering::SeqCst);
        self.idle.store(false, Ordering::SeqCst);
        let written = rustix::io::write(stdout(), text);
        self.idle.store(true, Ordering::SeqCst);
        let signal = self.caught.swap(0, Ordering::SeqCst);
        if signal == 0 {
            return written;
        }
        let rest = &text[written.unwrap_or(0)..];
        let line = rest.split_inclusive(|&byte| byte == b'\n').next().unwrap_or_default();
        // If this fails, the next write fails too.
        let _ = print(&[line, &self.sequence].concat());
        let _ = low_level::emulate_default_handler(signal as i32);
        Ok(text.len() - rest.len() + line.len())
    }
}
