//! What an open has found or made.

use pando_sync::{Counted, Guard, Shared};

use crate::{
    handles::held::{Held, note_contention},
    objects::{
        dentry::{Dentry, DentryRef},
        superblock::NameSpace,
    },
    operations::step::{Step, Stop},
};

/// What was found to be open, and whether others were in the way of that. (Filled in by an attempt, and not its result: pointers
/// that are packed with an error are moved in pieces, and each move waits for the one before.)
#[derive(Default)]
pub(crate) struct Opened {
    held: Option<Held>,
    contended: bool,
}

impl Opened {
    /// Holds what was just found; if it died since, the next attempt finds what is there now.
    #[inline]
    pub(crate) fn find(&mut self, found: Shared<'_, Dentry>, guard: &Guard) -> Step<()> {
        if let Some(proxy) = found.to_ref().proxies.local(guard) {
            self.held = Some(Held::Proxy(proxy));
        } else {
            let (dentry, contended) = found.get_noting_contention().ok_or(Stop::Again)?;
            *self = Self { held: Some(Held::Itself(DentryRef(dentry))), contended };
        }
        Ok(())
    }

    /// What was made by the caller.
    #[inline]
    pub(crate) fn made(&mut self, dentry: Counted<Dentry>) {
        self.held = Some(Held::Itself(DentryRef(dentry)));
    }

    /// What was found or made; if this was hard, it will be easier for those who come later. No guard and no lock is held.
    #[inline]
    pub(crate) fn take(self, name_space: &NameSpace) -> Held {
        let held = self.held.expect("an attempt that succeeds finds or makes something");
        if self.contended {
            note_contention(&held.dentry().0, name_space);
        }
        held
    }
}
