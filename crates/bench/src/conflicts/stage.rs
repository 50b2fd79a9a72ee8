//! The traced process: two threads, three scenes, and each operation of each thread in a copy of its own.

use std::{
    io,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{Vfs, introspection};
use serde::{Deserialize, Serialize};

use super::{
    actor::{Actor, Role, UID, make_common},
    pairs::{Operation, Scene, takes_part},
};
use crate::{
    failure::{Failure, While},
    halt::Halt,
    lackey,
};

/// The key of all hashes: some number. What matters is that it stays.
pub(crate) const HASH_KEY: (u64, u64) = (0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210);

/// How many keys everything is done with, unless fewer are asked for. Under any one key some names fall into one stripe of the name locks, or stand next to
/// each other in their directory, by chance; other names do under another.
pub(crate) const KEYS: u32 = 3;

/// What was traced.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Staged {
    pub keys: u32,
    pub turns: Vec<Turn>,
    pub parts: Vec<Placed>,
    pub cores: usize,
}

/// One operation of one thread.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Turn {
    /// Under which key.
    pub key: u32,
    pub scene: Scene,
    pub operation: Operation,
    pub role: Role,
    /// The process that did it.
    pub copy: i32,
}

/// Something that lies in memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Placed {
    pub key: u32,
    pub scene: Scene,
    /// Type and field.
    pub name: String,
    pub address: u64,
    pub bytes: u64,
}

/// What a thread is told to do; while it does, the others wait.
enum Job {
    Enter(Scene, Vfs),
    Settle(u32),
    Trace(Operation),
    Leave,
}

/// What it says when it is done.
enum Done {
    Nothing,
    Parts(Vec<Placed>),
    Copy(i32),
}

/// Sets each scene up, under each key, and traces all its operations; what to tell.
pub(super) fn run(keys: u32, halt: &Halt) -> Result<String, Failure> {
    // Stripes are given out in the order in which threads first ask: as the threads begin, in this order.
    let crew = Role::BOTH.map(Player::new);
    let mut staged = Staged { keys, turns: Vec::new(), parts: Vec::new(), cores: cores() };
    for key in 0..keys {
        for scene in Scene::ALL {
            play(&crew, key, scene, &mut staged, halt)?;
        }
    }
    staged.parts.sort_by_key(|part| (part.key, part.scene, part.address, std::cmp::Reverse(part.bytes)));
    staged.parts.dedup();
    lackey::tell(staged)
}

/// One scene under one key.
fn play(crew: &[Player; 2], key: u32, scene: Scene, staged: &mut Staged, halt: &Halt) -> Result<(), Failure> {
    let during = || "tracing the operations".to_owned();
    let memfs = MemFs::new(MemOptions::default()).force_contended();
    let hash_key = (HASH_KEY.0, HASH_KEY.1 ^ u64::from(key));
    let vfs = introspection::vfs_with_hash_key(memfs, UID, UID, 0o755, hash_key).during(during)?;
    make_common(&vfs, scene).during(during)?;
    for player in crew {
        player.tell(Job::Enter(scene, vfs.clone())).during(during)?;
    }
    // Twice: what one gives back, the other has held.
    for player in crew.iter().chain(crew) {
        if let Done::Parts(parts) = player.tell(Job::Settle(key)).during(during)? {
            staged.parts.extend(parts);
        }
    }
    for operation in Operation::ALL.into_iter().filter(|&operation| takes_part(scene, operation)) {
        for (player, role) in crew.iter().zip(Role::BOTH) {
            halt.check()?;
            if let Done::Copy(copy) = player.tell(Job::Trace(operation)).during(during)? {
                staged.turns.push(Turn { key, scene, operation, role, copy });
            }
        }
    }
    for player in crew {
        player.tell(Job::Leave).during(during)?;
    }
    Ok(())
}

/// The cores that the library counts on: so many stripes does it make.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// A thread that does what it is told.
struct Player {
    jobs: Sender<Job>,
    answers: Receiver<io::Result<Done>>,
}

impl Player {
    fn new(role: Role) -> Self {
        let (jobs, todo) = channel();
        let (done, answers) = channel();
        thread::spawn(move || {
            let mut actor = None;
            for job in todo {
                if done.send(act(&mut actor, role, job)).is_err() {
                    break;
                }
            }
        });
        Self { jobs, answers }
    }

    fn tell(&self, job: Job) -> io::Result<Done> {
        let gone = || io::Error::other("the thread has ended");
        self.jobs.send(job).map_err(|_| gone())?;
        self.answers.recv().map_err(|_| gone())?
    }
}

fn act(actor: &mut Option<(Scene, Actor)>, role: Role, job: Job) -> io::Result<Done> {
    match (job, actor) {
        (Job::Enter(scene, vfs), actor) => *actor = Some((scene, Actor::new(&vfs, scene, role)?)),
        (Job::Settle(key), Some((scene, actor))) => {
            actor.settle()?;
            return Ok(Done::Parts(parts(key, *scene, actor)?));
        }
        (Job::Trace(operation), Some((_, actor))) => return Ok(Done::Copy(actor.trace(operation)?)),
        (Job::Leave, actor) => *actor = None,
        (Job::Settle(_) | Job::Trace(_), None) => return Err(io::Error::other("no scene was entered")),
    }
    Ok(Done::Nothing)
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
