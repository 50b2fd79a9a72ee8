//! Bytes of memory per empty file, per empty directory and per cached inode, all overhead included.
//!
//! For in-process targets this is the growth of resident memory while a million names are made in
//! one directory, divided by a million. It includes objects, the table and the allocator's
//! overhead. It is measured in a fresh process each time: an allocator that has freed memory before
//! would reuse that memory and hide the growth.
//!
//! For the kernel (meant for tmpfs) it is the growth of the slab caches, counted from
//! `/proc/slabinfo` as the pages that objects in use fill. Only root may read that file. Other
//! users get the growth of `Slab` and `Shmem` in `/proc/meminfo`, which hides memory that the
//! kernel had freed before. Both also count what the rest of the machine does at the same time.

use std::{env, fs, io, process::Command, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    base::{
        cancel::Cancel,
        child,
        failure::{During, Failure},
        path::TreePath,
    },
    report::table,
    target::{Caches, Target, TargetSpec},
};

/// Environment variable of a process that makes one measurement; it holds the [`Order`].
const CHILD: &str = "PANDO_BENCH_FOOTPRINT";

/// The object whose memory is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Node {
    File,
    Directory,
    /// The inode that the cache of a backed tree holds for a file once it has been looked up.
    CachedInode,
}

impl Node {
    fn describe(self) -> &'static str {
        match self {
            Self::File => "empty file",
            Self::Directory => "empty directory",
            Self::CachedInode => "cached inode",
        }
    }
}

/// One measurement, as the child receives it.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    target: usize,
    node: Node,
}

/// One measurement, as the child returns it.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Answer {
    /// None if the tree is its own cache.
    bytes_each: Option<f64>,
    source: Source,
}

/// Where memory use was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Source {
    Resident,
    Slabinfo,
    Meminfo,
}

impl Source {
    fn describe(self) -> &'static str {
        match self {
            Self::Resident => "resident memory of the process",
            Self::Slabinfo => "the kernel's slabs in use, and Shmem",
            Self::Meminfo => "Slab and Shmem of the kernel: inexact, run as root for /proc/slabinfo",
        }
    }
}

/// One measurement of a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bytes {
    pub(crate) target: String,
    pub(crate) what: String,
    /// None if the tree is its own cache, or if only root may empty the cache.
    pub(crate) bytes_each: Option<f64>,
    pub(crate) source: String,
}

/// Whether this process makes one measurement for another process.
pub(crate) fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Measures all targets. Returns the table, and the failure that ended the run early, if there was
/// one: a target's error, or an interruption. In a child (see [`CHILD`]), makes the measurement of
/// its order and returns the answer.
///
/// # Errors
/// Nothing was measured.
pub(crate) fn run(specs: &[TargetSpec], count: u64, cancel: &Cancel) -> Result<(String, Result<(), Failure>), Failure> {
    if let Ok(order) = env::var(CHILD) {
        let asked = cancel.clone();
        child::on_end_of_input(move || _ = asked.request());
        let order: Order = serde_json::from_str(&order).during(|| format!("reading {CHILD}"))?;
        let spec = specs.get(order.target).ok_or_else(|| Failure::Refused(format!("{CHILD}: no such target")))?;
        let answer = measure(&*spec.target(), order.node, count, cancel).map_err(|failure| failure.of(spec.name()))?;
        return Ok((serde_json::to_string(&answer).during(|| "answering".into())?, Ok(())));
    }
    let (all, outcome) = measured(specs, count, cancel);
    if all.is_empty() {
        return outcome.map(|()| (String::new(), Ok(())));
    }
    let rows = all.into_iter().map(|bytes| match bytes.bytes_each {
        Some(each) => vec![bytes.target, bytes.what, format!("{each:.1}"), bytes.source],
        None => {
            let why = "the tree is its own cache, or only root may empty the cache";
            vec![bytes.target, bytes.what, "n/a".into(), why.into()]
        }
    });
    let heading = ["target", "what", "bytes each", "read from"];
    let text = format!(
        "{}\n{count} objects of each kind in one directory, with names of 16 bytes.\n\
         cached inode: memory that the look-up of each file adds to emptied caches, its name included. On tmpfs\n\
         every inode is a cached one: compare with its empty file.\n",
        table::aligned(&heading, rows)
    );
    Ok((text, outcome))
}

