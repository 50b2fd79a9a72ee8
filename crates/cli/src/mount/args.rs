//! The arguments of `pando mount`.

use std::{ffi::OsString, num::NonZeroUsize, path::PathBuf, time::Duration};

use clap::{Args, Parser, ValueEnum};
use pando_console::size;

use super::{
    injector::InjectorArgs,
    limits,
    options::{self, MountOption},
};

const MOUNT_HELP: &str = "\
The tree lives in memory and is gone when it is unmounted. The command makes the directory if it is missing, prints one \
line when the tree is ready, and serves it until Ctrl-C, SIGTERM or `pando umount`. Then it unmounts cleanly. If the \
server was killed before, and has left a dead mount there (\"Transport endpoint is not connected\"), that is cleaned \
first.

Root mounts by itself; other users need fusermount3 (package fuse3). In a container, give it the device:
  docker run --device /dev/fuse --cap-add SYS_ADMIN ...

Mount options:
-o takes these, separated by commas; one that has a comma in it is written in double quotes.
  suid, dev        setuid bits and device nodes mean something [default: not; of
                   mount(8), as for any file system, unless nosuid, nodev are said]
  noexec, ro       nothing is executed, nothing is changed
  noatime          reading leaves no time of access; nodiratime: nor listing
  sync, dirsync, lazytime, nosymfollow, context=LABEL
                   the kernel is told, as of any file system
  fsname=NAME      the source in df and findmnt [default: pandofs]
  max_read=BYTES   the largest read
  remount          change a mounted tree: ro, rw, noexec, nodev, sync ...
  size=2G, nr_inodes=1m, mode=1777, uid=0, gid=0, threads=4, attr_timeout=1 ...
                   each long option, with _ for -; one of the command line wins
  defaults, relatime, nofail, noauto, user, _netdev, x-* ...
                   for mount(8), systemd, or so in any case
strictatime and iversion are taken, and said to have no effect. nodiratime, lazytime and nosymfollow are for root. A user \
of `user` in fstab mounts through fusermount3.

Fstab and systemd:
mount(8) and systemd mount through a link to the command; the tree is served in the background.
  ln -s \"$(command -v pando)\" /sbin/mount.fuse.pandofs
  mount -t fuse.pandofs NAME /mnt/grove -o size=2G,allow_other
NAME is the source that mount tables show. A line of /etc/fstab:
  scratch /mnt/grove fuse.pandofs size=2G,mode=1777,allow_other,nofail 0 0
The directory has to be there, unless x-mount.mkdir is among the options. systemd makes a mount unit of the line. With \
x-systemd.automount it mounts when somebody goes there, x-systemd.requires=UNIT and x-systemd.after=UNIT order it, \
x-systemd.mount-timeout=SECONDS limits the wait, and nofail lets the machine start without. The same as a unit, \
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
Then: systemctl enable --now mnt-grove.mount. Its memory counts against the unit: MemoryMax= in a drop-in bounds size.

Remounting:
`mount -o remount,ro DIR` works with that link; without it say `mount -i -o remount,ro DIR`, or `pando mount -o remount,ro DIR`. \
What is not asked for stays as it is. What the server was told when it began (size, times of access, suid, allow_other) \
cannot change.

Exit codes: 0 mounted, served and unmounted (with --daemon: mounted), 1 it failed, 2 the command line is wrong.";

/// Options of `pando mount`.
#[derive(Debug, Args)]
#[command(after_long_help = MOUNT_HELP, args_override_self = true)]
pub struct MountArgs {
    /// The directory to mount on; made if it is missing
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,

    /// How much the files may hold, as in 512M, 1.5G or 25% of the memory [default: half of the memory]
    ///
    /// The memory is the machine's, or what a control group allows the server (memory.max, memory.high; the smallest of its own
    /// and those above), without what the server itself needs: 28 MiB with two threads, and 64 MiB for what was just removed.
    #[arg(long, value_parser = parse_size, allow_negative_numbers = true)]
    pub size: Option<u64>,

    /// How many inodes (files, directories, links; a hard link is one, and 1 KiB of extended attributes) there may be
    /// [default: as many as fit into the memory beside full files, about 120,000 for each GiB]
    ///
    /// k, m and g multiply by powers of 1024, as in 500k.
    #[arg(long, value_name = "N", value_parser = parse_inodes, allow_negative_numbers = true)]
    pub inodes: Option<u64>,

    /// Let other users in; the permission bits decide
    ///
    /// Users other than root may say this only if /etc/fuse.conf has a line user_allow_other.
    #[arg(long)]
    pub allow_other: bool,

    /// The owner of the root directory [default: who mounts]
    #[arg(long, value_parser = parse_id, allow_negative_numbers = true)]
    pub uid: Option<u32>,

    /// The group of the root directory [default: that of who mounts]
    #[arg(long, value_parser = parse_id, allow_negative_numbers = true)]
    pub gid: Option<u32>,

    /// The permission bits of the root directory, in octal
    #[arg(long, value_parser = parse_mode, allow_negative_numbers = true, default_value = "755")]
    pub mode: u32,

