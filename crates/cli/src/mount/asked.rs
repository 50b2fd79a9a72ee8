//! The mount that the words after `-o` and the other options request together.

use std::path::Path;

use pando_console::{
    failure::{Failure, Result},
    mountinfo::Mount,
};
use pando_fuse::Threads;
use rustix::process::{getgid, getuid};

use super::{
    args::MountArgs,
    options::{MountOption, OF_MOUNT, PROPERTIES, Property},
};

/// How many threads there may be beyond one per core, for requests that wait for a source or a
/// store.
const WAITING_THREADS: usize = 64;

/// The request as a whole. Of two opposite words the later one counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The options for the kernel and the transport.
    pub mount: pando_fuse::MountOptions,
    /// Properties that were set, in order.
    pub set: Vec<(Property, bool)>,
    /// Whether to change a mounted tree.
    pub remount: bool,
    /// Words without effect, each with the reason.
    pub without_effect: Vec<(&'static str, &'static str)>,
}

impl Asked {
    /// The words that were given but are not in effect on the mount.
    ///
    /// For users, fusermount3 always mounts with nosuid and nodev, and it knows few other words.
    /// The transport does not send it words that it would refuse. fusermount3 warns and goes on,
    /// and so does this command: the other words have their effect, and the missing ones only make
    /// the mount safer. mount(8) would refuse, but mount(8) refuses users all of -o, which
    /// fusermount3 does not.
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

/// Combines the words and the other options.
///
/// # Errors
/// A word that makes sense only with `remount`.
pub fn fold(args: &MountArgs) -> Result<Asked> {
    let mount = pando_fuse::MountOptions {
        allow_other: args.allow_other,
        readdirplus: !args.injector.no_readdirplus,
        passthrough: args.source.is_some(),
        ..pando_fuse::MountOptions::default()
    };
    let mut asked = Asked { mount, set: Vec::new(), remount: false, without_effect: Vec::new() };
    match args.threads {
        Some(number) => asked.mount.threads = Threads::exactly(number),
        // Calls of the source, and those that flush, may wait.
        None if args.is_backed() => {
            asked.mount.threads.most = asked.mount.threads.least.saturating_add(WAITING_THREADS);
        }
        None => {}
    }
    let mut shown = Vec::new();
    let all = || args.options.iter().flatten();
    // mount(8) omits words that are its defaults, so a default that is missing in its complete list
    // is in effect. The list is complete if it repeats the words that the kernel shows.
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
            // Without SELinux, mount(8) accepts labels and does not pass them on.
            MountOption::Context(label) if Path::new("/sys/fs/selinux/enforce").exists() => {
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
        Some(word) => Err(Failure::new(format!("-o {word}: the mounting process tells the kernel this"))
            .remedy("omit it; uid=N and gid=N are for the root directory")),
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

    fn args(words: &str) -> MountArgs {
        MountArgs::read(&["-o", words, "grove"].map(Into::into)).unwrap()
    }

    #[test]
    fn the_later_of_two_opposite_words_counts() {
        let asked = fold(&args("suid,dev,nosuid,ro,nonempty,noexec,threads=7,noatime,relatime")).unwrap();
        assert!(!asked.mount.suid && asked.mount.dev && asked.mount.read_only && !asked.mount.exec);
        assert!(!asked.mount.allow_other && !asked.mount.no_atime && !asked.remount);
        assert_eq!(asked.mount.threads.most.get(), 7);
        assert_eq!(
            fold(&args("defaults,noauto,x-systemd.automount")).unwrap().mount,
            pando_fuse::MountOptions::default()
        );
    }

    #[test]
    fn user_id_is_refused_except_in_a_remount() {
        assert!(fold(&args("user_id=12345")).unwrap_err().to_string().contains("uid=N"));
        assert!(fold(&args("remount,user_id=12345")).unwrap().remount);
    }
}
