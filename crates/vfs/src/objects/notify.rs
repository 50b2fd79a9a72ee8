//! The hooks in the operations: they queue events. Analogous to include/linux/fsnotify.h.
//!
//! Each is one load if no watch asks for its events. Those of names are called with the name
//! locked, and none after an error. A hook holds the lock of the table meanwhile, and takes those
//! of queues.

use pando_sync::{Guard, Shared, pin};

use crate::{
    ChangeByOthers,
    objects::{
        dentry::Dentry,
        inode::Inode,
        path::place_of,
        superblock::{Namespace, SuperBlock},
        watches::{InodeKey, Table, Watch},
    },
    types::watch_event::WatchEvents,
};

/// The key of an inode in the table of watches.
pub(crate) fn key_of(inode: &Inode) -> InodeKey {
    (inode.shard.sb.id, inode.ino)
}

/// A name was made.
#[inline]
pub(crate) fn made(dir: Shared<'_, Dentry>, name: &[u8], is_dir: bool, guard: &Guard) {
    if namespace_of(dir).wants(WatchEvents::CREATE) {
        name_event(dir, name, with_kind(WatchEvents::CREATE, is_dir), 0, guard);
    }
}

/// A name was made for an inode that had others.
#[inline]
pub(crate) fn linked(dir: Shared<'_, Dentry>, name: &[u8], inode: &Inode, guard: &Guard) {
    if namespace_of(dir).wants(WatchEvents::CREATE | WatchEvents::ATTRIB) {
        inode_event(inode, WatchEvents::ATTRIB);
        name_event(dir, name, WatchEvents::CREATE, 0, guard);
    }
}

/// A name was removed.
#[inline]
pub(crate) fn removed(dir: Shared<'_, Dentry>, name: &[u8], inode: &Inode, guard: &Guard) {
    if namespace_of(dir).wants(WatchEvents::DELETE | WatchEvents::DELETE_SELF | WatchEvents::ATTRIB) {
        if inode.is_dir() {
            tell_of_inode(inode);
        } else {
            inode_event(inode, WatchEvents::ATTRIB);
        }
        name_event(dir, name, with_kind(WatchEvents::DELETE, inode.is_dir()), 0, guard);
        inode_removed(inode, guard);
    }
}

/// An inode has lost a name. If it was the last one, its watches end.
fn inode_removed(inode: &Inode, guard: &Guard) {
    let watches = &inode.shard.sb.namespace.observers.watches;
    if inode.is_unlinked(guard) && !watches.table().of(key_of(inode)).is_empty() {
        watches.change(|table| table.remove(key_of(inode), WatchEvents::DELETE_SELF, |_| true));
    }
}

