//! The same for every program at a mount, without a library: fanotify reports which directories are
//! opened.

use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    path::Path,
    sync::Arc,
};

use nix::{
    errno::Errno,
    sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags},
};

use crate::{
    helper::{Helper, Options},
    posts::{Links, Post},
    schedule::Totals,
};

/// Watches the mount of a path.
#[derive(Debug)]
pub struct Watch {
    events: Fanotify,
    helper: Arc<Helper>,
}

impl Watch {
    /// Begins to watch the mount of `path`, all of it, wherever the path is in it.
    ///
    /// # Errors
    /// `EPERM` without the capability `CAP_SYS_ADMIN`. `ENOENT` and others for the path. `ENOSYS`
    /// without fanotify.
    pub fn start(path: &Path, options: Options) -> io::Result<Self> {
        let flags = InitFlags::FAN_CLASS_NOTIF | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
        // The kernel opens each file for the helper too. It must not wait for a pipe without a
        // process at its other end.
        let event = EventFFlags::O_RDONLY | EventFFlags::O_LARGEFILE | EventFFlags::O_CLOEXEC | EventFFlags::O_NONBLOCK;
        let events = Fanotify::init(flags, event)?;
        let here = fs::File::open("/")?;
        let absolute = std::path::absolute(path)?;
        let mark = |flags, mask| {
            events.mark(MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_MOUNT | flags, mask, &here, Some(&absolute))
        };
        // Other files than directories are ignored, as far as the kernel (6.0) can: opening them
        // for the helper may cost a server a request.
        let _ = mark(MarkFlags::FAN_MARK_IGNORE_SURV, MaskFlags::FAN_OPEN);
        mark(MarkFlags::empty(), MaskFlags::FAN_OPEN | MaskFlags::FAN_ONDIR)?;
        Ok(Self { events, helper: Helper::new(options, None) })
    }

    /// Takes in some events. To be called as long as the descriptor is readable.
    ///
    /// # Errors
    /// Reading events failed, for another reason than that there are none, or that a file could not
    /// be opened.
    pub fn take(&self) -> io::Result<()> {
        let own = i32::try_from(std::process::id()).expect("as the kernel has it");
        let events = match self.events.read_events() {
            Ok(events) => events,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(()),
            Err(error @ (Errno::EBADF | Errno::EFAULT)) => return Err(error.into()),
            // Any other error is one of the file system, when the kernel opened the directory for
            // the helper. The event is lost.
            Err(error) => {
                tracing::debug!(%error, "an event without its directory");
                return Ok(());
            }
        };
        for event in &events {
            // The helper's own opens are ignored. Without a descriptor, the queue has overflowed.
            let Some(descriptor) = event.fd().filter(|_| event.pid() != own) else { continue };
            let is_directory = rustix::fs::fstat(descriptor)
                .is_ok_and(|found| rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir());
            if is_directory && let Ok(directory) = descriptor.try_clone_to_owned() {
                self.helper
                    .reported(Post { directory, token: 0, seen: u64::MAX, position: 0, links: Links::Unread }, true);
            }
        }
        Ok(())
    }

    /// Whether the kernel has dropped the mark with the mount. A mount that was detached while in
    /// use stays, as it does for its users. No event reports this, so it is to be called now and
    /// then.
    pub fn is_over(&self) -> bool {
        let shown = format!("/proc/self/fdinfo/{}", self.events.as_fd().as_raw_fd());
        let has_none = |text: String| text.contains("fanotify flags:") && !text.contains("fanotify mnt_id:");
        fs::read_to_string(shown).is_ok_and(has_none)
    }

    /// Ends it.
    pub fn finish(self) -> Totals {
        self.helper.stop()
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
