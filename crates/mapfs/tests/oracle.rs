//! A tree that is kept elsewhere and a real tmpfs answer alike, while its store is slow and fails, and what nobody uses
//! is evicted. See `pando_oracle` for how, and for the variables that steer it.
#![forbid(unsafe_code)]

use std::{process::ExitCode, time::Duration};

use pando_mapfs::{Call, Delay, Fault, MapFs, MapHandle, MapOptions, Wait};
use pando_oracle::{Subject, Trouble, run};
use pando_vfs::{Error, Vfs};

#[path = "../../vfs/tests/support/splitmix.rs"]
mod splitmix;

fn main() -> ExitCode {
    run(true, |style| {
        let delays = vec![
            Delay { call: None, wait: Wait::Spin(Duration::from_micros(2)) },
            Delay { call: Some(Call::Lookup), wait: Wait::Spin(Duration::from_micros(10)) },
        ];
        let driver = MapFs::new(MapOptions { delays, ..MapOptions::default() });
        let trouble = FailingStore { store: driver.handle(), seed: style.seed, struck: 0 };
        Subject { vfs: Vfs::new(driver).expect("a new tree"), trouble: Some(Box::new(trouble)) }
    })
}

/// Nothing that tmpfs answers without quotas.
const INJECTED: Error = Error::Quota;

/// Before some operations something is evicted, and in some a call fails: which, the seed and the operation's number say.
struct FailingStore {
    store: MapHandle,
    seed: u64,
    struck: u64,
}

impl Trouble for FailingStore {
    fn arm(&mut self, vfs: &Vfs, index: u64) {
        let draw = mix(self.seed ^ mix(index));
        match draw % 8 {
            0 => drop(vfs.evict(usize::MAX).expect("nothing fails yet")),
            1 | 2 => drop(vfs.evict(1 + (draw >> 8) as usize % 16).expect("nothing fails yet")),
            _ => {}
        }
        self.struck = self.store.faults_struck();
        if (draw >> 16).is_multiple_of(2) {
            // Most operations make a call or two.
            self.store.inject(Fault::Nth { call: None, after: (draw >> 24) % 4, error: INJECTED });
        }
    }

    fn disarm(&mut self) -> Option<Error> {
        self.store.clear_faults();
        (self.store.faults_struck() > self.struck).then_some(INJECTED)
    }
}

/// A number that depends on each bit of another.
fn mix(mut z: u64) -> u64 {
    splitmix::next(&mut z)
}
