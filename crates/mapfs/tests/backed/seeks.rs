//! Seeks during a slow write (P6): none of them waits, and each result is of one instant.

use std::sync::{Arc, Mutex, OnceLock};

use pando_mapfs::{Call, MapFs, MapOptions};
use pando_vfs::{
    At, Backing, Charge, Context, Credentials, Driver, Error, File, FileData, Layout, OpenFlags, Result, Seek, StatFs,
    Vfs, Walk,
};

use crate::support::mounted;

const PAGE: i64 = 4096;

/// Seen to hang: DATA and HOLE took the inode's data lock.
#[test]
fn seeks_do_not_wait_for_a_write() {
    let (vfs, root, store) = mounted(MapOptions::default());
    let open = || vfs.open(&root, At::Cwd, "/f", OpenFlags::RDWR | OpenFlags::CREAT, 0o600).expect("opens");
    let (writer, seeker) = (open(), open());
    writer.pwrite(b"x", PAGE as u64 * 2).expect("written");
    writer.truncate(PAGE as u64 * 4).expect("grown");
    // A hole of two pages, a page of data, a hole.
    let look = || {
        assert_eq!(seeker.lseek(Seek::Set(5)), Ok(5));
        assert_eq!(seeker.tell(), 5);
        [Seek::Data(0), Seek::Hole(0), Seek::Hole(2 * PAGE), Seek::Data(3 * PAGE), Seek::End(0), Seek::Data(9 * PAGE)]
            .map(|seek| seeker.lseek(seek).map(|at| at as i64))
    };
    let before =
        [Ok(2 * PAGE), Ok(0), Ok(3 * PAGE), Err(Error::NoDeviceAddress), Ok(4 * PAGE), Err(Error::NoDeviceAddress)];
    assert_eq!(look(), before);
    let parked = store.park(Call::Write);
    std::thread::scope(|scope| {
        let write = scope.spawn(|| writer.pwrite(&[1; 4096 * 5], 3 * PAGE as u64));
        parked.reached();
        assert_eq!(look(), before);
        drop(parked);
        assert_eq!(write.join().expect("ends"), Ok(4096 * 5));
    });
    let after = [Ok(2 * PAGE), Ok(0), Ok(8 * PAGE), Ok(3 * PAGE), Ok(8 * PAGE), Err(Error::NoDeviceAddress)];
    assert_eq!(look(), after);
}

/// Reads and writes at the shared position are serialized, even if one of them is slow.
///
/// Seen to fail: a read or write that does not wait for the one before it on its handle (two at one
/// position).
#[test]
fn reads_and_writes_at_the_position_are_serialized() {
    let (vfs, root, store) = mounted(MapOptions::default());
    let file = vfs.open(&root, At::Cwd, "/f", OpenFlags::RDWR | OpenFlags::CREAT, 0o600).expect("opens");
    // Yields so often that the second thread has run until it must wait.
    let let_it_run = || (0..1000).for_each(|_| std::thread::yield_now());
    let parked = store.park(Call::Write);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| file.write(b"abc"));
        parked.reached();
        let second = scope.spawn(|| file.write(b"def"));
        let_it_run();
        drop(parked);
        assert_eq!((first.join().expect("ends"), second.join().expect("ends")), (Ok(3), Ok(3)));
    });
    assert_eq!((file.tell(), file.stat().size), (6, 6));
    file.lseek(Seek::Set(0)).expect("sought");
    let parked = store.park(Call::Read);
    let read = || {
        let mut bytes = [0; 3];
        file.read(&mut bytes).map(|_| bytes)
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(read);
        parked.reached();
        let second = scope.spawn(read);
        let_it_run();
        drop(parked);
        assert_eq!((first.join().expect("ends"), second.join().expect("ends")), (Ok(*b"abc"), Ok(*b"def")));
    });
}

/// A driver that calls a function when it is asked for a file's layout.
struct Asked(MapFs, Arc<dyn Fn() + Send + Sync>);

