//! A mounted tree under test.

use std::{
    path::PathBuf,
    sync::mpsc::{Receiver, Sender, channel},
    thread::{self, JoinHandle},
};

use nix::sched::{CloneFlags, unshare};

use crate::{
    generate::Style,
    kernel::Kernel,
    op::{Op, Outcome, Tested, Tree},
};

/// A mount under test.
pub trait Mount: Send {
    /// Where the tree is mounted: an empty root directory, owner 0, mode 0755.
    fn point(&self) -> PathBuf;

    /// Disturbs the tree before operation `index`, for example by dropping caches. It must depend
    /// on nothing else, so that a failure can be reproduced. No path of the file system can be used
    /// here.
    fn disturb(&mut self, index: u64);
}

/// A mounted tree, and a thread that is confined to it.
pub struct Mounted<'a> {
    mount: &'a mut dyn Mount,
    /// None once it ends.
    ops: Option<Sender<Op>>,
    outcomes: Receiver<Outcome>,
    thread: Option<JoinHandle<()>>,
}

impl<'a> Mounted<'a> {
    pub fn new(mount: &'a mut dyn Mount, style: &Style) -> Self {
        let (ops, received) = channel();
        let (sender, outcomes) = channel();
        let (point, style) = (mount.point(), *style);
        let thread = thread::spawn(move || {
            // From here on this thread has a root and a working directory of its own.
            unshare(CloneFlags::CLONE_FS).expect("no permission is needed");
            let mut kernel = Kernel::confined(&point, &style).expect("a mounted directory");
            for op in received {
                sender.send(kernel.apply(&op)).expect("the outcome is waited for");
            }
        });
        let mut mounted = Self { mount, ops: Some(ops), outcomes, thread: Some(thread) };
        // Before the path of the mount becomes unreachable.
        mounted.apply(&Op::Getcwd).expect("the root");
        mounted
    }
}

impl Tree for Mounted<'_> {
    fn apply(&mut self, op: &Op) -> Outcome {
        let ops = self.ops.as_ref().expect("it has not ended");
        ops.send(op.clone()).expect("the thread runs");
        self.outcomes.recv().expect("the thread runs")
    }
}

impl Tested for Mounted<'_> {
    fn apply_disturbed(&mut self, index: u64, op: &Op) -> Outcome {
        self.mount.disturb(index);
        self.apply(op)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        self.ops = None;
        // It keeps the mount busy. If it has panicked, that was reported.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
