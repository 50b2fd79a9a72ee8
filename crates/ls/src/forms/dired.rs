//! The places of names in the output, for Emacs (`--dired`). They follow the listing, as offsets in
//! bytes without the sequences of colours.

use pando_console::quote::Quoting;

use crate::plan::Plan;

/// The places of names.
#[derive(Debug, Default)]
pub struct Dired {
    names: Vec<u64>,
    directories: Vec<u64>,
    /// The number of bytes that were written before the buffer.
    pub flushed: u64,
}

impl Dired {
    /// Records the place of an entry's name in the buffer. The bytes before it that are colour
    /// sequences are not counted.
    pub fn add_name(&mut self, from: usize, to: usize, uncounted: u64) {
        self.names.extend([from, to].map(|place| self.flushed + place as u64 - uncounted));
    }

    /// Records the place of a directory's name.
    pub fn add_directory(&mut self, from: usize, to: usize, uncounted: u64) {
        self.directories.extend([from, to].map(|place| self.flushed + place as u64 - uncounted));
    }

    /// The number of places.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Moves the names from this one on by bytes that were inserted before them.
    pub fn shift(&mut self, from: usize, bytes: usize) {
        self.names[from..].iter_mut().for_each(|place| *place += bytes as u64);
    }

    /// Appends all places.
    pub fn write(&self, plan: &Plan, out: &mut Vec<u8>) {
        for (title, places) in [("//DIRED//", &self.names), ("//SUBDIRED//", &self.directories)] {
            if places.is_empty() {
                continue;
            }
            out.extend_from_slice(title.as_bytes());
            for place in places {
                out.push(b' ');
                out.extend_from_slice(itoa::Buffer::new().format(*place).as_bytes());
            }
            out.push(b'\n');
        }
        let style = Quoting::WORDS.iter().find(|(_, style)| *style == plan.quote.style).map_or("", |&(word, _)| word);
        out.extend_from_slice(b"//DIRED-OPTIONS// --quoting-style=");
        out.extend_from_slice(style.as_bytes());
        out.push(b'\n');
    }
}
