//! Where names are in the output, for Emacs (`--dired`): said after the listing, in bytes without the sequences of colours.

use pando_console::quote::Quoting;

use super::plan::Plan;

/// The places of names.
#[derive(Debug, Default)]
pub struct Dired {
    names: Vec<u64>,
    directories: Vec<u64>,
    /// Bytes before those in the buffer.
    pub flushed: u64,
}

impl Dired {
    /// A name of an entry lies in the buffer from here to there. So many bytes before it are not counted.
    pub fn add_name(&mut self, from: usize, to: usize, uncounted: u64) {
        self.names.extend([from, to].map(|place| self.flushed + place as u64 - uncounted));
    }

    /// A name of a directory, likewise.
    pub fn add_directory(&mut self, from: usize, to: usize, uncounted: u64) {
        self.directories.extend([from, to].map(|place| self.flushed + place as u64 - uncounted));
    }

    /// How many places there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// So many bytes were put in before the names from this one on.
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
