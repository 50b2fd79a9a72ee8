//! Random operations. Each changes the tree at one instant, as a caller sees it.

use pando_vfs::{At, Context, InodeFlags, OpenFlags, RenameFlags, Result, SetTime, Timestamp, Vfs, Walk, XattrFlags};

use crate::acl::{ACCESS, DEFAULT, acl};
use crate::support::Rng;

/// Contents that are larger are in a file of the host.
const SMALL: usize = 16 << 10;

/// Each of few names, at most three deep.
fn path(random: &mut Rng) -> String {
    let depth = 1 + random.below(3);
    (0..depth).map(|_| format!("/{}", ["a", "b", "c", "d"][random.below(4) as usize])).collect()
}

fn bytes(random: &mut Rng, len: u64) -> Vec<u8> {
    let byte = random.next() as u8;
    (0..len).map(|i| byte.wrapping_add(i as u8)).collect()
}

/// Makes a random change. As many of them fail as succeed. The bytes of a large file are not
/// overwritten in place: after a crash, such a write may be in the file without the operations
/// before it.
pub fn change(vfs: &Vfs, context: &Context, random: &mut Rng) -> Result<()> {
    const NEW: OpenFlags = OpenFlags::RDWR.union(OpenFlags::CREAT);
    let (at, to) = (path(random), path(random));
    match random.below(32) {
        0..3 => vfs.mkdir(context, At::Cwd, &at, 0o700 | random.below(0o100) as u32).map(drop),
        3..6 => vfs.open(context, At::Cwd, &at, NEW, 0o600 | random.below(0o100) as u32).map(drop),
        6 => vfs.symlink(context, &to, At::Cwd, &at).map(drop),
        7 => vfs.link(context, At::Cwd, &at, At::Cwd, &to, Walk::empty()).map(drop),
        8 => vfs.unlink(context, At::Cwd, &at),
        9 => vfs.rmdir(context, At::Cwd, &at),
        10..13 => {
            let flags = [
                RenameFlags::empty(),
                RenameFlags::empty(),
                RenameFlags::NOREPLACE,
                RenameFlags::EXCHANGE,
                RenameFlags::WHITEOUT,
            ];
            vfs.rename(context, At::Cwd, &at, At::Cwd, &to, flags[random.below(5) as usize])
        }
        13 if random.below(3) == 0 => {
            let flags = [InodeFlags::empty(), InodeFlags::NODUMP, InodeFlags::NOATIME][random.below(3) as usize];
            vfs.set_inode_flags(context, At::Cwd, &at, flags, Walk::empty())
        }
        13 => vfs.chmod(context, At::Cwd, &at, random.below(0o10000) as u32, Walk::empty()),
        14 => {
            let (name, value) = (format!("user.{}", random.below(3)), bytes(random, 10));
            match random.below(3) {
                0 => vfs.removexattr(context, At::Cwd, &at, name, Walk::empty()),
                _ => vfs.setxattr(context, At::Cwd, &at, name, value, XattrFlags::empty(), Walk::empty()),
            }
        }
        15 if random.below(3) == 0 => {
            let name = [ACCESS, DEFAULT][random.below(2) as usize];
            match random.below(3) {
                0 => vfs.removexattr(context, At::Cwd, &at, name, Walk::empty()),
                _ => {
                    let value = acl(0o740, random.below(3) as u32, random.below(8) as u16);
                    vfs.setxattr(context, At::Cwd, &at, name, value, XattrFlags::empty(), Walk::empty())
                }
            }
        }
        15 => {
            let time = SetTime::At(Timestamp(random.below(1 << 40) as i64));
            vfs.utimens(context, At::Cwd, &at, time, time, Walk::empty())
        }
        16 => {
            let flags = OpenFlags::RDWR | OpenFlags::TMPFILE | OpenFlags::DIRECTORY;
            let file = vfs.open(context, At::Cwd, "/", flags, 0o600)?;
            vfs.link(context, At::Dir(file.dentry()), "", At::Cwd, &to, Walk::EMPTY_PATH).map(drop)
        }
        _ => {
            let file = vfs.open(context, At::Cwd, &at, OpenFlags::RDWR, 0)?;
            let size = vfs.getattr(file.dentry())?.size;
            let (len, is_small) = (1 + random.below(9000), size as usize <= SMALL);
            match random.below(6) {
                0 => {
                    let from = vfs.open(context, At::Cwd, &to, OpenFlags::RDONLY, 0)?;
                    file.copy_range(size, &from, random.below(20_000), random.below(60_000) as usize).map(drop)
                }
                1 | 2 => file.truncate(random.below(60_000)),
                3 if is_small && size > len => file.pwrite(&bytes(random, len), random.below(size - len)).map(drop),
                _ => file.pwrite(&bytes(random, len), size).map(drop),
            }
        }
    }
}
