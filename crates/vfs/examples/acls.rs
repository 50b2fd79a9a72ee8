//! POSIX ACLs: a directory that a group may read and one user may change, also below.

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{
    Acl, AclName, At, Context, Credentials, Error, Walk, XATTR_ACL_ACCESS, XATTR_ACL_DEFAULT, XattrFlags, fs::Fs,
};

const EVE: u32 = 1003;

fn main() -> pando_vfs::Result<()> {
    let fs = Fs::new(MemFs::new(MemOptions::new()))?;
    let (vfs, root) = (fs.vfs(), fs.context());
    fs.create_dir("/grove")?;
    // Names are the embedder's. Numbers need no look-up.
    let id_of = |name: AclName<'_>| if name == AclName::User("eve") { Ok(EVE) } else { Err(Error::Invalid) };
    let acl = Acl::from_text("user::rwx,user:eve:rwx,group::r-x,mask::rwx,other::---", id_of)?.expect("entries");
    // The first is checked, the second is what new files get.
    for name in [XATTR_ACL_ACCESS, XATTR_ACL_DEFAULT] {
        vfs.setxattr(root, At::Cwd, "/grove", name, acl.as_xattr(), XattrFlags::empty(), Walk::empty())?;
    }
    let as_user = |uid| Fs::with_context(vfs.clone(), Context::new(vfs, Credentials::user(uid, uid, &[])));
    as_user(EVE).write("/grove/tree", "oak\n")?;
    assert_eq!(as_user(1004).read("/grove/tree"), Err(Error::Access));

    let value = vfs.getxattr(root, At::Cwd, "/grove/tree", XATTR_ACL_ACCESS, Walk::empty())?;
    println!("{}", Acl::from_xattr(&value)?.expect("inherited"));
    println!("mode {:o}", fs.metadata("/grove/tree")?.mode);
    Ok(())
}
