//! Directories, from records to lines.
//!
//! There are two ways. In order: a [`Sorter`] keeps the entries of a directory, they are measured,
//! and they are printed when the directory has been read. As read (`-U`): each batch is measured
//! and printed. A directory of one batch has its total on top, so the first batch waits until it is
//! known whether another one follows. In longer directories the total comes last.

pub mod argument;

use std::{borrow::Cow, collections::HashMap, ffi::OsStr, os::unix::ffi::OsStrExt, path::Path, process::ExitCode};

use pando_console::{
    failure::{Failure, Result},
    quote::in_message,
};
use pando_records::{Batch, FileKind, Record};
use pando_scan::{Cause, Children, Event, Scan, Walk};
use rustix::io::Errno;

use crate::{
    entry::{Entry, EntryXattrs, LinkEnd, colours::Palette, sorter::Sorter},
    forms::{dired::Dired, long::write_total, row::Rows},
    list::argument::Argument,
    output::{Output, failed::Status},
    plan::{Form, Plan},
    text::{columns::Cells, values::SortBy},
};

/// Entries that are laid out in columns together.
const COLUMN_BLOCK: usize = 1 << 20;

/// Lists paths.
pub struct Lister<'p> {
    plan: &'p Plan,
    rows: Rows<'p>,
    cells: Cells,
    sorter: Sorter,
    out: Output,
    status: Status,
    /// In the current directory: the position of the next record, and the blocks of the entries so
    /// far.
    position: u64,
    blocks: u64,
    /// Where the total belongs if the directory ends with this batch. Nothing is written before
    /// that is known.
    total_at: Option<usize>,
    /// The number of name places (`--dired`) before that.
    names_from: usize,
    /// The places in the listing of directories to enter, by their positions.
    ranks: HashMap<u64, u64>,
    /// Whether directories have their name on top, and whether one was printed.
    headers: bool,
    printed: bool,
}

impl<'p> Lister<'p> {
    /// A lister for this plan.
    pub fn new(plan: &'p Plan) -> Self {
        Self {
            plan,
            rows: Rows::new(plan),
            cells: Cells::new(plan.colours.as_ref().map_or(&[], Palette::after)),
            sorter: Sorter::new(plan.order, plan.sort_memory),
            out: Output::new(plan.restorer()),
            status: Status::Well,
            position: 0,
            blocks: 0,
            total_at: None,
            names_from: 0,
            ranks: HashMap::new(),
            headers: false,
            printed: false,
        }
    }

    /// Lists the paths: first those that are not directories, then each directory. A reader that
    /// closes the pipe early is no failure, and does not turn earlier failures into success.
    ///
    /// # Errors
    /// Standard output or a temporary file cannot be written.
    pub fn run(mut self, paths: &[impl AsRef<Path>]) -> Result<ExitCode> {
        match self.list(paths) {
            Err(failure) if !failure.is_quiet() => Err(failure),
            Ok(()) | Err(_) => Ok(self.status.into()),
        }
    }

    fn list(&mut self, paths: &[impl AsRef<Path>]) -> Result<()> {
        self.rows.write_header(&mut self.out.buffer);
        let mut arguments = Vec::new();
        for path in paths {
            match Argument::new(path.as_ref(), self.plan) {
                Ok(argument) => arguments.push(argument),
                Err(error) => {
                    let path = path.as_ref().as_os_str().as_bytes();
                    let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
                    self.status.failed(Status::Serious, "cannot access", path, errno);
                    self.rows.write_failure(path, "stat", errno, &mut self.out.buffer);
                }
            }
        }
        let plan = self.plan;
        if plan.order.sorts() {
            arguments.sort_by(|one, other| plan.order.compare(one.sorted(plan), other.sorted(plan)));
        }
        let (directories, others): (Vec<_>, Vec<_>) = arguments.iter().partition(|argument| argument.is_listed(plan));
        self.rows.begin(None);
        // As in ls, directories widen the columns too, although they are not printed here.
        for argument in &arguments {
            self.rows.measure(&argument.entry(plan));
        }
        self.list_arguments(&others)?;
        let words = !plan.is_machine() && !plan.paths;
        self.headers = words && (plan.recursive || paths.len() > 1);
        if words && !others.is_empty() && !directories.is_empty() {
            self.out.buffer.push(b'\n');
        }
        for directory in directories {
            if plan.recursive { self.walk(directory.path)? } else { self.scan(directory.path)? }
        }
        self.rows.write_end(&mut self.out.buffer);
        self.out.flush().map_err(|error| Failure::output(&error))
    }

