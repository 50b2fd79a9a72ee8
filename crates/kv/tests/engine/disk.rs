//! A disk that loses what was not flushed, or fails.

use std::{
    io,
    sync::{Mutex, MutexGuard},
};

use pando_kv::Storage;
use rustix::io::Errno;

use crate::{support::Rng, volatile::Volatile};

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Read,
    Write,
    Grow,
    Sync,
}

/// A call that fails: after so many others of its kind, this often.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    pub call: Call,
    pub after: usize,
    pub times: usize,
    pub error: Errno,
}

#[derive(Debug)]
struct State {
    bytes: Volatile,
    faults: Vec<Fault>,
    /// Called before each change.
    crashes: Option<Crashes>,
}

/// Images of the disk as crashes leave it.
#[derive(Debug)]
struct Crashes {
    random: Rng,
    /// One crash in so many calls.
    one_in: u64,
    /// How many commits have returned, as the test has noted it.
    returned: usize,
    images: Vec<(usize, Vec<u8>)>,
}

/// See the module.
#[derive(Debug)]
pub struct Disk(Mutex<State>);

impl Default for Disk {
    fn default() -> Self {
        Self(Mutex::new(State { bytes: Volatile::new(&[]), faults: Vec::new(), crashes: None }))
    }
}

impl Disk {
    /// From now on, one in `one_in` calls crashes: an image is kept, and the call goes on.
    pub fn crash(&self, random: Rng, one_in: u64) {
        self.lock().crashes = Some(Crashes { random, one_in, returned: 0, images: Vec::new() });
    }

    /// A commit has returned.
    pub fn note_return(&self) {
        if let Some(crashes) = &mut self.lock().crashes {
            crashes.returned += 1;
        }
    }

    /// The images, each with the number of commits that had returned.
    pub fn take_images(&self) -> Vec<(usize, Vec<u8>)> {
        self.lock().crashes.take().expect("crashes were asked for").images
    }

    pub fn inject(&self, fault: Fault) {
        self.lock().faults.push(fault);
    }

    /// Whether there is a fault that has not happened yet.
    pub fn has_faults(&self) -> bool {
        !self.lock().faults.is_empty()
    }

    /// What a read finds.
    pub fn bytes(&self) -> Vec<u8> {
        self.lock().bytes.now.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic")
    }
}

impl State {
    fn call(&mut self, call: Call) -> io::Result<()> {
        if let Some(mut crashes) = self.crashes.take() {
            if call != Call::Read && crashes.random.below(crashes.one_in) == 0 {
                let image = self.bytes.crashed(&mut crashes.random);
                crashes.images.push((crashes.returned, image));
            }
            self.crashes = Some(crashes);
        }
        for fault in self.faults.iter_mut().filter(|fault| fault.call == call) {
            if fault.after > 0 {
                fault.after -= 1;
                continue;
            }
            fault.times -= 1;
            let error = fault.error;
            self.faults.retain(|fault| fault.times > 0);
            return Err(error.into());
        }
        Ok(())
    }
}

impl Storage for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().bytes.now.len() as u64)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut state = self.lock();
        state.call(Call::Read)?;
        let found = state.bytes.now.get(offset as usize..offset as usize + buffer.len());
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        state.call(Call::Write)?;
        state.bytes.write(offset as usize, bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.lock();
        state.call(Call::Grow)?;
        state.bytes.set_len(len as usize);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.call(Call::Sync)?;
        state.bytes.sync();
        Ok(())
    }
}
