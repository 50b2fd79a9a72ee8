//! A machine that crashes: the storage of an engine and the files of contents, in memory. What was
//! not flushed is lost, wholly or in part.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write},
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use pando_kv::Storage;
use pando_kvfs::{ContentsFile, Files};
use pando_vfs::StatFs;
use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::Errno,
};

use crate::{support::Rng, volatile::Volatile};

/// What a crash has left.
#[derive(Debug, Clone, Default, Hash)]
pub struct Image {
    pub records: Vec<u8>,
    pub contents: BTreeMap<u64, Vec<u8>>,
}

/// A kind of call that may fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    GrowRecords,
    FlushRecords,
    FlushContents,
    /// Panics.
    Panic,
}

/// The progress of the test at a crash.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    /// How many operations had returned.
    pub returned: usize,
    /// How many of them a sync that has returned had waited for.
    pub synced: usize,
}

/// Images of the machine as crashes leave it.
#[derive(Debug)]
struct Crashes {
    random: Rng,
    /// One crash in so many calls.
    one_in: u64,
    progress: Progress,
    images: Vec<(Progress, Image)>,
}

#[derive(Debug)]
struct State {
    records: Volatile,
    /// All files that were made, also those that have lost their name.
    files: Vec<Volatile>,
    /// The files by their names, now and after a crash.
    names: BTreeMap<u64, usize>,
    flushed_names: BTreeMap<u64, usize>,
    crashes: Option<Crashes>,
    /// The calls that fail.
    failing: Option<(Call, Errno)>,
}

