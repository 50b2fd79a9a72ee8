//! Random transactions, and a map that they are made in.

use std::collections::BTreeMap;

use pando_kv::{Assertion, Change, Delta, Numbers, Snapshot, Transaction};

#[path = "../../../vfs/tests/support/random.rs"]
mod random;

pub use random::{Rng, seed};

/// All records of an engine.
pub type Records = BTreeMap<Vec<u8>, Vec<u8>>;

impl Rng {
    /// One of few keys, so that transactions meet. Those of numbers begin with `n`.
    fn key(&mut self, first: u8) -> Vec<u8> {
        let mut key = vec![first];
        key.extend((0..self.below(3)).map(|_| b'a' + self.below(3) as u8));
        key
    }

    /// Small as a rule, and sometimes of several pages.
    fn value(&mut self) -> Vec<u8> {
        let len = if self.below(50) == 0 { self.below(20_000) } else { self.below(40) };
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// A transaction with a few random changes, and assertions that hold in `records` as a rule.
pub fn random_transaction(random: &mut Rng, records: &Records) -> Transaction {
    let mut transaction = Transaction::new();
    for _ in 0..random.below(3) {
        let key = random.key(b'k');
        match random.below(8) {
            0 => transaction.expect(key, Some(random.value())),
            1 => transaction.expect_absent(key),
            2 => transaction.expect_empty(&key..&random.key(b'k')),
            _ => transaction.expect(&*key, records.get(&key).cloned()),
        }
    }
    for _ in 0..1 + random.below(6) {
        match random.below(6) {
            0 | 1 => transaction.remove(random.key(b'k')),
            2 => {
                let index = random.below(2) as usize;
                let number = random.next() as i64;
                let delta = if index == 0 { Delta::Add(number) } else { Delta::AtLeast(number) };
                transaction.merge(random.key(b'n'), index, delta);
            }
            _ => transaction.put(random.key(b'k'), random.value()),
        }
    }
    transaction
}

/// Makes a transaction in a map. False if an assertion does not hold.
pub fn commit(records: &mut Records, transaction: &Transaction) -> bool {
    let holds = |assertion: &Assertion| match assertion {
        Assertion::Value { key, value } => records.get(key) == value.as_ref(),
        Assertion::Empty { start, end } => !records.keys().any(|key| start <= key && key < end),
    };
    if !transaction.assertions().iter().all(holds) {
        return false;
    }
    for change in transaction.changes() {
        match change {
            Change::Put { key, value } => drop(records.insert(key.clone(), value.clone())),
            Change::Remove { key } => drop(records.remove(key)),
            Change::Merge { key, index, delta } => {
                let mut numbers = Numbers::of(records.get(key).map(Vec::as_slice));
                numbers.merge(*index, *delta);
                records.insert(key.clone(), numbers.value().to_vec());
            }
        }
    }
    true
}

/// All records of a snapshot.
pub fn records(snapshot: &dyn Snapshot) -> Records {
    let mut records = Records::new();
    let mut last = Vec::new();
    let scanned = snapshot.scan(b""..&[0xff; 8], &mut |key, value| {
        assert!(records.is_empty() || &*last < key, "in the order of keys");
        last = key.to_vec();
        records.insert(key.to_vec(), value.to_vec());
    });
    scanned.expect("readable");
    records
}
