//! The words after `-o`: words of mount(8) for any file system, words of FUSE file systems, and
//! each long option of `pando mount`, because fstab has no other place for options.

use rustix::process::geteuid;

/// The meaning of one word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountOption {
    /// Sets a property of the mount on or off.
    Set(Property, bool),
    /// A long option of the command, as in `--threads=4`.
    Own(String),
    /// The source that mount tables show.
    Name(String),
    /// The largest read request, in bytes.
    MaxRead(u32),
    /// A label for a security module, in the form in which mount(8) passes it.
    Context(String),
    /// Changes a mounted tree.
    Remount,
    /// A word that the kernel shows for each FUSE mount, and that mount(8) repeats in a remount.
    Shown(String),
    /// A word that is accepted and has no effect, with the reason. The command prints a warning.
    WithoutEffect(&'static str, &'static str),
    /// A word that mount(8) or systemd reads, or that is in effect anyway.
    Nothing,
}

/// Properties that the kernel keeps for a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // Each has the name of its word.
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

/// The words that set a property on or off.
pub const PROPERTIES: [(&str, Property, bool); 21] = [
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

/// The defaults of mount(8). It does not pass them on.
pub const OF_MOUNT: [&str; 10] =
    ["suid", "dev", "exec", "rw", "atime", "diratime", "async", "nodirsync", "nolazytime", "symfollow"];

/// Words for mount(8), and words that are in effect anyway.
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

/// Prefixes of words for mount(8), udisks or systemd.
const FOR_OTHERS: [&str; 6] = ["x-", "X-", "comment=", "user=", "helper=", "uhelper="];

/// Words of other file systems, and their replacement here.
const INSTEAD: &[(&str, &str)] = &[
    ("nr_blocks", "write size=BYTES instead"),
    ("umask", "write mode=BITS instead, for the root directory; programs have umasks of their own"),
    ("fmask", "write mode=BITS instead, for the root directory"),
    ("dmask", "write mode=BITS instead, for the root directory"),
    ("entry_timeout", "write attr_timeout=SECONDS instead, which is for names and attributes"),
    ("negative_timeout", "write attr_timeout=SECONDS instead, which is for names and attributes"),
    ("ac_attr_timeout", "write attr_timeout=SECONDS instead"),
    ("direct_io", "write attr_timeout=0 instead, if the kernel must ask each time"),
    ("max_threads", "write threads=N instead"),
    ("max_idle_threads", "write threads=N instead"),
    ("auto_unmount", "omit it: the next mount at the same place unmounts the dead mount of a killed server"),
    ("mand", "omit it: a FUSE mount has no mandatory locks"),
    ("blkdev", "omit it: the tree is on no device"),
    ("blksize", "omit it: the tree is on no device"),
    ("bind", "mount(8) does this itself: mount --bind"),
    ("rbind", "mount(8) does this itself: mount --rbind"),
    ("move", "mount(8) does this itself: mount --move"),
];

const STRICT: &str = "atimes are kept as with relatime, because the kernel answers most reads from its caches";

/// Splits a list at its commas. A comma in double quotes or after a backslash belongs to the word.
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

/// Escapes a word so that [`split`] returns it.
pub fn escape(word: &str) -> String {
    word.chars().flat_map(|c| matches!(c, ',' | '\\' | '"').then_some('\\').into_iter().chain([c])).collect()
}

/// Parses all words of one `-o`. `is_own` tells whether the command has a long option of that name.
///
/// # Errors
/// As [`parse`].
pub fn parse_all(text: &str, is_own: fn(&str) -> bool) -> Result<Vec<MountOption>, String> {
    split(text).iter().map(|word| parse(word, is_own)).collect()
}

/// Parses a word. `is_own` tells whether the command has a long option of that name.
///
/// # Errors
/// A message that says what to write instead.
pub fn parse(word: &str, is_own: fn(&str) -> bool) -> Result<MountOption, String> {
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
        "subtype" => return Err("omit subtype: the type is always fuse.pandofs".into()),
        "max_read" => MountOption::MaxRead(with_value(value)?.parse().map_err(|_| "max_read is a number of bytes")?),
        "context" | "fscontext" | "defcontext" | "rootcontext" => {
            MountOption::Context(format!("{key}=\"{}\"", with_value(value)?))
        }
        "user_id" | "group_id" | "rootmode" | "fd" => MountOption::Shown(word.to_owned()),
        "strictatime" => MountOption::WithoutEffect("strictatime", STRICT),
        "iversion" => MountOption::WithoutEffect("iversion", "a FUSE mount counts no versions"),
        // The user who mounts is root, so "that user and root" is root alone, which is the default.
        "allow_root" if geteuid().is_root() => MountOption::Nothing,
        "allow_root" => return Err("write allow_other instead; permission bits then keep others out".into()),
        _ => own(key, value, is_own).ok_or_else(|| unknown(word, key))?,
    })
}

/// A long option of the command. Its words may have `_` for `-`, as usual for mount options.
fn own(key: &str, value: Option<&str>, is_own: fn(&str) -> bool) -> Option<MountOption> {
    let name = if key == "nr_inodes" { "inodes".to_owned() } else { key.replace('_', "-") };
    is_own(&name)
        .then(|| MountOption::Own(value.map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}"))))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_words_name_the_replacement() {
        for (word, says) in [
            ("swim", "\"swim\""),
            ("size1", "\"size1\""),
            ("umask=022", "mode=BITS"),
            ("entry_timeout=1", "attr_timeout"),
            ("subtype=x", "fuse.pandofs"),
            ("auto_unmount", "omit it"),
            ("mand", "locks"),
            ("fsname=", "fsname needs a value"),
            ("fsname", "fsname needs a value"),
            ("max_read=x", "number of bytes"),
            ("bind", "mount --bind"),
        ] {
            let message = parse(word, |_| false).unwrap_err();
            assert!(message.contains(says), "{word}: {message}");
        }
    }

    #[test]
    fn quoted_and_escaped_commas_belong_to_the_word() {
        assert_eq!(split("a,,b=\"c,d\",e\\,f\\\\,"), ["a", "b=c,d", "e,f\\"]);
        for word in ["plain", "a,b\\c\"d"] {
            assert_eq!(split(&escape(word)), [word]);
        }
        let MountOption::Context(label) = parse("context=a:b:s0:c1,c2", |_| false).unwrap() else { panic!("no label") };
        assert_eq!(label, "context=\"a:b:s0:c1,c2\"");
    }
}
