//! Returns freed memory to the system when a mount has become idle.
//!
//! The allocator keeps freed memory for a second, since it is likely to be used again, and returns
//! it in the course of later calls. On an idle mount there are no later calls. So a thread returns
//! the memory a second after some was freed last.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How long after memory was freed last.
const WHILE: Duration = Duration::from_secs(1);
/// The thread makes few calls, none of them deep.
const STACK_BYTES: usize = 128 << 10;

#[derive(Default)]
struct State {
    /// Memory was freed since the thread looked last. Atomic: a single independent value.
    freed: AtomicBool,
    ended: AtomicBool,
}

pub(super) struct IdleMemory {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

impl IdleMemory {
    /// Starts the thread, which calls `release` when no more memory has been freed for a while.
    ///
    /// # Errors
    /// No thread can be made.
    pub(super) fn start(release: impl Fn() + Send + 'static) -> io::Result<Self> {
        Self::start_with(WHILE, release)
    }

    fn start_with(quiet: Duration, release: impl Fn() + Send + 'static) -> io::Result<Self> {
        let state = Arc::<State>::default();
        let theirs = Arc::clone(&state);
        let thread = thread::Builder::new().name("pando-memory".into()).stack_size(STACK_BYTES);
        let thread = thread.spawn(move || theirs.run(quiet, release))?;
        Ok(Self { state, thread: Some(thread) })
    }

    /// Memory may have been freed. Writes nothing shared if it is called often.
    pub(super) fn freed(&self) {
        if !self.state.freed.load(Ordering::Relaxed) && !self.state.freed.swap(true, Ordering::Relaxed) {
            self.unpark();
        }
    }

    fn unpark(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl State {
    fn run(&self, quiet: Duration, release: impl Fn()) {
        while !self.ended.load(Ordering::Relaxed) {
            if !self.freed.swap(false, Ordering::Relaxed) {
                // An unpark since the last look returns at once, and so does one without a reason.
                thread::park();
                continue;
            }
            let end = Instant::now() + quiet;
            while let Some(left) = end.checked_duration_since(Instant::now())
                && !self.ended.load(Ordering::Relaxed)
            {
                thread::park_timeout(left);
            }
            if !self.ended.load(Ordering::Relaxed) && !self.freed.load(Ordering::Relaxed) {
                release();
            }
        }
    }
}

impl Drop for IdleMemory {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::Relaxed);
        self.unpark();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Seen to fail: no release; a flag that stays set.
    #[test]
    fn freed_memory_is_released_once() {
        let (released, releases) = mpsc::channel();
        let release = move || released.send(()).expect("the test receives");
        let memory = IdleMemory::start_with(Duration::from_millis(1), release).expect("a thread");
        for _ in 0..3 {
            memory.freed();
            assert_eq!(releases.recv_timeout(Duration::from_secs(60)), Ok(()));
        }
        drop(memory);
        assert_eq!(releases.try_iter().count(), 0);
    }

    /// Seen to fail: a release at the end. With a thread that sleeps, the test would take an hour.
    #[test]
    fn end_does_not_wait_for_the_release() {
        let (released, releases) = mpsc::channel();
        let release = move || released.send(()).expect("the test receives");
        let memory = IdleMemory::start_with(Duration::from_secs(3600), release).expect("a thread");
        memory.freed();
        thread::sleep(Duration::from_millis(10));
        drop(memory);
        assert_eq!(releases.try_iter().count(), 0);
    }
}
