//! The schedule: it holds the directories in progress, and chooses the next names to ask for. It
//! has no threads and makes no system calls.
//!
//! A directory is read in blocks, at most [`LEAD`] entries ahead of the program, so that the
//! answers are still in the kernel's caches when the program needs them. One thread asks for the
//! first names, one after the other. Where calls are fast, that is the whole cost. The first call
//! that waits opens the directory to all threads.
//!
//! A program reports a large directory repeatedly. Between two posts no descriptor is kept, so the
//! helper does not keep a mount busy. A bookmark has the position to continue from. A program
//! identifies a reading by a token. Another process may use the same token, because it was replaced
//! by exec, or has the same number in another PID namespace. So a token is valid only together with
//! the directory.
//!
//! Whether a program reads targets of links is known when it has read the first one. Links in the
//! same directory whose attributes were asked for by then are asked for once more. From then on,
//! attributes and targets are asked for together. The extent of that second pass is the part of the
//! directory that was read. If no bookmark has it, the directory is treated as one of which the
//! program does not say how far it is.

use std::{
    collections::{HashMap, VecDeque},
    ffi::CString,
    os::fd::OwnedFd,
    sync::Arc,
    time::Duration,
};

use pando_concurrency::Calls;

use crate::{
    ask::{Asked, Identity, Manner, Pick, is_trouble},
    board::NEVER,
    device::{Device, Verdict},
    posts::{Links, Post},
};

/// Entries that are asked for ahead of the program.
const LEAD: u64 = 4096;

/// Entries that are asked for if the program does not say how far it is.
const WHOLE: u64 = 1 << 18;

/// Names in a trial whether calls wait.
const TRIAL: usize = 16;

/// A block is read when fewer names than this are left.
const LOW: usize = 512;

/// The most directories at a time. Posts of others are dropped.
const READINGS: usize = 256;

/// The most bookmarks.
const BOOKMARKS: usize = 256;

/// Counts of the helper's work.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// Messages from programs (with `--watch`: directories opened).
    pub posts: u64,
    /// Directories whose names were asked for.
    pub directories: u64,
    /// Entries whose attributes were asked for. Links count twice if they were asked for again for
    /// their targets.
    pub asked: u64,
    /// Links whose targets were asked for.
    pub links: u64,
    /// Calls that waited.
    pub waited: u64,
    /// The most calls in flight at once.
    pub most_at_once: usize,
    /// Directories that were left alone because calls were fast.
    pub fast: u64,
    /// File systems that were left alone because the kernel keeps no answers there.
    pub forgotten: u64,
}

/// A task for a thread.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) reading: ReadingId,
    pub(crate) directory: Arc<OwnedFd>,
    /// Which names of a block to return.
    pub(crate) pick: Pick,
    pub(crate) work: Work,
}

/// A directory in progress. Calls are counted on its device even after it was removed from the
/// list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadingId {
    number: u64,
    device: u64,
}

/// The work of a task.
#[derive(Debug)]
pub(crate) enum Work {
    /// Open the directory again, at this position, and read a block. The descriptor is the
    /// program's.
    Open(u64),
    /// Read a block of names.
    Read,
    /// Ask for the attributes of these names.
    Ask(Vec<CString>, Manner),
}

/// A block that was read.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) names: Vec<CString>,
    pub(crate) entries: u64,
    /// Where the next block begins.
    pub(crate) position: u64,
}

