//! How a process has ended that is no child of this one, as the server of a mount that somebody has
//! unmounted. Of this, there is no safe wrapper.

use std::{
    fs,
    os::{
        fd::{AsRawFd, BorrowedFd},
        unix::process::ExitStatusExt,
    },
    process::ExitStatus,
};

/// `struct pidfd_info` (Linux 6.13).
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    pid: u32,
    ids: [u32; 10],
    exit_code: i32,
}

/// How the process of a pidfd has ended, which is readable. None: the kernel does not say (before
/// Linux 6.15), or this process may not know.
#[must_use]
pub fn status(process: BorrowedFd<'_>) -> Option<ExitStatus> {
    let info = info(process)?;
    if info.has_exit() {
        return Some(ExitStatus::from_raw(info.exit_code));
    }
    // Its parent has not asked yet.
    let unasked = zombie(info.pid);
    // The number may be that of another process by now.
    match self::info(process)? {
        info if info.has_exit() => Some(ExitStatus::from_raw(info.exit_code)),
        _ => unasked,
    }
}

impl PidfdInfo {
    fn has_exit(&self) -> bool {
        self.mask & u64::from(libc::PIDFD_INFO_EXIT) != 0
    }
}

#[allow(unsafe_code)]
fn info(process: BorrowedFd<'_>) -> Option<PidfdInfo> {
    const { assert!(size_of::<PidfdInfo>() == libc::PIDFD_INFO_SIZE_VER0 as usize) };
    let mask = libc::PIDFD_INFO_PID | libc::PIDFD_INFO_EXIT;
    let mut info = PidfdInfo { mask: mask.into(), ..PidfdInfo::default() };
    // SAFETY: the descriptor is open during the call, which reads and writes the structure, whose
    // size is a part of the call's number.
    let done = unsafe { libc::ioctl(process.as_raw_fd(), libc::PIDFD_GET_INFO, &raw mut info) };
    (done == 0).then_some(info)
}

/// The status of a process that has ended, and that its parent has not asked for.
fn zombie(pid: u32) -> Option<ExitStatus> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may have any characters.
    let fields = stat.rsplit_once(')')?.1.trim();
    let exit_code = fields.rsplit(' ').next()?.parse().ok()?;
    fields.starts_with('Z').then(|| ExitStatus::from_raw(exit_code))
}

#[cfg(test)]
mod tests {
    use std::{os::fd::AsFd, process::Stdio};

    use rustix::{
        event::{PollFd, PollFlags, poll},
        process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
    };

    use super::*;

    /// Before and after its parent has asked.
    #[test]
    fn how_a_process_ended_is_known() {
        for (script, expected) in [("read x; exit 0", 0), ("read x; exit 3", 3 << 8), ("read x; kill -9 $$", 9)] {
            let mut child = pandofs_testkit::shell(script).stdin(Stdio::piped()).spawn().expect("a shell");
            let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("a handle");
            if info(process.as_fd()).is_none() {
                pandofs_testkit::skipped("the kernel does not say how a process ended: Linux 6.15");
                kill_process(Pid::from_child(&child), Signal::KILL).expect("killed");
                child.wait().expect("ended");
                return;
            }
            assert_eq!(status(process.as_fd()), None, "it runs");
            drop(child.stdin.take());
            poll(&mut [PollFd::new(&process, PollFlags::IN)], None).expect("ended");
            assert_eq!(status(process.as_fd()), Some(ExitStatus::from_raw(expected)), "{script}: not asked");
            child.wait().expect("ended");
            assert_eq!(status(process.as_fd()), Some(ExitStatus::from_raw(expected)), "{script}: asked");
        }
    }
}
