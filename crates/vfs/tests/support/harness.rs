//! Many threads, bounded work, printed seeds, and a watchdog that shows where a hang hangs.
//!
//! Nothing here decides by time but the watchdog, and that one only speaks when *no* thread of a crew has made a step
//! for a whole minute: then it prints every thread's stack and aborts.
//!
//! | variable | meaning | default |
//! | --- | --- | --- |
//! | `PANDO_STRESS_FACTOR` | multiplies the work of each test | 1 |
//! | `PANDO_STRESS_SEED` | the seed of all random choices | random, printed when a test fails |
//! | `PANDO_STRESS_STALL_S` | seconds without a step that count as a hang | 60 |

mod number;
mod splitmix;

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    io::Write,
    process::{Command, Stdio},
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use number::number;

/// As many threads as a crew has: more than the cores of a small machine, so that they are preempted anywhere.
pub const THREADS: usize = 16;

/// A small generator of random numbers.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn next(&mut self) -> u64 {
        splitmix::next(&mut self.0)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// `n` times what the environment asks for.
pub fn scale(n: usize) -> usize {
    n * number("PANDO_STRESS_FACTOR").map_or(1, |factor| factor.max(1) as usize)
}

/// The seed of a test: printed, and shown if the test fails.
pub fn seed() -> u64 {
    let seed = number("PANDO_STRESS_SEED").unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("PANDO_STRESS_SEED={seed}");
    seed
}

/// One test at a time: each has more threads than there are cores, and retired memory is counted for the whole process.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The steps of one thread, on a line of its own. Written by plain stores: a read-modify-write would put a barrier
/// between any two operations, and hide the reorderings that these tests are after.
#[repr(align(128))]
#[derive(Default)]
struct Beat(AtomicU64);

/// One thread of a crew.
pub struct Worker<'c> {
    /// Its number, from 0.
    pub id: usize,
    /// Its own random choices.
    pub rng: Rng,
    beat: &'c Beat,
    failed: &'c AtomicBool,
    barrier: &'c Barrier,
    met: usize,
}

impl Worker<'_> {
    /// Counts a step, gives way now and then, and says whether to go on: not if another thread has failed.
    pub fn go_on(&mut self) -> bool {
        self.beat.0.store(self.beat.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if self.rng.one_in(8) {
            std::thread::yield_now();
        }
        !self.failed.load(Ordering::Relaxed)
    }

    /// Waits for all other threads of the crew; all must call it equally often. They leave it as close together as the
    /// scheduler lets them.
    pub fn meet(&mut self) {
        self.met += 1;
        self.barrier.arrived.fetch_add(1, Ordering::SeqCst);
        let mut spins = 0;
        while self.barrier.arrived.load(Ordering::SeqCst) < self.met * self.barrier.threads {
            assert!(!self.failed.load(Ordering::Relaxed), "another thread has failed");
            // Awake for a while: who is awake leaves at once.
            spins += 1;
            if spins < 2000 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }
}

/// Where a crew meets: unlike `std`'s, it lets go when a thread fails.
struct Barrier {
    threads: usize,
    arrived: AtomicUsize,
}

/// Tells the others when a thread panics, so that none waits for it.
struct Alarm<'c>(&'c AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Runs `body` on `threads` threads that start together, under the watchdog; fails if one of them does.
pub fn crew(what: &str, threads: usize, seed: u64, body: impl Fn(&mut Worker<'_>) + Sync) {
    let beats: Vec<Beat> = (0..threads).map(|_| Beat::default()).collect();
    let (failed, barrier) = (AtomicBool::new(false), Barrier { threads, arrived: AtomicUsize::new(0) });
    let (done, wake) = (Mutex::new(false), Condvar::new());
    std::thread::scope(|scope| {
        scope.spawn(|| watch(what, seed, &beats, &done, &wake));
        let workers: Vec<_> = (0..threads)
            .map(|id| {
                let (beat, failed, barrier, body) = (&beats[id], &failed, &barrier, &body);
                scope.spawn(move || {
                    let _alarm = Alarm(failed);
                    let rng = Rng::new(seed ^ (id as u64 + 1).wrapping_mul(0xa076_1d64_78bd_642f));
                    let mut worker = Worker { id, rng, beat, failed, barrier, met: 0 };
                    worker.meet();
                    body(&mut worker);
                })
            })
            .collect();
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        *done.lock().unwrap_or_else(PoisonError::into_inner) = true;
        wake.notify_all();
        for result in results {
            if let Err(panic) = result {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

/// Aborts with all stacks when no thread has made a step for long.
fn watch(what: &str, seed: u64, beats: &[Beat], done: &Mutex<bool>, wake: &Condvar) {
    let stall_s = number("PANDO_STRESS_STALL_S").unwrap_or(60);
    let steps = || beats.iter().map(|beat| beat.0.load(Ordering::Relaxed)).sum::<u64>();
    let (mut last, mut quiet_s) = (steps(), 0);
    let mut guard = done.lock().unwrap_or_else(PoisonError::into_inner);
    while !*guard {
        let (next, wait) = wake.wait_timeout(guard, Duration::from_secs(1)).unwrap_or_else(PoisonError::into_inner);
        guard = next;
        let now = steps();
        quiet_s = if now == last && wait.timed_out() { quiet_s + 1 } else { 0 };
        last = now;
        if !*guard && quiet_s >= stall_s {
            // Not by `eprintln`: what a test prints is captured, and an abort would lose it.
            let text = format!("\nHANG in {what}: no step for {quiet_s} s. PANDO_STRESS_SEED={seed}\n{}", stacks());
            let _ = std::io::stderr().write_all(text.as_bytes());
            std::process::abort();
        }
    }
}

/// Every thread's stack: from gdb, or what the kernel tells of each thread.
fn stacks() -> String {
    let pid = std::process::id().to_string();
    // gdb stops this process, so it is another one that stops gdb if it hangs.
    let gdb = Command::new("timeout")
        .args(["-s", "KILL", "30", "gdb", "-p", &pid, "-batch", "-nx", "-ex", "thread apply all bt 40"])
        .stdin(Stdio::null())
        .output();
    if let Ok(output) = gdb {
        let text = String::from_utf8_lossy(&output.stdout);
        if text.contains("#0") {
            return text.into_owned();
        }
    }
    let mut text = String::from("(no gdb; thread, name, waits in, system call)\n");
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let (comm, wchan, syscall) = (read("comm"), read("wchan"), read("syscall"));
        text +=
            &format!("{} {} {} {}\n", task.file_name().to_string_lossy(), comm.trim(), wchan.trim(), syscall.trim());
    }
    text
}
