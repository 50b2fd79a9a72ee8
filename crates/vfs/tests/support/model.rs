//! A model of the namespace: a map from (directory, name) to inode. It has no locks, and makes one
//! step at a time.
//!
//! Most operations are one step. Operations that the promises allow to be several steps are several
//! steps here. `link` first looks its file up, then counts the link, then binds the name. An
//! operation that removes a file's name counts down afterwards (protocol 6).

use std::collections::BTreeMap;

use pando_vfs::{Error, RenameFlags};

/// An inode, as the tree identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    pub ino: u64,
    pub is_dir: bool,
}

/// A name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub dir: Node,
    pub name: &'static str,
}

/// An operation on names of directories that are held open.
#[derive(Debug, Clone, Copy)]
pub enum Op {
    /// open with O_CREAT and O_EXCL.
    Create(Place),
    Mkdir(Place),
    Unlink(Place),
    Rmdir(Place),
    Stat(Place),
    Link(Place, Place),
    Rename(Place, Place, RenameFlags),
}

/// The result of an operation: the node that it made or found, if it makes or finds one.
pub type Outcome = Result<Option<Node>, Error>;

/// The stage of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    Begun,
    /// link: has found its file.
    Found(Node),
    /// link: has counted the link.
    Counted(Node),
    /// unlink, rename over a file: the name is removed, the link is not yet counted down.
    Unnamed(Node),
    Done,
}

/// The state of the tree.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Model {
    names: BTreeMap<Place, Node>,
    /// The parent of each directory, or its last parent. The root is its own parent.
    parents: BTreeMap<Node, Node>,
    /// Links that are counted for names that do not exist yet, or no longer, sorted.
    counted: Vec<Node>,
}

impl Model {
    /// An empty root.
    pub fn new(root: Node) -> Self {
        Self { names: BTreeMap::new(), parents: BTreeMap::from([(root, root)]), counted: Vec::new() }
    }

    /// The node at a place.
    pub fn at(&self, place: Place) -> Option<Node> {
        self.names.get(&place).copied()
    }

    /// The names in a directory.
    pub fn list(&self, dir: Node) -> Vec<(&'static str, Node)> {
        self.names.iter().filter(|(place, _)| place.dir == dir).map(|(place, node)| (place.name, *node)).collect()
    }

    /// The link count: the number of names of a file; 2 and the subdirectories of a directory, or 0
    /// for a removed directory.
    pub fn nlink(&self, node: Node) -> usize {
        if node.is_dir {
            let subdirs = self.list(node).iter().filter(|(_, child)| child.is_dir).count();
            if self.is_alive(node) { 2 + subdirs } else { 0 }
        } else {
            self.names.values().filter(|bound| **bound == node).count()
        }
    }

    /// The parent of a directory, or its last parent.
    pub fn parent(&self, dir: Node) -> Node {
        self.parents[&dir]
    }

    /// Whether a directory is bound somewhere, or is the root.
    pub fn is_alive(&self, dir: Node) -> bool {
        self.parents.get(&dir) == Some(&dir) || self.names.values().any(|bound| *bound == dir)
    }

    /// Whether `dir` is `below` or one of its ancestors.
    fn is_self_or_ancestor(&self, dir: Node, mut below: Node) -> bool {
        loop {
            if dir == below {
                return true;
            }
            let up = self.parent(below);
            if up == below {
                return false;
            }
            below = up;
        }
    }

    /// The error of an operation that has just begun, if this state refuses it.
    pub fn refusal(&self, op: Op) -> Option<Error> {
        match op {
            Op::Create(place) | Op::Mkdir(place) => self.refuses_new(place),
            Op::Stat(place) => self.at(place).is_none().then_some(Error::NoEntry),
            Op::Unlink(place) => match self.at(place) {
                None => Some(Error::NoEntry),
                Some(node) => node.is_dir.then_some(Error::IsDirectory),
            },
            Op::Rmdir(place) => match self.at(place) {
                None => Some(Error::NoEntry),
                Some(node) if !node.is_dir => Some(Error::NotDirectory),
                Some(node) => (!self.list(node).is_empty()).then_some(Error::NotEmpty),
            },
            Op::Link(old, new) => match self.at(old) {
                None => Some(Error::NoEntry),
                Some(node) => self.refuses_new(new).or(node.is_dir.then_some(Error::NotPermitted)),
            },
            Op::Rename(old, new, flags) => self.refuses_rename(old, new, flags),
        }
    }

    fn refuses_new(&self, place: Place) -> Option<Error> {
        match self.at(place) {
            Some(_) => Some(Error::Exists),
            None => (!self.is_alive(place.dir)).then_some(Error::NoEntry),
        }
    }

