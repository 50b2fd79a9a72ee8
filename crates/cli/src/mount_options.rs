//! The words after `-o`: those of mount(8) that any file system takes, those of FUSE file systems, and each long option of
//! `pando mount`, for places that have room for nothing else (fstab).

use clap::Args;
use rustix::process::{geteuid, getgid, getuid};

use crate::args::MountArgs;
use pando_console::{
    failure::{Failure, Result},
    mountinfo::Mount,
};

/// What one word asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountOption {
    /// A property of the mount that can be on or off.
    Set(Property, bool),
    /// An option of the command, as `--threads=4`.
    Own(String),
    /// What mount tables show as the source.
    Name(String),
    /// The most bytes that the kernel reads in one request.
    MaxRead(u32),
    /// Labels for a security module, as mount(8) passes them.
    Context(String),
    /// Changes what is mounted already.
    Remount,
    /// What the kernel shows of each FUSE mount and mount(8) repeats when it remounts.
    Shown(String),
    /// It is taken, and has no effect, which is worth a word.
    WithoutEffect(&'static str, &'static str),
    /// For mount(8) or systemd; or how things are in any case.
    Nothing,
}

/// What the kernel keeps of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // Each is named as the word it stands for.
pub enum Property {
    Suid,
    Dev,
    Exec,
    ReadOnly,
    NoAtime,
    NoDirAtime,
    Sync,
    DirSync,
    LazyTime,
    NoSymFollow,
}

const PROPERTIES: [(&str, Property, bool); 21] = [
    ("suid", Property::Suid, true),
    ("nosuid", Property::Suid, false),
    ("dev", Property::Dev, true),
    ("nodev", Property::Dev, false),
    ("exec", Property::Exec, true),
    ("noexec", Property::Exec, false),
    ("ro", Property::ReadOnly, true),
    ("rw", Property::ReadOnly, false),
    ("atime", Property::NoAtime, false),
    ("relatime", Property::NoAtime, false),
    ("noatime", Property::NoAtime, true),
    ("diratime", Property::NoDirAtime, false),
    ("nodiratime", Property::NoDirAtime, true),
    ("sync", Property::Sync, true),
    ("async", Property::Sync, false),
    ("dirsync", Property::DirSync, true),
    ("nodirsync", Property::DirSync, false),
    ("lazytime", Property::LazyTime, true),
    ("nolazytime", Property::LazyTime, false),
    ("symfollow", Property::NoSymFollow, false),
    ("nosymfollow", Property::NoSymFollow, true),
];

/// The defaults of mount(8), which it does not pass on.
const OF_MOUNT: [&str; 10] =
    ["suid", "dev", "exec", "rw", "atime", "diratime", "async", "nodirsync", "nolazytime", "symfollow"];

/// Words for mount(8), and words that ask for what is so in any case.
const NOTHING: &[&str] = &[
    // mount(8), fstab(5).
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "nousers",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "nofail",
    "_netdev",
    "silent",
    "loud",
    "norelatime",
    "nostrictatime",
    "noiversion",
    "nomand",
    // FUSE.
    "default_permissions",
    "big_writes",
    "large_read",
    "async_read",
    "use_ino",
    "readdir_ino",
    "hard_remove",
    "kernel_cache",
    "auto_cache",
    "clone_fd",
    "intr",
    "splice_read",
    "splice_write",
    "splice_move",
    "no_splice_read",
    "no_splice_write",
    "no_splice_move",
];

/// Words that begin so are for mount(8), udisks or systemd.
const FOR_OTHERS: [&str; 6] = ["x-", "X-", "comment=", "user=", "helper=", "uhelper="];

/// What others have, and what to write here.
const INSTEAD: &[(&str, &str)] = &[
    ("nr_blocks", "write size=BYTES instead"),
    ("umask", "write mode=BITS instead, for the root directory; programs have umasks of their own"),
    ("fmask", "write mode=BITS instead, for the root directory"),
    ("dmask", "write mode=BITS instead, for the root directory"),
    ("entry_timeout", "write attr_timeout=SECONDS instead, which is for names and attributes"),
    ("negative_timeout", "write attr_timeout=SECONDS instead, which is for names and attributes"),
    ("ac_attr_timeout", "write attr_timeout=SECONDS instead"),
    ("direct_io", "write attr_timeout=0 instead, if the kernel is to ask each time"),
    ("max_threads", "write threads=N instead"),
    ("max_idle_threads", "write threads=N instead"),
    ("auto_unmount", "leave it away: a mount that a killed server leaves is cleaned when it is mounted again"),
    ("mand", "leave it away: a FUSE mount has no mandatory locks"),
    ("blkdev", "leave it away: the tree is on no device"),
    ("blksize", "leave it away: the tree is on no device"),
    ("bind", "mount(8) does this itself: mount --bind"),
    ("rbind", "mount(8) does this itself: mount --rbind"),
    ("move", "mount(8) does this itself: mount --move"),
];

