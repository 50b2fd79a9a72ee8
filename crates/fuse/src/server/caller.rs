//! Whose request it is, and which privileges of a file (setuid, setgid) it may keep.
//!
//! A request names a user, a group and a thread. Whether setgid stays can depend on the supplementary groups, too, and whether
//! root has CAP_FSETID. Requests do not say that, so the server reads it in `/proc` (as `fuse_req_getgroups` of libfuse
//! does). It does so only for a file that has one of the two bits.

use pando_vfs::{Credentials, DentryRef, FileKind, Result, SetAttr};

use super::Server;

const S_ISGID: u32 = 0o2000;
const S_IXGRP: u32 = 0o010;
/// The capability to keep both bits (`capabilities(7)`).
const CAP_FSETID: u32 = 4;

/// Whose request it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of the thread, as this process sees it. 0: not known.
    pub tid: u32,
    /// Whether a file keeps setuid and setgid if this caller changes its contents. None: the request does not say it.
    pub keeps_privileges: Option<bool>,
}

impl Caller {
    /// A caller of which no more is known.
    #[must_use]
    pub const fn new(uid: u32, gid: u32) -> Self {
        Self { uid, gid, tid: 0, keeps_privileges: None }
    }

    /// What requests say: no supplementary groups, and root has all capabilities.
    pub(super) fn credentials(self) -> Credentials {
        match self.uid {
            0 => Credentials { gid: self.gid, ..Credentials::root() },
            uid => Credentials::user(uid, self.gid, &[]),
        }
    }

    /// With supplementary groups and CAP_FSETID, from `/proc`. If the thread cannot be seen there, root has the capability and
    /// others have no further group: a bit that means privilege is rather taken away.
    ///
    /// A capability of others than root does not count: it may be one of their own user namespace.
    pub(super) fn full_credentials(self) -> Credentials {
        let mut cred = self.credentials();
        if let Some(status) = self.status() {
            cred.groups = status.groups.into();
            cred.capable &= status.capabilities >> CAP_FSETID & 1 == 1;
        }
        if let Some(keeps) = self.keeps_privileges {
            cred.capable = keeps;
        }
        cred
    }

    fn status(self) -> Option<Status> {
        // The thread waits for the answer, unless it was killed; then another may have its number.
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.tid)).ok()?;
        Status::parse(&text).filter(|status| (status.uid, status.gid) == (self.uid, self.gid))
    }
}

/// What `/proc/TID/status` says of a thread (`proc_pid_status(5)`).
#[derive(Debug, PartialEq, Eq)]
struct Status {
    /// Those for file systems.
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    /// The effective ones, a bit each.
    capabilities: u64,
}

impl Status {
    fn parse(text: &str) -> Option<Self> {
        let field = |name| text.lines().find_map(|line| line.strip_prefix(name)).map(str::split_ascii_whitespace);
        // Real, effective, saved, and that for file systems.
        let id = |name| field(name)?.nth(3)?.parse().ok();
        Some(Self {
            uid: id("Uid:")?,
            gid: id("Gid:")?,
            groups: field("Groups:")?.map(str::parse).collect::<std::result::Result<_, _>>().ok()?,
            capabilities: u64::from_str_radix(field("CapEff:")?.next()?, 16).ok()?,
        })
    }
}

impl Server {
    /// Takes from a file what it may not keep when `caller` changes its contents.
    pub(super) fn take_privileges(&self, caller: Caller, dentry: &DentryRef) -> Result<()> {
        if caller.keeps_privileges == Some(true) {
            return Ok(());
        }
        self.vfs.drop_privileges(dentry, || caller.full_credentials())
    }

    /// The credentials to change these attributes with. A change of owner or group may keep setgid, which depends on the groups
    /// of the caller.
    pub(super) fn credentials_for(&self, caller: Caller, dentry: &DentryRef, change: &SetAttr) -> Credentials {
        let mode = dentry.stat().mode & (S_ISGID | S_IXGRP);
        let owner = change.uid.is_some() || change.gid.is_some();
        if owner && dentry.kind() == FileKind::File && mode == S_ISGID {
            caller.full_credentials()
        } else {
            caller.credentials()
        }
    }
}

#[cfg(test)]
mod tests;