impl Driver for Asked {
    fn statfs(&self) -> Result<StatFs> {
        self.0.statfs()
    }
    fn charge(&self, what: Charge) -> Result<()> {
        self.0.charge(what)
    }
    fn release(&self, what: Charge) {
        self.0.release(what);
    }
    fn data(&self, ino: u64) -> Box<dyn FileData> {
        Box::new(AskedData(self.0.data(ino), self.1.clone()))
    }
    fn backing(&self) -> Option<&dyn Backing> {
        self.0.backing()
    }
}

struct AskedData(Box<dyn FileData>, Arc<dyn Fn() + Send + Sync>);

impl FileData for AskedData {
    fn read_at(&self, buf: &mut [u8], offset: u64, size: u64) -> Result<usize> {
        self.0.read_at(buf, offset, size)
    }
    fn write_at(&mut self, data: &[u8], offset: u64) -> Result<usize> {
        self.0.write_at(data, offset)
    }
    fn truncate(&mut self, old_size: u64, new_size: u64) -> Result<()> {
        self.0.truncate(old_size, new_size)
    }
    fn allocate(&mut self, offset: u64, len: u64) -> Result<()> {
        self.0.allocate(offset, len)
    }
    fn punch(&mut self, offset: u64, len: u64) -> Result<()> {
        self.0.punch(offset, len)
    }
    fn seek_data(&self, offset: u64, size: u64) -> Result<Option<u64>> {
        self.0.seek_data(offset, size)
    }
    fn seek_hole(&self, offset: u64, size: u64) -> Result<u64> {
        self.0.seek_hole(offset, size)
    }
    fn layout(&self) -> Option<Layout> {
        (self.1)();
        self.0.layout()
    }
    fn blocks(&self) -> Option<u64> {
        self.0.blocks()
    }
    fn sync(&mut self) -> Result<()> {
        self.0.sync()
    }
}

/// Others replace a file. A seek during the walk that notices it returns the old size with the old
/// holes, or the new ones.
///
/// Seen to fail: the new size was stored before the layout was read, so the pages behind the old
/// end were no data.
#[test]
fn foreign_write_changes_size_and_layout_together() {
    let seeker: Arc<OnceLock<File>> = Arc::default();
    let answers: Arc<Mutex<Vec<[Result<i64>; 4]>>> = Arc::default();
    let look = |file: &File| {
        [Seek::End(0), Seek::Data(0), Seek::Hole(2 * PAGE), Seek::Data(4 * PAGE)]
            .map(|seek| file.lseek(seek).map(|at| at as i64))
    };
    let asked = {
        // Weak: the driver holds this function, and the file holds the driver.
        let (seeker, answers) = (Arc::downgrade(&seeker), answers.clone());
        move || {
            let seeker = seeker.upgrade();
            if let Some(file) = seeker.as_ref().and_then(|seeker| seeker.get()) {
                let seen = std::thread::scope(|scope| scope.spawn(|| look(file)).join()).expect("no panic");
                answers.lock().expect("no panic").push(seen);
            }
        }
    };
    let driver = MapFs::new(MapOptions::default());
    let store = driver.handle();
    let vfs = Vfs::new(Asked(driver, Arc::new(asked))).expect("a new tree");
    let root = Context::new(&vfs, Credentials::root());
    let file = vfs.open(&root, At::Cwd, "/f", OpenFlags::RDWR | OpenFlags::CREAT, 0o600).expect("opens");
    file.pwrite(&[1; 4096 * 2], 2 * PAGE as u64).expect("written");
    let ino = file.stat().ino;
    let before = [Ok(4 * PAGE), Ok(2 * PAGE), Ok(4 * PAGE), Err(Error::NoDeviceAddress)];
    let after = [Ok(8 * PAGE), Ok(0), Ok(8 * PAGE), Ok(4 * PAGE)];
    assert_eq!(look(&file), before);
    assert!(seeker.set(file).is_ok());
    store.write(ino, &[2; 4096 * 8]).expect("written");
    assert_eq!(vfs.stat(&root, At::Cwd, "/f", Walk::empty()).map(|stat| stat.size as i64), Ok(8 * PAGE));
    let mut seen = std::mem::take(&mut *answers.lock().expect("no panic"));
    seen.dedup();
    assert!(seen == [before] || seen == [before, after], "{seen:?}");
    assert_eq!(seeker.get().map(look), Some(after));
}
