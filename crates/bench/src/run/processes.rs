//! Workers that are processes: this program again, with the same arguments and an order in its
//! environment.
//!
//! Threads of one process share its table of open files, its memory and its locks in the kernel.
//! The measurements of 2005 and 2009 used processes. The worker and its parent exchange lines over
//! the worker's standard input and output:
//!
//! ```text
//!   timed     worker: ready            rounds     worker: ready
//!             all:    go                          all:    go            (or count, once warmed up)
//!             all:    count                       worker: done NS
//!             worker: counting                    all:    clean
//!             all:    start                       worker: cleaned
//!             all:    stop                        all:    again         (or end: no more rounds)
//!             worker: its report                  worker: ready ... and after `end` its report
//! ```
//!
//! A worker that fails sends its report early. A worker whose parent has exited is killed by the
//! kernel, wherever it is: in the middle of a round it does not read its input.

use std::{
    env,
    io::{self, BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use crate::{
    base::{
        barrier::Barrier,
        cancel::Cancel,
        child,
        failure::{During, Failure},
        measure::{Latency, peak_memory, reset_peak},
        phase::{Leaving, Phase},
    },
    run::{
        pool::{Job, Sample, sample},
        worker::{Account, Record, Round, RoundSync, rounds, timed},
    },
    target::{self, NO_CACHE, NOT_ALLOWED},
    workload::{Named, Pace, Part, parse_all},
};

/// Environment variable of a worker process; it holds its order.
const WORKER: &str = "PANDO_BENCH_WORKER";

/// The order of a worker.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    workload: String,
    tree: PathBuf,
    seed: u64,
    worker: usize,
    workers: usize,
    latency: bool,
}

/// The result of a worker.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    rounds: Vec<Round>,
    latency: Option<Vec<(u64, u64)>>,
    peak_bytes: u64,
    /// The errno, or a text, of the failure; and the signal, if one has ended a child of the
    /// worker.
    failed: Option<(Option<i32>, String, Option<i32>)>,
}

/// Measures with processes. `name` is the workload's name, and `tree` is the directory where it was
/// prepared.
///
/// # Errors
/// The target's error, or [`Failure::Interrupted`].
pub(crate) fn measure(job: &Job<'_>, name: &str, tree: PathBuf, cancel: &Cancel) -> Result<Sample, Failure> {
    let start = |worker| {
        let seed = job.seed.wrapping_add(worker as u64);
        let (workers, latency) = (job.workers, job.latency);
        Worker::start(&Order { workload: name.into(), tree: tree.clone(), seed, worker, workers, latency })
    };
    let mut workers: Vec<Worker> = (0..job.workers).map(start).collect::<Result<_, _>>()?;
    receive_all(&mut workers, "ready", cancel)?;
    if job.workload.pace() == Pace::Timed {
        send_all(&mut workers, "go")?;
        wait(&mut workers, job.warm_up, cancel)?;
        send_all(&mut workers, "count")?;
        // All begin together: wait for the last one, however crowded the machine is.
        receive_all(&mut workers, "counting", cancel)?;
        send_all(&mut workers, "start")?;
        wait(&mut workers, job.time, cancel)?;
        send_all(&mut workers, "stop")?;
    } else {
        let mut budget = job.budget();
        // At least one round runs.
        loop {
            send_all(&mut workers, if budget.counts() { "count" } else { "go" })?;
            let enough = budget.spend(receive_all(&mut workers, "done", cancel)?);
            send_all(&mut workers, "clean")?;
            receive_all(&mut workers, "cleaned", cancel)?;
            if enough {
                break;
            }
            send_all(&mut workers, "again")?;
            receive_all(&mut workers, "ready", cancel)?;
        }
        send_all(&mut workers, "end")?;
    }
    let reports: Vec<Report> = workers.iter_mut().map(|worker| worker.report(cancel)).collect::<Result<_, _>>()?;
    let peak_bytes = reports.iter().map(|report| report.peak_bytes).sum();
    let record = |report: Report| Record {
        rounds: report.rounds,
        latency: report.latency.map(|counts| Latency::from_counts(&counts)),
    };
    let records: Vec<Record> = reports.into_iter().map(record).collect();
    let nothing = || Failure::Refused(format!("a process of {name} was given no time: measure for longer"));
    sample(&records, peak_bytes).ok_or_else(nothing)
}