    fn refuses_rename(&self, old: Place, new: Place, flags: RenameFlags) -> Option<Error> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let (source, target) = (self.at(old), self.at(new));
        let Some(source) = source else { return Some(Error::NoEntry) };
        if !self.is_alive(new.dir) {
            return Some(Error::NoEntry);
        }
        if target.is_some() && flags.contains(RenameFlags::NOREPLACE) {
            return Some(Error::Exists);
        }
        if target.is_none() && exchange {
            return Some(Error::NoEntry);
        }
        if source.is_dir && self.is_self_or_ancestor(source, new.dir) {
            return Some(Error::Invalid);
        }
        let Some(target) = target else { return self.refuses_new(new) };
        if target.is_dir && self.is_self_or_ancestor(target, old.dir) {
            return Some(if exchange { Error::Invalid } else { Error::NotEmpty });
        }
        if source == target || exchange {
            return None;
        }
        match (source.is_dir, target.is_dir) {
            (true, false) => Some(Error::NotDirectory),
            (false, true) => Some(Error::IsDirectory),
            (true, true) => (!self.list(target).is_empty()).then_some(Error::NotEmpty),
            (false, false) => None,
        }
    }

    fn bind(&mut self, place: Place, node: Node) {
        self.names.insert(place, node);
        if node.is_dir {
            self.parents.insert(node, place.dir);
        }
    }

    fn count(&mut self, node: Node) {
        self.counted.push(node);
        self.counted.sort_unstable();
    }

    fn uncount(&mut self, node: Node) {
        let index = self.counted.iter().position(|counted| *counted == node).expect("it was counted");
        self.counted.remove(index);
    }

    /// The next step of an operation with a known outcome: the states and stages that it may lead
    /// to. An empty result means that this state does not permit that outcome.
    pub fn step(&self, op: Op, stage: Stage, outcome: Outcome) -> Vec<(Self, Stage)> {
        match (stage, op) {
            (Stage::Done, _) => Vec::new(),
            (Stage::Unnamed(node), _) => {
                let mut next = self.clone();
                next.uncount(node);
                vec![(next, Stage::Done)]
            }
            (_, Op::Link(old, new)) => self.step_link(old, new, stage, outcome),
            _ => match outcome {
                Err(error) if self.refusal(op) == Some(error) => vec![(self.clone(), Stage::Done)],
                Ok(node) if self.refusal(op).is_none() => self.carry_out(op, node).into_iter().collect(),
                _ => Vec::new(),
            },
        }
    }

    /// A successful operation other than link.
    fn carry_out(&self, op: Op, answer: Option<Node>) -> Option<(Self, Stage)> {
        let mut next = self.clone();
        let mut stage = Stage::Done;
        match op {
            Op::Stat(place) if self.at(place) != answer => return None,
            Op::Stat(_) | Op::Link(..) => {}
            Op::Create(place) | Op::Mkdir(place) => {
                let made = answer?;
                if made.is_dir != matches!(op, Op::Mkdir(_)) || self.names.values().any(|node| *node == made) {
                    return None;
                }
                next.bind(place, made);
            }
            Op::Rmdir(place) => drop(next.names.remove(&place)),
            Op::Unlink(place) => {
                let node = next.names.remove(&place)?;
                next.count(node);
                stage = Stage::Unnamed(node);
            }
            Op::Rename(old, new, flags) => {
                let (source, target) = (self.at(old)?, self.at(new));
                if target != Some(source) {
                    next.names.remove(&old);
                    next.bind(new, source);
                    match target {
                        Some(target) if flags.contains(RenameFlags::EXCHANGE) => next.bind(old, target),
                        Some(target) if !target.is_dir => {
                            next.count(target);
                            stage = Stage::Unnamed(target);
                        }
                        _ => {}
                    }
                }
            }
        }
        Some((next, stage))
    }

    fn step_link(&self, old: Place, new: Place, stage: Stage, outcome: Outcome) -> Vec<(Self, Stage)> {
        let done = || vec![(self.clone(), Stage::Done)];
        let taken = outcome == Err(Error::Exists) && self.at(new).is_some();
        match stage {
            Stage::Begun => match self.at(old) {
                Some(node) => vec![(self.clone(), Stage::Found(node))],
                None if outcome == Err(Error::NoEntry) => done(),
                None => Vec::new(),
            },
            Stage::Found(_) if taken => done(),
            Stage::Found(node) if node.is_dir => {
                let refusal = self.refuses_new(new).unwrap_or(Error::NotPermitted);
                if outcome == Err(refusal) { done() } else { Vec::new() }
            }
            Stage::Found(node) if self.nlink(node) == 0 && !self.counted.contains(&node) => {
                if outcome == Err(Error::NoEntry) { done() } else { Vec::new() }
            }
            Stage::Found(node) => {
                let mut next = self.clone();
                next.count(node);
                vec![(next, Stage::Counted(node))]
            }
            Stage::Counted(node) => {
                let mut next = self.clone();
                next.uncount(node);
                match (outcome, self.refuses_new(new)) {
                    (Ok(Some(made)), None) if made == node => next.bind(new, node),
                    (Err(error), Some(refusal)) if error == refusal => {}
                    _ => return Vec::new(),
                }
                vec![(next, Stage::Done)]
            }
            Stage::Unnamed(_) | Stage::Done => Vec::new(),
        }
    }

    /// Runs a single operation. Returns false if it cannot have that outcome.
    pub fn run(&mut self, op: Op, outcome: Outcome) -> bool {
        let mut stage = Stage::Begun;
        while stage != Stage::Done {
            // Without concurrency there is never a choice.
            let Some((next, after)) = self.step(op, stage, outcome).pop() else { return false };
            (*self, stage) = (next, after);
        }
        true
    }
}
