//! A snapshot of a whole tree and of the open handles, as a list that can be compared.

use std::collections::{HashMap, HashSet};

use crate::op::{
    Answer, At, Caller, Facts, Flags, LAST_SEEK, Mode, NotCompared, Op, Outcome, Place, S_IFDIR, S_IFLNK, S_IFMT,
    S_IFREG, SLOTS, SNAPSHOT_SLOT, Tree, Whence,
};

/// The questions in words, and the outcomes.
pub type Snapshot = Vec<(String, Outcome)>;

/// Takes successive snapshots of one tree.
#[derive(Default)]
pub struct Snapshotter {
    /// mtime and ctime of each inode in the last snapshot.
    times: HashMap<u64, [i64; 2]>,
    /// Files with ranges that fallocate allocated. It is unspecified whether such a range is data
    /// before it is written to, and tmpfs changes its result when the range is allocated a second
    /// time. The holes of these files are not compared.
    allocated: HashSet<u64>,
}

/// The number of bytes of each extent that are compared. [`EXTENTS`] is the number of extents.
const EXTENT_BYTES: usize = 1 << 16;
const EXTENTS: usize = 40;

impl Snapshotter {
    /// Notes that the file of a handle has allocated ranges.
    pub fn note_allocation(&mut self, tree: &mut dyn Tree, slot: usize) {
        self.allocated.extend(ino_of(tree, slot));
    }

    /// Whether the file of a handle has allocated ranges.
    pub fn has_allocated(&self, tree: &mut dyn Tree, slot: usize) -> bool {
        ino_of(tree, slot).is_some_and(|ino| self.allocated.contains(&ino))
    }

    /// Takes a snapshot as root. Then restores `caller`.
    pub fn take(&mut self, tree: &mut dyn Tree, caller: Caller) -> Snapshot {
        let (old_times, allocated) = (&self.times, &self.allocated);
        let mut builder =
            SnapshotBuilder { tree, facts: Vec::new(), first_names: HashMap::new(), old_times, allocated };
        let mut times = HashMap::new();
        builder.ask("getcwd".into(), &Op::Getcwd);
        for slot in 0..SLOTS {
            builder.handle(slot);
        }
        builder.ask("become root".into(), &Op::Become { caller: Caller::Root });
        let mut paths = vec![String::new()];
        while let Some(path) = paths.pop() {
            builder.node(&path, &mut paths, &mut times);
        }
        builder.ask("become the caller".into(), &Op::Become { caller });
        let facts = builder.facts;
        self.times = times;
        facts
    }
}

fn ino_of(tree: &mut dyn Tree, slot: usize) -> Option<u64> {
    match tree.apply(&Op::Fstat { slot }) {
        Ok(Answer::Facts(Facts { ino: NotCompared(ino), .. })) => Some(ino),
        _ => None,
    }
}

struct SnapshotBuilder<'a> {
    tree: &'a mut dyn Tree,
    facts: Snapshot,
    /// The first name of each inode. Two names must be one inode in both trees, or in none.
    first_names: HashMap<u64, String>,
    old_times: &'a HashMap<u64, [i64; 2]>,
    allocated: &'a HashSet<u64>,
}

