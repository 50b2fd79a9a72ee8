//! The words after `-o`, as in fstab(5) and mount(8).

use std::num::NonZeroUsize;

use crate::mountinfo::Mount;

/// One word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // Each is named as the word it stands for.
pub enum MountFlag {
    Suid,
    NoSuid,
    Dev,
    NoDev,
    Exec,
    NoExec,
    ReadOnly,
    ReadWrite,
    Atime,
    NoAtime,
    Sync,
    Async,
    DirSync,
    AllowOther,
    NonEmpty,
    Defaults,
}

const WORDS: [(&str, MountFlag); 16] = [
    ("suid", MountFlag::Suid),
    ("nosuid", MountFlag::NoSuid),
    ("dev", MountFlag::Dev),
    ("nodev", MountFlag::NoDev),
    ("exec", MountFlag::Exec),
    ("noexec", MountFlag::NoExec),
    ("ro", MountFlag::ReadOnly),
    ("rw", MountFlag::ReadWrite),
    ("atime", MountFlag::Atime),
    ("noatime", MountFlag::NoAtime),
    ("sync", MountFlag::Sync),
    ("async", MountFlag::Async),
    ("dirsync", MountFlag::DirSync),
    ("allow_other", MountFlag::AllowOther),
    ("nonempty", MountFlag::NonEmpty),
    ("defaults", MountFlag::Defaults),
];

impl MountFlag {
    /// The flag of a word.
    ///
    /// # Errors
    /// A message with all the words there are, and the options for what others write as `-o size=1G`.
    pub fn parse(word: &str) -> Result<Self, String> {
        if let Some((_, flag)) = WORDS.iter().find(|(known, _)| *known == word) {
            return Ok(*flag);
        }
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        if let "size" | "uid" | "gid" | "mode" = key {
            let value = if value.is_empty() { "VALUE" } else { value };
            return Err(format!("write --{key} {value} instead"));
        }
        let known: Vec<&str> = WORDS.iter().map(|(known, _)| *known).collect();
        Err(format!("there is no mount option {word:?}: there are {}", known.join(", ")))
    }
}

/// What all the words together ask for. Of opposites, the later one counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// What the kernel and the transport are told.
    pub mount: pando_fuse::MountOptions,
    /// Mount over a directory with entries.
    pub nonempty: bool,
}

impl Asked {
    /// The words that were asked for and are not in effect on what was mounted.
    ///
    /// fusermount3 mounts for users with nosuid and nodev whatever they ask, and we send it no words that it knows better
    /// than to follow. It goes on after a word of warning, and so do we: the tree does what else was asked of it, and what
    /// is missing is a danger less. mount(8) would refuse, but it refuses users all of -o, which fusermount3 does not.
    pub fn ignored(&self, mount: &Mount) -> Vec<&'static str> {
        let without = |asked, opposite, word| (asked && mount.has(opposite)).then_some(word);
        let words = [without(self.mount.suid, "nosuid", "suid"), without(self.mount.dev, "nodev", "dev")];
        words.into_iter().flatten().collect()
    }
}

/// Adds the words up.
pub fn fold(flags: &[MountFlag], threads: Option<NonZeroUsize>) -> Asked {
    let mut asked = Asked { mount: pando_fuse::MountOptions::default(), nonempty: false };
    let mount = &mut asked.mount;
    mount.threads = threads.unwrap_or(mount.threads);
    for flag in flags {
        match flag {
            MountFlag::Suid => mount.suid = true,
            MountFlag::NoSuid => mount.suid = false,
            MountFlag::Dev => mount.dev = true,
            MountFlag::NoDev => mount.dev = false,
            MountFlag::Exec => mount.exec = true,
            MountFlag::NoExec => mount.exec = false,
            MountFlag::ReadOnly => mount.read_only = true,
            MountFlag::ReadWrite => mount.read_only = false,
            MountFlag::Atime => mount.no_atime = false,
            MountFlag::NoAtime => mount.no_atime = true,
            MountFlag::Sync => mount.sync = true,
            MountFlag::Async => mount.sync = false,
            MountFlag::DirSync => mount.dir_sync = true,
            MountFlag::AllowOther => mount.allow_other = true,
            MountFlag::NonEmpty => asked.nonempty = true,
            MountFlag::Defaults => {}
        }
    }
    asked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_of_opposites_counts() {
        let flags: Vec<_> =
            "suid,dev,nosuid,ro,nonempty,noexec".split(',').map(|word| MountFlag::parse(word).unwrap()).collect();
        let asked = fold(&flags, NonZeroUsize::new(7));
        assert!(!asked.mount.suid && asked.mount.dev && asked.mount.read_only && !asked.mount.exec);
        assert!(asked.nonempty && !asked.mount.allow_other);
        assert_eq!(asked.mount.threads.get(), 7);
        assert_eq!(fold(&[], None).mount, pando_fuse::MountOptions::default());
    }

    #[test]
    fn unknown_words_are_answered_with_the_known() {
        let message = MountFlag::parse("swim").unwrap_err();
        assert!(message.contains("\"swim\"") && message.contains("noatime"));
        assert_eq!(MountFlag::parse("size=1G").unwrap_err(), "write --size 1G instead");
        assert_eq!(MountFlag::parse("uid").unwrap_err(), "write --uid VALUE instead");
    }
}
