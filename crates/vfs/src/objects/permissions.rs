//! The permissions of an inode: mode, owner, group, flags and ACLs, one immutable record that is
//! replaced as a whole. Until the first change, an inode without flags and ACLs has no record:
//! `initial` is in force.

use pando_sync::{AtomicCounted, Counted, Guard, Object};

use crate::{
    Charge, InodeFlags, NodeAttr, Result,
    objects::xattr_map::cost_of,
    types::{
        acl::{Acl, AclKind},
        cred::{PermView, Permissions, PermissionsRef},
    },
};

/// The charge for an ACL in a tree in memory: that for an extended attribute.
pub(crate) fn cost_of_acl(kind: AclKind, acl: &Acl) -> Charge {
    cost_of(kind.name().as_bytes(), acl.as_xattr().len())
}

/// The permissions in the form of a backing.
pub(crate) fn permissions_of(attr: &NodeAttr) -> Permissions {
    let perm = PermView { mode: attr.mode, uid: attr.uid, gid: attr.gid };
    Permissions { perm, flags: attr.flags, acls: attr.acls.clone() }
}

/// The record, if there is one. Atomic pointer.
pub(super) struct Record(AtomicCounted<Permissions>);

impl Record {
    /// That of a new inode: none if mode, owner and group say everything.
    #[inline]
    pub(super) fn new(permissions: Permissions) -> Self {
        let says_more = permissions.acls.is_some() || !permissions.flags.is_empty();
        Self(AtomicCounted::new(says_more.then(|| Counted::new(permissions))))
    }

    #[inline]
    pub(super) fn perm(&self, initial: PermView, guard: &Guard) -> PermView {
        match self.0.load(guard) {
            None => initial,
            Some(record) => record.to_ref().perm,
        }
    }

    #[inline]
    pub(super) fn get<'g>(&self, initial: &'g PermView, guard: &'g Guard) -> PermissionsRef<'g> {
        match self.0.load(guard) {
            None => PermissionsRef { perm: initial, flags: InodeFlags::empty(), acls: None },
            Some(record) => record.to_ref().into(),
        }
    }

    /// Returns the bytes of the ACLs before and after.
    pub(super) fn change(
        &self,
        initial: PermView,
        guard: &Guard,
        mut change: impl FnMut(Permissions) -> Result<Permissions>,
    ) -> Result<(usize, usize)> {
        loop {
            let now = self.0.load(guard);
            let new = change(now.map_or_else(|| initial.into(), |record| record.to_ref().clone()))?;
            let bytes = (now.map_or(0, |record| record.to_ref().held_bytes()), new.held_bytes());
            if self.0.compare_exchange(now, Some(Counted::new(new))).is_ok() {
                return Ok(bytes);
            }
        }
    }

    /// The inode is freed. Calls `each` with the charge for each of its ACLs. Returns their bytes.
    pub(super) fn take(&self, each: impl Fn(Charge)) -> usize {
        if self.0.is_none() {
            return 0;
        }
        let Some(record) = self.0.swap(None) else { return 0 };
        record.acls.iter().flat_map(|acls| acls.iter()).for_each(|(kind, acl)| each(cost_of_acl(kind, acl)));
        record.held_bytes()
    }
}
