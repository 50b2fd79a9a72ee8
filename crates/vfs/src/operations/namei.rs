//! The path walk: from a path to a dentry, without a lock, a count or a write (P1). Analogous to
//! fs/namei.c in RCU mode.
//!
//! Difficulties, and what answers each:
//! 1. *Linearizability.* Each step is linearizable: it is one look-up in one directory, at one
//!    instant. The walk as a whole is not, as in Linux.
//! 2. *`..` must not leave the context's root while directories move.* [`Walker::up`] takes a step
//!    up at an instant at which the directory is below that root. It validates this by the rename
//!    sequence.
//! 3. *Deep paths.* The path-prefix cache ([`Prefix`]) lets a walk start at the directory of the
//!    last component.
//! 4. *Symbolic links.* [`Walker`] keeps the remainders of interrupted paths in a list, so there is
//!    no recursion.
//! 5. *A large result should be written once.* [`walk_and_read`] runs the caller's function under
//!    the walk's guard.

use pando_sync::{Guard, Node, OPTIMISTIC_TRIES, Shared, pin};

use crate::{
    At, Context, Error, Result,
    caches::prefixes::Prefix,
    objects::{
        dentry::{Dentry, Dirent},
        directory::Directory,
        inode::Body,
        superblock::Namespace,
    },
    operations::{
        attempt::{Retries, before_retry, block_moves},
        parent::{Last, Parent, Seen, hash_in},
        remote,
        step::{Step, Stop},
    },
    types::{
        Access, Resolve, Walk,
        name::{Component, NAME_MAX, SYMLINKS_MAX, check_path, is_name, skip_slashes, split},
    },
};

/// The place at which a walk ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    /// The dentry itself. `follow`: whether a symbolic link at the end is followed.
    Target { follow: bool },
    /// The directory of the last component. `follow`: whether a symbolic link there is followed to
    /// the directory of *its* last component.
    Parent { follow: bool },
}

/// Walks to a dentry (analogous to `path_lookupat()` in fs/namei.c). The caller holds `guard` for
/// as long as it uses the result, and runs this within an attempt, since the walk may yield any
/// [`Stop`] except a wait for locks.
pub(crate) fn walk<'g>(
    namespace: &'g Namespace,
    context: &'g Context,
    at: &'g At<'_>,
    path: &'g [u8],
    flags: Walk,
    guard: &'g Guard,
) -> Step<Shared<'g, Dentry>> {
    let prefix = prefix_of(at, path, context, namespace);
    if let Some((prefix, name)) = prefix
        && let Some((dir, hash)) = prefix.lookup(name, namespace, guard)
        && let Some(end) = end_there(context, dir, (name, hash), flags, guard)
    {
        return end;
    }
    walk_from_start(namespace, context, at, path, flags, prefix.map(|(prefix, _)| prefix), guard)
}

/// [`walk`] without the path-prefix cache: component by component. Not inlined, so that a hit of
/// the cache does not pay for its registers. The parameters come in the order of [`walk`]'s, so
/// they stay in their registers.
#[inline(never)]
fn walk_from_start<'g>(
    namespace: &'g Namespace,
    context: &'g Context,
    at: &'g At<'_>,
    path: &'g [u8],
    flags: Walk,
    prefix: Option<Prefix<'g>>,
    guard: &'g Guard,
) -> Step<Shared<'g, Dentry>> {
    let start = start(namespace, context, at)?;
    if path.is_empty() && flags.contains(Walk::EMPTY_PATH) {
        remote::lookup::expect_fresh_itself(start, guard)?;
        remote::lookup::expect_attributes(start, flags)?;
        return Ok(start);
    }
    let goal = Goal::Target { follow: !flags.contains(Walk::NOFOLLOW) };
    let end = Walker::new(namespace, context, start, prefix, guard).run(start, path, goal)?.dir;
    if end.to_ref().inode().is_backed() {
        remote::lookup::expect_fresh(end)?;
        remote::lookup::expect_attributes(end, flags)?;
    }
    Ok(end)
}

