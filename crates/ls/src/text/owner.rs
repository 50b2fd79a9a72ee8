//! Names of users and groups, each looked up once.

use std::collections::HashMap;

use nix::unistd::{Gid, Group, Uid, User};

/// The names of one kind of number.
struct Cache {
    places: HashMap<u32, usize>,
    names: Vec<Option<Box<[u8]>>>,
    /// The number of the last look-up: neighbouring entries mostly have the same.
    last: Option<(u32, usize)>,
    look_up: fn(u32) -> Option<String>,
}

impl Cache {
    fn new(look_up: fn(u32) -> Option<String>) -> Self {
        Self { places: HashMap::new(), names: Vec::new(), last: None, look_up }
    }

    fn get(&mut self, id: u32) -> Option<&[u8]> {
        let place = match self.last {
            Some((last, place)) if last == id => place,
            _ => *self.places.entry(id).or_insert_with(|| {
                self.names.push((self.look_up)(id).map(|name| name.into_bytes().into()));
                self.names.len() - 1
            }),
        };
        self.last = Some((id, place));
        self.names[place].as_deref()
    }
}

/// Names of users and groups, from the system's databases (NSS).
pub struct Owners {
    users: Cache,
    groups: Cache,
}

impl Owners {
    /// Nothing looked up yet.
    pub fn new() -> Self {
        let user = |id| User::from_uid(Uid::from_raw(id)).ok().flatten().map(|user| user.name);
        let group = |id| Group::from_gid(Gid::from_raw(id)).ok().flatten().map(|group| group.name);
        Self { users: Cache::new(user), groups: Cache::new(group) }
    }

    /// The name of a user. None if the number has no name.
    pub fn user(&mut self, uid: u32) -> Option<&[u8]> {
        self.users.get(uid)
    }

    /// The name of a group. None if the number has no name.
    pub fn group(&mut self, gid: u32) -> Option<&[u8]> {
        self.groups.get(gid)
    }
}
