//! The namespaces of extended attributes.

/// The namespace of an extended attribute, and the permission that it needs (xattr(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// `user.`: by the permission bits, on regular files and directories.
    User,
    /// `trusted.`: only for capable callers. Others do not see it.
    Trusted,
    /// `security.`: every caller may read it, only capable callers may write it.
    Security,
    /// `system.`: Linux's own. Only ACLs are supported, in a tree that has them: every caller may
    /// read them, and the owner may write them.
    System,
    /// Any other namespace.
    Unknown,
}

impl Class {
    pub(crate) const ALL: [Self; 5] = [Self::User, Self::Trusted, Self::Security, Self::System, Self::Unknown];
    pub(crate) const PREFIXES: [(&[u8], Self); 4] = [
        (b"user.", Self::User),
        (b"trusted.", Self::Trusted),
        (b"security.", Self::Security),
        (b"system.", Self::System),
    ];

    pub(crate) fn of(name: &[u8]) -> Self {
        let found = Self::PREFIXES.into_iter().find(|(prefix, _)| name.starts_with(prefix));
        found.map_or(Self::Unknown, |(_, class)| class)
    }
}