/// The part of a path that the path-prefix cache may hold. None if the path begins at a directory
/// that may differ each time.
#[inline]
fn prefix_of<'p>(
    at: &At<'_>,
    path: &'p [u8],
    context: &Context,
    namespace: &Namespace,
) -> Option<(Prefix<'p>, &'p [u8])> {
    if matches!(at, At::Dir(_)) && !path.starts_with(b"/") {
        return None;
    }
    Prefix::of(path, || context.identity(), namespace)
}

/// The end of a walk that has reached the directory of the last component. None if one look-up does
/// not suffice.
#[inline]
fn end_there<'g>(
    context: &Context,
    dir: Shared<'g, Dentry>,
    name: (&[u8], u64),
    flags: Walk,
    guard: &'g Guard,
) -> Option<Step<Shared<'g, Dentry>>> {
    let seen = look_with(dir, name, guard, Directory::dirent).ok()?;
    let Some(child) = seen.dentry else {
        return is_name(name.0).then_some(Err(Error::NoEntry.into()));
    };
    // The root of a backed tree that is mounted here: the walk by components checks it.
    if child.to_ref().inode().is_backed() {
        return None;
    }
    (!seen.is_link() || flags.contains(Walk::NOFOLLOW))
        .then(|| same_tree(context, dir, child).map(|()| child).map_err(Stop::from))
}

/// How often one call asks for attributes that change all the time.
const ANSWERS_MAX: u32 = 4;

/// Runs [`walk`] in attempts, like [`run_lockless`](crate::operations::attempt::run_lockless), for
/// a large result: `read` computes it from the dentry, and it is written in place.
pub(crate) fn walk_and_read<T>(
    namespace: &Namespace,
    (context, at, path, flags): (&Context, At<'_>, &[u8], Walk),
    read: impl FnOnce(&Dentry, &Guard) -> T,
) -> Result<T> {
    let (mut flags, mut retries) = (flags, Retries::default());
    loop {
        let stop = {
            let _moves_blocked = block_moves(namespace, retries.moved);
            let guard = pin();
            match walk(namespace, context, &at, path, flags, &guard) {
                Ok(found) => return Ok(read(found.to_ref(), &guard)),
                Err(stop) => stop,
            }
        };
        before_retry(namespace, stop, &mut retries)?;
        if retries.answers == ANSWERS_MAX {
            // Writers go on changing the inode. An answer from since the call began is new enough.
            flags -= Walk::ATTRIBUTES;
        }
    }
}

/// Walks to the directory of the last component (analogous to `path_parentat()` in fs/namei.c).
/// Preconditions as for [`walk`].
pub(crate) fn walk_parent<'g>(
    namespace: &'g Namespace,
    context: &'g Context,
    at: &'g At<'_>,
    path: &'g [u8],
    follow: bool,
    guard: &'g Guard,
) -> Step<Parent<'g>> {
    let prefix = prefix_of(at, path, context, namespace);
    if let Some((prefix, name)) = prefix
        && let Some((dir, hash)) = prefix.lookup(name, namespace, guard)
        && is_name(name)
    {
        let look_up = || look_with(dir, (name, hash), guard, Directory::dirent_to_remove);
        let seen = follow.then(look_up).transpose()?;
        if !seen.is_some_and(|seen| seen.is_link()) {
            return Ok(Parent { dir, last: Last::Name(name), slash: false, hash: Some(hash), seen });
        }
    }
    let start = start(namespace, context, at)?;
    let prefix = prefix.map(|(prefix, _)| prefix);
    Walker::new(namespace, context, start, prefix, guard).run(start, path, Goal::Parent { follow })
}

/// The start of a walk. A dentry of another [`crate::Vfs`] is refused, since that one has its own
/// locks.
fn start<'g>(namespace: &Namespace, context: &'g Context, at: &'g At<'_>) -> Result<Shared<'g, Dentry>> {
    let (start, root) = (at.dentry(context), context.root_dentry());
    let is_ours = |dentry: Shared<'_, Dentry>| std::ptr::eq(&raw const *dentry.to_ref().sb().namespace, namespace);
    if is_ours(start) && (start.ptr_eq(root) || is_ours(root)) { Ok(start) } else { Err(Error::CrossDevice) }
}

