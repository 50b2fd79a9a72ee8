//! The file calls of a runtime such as WASI: a table of descriptors, over one directory that the
//! guest may use. The guest passes numbers and bytes; the runtime answers with a WASI errno.
//!
//! `cargo run -p pando-vfs --example wasi`

use std::collections::BTreeMap;

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{At, Context, Credentials, Error, File, OpenFlags, RenameFlags, Resolve, Seek, Stat, Vfs, Walk};

/// The descriptor of the preopened directory, as wasi-libc expects it.
const PREOPENED: u32 = 3;

/// An errno of WASI preview 1 (the names are those of its specification).
fn errno(error: Error) -> u16 {
    match error {
        Error::Access => 2,
        Error::BadHandle => 8,
        Error::Busy => 10,
        Error::Exists => 20,
        Error::Invalid => 28,
        Error::IsDirectory => 31,
        Error::Loop => 32,
        Error::NameTooLong => 37,
        Error::NoEntry => 44,
        Error::NoSpace => 51,
        Error::NotDirectory => 54,
        Error::NotEmpty => 55,
        Error::ReadOnly => 69,
        // The path leads out of the directory: "capabilities insufficient".
        Error::CrossDevice => 76,
        // Io, and the errnos that this program does not meet.
        _ => 29,
    }
}

/// One guest. `Vfs` may be shared by many; each has descriptors and a context of its own.
struct Guest {
    vfs: Vfs,
    context: Context,
    files: BTreeMap<u32, File>,
}

type Answer<T> = Result<T, u16>;

impl Guest {
    /// A guest that may use `dir` and what is below it.
    fn new(vfs: &Vfs, dir: &str) -> pando_vfs::Result<Self> {
        let host = Context::new(vfs, Credentials::root());
        // No walk leaves the directory that it starts from, also if a directory is moved meanwhile.
        let context = Context::new(vfs, Credentials::user(1000, 1000, &[])).with_resolve(Resolve::BENEATH);
        let dir = vfs.open(&host, At::Cwd, dir, OpenFlags::DIRECTORY, 0)?;
        Ok(Self { vfs: vfs.clone(), context, files: BTreeMap::from([(PREOPENED, dir)]) })
    }

    fn file(&self, fd: u32) -> Answer<&File> {
        self.files.get(&fd).ok_or(errno(Error::BadHandle))
    }

    fn path_open(&mut self, dir: u32, path: &[u8], flags: OpenFlags) -> Answer<u32> {
        let at = At::Dir(self.file(dir)?.dentry());
        let file = self.vfs.open(&self.context, at, path, flags, 0o644).map_err(errno)?;
        let fd = (PREOPENED..).find(|fd| !self.files.contains_key(fd)).ok_or(errno(Error::Busy))?;
        self.files.insert(fd, file);
        Ok(fd)
    }

    fn fd_close(&mut self, fd: u32) -> Answer<()> {
        self.files.remove(&fd).map(drop).ok_or(errno(Error::BadHandle))
    }

    fn fd_read(&self, fd: u32, buffer: &mut [u8]) -> Answer<usize> {
        self.file(fd)?.read(buffer).map_err(errno)
    }

    fn fd_write(&self, fd: u32, data: &[u8]) -> Answer<usize> {
        self.file(fd)?.write(data).map_err(errno)
    }

    fn fd_seek(&self, fd: u32, to: Seek) -> Answer<u64> {
        self.file(fd)?.lseek(to).map_err(errno)
    }

    /// Fills at most `most` names after `cookie`; the last cookie continues. Each entry that exists
    /// during all calls is returned exactly once.
    fn fd_readdir(&self, fd: u32, cookie: u64, most: usize) -> Answer<Vec<(Vec<u8>, u64)>> {
        let mut entries = Vec::new();
        let fill = |entry: pando_vfs::DirEntry<'_>| {
            let has_space = entries.len() < most;
            if has_space {
                entries.push((entry.name.to_vec(), entry.cookie));
            }
            has_space
        };
        self.file(fd)?.readdir(cookie, fill).map_err(errno)?;
        Ok(entries)
    }

    fn path_filestat_get(&self, dir: u32, path: &[u8]) -> Answer<Stat> {
        let at = At::Dir(self.file(dir)?.dentry());
        self.vfs.stat(&self.context, at, path, Walk::empty()).map_err(errno)
    }

    fn path_rename(&self, old_dir: u32, old: &[u8], new_dir: u32, new: &[u8]) -> Answer<()> {
        let (from, to) = (At::Dir(self.file(old_dir)?.dentry()), At::Dir(self.file(new_dir)?.dentry()));
        self.vfs.rename(&self.context, from, old, to, new, RenameFlags::empty()).map_err(errno)
    }
}

fn main() -> pando_vfs::Result<()> {
    let vfs = Vfs::new(MemFs::new(MemOptions::new().size_bytes(16 << 20)))?;
    let host = Context::new(&vfs, Credentials::root());
    vfs.mkdir(&host, At::Cwd, "/guest", 0o755)?;
    vfs.chown(&host, At::Cwd, "/guest", Some(1000), Some(1000), Walk::empty())?;
    vfs.mkdir(&host, At::Cwd, "/secret", 0o777)?;

    let mut guest = Guest::new(&vfs, "/guest")?;
    let fd = guest.path_open(PREOPENED, b"draft", OpenFlags::RDWR | OpenFlags::CREAT).expect("made");
    assert_eq!(guest.fd_write(fd, b"hello"), Ok(5));
    assert_eq!(guest.fd_seek(fd, Seek::Set(1)), Ok(1));
    let mut buffer = [0; 8];
    assert_eq!((guest.fd_read(fd, &mut buffer), &buffer[..4]), (Ok(4), &b"ello"[..]));
    guest.path_rename(PREOPENED, b"draft", PREOPENED, b"letter").expect("renamed");
    assert_eq!(guest.fd_close(fd), Ok(()));
    for (name, cookie) in guest.fd_readdir(PREOPENED, 0, 100).expect("read") {
        println!("{} (continue after it with {cookie})", name.escape_ascii());
    }
    println!("letter has {} bytes", guest.path_filestat_get(PREOPENED, b"letter").expect("there").size);
    for path in [&b"../secret"[..], b"/secret"] {
        println!("{}: errno {}", path.escape_ascii(), guest.path_filestat_get(PREOPENED, path).expect_err("outside"));
    }
    Ok(())
}
