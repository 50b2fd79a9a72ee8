//! Repairs a store that is not in use: reads what it has, and stores a consistent tree of it.
//!
//! What has lost its name gets one in the directory `lost+found` of the root.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use pando_kv::{Delta, Engine, Numbers, Transaction};
use pando_vfs::{FileKind, NodeAttr, Timestamp};
use rustix::process::{getegid, geteuid};

use crate::{
    check::{WayUp, check_parts, way_up},
    committer::{CLOSED, COMMITS, COMMITTED, INODES, NEXT_RUN, SPACE},
    files::Files,
    key::{Key, Table},
    numbers::{ROOT, RUN_BITS},
    open::{OpenError, read_header},
    record::{Contents, Inode, Names, decode_xattrs},
    small::Small,
};

/// How many records a transaction stores.
const BATCH: usize = 4096;

/// Stores in `into`, which has no records, a consistent tree of what an engine has. Returns what is
/// different, a line for each change; none if the tree was consistent.
///
/// # Errors
/// Those of the engines and the files; the header is missing or not that of a store.
pub fn repair_parts(engine: &dyn Engine, files: &dyn Files, into: &dyn Engine) -> Result<Vec<String>, OpenError> {
    let mut found = Found { hash_key: read_header(engine)?.hash_key, ..Found::default() };
    engine.snapshot()?.scan(&[]..&[0xff], &mut |key, value| found.read(key, value))?;
    let numbers: HashSet<u64> = files.numbers()?.into_iter().collect();
    found.contents(&numbers);
    found.root();
    found.names();
    found.lost();
    found.counts();
    found.notes();
    if !found.changes.is_empty() {
        found.unused(&numbers);
    }
    found.store(into)?;
    let left = check_parts(into, files, &mut |_| ())?.problems;
    match left.first() {
        Some(problem) => Err(OpenError::Damaged(format!("a repair has left this: {problem}"))),
        None => Ok(found.changes),
    }
}

/// What a store has, and what is changed of it.
#[derive(Default)]
struct Found {
    hash_key: [u8; 16],
    header: Vec<u8>,
    totals: Numbers,
    inodes: BTreeMap<u64, Inode>,
    contents: BTreeMap<u64, Vec<u8>>,
    xattrs: BTreeMap<u64, Vec<u8>>,
    unnamed: BTreeSet<u64>,
    names: BTreeMap<Key, Names>,
    /// The directory and the record that have the name of a directory.
    parents: BTreeMap<u64, (u64, Key)>,
    /// How many names other inodes have.
    links: BTreeMap<u64, u32>,
    changes: Vec<String>,
}

impl Found {
    fn change(&mut self, change: String) {
        self.changes.push(change);
    }

    fn read(&mut self, key: &[u8], value: &[u8]) {
        let Some((table, key)) = Key::of(key).and_then(|key| Some((key.table()?, key))) else {
            return self.change(format!("a record with an unknown key is dropped: {key:02x?}"));
        };
        let ino = key.number();
        match table {
            Table::Once if key == Key::HEADER => self.header = value.to_vec(),
            Table::Once if key == Key::TOTALS => self.totals = Numbers::of(Some(value)),
            Table::Once => self.change(format!("a record with an unknown key is dropped: {key:?}")),
            Table::Contents => drop(self.contents.insert(ino, value.to_vec())),
            Table::Inodes => match Inode::decode(ino, value) {
                Ok(mut inode) => {
                    if inode.attr.fit_acls() {
                        self.change(format!("inode {ino}: its ACLs are changed to fit its mode and its kind"));
                    }
                    self.inodes.insert(ino, inode);
                }
                Err(_) => self.change(format!("inode {ino}: is dropped, its record is damaged")),
            },
            Table::Names => match Names::decode(Some(value)) {
                Ok(names) => drop(self.names.insert(key, names)),
                Err(_) => self.change(format!("directory {ino}: names are dropped, their record is damaged")),
            },
            Table::Unnamed => drop(self.unnamed.insert(ino)),
            Table::Xattrs if decode_xattrs(Some(value)).is_ok() => drop(self.xattrs.insert(ino, value.to_vec())),
            Table::Xattrs => self.change(format!("inode {ino}: extended attributes are dropped, they are damaged")),
        }
    }