const STRICT: &str = "times of access are kept as with relatime, since the kernel answers most reads from its caches";

/// Splits at commas. One in double quotes, or behind a backslash, belongs to the word.
pub fn split(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => quoted = !quoted,
            '\\' => word.extend(characters.next()),
            ',' if !quoted => words.push(std::mem::take(&mut word)),
            other => word.push(other),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// The other way round.
pub fn escape(word: &str) -> String {
    word.chars().flat_map(|c| matches!(c, ',' | '\\' | '"').then_some('\\').into_iter().chain([c])).collect()
}

/// All words of one `-o`.
///
/// # Errors
/// As [`parse`].
pub fn parse_all(text: &str) -> std::result::Result<Vec<MountOption>, String> {
    split(text).iter().map(|word| parse(word)).collect()
}

/// What a word means.
///
/// # Errors
/// A message that says what to write instead.
pub fn parse(word: &str) -> std::result::Result<MountOption, String> {
    if let Some(&(_, property, on)) = PROPERTIES.iter().find(|(known, ..)| *known == word) {
        return Ok(MountOption::Set(property, on));
    }
    if NOTHING.contains(&word) || FOR_OTHERS.iter().any(|prefix| word.starts_with(prefix)) {
        return Ok(MountOption::Nothing);
    }
    let (key, value) = word.split_once('=').map_or((word, None), |(key, value)| (key, Some(value)));
    let with_value = |value: Option<&str>| {
        let value = value.filter(|value| !value.is_empty());
        value.map(str::to_owned).ok_or_else(|| format!("{key} needs a value, as in {key}=..."))
    };
    Ok(match key {
        "remount" => MountOption::Remount,
        "fsname" => MountOption::Name(with_value(value)?),
        "subtype" if value == Some("pandofs") => MountOption::Nothing,
        "subtype" => return Err("leave subtype away: the type is always fuse.pandofs".into()),
        "max_read" => MountOption::MaxRead(with_value(value)?.parse().map_err(|_| "max_read is a number of bytes")?),
        "context" | "fscontext" | "defcontext" | "rootcontext" => {
            MountOption::Context(format!("{key}=\"{}\"", with_value(value)?))
        }
        "user_id" | "group_id" | "rootmode" | "fd" => MountOption::Shown(word.to_owned()),
        "strictatime" => MountOption::WithoutEffect("strictatime", STRICT),
        "iversion" => MountOption::WithoutEffect("iversion", "a FUSE mount counts no versions"),
        // The user who mounts, who is root, and root.
        "allow_root" if geteuid().is_root() => MountOption::Nothing,
        "allow_root" => return Err("write allow_other instead; permission bits then keep others out".into()),
        _ => own(key, value).ok_or_else(|| unknown(word, key))?,
    })
}

/// A long option of the command: with `_` for `-`, as mount options are written, or as it is.
fn own(key: &str, value: Option<&str>) -> Option<MountOption> {
    let name = if key == "nr_inodes" { "inodes".to_owned() } else { key.replace('_', "-") };
    let command = MountArgs::augment_args(clap::Command::new("mount"));
    let known = command.get_arguments().any(|argument| argument.get_long() == Some(&name));
    known.then(|| MountOption::Own(value.map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}"))))
}

fn unknown(word: &str, key: &str) -> String {
    match INSTEAD.iter().find(|(known, _)| *known == key) {
        Some((_, remedy)) => format!("{word}: {remedy}"),
        None => format!(
            "there is no mount option {word:?}: there are ro, noexec, suid, dev, noatime, sync, fsname=NAME, size=BYTES and more \
             (see pando mount --help)"
        ),
    }
}

/// What all the words together ask for. Of opposites, the later one counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// What the kernel and the transport are told.
    pub mount: pando_fuse::MountOptions,
    /// What was set, in order.
    pub set: Vec<(Property, bool)>,
    /// Change what is mounted.
    pub remount: bool,
    /// Words without effect, and why they have none.
    pub without_effect: Vec<(&'static str, &'static str)>,
}

impl Asked {
    /// The words that were asked for and are not in effect on what was mounted.
    ///
    /// fusermount3 mounts for users with nosuid and nodev whatever they ask, and knows few other words; it is not sent those that
    /// it would refuse. It goes on after a word of warning, and so do we: the tree does what else was asked of it, and what
    /// is missing is a danger less. mount(8) would refuse, but it refuses users all of -o, which fusermount3 does not.
    pub fn ignored(&self, mount: &Mount) -> Vec<&'static str> {
        let asked = &self.mount;
        let words = [
            (asked.suid && mount.has("nosuid"), "suid"),
            (asked.dev && mount.has("nodev"), "dev"),
            (asked.no_dir_atime && !mount.has("nodiratime"), "nodiratime"),
            (asked.no_symfollow && !mount.has("nosymfollow"), "nosymfollow"),
            (asked.lazy_time && !mount.has_of_superblock("lazytime"), "lazytime"),
        ];
        words.into_iter().filter_map(|(missing, word)| missing.then_some(word)).collect()
    }
}

