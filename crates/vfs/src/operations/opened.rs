//! The dentry that an open has found or made.

use pando_sync::{Counted, Guard, Shared};

use crate::{
    handles::held::{Held, note_contention},
    objects::{
        dentry::{Dentry, DentryRef},
        superblock::Namespace,
    },
    operations::step::{Step, Stop},
};

/// The dentry to open, and whether its reference count was contended. An attempt fills this in and
/// does not return it: pointers that are packed with an error are moved in pieces, and each move
/// waits for the one before.
#[derive(Default)]
pub(crate) struct Opened {
    held: Option<Held>,
    contended: bool,
}

impl Opened {
    /// Counts a reference on the dentry that was just found. If it has died since, the next attempt
    /// finds the current one.
    #[inline]
    pub(crate) fn find(&mut self, found: Shared<'_, Dentry>, guard: &Guard) -> Step<()> {
        if let Some(count) = found.to_ref().open_counts.local(guard) {
            self.held = Some(Held::PerCpu(count));
        } else {
            let (dentry, contended) = found.get_noting_contention().ok_or(Stop::Again)?;
            *self = Self { held: Some(Held::Counted(DentryRef(dentry))), contended };
        }
        Ok(())
    }

    /// Stores the dentry that the caller made.
    #[inline]
    pub(crate) fn made(&mut self, dentry: Counted<Dentry>) {
        self.held = Some(Held::Counted(DentryRef(dentry)));
    }

    /// Returns the reference. If the count was contended, later opens get a per-CPU reference
    /// count. The caller holds no guard and no lock.
    #[inline]
    pub(crate) fn take(self, namespace: &Namespace) -> Held {
        let held = self.held.expect("an attempt that succeeds finds or makes something");
        if self.contended {
            note_contention(&held.dentry().0, namespace);
        }
        held
    }
}
