//! Credentials and the permission check. Analogous to `generic_permission()` in fs/namei.c.

use std::sync::Arc;

use pando_sync::Object;

use crate::{
    Access, Error, InodeFlags, Result,
    types::{
        acl::{Acl, AclKind, Acls},
        stat::{S_IRWXG, S_ISGID, S_ISUID, S_IXGRP},
    },
};

/// Mode, owner and group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PermView {
    /// The permission bits: 07777.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// Mode, owner, group, flags and ACLs: one immutable record, replaced as a whole (P11).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Permissions {
    pub perm: PermView,
    pub flags: InodeFlags,
    /// None if there is neither ACL.
    pub acls: Option<Arc<Acls>>,
}

impl Object for Permissions {
    fn held_bytes(&self) -> usize {
        self.acls.iter().flat_map(|acls| acls.iter()).map(|(_, acl)| acl.as_xattr().len()).sum()
    }
}

/// [`Permissions`] that an inode has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PermissionsRef<'g> {
    pub perm: &'g PermView,
    pub flags: InodeFlags,
    pub acls: Option<&'g Arc<Acls>>,
}

impl PermissionsRef<'_> {
    /// EPERM if the inode has one of these flags.
    #[inline]
    pub(crate) fn expect_without(self, refusing: InodeFlags) -> Result<()> {
        if self.flags.intersects(refusing) { Err(Error::NotPermitted) } else { Ok(()) }
    }
}

impl<'g> From<&'g Permissions> for PermissionsRef<'g> {
    fn from(permissions: &'g Permissions) -> Self {
        let Permissions { perm, flags, acls } = permissions;
        Self { perm, flags: *flags, acls: acls.as_ref() }
    }
}

impl From<PermissionsRef<'_>> for Permissions {
    fn from(PermissionsRef { perm, flags, acls }: PermissionsRef<'_>) -> Self {
        Self { perm: *perm, flags, acls: acls.cloned() }
    }
}

impl From<PermView> for Permissions {
    fn from(perm: PermView) -> Self {
        Self { perm, flags: InodeFlags::empty(), acls: None }
    }
}

impl Permissions {
    /// These with another mode. The ACL follows it.
    pub(crate) fn with_mode(mut self, mode: u32) -> Self {
        self.perm.mode = mode;
        if let Some(acl) = self.acl(AclKind::Access).cloned() {
            self.set_acl(AclKind::Access, Some(acl.after_chmod(mode)));
        }
        self
    }

    /// Whether a flag protects the inode from changes of its attributes.
    pub(crate) fn is_protected(&self) -> bool {
        self.flags.intersects(InodeFlags::PROTECTING)
    }

    /// These after a change of the contents.
    pub(crate) fn after_write(self, writer: Writer) -> Self {
        Self { perm: writer.after_write(self.perm), ..self }
    }

    pub(crate) fn acl(&self, kind: AclKind) -> Option<&Acl> {
        self.acls.as_deref()?.get(kind)
    }

    pub(crate) fn set_acl(&mut self, kind: AclKind, acl: Option<Acl>) {
        let mut acls = self.acls.take().map(Arc::unwrap_or_clone).unwrap_or_default();
        acls.set(kind, acl);
        self.acls = (!acls.is_empty()).then(|| Arc::new(acls));
    }
}

/// The caller that changes the contents of a file, as far as setuid and setgid depend on it.
/// Analogous to `setattr_should_drop_suidgid()` in fs/attr.c.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer {
    pub capable: bool,
    /// The caller's own group; and the file's group, if the caller was in it when the writer was
    /// made.
    groups: [u32; 2],
}

impl Writer {
    /// A caller without supplementary groups, or one with root's capabilities.
    pub(crate) fn alone(capable: bool, cred: &Credentials) -> Self {
        Self { capable, groups: [cred.gid; 2] }
    }

    pub(crate) fn new(capable: bool, cred: &Credentials, perm: &PermView) -> Self {
        let shared = if cred.in_group(perm.gid) { perm.gid } else { cred.gid };
        Self { capable, groups: [cred.gid, shared] }
    }

    /// The permissions after a change of the contents. Setuid is cleared. So is setgid, if the
    /// group may execute the file or the caller is not in the group.
    #[inline]
    pub(crate) fn after_write(self, perm: PermView) -> PermView {
        // Few files have either bit, so most writes end here.
        if self.capable || perm.mode & (S_ISUID | S_ISGID) == 0 {
            return perm;
        }
        let keep_setgid = perm.mode & S_IXGRP == 0 && self.groups.contains(&perm.gid);
        let setgid = if keep_setgid { 0 } else { S_ISGID };
        PermView { mode: perm.mode & !(S_ISUID | setgid), ..perm }
    }
}

