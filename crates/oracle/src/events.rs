//! Events of directories: what inotify reports on the tmpfs, and a watcher of the tree under test.
//!
//! These are not compared:
//! - The end of the watch of a directory that is removed: Linux waits until it is closed. So its
//!   last events are left out.
//! - The events of an open that fails. Linux reports some of them.
//! - The events of an anonymous file, which Linux reports for the directory where it was made.
//! - ATTRIB, where a change of contents clears setuid: Linux reports it.
//! - Reads of no bytes, which Linux reports for readv and not for read.
//! - How many calls a listing takes.

use std::{
    collections::{HashMap, HashSet},
    mem::MaybeUninit,
    os::fd::OwnedFd,
};

use pando_vfs::{At, Context, Vfs, Walk, WatchEvent, WatchEvents, WatchId, Watcher, WatcherOptions};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::op::{Answer, Op, Outcome};

/// An event of a directory. The directories have numbers in the order in which they were watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub dir: usize,
    pub events: WatchEvents,
    /// Counted from 1 in each list.
    pub cookie: usize,
    pub name: String,
}

/// The events that are compared.
const COMPARED: WatchEvents = WatchEvents::ALL_EVENTS.difference(WatchEvents::DELETE_SELF);

fn seen(dir: usize, events: WatchEvents, cookie: u32, name: &[u8], cookies: &mut Vec<u32>) -> Seen {
    let cookie = match cookie {
        0 => 0,
        cookie => {
            let known = cookies.iter().position(|known| *known == cookie);
            known.unwrap_or_else(|| {
                cookies.push(cookie);
                cookies.len() - 1
            }) + 1
        }
    };
    Seen { dir, events, cookie, name: String::from_utf8_lossy(name).into_owned() }
}

/// Leaves out what is not compared.
pub fn leave_out(op: &Op, outcome: &Outcome, removed: &HashSet<usize>, lists: [&mut Vec<Seen>; 2]) {
    let changes_contents = matches!(
        op,
        Op::Open { .. }
            | Op::Write { .. }
            | Op::Pwrite { .. }
            | Op::Writev { .. }
            | Op::Truncate { .. }
            | Op::Ftruncate { .. }
            | Op::Fallocate { .. }
            | Op::CopyRange { .. }
    );
    let is_not_compared = match (op, outcome) {
        (Op::Open { .. }, Err(_)) => true,
        (Op::Readv { .. }, Ok(Answer::Bytes(bytes))) => bytes.is_empty(),
        _ => false,
    };
    for list in lists {
        if changes_contents {
            list.iter_mut().for_each(|seen| seen.events -= WatchEvents::ATTRIB);
        }
        list.retain(|seen| {
            let is_anonymous = seen.name.starts_with('#');
            !is_not_compared && seen.events.intersects(COMPARED) && !is_anonymous && !removed.contains(&seen.dir)
        });
        if let Op::Readdir { .. } = op {
            let mut known: Vec<Seen> = Vec::new();
            list.retain(|seen| {
                let is_new = !known.contains(seen);
                known.push(seen.clone());
                is_new
            });
        }
    }
}

/// Watches by inotify.
pub struct Inotify {
    fd: OwnedFd,
    dirs: HashMap<i32, usize>,
}

impl Inotify {
    pub fn new() -> std::io::Result<Self> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Self { fd, dirs: HashMap::new() })
    }

    pub fn watch(&mut self, path: &str) -> std::io::Result<()> {
        let watch = inotify::add_watch(&self.fd, path, WatchFlags::ALL_EVENTS)?;
        let next = self.dirs.len();
        self.dirs.insert(watch, next);
        Ok(())
    }

    /// The events since the last call.
    pub fn take(&mut self) -> Vec<Seen> {
        let (mut buffer, mut cookies, mut found) = ([MaybeUninit::uninit(); 4096], Vec::new(), Vec::new());
        let mut reader = inotify::Reader::new(&self.fd, &mut buffer);
        while let Ok(event) = reader.next() {
            let name = event.file_name().map_or(&b""[..], std::ffi::CStr::to_bytes);
            let events = WatchEvents::from_bits_retain(event.events().bits());
            if events.intersects(COMPARED)
                && let Some(dir) = self.dirs.get(&event.wd())
            {
                found.push(seen(*dir, events, event.cookie(), name, &mut cookies));
            }
        }
        found
    }
}

/// Watches by a watcher of the tree.
pub struct Watches {
    watcher: Watcher,
    dirs: HashMap<WatchId, usize>,
    /// The directories that were removed.
    gone: HashSet<usize>,
}

impl Watches {
    pub fn new(vfs: &Vfs) -> Self {
        Self { watcher: vfs.watcher(WatcherOptions::new()), dirs: HashMap::new(), gone: HashSet::new() }
    }

    pub fn watch(&mut self, context: &Context, path: &str) -> pando_vfs::Result<()> {
        let watch = self.watcher.add(context, At::Cwd, path, WatchEvents::ALL_EVENTS, Walk::empty())?;
        let next = self.dirs.len();
        self.dirs.insert(watch, next);
        Ok(())
    }

    /// The events since the last call, and the directories that are removed by now.
    pub fn take(&mut self) -> (Vec<Seen>, &HashSet<usize>) {
        let (mut cookies, mut found) = (Vec::new(), Vec::new());
        while let Some(WatchEvent { watch, events, cookie, path, .. }) = self.watcher.try_recv() {
            let Some(dir) = watch.and_then(|watch| self.dirs.get(&watch)) else { continue };
            if events.contains(WatchEvents::IGNORED) {
                self.gone.insert(*dir);
            } else if events.intersects(COMPARED) {
                found.push(seen(*dir, events, cookie, &path, &mut cookies));
            }
        }
        (found, &self.gone)
    }
}
