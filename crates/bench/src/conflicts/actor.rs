//! One of the two threads: what it makes in a scene, and the operations on it.

use std::io;

use pando_vfs::{
    At, Context, Credentials, DentryRef, Error, File, FileKind, OpenFlags, RenameFlags, Result, Seek, Stat, Vfs, Walk,
    XattrFlags, introspection,
};
use serde::{Deserialize, Serialize};

use super::pairs::{Operation, Scene};
use crate::lackey;

/// Who calls: not root, so that permissions are checked and not passed over.
pub(super) const UID: u32 = 1000;
/// What read and write move.
const PAGE: usize = 4096;
/// The one name of [`Scene::SameName`].
const SAME: &str = "same";

/// Which of the two threads.
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

/// What an operation needs; made before it is traced, so that its own accesses are all that is.
struct Props {
    path: String,
    to: String,
    attribute: String,
    file: Option<File>,
    buffer: Vec<u8>,
}

/// What an operation gives; dropped after it was traced.
pub(super) enum Given {
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
    /// By operation.
    props: [Option<Props>; Operation::ALL.len()],
}

/// Makes what both threads find: called once in a scene, before the actors.
pub(super) fn make_common(vfs: &Vfs, scene: Scene) -> Result<()> {
    /// So many entries, made by a third party, lie among those of the two threads.
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
    /// Makes what this thread's operations need, having done each of them twice before on things of the same kind: what is
    /// made when it is first needed, is there then.
    pub(super) fn new(vfs: &Vfs, scene: Scene, role: Role) -> io::Result<Self> {
        let mut actor = Self {
            vfs: vfs.clone(),
            context: context(vfs),
            scene,
            role,
            props: [const { None }; Operation::ALL.len()],
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
                let props = actor.prepare(operation, tag)?;
                actor.props[operation as usize] = Some(props);
            }
            if !tag.is_empty() {
                for operation in Operation::ALL {
                    if let Some(mut props) = actor.props[operation as usize].take() {
                        let given = actor.perform(operation, &mut props);
                        actor.check(operation, given)?;
                    }
                }
            }
        }
        Ok(actor)
    }

    /// Where this thread's names are.
    fn dir(&self) -> String {
        match self.scene {
            Scene::Directories => format!("/work/{}", self.role.letter()),
            Scene::Names | Scene::SameName => "/work/both".to_owned(),
        }
    }

    fn prepare(&self, operation: Operation, tag: &str) -> Result<Props> {
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
        let mut props = Props { path, to, attribute, file, buffer: vec![1; PAGE] };
        self.place(operation, &mut props)?;
        Ok(props)
    }

    /// Makes what an operation on a name of this thread's own finds there.
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

    /// Each thread reads a page of its own, and writes another.
    fn place(&self, operation: Operation, props: &mut Props) -> Result<()> {
        let page = match (operation, self.role) {
            (Operation::Read, Role::A) => 0,
            (Operation::Read, Role::B) => 1,
            (Operation::Write, Role::A) => 2,
            (Operation::Write, Role::B) => 3,
            _ => return Ok(()),
        };
        match &props.file {
            Some(file) => file.lseek(Seek::Set(page * PAGE as i64)).map(drop),
            None => Ok(()),
        }
    }

    /// Reads the file and the directory once more after everything was made, so that access times are not due, and lets
    /// go of what was retired. Of a common file, the many who read it have come back since it was written.
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
        self.props[operation as usize].as_ref()?.file.as_ref()
    }

    /// Traces an operation, in a copy of this process: here, it can be done again.
    pub(super) fn trace(&mut self, operation: Operation) -> io::Result<i32> {
        lackey::in_marks(
            self,
            |actor| actor.props[operation as usize].take().map(|props| (actor, props)),
            |prepared| match prepared {
                Some((actor, props)) => actor.perform(operation, props),
                None => Err(Error::Invalid),
            },
            |prepared, given| match prepared {
                Some((actor, _)) => actor.check(operation, given),
                None => Err(io::Error::other("nothing was made for this operation")),
            },
        )
    }

    fn perform(&self, operation: Operation, props: &mut Props) -> Result<Given> {
        let (vfs, context, path) = (&self.vfs, &self.context, props.path.as_str());
        let no_file = Error::Invalid;
        let file = props.file.as_ref().ok_or(no_file);
        let walk = Walk::empty();
        Ok(match operation {
            Operation::Stat => Given::Stat(vfs.stat(context, At::Cwd, path, walk)?),
            Operation::Open => Given::File(vfs.open(context, At::Cwd, path, OpenFlags::RDWR, 0)?),
            Operation::Close => {
                drop(props.file.take());
                Given::Nothing
            }
            Operation::Create => Given::File(make_file(vfs, context, path)?),
            Operation::Unlink if self.scene == Scene::SameName => return Err(Error::Invalid),
            Operation::Unlink => {
                vfs.unlink(context, At::Cwd, path)?;
                Given::Nothing
            }
            Operation::Mkdir => Given::Dentry(vfs.mkdir(context, At::Cwd, path, 0o755)?),
            Operation::Rmdir => {
                vfs.rmdir(context, At::Cwd, path)?;
                Given::Nothing
            }
            Operation::Link => Given::Dentry(vfs.link(context, At::Cwd, path, At::Cwd, &props.to, walk)?),
            Operation::Rename => {
                vfs.rename(context, At::Cwd, path, At::Cwd, &props.to, RenameFlags::empty())?;
                Given::Nothing
            }
            Operation::Lseek => Given::Count(file?.lseek(Seek::Set(100))?),
            Operation::Read => Given::Count(file?.read(&mut props.buffer)? as u64),
            Operation::Write => Given::Count(file?.write(&props.buffer)? as u64),
            Operation::Readdir => {
                let mut names = 0;
                file?.readdir(0, |_| {
                    names += 1;
                    true
                })?;
                Given::Count(names)
            }
            Operation::DPath => Given::Bytes(vfs.d_path(context, file?.dentry(), PAGE)?),
            Operation::GetXattr => Given::Bytes(vfs.getxattr(context, At::Cwd, path, &props.attribute, walk)?),
            Operation::SetXattr => {
                let replace = XattrFlags::REPLACE;
                vfs.setxattr(context, At::Cwd, path, &props.attribute, b"other", replace, walk)?;
                Given::Nothing
            }
        })
    }

    /// Whether what an operation gave is what the scene makes it give: a trace of something else would prove nothing.
    fn check(&self, operation: Operation, given: Result<Given>) -> io::Result<()> {
        let same = self.scene == Scene::SameName;
        let right = match (operation, &given) {
            (Operation::Create | Operation::Mkdir, Err(Error::Exists)) => same,
            (Operation::Rmdir, Err(Error::NotDirectory)) | (Operation::Unlink, Err(Error::Invalid)) => same,
            (Operation::Create | Operation::Mkdir | Operation::Rmdir | Operation::Unlink, Ok(_)) => !same,
            (Operation::Read | Operation::Write, Ok(Given::Count(count))) => *count == PAGE as u64,
            (Operation::Readdir, Ok(Given::Count(count))) => *count > 2,
            (Operation::Lseek, Ok(Given::Count(count))) => *count == 100,
            (Operation::DPath, Ok(Given::Bytes(bytes))) => bytes.starts_with(b"/work/"),
            (Operation::GetXattr, Ok(Given::Bytes(bytes))) => bytes == b"value",
            (Operation::Stat, Ok(Given::Stat(stat))) => stat.nlink > 0,
            (Operation::Open, Ok(Given::File(file))) => file.dentry().kind() == FileKind::File,
            (Operation::Link, Ok(Given::Dentry(dentry))) => dentry.kind() == FileKind::File,
            (Operation::Close | Operation::Rename | Operation::SetXattr, Ok(Given::Nothing)) => true,
            _ => false,
        };
        let error = given.err().map_or_else(String::new, |error| format!(": {error}"));
        if right { Ok(()) } else { Err(io::Error::other(format!("{} went wrong{error}", operation.name()))) }
    }

    /// Where the things lie that this thread works on.
    pub(super) fn dentries(&self) -> Result<Vec<DentryRef>> {
        let mut paths: Vec<&str> = self.props.iter().flatten().map(|props| props.path.as_str()).collect();
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
