//! The lseek family: random seeks in a file of 128 MiB.
//!
//! This is the measurement of lseek without the inode mutex (2009). The position belongs to the
//! open file. Seeks through separate handles therefore need not wait for each other, and seeks on a
//! shared handle only contend for its cache line. One operation is one seek. The random generator
//! costs some nanoseconds, which are reported as the cost of the loop.

use std::io::{self, SeekFrom};

use super::{Part, Step, Task, Workload};
use crate::{
    base::{
        cancel::Cancel,
        failure::{During, Failure},
        path::TreePath,
    },
    target::{Actor, Handle},
};

/// Size of the file in bytes; a power of two.
const SIZE: u64 = 128 << 20;
/// Bytes that a helper reads or writes at once.
const BLOCK: usize = 4096;
/// Number of blocks that are appended before the file is truncated again.
const APPENDED: u32 = 256;

/// The origin of seeks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whence {
    Set,
    Cur,
    End,
    /// Alternating SEEK_SET and SEEK_END.
    SetAndEnd,
}

/// The helper's operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    Nothing,
    /// One helper reads on the same handle.
    Reads,
    /// One helper appends and fsyncs through its own handle.
    Fsyncs,
}

/// Random seeks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seeks {
    pub(crate) whence: Whence,
    /// All threads share one handle; otherwise each has its own.
    pub(crate) shared: bool,
    pub(crate) beside: Beside,
}

fn file() -> TreePath {
    TreePath::new("file")
}

impl Workload for Seeks {
    fn helpers(&self) -> usize {
        usize::from(self.beside != Beside::Nothing)
    }

    fn helpers_do(&self) -> &'static str {
        if self.beside == Beside::Reads { "reads" } else { "appends with fsync" }
    }

    fn may_be_processes(&self) -> bool {
        !self.shared && self.beside == Beside::Nothing
    }

    fn prepare(&self, actor: &mut dyn Actor, _: usize, _: &Cancel) -> Result<(), Failure> {
        let mut make = || actor.open(&file())?.truncate(SIZE);
        make().during(|| "making a file of 128 MiB".into())
    }

    fn share(&self, actor: &mut dyn Actor) -> io::Result<Option<Box<dyn Handle>>> {
        if self.shared { actor.open(&file()).map(Some) } else { Ok(None) }
    }

    fn task<'a>(&'a self, part: Part<'a>) -> Box<dyn Task + 'a> {
        let (shared, own) = (part.shared, None);
        if part.helper().is_some() {
            return Box::new(Helper { beside: self.beside, shared, own, buffer: [1; BLOCK], written: 0 });
        }
        let rng = part.rng();
        match self.whence {
            Whence::Set => Box::new(Seeker::<{ Whence::Set as u8 }> { shared, own, rng, place: 0 }),
            Whence::Cur => Box::new(Seeker::<{ Whence::Cur as u8 }> { shared, own, rng, place: 0 }),
            Whence::End => Box::new(Seeker::<{ Whence::End as u8 }> { shared, own, rng, place: 0 }),
            Whence::SetAndEnd => Box::new(Seeker::<{ Whence::SetAndEnd as u8 }> { shared, own, rng, place: 0 }),
        }
    }
}

/// The handle to use: the shared one, or this thread's own.
fn handle<'a>(shared: Option<&'a dyn Handle>, own: &'a Option<Box<dyn Handle>>) -> &'a dyn Handle {
    shared.or(own.as_deref()).expect("begun")
}

/// Seeks by a [`Whence`], which is a constant so that the choice is not part of the loop.
#[repr(align(128))]
struct Seeker<'a, const WHENCE: u8> {
    shared: Option<&'a dyn Handle>,
    own: Option<Box<dyn Handle>>,
    rng: fastrand::Rng,
    /// The distance of the last relative seek, or the number of seeks.
    place: u64,
}

impl<const WHENCE: u8> Step for Seeker<'_, WHENCE> {
    const BATCH: u32 = 1024;

    fn begin(&mut self, actor: &mut dyn Actor) -> io::Result<()> {
        if self.shared.is_none() {
            self.own = Some(actor.open(&file())?);
        }
        // Start in the middle. Relative seeks on a shared handle stay near it: each goes forward
        // and back.
        self.place = 0;
        handle(self.shared, &self.own).seek(SeekFrom::Start(SIZE / 2)).map(drop)
    }

    fn step(&mut self, _: &mut dyn Actor) -> io::Result<u64> {
        let handle = handle(self.shared, &self.own);
        let random = self.rng.u64(..) % SIZE;
        let to = match WHENCE {
            w if w == Whence::Set as u8 => SeekFrom::Start(random),
            w if w == Whence::End as u8 => SeekFrom::End(-random.cast_signed()),
            w if w == Whence::SetAndEnd as u8 => {
                self.place += 1;
                if self.place.is_multiple_of(2) {
                    SeekFrom::Start(random)
                } else {
                    SeekFrom::End(-random.cast_signed())
                }
            }
            // Forward by a distance, then back by the same: no thread leaves the file, however many
            // share the handle.
            _ if self.place == 0 => {
                self.place = random / 4096 + 1;
                SeekFrom::Current(self.place.cast_signed())
            }
            _ => SeekFrom::Current(-std::mem::take(&mut self.place).cast_signed()),
        };
        std::hint::black_box(handle.seek(to)?);
        Ok(1)
    }

    fn end(&mut self, _: &mut dyn Actor) -> io::Result<()> {
        self.own = None;
        Ok(())
    }
}

/// The helper that reads or writes beside the seeks.
#[repr(align(128))]
struct Helper<'a> {
    beside: Beside,
    shared: Option<&'a dyn Handle>,
    own: Option<Box<dyn Handle>>,
    buffer: [u8; BLOCK],
    /// Number of blocks appended since the last truncation.
    written: u32,
}

impl Step for Helper<'_> {
    const BATCH: u32 = 1;

    fn begin(&mut self, actor: &mut dyn Actor) -> io::Result<()> {
        if self.beside == Beside::Fsyncs {
            self.own = Some(actor.open(&file())?);
        }
        Ok(())
    }

    fn step(&mut self, _: &mut dyn Actor) -> io::Result<u64> {
        if self.beside == Beside::Reads {
            let shared = self.shared.expect("seeks beside reads share a handle");
            shared.read(&mut self.buffer)?;
            return Ok(1);
        }
        let own = self.own.as_deref().expect("begun");
        if self.written.is_multiple_of(APPENDED) {
            own.truncate(SIZE)?;
        }
        own.seek(SeekFrom::End(0))?;
        own.write(&self.buffer)?;
        own.fsync()?;
        self.written += 1;
        Ok(1)
    }

    fn end(&mut self, _: &mut dyn Actor) -> io::Result<()> {
        match self.own.take() {
            Some(own) => own.truncate(SIZE),
            None => Ok(()),
        }
    }
}