struct Walker<'g> {
    namespace: &'g Namespace,
    context: &'g Context,
    /// The walk must not leave this directory: the context's root or, with BENEATH, the walk's own
    /// start.
    top: Shared<'g, Dentry>,
    guard: &'g Guard,
    /// The rename sequence at which the walk was below its top. This remains true as long as no
    /// directory changes its place.
    within: Option<u64>,
    /// How often the walk has climbed to find that out.
    climbs: usize,
    links: u32,
    /// The remainders of the paths that symbolic links interrupted, innermost last.
    interrupted: Vec<&'g [u8]>,
    /// The path before the last component, if its directory is to be cached: it has names only.
    prefix: Option<Prefix<'g>>,
}

impl<'g> Walker<'g> {
    fn new(
        namespace: &'g Namespace,
        context: &'g Context,
        start: Shared<'g, Dentry>,
        prefix: Option<Prefix<'g>>,
        guard: &'g Guard,
    ) -> Self {
        let top = if context.resolve.contains(Resolve::BENEATH) { start } else { context.root_dentry() };
        Self { namespace, context, top, guard, within: None, climbs: 0, links: 0, interrupted: Vec::new(), prefix }
    }

    /// Walks the components (analogous to `link_path_walk()` and `path_parentat()` in fs/namei.c).
    /// For [`Goal::Target`], the result is the `dir` of the returned value, and its other fields
    /// mean nothing. Both goals use one type, so that the result is written where it is read.
    fn run(&mut self, start: Shared<'g, Dentry>, path: &'g [u8], goal: Goal) -> Step<Parent<'g>> {
        check_path(path)?;
        if path.is_empty() {
            return Err(Error::NoEntry.into());
        }
        let (start, mut path) = self.enter(start, path)?;
        let mut dir = start;
        let mut slash = false;
        loop {
            let Some((component, rest)) = split(path) else {
                if let Some(outer) = self.interrupted.pop() {
                    path = outer;
                    continue;
                }
                // The end of the path. For a walk to a parent: the path, or a link in it, was
                // nothing but slashes.
                return Ok(Parent { dir, last: Last::Root, slash: true, hash: None, seen: None });
            };
            let last = rest.is_empty() && self.interrupted.is_empty();
            slash |= last && path.ends_with(b"/");
            let inode = dir.to_ref().expect_dir()?;
            if inode.is_backed() {
                remote::lookup::expect_fresh(dir)?;
            }
            self.context.check(inode, Access::EXEC, self.guard)?;
            if last && let Some(prefix) = self.prefix {
                prefix.insert(start, dir, self.guard);
            }
            if last && let Some(parent) = self.parent(dir, component, slash, goal)? {
                return Ok(parent);
            }
            path = rest;
            let from = dir;
            dir = match component {
                Component::Dot => dir,
                Component::DotDot => self.up(dir)?,
                Component::Name(name) => {
                    let child = lookup(dir, name, self.guard)?.ok_or(Error::NoEntry)?;
                    let follow = match goal {
                        _ if !last || slash => true,
                        Goal::Target { follow } | Goal::Parent { follow } => follow,
                    };
                    match &child.to_ref().inode().body {
                        Body::Symlink(target, _) if follow => {
                            path = self.interrupt(rest, target)?;
                            (dir, path) = self.enter(dir, path)?;
                            dir
                        }
                        Body::Directory(_) => child,
                        _ if !last || slash => return Err(Error::NotDirectory.into()),
                        _ => child,
                    }
                }
            };
            same_tree(self.context, from, dir)?;
        }
    }

    /// Returns the parent if the walk to a parent ends here.
    fn parent(
        &self,
        dir: Shared<'g, Dentry>,
        component: Component<'g>,
        slash: bool,
        goal: Goal,
    ) -> Step<Option<Parent<'g>>> {
        let Goal::Parent { follow } = goal else { return Ok(None) };
        let (mut hash, mut seen) = (None, None);
        let last = match component {
            Component::Dot => Last::Dot,
            Component::DotDot => Last::DotDot,
            Component::Name(name) => {
                // A name followed by a slash is not looked up: only a directory could be made of
                // it.
                if follow && !slash && name.len() <= NAME_MAX {
                    let hashed = hash_in(dir, name);
                    let found = look_at(dir, (name, hashed), self.guard)?;
                    if found.is_link() {
                        return Ok(None);
                    }
                    (hash, seen) = (Some(hashed), Some(found));
                }
                Last::Name(name)
            }
        };
        Ok(Some(Parent { dir, last, slash, hash, seen }))
    }

    /// One step up (analogous to `handle_dots()` and `follow_dotdot_rcu()` in fs/namei.c). The step
    /// does not leave the context's root, even if directories move meanwhile: at one instant, the
    /// directory was below that root. A directory outside, which was moved out or was never inside,
    /// has no step up.
    ///
    /// The walk climbs to the root once, and again after each change of a directory's place. The
    /// guard is held meanwhile, which delays reclamation, so the walk climbs a few times only. Then
    /// the attempt ends, and finally one runs with such changes blocked ([`Stop::Moved`]).
    ///
    /// ```text
    /// this walk                               a thread that moves a directory
    /// begun := rename_seq
    /// climb from `dir`: the root is above
    ///                                         rename_seq odd, commit the move, rename_seq even
    /// read `..` of `dir`
    /// rename_seq != begun -> climb again
    /// ```
    fn up(&mut self, dir: Shared<'g, Dentry>) -> Step<Shared<'g, Dentry>> {
        self.prefix = None;
        let (top, beneath) = (self.top, self.must_not(Resolve::BENEATH));
        if beneath && dir.ptr_eq(top) {
            return Err(Error::CrossDevice.into());
        }
        if is_root_of_all(top, self.guard) {
            return Ok(dotdot(dir, None, self.guard));
        }
        let moves = &self.namespace.rename_seq;
        loop {
            if let Some(since) = self.within {
                let up = dotdot(dir, Some(top), self.guard);
                if !moves.read_retry(since) {
                    return Ok(up);
                }
                self.within = None;
            }
            if self.climbs == OPTIMISTIC_TRIES {
                return Err(Stop::Moved);
            }
            self.climbs += 1;
            let begun = moves.read_begin();
            let is_within = is_within(dir, top, self.guard);
            if moves.read_retry(begun) {
                continue;
            }
            if !is_within {
                return Err(if beneath { Error::CrossDevice } else { Error::NoEntry }.into());
            }
            self.within = Some(begun);
        }
    }

    /// An absolute path starts at the context's root.
    fn enter(&self, dir: Shared<'g, Dentry>, path: &'g [u8]) -> Result<(Shared<'g, Dentry>, &'g [u8])> {
        if !path.starts_with(b"/") {
            return Ok((dir, path));
        }
        if self.must_not(Resolve::BENEATH) {
            return Err(Error::CrossDevice);
        }
        Ok((self.context.root_dentry(), skip_slashes(path)))
    }

    /// Whether the context forbids this in its paths.
    #[inline]
    fn must_not(&self, what: Resolve) -> bool {
        self.context.resolve.contains(what)
    }

    /// Continues with the target of a symbolic link (analogous to `pick_link()` in fs/namei.c). The
    /// remainder of the path is kept for later.
    fn interrupt(&mut self, rest: &'g [u8], target: &'g [u8]) -> Result<&'g [u8]> {
        self.prefix = None;
        self.links += 1;
        if self.links > SYMLINKS_MAX || self.must_not(Resolve::NO_SYMLINKS) {
            return Err(Error::Loop);
        }
        if !rest.is_empty() {
            self.interrupted.push(rest);
        }
        Ok(target)
    }
}

