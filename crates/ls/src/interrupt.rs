//! Signals while a terminal is written to: it is not left in the colour of half a name.
//!
//! While nothing is being written, a signal does what it always does, at once. One that comes during a write(2) ends that
//! write (the terminal takes no more, and says how much it took); then the line is finished, the colour is taken back, and the
//! signal does what it always does. A second one need not wait for that: the terminal may take nothing.

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

/// Takes colours back when a signal ends a write.
pub struct Restorer {
    /// Signals do what they always do.
    idle: Arc<AtomicBool>,
    /// The signal that came meanwhile; zero for none.
    caught: Arc<AtomicUsize>,
    /// What takes a colour back.
    sequence: Vec<u8>,
}

impl Restorer {
    /// Takes note of signals from now on, but of those that are ignored (by nohup, say).
    ///
    /// # Errors
    /// As sigaction(2).
    pub fn new(sequence: &[u8]) -> io::Result<Self> {
        let (idle, caught) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        for signal in signals::heeded(SIGNALS) {
            flag::register_conditional_default(signal, idle.clone())?;
            // A write that has written nothing yet goes on: the next signal must not wait for it.
            flag::register(signal, idle.clone())?;
            flag::register_usize(signal, caught.clone(), signal.unsigned_abs() as usize)?;
        }
        Ok(Self { idle, caught, sequence: sequence.to_vec() })
    }

    /// As write(2) on standard output. Does not return if a signal came that ends the process.
    ///
    /// # Errors
    /// As write(2).
    pub fn write(&self, text: &[u8]) -> rustix::io::Result<usize> {
        // One that came before, and has done what it does.
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
        // Should this fail, the next write does, too, if there is one.
        let _ = print(&[line, &self.sequence].concat());
        let _ = low_level::emulate_default_handler(signal as i32);
        Ok(text.len() - rest.len() + line.len())
    }
}
