//! One of the two threads: the files that it makes in a scene, and the operations on them.

use std::io;

use pando_vfs::{
    At, Context, Credentials, DentryRef, Error, File, FileKind, OpenFlags, RenameFlags, Result, Seek, Stat, Vfs, Walk,
    XattrFlags, introspection,
};
use serde::{Deserialize, Serialize};

use super::pairs::{Operation, Scene};
use crate::lackey;

/// The user of all calls. Not root, so that permissions are checked.
pub(super) const UID: u32 = 1000;
/// Bytes of a read or write.
const PAGE: usize = 4096;
/// The shared name in [`Scene::SameName`].
const SAME: &str = "same";

/// One of the two threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    A,
    B,
}

impl Role {
    pub(super) const BOTH: [Self; 2] = [Self::A, Self::B];

    fn letter(self) -> char {
        match self {
            Self::A => 'a',
            Self::B => 'b',
        }
    }
}

/// The inputs of an operation. They are made before the trace begins, so that it has only the
/// accesses of the operation itself.
struct Inputs {
    path: String,
    to: String,
    attribute: String,
    file: Option<File>,
    buffer: Vec<u8>,
}

/// The result of an operation. It is dropped after the trace has ended.
pub(super) enum OpResult {
    Nothing,
    File(File),
    Stat(Stat),
    Dentry(DentryRef),
    Bytes(Vec<u8>),
    Count(u64),
}

/// A thread in one scene.
pub(super) struct Actor {
    vfs: Vfs,
    context: Context,
    scene: Scene,
    role: Role,
    /// Indexed by operation.
    inputs: [Option<Inputs>; Operation::ALL.len()],
}

/// Makes the files that both threads use. Called once per scene, before the actors are made.
pub(super) fn make_common(vfs: &Vfs, scene: Scene) -> Result<()> {
    /// Number of files of another thread among those of the two threads.
    const OTHERS: usize = 200;
    let context = context(vfs);
    vfs.mkdir(&context, At::Cwd, "/work", 0o755)?;
    let both = vfs.mkdir(&context, At::Cwd, "/work/both", 0o755)?;
    introspection::force_contended(&both)?;
    if scene == Scene::Directories {
        return Ok(());
    }
    for i in 0..OTHERS {
        make_file(vfs, &context, &format!("/work/both/other-{i}"))?;
    }
    let path = format!("/work/both/{SAME}");
    let file = make_file(vfs, &context, &path)?;
    introspection::force_per_cpu_count(vfs, file.dentry());
    for page in 0..8 {
        file.pwrite(&[1; PAGE], page * PAGE as u64)?;
    }
    for attribute in ["user.a", "user.b", "user.a-set", "user.b-set"] {
        vfs.setxattr(&context, At::Cwd, &path, attribute, b"value", XattrFlags::empty(), Walk::empty())?;
    }
    Ok(())
}

fn context(vfs: &Vfs) -> Context {
    Context::new(vfs, Credentials::user(UID, UID, &[]))
}

fn make_file(vfs: &Vfs, context: &Context, path: &str) -> Result<File> {
    vfs.open(context, At::Cwd, path, OpenFlags::RDWR | OpenFlags::CREAT | OpenFlags::EXCL, 0o644)
}

impl Actor {
    /// Makes the inputs of this thread's operations. Before, each operation has been done twice on
    /// other objects of the same kind, so that everything that is allocated on first use exists.
    pub(super) fn new(vfs: &Vfs, scene: Scene, role: Role) -> io::Result<Self> {
        let mut actor = Self {
            vfs: vfs.clone(),
            context: context(vfs),
            scene,
            role,
            inputs: [const { None }; Operation::ALL.len()],
        };
        let own = format!("/work/{}", role.letter());
        actor.vfs.mkdir(&actor.context, At::Cwd, &own, 0o755)?;
        if scene == Scene::Directories {
            for i in 0..20 {
                make_file(&actor.vfs, &actor.context, &format!("{own}/other-{i}"))?;
            }
        }
        for tag in ["warm", "warmer", ""] {
            for operation in Operation::ALL {
                let inputs = actor.prepare(operation, tag)?;
                actor.inputs[operation as usize] = Some(inputs);
            }
            if !tag.is_empty() {
                for operation in Operation::ALL {
                    if let Some(mut inputs) = actor.inputs[operation as usize].take() {
                        let result = actor.perform(operation, &mut inputs);
                        actor.check(operation, result)?;
                    }
                }
            }
        }
        Ok(actor)
    }

    /// The directory of this thread's names.
    fn dir(&self) -> String {
        match self.scene {
            Scene::Directories => format!("/work/{}", self.role.letter()),
            Scene::Names | Scene::SameName => "/work/both".to_owned(),
        }
    }

