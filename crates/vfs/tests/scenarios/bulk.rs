//! xgetdents against the calls for single entries.

use pando_vfs::{
    At, Context, Credentials, Error, File, FileKind, Next, OpenFlags, Stat, Vfs, Walk, XattrFlags,
    records::{Attr, Mask, Unpacked, XattrValue},
};

use super::{
    RW,
    acl::{ACCESS, DEFAULT, acl},
    touch, tree,
};

const NOFOLLOW: Walk = Walk::NOFOLLOW;

/// An extended attribute: its name, and its value or the errno.
type Xattr = (Vec<u8>, Option<Result<Vec<u8>, i32>>);

/// An entry, as one of the two ways returns it.
#[derive(Debug, PartialEq, Default)]
struct Known {
    name: String,
    kind: Option<FileKind>,
    ino: u64,
    cookie: u64,
    errno: Option<i32>,
    attr: Option<Attr>,
    target: Option<Vec<u8>>,
    xattrs: Vec<Xattr>,
}

/// All entries, by calls with a buffer of this size, which grows if an entry needs more.
fn bulk(dir: &File, context: &Context, mask: Mask, size: usize) -> Vec<Known> {
    let (mut buffer, mut cookie, mut all) = (vec![0xff; size], 0, Vec::new());
    loop {
        let packed = dir.xgetdents(context, cookie, mask, &mut buffer).expect("lists");
        let mut unpacked = Unpacked::new(&buffer[..packed.bytes]);
        let before = all.len();
        for record in unpacked.by_ref() {
            assert_eq!(record.xattr_errno(), None);
            let value = |value: XattrValue<'_>| match value {
                XattrValue::NotRead => None,
                XattrValue::Bytes(bytes) => Some(Ok(bytes.to_vec())),
                XattrValue::Errno(errno) => Some(Err(errno)),
            };
            all.push(Known {
                name: String::from_utf8_lossy(record.name()).into_owned(),
                kind: record.kind(),
                ino: record.ino(),
                cookie: record.cookie(),
                errno: record.errno(),
                attr: record.attr(),
                target: record.target().map(<[u8]>::to_vec),
                xattrs: record.xattrs().map(|xattr| (xattr.name.to_vec(), value(xattr.value))).collect(),
            });
        }
        assert!(unpacked.rest().is_empty() && all.len() - before == packed.entries);
        assert_eq!(all.last().map_or(0, |known| known.cookie), packed.cookie);
        match packed.next {
            Next::End => return all,
            Next::More => assert!(packed.entries > 0, "no progress"),
            Next::Needs(bytes) => {
                assert!(bytes > buffer.len() && packed.entries == 0, "{bytes}");
                buffer.resize(bytes, 0xff);
            }
        }
        cookie = packed.cookie;
    }
}

/// The same by single calls.
fn one_by_one(vfs: &Vfs, dir: &File, context: &Context, mask: Mask) -> Vec<Known> {
    let mut all = Vec::new();
    dir.readdir(0, |entry| {
        let name = String::from_utf8_lossy(entry.name).into_owned();
        all.push(Known { name, kind: Some(entry.kind), ino: entry.ino, cookie: entry.cookie, ..Known::default() });
        true
    })
    .expect("lists");
    let at = At::Dir(dir.dentry());
    for known in &mut all {
        let stat = match vfs.stat(context, at, &known.name, NOFOLLOW) {
            Ok(stat) => stat,
            Err(error) => {
                known.errno = (!mask.is_empty()).then_some(error.errno());
                continue;
            }
        };
        known.attr = mask.contains(Mask::STAT).then(|| Attr::from(&stat));
        if mask.contains(Mask::LINK_TARGETS) && stat.is_symlink() {
            known.target = Some(vfs.readlink(context, at, &known.name, NOFOLLOW).expect("a link"));
        }
        if !mask.wants_xattrs() {
            continue;
        }
        for name in vfs.listxattr(context, at, &known.name, NOFOLLOW).expect("lists") {
            let value = || vfs.getxattr(context, at, &known.name, &name, NOFOLLOW).map_err(Error::errno);
            let value = mask.contains(Mask::XATTR_VALUES).then(value);
            known.xattrs.push((name, value));
        }
    }
    all
}

