//! A backed tree and a real tmpfs must return the same results, while its store is slow and fails
//! and unused inodes are evicted. `pando_oracle` describes the method and the variables that
//! control it.
#![forbid(unsafe_code)]

use std::{process::ExitCode, time::Duration};

use pando_mapfs::{Call, Delay, Fault, MapFs, MapHandle, MapOptions, Wait};
use pando_oracle::{FaultInjector, Subject, TreeKind, run};
use pando_vfs::{Error, Vfs};

#[path = "../../vfs/tests/support/splitmix.rs"]
mod splitmix;

fn main() -> ExitCode {
    run(TreeKind::Backed, |style| {
        let delays = vec![
            Delay { call: None, wait: Wait::Spin(Duration::from_micros(2)) },
            Delay { call: Some(Call::Lookup), wait: Wait::Spin(Duration::from_micros(10)) },
        ];
        let driver = MapFs::new(MapOptions { delays, ..MapOptions::default() });
        let injector = FailingStore { store: driver.handle(), seed: style.seed, failed_before: 0 };
        Subject { vfs: Vfs::new(driver).expect("a new tree"), injector: Some(Box::new(injector)) }
    })
}

/// An error that tmpfs without quotas never returns.
const INJECTED: Error = Error::Quota;

/// Evicts before some operations, and fails a call in some. The seed and the number of the
/// operation decide which.
struct FailingStore {
    store: MapHandle,
    seed: u64,
    failed_before: u64,
}

impl FaultInjector for FailingStore {
    fn arm(&mut self, vfs: &Vfs, index: u64) {
        let draw = mix(self.seed ^ mix(index));
        match draw % 8 {
            0 => drop(vfs.evict(usize::MAX).expect("nothing fails yet")),
            1 | 2 => drop(vfs.evict(1 + (draw >> 8) as usize % 16).expect("nothing fails yet")),
            _ => {}
        }
        self.failed_before = self.store.calls_failed();
        if (draw >> 16).is_multiple_of(2) {
            // Most operations make one or two calls.
            self.store.inject(Fault::Nth { call: None, after: (draw >> 24) % 4, error: INJECTED });
        }
    }

    fn disarm(&mut self) -> Option<Error> {
        self.store.clear_faults();
        (self.store.calls_failed() > self.failed_before).then_some(INJECTED)
    }
}

/// A hash of a number.
fn mix(mut z: u64) -> u64 {
    splitmix::next(&mut z)
}