    /// Mount options, separated by commas: ro, noexec, fsname=NAME, size=2G ... (see --help)
    #[arg(short = 'o', value_name = "OPTIONS", value_parser = parse_options, action = clap::ArgAction::Append,
          long_help = "Mount options, separated by commas: ro, noexec, fsname=NAME, size=2G ... (see below)")]
    pub options: Vec<Vec<MountOption>>,

    /// Mount over a directory that has entries (they are hidden until it is unmounted)
    #[arg(long)]
    pub nonempty: bool,

    /// Threads that answer requests [default: as many as cores; through io_uring there are not more]
    #[arg(long, value_name = "N", value_parser = parse_threads, allow_negative_numbers = true)]
    pub threads: Option<NonZeroUsize>,

    /// Whether requests come through io_uring: auto (where it is better), always (or refuse to mount), never
    ///
    /// Each costs about half as much then, since nobody on another processor is woken up for it: a thread on each answers those
    /// who run there, and is as busy as they make it. The kernel has it from Linux 6.14 on, once root has allowed it:
    /// echo Y > /sys/module/fuse/parameters/enable_uring. A slow store does without, and so, with auto, do fewer threads than
    /// processors, and one alone.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = IoUring::Auto, hide_possible_values = true)]
    pub io_uring: IoUring,

    /// For how long the kernel may answer from its caches, in seconds; 0 makes it ask each time
    ///
    /// A day is right as long as the tree changes only through this mount, since the kernel sees those changes.
    #[arg(long, value_name = "SECONDS",
          value_parser = parse_seconds, allow_negative_numbers = true, default_value = "86400")]
    pub attr_timeout: Duration,

    /// Say when files were made (statx), at one request for each file of which a program asks that
    ///
    /// Many ask and do not look at it: what is written in Rust or for Node.js, and stat(1); ls(1) does not.
    #[arg(long)]
    pub birth_times: bool,

    /// Go to the background once the tree is mounted
    ///
    /// Other files than 0, 1 and 2 that are open stay so: close locks and pipes for it (`9>&-`).
    #[arg(short, long)]
    pub daemon: bool,

    /// A slow store.
    #[command(flatten)]
    pub slow: InjectorArgs,
}

/// When requests are to come through io_uring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)] // The option says what they mean.
pub enum IoUring {
    Auto,
    Always,
    Never,
}

/// The arguments as a command line of their own.
#[derive(Debug, Parser)]
#[command(name = "pando mount", bin_name = "pando mount", no_binary_name = true)]
struct Line {
    #[command(flatten)]
    args: MountArgs,
}

impl MountArgs {
    /// Reads arguments, without `pando mount` in front of them.
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

    /// The words after `-o` that stand for long options of the command, as these options.
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

/// As tmpfs has it: also a part of the memory.
fn parse_size(text: &str) -> Result<u64, String> {
    let Some(percent) = text.strip_suffix('%') else { return size::parse(text) };
    let percent = percent.parse().ok().filter(|percent| (1..=1000).contains(percent));
    let percent = percent.ok_or("a part of the memory is a whole number from 1 to 1000, as in 25%")?;
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

/// The largest number is none: to chown(2) it means to leave the owner as it is.
fn parse_id(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|&id| id != u32::MAX).ok_or_else(|| {
        format!("an owner or group is a number from 0 to {}, as `id` prints it, and not a name", u32::MAX - 1)
    })
}

fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err("permission bits are an octal number up to 7777, as in 755 or 1777".into()),
    }
}

/// More threads than this serve no machine, and each has a buffer.
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
    fn defaults_are_those_of_the_help() {
        let args = mount(&["grove"]).unwrap();
        assert_eq!((args.size, args.inodes, args.mode), (None, None, 0o755));
        assert_eq!(args.attr_timeout, Duration::from_secs(86400));
        assert!(!args.allow_other && !args.daemon && !args.nonempty && args.options.is_empty());
    }

    #[test]
    fn values_are_taken() {
        let args = mount(&["--size", "1G", "--inodes", "10", "--mode", "1777", "--attr-timeout", "0.5", "g"]).unwrap();
        assert_eq!((args.size, args.inodes, args.mode), (Some(1 << 30), Some(10), 0o1777));
        assert_eq!(args.attr_timeout, Duration::from_millis(500));
        let args = mount(&["--size", "50%", "--inodes", "2m", "g"]).unwrap();
        assert!(args.size.is_some_and(|bytes| bytes > 1 << 20) && args.inodes == Some(2 << 20));
        let args = mount(&["--size", "1M", "--fault", "read=EIO", "--size", "2M", "--fault", "open=EIO", "g"]).unwrap();
        assert_eq!((args.size, args.slow.fault.len()), (Some(2 << 20), 2), "the later one; but of lists all");
        let args = mount(&["-o", "suid,dev", "-o", "ro", "--threads", "3", "-d", "g"]).unwrap();
        assert_eq!(args.options.concat().len(), 3);
        assert_eq!((args.threads, args.daemon), (NonZeroUsize::new(3), true));
    }

    #[test]
    fn bad_values_are_named_with_a_remedy() {
        for (args, says) in [
            (&["--size", "10Q", "g"][..], "K, M, G"),
            (&["--mode", "9", "g"], "octal"),
            (&["--mode", "10000", "g"], "octal"),
            (&["--threads", "0", "g"], "between 1 and 1024"),
            (&["--threads", "many", "g"], "between 1 and 1024"),
            (&["--attr-timeout=-1", "g"], "seconds"),
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
        assert_eq!((taken.uid, taken.gid, taken.attr_timeout.as_millis()), (Some(5), Some(6), 500));
        assert!(taken.birth_times && taken.nonempty);
        assert_eq!(words("delay=\"lookup=1ms,read=2ms\",fault=read=EIO").slow.delay.len(), 2);
        assert_eq!(words("size=1M,size=2M").size, Some(2 << 20), "the later one");
        for argument in MountArgs::augment_args(clap::Command::new("mount")).get_arguments() {
            let Some(long) = argument.get_long() else { continue };
            let found = options::parse(&long.replace('-', "_"), is_long_option);
            assert!(matches!(found, Ok(MountOption::Own(_))), "{long}: {found:?}");
        }
    }
}
