//! A thread releases a file as its last act, after its thread-local part of the reclaimer is gone,
//! while much retired memory is pending. Its stack must not grow with the retired memory.

use std::cell::RefCell;

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{At, Context, Credentials, File, OpenFlags, Vfs, Walk, XattrFlags};

const FILES: usize = 20_000;
const STACK_BYTES: usize = 128 << 10;

std::thread_local!(static LAST: RefCell<Option<File>> = const { RefCell::new(None) });

/// Returns an open file that is removed. Its last name was not its first, and it has an attribute,
/// so freeing it releases further objects.
fn removed(vfs: &Vfs, context: &Context) -> File {
    let file = vfs.open(context, At::Cwd, "/a", OpenFlags::CREAT | OpenFlags::RDWR, 0o600).expect("made");
    vfs.setxattr(context, At::Cwd, "/a", "user.x", "value", XattrFlags::empty(), Walk::empty()).expect("set");
    vfs.link(context, At::Cwd, "/a", At::Cwd, "/b", Walk::empty()).expect("linked");
    vfs.unlink(context, At::Cwd, "/a").expect("removed");
    vfs.unlink(context, At::Cwd, "/b").expect("removed");
    file
}

/// Seen to fail (a stack overflow): the last reference to an inode took a guard to look at its
/// attributes.
#[test]
fn exiting_thread_frees_without_recursion() {
    let vfs = Vfs::new(MemFs::new(MemOptions::default())).expect("a new tree");
    let context = Context::new(&vfs, Credentials::root());
    let guard = pando_sync::pin();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..FILES).for_each(|_| drop(removed(&vfs, &context))));
    });
    let last = removed(&vfs, &context);
    drop(guard);
    // A guard frees a little of the retired memory now and then. After this, most of it is expired
    // but not freed.
    (0..1000).for_each(|_| drop(pando_sync::pin()));
    let end = move || {
        // Initialized before the reclaimer's thread-local state, and therefore destroyed after it.
        LAST.with_borrow_mut(|dirent| *dirent = Some(last));
        drop(pando_sync::pin());
    };
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(end);
    thread.expect("a thread").join().expect("no panic");
    pando_sync::back_pressure(1);
}
