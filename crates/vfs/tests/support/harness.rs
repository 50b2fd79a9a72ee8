//! Tests with many threads: bounded work, printed seeds, and a watchdog that prints the stacks of a
//! hang.
//!
//! Only the watchdog depends on time. It acts only if *no* thread of a run has made a step for a
//! whole minute. Then it prints the stack of every thread and aborts.
//!
//! | variable | meaning | default |
//! | --- | --- | --- |
//! | `PANDO_STRESS_FACTOR` | multiplies the work of each test | 1 |
//! | `PANDO_STRESS_SEED` | the seed of all random choices | random, printed when a test fails |
//! | `PANDO_STRESS_STALL_S` | seconds without a step that count as a hang | 60 |

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

use pandofs_testkit::number;

/// The number of threads of a run. It is larger than the number of cores of a small machine, so
/// that threads are preempted anywhere.
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

/// `n` times the factor from the environment.
pub fn scale(n: usize) -> usize {
    n * number("PANDO_STRESS_FACTOR").map_or(1, |factor| factor.max(1) as usize)
}

/// The seed of a test. It is printed, and shown if the test fails.
pub fn seed() -> u64 {
    let seed = number("PANDO_STRESS_SEED").unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("PANDO_STRESS_SEED={seed}");
    seed
}

/// Serializes the tests of a process: each has more threads than there are cores, and retired
/// memory is counted for the whole process.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The step counter of one thread, on a cache line of its own. It is written by plain stores. A
/// read-modify-write would be a barrier between any two operations, and hide the reorderings that
/// these tests look for.
#[repr(align(128))]
#[derive(Default)]
struct Steps(AtomicU64);

/// One thread of a run.
pub struct Worker<'c> {
    /// Its number, from 0.
    pub id: usize,
    /// Its own random numbers.
    pub rng: Rng,
    steps: &'c Steps,
    failed: &'c AtomicBool,
    barrier: &'c Barrier,
    met: usize,
}

impl Worker<'_> {
    /// Counts a step, and yields the CPU from time to time. Returns false if another thread has
    /// failed.
    pub fn go_on(&mut self) -> bool {
        self.steps.0.store(self.steps.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if self.rng.one_in(8) {
            std::thread::yield_now();
        }
        !self.failed.load(Ordering::Relaxed)
    }

    /// Waits for all other threads of the run. All must call this equally often. They leave as
    /// close together as the scheduler permits.
    pub fn meet(&mut self) {
        self.met += 1;
        self.barrier.arrived.fetch_add(1, Ordering::SeqCst);
        let mut spins = 0;
        while self.barrier.arrived.load(Ordering::SeqCst) < self.met * self.barrier.threads {
            assert!(!self.failed.load(Ordering::Relaxed), "another thread has failed");
            // Spins for a while, since a thread that is awake leaves at once.
            spins += 1;
            if spins < 2000 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }
}

/// The barrier of a run. Unlike `std`'s, it fails when another thread has failed.
struct Barrier {
    threads: usize,
    arrived: AtomicUsize,
}

/// Tells the other threads when a thread panics, so that none waits for it.
struct FailOnPanic<'c>(&'c AtomicBool);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Runs `body` on `threads` threads that start together, under the watchdog. Fails if one of them
/// does.
pub fn run_workers(what: &str, threads: usize, seed: u64, body: impl Fn(&mut Worker<'_>) + Sync) {
    let steps_of: Vec<Steps> = (0..threads).map(|_| Steps::default()).collect();
    let (failed, barrier) = (AtomicBool::new(false), Barrier { threads, arrived: AtomicUsize::new(0) });
    let (done, wake) = (Mutex::new(false), Condvar::new());
    std::thread::scope(|scope| {
        scope.spawn(|| watch(what, seed, &steps_of, &done, &wake));
        let workers: Vec<_> = (0..threads)
            .map(|id| {
                let (steps, failed, barrier, body) = (&steps_of[id], &failed, &barrier, &body);
                scope.spawn(move || {
                    let _fail_on_panic = FailOnPanic(failed);
                    let rng = Rng::new(seed ^ (id as u64 + 1).wrapping_mul(0xa076_1d64_78bd_642f));
                    let mut worker = Worker { id, rng, steps, failed, barrier, met: 0 };
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

/// Aborts with all stacks if no thread makes a step for long.
fn watch(what: &str, seed: u64, steps_of: &[Steps], done: &Mutex<bool>, wake: &Condvar) {
    let stall_s = number("PANDO_STRESS_STALL_S").unwrap_or(60);
    let steps = || steps_of.iter().map(|steps| steps.0.load(Ordering::Relaxed)).sum::<u64>();
    let (mut last, mut quiet_s) = (steps(), 0);
    let mut guard = done.lock().unwrap_or_else(PoisonError::into_inner);
    while !*guard {
        let (next, wait) = wake.wait_timeout(guard, Duration::from_secs(1)).unwrap_or_else(PoisonError::into_inner);
        guard = next;
        let now = steps();
        quiet_s = if now == last && wait.timed_out() { quiet_s + 1 } else { 0 };
        last = now;
        if !*guard && quiet_s >= stall_s {
            // Not by `eprintln`: the output of a test is captured, and an abort would lose it.
            let text = format!("\nHANG in {what}: no step for {quiet_s} s. PANDO_STRESS_SEED={seed}\n{}", stacks());
            let _ = std::io::stderr().write_all(text.as_bytes());
            std::process::abort();
        }
    }
}

/// The stack of every thread, from gdb. Without gdb, the kernel's information about each thread.
fn stacks() -> String {
    let pid = std::process::id().to_string();
    // gdb stops this process, so another process must stop gdb if it hangs.
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