/// Checks RESOLVE_NO_XDEV for one step, which may have crossed a mount.
#[inline]
pub(crate) fn same_tree(context: &Context, from: Shared<'_, Dentry>, to: Shared<'_, Dentry>) -> Result<()> {
    if context.resolve.contains(Resolve::NO_XDEV) && !std::ptr::eq(from.to_ref().sb(), to.to_ref().sb()) {
        return Err(Error::CrossDevice);
    }
    Ok(())
}

/// One step down, across a mount if there is one (analogous to `walk_component()` in fs/namei.c).
/// The caller has checked search permission in `dir`. A symbolic link is not followed.
pub(crate) fn lookup<'g>(dir: Shared<'g, Dentry>, name: &[u8], guard: &'g Guard) -> Step<Option<Shared<'g, Dentry>>> {
    Ok(look_with(dir, (name, hash_in(dir, name)), guard, Directory::dirent)?.dentry)
}

/// Like [`lookup`], for a caller that will create the name unless it exists.
pub(crate) fn look_at<'g>(dir: Shared<'g, Dentry>, name: (&[u8], u64), guard: &'g Guard) -> Step<Seen<'g>> {
    look_with(dir, name, guard, Directory::dirent_to_remove)
}

/// The body of [`lookup`] and [`look_at`], which are functions of their own. Inlined into the
/// callers that need one look-up in a walk.
#[inline(always)]
fn look_with<'g>(
    dir: Shared<'g, Dentry>,
    (name, hash): (&[u8], u64),
    guard: &'g Guard,
    find: impl FnOnce(&'g Directory, u64, &[u8], &'g Guard) -> Option<Shared<'g, Node<Dirent>>>,
) -> Step<Seen<'g>> {
    let inode = dir.to_ref().inode();
    let directory = inode.directory()?;
    if name.len() > NAME_MAX {
        return Err(directory.refusal(Error::NameTooLong, guard).into());
    }
    let child = if directory.backed.is_some() {
        remote::lookup::cached_or_ask(dir, (name, hash), guard, find)?.map(|(_, child)| child)
    } else {
        find(directory, hash, name, guard).and_then(|dirent| dirent.to_ref().value.load(guard))
    };
    Ok(Seen { dentry: child.map(|child| cross(child, guard)) })
}