    fn prepare(&self, operation: Operation, tag: &str) -> Result<Inputs> {
        let (dir, letter, same) = (self.dir(), self.role.letter(), self.scene == Scene::SameName);
        let name = |what: &str| format!("{dir}/{letter}{tag}-{what}");
        let path = match operation {
            Operation::Readdir => dir.clone(),
            _ if same => format!("{dir}/{SAME}"),
            _ => name(operation.name()),
        };
        let to = match operation {
            Operation::Rename if same => path.clone(),
            Operation::Link if same => format!("/work/{letter}/linked{tag}"),
            _ => name(&format!("{}-to", operation.name())),
        };
        let attribute = match operation {
            Operation::SetXattr => format!("user.{letter}-set"),
            _ => format!("user.{letter}"),
        };
        if !same {
            self.make(operation, &path, &attribute)?;
        }
        let open = |flags| self.vfs.open(&self.context, At::Cwd, &path, flags, 0);
        let file = match operation {
            Operation::Close | Operation::Lseek | Operation::Read | Operation::Write | Operation::DPath => {
                Some(open(OpenFlags::RDWR)?)
            }
            Operation::Readdir => Some(open(OpenFlags::RDONLY)?),
            _ => None,
        };
        let mut inputs = Inputs { path, to, attribute, file, buffer: vec![1; PAGE] };
        self.place(operation, &mut inputs)?;
        Ok(inputs)
    }

    /// Makes what an operation on one of this thread's own names needs.
    fn make(&self, operation: Operation, path: &str, attribute: &str) -> Result<()> {
        match operation {
            Operation::Create | Operation::Mkdir | Operation::Readdir => {}
            Operation::Rmdir => drop(self.vfs.mkdir(&self.context, At::Cwd, path, 0o755)?),
            Operation::Lseek | Operation::Read | Operation::Write => {
                let file = make_file(&self.vfs, &self.context, path)?;
                for page in 0..8 {
                    file.pwrite(&[1; PAGE], page * PAGE as u64)?;
                }
            }
            Operation::GetXattr | Operation::SetXattr => {
                drop(make_file(&self.vfs, &self.context, path)?);
                let flags = XattrFlags::empty();
                self.vfs.setxattr(&self.context, At::Cwd, path, attribute, b"value", flags, Walk::empty())?;
            }
            _ => drop(make_file(&self.vfs, &self.context, path)?),
        }
        Ok(())
    }

    /// Sets the position: each thread reads a page of its own, and writes another one.
    fn place(&self, operation: Operation, inputs: &mut Inputs) -> Result<()> {
        let page = match (operation, self.role) {
            (Operation::Read, Role::A) => 0,
            (Operation::Read, Role::B) => 1,
            (Operation::Write, Role::A) => 2,
            (Operation::Write, Role::B) => 3,
            _ => return Ok(()),
        };
        match &inputs.file {
            Some(file) => file.lseek(Seek::Set(page * PAGE as i64)).map(drop),
            None => Ok(()),
        }
    }

    /// Reads the file and the directory once more after everything was made, so that access times
    /// are not due, and flushes retired objects. Sets a shared file to the read-biased state that
    /// many readers cause after the last write.
    pub(super) fn settle(&self) -> Result<()> {
        let mut page = [0; 1];
        if let Some(file) = self.file(Operation::Read) {
            file.pread(&mut page, 0)?;
            if self.scene == Scene::SameName {
                introspection::force_read_biased(file.dentry())?;
            }
        }
        if let Some(dir) = self.file(Operation::Readdir) {
            dir.readdir(0, |_| true)?;
        }
        introspection::settle();
        Ok(())
    }

    fn file(&self, operation: Operation) -> Option<&File> {
        self.inputs[operation as usize].as_ref()?.file.as_ref()
    }

    /// Traces an operation in a copy of this process. In this process it has not been done, and can
    /// be traced again.
    pub(super) fn trace(&mut self, operation: Operation) -> io::Result<i32> {
        lackey::between_marks(
            self,
            |actor| actor.inputs[operation as usize].take().map(|inputs| (actor, inputs)),
            |prepared| match prepared {
                Some((actor, inputs)) => actor.perform(operation, inputs),
                None => Err(Error::Invalid),
            },
            |prepared, result| match prepared {
                Some((actor, _)) => actor.check(operation, result),
                None => Err(io::Error::other("this operation has no inputs")),
            },
        )
    }

