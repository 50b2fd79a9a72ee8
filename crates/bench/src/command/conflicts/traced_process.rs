//! The traced process: two threads, three scenes, and each operation of each thread in its own copy
//! of the process.

use std::{
    io,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{Vfs, VfsOptions, introspection};
use serde::{Deserialize, Serialize};

use super::{
    actor::{Actor, Role, UID, make_common},
    pairs::{Operation, Scene, takes_part},
};
use crate::{
    base::{
        cancel::Cancel,
        failure::{During, Failure},
    },
    lackey::{self, HASH_KEY},
};

/// The default number of hash keys. Under any single key, some names share a stripe of the name
/// locks, or are neighbours in their directory, by chance. Under another key these are other names.
pub(crate) const KEYS: u32 = 3;

/// The description of the traced operations.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TracedRuns {
    pub keys: u32,
    pub runs: Vec<TracedRun>,
    pub parts: Vec<Placed>,
    pub cores: usize,
}

/// One operation of one thread.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TracedRun {
    /// The number of the hash key.
    pub key: u32,
    pub scene: Scene,
    pub operation: Operation,
    pub role: Role,
    /// The process id of the copy that did it.
    pub copy: i32,
}

/// An object in memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Placed {
    pub key: u32,
    pub scene: Scene,
    /// Type and field.
    pub name: String,
    pub address: u64,
    pub bytes: u64,
}

/// A command to a thread. During the thread executes it, the others wait.
enum Job {
    Enter(Scene, Vfs),
    Settle(u32),
    Trace(Operation),
    Leave,
}

/// A thread's answer.
enum Answer {
    Nothing,
    Parts(Vec<Placed>),
    Copy(i32),
}

/// Sets up each scene under each key, and traces all its operations. Returns the text to print.
pub(super) fn run(keys: u32, cancel: &Cancel) -> Result<String, Failure> {
    // Threads get their stripes in the order of their first use: here, the order in which they
    // start.
    let threads = Role::BOTH.map(TracedThread::new);
    let mut traced = TracedRuns { keys, runs: Vec::new(), parts: Vec::new(), cores: cores() };
    for key in 0..keys {
        for scene in Scene::ALL {
            trace_scene(&threads, key, scene, &mut traced, cancel)?;
        }
    }
    traced.parts.sort_by_key(|part| (part.key, part.scene, part.address, std::cmp::Reverse(part.bytes)));
    traced.parts.dedup();
    lackey::answer(traced)
}

/// Traces one scene under one key.
fn trace_scene(
    threads: &[TracedThread; 2],
    key: u32,
    scene: Scene,
    traced: &mut TracedRuns,
    cancel: &Cancel,
) -> Result<(), Failure> {
    let during = || "tracing the operations".to_owned();
    let memfs = MemFs::new(MemOptions::default()).force_contended();
    let hash_key = (HASH_KEY.0, HASH_KEY.1 ^ u64::from(key));
    let vfs = introspection::vfs_with_hash_key(memfs, VfsOptions::new().owner(UID, UID), hash_key).during(during)?;
    make_common(&vfs, scene).during(during)?;
    for thread in threads {
        thread.send(Job::Enter(scene, vfs.clone())).during(during)?;
    }
    // Twice, because one thread may free an object that the other one still held in the first pass.
    for thread in threads.iter().chain(threads) {
        if let Answer::Parts(parts) = thread.send(Job::Settle(key)).during(during)? {
            traced.parts.extend(parts);
        }
    }
    for operation in Operation::ALL.into_iter().filter(|&operation| takes_part(scene, operation)) {
        for (thread, role) in threads.iter().zip(Role::BOTH) {
            cancel.check()?;
            if let Answer::Copy(copy) = thread.send(Job::Trace(operation)).during(during)? {
                traced.runs.push(TracedRun { key, scene, operation, role, copy });
            }
        }
    }
    for thread in threads {
        thread.send(Job::Leave).during(during)?;
    }
    Ok(())
}

/// The number of cores that the library sees. It makes as many stripes.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// A thread that executes commands.
struct TracedThread {
    jobs: Sender<Job>,
    answers: Receiver<io::Result<Answer>>,
}

impl TracedThread {
    fn new(role: Role) -> Self {
        let (jobs, todo) = channel();
        let (done, answers) = channel();
        thread::spawn(move || {
            let mut actor = None;
            for job in todo {
                if done.send(execute(&mut actor, role, job)).is_err() {
                    break;
                }
            }
        });
        Self { jobs, answers }
    }

    fn send(&self, job: Job) -> io::Result<Answer> {
        let gone = || io::Error::other("the thread has ended");
        self.jobs.send(job).map_err(|_| gone())?;
        self.answers.recv().map_err(|_| gone())?
    }
}

fn execute(actor: &mut Option<(Scene, Actor)>, role: Role, job: Job) -> io::Result<Answer> {
    match (job, actor) {
        (Job::Enter(scene, vfs), actor) => *actor = Some((scene, Actor::new(&vfs, scene, role)?)),
        (Job::Settle(key), Some((scene, actor))) => {
            actor.settle()?;
            return Ok(Answer::Parts(parts(key, *scene, actor)?));
        }
        (Job::Trace(operation), Some((_, actor))) => return Ok(Answer::Copy(actor.trace(operation)?)),
        (Job::Leave, actor) => *actor = None,
        (Job::Settle(_) | Job::Trace(_), None) => return Err(io::Error::other("no scene was entered")),
    }
    Ok(Answer::Nothing)
}

fn parts(key: u32, scene: Scene, actor: &Actor) -> io::Result<Vec<Placed>> {
    let place = |part: introspection::Part| Placed {
        key,
        scene,
        name: part.name.to_owned(),
        address: part.address as u64,
        bytes: part.bytes as u64,
    };
    Ok(actor.dentries()?.iter().flat_map(introspection::parts).map(place).collect())
}
