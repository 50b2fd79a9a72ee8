//! Watches: a thread follows what another one does, as with inotify.

use std::{thread, time::Duration};

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{At, Walk, WatchEvents, WatcherOptions, fs::Fs};

fn main() -> pando_vfs::Result<()> {
    let fs = Fs::new(MemFs::new(MemOptions::new()))?;
    let watcher = fs.vfs().watcher(WatcherOptions::new());
    let wanted = WatchEvents::CREATE | WatchEvents::MOVE | WatchEvents::DELETE | WatchEvents::CLOSE_WRITE;
    watcher.add_recursive(fs.context(), At::Cwd, "/", wanted, Walk::empty())?;
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            fs.create_dir("/grove")?;
            fs.write("/grove/new", "one root, many trunks")?;
            fs.rename("/grove/new", "/grove/aspen")?;
            fs.remove_dir_all("/grove")
        });
        while let Some(event) = watcher.recv_timeout(Duration::from_secs(1)) {
            let names: Vec<_> = event.events.iter_names().map(|(name, _)| name).collect();
            println!("{:<16} {}", names.join(" "), String::from_utf8_lossy(&event.path));
            if event.path == b"grove" && event.events.contains(WatchEvents::DELETE) {
                break;
            }
        }
        worker.join().expect("no panic")
    })
}