    fn perform(&self, operation: Operation, inputs: &mut Inputs) -> Result<OpResult> {
        let (vfs, context, path) = (&self.vfs, &self.context, inputs.path.as_str());
        let no_file = Error::Invalid;
        let file = inputs.file.as_ref().ok_or(no_file);
        let walk = Walk::empty();
        Ok(match operation {
            Operation::Stat => OpResult::Stat(vfs.stat(context, At::Cwd, path, walk)?),
            Operation::Open => OpResult::File(vfs.open(context, At::Cwd, path, OpenFlags::RDWR, 0)?),
            Operation::Close => {
                drop(inputs.file.take());
                OpResult::Nothing
            }
            Operation::Create => OpResult::File(make_file(vfs, context, path)?),
            Operation::Unlink if self.scene == Scene::SameName => return Err(Error::Invalid),
            Operation::Unlink => {
                vfs.unlink(context, At::Cwd, path)?;
                OpResult::Nothing
            }
            Operation::Mkdir => OpResult::Dentry(vfs.mkdir(context, At::Cwd, path, 0o755)?),
            Operation::Rmdir => {
                vfs.rmdir(context, At::Cwd, path)?;
                OpResult::Nothing
            }
            Operation::Link => OpResult::Dentry(vfs.link(context, At::Cwd, path, At::Cwd, &inputs.to, walk)?),
            Operation::Rename => {
                vfs.rename(context, At::Cwd, path, At::Cwd, &inputs.to, RenameFlags::empty())?;
                OpResult::Nothing
            }
            Operation::Lseek => OpResult::Count(file?.lseek(Seek::Set(100))?),
            Operation::Read => OpResult::Count(file?.read(&mut inputs.buffer)? as u64),
            Operation::Write => OpResult::Count(file?.write(&inputs.buffer)? as u64),
            Operation::Readdir => {
                let mut names = 0;
                file?.readdir(0, |_| {
                    names += 1;
                    true
                })?;
                OpResult::Count(names)
            }
            Operation::DPath => OpResult::Bytes(vfs.d_path(context, file?.dentry(), PAGE)?),
            Operation::GetXattr => OpResult::Bytes(vfs.getxattr(context, At::Cwd, path, &inputs.attribute, walk)?),
            Operation::SetXattr => {
                let replace = XattrFlags::REPLACE;
                vfs.setxattr(context, At::Cwd, path, &inputs.attribute, b"other", replace, walk)?;
                OpResult::Nothing
            }
        })
    }

    /// Checks that the result is the one that the scene must give. Otherwise the trace would be of
    /// another code path.
    fn check(&self, operation: Operation, result: Result<OpResult>) -> io::Result<()> {
        let same = self.scene == Scene::SameName;
        let right = match (operation, &result) {
            (Operation::Create | Operation::Mkdir, Err(Error::Exists)) => same,
            (Operation::Rmdir, Err(Error::NotDirectory)) | (Operation::Unlink, Err(Error::Invalid)) => same,
            (Operation::Create | Operation::Mkdir | Operation::Rmdir | Operation::Unlink, Ok(_)) => !same,
            (Operation::Read | Operation::Write, Ok(OpResult::Count(count))) => *count == PAGE as u64,
            (Operation::Readdir, Ok(OpResult::Count(count))) => *count > 2,
            (Operation::Lseek, Ok(OpResult::Count(count))) => *count == 100,
            (Operation::DPath, Ok(OpResult::Bytes(bytes))) => bytes.starts_with(b"/work/"),
            (Operation::GetXattr, Ok(OpResult::Bytes(bytes))) => bytes == b"value",
            (Operation::Stat, Ok(OpResult::Stat(stat))) => stat.nlink > 0,
            (Operation::Open, Ok(OpResult::File(file))) => file.dentry().kind() == FileKind::File,
            (Operation::Link, Ok(OpResult::Dentry(dentry))) => dentry.kind() == FileKind::File,
            (Operation::Close | Operation::Rename | Operation::SetXattr, Ok(OpResult::Nothing)) => true,
            _ => false,
        };
        let error = result.err().map_or_else(String::new, |error| format!(": {error}"));
        if right {
            Ok(())
        } else {
            Err(io::Error::other(format!("{} gave an unexpected result{error}", operation.name())))
        }
    }

    /// The dentries on which this thread works.
    pub(super) fn dentries(&self) -> Result<Vec<DentryRef>> {
        let mut paths: Vec<&str> = self.inputs.iter().flatten().map(|inputs| inputs.path.as_str()).collect();
        let own = format!("/work/{}", self.role.letter());
        paths.extend(["/", "/work", "/work/both", own.as_str()]);
        paths.sort_unstable();
        paths.dedup();
        let mut found = Vec::new();
        for path in paths {
            match self.vfs.lookup(&self.context, At::Cwd, path, Walk::empty()) {
                Ok(dentry) => found.push(dentry),
                Err(Error::NoEntry) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}
