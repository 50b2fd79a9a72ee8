//! Bytes on a disk that loses what was not flushed.

use crate::support::Rng;

/// The unit that a disk writes as a whole.
const SECTOR: usize = 512;

#[derive(Debug, Clone)]
enum Pending {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Volatile {
    /// What a read finds.
    pub now: Vec<u8>,
    /// What a crash leaves in any case.
    flushed: Vec<u8>,
    /// The changes since the last flush.
    pending: Vec<Pending>,
}

impl Volatile {
    /// These bytes, all flushed.
    pub fn new(bytes: &[u8]) -> Self {
        Self { now: bytes.to_vec(), flushed: bytes.to_vec(), pending: Vec::new() }
    }

    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.now[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.pending.push(Pending::Write(offset, bytes.to_vec()));
    }

    pub fn set_len(&mut self, len: usize) {
        self.now.resize(len, 0);
        self.pending.push(Pending::SetLen(len));
    }

    pub fn sync(&mut self) {
        self.flushed = self.now.clone();
        self.pending.clear();
    }

    /// What is left after a crash: any part of the changes since the last flush, also parts of a
    /// single write.
    pub fn crashed(&self, random: &mut Rng) -> Vec<u8> {
        let mut left = self.flushed.clone();
        let lost_of_8 = random.below(9);
        for pending in &self.pending {
            match pending {
                Pending::SetLen(len) if random.below(8) >= lost_of_8 => left.resize(*len, 0),
                Pending::SetLen(_) => {}
                Pending::Write(offset, bytes) => {
                    let mut at = *offset;
                    let mut rest = &bytes[..];
                    while !rest.is_empty() {
                        let (sector, others) = rest.split_at(rest.len().min(SECTOR - at % SECTOR));
                        if random.below(8) >= lost_of_8
                            && let Some(place) = left.get_mut(at..at + sector.len())
                        {
                            place.copy_from_slice(sector);
                        }
                        at += sector.len();
                        rest = others;
                    }
                }
            }
        }
        left
    }
}
