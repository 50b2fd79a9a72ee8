//! The arguments of `pando mount`.

use std::{ffi::OsString, num::NonZeroUsize, path::PathBuf, time::Duration};

use clap::{ArgGroup, Args, Parser, ValueEnum};
use pando_console::size;
use pando_fuse::Changes;
use pando_vfs::DirectoryLocks;

use super::{
    injector::{self, InjectorArgs},
    limits,
    options::{self, MountOption},
    source::UNTOLD,
};

const MOUNT_HELP: &str = "\
The tree lives in memory and is lost when it is unmounted. Or it stays, in a store (--store). Or it is a directory of the \
host (--source). The command creates the directory if it is missing, prints one line when the tree is mounted, and serves the tree until Ctrl-C, SIGTERM or `pando umount`. Then it unmounts the tree. If a \
killed server has left a dead mount on the directory (\"Transport endpoint is not connected\"), the command unmounts that \
first.

Root can mount directly. Other users need fusermount3 (package fuse3). In a container, pass the device:
  docker run --device /dev/fuse --cap-add SYS_ADMIN ...

Mount options:
-o takes these options, separated by commas. Write an option that contains a comma in double quotes.
  suid, dev        setuid bits and device nodes have effect [default: they have
                   none; mount(8) turns both on unless nosuid, nodev are given]
  noexec, ro       nothing can be executed, nothing can be changed
  noatime          reads do not update the atime; nodiratime: nor do listings
  sync, dirsync, lazytime, nosymfollow, context=LABEL
                   passed to the kernel, as for any file system
  fsname=NAME      the source in df and findmnt [default: pandofs]
  max_read=BYTES   the largest read request
  remount          change a mounted tree: ro, rw, noexec, nodev, sync ...
  size=2G, nr_inodes=1m, mode=1777, uid=0, gid=0, threads=4, attr_timeout=1 ...
                   every long option, with _ for -; the command line overrides
  defaults, relatime, nofail, noauto, user, _netdev, x-* ...
                   read by mount(8) or systemd, or already in effect
strictatime and iversion are accepted, with a warning that they have no effect. nodiratime, lazytime and nosymfollow need \
root. For an fstab line with `user`, other users mount through fusermount3.

Fstab and systemd:
mount(8) and systemd mount through a link to the command. The server runs in the background.
  ln -s \"$(command -v pando)\" /sbin/mount.fuse.pandofs
  mount -t fuse.pandofs NAME /mnt/grove -o size=2G,allow_other
Mount tables show NAME as the source. A line of /etc/fstab:
  scratch /mnt/grove fuse.pandofs size=2G,mode=1777,allow_other,nofail 0 0
The directory must exist, unless the options contain x-mount.mkdir. systemd makes a mount unit of the line. With \
x-systemd.automount it mounts the tree on first access. x-systemd.requires=UNIT and x-systemd.after=UNIT order the unit, \
x-systemd.mount-timeout=SECONDS limits the wait, and nofail lets the machine boot without the tree. The same as a unit, \
/etc/systemd/system/mnt-grove.mount:
  [Unit]
  Description=A tree in memory
  [Mount]
  What=scratch
  Where=/mnt/grove
  Type=fuse.pandofs
  Options=size=2G,mode=1777,allow_other
  [Install]
  WantedBy=multi-user.target
Then: systemctl enable --now mnt-grove.mount. The memory of the tree counts against the unit: MemoryMax= in a drop-in \
limits it.

Remounting:
With that link, `mount -o remount,ro DIR` works. Without it, use `mount -i -o remount,ro DIR` or `pando mount -o remount,ro \
DIR`. Options that are not given stay as they are. Options that the server reads when it starts (size, atime options, suid, \
allow_other) cannot be changed.

Exit codes: 0 mounted, served and unmounted (with --daemon: mounted), 1 it failed, 2 the command line is wrong.";