/// A directory with entries of many kinds.
fn filled() -> (Vfs, Context, File) {
    let (vfs, root) = tree();
    vfs.mkdir(&root, At::Cwd, "/d", 0o755).expect("made");
    for i in 0..300 {
        touch(&vfs, &root, &format!("/d/{}{i}", "n".repeat(i % 200)));
    }
    let set = |path: &str, name: &str, value: &[u8]| {
        vfs.setxattr(&root, At::Cwd, path, name, value, XattrFlags::empty(), NOFOLLOW).expect("set");
    };
    for i in 0..25 {
        set("/d/nn2", &format!("user.{i}"), format!("value {i}").as_bytes());
    }
    set("/d/n1", "trusted.hidden", b"from others");
    set("/d/n1", "security.open", b"to all");
    set("/d/n1", "user.empty", b"");
    set("/d/nnn3", "user.large", &[b'l'; 3000]);
    vfs.chmod(&root, At::Cwd, "/d/nn2", 0o600, Walk::empty()).expect("changed");
    vfs.mkdir(&root, At::Cwd, "/d/sub", 0o700).expect("made");
    set("/d/sub", "user.of", b"a directory");
    for (path, name) in [("/d/sub", DEFAULT), ("/d/sub", ACCESS), ("/d/nnnn4", ACCESS), ("/d/nn2", ACCESS)] {
        set(path, name, &acl(0o750, 1000, 5));
    }
    vfs.symlink(&root, "where/it/leads", At::Cwd, "/d/link").expect("made");
    set("/d/link", "trusted.of", b"a link");
    vfs.link(&root, At::Cwd, "/d/nn2", At::Cwd, "/d/other", NOFOLLOW).expect("linked");
    let file = vfs.open(&root, At::Cwd, "/d/n1", RW, 0).expect("opens");
    file.write(b"contents").expect("written");
    let dir = vfs.open(&root, At::Cwd, "/d", OpenFlags::DIRECTORY | OpenFlags::NOATIME, 0).expect("opens");
    (vfs, root, dir)
}

#[test]
fn xgetdents_returns_what_single_calls_return() {
    let (vfs, root, dir) = filled();
    let user = Context::new(&vfs, Credentials::user(1000, 1000, &[]));
    let trusted = user.clone().checked_by_caller(true);
    let levels = (0..4).map(|level| Mask::level(level).expect("a level"));
    let masks = levels.chain([Mask::XATTR_VALUES, Mask::LINK_TARGETS, Mask::STAT | Mask::LINK_TARGETS]);
    for mask in masks {
        for context in [&root, &user, &trusted] {
            let expected = one_by_one(&vfs, &dir, context, mask);
            assert_eq!(expected.len(), 305);
            for size in [1 << 20, 65_536, 6000, 512] {
                let mut found = bulk(&dir, context, mask, size);
                for (found, expected) in found.iter_mut().zip(&expected) {
                    cut(found, expected, size);
                    assert_eq!(found, expected, "{mask:?} {size}");
                }
                assert_eq!(found.len(), expected.len());
            }
        }
    }
}

/// A value that does not fit has its errno. Checks that it could not fit, and puts it back.
fn cut(found: &mut Known, expected: &Known, size: usize) {
    for (found, expected) in found.xattrs.iter_mut().zip(&expected.xattrs) {
        if found.1 == Some(Err(Error::Range.errno())) {
            assert!(size < 4096);
            found.1.clone_from(&expected.1);
        }
    }
}

#[test]
fn attributes_need_search_permission_and_names_do_not() {
    let (vfs, root, dir) = filled();
    vfs.chmod(&root, At::Cwd, "/d", 0o744, Walk::empty()).expect("changed");
    let user = Context::new(&vfs, Credentials::user(1000, 1000, &[]));
    let level = |level| bulk(&dir, &user, Mask::level(level).expect("a level"), 65_536);
    assert!(level(0).iter().all(|known| known.errno.is_none()));
    for known in level(3) {
        assert_eq!((known.errno, known.attr, known.xattrs), (Some(Error::Access.errno()), None, Vec::new()));
    }
}

