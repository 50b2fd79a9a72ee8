//! A machine whose disk fails: nothing is said to be stored that is not.

use pando_kv::Embedded;
use pando_kvfs::{KvFs, StoreOptions};
use pando_vfs::{At, Context, Credentials, Error, OpenFlags, Vfs, Walk};
use rustix::io::Errno;

use crate::{
    machine::{Call, Image, Machine},
    support::{difference, seen},
};

const NEW: OpenFlags = OpenFlags::RDWR.union(OpenFlags::CREAT);

/// A namespace over a store with a small and a large file.
fn filled() -> (Machine, Opened) {
    let machine = Machine::new(&Image::default());
    drop(Embedded::create(std::sync::Arc::new(machine.clone())).expect("made"));
    let tree = Opened::open(&machine);
    tree.write("/small", 100).expect("written");
    tree.write("/large", 40_000).expect("written");
    tree.vfs.sync().expect("stored");
    (machine, tree)
}

struct Opened {
    vfs: Vfs,
    context: Context,
}

impl Opened {
    fn open(machine: &Machine) -> Self {
        let engine = Embedded::open(std::sync::Arc::new(machine.clone())).expect("undamaged");
        let store = KvFs::new(Box::new(engine), Box::new(machine.clone()), StoreOptions::new()).expect("a store");
        let vfs = Vfs::new(store).expect("a tree");
        let context = Context::new(&vfs, Credentials::root());
        Self { vfs, context }
    }

    fn write(&self, path: &str, len: usize) -> pando_vfs::Result<()> {
        let file = self.vfs.open(&self.context, At::Cwd, path, NEW, 0o644)?;
        file.pwrite(&vec![7; len], 0).map(drop)
    }

    fn fsync(&self, path: &str) -> pando_vfs::Result<()> {
        self.vfs.open(&self.context, At::Cwd, path, OpenFlags::RDWR, 0)?.fsync()
    }
}

/// A full disk: the changes stay in memory, and are stored when there is space again.
#[test]
fn store_goes_on_when_there_is_space_again() {
    let (machine, tree) = filled();
    machine.fail(Some((Call::GrowRecords, Errno::NOSPC)));
    let fill = |round: usize| {
        (0..20).for_each(|file| tree.write(&format!("/{round}-{file}"), 16_000).expect("in memory"));
        tree.vfs.sync()
    };
    let refused = (0..100).map(fill).find(Result::is_err).expect("full at last");
    assert_eq!(refused, Err(Error::NoSpace));
    tree.write("/again", 300).expect("in memory");
    for path in ["/again", "/small"] {
        assert_eq!(tree.fsync(path), Err(Error::NoSpace), "{path}");
    }
    let there = seen(&tree.vfs, &tree.context);
    machine.fail(None);
    assert_eq!(tree.fsync("/again"), Ok(()));
    let found = Opened::open(&machine.crashed());
    assert_eq!(difference(&seen(&found.vfs, &found.context), &there), None);
}

/// What the kernel had to flush may be lost. So no later fsync returns success.
#[test]
fn failed_flush_is_never_followed_by_success() {
    for call in [Call::FlushRecords, Call::FlushContents] {
        let (machine, tree) = filled();
        let stored = seen(&tree.vfs, &tree.context);
        tree.write("/large", 50_000).expect("in the kernel");
        machine.fail(Some((call, Errno::IO)));
        assert_eq!(tree.fsync("/large"), Err(Error::Io), "{call:?}");
        machine.fail(None);
        for path in ["/large", "/small"] {
            assert_eq!(tree.fsync(path), Err(Error::Io), "{call:?} {path}");
        }
        assert_eq!(tree.vfs.sync(), Err(Error::Io), "{call:?}");
        assert_eq!(tree.write("/later", 1), Err(Error::Io), "{call:?}: nothing more is accepted");
        let found = Opened::open(&machine.crashed());
        let found = seen(&found.vfs, &found.context);
        assert!(found == stored || found == seen(&tree.vfs, &tree.context), "{call:?}");
    }
}

/// A panic below the store is an error for those who wait for a commit, now and later.
#[test]
fn panic_of_the_engine_is_an_error() {
    let (machine, tree) = filled();
    tree.write("/more", 200).expect("in memory");
    machine.fail(Some((Call::Panic, Errno::IO)));
    assert_eq!(tree.fsync("/more"), Err(Error::Io));
    machine.fail(None);
    assert_eq!((tree.fsync("/more"), tree.write("/later", 1)), (Err(Error::Io), Err(Error::Io)));
    assert_eq!(tree.vfs.stat(&tree.context, At::Cwd, "/more", Walk::empty()).map(|stat| stat.size), Ok(200));
    let found = Opened::open(&machine.crashed());
    assert!(found.vfs.stat(&found.context, At::Cwd, "/small", Walk::empty()).is_ok());
}

/// The machine copies more than it says.
#[test]
fn copy_leaves_no_bytes_beyond_the_end() {
    let (_machine, tree) = filled();
    let file = tree.vfs.open(&tree.context, At::Cwd, "/large", OpenFlags::RDWR, 0).expect("opens");
    assert_eq!(file.copy_range(40_000, &file, 0, 20_000), Ok(20_000));
    file.truncate(70_000).expect("longer");
    let mut bytes = [1; 10_000];
    assert_eq!(file.pread(&mut bytes, 60_000), Ok(10_000));
    assert_eq!(bytes, [0; 10_000]);
}