/// Options of `pando mount`.
#[derive(Debug, Args)]
#[command(after_long_help = MOUNT_HELP, args_override_self = true)]
#[command(group = ArgGroup::new("backed").args(["source", "store"]))]
pub struct MountArgs {
    /// The directory to mount on; created if it is missing
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,

    /// Show this directory of the host, instead of a tree in memory
    ///
    /// Programs on the mount work on the files of SOURCE. Nothing in SOURCE leads out of it:
    /// symbolic links lead where they would lead if DIR were in its place. Mounts inside SOURCE
    /// cannot be reached. Changes that others make in SOURCE are seen as they happen, if the kernel
    /// reports them: to root, on a local file system. Otherwise they are seen within two seconds. A
    /// trace, delays, faults and -o ro work as on a tree in memory.
    #[arg(long, value_name = "SOURCE", conflicts_with_all = ["size", "inodes", "uid", "gid", "mode"])]
    pub source: Option<PathBuf>,

    /// Keep the tree in a store in this directory
    ///
    /// A store is made if the directory is empty or missing. The tree is there again with the next
    /// mount. After a crash it is as it was after one of its operations. Those of the last seconds
    /// (--commit) are lost, unless an fsync has waited for them. Only one server uses a store at a
    /// time. `pando store` checks, shows and exports stores.
    #[arg(long, value_name = "STORE", conflicts_with = "source")]
    pub store: Option<PathBuf>,

