//! Reads of one block, each thread through its own open file: FxMark's DRBL (each thread has its
//! own file) and DRBH (all read the same block of one file).

use std::io;

use super::{Part, Step, Task, Workload};
use crate::{
    base::{
        cancel::Cancel,
        failure::{During, Failure},
        path::TreePath,
    },
    target::{Actor, Handle},
};

/// The size of a read, and of each file.
const BLOCK: usize = 4096;

/// Reads of 4 KiB.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reads {
    /// All threads read one file; otherwise each has its own.
    pub(crate) shared: bool,
}

impl Reads {
    /// The file of a worker.
    fn file(self, worker: usize) -> TreePath {
        if self.shared { TreePath::new("file") } else { TreePath::new(&format!("file{worker}")) }
    }
}

impl Workload for Reads {
    fn prepare(&self, actor: &mut dyn Actor, workers: usize, _: &Cancel) -> Result<(), Failure> {
        for worker in 0..if self.shared { 1 } else { workers } {
            actor
                .open(&self.file(worker))
                .and_then(|file| file.write(&[1; BLOCK]))
                .during(|| "writing a file".into())?;
        }
        Ok(())
    }

    fn task<'a>(&'a self, part: Part<'a>) -> Box<dyn Task + 'a> {
        Box::new(Reader { path: self.file(part.worker), file: None, buffer: [0; BLOCK] })
    }
}

#[repr(align(128))]
struct Reader {
    path: TreePath,
    file: Option<Box<dyn Handle>>,
    buffer: [u8; BLOCK],
}

impl Step for Reader {
    fn begin(&mut self, actor: &mut dyn Actor) -> io::Result<()> {
        self.file = Some(actor.open(&self.path)?);
        Ok(())
    }

    fn step(&mut self, _: &mut dyn Actor) -> io::Result<u64> {
        let file = self.file.as_deref().expect("begun");
        let read = file.read_at(&mut self.buffer, 0)?;
        debug_assert_eq!(read, BLOCK);
        Ok(1)
    }

    fn end(&mut self, _: &mut dyn Actor) -> io::Result<()> {
        self.file = None;
        Ok(())
    }
}
