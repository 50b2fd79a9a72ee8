//! Every field of the JSON and CSV forms, compared with find and the system calls.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io::{BufRead, BufReader},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
    process::{Command, Stdio},
    time::UNIX_EPOCH,
};

use data_encoding::BASE64;
use serde_json::Value;

use crate::{
    common::{has, pando, said},
    scale,
    tree::{on_each_file_system, populate},
};

/// Each field ends with a zero byte, because it may contain any other byte.
const FIELDS: &[&str] =
    &["%p", "%f", "%y", "%i", "%m", "%n", "%U", "%G", "%u", "%g", "%s", "%b", "%D", "%l", "%A@", "%T@", "%C@"];

/// The fields of an entry, in their order.
struct Fields(Vec<Box<[u8]>>);

impl Fields {
    fn get(&self, field: &str) -> &[u8] {
        &self.0[FIELDS.iter().position(|&known| known == field).unwrap()]
    }
}

/// The output of find for everything below a directory, by path.
fn find(root: &Path) -> BTreeMap<Vec<u8>, Fields> {
    let format: String = FIELDS.iter().map(|field| format!("{field}\\0")).collect();
    let output = Command::new("find").arg(root).args(["-mindepth", "1", "-printf", &format]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let mut texts = output.stdout.split(|&byte| byte == 0).map(Box::from);
    let mut found = BTreeMap::new();
    loop {
        let fields: Vec<Box<[u8]>> = texts.by_ref().take(FIELDS.len()).collect();
        // Nothing follows the last zero byte.
        if fields.len() < FIELDS.len() {
            return found;
        }
        found.insert(fields[0].to_vec(), Fields(fields));
    }
}

/// A text that may be base64 under another key.
fn bytes(object: &Value, key: &str) -> Option<Vec<u8>> {
    let encoded = object[format!("{key}_base64")].as_str();
    match (object[key].as_str(), encoded) {
        (Some(text), None) => Some(text.as_bytes().to_vec()),
        (None, Some(encoded)) => Some(BASE64.decode(encoded.as_bytes()).unwrap()),
        (None, None) => None,
        (Some(_), Some(_)) => panic!("{object}"),
    }
}

/// Passes on each row of the listing as it arrives: all of them may not fit into memory.
fn each_row(root: &Path, options: &[&str], mut each: impl FnMut(Vec<u8>, Value)) {
    let mut command = pando(&["ls", "--json"]);
    let mut child =
        command.args(options).arg(root).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).unwrap() > 0 {
        let row: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(row["v"], 1);
        each(bytes(&row, "path").unwrap(), row);
        line.clear();
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

fn rows(root: &Path, options: &[&str]) -> BTreeMap<Vec<u8>, Value> {
    let mut rows = BTreeMap::new();
    each_row(root, options, |path, row| assert!(rows.insert(path, row).is_none(), "each path comes once"));
    rows
}

/// Parses `seconds.fraction` of find.
fn time(text: &[u8]) -> Value {
    let text = std::str::from_utf8(text).unwrap();
    let (secs, fraction) = text.split_once('.').unwrap();
    serde_json::json!({"sec": secs.parse::<i64>().unwrap(), "nsec": fraction[..9].parse::<u32>().unwrap()})
}

fn compare(row: &Value, found: &Fields) {
    let text = |field: &str| String::from_utf8(found.get(field).to_vec()).unwrap();
    let number = |field: &str| Value::from(text(field).parse::<u64>().unwrap());
    assert_eq!(bytes(row, "name").as_deref(), Some(found.get("%f")));
    for (key, field) in [("ino", "%i"), ("nlink", "%n"), ("uid", "%U"), ("gid", "%G"), ("size", "%s"), ("blocks", "%b")]
    {
        assert_eq!(row[key], number(field), "{key} of {row}");
    }
    assert_eq!(row["mode"].as_u64().unwrap() & 0o7777, u64::from_str_radix(&text("%m"), 8).unwrap(), "{row}");
    // find prints the number if there is no name.
    for (key, id, field) in [("user", "uid", "%u"), ("group", "gid", "%g")] {
        let name = row[key].as_str().map_or_else(|| row[id].to_string(), str::to_owned);
        assert_eq!(name, text(field), "{row}");
    }
    let kinds = [
        ("file", "f"),
        ("directory", "d"),
        ("symlink", "l"),
        ("fifo", "p"),
        ("socket", "s"),
        ("char", "c"),
        ("block", "b"),
    ];
    assert!(kinds.contains(&(row["type"].as_str().unwrap(), &text("%y"))), "{row}");
    assert_eq!(bytes(row, "target").unwrap_or_default(), found.get("%l"), "{row}");
    let part = |key: &str| row[key].as_u64().unwrap() as u32;
    assert_eq!(Value::from(rustix::fs::makedev(part("dev_major"), part("dev_minor"))), number("%D"), "{row}");
    for (key, field) in [("atime", "%A@"), ("mtime", "%T@"), ("ctime", "%C@")] {
        assert_eq!(row[key], time(found.get(field)), "{key} of {row}");
    }
}

/// Compares the fields that find does not print, or does not print on Linux.
fn compare_rest(path: &[u8], row: &Value) {
    let metadata = std::fs::symlink_metadata(OsStr::from_bytes(path)).unwrap();
    assert_eq!(row["mode"], metadata.mode(), "with the kind");
    assert_eq!(row["blksize"], metadata.blksize());
    let birth = metadata.created().map_or(Value::Null, |time| {
        let since = time.duration_since(UNIX_EPOCH).unwrap();
        serde_json::json!({"sec": since.as_secs(), "nsec": since.subsec_nanos()})
    });
    assert_eq!(row["btime"], birth, "{row}");
    let part = |key: &str| row[key].as_u64().unwrap() as u32;
    assert_eq!(rustix::fs::makedev(part("rdev_major"), part("rdev_minor")), metadata.rdev(), "{row}");
    assert!(part("attributes") & !part("attributes_mask") == 0 && part("have") & 0x7ff == 0x7ff, "{row}");
}

pub fn agree(root: &Path) {
    // The first listing changes atimes, if the mount keeps them.
    find(root);
    each_row(root, &["-lRA"], |_, _| {});
    let mut found = find(root);
    each_row(root, &["-lRA"], |path, row| {
        let found = found.remove(&path).unwrap_or_else(|| panic!("find has no such entry, or it came twice: {row}"));
        compare(&row, &found);
        compare_rest(&path, &row);
    });
    let lost: Vec<_> = found.keys().map(|path| String::from_utf8_lossy(path)).collect();
    assert!(lost.is_empty(), "only find has them: {lost:?}");
}

/// The extended attributes of a path, by the plain system calls.
fn xattrs(path: &Path, room: &mut [u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let len = rustix::fs::llistxattr(path, &mut *room).unwrap();
    let list = room[..len].to_vec();
    let names = list.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    let mut value = |name: &[u8]| {
        let len = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut *room).unwrap();
        room[..len].to_vec()
    };
    names.map(|name| (name.to_vec(), value(name))).collect()
}

/// Compares extended attributes. Returns their number.
pub fn xattrs_agree(root: &Path) -> usize {
    let (mut seen, mut room) = (0, vec![0; 65_536]);
    for (options, values) in [("--xattr", true), ("--xattr=names", false)] {
        each_row(root, &["-RA", options], |path, row| {
            let listed = row["xattrs"].as_array().unwrap();
            let names = |xattr: &Value| (bytes(xattr, "name").unwrap(), bytes(xattr, "value"));
            let listed: BTreeMap<_, _> = listed.iter().map(names).collect();
            let mut expected = BTreeMap::new();
            for (name, value) in xattrs(Path::new(OsStr::from_bytes(&path)), &mut room) {
                expected.insert(name, values.then_some(value));
            }
            seen += expected.len();
            assert_eq!(listed, expected, "{row}");
        });
    }
    seen
}

#[test]
fn json_and_find_agree_on_every_field() {
    if !has(&["find"]) {
        return;
    }
    on_each_file_system(|root| {
        agree(root);
        assert!(xattrs_agree(root) >= 8, "the tree has some");
    });
}

#[test]
fn json_and_find_agree_over_this_machine() {
    if !has(&["find"]) {
        return;
    }
    agree(Path::new(if scale::is_full() { "/usr" } else { "/usr/share" }));
}

/// Records by the rules of RFC 4180.
fn records(text: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let (mut records, mut quoted) = (vec![vec![Vec::new()]], false);
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let record = records.last_mut().unwrap();
        match byte {
            b'"' if quoted && bytes.peek() == Some(&b'"') => record.last_mut().unwrap().extend(bytes.next()),
            b'"' => quoted = !quoted,
            b',' if !quoted => record.push(Vec::new()),
            b'\r' if !quoted && bytes.peek() == Some(&b'\n') => {
                bytes.next();
                records.push(vec![Vec::new()]);
            }
            _ => record.last_mut().unwrap().push(byte),
        }
    }
    assert_eq!(records.pop(), Some(vec![Vec::new()]), "the last line is ended");
    records
}

/// Other options need attributes but do not show them.
#[test]
fn json_has_attributes_only_with_l() {
    let temp = tempfile::tempdir().unwrap();
    populate(temp.path());
    let keys = |options: &[&str], path: &Path| {
        let rows = rows(path, options).into_values();
        rows.map(|row| row.as_object().unwrap().keys().cloned().collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    for path in [temp.path(), &temp.path().join("plain")] {
        let plain = keys(&[], path);
        for options in ["-t", "-S", "-s", "-i", "-F", "--sort=inode"] {
            assert_eq!(keys(&[options], path), plain, "{options}");
        }
        assert_ne!(keys(&["-l"], path), plain);
    }
}

#[test]
fn csv_has_the_same_values_as_json() {
    let temp = tempfile::tempdir().unwrap();
    populate(temp.path());
    let json = rows(temp.path(), &["-lRA"]);
    let output = pando(&["ls", "--csv", "-lRA"]).arg(temp.path()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let mut records = records(&output.stdout).into_iter();
    let header: Vec<_> = records.next().unwrap().into_iter().map(|name| String::from_utf8(name).unwrap()).collect();
    let mut count = 0;
    for record in records {
        assert_eq!(record.len(), header.len());
        let row = &json[&record[0]];
        for (key, field) in header.iter().zip(&record) {
            let text = String::from_utf8_lossy(field);
            match key.split_once('_') {
                _ if ["path", "name", "target", "user", "group", "type"].contains(&key.as_str()) => {
                    assert_eq!(bytes(row, key).unwrap_or_default(), *field, "{key}");
                }
                _ if ["error", "operation"].contains(&key.as_str()) => assert_eq!(text, ""),
                // Reading a link or a directory changes its atime.
                Some(("atime", _)) => {}
                Some((time, part @ ("sec" | "nsec"))) => assert_eq!(row[time][part].to_string(), text, "{key}"),
                _ => assert_eq!(row[key].to_string(), text, "{key}"),
            }
        }
        count += 1;
    }
    assert_eq!(count, json.len());
}