    /// Each file has contents that are there.
    fn contents(&mut self, numbers: &HashSet<u64>) {
        let mut used = HashSet::new();
        let mut changes = Vec::new();
        for (ino, inode) in &mut self.inodes {
            let stored = self.contents.get(ino);
            let lost = match inode.contents {
                Contents::File(number) if !numbers.contains(&number) => Some("the file with its contents is missing"),
                Contents::File(number) if !used.insert(number) => Some("another inode has its contents"),
                Contents::File(_) => None,
                Contents::Record if inode.attr.kind != FileKind::File => None,
                Contents::Record => match Small::decode(stored.map(Vec::as_slice), inode.attr.size) {
                    Ok(small) => {
                        if inode.attr.blocks != small.blocks() {
                            changes.push(format!("inode {ino}: reads as zeros where its contents are missing"));
                            inode.attr.blocks = small.blocks();
                        }
                        continue;
                    }
                    Err(_) => Some("its contents are damaged or missing"),
                },
            };
            if let Some(why) = lost {
                changes.push(format!("inode {ino}: is empty now, {why}"));
                inode.contents = Contents::Record;
                (inode.attr.size, inode.attr.blocks) = (0, 0);
            }
            if self.contents.remove(ino).is_some() && lost.is_none() {
                changes.push(format!("inode {ino}: a record of contents is dropped, which it does not use"));
            }
        }
        let mut is_used = |ino: &u64, what: &str| {
            let is_used = self.inodes.contains_key(ino);
            if !is_used {
                changes.push(format!("inode {ino}: {what} dropped, there is no such inode"));
            }
            is_used
        };
        self.contents.retain(|ino, _| is_used(ino, "its contents are"));
        self.xattrs.retain(|ino, _| is_used(ino, "its extended attributes are"));
        self.unnamed.retain(|ino| is_used(ino, "the note that it is to be freed is"));
        self.changes.append(&mut changes);
    }

    fn root(&mut self) {
        if self.inodes.get(&ROOT).is_none_or(|root| root.attr.kind != FileKind::Directory) {
            self.change("the root directory is missing: a new one is made".into());
            let mut root = NodeAttr::new(ROOT, FileKind::Directory, 0o755, Timestamp::now());
            (root.uid, root.gid) = (geteuid().as_raw(), getegid().as_raw());
            self.inodes.insert(ROOT, Inode::new(root));
        }
        if self.unnamed.remove(&ROOT) {
            self.change("the root directory is not freed".into());
        }
    }

    /// Each name leads from a directory to an inode, and each directory has one name.
    fn names(&mut self) {
        self.rebind();
        let Self { inodes, names, unnamed, parents, links, changes, .. } = self;
        for (key, names) in names.iter_mut() {
            let dir = key.number();
            let is_dir = inodes.get(&dir).is_some_and(|inode| inode.attr.kind == FileKind::Directory);
            names.0.retain_mut(|name| {
                let shown = format!("directory {dir}: the name \"{}\"", name.name.escape_ascii());
                let why = match inodes.get(&name.ino).map(|inode| inode.attr.kind) {
                    None => Some("its inode is missing"),
                    Some(_) if !is_dir => Some("there is no such directory"),
                    Some(FileKind::Directory) if name.ino == ROOT || parents.contains_key(&name.ino) => {
                        Some("the directory that it leads to has another one")
                    }
                    Some(kind) => {
                        if name.kind != kind {
                            changes.push(format!("{shown} gets the kind of its inode"));
                            name.kind = kind;
                        }
                        None
                    }
                };
                if let Some(why) = why {
                    changes.push(format!("{shown} is dropped, {why}"));
                    return false;
                }
                if name.kind == FileKind::Directory {
                    parents.insert(name.ino, (dir, *key));
                } else {
                    *links.entry(name.ino).or_default() += 1;
                }
                if unnamed.remove(&name.ino) {
                    changes.push(format!("inode {}: is not freed, it has a name", name.ino));
                }
                true
            });
        }
    }

    /// Each name is in the record of its hash, once.
    fn rebind(&mut self) {
        let mut moved = Vec::new();
        for (key, names) in &mut self.names {
            let (mut slots, mut seen) = (HashSet::new(), HashSet::new());
            names.0.retain(|name| {
                let stays = *key == Key::of_name(&self.hash_key, key.number(), &name.name)
                    && slots.insert(name.slot)
                    && seen.insert(name.name.clone());
                if !stays {
                    moved.push((key.number(), name.clone()));
                }
                stays
            });
        }
        for (dir, name) in moved {
            let key = Key::of_name(&self.hash_key, dir, &name.name);
            let names = self.names.entry(key).or_default();
            let is_bound = names.get(&name.name).is_none() && names.bind(&name.name, name.kind, name.ino);
            let what = if is_bound { "can be found again" } else { "is dropped, it is there twice" };
            self.change(format!("directory {dir}: the name \"{}\" {what}", name.name.escape_ascii()));
        }
    }