#[derive(Debug)]
struct Reading {
    id: ReadingId,
    identity: Identity,
    token: u64,
    pick: Pick,
    /// The program reads targets of links.
    links: bool,
    /// The most entries to be read.
    allowed: u64,
    read: u64,
    position: u64,
    directory: Arc<OwnedFd>,
    /// Until it is opened, the position at which to begin.
    unopened: Option<u64>,
    block_in_flight: bool,
    ended: bool,
    ready: VecDeque<CString>,
    asking: usize,
    /// Names that the trial has asked for; `None` when it is over.
    trial: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Bookmark {
    token: u64,
    identity: Identity,
    read: u64,
    /// `None`: all of it was read.
    position: Option<u64>,
}

impl Bookmark {
    fn is_of(&self, token: u64, identity: Identity) -> bool {
        self.token == token && self.identity == identity
    }
}

/// The directories in progress.
#[derive(Debug)]
pub(crate) struct Schedule {
    readings: VecDeque<Reading>,
    devices: HashMap<u64, Device>,
    bookmarks: VecDeque<Bookmark>,
    next_number: u64,
    most_in_flight: usize,
    xattrs: bool,
    in_flight: usize,
    totals: Totals,
    /// Intervals for the board.
    intervals: Vec<(u64, u32)>,
}

impl Schedule {
    pub(crate) fn new(most_in_flight: usize, xattrs: bool) -> Self {
        Self {
            readings: VecDeque::new(),
            devices: HashMap::new(),
            bookmarks: VecDeque::new(),
            next_number: 1,
            most_in_flight,
            xattrs,
            in_flight: 0,
            totals: Totals::default(),
            intervals: Vec::new(),
        }
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    /// Intervals that have changed since the last call.
    pub(crate) fn new_intervals(&mut self) -> Vec<(u64, u32)> {
        std::mem::take(&mut self.intervals)
    }

    /// Whether to try a directory of this device, if the program has not decided that by itself.
    pub(crate) fn is_due(&mut self, device: u64) -> bool {
        self.device(device).is_due()
    }

    /// Takes in a post of a program.
    pub(crate) fn reported(&mut self, post: Post, identity: Identity) {
        self.totals.posts += 1;
        if self.device(identity.device).interval() == NEVER {
            return;
        }
        let allowed = match post.seen {
            _ if post.links == Links::FirstRead => self.reached(identity).unwrap_or(WHOLE),
            u64::MAX => WHOLE,
            seen => seen.saturating_add(LEAD),
        };
        let from_start = post.seen == u64::MAX || post.seen == 0;
        let links = post.links != Links::Unread;
        let pick = if post.links == Links::FirstRead { Pick::Links } else { Pick::All };
        let same = |reading: &&mut Reading| {
            reading.identity == identity && (from_start || (post.token != 0 && reading.token == post.token))
        };
        for reading in self.readings.iter_mut().filter(same) {
            // For the names that are not yet asked for.
            reading.links |= links;
            if reading.pick == pick {
                reading.allowed = reading.allowed.max(allowed);
                return;
            }
        }
        let (mut read, mut from) = (0, 0);
        if !from_start {
            (read, from) = (post.seen, post.position);
            let place = self.bookmarks.iter().rposition(|bookmark| bookmark.is_of(post.token, identity));
            if let Some(place) = place {
                let bookmark = self.bookmarks[place];
                let Some(position) = bookmark.position.filter(|_| bookmark.read < allowed) else { return };
                self.bookmarks.remove(place);
                (read, from) = (bookmark.read, position);
            }
        }
        if self.readings.len() < READINGS {
            let trial = (!self.device(identity.device).is_slow()).then_some(0);
            self.readings.push_back(Reading {
                id: ReadingId { number: self.next_number, device: identity.device },
                identity,
                token: post.token,
                pick,
                links,
                allowed,
                read,
                position: 0,
                directory: Arc::new(post.directory),
                unopened: Some(from),
                block_in_flight: false,
                ended: false,
                ready: VecDeque::new(),
                asking: 0,
                trial,
            });
            self.next_number += 1;
            self.totals.directories += 1;
        }
    }

    /// The number of entries of a directory whose attributes were asked for, or will be from the
    /// blocks that were read. `None` if it is not known.
    fn reached(&self, identity: Identity) -> Option<u64> {
        let readings = self.readings.iter().filter(|reading| reading.identity == identity && reading.pick == Pick::All);
        let bookmark = || self.bookmarks.iter().rfind(|bookmark| bookmark.identity == identity);
        readings.map(|reading| reading.read).max().or_else(|| Some(bookmark()?.read))
    }

    /// The next task. Directories take turns.
    pub(crate) fn next(&mut self) -> Option<Task> {
        for place in 0..self.readings.len() {
            let reading = &mut self.readings[place];
            let device = self.devices.get_mut(&reading.identity.device).expect("made by the post");
            if let Some(work) = reading.work(device, self.xattrs) {
                device.in_flight += 1;
                self.in_flight += 1;
                self.totals.most_at_once = self.totals.most_at_once.max(self.in_flight);
                let task =
                    Task { reading: reading.id, directory: Arc::clone(&reading.directory), pick: reading.pick, work };
                self.readings.rotate_left(place + 1);
                return Some(task);
            }
        }
        None
    }

    /// Whether another task could begin now.
    pub(crate) fn has_more(&self) -> bool {
        self.readings.iter().any(|reading| reading.has_work(&self.devices[&reading.id.device]))
    }

    /// Takes in a block, after opening the directory if there is a descriptor.
    pub(crate) fn read(&mut self, id: ReadingId, opened: Option<OwnedFd>, block: rustix::io::Result<Block>) {
        self.ended(id);
        if block.as_ref().is_err_and(|&error| is_trouble(error)) {
            self.device(id.device).concurrency.back_off();
        }
        let Some(reading) = self.readings.iter_mut().find(|reading| reading.id == id) else { return };
        reading.block_in_flight = false;
        if let Some(own) = opened {
            reading.directory = Arc::new(own);
        }
        match block {
            Ok(block) => {
                reading.ended = block.entries == 0;
                reading.read += block.entries;
                reading.position = block.position;
                reading.ready.extend(block.names);
            }
            // It is missing, may not be read, or the store fails: the program's own call will say
            // so.
            Err(_) => reading.ended = true,
        }
        self.close_if_done(id);
    }

    /// Takes in names that were asked for, in `took`. Those in `left` were not.
    pub(crate) fn asked(&mut self, id: ReadingId, asked: &Asked, left: Vec<CString>, took: Duration) {
        self.totals.asked += asked.calls as u64;
        self.totals.waited += asked.waited as u64;
        self.totals.links += asked.links as u64;
        let was_full = self.devices[&id.device].is_full();
        self.ended(id);
        let device = self.devices.get_mut(&id.device).expect("made by the post");
        if asked.trouble > 0 {
            device.concurrency.back_off();
        } else if was_full {
            let count = u32::try_from(asked.calls).unwrap_or(u32::MAX);
            device.concurrency.learn(Calls::of(count, took));
        } else {
            device.concurrency.interrupted();
        }
        let interval = device.interval();
        let mut verdict = device.learn(asked);
        if let Some(reading) = self.readings.iter_mut().find(|reading| reading.id == id) {
            reading.asking -= 1;
            // Only a trial stops early, and it took the last names.
            reading.ready.extend(left);
            if let Some(before) = reading.trial
                && verdict == Verdict::Open
            {
                let tried = before + asked.calls;
                if asked.waited > 0 || tried >= TRIAL {
                    reading.trial = None;
                    verdict = device.tried(asked.waited > 0);
                } else {
                    reading.trial = Some(tried);
                }
            }
        }
        self.intervals.extend(device.changed_interval().map(|interval| (id.device, interval)));
        match verdict {
            Verdict::Open => self.close_if_done(id),
            Verdict::Fast => {
                self.totals.fast += 1;
                self.readings.retain(|reading| reading.id != id);
            }
            Verdict::Forgotten => {
                self.totals.forgotten += u64::from(interval != NEVER);
                self.readings.retain(|reading| reading.id.device != id.device);
            }
        }
    }

    /// A task is no longer in flight.
    fn ended(&mut self, id: ReadingId) {
        self.in_flight -= 1;
        self.device(id.device).in_flight -= 1;
    }

    fn close_if_done(&mut self, id: ReadingId) {
        let Some(place) = self.readings.iter().position(|reading| reading.id == id && reading.is_done()) else {
            return;
        };
        let reading = self.readings.remove(place).expect("found there");
        // A trial that ran out of names counts as a whole one.
        if reading.trial.is_some_and(|tried| tried > 0) {
            let device = self.device(reading.identity.device);
            let _fast = device.tried(false);
            let news = device.changed_interval().map(|interval| (reading.id.device, interval));
            self.intervals.extend(news);
            self.totals.fast += 1;
        }
        if reading.token != 0 {
            if self.bookmarks.len() == BOOKMARKS {
                self.bookmarks.pop_front();
            }
            let position = (!reading.ended).then_some(reading.position);
            let Reading { token, identity, read, .. } = reading;
            self.bookmarks.push_back(Bookmark { token, identity, read, position });
        }
    }

    fn device(&mut self, device: u64) -> &mut Device {
        self.devices.entry(device).or_insert_with(|| Device::new(self.most_in_flight))
    }
}

impl Reading {
    fn work(&mut self, device: &Device, xattrs: bool) -> Option<Work> {
        if device.is_full() {
            return None;
        }
        if let Some(from) = self.unopened.take() {
            self.block_in_flight = true;
            return Some(Work::Open(from));
        }
        if self.wants_block() {
            self.block_in_flight = true;
            return Some(Work::Read);
        }
        let batch = self.batch(device);
        if batch == 0 {
            return None;
        }
        // A trial takes the names that the program reads last. It may already have asked for those
        // at the front.
        let last = if self.trial.is_some() { self.ready.len() - batch } else { 0 };
        let names: Vec<CString> = self.ready.drain(last..last + batch).collect();
        self.asking += 1;
        let manner = Manner {
            xattrs,
            stop_at_wait: self.trial.is_some(),
            twice: device.attributes().are_wanted(),
            links: self.links && !device.targets().are_against(),
            links_twice: device.targets().are_wanted(),
        };
        Some(Work::Ask(names, manner))
    }

    fn has_work(&self, device: &Device) -> bool {
        !device.is_full() && (self.unopened.is_some() || self.wants_block() || self.batch(device) > 0)
    }

    fn wants_block(&self) -> bool {
        let low = if self.trial.is_some() { self.ready.is_empty() && self.asking == 0 } else { self.ready.len() < LOW };
        low && self.unopened.is_none() && !self.block_in_flight && !self.ended && self.read < self.allowed
    }

    /// How many names to ask for in the next task.
    fn batch(&self, device: &Device) -> usize {
        let batch = match self.trial {
            Some(_) if self.asking > 0 => 0,
            Some(tried) => TRIAL.saturating_sub(tried).max(1),
            None => device.batch(),
        };
        batch.min(self.ready.len())
    }

    fn is_done(&self) -> bool {
        let read = self.ended || self.read >= self.allowed;
        self.unopened.is_none() && !self.block_in_flight && self.asking == 0 && self.ready.is_empty() && read
    }
}

#[cfg(test)]
mod tests;
