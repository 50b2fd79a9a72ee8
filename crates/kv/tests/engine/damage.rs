//! What an embedded engine is given to open: nothing, something else, or a damaged file.

use std::{fs, io, sync::Arc};

use pando_kv::{Embedded, Engine, Error, FileStorage, MemoryStorage, Outcome, Storage, Transaction};

use crate::support::{Records, Rng, commit, random_transaction, records, seed};

fn open(bytes: &[u8]) -> pando_kv::Result<Embedded> {
    Embedded::open(Arc::new(MemoryStorage::new(bytes.to_vec())))
}

/// A storage with records, and the records.
fn filled(random: &mut Rng) -> (Vec<u8>, Records) {
    let storage = Arc::new(MemoryStorage::default());
    let engine = Embedded::create(storage.clone()).expect("made");
    let mut model = Records::new();
    for _ in 0..100 {
        let transaction = random_transaction(random, &model);
        let outcome = if commit(&mut model, &transaction) { Outcome::Committed } else { Outcome::Conflict };
        assert_eq!(engine.commit(&transaction).expect("no failure"), outcome);
    }
    drop(engine);
    (storage.bytes(), model)
}

#[test]
fn file_has_one_user() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("records");
    assert!(matches!(FileStorage::open(&path), Err(Error::Io(error)) if error.kind() == io::ErrorKind::NotFound));
    let storage = Arc::new(FileStorage::create(&path).expect("made"));
    assert!(
        matches!(FileStorage::create(&path), Err(Error::Io(error)) if error.kind() == io::ErrorKind::AlreadyExists)
    );
    assert!(matches!(FileStorage::open(&path), Err(Error::InUse)));
    assert!(matches!(Embedded::open(storage.clone()), Err(Error::Damaged(_))), "empty");
    let engine = Embedded::create(storage.clone()).expect("made");
    assert!(matches!(Embedded::create(storage), Err(Error::Damaged(_))), "not empty");
    let mut put = Transaction::new();
    put.put("key", "value");
    engine.commit(&put).expect("no failure");
    drop(engine);
    let engine = Embedded::open(Arc::new(FileStorage::open(&path).expect("free"))).expect("opens");
    assert_eq!(engine.snapshot().expect("readable").get_one(b"key").expect("readable").as_deref(), Some(&b"value"[..]));
}

#[test]
fn what_is_no_engine_is_refused_and_stays_as_it_is() {
    let mut random = Rng(seed());
    let (whole, _) = filled(&mut random);
    let noise: Vec<u8> = (0..whole.len()).map(|_| random.next() as u8).collect();
    let zeros = vec![0; whole.len()];
    for bytes in [&b"x"[..], b"another program's file\n", &noise, &zeros, &whole[..100], &whole[..4096]] {
        let storage = Arc::new(MemoryStorage::new(bytes.to_vec()));
        assert!(matches!(Embedded::open(storage.clone()), Err(Error::Damaged(_) | Error::Io(_))), "{}", bytes.len());
        assert!(storage.bytes() == bytes, "{} bytes", bytes.len());
    }
}

/// A changed bit is found when the engine is opened, or it was nothing that anything depends on.
#[test]
fn changed_bits_are_found() {
    let mut random = Rng(seed());
    let (whole, model) = filled(&mut random);
    let flips = pandofs_testkit::number("PANDO_FLIPS").unwrap_or(300);
    let mut found = 0;
    for _ in 0..flips {
        let mut bytes = whole.clone();
        let (place, bit) = (random.below(bytes.len() as u64) as usize, random.below(8));
        bytes[place] ^= 1 << bit;
        match open(&bytes) {
            Ok(engine) => assert!(records(&*engine.snapshot().expect("readable")) == model, "byte {place} bit {bit}"),
            Err(Error::Damaged(_)) => found += 1,
            Err(error) => panic!("byte {place} bit {bit}: {error}"),
        }
    }
    println!("{found} of {flips} found");
    assert!(found > 0);
}

#[test]
fn file_is_reserved_when_it_grows() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("records");
    let storage = FileStorage::create(&path).expect("made");
    storage.set_len(1 << 20).expect("space");
    storage.write(5, b"here").expect("within");
    storage.set_len(1 << 16).expect("shorter");
    let mut found = [0; 6];
    storage.read(4, &mut found).expect("within");
    assert_eq!((&found, storage.len().expect("there")), (b"\0here\0", 1 << 16));
    assert!(storage.read(1 << 16, &mut found).is_err());
    storage.sync().expect("flushed");
    use std::os::unix::fs::MetadataExt;
    assert!(fs::metadata(&path).expect("there").blocks() * 512 >= 1 << 16, "not sparse");
}
