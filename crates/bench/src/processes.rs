//! Workers that are processes: this program again, with the same arguments and an order in its environment.
//!
//! Threads of one process share its table of open files, its memory and its locks in the kernel; the measurements of
//! 2005 and 2009 used processes. Worker and conductor talk in lines, over the worker's standard input and output:
//!
//! ```text
//!   timed     worker: ready            rounds     worker: ready
//!             all:    go                          all:    go            (or count, once warmed up)
//!             all:    count                       worker: done NS
//!             worker: counting                    all:    clean
//!             all:    start                       worker: cleaned
//!             all:    stop                        all:    again         (or end: no further round)
//!             worker: its report                  worker: ready ... and after `end` its report
//! ```
//!
//! A worker that fails sends its report early. A worker whose conductor is gone is killed, wherever it is: in the midst of a round
//! it reads nothing.

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
    child,
    crew::{Job, Sample, sample},
    failure::{Failure, While},
    gate::Gate,
    halt::Halt,
    measure::{Latency, forget_peak, peak_memory},
    target::{self, NO_CACHE, NOT_ALLOWED},
    work::{Account, Beat, Leaving, Phase, Record, Round, rounds, timed},
    workload::{Named, Pace, Part, parse_all},
};

/// Set in a process that is a worker: what it is to do.
const WORKER: &str = "PANDO_BENCH_WORKER";

/// What a worker is to do.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    workload: String,
    tree: PathBuf,
    seed: u64,
    worker: usize,
    workers: usize,
    latency: bool,
}

/// What a worker found.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    rounds: Vec<Round>,
    latency: Option<Vec<(u64, u64)>>,
    peak_bytes: u64,
    /// The errno, or a text, of what went wrong; and the signal, if one has ended a process of the worker's.
    failed: Option<(Option<i32>, String, Option<i32>)>,
}

/// Measures with processes. `name` is the workload's, `tree` where it was prepared.
///
/// # Errors
/// What the target answers, or that the run is to end.
pub(crate) fn measure(job: &Job<'_>, name: &str, tree: PathBuf, halt: &Halt) -> Result<Sample, Failure> {
    let start = |worker| {
        let seed = job.seed.wrapping_add(worker as u64);
        let (workers, latency) = (job.workers, job.latency);
        Worker::start(&Order { workload: name.into(), tree: tree.clone(), seed, worker, workers, latency })
    };
    let mut crew: Vec<Worker> = (0..job.workers).map(start).collect::<Result<_, _>>()?;
    hear_all(&mut crew, "ready", halt)?;
    if job.workload.pace() == Pace::Timed {
        tell_all(&mut crew, "go")?;
        wait(&mut crew, job.warm_up, halt)?;
        tell_all(&mut crew, "count")?;
        // All begin together: the last one is waited for, however crowded the machine.
        hear_all(&mut crew, "counting", halt)?;
        tell_all(&mut crew, "start")?;
        wait(&mut crew, job.time, halt)?;
        tell_all(&mut crew, "stop")?;
    } else {
        let mut budget = job.budget();
        // One round at least.
        loop {
            tell_all(&mut crew, if budget.counts() { "count" } else { "go" })?;
            let enough = budget.spend(hear_all(&mut crew, "done", halt)?);
            tell_all(&mut crew, "clean")?;
            hear_all(&mut crew, "cleaned", halt)?;
            if enough {
                break;
            }
            tell_all(&mut crew, "again")?;
            hear_all(&mut crew, "ready", halt)?;
        }
        tell_all(&mut crew, "end")?;
    }
    let reports: Vec<Report> = crew.iter_mut().map(|worker| worker.report(halt)).collect::<Result<_, _>>()?;
    let peak_bytes = reports.iter().map(|report| report.peak_bytes).sum();
    let record = |report: Report| Record {
        rounds: report.rounds,
        latency: report.latency.map(|counts| Latency::from_counts(&counts)),
    };
    let records: Vec<Record> = reports.into_iter().map(record).collect();
    let nothing = || Failure::Refused(format!("a process of {name} was given no time: measure for longer"));
    sample(&records, peak_bytes).ok_or_else(nothing)
}

fn tell_all(crew: &mut [Worker], word: &str) -> Result<(), Failure> {
    crew.iter_mut().try_for_each(|worker| worker.tell(word))
}

/// Lets `time` pass, or less if a worker has something to say: that it has failed.
fn wait(crew: &mut [Worker], time: Duration, halt: &Halt) -> Result<(), Failure> {
    const SLICE: Duration = Duration::from_millis(50);
    let until = Instant::now() + time;
    loop {
        if let Some(line) = crew.iter().find_map(|worker| worker.lines.try_recv().ok()) {
            return Err(failed(&line));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return halt.check();
        }
        halt.wait(left.min(SLICE))?;
    }
}

/// Waits until all have said `word`; returns the number that the first one said after it.
fn hear_all(crew: &mut [Worker], word: &str, halt: &Halt) -> Result<u64, Failure> {
    let mut number = 0;
    for (n, worker) in crew.iter_mut().enumerate() {
        let line = worker.hear(halt)?;
        let Some(rest) = line.strip_prefix(word) else { return Err(failed(&line)) };
        if n == 0 {
            number = rest.trim().parse().unwrap_or(0);
        }
    }
    Ok(number)
}

