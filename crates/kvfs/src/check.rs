//! Checks all records of a store against each other.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hasher},
};

use pando_kv::{Engine, Numbers};
use pando_vfs::FileKind;

use crate::{
    committer::{INODES, NEXT_RUN, SPACE},
    files::Files,
    key::{Key, Table},
    numbers::{ROOT, RUN_BITS},
    open::{OpenError, read_header},
    record::{Contents, Inode, Names, decode_xattrs},
    small::Form,
};

/// What a check has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The number of inodes.
    pub inodes: u64,
    /// The number of names.
    pub names: u64,
    /// What is wrong, a line for each.
    pub problems: Vec<String>,
}

/// An inode, and what other records say of it.
struct Found {
    kind: FileKind,
    nlink: u32,
    has_xattrs: bool,
    has_xattr_record: bool,
    is_unnamed: bool,
    /// Names that lead to it.
    names: u32,
    /// The sum of the records that it notes, less those in which its names were found. It is 0 if
    /// they are the same. None: it does not note all ([`Check::partly_noted`]).
    noted: Option<u64>,
    /// Of a directory: its subdirectories, and the directory of its name.
    subdirs: u32,
    parent: Option<u64>,
}

/// Where the way up from a directory ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WayUp {
    Root,
    /// At a directory without a name.
    Nowhere,
    /// At this directory, from which it would go round again.
    Circle(u64),
}

/// Follows the way up from a directory. `known`: directories that lead to the root. Those on the
/// way are added if they do.
pub(crate) fn way_up(dir: u64, known: &mut HashSet<u64>, parent: impl Fn(u64) -> Option<u64>) -> WayUp {
    let (mut way, mut at) = (HashSet::new(), dir);
    while !known.contains(&at) {
        if !way.insert(at) {
            return WayUp::Circle(at);
        }
        match parent(at) {
            Some(parent) => at = parent,
            None => return WayUp::Nowhere,
        }
    }
    known.extend(way);
    WayUp::Root
}

/// A number for a record of names. If the records differ, sums of such numbers are nearly always
/// different.
fn mixed(key: &Key) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    hasher.finish()
}

/// Records between two reports of the progress.
const PROGRESS: u64 = 1 << 16;

/// As [`check`](crate::check()), for a store that is not in a directory.
///
/// # Errors
/// The engine or the files cannot be read.
pub fn check_parts(engine: &dyn Engine, files: &dyn Files, progress: &mut dyn FnMut(u64)) -> Result<Report, OpenError> {
    let hash_key = read_header(engine).ok().map(|header| header.hash_key);
    let (mut check, mut records) = (Check { hash_key, ..Check::default() }, 0);
    let snapshot = engine.snapshot()?;
    snapshot.scan(&[]..&[0xff], &mut |key, value| {
        records += 1;
        if records % PROGRESS == 0 {
            progress(records);
        }
        match Key::of(key).and_then(|key| Some((key.table()?, key))) {
            Some((table, key)) => check.record(table, &key, value),
            None => check.problem(format!("a record has an unknown key: {key:02x?}")),
        }
    })?;
    let numbers: HashSet<u64> = files.numbers()?.into_iter().collect();
    for (number, ino) in std::mem::take(&mut check.files) {
        if !numbers.contains(&number) {
            check.problem(format!("inode {ino}: the file with its contents is missing ({number:x})"));
        }
    }
    if !check.has_header {
        check.problem("the header is missing".into());
    }
    check.counts();
    check.directories();
    check.report.problems.sort();
    Ok(check.report)
}

#[derive(Default)]
struct Check {
    report: Report,
    has_header: bool,
    hash_key: Option<[u8; 16]>,
    totals: Numbers,
    /// The space of all contents.
    space: u64,
    inodes: HashMap<u64, Found>,
    /// The forms of contents that no inode was found for yet. None: damaged.
    contents: HashMap<u64, Option<Form>>,
    /// The files with contents, and their inodes.
    files: HashMap<u64, u64>,
    /// Of inodes that note some of their names only: the notes to which no name was found yet.
    partly_noted: HashMap<u64, Vec<Key>>,
}

