//! Seeks beside a write that takes its time (P6): none of them waits, and each answers as of one instant.

use pando_mapfs::{Call, MapOptions};
use pando_vfs::{At, Error, OpenFlags, Seek};

use crate::support::mounted;

const PAGE: i64 = 4096;

/// Seen to hang when DATA and HOLE asked under the inode's data lock.
#[test]
fn no_seek_waits_for_a_write() {
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

/// Reads and writes with the shared position come one after the other, also while one of them takes its time.
/// Seen to fail: a read or write that does not wait for the one before it on its handle (two at one position).
#[test]
fn reads_and_writes_with_one_position_come_one_after_the_other() {
    let (vfs, root, store) = mounted(MapOptions::default());
    let file = vfs.open(&root, At::Cwd, "/f", OpenFlags::RDWR | OpenFlags::CREAT, 0o600).expect("opens");
    // So often does the second one get the processor that it has come as far as it can.
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