    /// When changes in a store become durable [default: 5s]
    ///
    /// A time, as in 5s or 100ms: each change is durable that long after it. `fsync-only`: with an
    /// fsync. `sync`: a call returns when its change is durable, which takes milliseconds on many
    /// disks. In any case, an fsync of a file or a directory makes everything durable that was done
    /// before it.
    #[arg(long, value_name = "WHEN", requires = "store", conflicts_with = "source", value_parser = parse_commit,
          allow_negative_numbers = true)]
    pub commit: Option<CommitWhen>,

    /// Nobody else changes SOURCE: the kernel may answer from its caches
    #[arg(long, requires = "source", conflicts_with = "store")]
    pub exclusive: bool,

    /// Look for changes by others once a second
    ///
    /// Otherwise the kernel reports them, where it can. It reports the changes of the whole file
    /// system that SOURCE is on. If others change much of it, and little in SOURCE, looking may
    /// cost less.
    #[arg(long, requires = "source", conflicts_with_all = ["exclusive", "store"])]
    pub no_watch: bool,

    /// Do not read ahead of listings
    ///
    /// While a program waits for SOURCE at each name that it has listed, threads of the server load
    /// other names of the directory. The number of calls in flight is found by trial, 64 at most.
    #[arg(long, requires = "backed")]
    pub no_read_ahead: bool,

    /// How many inodes stay cached [default: 65536 per GiB]
    ///
    /// Of a source or a store. About 0.9 KB each. The cache also has a limit in bytes, with
    /// extended attributes: 2 KiB for each of the N. By default that limit is an eighth of the
    /// memory; for a given N it is at least 256 MiB. If the cache is full, the server asks the
    /// kernel to forget inodes that no program uses (Linux 6.18). While memory is short, fewer are
    /// kept.
    #[arg(long, requires = "backed", value_name = "N")]
    pub cached_inodes: Option<usize>,

    /// How many bytes the files may hold, as in 512M, 1.5G or 25% of the memory [default: half of
    /// the memory]
    ///
    /// A store has no limit by default but that of its disk. "The memory" is that of the machine,
    /// or what control groups allow the server: the smallest memory.max or memory.high of its own
    /// group and those above. The server's own needs are subtracted: 28 MiB with two threads, and
    /// 64 MiB for removed files that readers may still use.
    #[arg(long, value_parser = parse_size, allow_negative_numbers = true)]
    pub size: Option<u64>,

    /// How many inodes there may be: files, directories, links [default: as many as fit into the
    /// memory beside full files, about 120,000 for each GiB]
    ///
    /// In memory, a hard link counts as one inode, and so does each KiB of extended attributes. A
    /// store counts inodes alone, and has no limit by default. k, m and g multiply by powers of
    /// 1024, as in 500k.
    #[arg(long, value_name = "N", value_parser = parse_inodes, allow_negative_numbers = true)]
    pub inodes: Option<u64>,

    /// Let other users access the tree; mode bits and ACLs decide
    ///
    /// Users other than root may use this only if /etc/fuse.conf has a line user_allow_other.
    #[arg(long)]
    pub allow_other: bool,

    /// The owner of the root directory [default: the user who mounts]
    ///
    /// In a store, this and the two options below are for a store that is made now.
    #[arg(long, value_parser = parse_id, allow_negative_numbers = true)]
    pub uid: Option<u32>,

    /// The group of the root directory [default: that user's group]
    #[arg(long, value_parser = parse_id, allow_negative_numbers = true)]
    pub gid: Option<u32>,

    /// The permission bits of the root directory, in octal
    #[arg(long, value_parser = parse_mode, allow_negative_numbers = true, default_value = "755")]
    pub mode: u32,

    /// Mount options, separated by commas: ro, noexec, fsname=NAME, size=2G ... (see --help)
    #[arg(short = 'o', value_name = "OPTIONS", value_parser = parse_options, action = clap::ArgAction::Append,
          long_help = "Mount options, separated by commas: ro, noexec, fsname=NAME, size=2G ... (see below)")]
    pub options: Vec<Vec<MountOption>>,

    /// Mount over a directory that has entries; they are hidden until the tree is unmounted
    #[arg(long)]
    pub nonempty: bool,

    /// Threads that answer requests [default: one per core]
    ///
    /// With --source or --store there are up to 64 more, while requests wait. Through io_uring, one
    /// per core is the maximum; with --source or --store each core has 64 more, and 1024 are the
    /// maximum.
    #[arg(long, value_name = "N", value_parser = parse_threads, allow_negative_numbers = true)]
    pub threads: Option<NonZeroUsize>,

    /// The number of locks for changes of names in the tree, or `off` for one lock per directory
    /// [default: 64 per core]
    ///
    /// Without this option, changes of different names run in parallel. `off` is the locking of
    /// other file systems, and is there to measure the difference. In a mount it is small, since
    /// the kernel changes one name of a directory at a time.
    #[arg(long, value_name = "off|N", value_parser = parse_pdirops, allow_negative_numbers = true)]
    pub pdirops: Option<DirectoryLocks>,

    /// How requests reach the server: io_uring if it is faster (auto), io_uring or fail (always),
    /// the device (never)
    ///
    /// Through io_uring a request costs about half as much, because the kernel wakes no thread on
    /// another core: each core has a thread that answers the requests of that core, and the thread
    /// is as busy as they make it. io_uring needs Linux 6.14 and permission from root: echo Y >
    /// /sys/module/fuse/parameters/enable_uring. The latency and fault injector always uses the
    /// device. With auto, so does a server with one thread or with fewer threads than cores.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = IoUring::Auto, hide_possible_values = true)]
    pub io_uring: IoUring,

    /// For how many seconds the kernel may answer from its caches; 0 makes it ask each time
    ///
    /// The default is a day: the kernel sees all changes through this mount, and is told of those
    /// that others make in SOURCE. If the kernel cannot report these, the default is 1. That a name
    /// is missing is cached for a minute at most.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub attr_timeout: Option<Duration>,

    /// Report the btime of files (statx)
    ///
    /// It costs a request for each file whose btime a program asks for. Many programs ask for it
    /// and do not use it: programs in Rust or for Node.js, and stat(1). ls(1) does not ask.
    #[arg(long)]
    pub birth_times: bool,

    /// Serve in the background once the tree is mounted
    ///
    /// Its messages go to the system's log (/dev/log). The server keeps inherited files other than
    /// 0, 1 and 2 open: close locks and pipes when you start it (`9>&-`).
    #[arg(short, long)]
    pub daemon: bool,

    /// The latency and fault injector.
    #[command(flatten)]
    pub injector: InjectorArgs,
}