impl Check {
    fn problem(&mut self, problem: String) {
        self.report.problems.push(problem);
    }

    /// Records come in the order of their keys: contents, inodes, names, inodes without a name,
    /// extended attributes.
    fn record(&mut self, table: Table, key: &Key, value: &[u8]) {
        let ino = key.number();
        match table {
            Table::Once if *key == Key::TOTALS => self.totals = Numbers::of(Some(value)),
            Table::Once => self.has_header |= *key == Key::HEADER,
            Table::Contents => drop(self.contents.insert(ino, Form::of(Some(value)))),
            Table::Inodes => match Inode::decode(ino, value) {
                Ok(inode) => self.inode(ino, &inode),
                Err(_) => self.problem(format!("inode {ino}: its record is damaged")),
            },
            Table::Names => match Names::decode(Some(value)) {
                Ok(names) => {
                    self.places(key, &names);
                    names.0.iter().for_each(|name| self.name(key, &name.name, name.ino, name.kind));
                }
                Err(_) => self.problem(format!("directory {ino}: a record of names is damaged")),
            },
            Table::Unnamed => match self.inodes.get_mut(&ino) {
                Some(found) => found.is_unnamed = true,
                None => self.problem(format!("inode {ino}: is to be freed, but there is none")),
            },
            Table::Xattrs => {
                if decode_xattrs(Some(value)).is_err() {
                    self.problem(format!("inode {ino}: its extended attributes are damaged"));
                }
                match self.inodes.get_mut(&ino) {
                    Some(found) => found.has_xattr_record = true,
                    None => self.problem(format!("inode {ino}: has extended attributes, but there is none")),
                }
            }
        }
    }

    fn inode(&mut self, ino: u64, inode: &Inode) {
        self.report.inodes += 1;
        let (attr, stored) = (&inode.attr, self.contents.remove(&ino));
        self.space = self.space.wrapping_add(attr.blocks);
        if attr.clone().fit_acls() {
            self.problem(format!("inode {ino}: its ACLs do not fit its mode or its kind"));
        }
        match inode.contents {
            Contents::File(number) => {
                if let Some(other) = self.files.insert(number, ino) {
                    self.problem(format!("inodes {other} and {ino}: have one file with contents ({number:x})"));
                }
                if stored.is_some() {
                    self.problem(format!("inode {ino}: has contents in a record and in a file"));
                }
            }
            Contents::Record if attr.kind != FileKind::File => {}
            Contents::Record => match stored.unwrap_or_else(|| Form::of(None)).filter(|form| form.fits(attr.size)) {
                Some(form) if form.blocks() == attr.blocks => {}
                Some(_) => self.problem(format!("inode {ino}: its contents are missing, or too many")),
                None => self.problem(format!("inode {ino}: its contents are damaged")),
            },
        }
        let found = Found {
            kind: attr.kind,
            nlink: attr.nlink,
            has_xattrs: inode.has_xattrs,
            has_xattr_record: false,
            is_unnamed: false,
            names: 0,
            noted: (!inode.has_more_names).then(|| inode.named_in.iter().map(mixed).fold(0, u64::wrapping_add)),
            subdirs: 0,
            parent: None,
        };
        self.inodes.insert(ino, found);
        if inode.has_more_names {
            self.partly_noted.insert(ino, inode.named_in.to_vec());
        }
    }