/// Adds up what the words, and the options of the command beside them, ask for.
///
/// # Errors
/// A word that makes sense only with `remount`.
pub fn fold(args: &MountArgs) -> Result<Asked> {
    let mount = pando_fuse::MountOptions {
        allow_other: args.allow_other,
        readdirplus: !args.slow.no_readdirplus,
        ..pando_fuse::MountOptions::default()
    };
    let mut asked = Asked { mount, set: Vec::new(), remount: false, without_effect: Vec::new() };
    asked.mount.threads = args.threads.unwrap_or(asked.mount.threads);
    let mut shown = Vec::new();
    let all = || args.options.iter().flatten();
    // mount(8) leaves away what is a default of its own, so in a list that it has completed, what is left away is off. It has if
    // it repeats what the kernel shows.
    let is_complete = all().any(|option| *option == MountOption::Remount)
        && all().any(|option| matches!(option, MountOption::Shown(word) if word.starts_with("user_id=")));
    for &(word, property, on) in PROPERTIES.iter().filter(|_| is_complete) {
        if OF_MOUNT.contains(&word) {
            set(&mut asked.mount, property, on);
            asked.set.push((property, on));
        }
    }
    for option in all() {
        match option {
            MountOption::Set(property, on) => {
                set(&mut asked.mount, *property, *on);
                asked.set.push((*property, *on));
            }
            MountOption::Name(name) => asked.mount.source.clone_from(name),
            MountOption::MaxRead(bytes) => asked.mount.max_read = Some(*bytes),
            // Without SELinux mount(8) takes them, and does not pass them on.
            MountOption::Context(label) if std::path::Path::new("/sys/fs/selinux/enforce").exists() => {
                asked.mount.labels.push(label.clone());
            }
            MountOption::Remount => asked.remount = true,
            MountOption::Shown(word) => shown.push(word.as_str()),
            MountOption::WithoutEffect(word, why) => asked.without_effect.push((word, why)),
            MountOption::Own(_) | MountOption::Context(_) | MountOption::Nothing => {}
        }
    }
    let as_it_is = [format!("user_id={}", getuid().as_raw()), format!("group_id={}", getgid().as_raw())];
    match shown.iter().find(|word| !asked.remount && !as_it_is.iter().any(|known| known == *word)) {
        Some(word) => Err(Failure::new(format!("-o {word}: the kernel is told this by whoever mounts"))
            .remedy("leave it away; uid=N and gid=N are for the root directory")),
        None => Ok(asked),
    }
}