/// When requests come through io_uring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)] // The help of the option describes them.
pub enum IoUring {
    Auto,
    Always,
    Never,
}

/// When changes in a store become durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitWhen {
    /// So long after the change at most.
    Within(Duration),
    /// With an fsync.
    Fsync,
    /// Before the change is acknowledged.
    Acknowledged,
}

/// The arguments as a command line of their own.
#[derive(Debug, Parser)]
#[command(name = "pando mount", bin_name = "pando mount", no_binary_name = true)]
struct Line {
    #[command(flatten)]
    args: MountArgs,
}

impl MountArgs {
    /// Reads the arguments that follow `pando mount`.
    ///
    /// # Errors
    /// clap's message, which may be help.
    pub fn read(line: &[OsString]) -> Result<Self, clap::Error> {
        let args = Line::try_parse_from(line)?.args;
        let own = args.own_options();
        if own.is_empty() {
            return Ok(args);
        }
        Ok(Line::try_parse_from(own.iter().chain(line))?.args)
    }

    /// Whether the tree is read and changed by calls that may wait.
    pub fn is_backed(&self) -> bool {
        self.source.is_some() || self.store.is_some()
    }

    /// How long the kernel may answer from its caches.
    pub fn valid(&self, changes: Changes) -> Duration {
        let default = if changes == Changes::Elsewhere { UNTOLD } else { Duration::from_secs(24 * 60 * 60) };
        self.attr_timeout.unwrap_or(default)
    }

    /// The long options that are given as words after `-o`.
    pub fn own_options(&self) -> Vec<OsString> {
        let own = self.options.iter().flatten().filter_map(|option| match option {
            MountOption::Own(option) => Some(OsString::from(option)),
            _ => None,
        });
        own.collect()
    }
}

/// Whether the command has the long option `name`.
pub fn is_long_option(name: &str) -> bool {
    let command = MountArgs::augment_args(clap::Command::new("mount"));
    command.get_arguments().any(|argument| argument.get_long() == Some(name))
}

fn parse_options(text: &str) -> Result<Vec<MountOption>, String> {
    options::parse_all(text, is_long_option)
}

/// A size in bytes, or a percentage of the memory, as for tmpfs.
fn parse_size(text: &str) -> Result<u64, String> {
    let Some(percent) = text.strip_suffix('%') else { return size::parse(text) };
    let percent = percent.parse().ok().filter(|percent| (1..=1000).contains(percent));
    let percent = percent.ok_or("a percentage of the memory is a whole number from 1 to 1000, as in 25%")?;
    limits::percentage(percent).ok_or_else(|| "/proc/meminfo does not say how much memory there is".into())
}

fn parse_inodes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = ["", "k", "m", "g"].iter().position(|known| unit.eq_ignore_ascii_case(known));
    let inodes = unit.and_then(|unit| number.parse::<u64>().ok()?.checked_mul(1 << (10 * unit)));
    inodes.filter(|&inodes| inodes > 0).ok_or_else(|| {
        "a number of inodes is a whole number from 1 on, as in 1000000 or 500k (the root directory is one)".into()
    })
}

/// The largest number is no owner: chown(2) leaves the owner unchanged for it.
fn parse_id(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|&id| id != u32::MAX).ok_or_else(|| {
        format!("an owner or group is a number from 0 to {}, as `id` prints it, and not a name", u32::MAX - 1)
    })
}

fn parse_pdirops(text: &str) -> Result<DirectoryLocks, String> {
    if text == "off" {
        return Ok(DirectoryLocks::PerDirectory);
    }
    let most = DirectoryLocks::STRIPES_MAX;
    let locks = text.parse().ok().filter(|locks| (1..=most).contains(locks));
    locks.map(DirectoryLocks::Stripes).ok_or_else(|| format!("it is off, or a number of locks from 1 to {most}"))
}