impl State {
    fn expect(&mut self, call: Call) -> io::Result<()> {
        match self.failing {
            Some((failing, error)) if failing == call => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Machine(Arc<Mutex<State>>);

impl Machine {
    /// A machine with what a crash has left, all flushed.
    pub fn new(image: &Image) -> Self {
        let files = image.contents.values().map(|bytes| Volatile::new(bytes)).collect();
        let names: BTreeMap<u64, usize> =
            image.contents.keys().enumerate().map(|(place, number)| (*number, place)).collect();
        let flushed_names = names.clone();
        Self(Arc::new(Mutex::new(State {
            records: Volatile::new(&image.records),
            files,
            names,
            flushed_names,
            crashes: None,
            failing: None,
        })))
    }

    /// All calls of this kind fail until the next call of this function.
    pub fn fail(&self, failing: Option<(Call, Errno)>) {
        self.lock().failing = failing;
    }

    /// From now on, one in `one_in` calls crashes: an image is kept, and the call goes on.
    pub fn crash(&self, random: Rng, one_in: u64) {
        self.lock().crashes = Some(Crashes { random, one_in, progress: Progress::default(), images: Vec::new() });
    }

    /// So many operations have returned.
    pub fn note_returned(&self, returned: usize) {
        if let Some(crashes) = &mut self.lock().crashes {
            crashes.progress.returned = crashes.progress.returned.max(returned);
        }
    }

    /// A sync that was called after so many operations has returned.
    pub fn note_synced(&self, synced: usize) {
        if let Some(crashes) = &mut self.lock().crashes {
            crashes.progress.synced = crashes.progress.synced.max(synced);
        }
    }

    pub fn take_images(&self) -> Vec<(Progress, Image)> {
        self.lock().crashes.take().expect("crashes were asked for").images
    }

    /// A machine with what a crash would leave now.
    pub fn crashed(&self) -> Self {
        Self::new(&self.image())
    }

    /// What a crash would leave now.
    pub fn image(&self) -> Image {
        self.lock().crashed(&mut Rng(1))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, for a call that changes it.
    fn changing(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        if let Some(mut crashes) = state.crashes.take() {
            if crashes.random.below(crashes.one_in) == 0 {
                let image = state.crashed(&mut crashes.random);
                crashes.images.push((crashes.progress, image));
            }
            state.crashes = Some(crashes);
        }
        state
    }

    fn file(&self, place: usize) -> Arc<dyn ContentsFile> {
        Arc::new(Contents { machine: self.clone(), place })
    }
}

impl State {
    fn crashed(&self, random: &mut Rng) -> Image {
        let records = self.records.crashed(random);
        // Each name is as it was flushed, or as it is now.
        let numbers = self.names.keys().chain(self.flushed_names.keys());
        let mut contents = BTreeMap::new();
        for number in numbers {
            let names = if random.below(2) == 0 { &self.names } else { &self.flushed_names };
            if let Some(place) = names.get(number) {
                contents.insert(*number, self.files[*place].crashed(random));
            }
        }
        Image { records, contents }
    }
}

impl Storage for Machine {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().records.now.len() as u64)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let state = self.lock();
        let found = state.records.now.get(offset as usize..offset as usize + buffer.len());
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.changing().records.write(offset as usize, bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let state = &mut *self.changing();
        state.expect(Call::GrowRecords)?;
        state.records.set_len(len as usize);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let state = &mut *self.changing();
        state.expect(Call::FlushRecords)?;
        state.expect(Call::Panic).expect("no panic is wanted");
        state.records.sync();
        Ok(())
    }
}

impl Files for Machine {
    fn create(&self, number: u64) -> io::Result<Arc<dyn ContentsFile>> {
        let state = &mut *self.changing();
        state.files.push(Volatile::new(&[]));
        let place = state.files.len() - 1;
        state.names.insert(number, place);
        Ok(self.file(place))
    }

    fn open(&self, number: u64) -> io::Result<Arc<dyn ContentsFile>> {
        let place = self.lock().names.get(&number).copied();
        Ok(self.file(place.ok_or(io::ErrorKind::NotFound)?))
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        self.changing().names.remove(&number);
        Ok(())
    }

    fn numbers(&self) -> io::Result<Vec<u64>> {
        Ok(self.lock().names.keys().copied().collect())
    }

    fn statfs(&self) -> io::Result<StatFs> {
        Ok(StatFs::new(4096).blocks(1 << 20, 1 << 20).inodes(1 << 20, 1 << 20))
    }

    fn sync(&self) -> io::Result<()> {
        let state = &mut *self.changing();
        state.flushed_names = state.names.clone();
        Ok(())
    }

    fn sync_contents(&self) -> bool {
        let state = &mut *self.changing();
        if state.expect(Call::FlushContents).is_err() {
            return false;
        }
        state.files.iter_mut().for_each(Volatile::sync);
        true
    }
}

#[derive(Debug)]
struct Contents {
    machine: Machine,
    place: usize,
}

impl Contents {
    fn with<T>(&self, work: impl FnOnce(&mut Volatile) -> T) -> T {
        work(&mut self.machine.changing().files[self.place])
    }
}

impl ContentsFile for Contents {
    fn held(&self) -> io::Result<Arc<dyn ContentsFile>> {
        Ok(self.machine.file(self.place))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.machine.lock().files[self.place].now.len() as u64)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let state = self.machine.lock();
        let rest = state.files[self.place].now.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let end = offset as usize + bytes.len();
        self.with(|file| {
            if file.now.len() < end {
                file.set_len(end);
            }
            file.write(offset as usize, bytes);
        });
        Ok(bytes.len())
    }

    fn descriptor(&self) -> io::Result<Option<OwnedFd>> {
        let mut copy = File::from(memfd_create("contents", MemfdFlags::CLOEXEC)?);
        copy.write_all(&self.machine.lock().files[self.place].now)?;
        Ok(Some(copy.into()))
    }

    fn copy_from(&self, offset: u64, source: &OwnedFd, source_offset: u64, len: usize) -> io::Result<usize> {
        let mut bytes = vec![0; len];
        let count = rustix::io::pread(source, &mut bytes, source_offset)?;
        if count == 0 {
            return Err(Errno::OPNOTSUPP.into());
        }
        // As btrfs may do: more is written than the call says.
        bytes.truncate(count);
        bytes.extend([0xee; 5000]);
        self.write(offset, &bytes)?;
        Ok(count)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(|file| file.set_len(len as usize));
        Ok(())
    }

    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.with(|file| {
            let end = file.now.len().min((offset + len) as usize);
            let start = end.min(offset as usize);
            file.write(start, &vec![0; end - start]);
        });
        Ok(())
    }

    fn seek_data(&self, offset: u64) -> io::Result<Option<u64>> {
        Ok(Some(offset).filter(|offset| self.size().is_ok_and(|size| *offset < size)))
    }

    fn seek_hole(&self, offset: u64) -> io::Result<u64> {
        Ok(self.size()?.max(offset))
    }

    fn blocks(&self) -> io::Result<u64> {
        Ok(self.size()?.div_ceil(512))
    }

    fn sync(&self) -> io::Result<()> {
        let state = &mut *self.machine.changing();
        state.expect(Call::FlushContents)?;
        state.files[self.place].sync();
        Ok(())
    }
}