    fn list_arguments(&mut self, arguments: &[&Argument<'_>]) -> Result<()> {
        for argument in arguments {
            let entry = argument.entry(self.plan);
            self.report(&entry, None);
            self.print(&entry)?;
        }
        self.cells.flush(self.plan.screen, self.plan.clear(), &mut self.out.buffer);
        Ok(())
    }

    /// Lists one directory.
    fn scan(&mut self, path: &Path) -> Result<()> {
        let mut scan = match Scan::open(path, &self.plan.walk_options().scan) {
            Ok(scan) => scan,
            Err(error) => return self.directory_failed(path, 0, Cause::Open, error.errno()),
        };
        self.enter(path);
        loop {
            match scan.next_batch() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => {
                    self.directory_failed(path, 0, Cause::Read, error.errno())?;
                    continue;
                }
            }
            self.batch(path, scan.batch())?;
        }
        self.leave()
    }

    /// Lists one tree.
    fn walk(&mut self, path: &Path) -> Result<()> {
        let bad_options = |error: pando_scan::Error| Failure::new(error.to_string());
        let mut walk = Walk::open(path, self.plan.walk_options()).map_err(bad_options)?;
        while let Some(event) = walk.next_event() {
            match event {
                Event::Enter(directory) => self.enter(directory.path),
                Event::Batch(directory, batch) => self.batch(directory.path, batch)?,
                Event::Leave(_, children) => {
                    self.leave()?;
                    self.order(children);
                }
                Event::Failed(failure) => {
                    self.directory_failed(failure.path, failure.depth, failure.cause, failure.errno)?;
                }
            }
        }
        Ok(())
    }

    fn directory_failed(&mut self, path: &Path, depth: usize, cause: Cause, errno: i32) -> Result<()> {
        let level = if depth == 0 { Status::Serious } else { Status::Minor };
        let (level, what, operation) = match cause {
            Cause::Open => (level, "cannot open directory", "open"),
            Cause::Read => (level, "reading directory", "read"),
            Cause::Swapped => (level, "another directory has taken the place of", "open"),
            Cause::Loop => (Status::Serious, "not listing a directory within itself:", "open"),
        };
        let path = path.as_os_str().as_bytes();
        self.status.failed(level, what, path, errno);
        self.rows.write_failure(path, operation, errno, &mut self.out.buffer);
        self.flush_if_due()
    }

    /// Writes if it is time, and if the total does not have to be inserted.
    fn flush_if_due(&mut self) -> Result<()> {
        if self.total_at.is_some() {
            return Ok(());
        }
        self.out.flush_if_due().map_err(|error| Failure::output(&error))
    }

    fn enter(&mut self, path: &Path) {
        let path = path.as_os_str().as_bytes();
        self.rows.begin(Some(path));
        self.position = 0;
        self.blocks = 0;
        self.ranks.clear();
        if self.headers {
            self.print_header(path);
        }
        let waits = self.plan.has_total() && !self.plan.order.sorts();
        self.total_at = waits.then_some(self.out.buffer.len());
        self.names_from = self.rows.dired.as_ref().map_or(0, Dired::len);
    }

    fn print_header(&mut self, path: &[u8]) {
        let out = &mut self.out.buffer;
        if self.printed {
            out.push(b'\n');
        }
        self.printed = true;
        if let Some(dired) = &mut self.rows.dired {
            dired.flushed = self.out.flushed;
        }
        self.rows.write_directory(path, out);
    }

    fn batch(&mut self, path: &Path, batch: &Batch) -> Result<()> {
        let begin = self.position;
        self.position += batch.len() as u64;
        if !self.plan.order.sorts() {
            if begin > 0 {
                self.total_at = None;
            }
            let plan = self.plan;
            if plan.aligns() {
                for record in batch.iter() {
                    let entry = entry_of(&record, 0);
                    if !plan.leaves_out(entry.name) {
                        self.measure(&entry);
                    }
                }
            }
        }
        for (position, record) in (begin..).zip(batch.iter()) {
            let entry = entry_of(&record, position);
            if self.plan.leaves_out(entry.name) {
                continue;
            }
            self.report(&entry, Some(path));
            if self.plan.order.sorts() {
                self.measure(&entry);
                self.sorter.push(&entry)?;
            } else {
                self.print(&entry)?;
            }
        }
        if self.plan.order.sorts() {
            return Ok(());
        }
        self.cells.flush(self.plan.screen, self.plan.clear(), &mut self.out.buffer);
        self.flush_if_due()
    }

    #[inline]
    fn measure(&mut self, entry: &Entry<'_>) {
        self.rows.measure(entry);
        self.blocks = self.blocks.saturating_add(entry.attr().map_or(0, |attr| attr.blocks));
    }

    /// Reports the parts of an entry that could not be read.
    #[inline]
    fn report(&mut self, entry: &Entry<'_>, dir: Option<&Path>) {
        // If extended attributes cannot be read, the marks after the mode and colours are left out
        // silently.
        let asked = self.plan.xattr.is_some();
        let xattrs = if asked { entry.xattr_failure() } else { None };
        let errnos = [entry.errno, entry.target_errno, xattrs];
        let changed = asked && entry.changed;
        if changed || errnos.iter().any(Option::is_some) {
            self.say_failures(entry.name, dir, errnos, changed);
        }
    }