fn parse_commit(text: &str) -> Result<CommitWhen, String> {
    match text {
        "sync" => Ok(CommitWhen::Acknowledged),
        "fsync-only" => Ok(CommitWhen::Fsync),
        _ => match injector::parse_duration(text) {
            Ok(time) if !time.is_zero() => Ok(CommitWhen::Within(time)),
            _ => Err("it is sync, fsync-only, or a time with its unit, as in 5s or 100ms".into()),
        },
    }
}

fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err("permission bits are an octal number up to 7777, as in 755 or 1777".into()),
    }
}

/// No machine gains from more threads, and each thread has a buffer.
const MAX_THREADS: usize = 1024;

fn parse_threads(text: &str) -> Result<NonZeroUsize, String> {
    match text.parse::<NonZeroUsize>() {
        Ok(threads) if threads.get() <= MAX_THREADS => Ok(threads),
        _ => Err(format!("a number of threads is between 1 and {MAX_THREADS}")),
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    text.parse::<f64>()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "a time is a number of seconds, as in 0, 0.5 or 86400".into())
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    fn mount(args: &[&str]) -> Result<MountArgs, clap::Error> {
        Line::try_parse_from(args).map(|line| line.args)
    }

    #[test]
    fn defaults_match_the_help() {
        let args = mount(&["grove"]).unwrap();
        assert_eq!((args.size, args.inodes, args.mode), (None, None, 0o755));
        assert_eq!(args.valid(Changes::OnlyHere), Duration::from_secs(86400));
        assert_eq!(args.pdirops, None);
        assert!(!args.allow_other && !args.daemon && !args.nonempty && args.options.is_empty());
    }

    #[test]
    fn values_are_parsed() {
        let args = mount(&["--size", "1G", "--inodes", "10", "--mode", "1777", "--attr-timeout", "0.5", "g"]).unwrap();
        assert_eq!((args.size, args.inodes, args.mode), (Some(1 << 30), Some(10), 0o1777));
        assert_eq!(args.valid(Changes::OnlyHere), Duration::from_millis(500));
        let args = mount(&["--source", "s", "g"]).unwrap();
        assert_eq!(args.valid(Changes::Elsewhere), Duration::from_secs(1));
        for changes in [Changes::OnlyHere, Changes::Reported { otherwise: UNTOLD }] {
            assert_eq!(args.valid(changes), Duration::from_secs(86400));
        }
        for (text, when) in [
            ("200ms", CommitWhen::Within(Duration::from_millis(200))),
            ("fsync-only", CommitWhen::Fsync),
            ("sync", CommitWhen::Acknowledged),
        ] {
            assert_eq!(mount(&["--store", "s", "--commit", text, "g"]).unwrap().commit, Some(when));
        }
        for of_other in [&["--source", "s", "--commit", "5s", "g"][..], &["--store", "s", "--source", "t", "g"]] {
            assert_eq!(mount(of_other).unwrap_err().kind(), ErrorKind::ArgumentConflict, "{of_other:?}");
        }
        for option in [&["--exclusive"][..], &["--no-watch"], &["--source-delay", "1ms"]] {
            let line = [&["--store", "s"], option, &["g"]].concat();
            assert_eq!(mount(&line).unwrap_err().kind(), ErrorKind::ArgumentConflict, "{line:?}");
        }
        assert!(mount(&["--cached-inodes", "7", "g"]).is_err(), "a tree in memory is its own cache");
        let args = mount(&["--pdirops", "off", "g"]).unwrap();
        assert_eq!(args.pdirops, Some(DirectoryLocks::PerDirectory));
        let args = mount(&["--pdirops", "512", "g"]).unwrap();
        assert_eq!(args.pdirops, Some(DirectoryLocks::Stripes(512)));
        let args = mount(&["--size", "50%", "--inodes", "2m", "g"]).unwrap();
        assert!(args.size.is_some_and(|bytes| bytes > 1 << 20) && args.inodes == Some(2 << 20));
        let args = mount(&["--size", "1M", "--fault", "read=EIO", "--size", "2M", "--fault", "open=EIO", "g"]).unwrap();
        assert_eq!((args.size, args.injector.fault.len()), (Some(2 << 20), 2), "the later one counts; lists keep all");
        let args = mount(&["-o", "suid,dev", "-o", "ro", "--threads", "3", "-d", "g"]).unwrap();
        assert_eq!(args.options.concat().len(), 3);
        assert_eq!((args.threads, args.daemon), (NonZeroUsize::new(3), true));
    }

    #[test]
    fn bad_values_are_refused_with_a_remedy() {
        for (args, says) in [
            (&["--size", "10Q", "g"][..], "K, M, G"),
            (&["--mode", "9", "g"], "octal"),
            (&["--mode", "10000", "g"], "octal"),
            (&["--threads", "0", "g"], "between 1 and 1024"),
            (&["--threads", "many", "g"], "between 1 and 1024"),
            (&["--attr-timeout=-1", "g"], "seconds"),
            (&["--pdirops", "on", "g"], "it is off, or a number of locks"),
            (&["--store", "s", "--commit", "5", "g"], "as in 5s or 100ms"),
            (&["--store", "s", "--commit", "0s", "g"], "as in 5s or 100ms"),
            (&["--store", "s", "--commit", "never", "g"], "as in 5s or 100ms"),
            (&["--pdirops", "0", "g"], "it is off, or a number of locks"),
            (&["--pdirops", "1048577", "g"], "from 1 to 1048576"),
            (&["--attr-timeout", "nan", "g"], "seconds"),
            (&["--attr-timeout", "-1", "g"], "seconds"),
            (&["--size", "-1", "g"], "starts with a number"),
            (&["--inodes", "0", "g"], "from 1 on"),
            (&["--inodes", "abc", "g"], "whole number"),
            (&["--inodes", "1q", "g"], "whole number"),
            (&["--inodes", "k", "g"], "whole number"),
            (&["--inodes", "99999999999g", "g"], "whole number"),
            (&["--size", "0%", "g"], "1 to 1000"),
            (&["--size", "x%", "g"], "1 to 1000"),
            (&["--inodes", "-1", "g"], "from 1 on"),
            (&["--uid", "4294967295", "g"], "0 to 4294967294"),
            (&["--gid", "4294967295", "g"], "0 to 4294967294"),
            (&["--gid", "-1", "g"], "0 to 4294967294"),
            (&["--uid", "root", "g"], "not a name"),
            (&["-o", "suid,swim", "g"], "swim"),
        ] {
            let error = mount(args).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ValueValidation, "{args:?}");
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(says), "{args:?}: {error}");
        }
        assert_eq!(mount(&[]).unwrap_err().kind(), ErrorKind::MissingRequiredArgument);
    }

    fn words(words: &str) -> MountArgs {
        MountArgs::read(&["-o", words, "grove"].map(Into::into)).unwrap()
    }

    #[test]
    fn every_long_option_can_be_a_word() {
        let taken =
            words("size=64M,nr_inodes=1k,mode=1777,uid=5,gid=6,attr_timeout=0.5,birth_times,nonempty,io-uring=never");
        assert_eq!((taken.size, taken.inodes, taken.mode), (Some(64 << 20), Some(1024), 0o1777));
        assert_eq!((taken.uid, taken.gid, taken.valid(Changes::OnlyHere).as_millis()), (Some(5), Some(6), 500));
        assert!(taken.birth_times && taken.nonempty);
        assert_eq!(words("delay=\"lookup=1ms,read=2ms\",fault=read=EIO").injector.delay.len(), 2);
        assert_eq!(words("size=1M,size=2M").size, Some(2 << 20), "the later one counts");
        for argument in MountArgs::augment_args(clap::Command::new("mount")).get_arguments() {
            let Some(long) = argument.get_long() else { continue };
            let found = options::parse(&long.replace('-', "_"), is_long_option);
            assert!(matches!(found, Ok(MountOption::Own(_))), "{long}: {found:?}");
        }
    }
}
