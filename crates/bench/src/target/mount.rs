//! A tree in memory that is mounted, as `pando mount` does it. The system calls are those of
//! `dir=`, and they reach the tree through the kernel. The server's threads are in this process.

use std::{
    io,
    path::PathBuf,
    thread::{self, JoinHandle},
    time::Duration,
};

use pando_fuse::{MountOptions, RingTransport, Server, ServerOptions, Transport, unmount};
use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{Vfs, VfsOptions};
use rustix::process;
use tempfile::TempDir;

use super::{Actor, Session, Target, calls::DirActor};
use crate::base::failure::{During, Failure, print_error};

/// A mounted tree without limits, on a directory of its own.
pub(crate) struct MountTarget;

impl Target for MountTarget {
    fn open(&self) -> Result<Box<dyn Session>, Failure> {
        let point = tempfile::Builder::new().prefix("pando-bench-").tempdir();
        let point = point.during(|| "making a directory to mount on".into())?;
        let (user, group) = (process::getuid().as_raw(), process::getgid().as_raw());
        let vfs = Vfs::with_options(MemFs::new(MemOptions::default()), VfsOptions::new().owner(user, group));
        let server = Server::new(vfs.during(|| "making a tree in memory".into())?, ServerOptions::default());
        let connected = RingTransport { required: false }.connect(server, point.path(), &MountOptions::default());
        let connection = match connected {
            Ok(connection) => connection,
            Err(error) => return Ok(Box::new(NotMounted(error.to_string()))),
        };
        let server = thread::Builder::new().name("serve".into()).spawn(move || connection.serve());
        let session = |server| MountSession { point: Some(point), server };
        match server {
            Ok(server) => Ok(Box::new(session(Some(server)))),
            Err(error) => {
                drop(session(None));
                Err(error).during(|| "starting the server".into())
            }
        }
    }
}

/// How often the end of the mount is waited for, and the time between tries.
const UNMOUNT_TRIES: u32 = 5000;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(1);

/// Why this user cannot mount here.
struct NotMounted(String);

impl Session for NotMounted {
    fn actor(&self) -> io::Result<Box<dyn Actor + '_>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("cannot mount: {}", self.0)))
    }
}

struct MountSession {
    /// None once it is unmounted.
    point: Option<TempDir>,
    server: Option<JoinHandle<io::Result<()>>>,
}

impl MountSession {
    fn root(&self) -> PathBuf {
        self.point.as_ref().expect("only the end takes it").path().to_owned()
    }

    fn end(&mut self) -> Result<(), Failure> {
        let Some(point) = self.point.take() else { return Ok(()) };
        let during = || format!("unmounting {}", point.path().display());
        // A thread with a working directory there has ended, but the kernel may not have released
        // it.
        let busy = |error: &io::Error| error.kind() == io::ErrorKind::ResourceBusy;
        let mut left = UNMOUNT_TRIES;
        while let Err(error) = unmount::cleanly(point.path()) {
            left -= 1;
            if left == 0 || !busy(&error) {
                let failed = Err(error).during(during);
                // It is unmounted when it is no longer in use, and the server ends then. If that
                // fails too, the directory stays, with the mount.
                if unmount::detach(point.path()).is_err() {
                    _ = point.keep();
                }
                return failed;
            }
            thread::sleep(UNMOUNT_PAUSE);
        }
        let Some(server) = self.server.take() else { return Ok(()) };
        // It does not end while another mount namespace has a copy of the mount.
        while !server.is_finished() {
            left -= 1;
            if left == 0 {
                return Err(io::Error::other("another mount namespace still has it")).during(during);
            }
            thread::sleep(UNMOUNT_PAUSE);
        }
        server.join().unwrap_or_else(|_| Err(io::Error::other("the server panicked"))).during(during)
    }
}

impl Drop for MountSession {
    fn drop(&mut self) {
        if let Err(failure) = self.end() {
            print_error(format_args!("pando bench: {failure}"));
        }
    }
}

impl Session for MountSession {
    fn actor(&self) -> io::Result<Box<dyn Actor + '_>> {
        Ok(Box::new(DirActor::at(self.root())?))
    }

    fn tree(&self) -> Option<PathBuf> {
        Some(self.root())
    }

    fn close(mut self: Box<Self>) -> Result<(), Failure> {
        self.end()
    }
}
