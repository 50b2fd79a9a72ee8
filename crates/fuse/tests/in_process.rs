//! A tree that is mounted at two places and used in process: each sees what the others change,
//! although the kernel may cache for a day.

#[path = "support/detached.rs"]
mod detached;

use std::{fs, os::unix::fs::MetadataExt, path::Path, thread, time::Duration};

use pando_fuse::{Changes, Connection, DeviceTransport, MountOptions, Server, ServerOptions, Transport, unmount};
use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{At, Context, Credentials, InodeFlags, OpenFlags, RenameFlags, SetAttr, Vfs, Walk};
use pandofs_testkit::{await_value, is_root, skipped};

use crate::detached::Detached;

const FOLLOW: Walk = Walk::empty();

/// `FUSE_NOTIFY_INC_EPOCH` came with Linux 6.16.
fn kernel_can_be_told() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = release.split(['.', '-']).map_while(|part| part.trim().parse::<u32>().ok());
    (parts.next(), parts.next()) >= (Some(6), Some(16))
}

fn mount(vfs: &Vfs, point: &Path) -> std::io::Result<Box<dyn Connection>> {
    let changes = Changes::Reported { otherwise: Duration::ZERO };
    let server = Server::new(vfs.clone(), ServerOptions { changes, ..ServerOptions::default() });
    DeviceTransport.connect(server, point, &MountOptions::default())
}

fn names(dir: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(name).collect();
    names.sort();
    names
}

#[test]
fn changes_reach_all_mounts_of_a_tree() {
    if !is_root() || !kernel_can_be_told() {
        return skipped("needs root and Linux 6.16");
    }
    let vfs = Vfs::new(MemFs::new(MemOptions::default())).unwrap();
    let cx = &Context::new(&vfs, Credentials::root());
    let points = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let connect = || points.iter().map(|point| mount(&vfs, point.path())).collect::<Result<Vec<_>, _>>();
    let connections = match connect() {
        Ok(connections) => connections,
        Err(error) => return skipped(&format!("cannot mount: {error}")),
    };
    thread::scope(|scope| {
        let serving: Vec<_> = connections.into_iter().map(|connection| scope.spawn(|| connection.serve())).collect();
        let [one, other] = points.each_ref().map(|point| point.path());
        let _detached = [Detached(one), Detached(other)];
        let open = |path: &str| vfs.open(cx, At::Cwd, path, OpenFlags::RDWR | OpenFlags::CREAT, 0o644).unwrap();

        // In process.
        let file = open("/f");
        file.write(b"first").unwrap();
        for point in [one, other] {
            assert_eq!(fs::read_to_string(point.join("f")).unwrap(), "first");
            assert_eq!(names(point), ["f"]);
        }
        file.pwrite(b"other and longer", 0).unwrap();
        vfs.setattr(cx, file.dentry(), &SetAttr::new().mode(0o600)).unwrap();
        for point in [one, other] {
            await_value("other and longer".to_owned(), || fs::read_to_string(point.join("f")).unwrap());
            await_value(0o600, || fs::metadata(point.join("f")).unwrap().mode() & 0o777);
        }
        vfs.rename(cx, At::Cwd, "/f", At::Cwd, "/g", RenameFlags::empty()).unwrap();
        drop(vfs.link(cx, At::Cwd, "/g", At::Cwd, "/h", FOLLOW).unwrap());
        for point in [one, other] {
            await_value(vec!["g".to_owned(), "h".to_owned()], || names(point));
            await_value((false, 2), || {
                (point.join("f").exists(), fs::metadata(point.join("g")).map_or(0, |found| found.nlink()))
            });
        }

        vfs.set_inode_flags(cx, At::Cwd, "/g", InodeFlags::NODUMP, FOLLOW).unwrap();
        let ctime = file.dentry().stat().ctime;
        for point in [one, other] {
            await_value((ctime.secs(), ctime.nanos()), || {
                let found = fs::metadata(point.join("g")).unwrap();
                (found.ctime(), found.ctime_nsec() as u32)
            });
        }

        // On one mount, for the other.
        fs::remove_file(one.join("h")).unwrap();
        fs::create_dir(one.join("d")).unwrap();
        await_value(vec!["d".to_owned(), "g".to_owned()], || names(other));
        await_value(1, || fs::metadata(other.join("g")).unwrap().nlink());
        fs::write(other.join("g"), "by the other").unwrap();
        await_value("by the other".to_owned(), || fs::read_to_string(one.join("g")).unwrap());

        drop(file);
        points.iter().for_each(|point| unmount::cleanly(point.path()).unwrap());
        serving.into_iter().for_each(|serving| serving.join().unwrap().unwrap());
    });
}