/// A dentry was moved. Another one, which had the new name before, is `replaced`.
pub(crate) fn moved(
    dentry: Shared<'_, Dentry>,
    from: (Shared<'_, Dentry>, &[u8]),
    to: (Shared<'_, Dentry>, &[u8]),
    replaced: Option<&Inode>,
    guard: &Guard,
) {
    let namespace = namespace_of(dentry);
    let inode = dentry.to_ref().inode();
    if namespace.wants(WatchEvents::MOVE | WatchEvents::MOVE_SELF | WatchEvents::ATTRIB | WatchEvents::DELETE_SELF) {
        let cookie = namespace.observers.watches.next_cookie();
        name_event(from.0, from.1, with_kind(WatchEvents::MOVED_FROM, inode.is_dir()), cookie, guard);
        name_event(to.0, to.1, with_kind(WatchEvents::MOVED_TO, inode.is_dir()), cookie, guard);
        if let Some(replaced) = replaced {
            inode_event(replaced, with_kind(WatchEvents::ATTRIB, replaced.is_dir()));
        }
        inode_event(inode, WatchEvents::MOVE_SELF);
        tell_of_inode(inode);
        if let Some(replaced) = replaced {
            inode_removed(replaced, guard);
        }
    }
}

/// Attributes have changed.
#[inline]
pub(crate) fn attr_changed(dentry: Shared<'_, Dentry>) {
    dentry_event(dentry, WatchEvents::ATTRIB);
}

/// Contents have changed.
#[inline]
pub(crate) fn modified(dentry: Shared<'_, Dentry>) {
    dentry_event(dentry, WatchEvents::MODIFY);
}

/// A file was read, or a directory was listed.
#[inline]
pub(crate) fn accessed(dentry: Shared<'_, Dentry>) {
    dentry_event(dentry, WatchEvents::ACCESS);
}

/// A file or directory was opened.
#[inline]
pub(crate) fn opened(dentry: Shared<'_, Dentry>) {
    dentry_event(dentry, WatchEvents::OPEN);
}

/// A file or directory was closed.
#[inline]
pub(crate) fn closed(dentry: Shared<'_, Dentry>, writes: bool) {
    dentry_event(dentry, if writes { WatchEvents::CLOSE_WRITE } else { WatchEvents::CLOSE_NOWRITE });
}

/// The time of the last access was set.
pub(crate) fn atime_set(dentry: Shared<'_, Dentry>) {
    accessed(dentry);
    changed_without_event(dentry.to_ref().inode());
}

/// Attributes have changed, such as flags, for which Linux has no event. Subscribers are told.
pub(crate) fn changed_without_event(inode: &Inode) {
    if inode.shard.sb.namespace.wants(WatchEvents::ATTRIB) {
        tell_of_inode(inode);
    }
}

/// A name leads to the root of a tree that was mounted there, or does so no more.
pub(crate) fn covered(point: Shared<'_, Dentry>) {
    if namespace_of(point).wants(WatchEvents::CREATE) {
        let guard = pin();
        if let Some((dir, name, _)) = place_of(point, &guard) {
            tell_of_name(dir.to_ref().inode(), name);
        }
    }
}

/// A tree was unmounted. Its watches end.
pub(crate) fn unmounted(sb: &SuperBlock) {
    let watches = &sb.namespace.observers.watches;
    if watches.wants(WatchEvents::UNMOUNT) {
        watches.change(|table| {
            for key in table.inodes_of(sb.id) {
                table.remove(key, WatchEvents::UNMOUNT, |_| true);
            }
        });
    }
}

impl Namespace {
    /// Whether some watch asks for one of these events. One load.
    #[inline]
    pub(crate) fn wants(&self, events: WatchEvents) -> bool {
        self.observers.watches.wants(events)
    }
}

fn namespace_of(dentry: Shared<'_, Dentry>) -> &Namespace {
    &dentry.to_ref().sb().namespace
}

fn with_kind(events: WatchEvents, is_dir: bool) -> WatchEvents {
    if is_dir { events | WatchEvents::ISDIR } else { events }
}

/// An event of a dentry, for the watches of the directory in which it stands and of its inode.
#[inline]
fn dentry_event(dentry: Shared<'_, Dentry>, events: WatchEvents) {
    if namespace_of(dentry).wants(events) {
        wanted_dentry_event(dentry, events);
    }
}

#[cold]
#[inline(never)]
fn wanted_dentry_event(dentry: Shared<'_, Dentry>, events: WatchEvents) {
    let guard = pin();
    let events = with_kind(events, dentry.to_ref().is_dir());
    let place = || place_of(dentry, &guard).map(|(dir, name, _)| (dir, name));
    event_at(namespace_of(dentry), &place, events, 0, &guard);
    inode_event(dentry.to_ref().inode(), events);
}

/// An event for the watches of the inode itself.
#[cold]
fn inode_event(inode: &Inode, events: WatchEvents) {
    if events.intersects(WatchEvents::ATTRIB | WatchEvents::MODIFY) {
        tell_of_inode(inode);
    }
    let table = inode.shard.sb.namespace.observers.watches.table();
    for watch in table.of(key_of(inode)).iter().filter(|watch| watch.asks_for(events)) {
        watch.send(events, 0, Vec::new());
    }
}

/// An event of a name.
#[cold]
fn name_event(dir: Shared<'_, Dentry>, name: &[u8], events: WatchEvents, cookie: u32, guard: &Guard) {
    tell_of_name(dir.to_ref().inode(), name);
    event_at(namespace_of(dir), &|| Some((dir, name)), events, cookie, guard);
}

/// Tells subscribers that an inode has changed.
fn tell_of_inode(inode: &Inode) {
    inode.shard.sb.namespace.observers.watches.table().tell(ChangeByOthers::Inode(inode.ino));
}

/// Tells subscribers that a name of a directory has changed.
fn tell_of_name(dir: &Inode, name: &[u8]) {
    dir.shard.sb.namespace.observers.watches.table().tell(ChangeByOthers::Name { dir: dir.ino, name });
}

/// A name, and its directory.
type Place<'g> = (Shared<'g, Dentry>, &'g [u8]);

/// An event for the watches of the directory that has a name, and for those of everything below a
/// directory above.
fn event_at<'g>(
    namespace: &Namespace,
    place: &dyn Fn() -> Option<Place<'g>>,
    events: WatchEvents,
    cookie: u32,
    guard: &'g Guard,
) {
    let table = namespace.observers.watches.table();
    if !table.has_recursive() {
        if let Some((dir, name)) = place() {
            for watch in table.of(key_of(dir.to_ref().inode())).iter().filter(|watch| watch.asks_for(events)) {
                watch.send(events, cookie, name.to_vec());
            }
        }
        return;
    }
    // All of this is to be of one instant. Only the move of a directory can make it inconsistent.
    for _ in 0..TRIES {
        let sequence = namespace.rename_seq.read_begin();
        let found = place().map(|place| Climb::new(&table, place, events, guard));
        if !namespace.rename_seq.read_retry(sequence) {
            found.into_iter().for_each(|climb| climb.send(events, cookie));
            return;
        }
    }
    table.lose_events();
}

/// How often a path is climbed while directories are being moved. This thread may hold locks of
/// names, so it cannot stop the moves. Each of them takes longer than a climb.
const TRIES: usize = 1000;

/// The watches that an event is for, and the path from their directories to its object.
struct Climb<'t, 'g> {
    /// From the last component up.
    names: Vec<&'g [u8]>,
    /// Each with the number of components from its directory on.
    watches: Vec<(&'t Watch, usize)>,
}

impl<'t, 'g> Climb<'t, 'g> {
    fn new(table: &'t Table, (dir, name): Place<'g>, events: WatchEvents, guard: &'g Guard) -> Self {
        let mut climb = Self { names: vec![name], watches: Vec::new() };
        climb.find(table, dir, events, |_| true);
        let mut here = dir;
        loop {
            if let Some((parent, name, _)) = place_of(here, guard) {
                climb.names.push(name);
                here = parent;
            } else if let Some(covered) = here.to_ref().sb().mountpoint.load(guard) {
                here = covered;
            } else {
                return climb;
            }
            climb.find(table, here, events, |watch| watch.recursive);
        }
    }

    /// Adds the watches of a directory.
    fn find(
        &mut self,
        table: &'t Table,
        dir: Shared<'_, Dentry>,
        events: WatchEvents,
        is_for: impl Fn(&Watch) -> bool,
    ) {
        let watches = table.of(key_of(dir.to_ref().inode())).iter();
        let wanted = watches.filter(|watch| watch.asks_for(events) && is_for(watch));
        self.watches.extend(wanted.map(|watch| (watch, self.names.len())));
    }

    fn send(&self, events: WatchEvents, cookie: u32) {
        for (watch, components) in &self.watches {
            let path: Vec<&[u8]> = self.names[..*components].iter().rev().copied().collect();
            watch.send(events, cookie, path.join(&b'/'));
        }
    }
}