/// The mounted root has the attributes, as with readdir_plus, and `..` does not lead out of the
/// caller's root.
#[test]
fn mount_points_and_roots_are_as_for_a_walk() {
    let (vfs, root, dir) = filled();
    vfs.mount(&root, At::Cwd, "/d/sub", super::driver(None)).expect("mounted");
    let inside = Context::rooted(dir.dentry(), Credentials::root()).expect("a directory");
    for context in [&root, &inside] {
        let found = bulk(&dir, context, Mask::STAT, 65_536);
        assert_eq!(found, one_by_one(&vfs, &dir, context, Mask::STAT));
        let sub = found.iter().find(|known| known.name == "sub").expect("there");
        assert_ne!(sub.attr.map(|attr| attr.dev_minor), found[0].attr.map(|attr| attr.dev_minor));
        let up = found[1].attr.map(|attr| attr.ino);
        assert_eq!(up == found[0].attr.map(|attr| attr.ino), std::ptr::eq(context, &inside));
    }
}

#[test]
fn a_small_buffer_is_told_what_it_needs() {
    let (_vfs, root, dir) = filled();
    let small = dir.xgetdents(&root, 0, Mask::STAT, &mut [0; 64]).expect("an answer");
    let Next::Needs(bytes) = small.next else { panic!("{small:?}") };
    assert_eq!((small.bytes, small.entries, small.cookie), (0, 0, 0));
    let fits = dir.xgetdents(&root, 0, Mask::STAT, &mut vec![0; bytes]).expect("lists");
    assert_eq!((fits.bytes, fits.entries, fits.next), (bytes, 1, Next::More));
}

#[test]
fn xgetdents_refuses_what_readdir_refuses() {
    let (vfs, root, dir) = filled();
    let list =
        |file: &File, cookie, mask| file.xgetdents(&root, cookie, mask, &mut [0; 4096]).map(|packed| packed.next);
    assert_eq!(list(&dir, 1 << 63, Mask::STAT), Err(Error::Invalid));
    assert_eq!(list(&dir, 0, Mask::LINK_ENDS), Err(Error::Invalid));
    assert_eq!(list(&dir, 0, Mask::CAPABILITIES), Err(Error::Invalid));
    assert_eq!(list(&dir, 0, Mask::from_bits_retain(1 << 31)), Err(Error::Invalid));
    assert_eq!(list(&dir, (1 << 63) - 1, Mask::STAT), Ok(Next::End));
    let file = vfs.open(&root, At::Cwd, "/d/n1", RW, 0).expect("opens");
    assert_eq!(list(&file, 0, Mask::STAT), Err(Error::NotDirectory));
    let path = vfs.open(&root, At::Cwd, "/d", OpenFlags::PATH, 0).expect("opens");
    assert_eq!(list(&path, 0, Mask::STAT), Err(Error::BadHandle));
    vfs.mkdir(&root, At::Cwd, "/gone", 0o755).expect("made");
    let gone = vfs.open(&root, At::Cwd, "/gone", OpenFlags::DIRECTORY, 0).expect("opens");
    vfs.rmdir(&root, At::Cwd, "/gone").expect("removed");
    assert_eq!(list(&gone, 0, Mask::STAT), Err(Error::NoEntry));
}

#[test]
fn a_listing_from_the_start_is_an_access() {
    let (vfs, root, _dir) = filled();
    let dir = vfs.open(&root, At::Cwd, "/d", OpenFlags::DIRECTORY, 0).expect("opens");
    let stat = || -> Stat { vfs.stat(&root, At::Cwd, "/d", Walk::empty()).expect("there") };
    let before = stat();
    assert!(before.atime <= before.mtime);
    dir.xgetdents(&root, 0, Mask::STAT, &mut [0; 4096]).expect("lists");
    assert!(stat().atime > before.atime);
}
