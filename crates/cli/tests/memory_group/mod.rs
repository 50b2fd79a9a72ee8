//! A control group with a limit on memory, for tests that run a command in it.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::common::{heed, skipped};

/// A control group of either version. It is removed when it is dropped.
pub struct MemoryGroup {
    /// The directory of its files.
    pub dir: PathBuf,
}

impl MemoryGroup {
    /// A group with this limit, and no swap. None, after noting a skip, if it cannot be
    /// created.
    pub fn new(limit_bytes: u64) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("it is there");
        let mut reasons = String::from("no control group with a limit on memory:");
        for line in mounts.lines() {
            let Some((mount, superblock)) = line.split_once(" - cgroup") else { continue };
            let file = if superblock.starts_with('2') { "memory.max" } else { "memory.limit_in_bytes" };
            let top = mount.split(' ').nth(4).expect("a mount point");
            let dir = Path::new(top).join(format!("pando-test-{}", std::process::id()));
            match fs::create_dir(&dir).and_then(|()| limit(&dir, file, limit_bytes)) {
                Ok(()) => return Some(Self { dir }),
                Err(error) => reasons += &format!(" {}: {error};", dir.join(file).display()),
            }
            let _ = fs::remove_dir(&dir);
        }
        skipped(&reasons);
        None
    }

    /// A command that moves itself into the group and becomes `program`.
    pub fn command(&self, program: &str) -> Command {
        heed();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.dir.join("cgroup.procs")).arg(program);
        command.env_remove("RUST_LOG").stdin(Stdio::null());
        command
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.dir);
    }
}

fn limit(dir: &Path, file: &str, limit_bytes: u64) -> io::Result<()> {
    // Not fs::write, which would create the file if there is no control group.
    let set = |file: &str, bytes: u64| {
        fs::OpenOptions::new().write(true).open(dir.join(file))?.write_all(bytes.to_string().as_bytes())
    };
    set(file, limit_bytes)?;
    // The file is missing if swap is not accounted.
    let (swap, most) =
        if file == "memory.max" { ("memory.swap.max", 0) } else { ("memory.memsw.limit_in_bytes", limit_bytes) };
    let _ = set(swap, most);
    Ok(())
}