/// Steps down into the trees that are mounted on a directory (analogous to `__follow_mount_rcu()`
/// in fs/namei.c).
#[inline]
pub(crate) fn cross<'g>(mut dentry: Shared<'g, Dentry>, guard: &'g Guard) -> Shared<'g, Dentry> {
    while let Body::Directory(dir) = &dentry.to_ref().inode().body
        && let Some(root) = dir.mounted.load(guard)
    {
        dentry = root;
    }
    dentry
}

/// Whether a directory is the global root, which contains everything. A directory without a parent
/// may also be the root of a tree that was unmounted.
fn is_root_of_all(dir: Shared<'_, Dentry>, guard: &Guard) -> bool {
    dir.to_ref().sb().is_root() && dir.to_ref().parent(guard).is_none()
}

/// The directory above: the parent, or the mount point that the root of a mounted tree covers. None
/// for the global root, and for the root of a tree that was unmounted.
fn above<'g>(dir: Shared<'g, Dentry>, guard: &'g Guard) -> Option<Shared<'g, Dentry>> {
    dir.to_ref().parent(guard).or_else(|| dir.to_ref().sb().mountpoint.load(guard))
}

/// Whether a directory is `root` or below it. The result is of one instant if no directory changes
/// its place meanwhile.
fn is_within<'g>(mut dir: Shared<'g, Dentry>, root: Shared<'g, Dentry>, guard: &'g Guard) -> bool {
    while !dir.ptr_eq(root) {
        let Some(next) = above(dir, guard) else { return false };
        dir = next;
    }
    true
}

/// One step up (analogous to `follow_dotdot()` in fs/namei.c). The step never leads above `root`,
/// if there is one, nor into a tree that is mounted on it. From the root of a mounted tree it leads
/// to the parent of the mount point.
pub(crate) fn dotdot<'g>(
    mut dentry: Shared<'g, Dentry>,
    root: Option<Shared<'g, Dentry>>,
    guard: &'g Guard,
) -> Shared<'g, Dentry> {
    loop {
        if root.is_some_and(|root| dentry.ptr_eq(root)) {
            return dentry;
        }
        if let Some(parent) = dentry.to_ref().parent(guard) {
            let is_root = root.is_some_and(|root| parent.ptr_eq(root));
            return if is_root { parent } else { cross(parent, guard) };
        }
        match dentry.to_ref().sb().mountpoint.load(guard) {
            Some(covered) => dentry = covered,
            None => return dentry,
        }
    }
}
