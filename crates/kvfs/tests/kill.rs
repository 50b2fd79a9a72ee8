//! A process with a store is killed, again and again. What it has synced is there afterwards, and
//! what it has replaced by a rename is whole.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use pando_kvfs::{Closed, KvFs, StoreOptions};
use pando_vfs::fs::Fs;

/// Set in the process that is killed: the directory of the store.
const STORE: &str = "PANDO_TEST_STORE";

/// The contents of a file that the process replaces: the number, and as many bytes that a small
/// file and a large one take turns.
fn contents(number: u64) -> Vec<u8> {
    let len = if number.is_multiple_of(3) { 40_000 } else { 100 };
    [&number.to_le_bytes()[..], &vec![number as u8; len]].concat()
}

fn open(dir: &Path) -> (Fs, Closed) {
    let store = KvFs::open(dir, StoreOptions::new().interval(Duration::from_millis(5))).expect("a store");
    let closed = store.closed();
    (Fs::new(store).expect("a tree"), closed)
}

/// The number that the last whole replacement has left.
fn found(fs: &Fs) -> u64 {
    let Ok(bytes) = fs.read("/file") else { return 0 };
    let number = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
    assert_eq!(bytes, contents(number), "whole");
    number
}

/// The process that is killed. Does nothing in a normal run.
#[test]
fn replaces_a_file_until_it_is_killed() {
    let Some(dir) = env::var_os(STORE) else { return };
    let (fs, _) = open(Path::new(&dir));
    for number in found(&fs) + 1.. {
        fs.write("/new", contents(number)).expect("written");
        fs.rename("/new", "/file").expect("renamed");
        if number.is_multiple_of(4) {
            fs.open("/file").expect("there").fsync().expect("stored");
            println!("\nsynced {number}");
            std::io::stdout().flush().expect("printed");
        }
    }
}

#[test]
fn killed_process_leaves_what_it_has_synced() {
    let dir = tempfile::tempdir().expect("a directory");
    let rounds = pandofs_testkit::number("PANDO_KILLS").unwrap_or(10);
    let mut last = 0;
    for round in 0..rounds {
        let mut child = Command::new(env::current_exe().expect("this program"))
            .args(["--exact", "replaces_a_file_until_it_is_killed", "--nocapture"])
            .env(STORE, dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        // It has begun when it has synced once.
        let mut synced = lines.by_ref().map_while(Result::ok).find_map(number).expect("it runs");
        thread::sleep(Duration::from_micros(round * 7919 % 40_000));
        child.kill().expect("runs");
        child.wait().expect("ends");
        synced = lines.map_while(Result::ok).filter_map(number).last().unwrap_or(synced);
        let (fs, closed) = open(dir.path());
        let now = found(&fs);
        drop(fs);
        closed.wait().expect("stored");
        assert!(now >= synced, "round {round}: {now} of {synced}");
        assert!(now > last, "it went on");
        last = now;
    }
}

fn number(line: String) -> Option<u64> {
    line.strip_prefix("synced ")?.parse().ok()
}