fn send_all(workers: &mut [Worker], word: &str) -> Result<(), Failure> {
    workers.iter_mut().try_for_each(|worker| worker.send(word))
}

/// Waits for `time`, or less if a worker sends a line: it has failed.
fn wait(workers: &mut [Worker], time: Duration, cancel: &Cancel) -> Result<(), Failure> {
    const SLICE: Duration = Duration::from_millis(50);
    let until = Instant::now() + time;
    loop {
        if let Some(line) = workers.iter().find_map(|worker| worker.lines.try_recv().ok()) {
            return Err(failed(&line));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return cancel.check();
        }
        cancel.wait(left.min(SLICE))?;
    }
}

/// Waits until all have sent `word`. Returns the number that the first worker sent after it.
fn receive_all(workers: &mut [Worker], word: &str, cancel: &Cancel) -> Result<u64, Failure> {
    let mut number = 0;
    for (n, worker) in workers.iter_mut().enumerate() {
        let line = worker.receive(cancel)?;
        let Some(rest) = line.strip_prefix(word) else { return Err(failed(&line)) };
        if n == 0 {
            number = rest.trim().parse().unwrap_or(0);
        }
    }
    Ok(number)
}

/// A worker process. Dropping it kills it.
struct Worker {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Worker {
    fn start(order: &Order) -> Result<Self, Failure> {
        let during = || "starting a worker process".to_owned();
        let order = serde_json::to_string(order).during(during)?;
        let mut child = Command::new(env::current_exe().during(during)?)
            .args(env::args_os().skip(1))
            .env(WORKER, order)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .during(during)?;
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let (send, lines) = mpsc::channel();
        // Ends with the worker, or when the receiver has been dropped.
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, input, lines })
    }

    fn send(&mut self, word: &str) -> Result<(), Failure> {
        // A worker that has exited does not read. Its report says why it exited.
        match writeln!(self.input, "{word}") {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
        .during(|| "telling a worker process what to do".into())
    }

    fn receive(&mut self, cancel: &Cancel) -> Result<String, Failure> {
        const SLICE: Duration = Duration::from_millis(20);
        loop {
            match self.lines.recv_timeout(SLICE) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Timeout) => cancel.check()?,
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait().during(|| "waiting for a worker process".into())?;
                    return Err(child::failure("measuring", status));
                }
            }
        }
    }

    fn report(&mut self, cancel: &Cancel) -> Result<Report, Failure> {
        let line = self.receive(cancel)?;
        let report: Report = serde_json::from_str(&line).during(|| "reading a worker's report".into())?;
        if report.failed.is_some() { Err(failed(&line)) } else { Ok(report) }
    }
}