    fn name(&mut self, key: &Key, name: &[u8], ino: u64, kind: FileKind) {
        self.report.names += 1;
        let dir = key.number();
        let shown = || format!("directory {dir}: the name \"{}\"", name.escape_ascii());
        match self.inodes.get_mut(&dir) {
            Some(found) if found.kind == FileKind::Directory => {
                found.subdirs += u32::from(kind == FileKind::Directory);
            }
            _ => return self.problem(format!("{} is in no directory", shown())),
        }
        match self.inodes.get_mut(&ino) {
            Some(found) if found.kind == kind => {
                found.names += 1;
                found.noted = found.noted.map(|noted| noted.wrapping_sub(mixed(key)));
                if let Some(notes) = self.partly_noted.get_mut(&ino)
                    && let Some(place) = notes.iter().position(|noted| noted == key)
                {
                    notes.swap_remove(place);
                }
                if kind == FileKind::Directory && found.parent.replace(dir).is_some() {
                    self.problem(format!("directory {ino}: has two names"));
                }
            }
            Some(_) => self.problem(format!("{} has another kind than its inode {ino}", shown())),
            None => self.problem(format!("{} leads to inode {ino}, which is missing", shown())),
        }
    }

    /// Each name is in the record of its hash, once.
    fn places(&mut self, key: &Key, names: &Names) {
        let Some(hash_key) = self.hash_key else { return };
        let (mut slots, mut seen) = (HashSet::new(), HashSet::new());
        for name in &names.0 {
            let is_there = *key == Key::of_name(&hash_key, key.number(), &name.name);
            if !is_there || !slots.insert(name.slot) || !seen.insert(&name.name) {
                let shown = name.name.escape_ascii();
                self.problem(format!("directory {}: the name \"{shown}\" cannot be found", key.number()));
            }
        }
    }

    fn counts(&mut self) {
        let mut problems = Vec::new();
        for (ino, found) in &self.inodes {
            let is_dir = found.kind == FileKind::Directory;
            let links = match (is_dir, found.is_unnamed) {
                (true, false) => 2 + found.subdirs,
                (true, true) => 0,
                (false, _) => found.names,
            };
            if found.nlink != links {
                problems.push(format!("inode {ino}: its link count is {} instead of {links}", found.nlink));
            }
            let is_named = found.names > 0 || *ino == ROOT;
            if is_named == found.is_unnamed {
                let is =
                    if is_named { "has a name, and is to be freed" } else { "has no name, and is not to be freed" };
                problems.push(format!("inode {ino}: {is}"));
            }
            let is_left = self.partly_noted.get(ino).is_some_and(|notes| !notes.is_empty());
            if is_left || found.noted.is_some_and(|left| left != 0) {
                problems.push(format!("inode {ino}: its names are not those that it notes"));
            }
            if found.has_xattrs != found.has_xattr_record {
                problems.push(format!("inode {ino}: its extended attributes are missing, or too many"));
            }
            if (*ino >> RUN_BITS).cast_signed() >= self.totals.get(NEXT_RUN).max(1) {
                problems.push(format!("inode {ino}: its number was not handed out yet"));
            }
        }
        problems.extend(self.contents.keys().map(|ino| format!("inode {ino}: has contents, but there is none")));
        let counted = self.totals.get(INODES).max(1);
        if counted != self.inodes.len() as i64 {
            problems.push(format!("{} inodes are there, and {counted} were counted", self.inodes.len()));
        }
        let counted = self.totals.get(SPACE).cast_unsigned();
        if counted != self.space {
            problems.push(format!("contents occupy {} units, and {counted} were counted", self.space));
        }
        self.report.problems.extend(problems);
    }

    /// Each directory leads up to the root.
    fn directories(&mut self) {
        let mut known: HashSet<u64> = HashSet::from([ROOT]);
        let parent = |ino| self.inodes.get(&ino).and_then(|found| found.parent);
        let named = self.inodes.keys().copied().filter(|ino| parent(*ino).is_some());
        let lost: Vec<u64> = named.filter(|ino| way_up(*ino, &mut known, parent) != WayUp::Root).collect();
        for ino in lost {
            self.problem(format!("directory {ino}: the root does not lead to it"));
        }
    }
}