    /// The root leads to all that is not to be freed.
    fn lost(&mut self) {
        // A directory with names is not to be freed.
        for (key, names) in &self.names {
            if !names.0.is_empty() && self.unnamed.remove(&key.number()) {
                self.changes.push(format!("inode {}: is not freed, it has entries", key.number()));
            }
        }
        let is_lost = |ino: &u64, found: &Self| {
            *ino != ROOT
                && !found.unnamed.contains(ino)
                && !found.parents.contains_key(ino)
                && !found.links.contains_key(ino)
        };
        let lost: Vec<u64> = self.inodes.keys().copied().filter(|ino| is_lost(ino, self)).collect();
        lost.into_iter().for_each(|ino| self.place(ino));
        // What is left are directories that lead to each other in a circle, and what is below.
        while let Some(ino) = self.in_circle() {
            if let Some((_, key)) = self.parents.remove(&ino)
                && let Some(names) = self.names.get_mut(&key)
            {
                names.0.retain(|name| name.ino != ino);
            }
            self.place(ino);
        }
    }

    /// A directory in a circle.
    fn in_circle(&self) -> Option<u64> {
        let mut known: HashSet<u64> = HashSet::from([ROOT]);
        let parent = |dir| self.parents.get(&dir).map(|(parent, _)| *parent);
        self.parents.keys().find_map(|dir| match way_up(*dir, &mut known, parent) {
            WayUp::Circle(at) => Some(at),
            // Nowhere: it is to be freed, or below such a directory.
            WayUp::Root | WayUp::Nowhere => None,
        })
    }

    /// Gives an inode a name in `lost+found`.
    fn place(&mut self, ino: u64) {
        let Some(kind) = self.inodes.get(&ino).map(|inode| inode.attr.kind) else { return };
        let dir = self.lost_and_found();
        let mut name = format!("#{ino}");
        while self
            .names
            .get(&Key::of_name(&self.hash_key, dir, name.as_bytes()))
            .is_some_and(|names| names.get(name.as_bytes()).is_some())
        {
            name += "+";
        }
        self.change(format!("inode {ino}: has lost its name, it is in lost+found as {name} now"));
        self.bind(dir, name.as_bytes(), kind, ino);
    }

    fn bind(&mut self, dir: u64, name: &[u8], kind: FileKind, ino: u64) {
        let key = Key::of_name(&self.hash_key, dir, name);
        // Eight names with one hash do not happen.
        if !self.names.entry(key).or_default().bind(name, kind, ino) {
            self.change(format!("inode {ino}: its name cannot be stored"));
        }
        if kind == FileKind::Directory {
            self.parents.insert(ino, (dir, key));
        } else {
            *self.links.entry(ino).or_default() += 1;
        }
    }

    /// The directory `lost+found` of the root, or one with a similar name.
    fn lost_and_found(&mut self) -> u64 {
        for number in 0_u64.. {
            let name = if number == 0 { "lost+found".into() } else { format!("lost+found.{number}") };
            let key = Key::of_name(&self.hash_key, ROOT, name.as_bytes());
            match self.names.get(&key).and_then(|names| names.get(name.as_bytes())) {
                Some(found) if found.kind == FileKind::Directory => return found.ino,
                Some(_) => {}
                None => {
                    let ino = self.first_run() << RUN_BITS;
                    let mut attr = NodeAttr::new(ino, FileKind::Directory, 0o700, Timestamp::now());
                    if let Some(root) = self.inodes.get(&ROOT) {
                        (attr.uid, attr.gid) = (root.attr.uid, root.attr.gid);
                    }
                    self.inodes.insert(ino, Inode::new(attr));
                    self.bind(ROOT, name.as_bytes(), FileKind::Directory, ino);
                    return ino;
                }
            }
        }
        ROOT
    }

    /// The first run of numbers that nothing has.
    fn first_run(&self) -> u64 {
        let of_files = self.inodes.values().filter_map(|inode| Some(inode.file()? >> RUN_BITS));
        let of_inodes = self.inodes.keys().map(|ino| ino >> RUN_BITS);
        let last = of_inodes.chain(of_files).max().unwrap_or(0);
        (last + 1).max(self.totals.get(NEXT_RUN).max(0).cast_unsigned())
    }