/// The failure of a worker that has sent its report early.
fn failed(line: &str) -> Failure {
    let report: Option<Report> = serde_json::from_str(line).ok();
    let (errno, text, signal) = report.and_then(|report| report.failed).unwrap_or((None, line.to_owned(), None));
    let error = match errno {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None if text == io::ErrorKind::Unsupported.to_string() => io::ErrorKind::Unsupported.into(),
        None if [NO_CACHE, NOT_ALLOWED].contains(&&*text) => io::Error::new(io::ErrorKind::Unsupported, text),
        None => child::reported_end(text, signal),
    };
    Failure::Io("measuring".into(), error)
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It has exited, or is no longer needed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a worker process: carries out its order. None if this is not a worker process.
pub(crate) fn serve() -> Option<Result<(), Failure>> {
    let order = env::var(WORKER).ok()?;
    let run = || {
        // The kernel sends the signal when the thread that started this process exits, which is the
        // parent's main thread. If that thread has already exited, standard input is at its end.
        set_parent_process_death_signal(Some(Signal::KILL)).during(|| "tying a worker to its parent".into())?;
        let order: Order = serde_json::from_str(&order).during(|| format!("reading {WORKER}"))?;
        let report = work(&order).unwrap_or_else(|error| Report {
            rounds: Vec::new(),
            latency: None,
            peak_bytes: 0,
            failed: Some((error.raw_os_error(), error.to_string(), child::ended_by(&error))),
        });
        let line = serde_json::to_string(&report).during(|| "reporting".into())?;
        write_line(&line).during(|| "reporting".into())
    };
    Some(run())
}

fn write_line(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// One line from the parent. The end of the input reads as `stop`.
fn read_line() -> String {
    let mut line = String::new();
    match io::stdin().lock().read_line(&mut line) {
        Ok(some) if some > 0 => line.trim().to_owned(),
        _ => "stop".to_owned(),
    }
}

fn work(order: &Order) -> io::Result<Report> {
    let named: Named = order.workload.parse().map_err(io::Error::other)?;
    let specs = parse_all(&[named]);
    let [spec] = &specs[..] else { return Err(io::Error::other("one workload at a time")) };
    let workload = spec.workload();
    let shared = Arc::new((Phase::new(), Barrier::new(2)));
    let (phase, barrier) = &*shared;
    let (seed, worker, workers) = (order.seed, order.worker, order.workers);
    let part = Part { seed, worker, workers, shared: None, phase };
    let mut task = workload.task(part);
    let mut actor = target::attach(order.tree.clone())?;
    let latency = order.latency.then(Latency::new);
    reset_peak();
    // Each worker is alone in its process.
    let account = Account::of(0, &*workload);
    let record = if workload.pace() == Pace::Timed {
        // The listener may block in a read for ever. The worker does not wait for it.
        let listener = Arc::clone(&shared);
        thread::spawn(move || listen(&listener.0, &listener.1));
        let _leaving = Leaving(phase, barrier);
        timed(&mut *task, &mut *actor, (phase, barrier), account, latency)?
    } else {
        rounds(&mut *task, &mut *actor, (phase, &PipeSync(phase)), account, latency)?
    };
    let latency = record.latency.as_ref().map(Latency::counts);
    Ok(Report { rounds: record.rounds, latency, peak_bytes: peak_memory()?, failed: None })
}

/// Turns lines into phases. The worker has begun once it arrives at the barrier.
fn listen(phase: &Phase, barrier: &Barrier) {
    const LATE: Duration = Duration::from_millis(1);
    if !barrier.wait() {
        return;
    }
    // Without a parent that reads, there is no reason to continue.
    if write_line("ready").is_err() {
        phase.advance(Phase::STOP);
    }
    loop {
        match read_line().as_str() {
            "go" => {}
            "count" => {
                phase.advance(Phase::COUNT);
                while phase.counting() == 0 && phase.get() < Phase::STOP {
                    thread::sleep(LATE);
                }
                if write_line("counting").is_err() {
                    phase.advance(Phase::STOP);
                }
            }
            // The worker waits there.
            "start" => _ = barrier.wait_twice(),
            _ => {
                phase.advance(Phase::STOP);
                barrier.break_for_all();
                return;
            }
        }
    }
}

/// Round synchronization of processes: lines from and to the parent.
struct PipeSync<'a>(&'a Phase);

impl RoundSync for PipeSync<'_> {
    fn start(&self) -> bool {
        let word = if write_line("ready").is_ok() { read_line() } else { String::new() };
        if word == "count" {
            self.0.advance(Phase::COUNT);
        }
        word == "count" || word == "go"
    }

    fn finished(&self, round: &Round) -> bool {
        write_line(&format!("done {}", round.ns())).is_ok() && read_line() == "clean"
    }

    fn cleaned(&self) -> bool {
        write_line("cleaned").is_ok() && read_line() == "again"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_operation_of_worker_is_no_failure() {
        for text in [NO_CACHE, NOT_ALLOWED, "unsupported"] {
            let failed = Some((None, text.to_owned(), None));
            let report = Report { rounds: Vec::new(), latency: None, peak_bytes: 0, failed };
            let failure = super::failed(&serde_json::to_string(&report).expect("text"));
            let Failure::Io(_, error) = failure else { panic!("{failure}") };
            assert_eq!((error.kind(), error.to_string().as_str()), (io::ErrorKind::Unsupported, text));
        }
    }
}
