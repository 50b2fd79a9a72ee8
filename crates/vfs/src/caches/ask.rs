//! Trees that are kept elsewhere: what the cache does not know is asked for, and what is not used can be evicted.
//!
//! * *A miss* asks without a guard, and mostly without a lock, once however many want the name (`load`); the walk that
//!   missed starts over and hits. That a name is *absent* is remembered in a table of its own, beside the directory's.
//! * *A change* goes to the backing first, under the locks of its names and without a guard, and into the cache when
//!   the backing has agreed.
//! * *Somebody else's changes* are noticed by the backing's change count of a directory, looked at on each walk
//!   through it: another count, and everything cached of the directory is asked for again.
//! * *Eviction* takes the name's lock, stores what only the cache knows (times), and condemns the dentry at exactly
//!   the references that the cache itself holds: from then on nobody can get one, and it is taken out.

use pando_sync::Counted;

use crate::{
    Result,
    caches::{load::load, refresh::refresh},
    objects::{dentry::Dentry, superblock::NameSpace},
};

/// What only the backing knows, or must be told.
pub(crate) enum Ask {
    /// What a name is bound to.
    Name(Counted<Dentry>, Box<[u8]>),
    /// What has changed in a directory, up to a change count.
    Changes(Counted<Dentry>, u64),
}

impl Ask {
    /// Asks the backing, and puts what it answers into the cache. No guard and no lock is held.
    pub(crate) fn answer(self, name_space: &NameSpace) -> Result<()> {
        match self {
            // Whoever else wants the same waits for this answer, and shares it (P7).
            Self::Name(dir, name) => {
                let (sb, question) = (dir.sb(), (dir.inode().ino, name));
                sb.questions.run(&question, || load(name_space, &dir, &question.1))
            }
            Self::Changes(dir, count) => {
                let (sb, question) = (dir.sb(), (dir.inode().ino, Box::default()));
                sb.questions.run(&question, || refresh(name_space, &dir, count))
            }
        }
    }
}
