//! The caller of a request, and whether its changes clear the setuid and setgid bits of a file.
//!
//! A request names a user, a group and a thread. Whether setgid stays can also depend on the
//! supplementary groups, and on CAP_FSETID of root. Requests do not carry these, so the server
//! reads them in `/proc` (as `fuse_req_getgroups` of libfuse does). It does so only for a file that
//! has one of the two bits, and for calls that read or make many entries, whose permissions the
//! kernel does not check.

use pando_vfs::{Credentials, DentryRef, Error, FileKind, InodeFlags, Result, SetAttr};

use super::{Server, inode_flags::has_flag};

pub(super) const S_ISGID: u32 = 0o2000;
const S_IXGRP: u32 = 0o010;
/// The capability to keep both bits (`capabilities(7)`).
const CAP_FSETID: u32 = 4;
const CAP_SYS_ADMIN: u32 = 21;
/// The capabilities to read whatever the permission bits say, and attributes of the namespace
/// `trusted.`.
const READ_ALL: [u32; 2] = [2, CAP_SYS_ADMIN];
/// The capabilities to make entries with any owner, mode, device number and extended attributes.
const MAKE_ALL: [u32; 8] = [0, 1, 2, 3, CAP_FSETID, CAP_SYS_ADMIN, 27, 31];

/// The caller of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The number of the thread in this process's PID namespace. 0: not known.
    pub tid: u32,
    /// Whether a file keeps setuid and setgid when this caller changes its contents. None: the
    /// request does not say so.
    pub keeps_privileges: Option<bool>,
}

impl Caller {
    /// A caller of which only user and group are known.
    #[must_use]
    pub const fn new(uid: u32, gid: u32) -> Self {
        Self { uid, gid, tid: 0, keeps_privileges: None }
    }

    /// The credentials in a request: no supplementary groups; root has all capabilities.
    pub(super) fn credentials(self) -> Credentials {
        match self.uid {
            0 => Credentials { gid: self.gid, ..Credentials::root() },
            uid => Credentials::user(uid, self.gid, &[]),
        }
    }

    /// The credentials with supplementary groups and CAP_FSETID, from `/proc`. If the thread is not
    /// visible there, root has the capability and other users have no supplementary group. So in
    /// doubt a bit is cleared.
    ///
    /// A capability of another user than root does not count, because it may be valid only in the
    /// user's own user namespace.
    pub(super) fn full_credentials(self) -> Credentials {
        let mut cred = self.credentials();
        if let Some(status) = self.status() {
            cred.capable &= status.has(CAP_FSETID);
            cred.groups = status.groups.into();
        }
        if let Some(keeps) = self.keeps_privileges {
            cred.capable = keeps;
        }
        cred
    }

    /// The credentials for reading what the kernel has not checked, with supplementary groups. Only
    /// root is capable, if it has all of [`READ_ALL`] in the server's user namespace. None if the
    /// server cannot see the thread: a group can be denied what others may do.
    pub(super) fn reader_credentials(self) -> Option<Credentials> {
        let (mut cred, status) = (self.credentials(), self.status()?);
        if cred.capable {
            cred.capable =
                READ_ALL.iter().all(|&capability| status.has(capability)) && self.is_in_own_user_namespace()?;
        }
        cred.groups = status.groups.into();
        Some(cred)
    }

    /// The credentials for making what the kernel has not checked, with supplementary groups. None
    /// if only the kernel can tell what the caller may make, call by call:
    /// - With `admin`, the kernel has seen that the caller has CAP_SYS_ADMIN in the initial user
    ///   namespace. It must be root with all of [`MAKE_ALL`]. Without, it must be another user with
    ///   none of these capabilities.
    /// - A process with no_new_privs may be in a sandbox (Landlock) that restricts single calls.
    /// - The server must see all of that. A worker of io_uring acts for a process with other
    ///   credentials than its own.
    pub(super) fn maker_credentials(self, admin: bool) -> Option<Credentials> {
        let (mut cred, status) = (self.credentials(), self.status()?);
        let has = |&capability: &u32| status.has(capability);
        let is_clear = match (self.uid == 0, admin) {
            (true, true) => MAKE_ALL.iter().all(has),
            (false, false) => !MAKE_ALL.iter().any(has),
            _ => false,
        };
        cred.groups = status.groups.into();
        (is_clear && status.is_unrestricted).then_some(cred)
    }

    /// Whether this is root with CAP_SYS_ADMIN in the server's user namespace.
    pub(super) fn is_admin(self) -> bool {
        let has = || self.status().is_some_and(|status| status.has(CAP_SYS_ADMIN));
        self.uid == 0 && has() && self.is_in_own_user_namespace() == Some(true)
    }

    /// Whether the thread's capabilities are valid where the server's are. None if the server may
    /// not see that.
    fn is_in_own_user_namespace(self) -> Option<bool> {
        let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/user")).ok();
        Some(namespace("self")? == namespace(&self.tid.to_string())?)
    }

    fn status(self) -> Option<Status> {
        // The thread waits for the reply, so no other thread has its number.
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.tid)).ok()?;
        Status::parse(&text).filter(|status| (status.uid, status.gid) == (self.uid, self.gid))
    }
}

/// The fields of `/proc/TID/status` (`proc_pid_status(5)`).
#[derive(Debug, PartialEq, Eq)]
struct Status {
    /// The user and the group for file systems.
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    /// The effective capabilities, one bit each.
    capabilities: u64,
    /// A thread of a process, without no_new_privs.
    is_unrestricted: bool,
}

impl Status {
    fn has(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 == 1
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name| text.lines().find_map(|line| line.strip_prefix(name)).map(str::split_ascii_whitespace);
        // Real, effective, saved, and for file systems.
        let id = |name| field(name)?.nth(3)?.parse().ok();
        Some(Self {
            uid: id("Uid:")?,
            gid: id("Gid:")?,
            groups: field("Groups:")?.map(str::parse).collect::<std::result::Result<_, _>>().ok()?,
            capabilities: u64::from_str_radix(field("CapEff:")?.next()?, 16).ok()?,
            is_unrestricted: field("NoNewPrivs:").and_then(|mut field| field.next()) == Some("0")
                && !text.starts_with("Name:\tiou-wrk-"),
        })
    }
}

impl Server {
    /// Clears the bits that a file must lose when `caller` changes its contents.
    ///
    /// # Errors
    /// EPERM if the inode has one of the flags `refusing`. Nothing is cleared then.
    pub(super) fn clear_privileges(&self, caller: Caller, dentry: &DentryRef, refusing: InodeFlags) -> Result<()> {
        if !refusing.is_empty() && has_flag(dentry, refusing) {
            return Err(Error::NotPermitted);
        }
        if caller.keeps_privileges == Some(true) {
            return Ok(());
        }
        self.vfs.file_remove_privs(dentry, || caller.full_credentials())
    }

    /// The credentials for a change of attributes. Whether a change of owner or group keeps setgid
    /// depends on the groups of the caller.
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