/// The identity that permissions are checked against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user.
    pub uid: u32,
    /// The group, for new files and for checks.
    pub gid: u32,
    /// The supplementary groups.
    pub groups: Arc<[u32]>,
    /// Whether the caller has the overriding capabilities of root (DAC_OVERRIDE, FOWNER, CHOWN,
    /// FSETID, MKNOD, SYS_ADMIN).
    pub capable: bool,
}

impl Credentials {
    /// The superuser.
    #[must_use]
    pub fn root() -> Self {
        Self { uid: 0, gid: 0, groups: Arc::new([]), capable: true }
    }

    /// An ordinary user.
    #[must_use]
    pub fn user(uid: u32, gid: u32, groups: &[u32]) -> Self {
        Self { uid, gid, groups: groups.into(), capable: false }
    }

    /// Whether `gid` is the group or one of the supplementary groups.
    #[must_use]
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Whether this is the owner, or may act as the owner.
    pub(crate) fn owns(&self, perm: &PermView) -> bool {
        self.capable || self.uid == perm.uid
    }

    /// Checks `want` against owner, group and mode.
    #[inline]
    pub(crate) fn check(&self, perm: &PermView, is_dir: bool, want: Access) -> Result<()> {
        // A walk checks this at each step, and most directories may be searched by everybody. Then
        // the caller's class need not be determined.
        if want == Access::EXEC && perm.mode & 0o111 == 0o111 {
            return Ok(());
        }
        self.check_class(perm, is_dir, want)
    }

    fn check_class(&self, perm: &PermView, is_dir: bool, want: Access) -> Result<()> {
        let bits = if self.uid == perm.uid {
            perm.mode >> 6
        } else if self.in_group(perm.gid) {
            perm.mode >> 3
        } else {
            perm.mode
        };
        if bits & 7 & want.bits() == want.bits() {
            return Ok(());
        }
        self.check_override(perm, is_dir, want)
    }

    /// Checks `want` against owner, group, mode and access ACL.
    #[cold]
    pub(crate) fn check_acl(&self, perm: &PermView, acl: &Acl, is_dir: bool, want: Access) -> Result<()> {
        // As in Linux, the ACL has no say for the owner, nor if its mask permits nothing.
        if self.uid == perm.uid || perm.mode & S_IRWXG == 0 {
            return self.check(perm, is_dir, want);
        }
        if acl.permits(self.uid, |gid| self.in_group(gid), perm.gid, want) {
            return Ok(());
        }
        self.check_override(perm, is_dir, want)
    }

    /// A caller with root's capabilities may read and write anything, search every directory, and
    /// execute a file that anybody may execute.
    fn check_override(&self, perm: &PermView, is_dir: bool, want: Access) -> Result<()> {
        if self.capable && (is_dir || !want.contains(Access::EXEC) || perm.mode & 0o111 != 0) {
            return Ok(());
        }
        Err(Error::Access)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the rule as POSIX states it, for every mode and each class of callers.
    #[test]
    fn check_agrees_with_posix_for_every_mode() {
        for mode in 0..=0o777 {
            let perm = PermView { mode, uid: 1, gid: 2 };
            let asking = [
                (Credentials::user(1, 9, &[]), 6),
                (Credentials::user(9, 2, &[]), 3),
                (Credentials::user(9, 9, &[]), 0),
            ];
            for (cred, shift) in asking {
                for want in 1..=7 {
                    let may = (mode >> shift) & want == want;
                    let said = cred.check(&perm, false, Access::from_bits_truncate(want));
                    assert_eq!(said.is_ok(), may, "{mode:o} {want}");
                }
            }
        }
    }

    #[test]
    fn first_matching_class_decides() {
        let perm = PermView { mode: 0o074, uid: 1, gid: 2 };
        let check = |cred: &Credentials, want| cred.check(&perm, false, want);
        // The owner has no permission bit, although the group has all of them.
        assert_eq!(check(&Credentials::user(1, 2, &[]), Access::READ), Err(Error::Access));
        assert_eq!(check(&Credentials::user(9, 9, &[2]), Access::all()), Ok(()));
        assert_eq!(check(&Credentials::user(9, 9, &[]), Access::READ), Ok(()));
        assert_eq!(check(&Credentials::user(9, 9, &[]), Access::WRITE), Err(Error::Access));
        assert_eq!(check(&Credentials::root(), Access::all()), Ok(()));
        let plain = PermView { mode: 0o666, uid: 1, gid: 2 };
        assert_eq!(Credentials::root().check(&plain, false, Access::EXEC), Err(Error::Access));
        assert_eq!(Credentials::root().check(&plain, true, Access::EXEC), Ok(()));
    }
}