impl SnapshotBuilder<'_> {
    /// Makes an operation, and records its outcome. A hole beyond [`LAST_SEEK`] is not compared.
    fn ask(&mut self, what: String, op: &Op) -> Option<Answer> {
        let mut outcome = self.tree.apply(op);
        if let (Op::Lseek { whence: Whence::Hole, .. }, Ok(Answer::Number(end))) = (op, &mut outcome) {
            *end = (*end).min(LAST_SEEK as u64 + 1);
        }
        self.facts.push((what, outcome.clone()));
        outcome.ok()
    }

    /// An open handle. Positions in directories mean nothing.
    fn handle(&mut self, slot: usize) {
        let Some(Answer::Facts(facts)) = self.ask(format!("fstat #{slot}"), &Op::Fstat { slot }) else { return };
        self.ask(format!("path of #{slot}"), &Op::PathOf { slot });
        if facts.mode.0 & S_IFMT == S_IFREG {
            self.ask(format!("position of #{slot}"), &Op::Lseek { slot, whence: Whence::Cur, offset: 0 });
            self.ask(format!("beginning of #{slot}"), &Op::Pread { slot, len: EXTENT_BYTES, offset: 0 });
        }
    }

    fn node(&mut self, path: &str, paths: &mut Vec<String>, times: &mut HashMap<u64, [i64; 2]>) {
        let shown = if path.is_empty() { "/" } else { path };
        let place = Place { at: At::Cwd, path: shown.into() };
        let stat = Op::Stat { place: place.clone(), follow: false };
        let Some(Answer::Facts(facts)) = self.ask(format!("stat {shown}"), &stat) else { return };
        let Facts { ino: NotCompared(ino), times: NotCompared([_, mtime, ctime]), .. } = facts;
        let first = self.first_names.entry(ino).or_insert_with(|| shown.to_string()).clone();
        self.facts.push((format!("first name of {shown}"), Ok(Answer::Bytes(first.into_bytes()))));
        times.insert(ino, [mtime, ctime]);
        let changed = self.old_times.get(&ino).map(|old| (mtime != old[0], ctime != old[1]));
        let text = format!("(mtime, ctime) changed: {changed:?}");
        self.facts.push((format!("times of {shown}"), Ok(Answer::Bytes(text.into_bytes()))));
        self.xattrs(shown);
        match facts.mode.0 & S_IFMT {
            S_IFDIR => self.directory(path, &place, paths),
            S_IFLNK => {
                self.ask(format!("readlink {shown}"), &Op::Readlink { place });
            }
            S_IFREG => self.contents(&place, ino),
            _ => {}
        }
    }

    fn xattrs(&mut self, path: &str) {
        let list = Op::Listxattr { path: path.into(), follow: false };
        let Some(Answer::Names(names)) = self.ask(format!("listxattr {path}"), &list) else { return };
        for name in names {
            let name = String::from_utf8_lossy(&name).into_owned();
            let what = format!("getxattr {path} {name}");
            self.ask(what, &Op::Getxattr { path: path.into(), name, follow: false });
        }
    }

    fn open(&mut self, place: &Place, flags: u32) -> bool {
        let flags = Flags(flags | Flags::NOATIME | Flags::NOFOLLOW);
        let open = Op::Open { slot: SNAPSHOT_SLOT, place: place.clone(), flags, mode: Mode(0) };
        self.ask(format!("open {place:?}"), &open).is_some()
    }

    fn close(&mut self) {
        self.ask("close".into(), &Op::Close { slot: SNAPSHOT_SLOT });
    }

    fn directory(&mut self, path: &str, place: &Place, paths: &mut Vec<String>) {
        if !self.open(place, Flags::DIRECTORY) {
            return;
        }
        if let Some(Answer::Entries(entries)) =
            self.ask(format!("readdir {place:?}"), &Op::Readdir { slot: SNAPSHOT_SLOT })
        {
            let names = entries.iter().map(|entry| &entry.name[..]).filter(|name| !matches!(*name, b"." | b".."));
            // Paths are taken from the end of `paths`, so they are added in reverse.
            paths.extend(names.rev().map(|name| format!("{path}/{}", String::from_utf8_lossy(name))));
        }
        self.close();
    }

    /// The extents of a file, which show its holes, and their data.
    fn contents(&mut self, place: &Place, ino: u64) {
        let slot = SNAPSHOT_SLOT;
        if !self.open(place, 0) {
            return;
        }
        if self.allocated.contains(&ino) {
            self.ask(format!("{place:?}: bytes"), &Op::Pread { slot, len: EXTENT_BYTES, offset: 0 });
            return self.close();
        }
        let mut at = 0;
        for _ in 0..EXTENTS {
            if at > LAST_SEEK {
                break;
            }
            let data = Op::Lseek { slot, whence: Whence::Data, offset: at };
            let Some(Answer::Number(start)) = self.ask(format!("{place:?}: data from {at}"), &data) else { break };
            if start as i64 > LAST_SEEK {
                break;
            }
            let hole = Op::Lseek { slot, whence: Whence::Hole, offset: start as i64 };
            let Some(Answer::Number(end)) = self.ask(format!("{place:?}: hole from {start}"), &hole) else { break };
            let len = EXTENT_BYTES.min((end - start) as usize);
            self.ask(format!("{place:?}: bytes from {start}"), &Op::Pread { slot, len, offset: start });
            at = end as i64;
        }
        self.close();
    }
}