fn set(mount: &mut pando_fuse::MountOptions, property: Property, on: bool) {
    *match property {
        Property::Suid => &mut mount.suid,
        Property::Dev => &mut mount.dev,
        Property::Exec => &mut mount.exec,
        Property::ReadOnly => &mut mount.read_only,
        Property::NoAtime => &mut mount.no_atime,
        Property::NoDirAtime => &mut mount.no_dir_atime,
        Property::Sync => &mut mount.sync,
        Property::DirSync => &mut mount.dir_sync,
        Property::LazyTime => &mut mount.lazy_time,
        Property::NoSymFollow => &mut mount.no_symfollow,
    } = on;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command, read};

    fn args(words: &str) -> MountArgs {
        let line = ["pando", "mount", "-o", words, "grove"].map(Into::into).to_vec();
        match read(line).unwrap() {
            Cli { command: Command::Mount(args), .. } => args.0,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_later_of_opposites_counts() {
        let asked = fold(&args("suid,dev,nosuid,ro,nonempty,noexec,threads=7,noatime,relatime")).unwrap();
        assert!(!asked.mount.suid && asked.mount.dev && asked.mount.read_only && !asked.mount.exec);
        assert!(!asked.mount.allow_other && !asked.mount.no_atime && !asked.remount);
        assert_eq!(asked.mount.threads.get(), 7);
        assert_eq!(
            fold(&args("defaults,noauto,x-systemd.automount")).unwrap().mount,
            pando_fuse::MountOptions::default()
        );
    }

    #[test]
    fn every_long_option_can_be_a_word() {
        let taken =
            args("size=64M,nr_inodes=1k,mode=1777,uid=5,gid=6,attr_timeout=0.5,birth_times,nonempty,io-uring=never");
        assert_eq!((taken.size, taken.inodes, taken.mode), (Some(64 << 20), Some(1024), 0o1777));
        assert_eq!((taken.uid, taken.gid, taken.attr_timeout.as_millis()), (Some(5), Some(6), 500));
        assert!(taken.birth_times && taken.nonempty);
        assert_eq!(args("delay=\"lookup=1ms,read=2ms\",fault=read=EIO").slow.delay.len(), 2);
        assert_eq!(args("size=1M,size=2M").size, Some(2 << 20), "the later one");
        for argument in MountArgs::augment_args(clap::Command::new("mount")).get_arguments() {
            let Some(long) = argument.get_long() else { continue };
            let found = parse(&long.replace('-', "_"));
            assert!(matches!(found, Ok(MountOption::Own(_))), "{long}: {found:?}");
        }
    }

    #[test]
    fn an_option_of_the_command_line_beats_a_word() {
        let line = ["pando", "-v", "mount", "--size", "3M", "-o", "size=1M,inodes=9", "grove"].map(Into::into).to_vec();
        let Command::Mount(taken) = read(line).unwrap().command else { panic!("another command") };
        assert_eq!((taken.0.size, taken.0.inodes), (Some(3 << 20), Some(9)));
        let line = ["pando", "mount", "-o", "size=1Q", "grove"].map(Into::into).to_vec();
        let refused = read(line).unwrap_err().to_string();
        assert!(refused.contains("1Q") && refused.contains("K, M, G"), "{refused}");
    }

    #[test]
    fn unknown_words_say_what_to_write() {
        for (word, says) in [
            ("swim", "\"swim\""),
            ("size1", "\"size1\""),
            ("umask=022", "mode=BITS"),
            ("entry_timeout=1", "attr_timeout"),
            ("subtype=x", "fuse.pandofs"),
            ("auto_unmount", "leave it away"),
            ("mand", "locks"),
            ("fsname=", "fsname needs a value"),
            ("fsname", "fsname needs a value"),
            ("max_read=x", "number of bytes"),
            ("bind", "mount --bind"),
        ] {
            let message = parse(word).unwrap_err();
            assert!(message.contains(says), "{word}: {message}");
        }
        assert!(fold(&args("user_id=12345")).unwrap_err().to_string().contains("uid=N"));
        assert!(fold(&args("remount,user_id=12345")).unwrap().remount);
    }

    #[test]
    fn commas_may_belong_to_a_word() {
        assert_eq!(split("a,,b=\"c,d\",e\\,f\\\\,"), ["a", "b=c,d", "e,f\\"]);
        for word in ["plain", "a,b\\c\"d"] {
            assert_eq!(split(&escape(word)), [word]);
        }
        let MountOption::Context(label) = parse("context=a:b:s0:c1,c2").unwrap() else { panic!("no label") };
        assert_eq!(label, "context=\"a:b:s0:c1,c2\"");
    }
}
