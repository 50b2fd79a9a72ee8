//! What allocates: nothing for an entry of xgetdents.

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{
    At, Context, Credentials, Next, OpenFlags, Vfs, Walk, XattrFlags,
    records::{Mask, Unpacked},
};
use pandofs_testkit::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[path = "support/acl.rs"]
mod acl;

/// Makes a directory of files with an ACL and three extended attributes each.
fn fill(vfs: &Vfs, context: &Context, dir: &str, files: usize) {
    vfs.mkdir(context, At::Cwd, dir, 0o755).expect("made");
    for file in 0..files {
        let path = format!("{dir}/file{file}");
        vfs.open(context, At::Cwd, &path, OpenFlags::CREAT | OpenFlags::RDWR, 0o644).expect("made");
        for name in ["user.a", "security.b", "trusted.c"] {
            vfs.setxattr(context, At::Cwd, &path, name, [7; 100], XattrFlags::empty(), Walk::empty()).expect("set");
        }
        let value = acl::acl(0o644, 1000, 6);
        vfs.setxattr(context, At::Cwd, &path, acl::ACCESS, value, XattrFlags::empty(), Walk::empty()).expect("set");
    }
}

/// The entries, the bytes of values, and the allocations of one listing with everything.
fn list(vfs: &Vfs, context: &Context, dir: &str) -> (usize, usize, usize) {
    let dir = vfs.open(context, At::Cwd, dir, OpenFlags::DIRECTORY, 0).expect("opens");
    let mut buffer = vec![0; 32 << 10];
    let mask = Mask::level(3).expect("a level");
    let calls = Counting::calls();
    let (mut cookie, mut entries, mut values) = (0, 0, 0);
    loop {
        let packed = dir.xgetdents(context, cookie, mask, &mut buffer).expect("lists");
        for record in Unpacked::new(&buffer[..packed.bytes]) {
            entries += usize::from(record.attr().is_some());
            values += record.xattrs().map(|xattr| xattr.size).sum::<usize>();
        }
        cookie = packed.cookie;
        if packed.next == Next::End {
            break;
        }
    }
    (entries, values, Counting::calls() - calls)
}

/// One test, since the allocator counts for the whole process.
#[test]
fn an_entry_of_xgetdents_allocates_nothing() {
    let vfs = Vfs::new(MemFs::new(MemOptions::default())).expect("a tree");
    let root = Context::new(&vfs, Credentials::root());
    fill(&vfs, &root, "/few", 50);
    fill(&vfs, &root, "/many", 5000);
    // Others do not see the attributes of the namespace `trusted.`.
    let acl = acl::acl(0, 0, 0).len();
    for (cred, seen) in [(Credentials::root(), 300 + acl), (Credentials::user(1000, 1000, &[7, 8]), 200 + acl)] {
        let context = root.clone().with_credentials(cred);
        // The first listing of a thread allocates what the thread needs.
        list(&vfs, &context, "/few");
        assert_eq!(list(&vfs, &context, "/few"), (52, 50 * seen, 0));
        assert_eq!(list(&vfs, &context, "/many"), (5002, 5000 * seen, 0));
    }
}