/// A worker process. Dropping it ends it.
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
        // Ends with the worker, or when nobody listens any more.
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, input, lines })
    }

    fn tell(&mut self, word: &str) -> Result<(), Failure> {
        // A worker that has ended does not listen; it has said why.
        match writeln!(self.input, "{word}") {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
        .during(|| "telling a worker process what to do".into())
    }

    fn hear(&mut self, halt: &Halt) -> Result<String, Failure> {
        const SLICE: Duration = Duration::from_millis(20);
        loop {
            match self.lines.recv_timeout(SLICE) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Timeout) => halt.check()?,
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait().during(|| "waiting for a worker process".into())?;
                    return Err(child::failure("measuring", status));
                }
            }
        }
    }

    fn report(&mut self, halt: &Halt) -> Result<Report, Failure> {
        let line = self.hear(halt)?;
        let report: Report = serde_json::from_str(&line).during(|| "reading a worker's report".into())?;
        if report.failed.is_some() { Err(failed(&line)) } else { Ok(report) }
    }
}

/// Why a worker has sent its report early.
fn failed(line: &str) -> Failure {
    let report: Option<Report> = serde_json::from_str(line).ok();
    let (errno, text, signal) = report.and_then(|report| report.failed).unwrap_or((None, line.to_owned(), None));
    let error = match errno {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None if text == io::ErrorKind::Unsupported.to_string() => io::ErrorKind::Unsupported.into(),
        None if [NO_CACHE, NOT_ALLOWED].contains(&&*text) => io::Error::new(io::ErrorKind::Unsupported, text),
        None => child::said_to_have_ended(text, signal),
    };
    Failure::Io("measuring".into(), error)
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It has ended, or is not needed any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a worker process: does what it is to do. None: this is no worker process.
pub(crate) fn serve() -> Option<Result<(), Failure>> {
    let order = env::var(WORKER).ok()?;
    let run = || {
        // Strictly, when the thread is gone that started this process: the conductor's main thread. If it is gone already, the input
        // has an end.
        set_parent_process_death_signal(Some(Signal::KILL)).during(|| "tying a worker to its conductor".into())?;
        let order: Order = serde_json::from_str(&order).during(|| format!("reading {WORKER}"))?;
        let report = work(&order).unwrap_or_else(|error| Report {
            rounds: Vec::new(),
            latency: None,
            peak_bytes: 0,
            failed: Some((error.raw_os_error(), error.to_string(), child::ended_by(&error))),
        });
        let line = serde_json::to_string(&report).during(|| "reporting".into())?;
        say(&line).during(|| "reporting".into())
    };
    Some(run())
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// One line from the conductor; the end of the input is `stop`.
fn hear() -> String {
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
    let shared = Arc::new((Phase::new(), Gate::new(2)));
    let (phase, gate) = &*shared;
    let (seed, worker, workers) = (order.seed, order.worker, order.workers);
    let part = Part { seed, worker, workers, shared: None, phase };
    let mut task = workload.task(part);
    let mut actor = target::attach(order.tree.clone())?;
    let latency = order.latency.then(Latency::new);
    forget_peak();
    // Each is alone in its process.
    let account = Account::of(0, &*workload);
    let record = if workload.pace() == Pace::Timed {
        // The listener may sit in a read for ever; the worker does not wait for it.
        let listener = Arc::clone(&shared);
        thread::spawn(move || listen(&listener.0, &listener.1));
        let _leaving = Leaving(phase, gate);
        timed(&mut *task, &mut *actor, (phase, gate), account, latency)?
    } else {
        rounds(&mut *task, &mut *actor, (phase, &Lines(phase)), account, latency)?
    };
    let latency = record.latency.as_ref().map(Latency::counts);
    Ok(Report { rounds: record.rounds, latency, peak_bytes: peak_memory()?, failed: None })
}

/// Turns lines into phases. The worker has begun once it comes to the gate.
fn listen(phase: &Phase, gate: &Gate) {
    const LATE: Duration = Duration::from_millis(1);
    if !gate.wait() {
        return;
    }
    // Nobody who listens is nobody to go on for.
    if say("ready").is_err() {
        phase.advance(Phase::STOP);
    }
    loop {
        match hear().as_str() {
            "go" => {}
            "count" => {
                phase.advance(Phase::COUNT);
                while phase.counting() == 0 && phase.get() < Phase::STOP {
                    thread::sleep(LATE);
                }
                if say("counting").is_err() {
                    phase.advance(Phase::STOP);
                }
            }
            // Where the worker waits.
            "start" => _ = gate.let_read(),
            _ => {
                phase.advance(Phase::STOP);
                gate.break_open();
                return;
            }
        }
    }
}

/// Rounds by lines.
struct Lines<'a>(&'a Phase);

impl Beat for Lines<'_> {
    fn start(&self) -> bool {
        let word = if say("ready").is_ok() { hear() } else { String::new() };
        if word == "count" {
            self.0.advance(Phase::COUNT);
        }
        word == "count" || word == "go"
    }

    fn finished(&self, round: &Round) -> bool {
        say(&format!("done {}", round.ns())).is_ok() && hear() == "clean"
    }

    fn cleaned(&self) -> bool {
        say("cleaned").is_ok() && hear() == "again"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_lacks_is_no_failure() {
        for text in [NO_CACHE, NOT_ALLOWED, "unsupported"] {
            let failed = Some((None, text.to_owned(), None));
            let report = Report { rounds: Vec::new(), latency: None, peak_bytes: 0, failed };
            let failure = super::failed(&serde_json::to_string(&report).expect("text"));
            let Failure::Io(_, error) = failure else { panic!("{failure}") };
            assert_eq!((error.kind(), error.to_string().as_str()), (io::ErrorKind::Unsupported, text));
        }
    }
}