/// Measures all targets, each in a fresh process: this program runs again with the same arguments,
/// and answers by [`run`]. Also returns the failure that ended the run early: a target's error, or
/// an interruption.
pub(crate) fn measured(specs: &[TargetSpec], count: u64, cancel: &Cancel) -> (Vec<Bytes>, Result<(), Failure>) {
    debug_assert!(count > 0, "bytes are divided by the count");
    let mut all = Vec::new();
    let nodes = [Node::File, Node::Directory, Node::CachedInode];
    let mut each = specs.iter().enumerate().flat_map(|spec| nodes.map(|node| (spec, node)));
    let outcome = each.try_for_each(|((target, spec), node)| {
        cancel.check()?;
        let answer = in_fresh_process(&Order { target, node }, cancel).map_err(|failure| failure.of(spec.name()))?;
        let (what, source) = (node.describe().into(), answer.source.describe().into());
        all.push(Bytes { target: spec.name().into(), what, bytes_each: answer.bytes_each, source });
        Ok(())
    });
    (all, outcome)
}

/// Runs this program again with the same arguments, and with the order in its environment.
fn in_fresh_process(order: &Order, cancel: &Cancel) -> Result<Answer, Failure> {
    let during = || "measuring in a fresh process".to_owned();
    let order = serde_json::to_string(order).during(during)?;
    let mut command = Command::new(env::current_exe().during(during)?);
    command.args(env::args_os().skip(1)).env(CHILD, order);
    let (status, bytes) = child::output(command, during, cancel)?;
    if !status.success() {
        return Err(child::failure(during(), status));
    }
    serde_json::from_slice(&bytes).during(during)
}

/// The caches of this process are emptied after so many new files, before those of the files are
/// measured.
const EMPTIED_EVERY: u64 = 1024;

fn measure(target: &dyn Target, node: Node, count: u64, cancel: &Cancel) -> Result<Answer, Failure> {
    let session = if node == Node::CachedInode { target.open_unbounded()? } else { target.open()? };
    let mut actor = session.actor().during(|| "opening the target".into())?;
    actor.mkdir(&TreePath::new("all")).during(|| "mkdir all".into())?;
    let source = match target.is_in_kernel() {
        false => Source::Resident,
        true if slabs_in_use().is_ok() => Source::Slabinfo,
        true => Source::Meminfo,
    };
    let mut before = settled(source, cancel)?;
    let all = |act: &mut dyn FnMut(&TreePath) -> io::Result<()>| {
        for n in 0..count {
            if n.is_multiple_of(4096) {
                cancel.check()?;
            }
            // The factor is odd, so no two numbers below 2^64 give the same name. Names of
            // neighbouring numbers do not look alike.
            let path = TreePath::new(&format!("all/{:016x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
            act(&path).during(|| format!("{} of {}", node.describe(), path.relative()))?;
        }
        Ok(())
    };
    match node {
        Node::File => all(&mut |path| actor.create(path))?,
        Node::Directory => all(&mut |path| actor.mkdir(path))?,
        Node::CachedInode => {
            // Checked first: if the tree is its own cache, the files need not be made.
            if let Err(error) = actor.drop_caches(Caches::Inodes) {
                return if error.kind() == io::ErrorKind::Unsupported {
                    Ok(Answer { bytes_each: None, source })
                } else {
                    Err(error).during(|| "emptying caches".into())
                };
            }
            let mut made = 0_u64;
            all(&mut |path| {
                actor.create(path)?;
                made += 1;
                // Otherwise this process would have the memory already.
                let drops = source == Source::Resident && made.is_multiple_of(EMPTIED_EVERY);
                if drops { actor.drop_caches(Caches::Inodes) } else { Ok(()) }
            })?;
            actor.drop_caches(Caches::Inodes).during(|| "emptying caches".into())?;
            before = settled(source, cancel)?;
            all(&mut |path| actor.stat(path))?;
        }
    }
    let after = read(source)?;
    drop(actor);
    session.close()?;
    #[allow(clippy::cast_precision_loss)] // Memory and counts stay far below 2^53.
    let bytes_each = after.saturating_sub(before) as f64 / count as f64;
    Ok(Answer { bytes_each: Some(bytes_each), source })
}

/// Reads until two readings agree. The kernel frees objects with a delay after their removal.
fn settled(source: Source, cancel: &Cancel) -> Result<u64, Failure> {
    const TRIES: u32 = 25;
    const CLOSE: u64 = 256 << 10;
    let mut last = read(source)?;
    for _ in 0..TRIES {
        cancel.wait(Duration::from_millis(200))?;
        let now = read(source)?;
        if now.abs_diff(last) < CLOSE {
            return Ok(now);
        }
        last = now;
    }
    Ok(last)
}

/// Bytes in use now.
fn read(source: Source) -> Result<u64, Failure> {
    match source {
        Source::Resident => resident(),
        Source::Slabinfo => slabs_in_use().and_then(|slabs| Ok(slabs + meminfo(&["Shmem:"])?)),
        Source::Meminfo => meminfo(&["Slab:", "Shmem:"]),
    }
    .during(|| "reading how much memory is used".into())
}

fn malformed(file: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{file} has another form than expected"))
}

fn resident() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/statm")?;
    let pages: Option<u64> = text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    Ok(pages.ok_or_else(|| malformed("/proc/self/statm"))? * page_size())
}

fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

fn slabs_in_use() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/slabinfo")?;
    text.lines()
        .skip(2)
        .map(slab_line)
        .sum::<Option<u64>>()
        .map(|pages| pages * page_size() / SHARE)
        .ok_or_else(|| malformed("/proc/slabinfo"))
}