    /// Each count is what it counts.
    fn counts(&mut self) {
        let mut subdirs: BTreeMap<u64, u32> = BTreeMap::new();
        self.parents.values().for_each(|(dir, _)| *subdirs.entry(*dir).or_default() += 1);
        for (ino, inode) in &mut self.inodes {
            let links = match (inode.attr.kind, self.unnamed.contains(ino)) {
                (_, true) => 0,
                (FileKind::Directory, false) => 2 + subdirs.get(ino).copied().unwrap_or(0),
                _ => self.links.get(ino).copied().unwrap_or(0),
            };
            if inode.attr.nlink != links {
                self.changes.push(format!("inode {ino}: its link count is {links} instead of {}", inode.attr.nlink));
                inode.attr.nlink = links;
            }
            let has_xattrs = self.xattrs.contains_key(ino);
            if inode.has_xattrs != has_xattrs {
                self.changes.push(format!("inode {ino}: its extended attributes are counted again"));
                inode.has_xattrs = has_xattrs;
            }
        }
        if self.inodes.keys().any(|ino| (ino >> RUN_BITS).cast_signed() >= self.totals.get(NEXT_RUN).max(1)) {
            self.change("the numbers of inodes go on after those that are there".into());
        }
        let (inodes, space) = (self.inodes.len() as i64, self.space());
        for (index, now, what) in [(INODES, inodes, "inodes"), (SPACE, space, "units of space")] {
            let counted = self.totals.get(index);
            // The root is counted with the first other one.
            if counted != now && (index, counted, now) != (INODES, 0, 1) {
                self.change(format!("{now} {what} instead of {counted}"));
            }
        }
    }

    /// Each inode notes where its names are.
    fn notes(&mut self) {
        let mut named_in: BTreeMap<u64, Vec<Key>> = BTreeMap::new();
        for (key, names) in &self.names {
            names.0.iter().for_each(|name| named_in.entry(name.ino).or_default().push(*key));
        }
        for (ino, inode) in &mut self.inodes {
            let keys = named_in.remove(ino).unwrap_or_default();
            let mut noted = inode.named_in.to_vec();
            noted.sort_unstable();
            let is_right = if inode.has_more_names {
                let mut left = keys.iter();
                noted.iter().all(|key| left.any(|other| other == key))
            } else {
                noted == keys
            };
            if !is_right {
                self.changes.push(format!("inode {ino}: its names are noted again"));
                inode.named_in.clear();
                keys.into_iter().for_each(|key| inode.note_name(key));
            }
        }
    }

    /// Says which files with contents have no inode. The next open removes them.
    fn unused(&mut self, numbers: &HashSet<u64>) {
        let used: HashSet<u64> = self.inodes.values().filter_map(Inode::file).collect();
        let mut unused: Vec<u64> = numbers.difference(&used).copied().collect();
        unused.sort_unstable();
        for number in unused {
            self.change(format!("the file {number:x} with contents has no inode: the next open removes it"));
        }
    }

    fn space(&self) -> i64 {
        self.inodes.values().map(|inode| inode.attr.blocks.cast_signed()).sum()
    }

    fn store(&self, into: &dyn Engine) -> Result<(), OpenError> {
        let one = |(ino, value): (&u64, &Vec<u8>), key: fn(u64) -> Key| (key(*ino), value.clone());
        let inodes = self.inodes.iter().map(|(ino, inode)| (Key::inode(*ino), inode.encode()));
        let names = self.names.iter().filter_map(|(key, names)| Some((*key, names.encode()?)));
        let unnamed = self.unnamed.iter().map(|ino| (Key::unnamed(*ino), Vec::new()));
        let mut records = (self.contents.iter().map(|record| one(record, Key::contents)))
            .chain(self.xattrs.iter().map(|record| one(record, Key::xattrs)))
            .chain(inodes)
            .chain(names)
            .chain(unnamed)
            .peekable();
        while records.peek().is_some() {
            let mut transaction = Transaction::new();
            records.by_ref().take(BATCH).for_each(|(key, value)| transaction.put(&*key, value));
            into.commit(&transaction)?;
        }
        let mut last = Transaction::new();
        last.put(&*Key::HEADER, &*self.header);
        for (index, value) in [
            (COMMITS, self.totals.get(COMMITS) + 1),
            (NEXT_RUN, self.first_run().cast_signed()),
            (INODES, self.inodes.len() as i64),
            (SPACE, self.space()),
            (CLOSED, self.totals.get(CLOSED)),
            (COMMITTED, self.totals.get(COMMITTED)),
        ] {
            last.merge(&*Key::TOTALS, index, Delta::Add(value));
        }
        into.commit(&last)?;
        Ok(())
    }
}
