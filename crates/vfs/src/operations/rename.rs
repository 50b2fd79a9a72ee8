//! rename: walks to both parents, then locks, checks and moves ([`Move`]). Analogous to
//! `do_renameat2()` in fs/namei.c.

use pando_sync::{Counted, Guard};

use crate::{
    At, Context, Error, Result, Timestamp, Vfs,
    objects::{dentry::Dentry, inode::Inode},
    operations::{
        attempt::change,
        bound::{Bound, holds_an_entry, shows_an_entry},
        locks::Locks,
        make::{WHITEOUT, charge_for, new_permissions},
        moving::{Found, Move, Needs, held},
        namei::walk_parent,
        parent::Parent,
        remote,
        step::{Commit, Step},
    },
    trace::{Place, TraceOp},
    types::RenameFlags,
};

impl Vfs {
    /// Moves a name (renameat2). It replaces an existing file or empty directory, exchanges two
    /// names, or, with NOREPLACE, requires that the new name is free. With WHITEOUT the old name is
    /// bound to a whiteout from then on.
    ///
    /// # Errors
    /// ENOENT, EEXIST (NOREPLACE), ENOTEMPTY, ENOTDIR, EISDIR, EINVAL (a directory into itself;
    /// invalid flags), EXDEV, EBUSY, EACCES, EPERM, ELOOP, ENAMETOOLONG, ENOSPC.
    #[doc(alias = "renameat2")]
    pub fn rename(
        &self,
        context: &Context,
        old_at: At<'_>,
        old_path: impl AsRef<[u8]>,
        new_at: At<'_>,
        new_path: impl AsRef<[u8]>,
        flags: RenameFlags,
    ) -> Result<()> {
        let (old_path, new_path) = (old_path.as_ref(), new_path.as_ref());
        let (old, new) = (Place::Walk(context, old_at, old_path), Place::Walk(context, new_at, new_path));
        self.traced_two(TraceOp::Rename, old, new, || {
            self.rename_at(context, (old_at, old_path), (new_at, new_path), flags)
        })
    }

    fn rename_at(
        &self,
        context: &Context,
        (old_at, old_path): (At<'_>, &[u8]),
        (new_at, new_path): (At<'_>, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        let not_exchanged = RenameFlags::NOREPLACE | RenameFlags::WHITEOUT;
        if flags.contains(RenameFlags::EXCHANGE) && flags.intersects(not_exchanged)
            || !RenameFlags::all().contains(flags)
        {
            return Err(Error::Invalid);
        }
        change(self.namespace(), |guard, locks| {
            let old = walk_parent(self.namespace(), context, &old_at, old_path, false, guard)?;
            let new = walk_parent(self.namespace(), context, &new_at, new_path, false, guard)?;
            let places = (&old, &new);
            Move::expect_movable(context, places, flags)?;
            if old.is_remote() {
                return remote::rename::prepare(context, places, flags, guard, locks);
            }
            if let Some(mut prepared) = prepare(context, places, flags, guard, locks)? {
                if flags.contains(RenameFlags::WHITEOUT) {
                    prepared.whiteout = Some(make_whiteout(context, &prepared, guard)?);
                }
                prepared.carry_out(holds_an_entry, locks, guard)?;
            }
            Ok(Commit::Local(()))
        })
        .map(Commit::into_inner)
    }
}

/// Locks the names and makes all checks, in memory. Mostly a file moves: its names are locked
/// first, and so are looked up only once.
fn prepare<'g>(
    context: &'g Context,
    (old, new): (&Parent<'g>, &Parent<'g>),
    flags: RenameFlags,
    guard: &'g Guard,
    locks: &mut Locks<'_>,
) -> Step<Option<Move<'g>>> {
    let find = || -> Step<Found<'g>> {
        let old_name = old.name(Error::Busy)?;
        let source = Bound::find(old.dir, old.hash_of(old_name), old_name, guard)?.ok_or(Error::NoEntry)?;
        let new_name = new.name(Error::Busy)?;
        Ok((source, Bound::find(new.dir, new.hash_of(new_name), new_name, guard)?))
    };
    let exchange = flags.contains(RenameFlags::EXCHANGE);
    let found = Move::lock((old, new), exchange, Needs::default(), find, |_| None, locks)?;
    Move::permitted(context, (old, new), found, flags, guard)
}

/// A whiteout that is to take the old name in memory. Its drop refunds the charge.
fn make_whiteout(context: &Context, prepared: &Move<'_>, guard: &Guard) -> Step<Counted<Dentry>> {
    let (old, sb) = (&prepared.old, &prepared.old.parent.shard.sb);
    // As on Linux, this error comes before ENOSPC. It is checked again when no further entry can be
    // made there.
    if prepared.target.as_ref().is_some_and(|target| shows_an_entry(target.inode(), guard)) {
        return Err(Error::NotEmpty.into());
    }
    let permissions = new_permissions(context, old.parent, WHITEOUT.kind(), 0, guard);
    let shard = sb.shard(guard)?;
    charge_for(&*sb.driver, WHITEOUT, &permissions)?;
    let inode = Inode::new(shard, WHITEOUT.kind(), permissions, WHITEOUT.body(sb), 1, Timestamp::now().0);
    let whiteout = Counted::new(Dentry::new(inode));
    whiteout.place.fill(held(old.dirent)?);
    Ok(whiteout)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::{Credentials, Walk, driver::tests::Nothing, operations::attempt::run};

    /// A thread that wants to make the new name waits for the rename, and then finds the name
    /// bound. Seen to fail: the locks released before the other thread begins.
    #[test]
    fn no_entry_is_made_between_rename_checks_and_commit() {
        type Make = fn(&Vfs, &Context) -> Result<()>;
        let makes: [Make; 3] = [
            |vfs, context| vfs.mkdir(context, At::Cwd, "/new", 0o755).map(drop),
            |vfs, context| vfs.link(context, At::Cwd, "/other", At::Cwd, "/new", Walk::empty()).map(drop),
            |vfs, context| vfs.rename(context, At::Cwd, "/other", At::Cwd, "/new", RenameFlags::NOREPLACE),
        ];
        for make in makes {
            let vfs = Vfs::new(Nothing).expect("a tree");
            let context = Context::new(&vfs, Credentials::root());
            for path in ["/old", "/other"] {
                vfs.mknod(&context, At::Cwd, path, 0o100_600, 0).expect("made");
            }
            let (at, namespace) = (At::Cwd, vfs.namespace());
            thread::scope(|scope| {
                let mut maker = None;
                let renamed = run(namespace, |guard, locks| {
                    let old = walk_parent(namespace, &context, &at, b"/old", false, guard)?;
                    let new = walk_parent(namespace, &context, &at, b"/new", false, guard)?;
                    let prepared = prepare(&context, (&old, &new), RenameFlags::empty(), guard, locks)?;
                    let begun = maker.insert(scope.spawn(|| make(&vfs, &context)));
                    // Long enough to see the name made, if the other thread does not wait.
                    (0..1000).take_while(|_| !begun.is_finished()).for_each(|_| thread::yield_now());
                    prepared.expect("two files").carry_out(holds_an_entry, locks, guard)
                });
                let made = maker.map(|maker| maker.join().expect("no panic"));
                assert_eq!((renamed, made), (Ok(()), Some(Err(Error::Exists))));
            });
        }
    }
}