    #[cold]
    fn say_failures(&mut self, name: &[u8], dir: Option<&Path>, errnos: [Option<i32>; 3], changed: bool) {
        let link = if dir.is_none() { Status::Serious } else { Status::Minor };
        let failures = [
            (Status::Minor, "cannot access"),
            (link, "cannot read symbolic link"),
            (Status::Minor, "cannot read all extended attributes of"),
        ];
        let name = Path::new(OsStr::from_bytes(name));
        let path = dir.map_or_else(|| name.to_owned(), |dir| dir.join(name));
        let path = path.as_os_str().as_bytes();
        for ((level, what), errno) in failures.into_iter().zip(errnos) {
            if let Some(errno) = errno {
                self.status.failed(level, what, path, errno);
            }
        }
        if changed {
            let path = in_message(path);
            self.status.say(Status::Minor, format_args!("{path} changed each time that it was read"));
        }
    }

    fn print(&mut self, entry: &Entry<'_>) -> Result<()> {
        if self.plan.form == Form::Columns {
            self.rows.write_cell(entry, &mut self.cells);
            if self.cells.len() == COLUMN_BLOCK {
                self.cells.flush(self.plan.screen, self.plan.clear(), &mut self.out.buffer);
            }
        } else {
            if let Some(dired) = &mut self.rows.dired {
                dired.flushed = self.out.flushed;
            }
            self.rows.write(entry, &mut self.out.buffer);
        }
        if self.total_at.is_some() {
            return Ok(());
        }
        self.out.flush_if_full().map_err(|error| Failure::output(&error))
    }

    fn leave(&mut self) -> Result<()> {
        if self.plan.order.sorts() {
            self.print_sorted()?;
        } else if self.plan.has_total() {
            let at = self.total_at.take().unwrap_or(self.out.buffer.len());
            let mut total = Vec::new();
            write_total(self.blocks, self.plan, &mut total);
            if let Some(dired) = &mut self.rows.dired
                && at < self.out.buffer.len()
            {
                dired.shift(self.names_from, total.len());
            }
            self.out.buffer.splice(at..at, total);
        }
        self.flush_if_due()
    }

    fn print_sorted(&mut self) -> Result<()> {
        if self.plan.has_total() {
            write_total(self.blocks, self.plan, &mut self.out.buffer);
        }
        let mut sorter = std::mem::replace(&mut self.sorter, Sorter::new(self.plan.order, Some(0)));
        let mut rank = 0;
        let ranks = self.plan.recursive && self.plan.order.by != SortBy::Name;
        let result = sorter.drain(|entry| {
            if ranks && matches!(entry.kind, None | Some(FileKind::Directory)) {
                self.ranks.insert(entry.position, rank);
            }
            rank += 1;
            self.print(entry)
        });
        self.sorter = sorter;
        self.cells.flush(self.plan.screen, self.plan.clear(), &mut self.out.buffer);
        result
    }

    /// Puts directories to enter into the order of the listing, and leaves out those that it does
    /// not show.
    fn order(&mut self, children: &mut Children) {
        if self.plan.leaves_some_out() {
            children.retain(|child| !self.plan.leaves_out(child.name));
        }
        match self.plan.order.by {
            SortBy::None => {}
            SortBy::Name if self.plan.order.reverse => children.sort_by(|one, other| other.name.cmp(one.name)),
            SortBy::Name => children.sort_by(|one, other| one.name.cmp(other.name)),
            _ => {
                let rank = |position| self.ranks.get(&position).copied().unwrap_or(u64::MAX);
                children.sort_by(|one, other| rank(one.position).cmp(&rank(other.position)));
            }
        }
    }
}

#[inline(always)]
fn entry_of<'a>(record: &Record<'a>, position: u64) -> Entry<'a> {
    let target = record.link_target().transpose();
    Entry {
        name: record.name(),
        kind: record.kind(),
        ino: record.ino(),
        position,
        attr: record.attr().map(Cow::Borrowed),
        errno: record.errno(),
        xattr_errno: record.xattr_errno(),
        changed: record.changed(),
        target: target.unwrap_or_default(),
        target_errno: target.err(),
        link_end: record.link_end().map_or(LinkEnd::Unknown, |end| end.map_or(LinkEnd::Nothing, LinkEnd::Mode)),
        has_capabilities: record.has_capabilities(),
        xattrs: EntryXattrs::Live(record.xattrs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LsArgs;
    use crate::entry::tests::example;

    /// A FUSE server may report any attributes.
    #[test]
    fn the_sum_of_blocks_saturates() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: LsArgs,
        }
        let plan = Plan::new(&<Line as clap::Parser>::parse_from(["ls", "-l"]).args).unwrap();
        let mut lister = Lister::new(&plan);
        let mut entry = example(b"n");
        entry.attr.as_mut().unwrap().to_mut().blocks = u64::MAX - 1;
        lister.measure(&entry);
        lister.measure(&entry);
        assert_eq!(lister.blocks, u64::MAX);
    }
}