/// The unit of a slab line's count is a page divided by this.
const SHARE: u64 = 1024;

/// The pages that the objects in use fill, including the waste at the end of each slab, in units of
/// a page divided by [`SHARE`].
fn slab_line(line: &str) -> Option<u64> {
    let mut fields = line.split_whitespace().skip(1).map(|field| field.parse::<u64>().ok());
    let (active, _all, _size, per_slab, pages) =
        (fields.next()??, fields.next()??, fields.next()??, fields.next()??, fields.next()??);
    (active * pages * SHARE).checked_div(per_slab)
}

/// The sum of some lines of `/proc/meminfo`, in bytes.
fn meminfo(lines: &[&str]) -> io::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let value = |name: &&str| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(name))?.trim().strip_suffix(" kB")?.parse().ok()
    };
    lines.iter().map(value).sum::<Option<u64>>().map(|kib| kib << 10).ok_or_else(|| malformed("/proc/meminfo"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::tests::scratch;

    #[test]
    fn slabinfo_line_is_parsed() {
        let line = "dentry  1000  1050  192  21  1 : tunables 0 0 0 : slabdata 50 50 0";
        assert_eq!(slab_line(line), Some(1000 * SHARE / 21));
        assert_eq!(slab_line("dentry 1000 x 192 21 1"), None);
        assert_eq!(slab_line("dentry 1000"), None);
        assert_eq!(slab_line("dentry 1 1 1 0 1"), None);
    }

    #[test]
    fn memory_use_is_read() {
        assert!(resident().expect("statm") > 1 << 20);
        let shmem = meminfo(&["Shmem:"]).expect("meminfo");
        assert!(meminfo(&["Slab:", "Shmem:"]).expect("meminfo") > shmem);
        assert!(meminfo(&["NoSuchLine:"]).is_err());
    }

    #[test]
    fn files_in_a_directory_use_kernel_memory() {
        let temp = scratch();
        let target: TargetSpec = format!("dir={}", temp.path().display()).parse().expect("a target");
        let answer = measure(&*target.target(), Node::File, 1000, &Cancel::default()).expect("it measures");
        assert_ne!(answer.source, Source::Resident);
        assert_eq!(fs::read_dir(temp.path()).expect("it stays").count(), 0);
    }
}
