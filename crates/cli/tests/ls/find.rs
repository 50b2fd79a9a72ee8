//! Every field of the JSON and CSV forms, beside what find and the system calls say.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
    process::Command,
    time::UNIX_EPOCH,
};

use data_encoding::BASE64;
use serde_json::Value;

use crate::{
    common::{pando, said},
    tree::on_each_file_system,
};

/// Each with a zero byte behind it: they may hold anything else.
const FIELDS: &[&str] =
    &["%p", "%f", "%y", "%i", "%m", "%n", "%U", "%G", "%u", "%g", "%s", "%b", "%D", "%l", "%A@", "%T@", "%C@"];

type Fields = BTreeMap<&'static str, Vec<u8>>;

/// What find says of everything below a directory, by path.
fn find(root: &Path) -> BTreeMap<Vec<u8>, Fields> {
    let format: String = FIELDS.iter().map(|field| format!("{field}\\0")).collect();
    let output = Command::new("find").arg(root).args(["-mindepth", "1", "-printf", &format]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let texts: Vec<_> = output.stdout.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect();
    let records = texts[..texts.len() - 1].chunks(FIELDS.len());
    records.map(|texts| (texts[0].clone(), FIELDS.iter().copied().zip(texts.iter().cloned()).collect())).collect()
}

/// A text that may be under another key, as base64.
fn bytes(object: &Value, key: &str) -> Option<Vec<u8>> {
    let encoded = object[format!("{key}_base64")].as_str();
    match (object[key].as_str(), encoded) {
        (Some(text), None) => Some(text.as_bytes().to_vec()),
        (None, Some(encoded)) => Some(BASE64.decode(encoded.as_bytes()).unwrap()),
        (None, None) => None,
        (Some(_), Some(_)) => panic!("{object}"),
    }
}

fn rows(root: &Path, options: &[&str]) -> BTreeMap<Vec<u8>, Value> {
    let output = pando(&["ls", "--json"]).args(options).arg(root).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let lines = output.stdout.split_inclusive(|&byte| byte == b'\n');
    let mut rows = BTreeMap::new();
    for line in lines {
        let row: Value = serde_json::from_slice(line).unwrap();
        assert_eq!(row["v"], 1);
        assert!(rows.insert(bytes(&row, "path").unwrap(), row).is_none(), "each path comes once");
    }
    rows
}

/// `seconds.fraction` of find.
fn time(text: &[u8]) -> Value {
    let text = std::str::from_utf8(text).unwrap();
    let (secs, fraction) = text.split_once('.').unwrap();
    serde_json::json!({"sec": secs.parse::<i64>().unwrap(), "nsec": fraction[..9].parse::<u32>().unwrap()})
}

fn compare(row: &Value, found: &Fields) {
    let text = |field: &str| String::from_utf8(found[field].clone()).unwrap();
    let number = |field: &str| Value::from(text(field).parse::<u64>().unwrap());
    assert_eq!(bytes(row, "name").as_ref(), Some(&found["%f"]));
    for (key, field) in [("ino", "%i"), ("nlink", "%n"), ("uid", "%U"), ("gid", "%G"), ("size", "%s"), ("blocks", "%b")]
    {
        assert_eq!(row[key], number(field), "{key} of {row}");
    }
    assert_eq!(row["mode"].as_u64().unwrap() & 0o7777, u64::from_str_radix(&text("%m"), 8).unwrap(), "{row}");
    // find has the number where there is no name.
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
    assert_eq!(bytes(row, "target").unwrap_or_default(), found["%l"], "{row}");
    let part = |key: &str| row[key].as_u64().unwrap() as u32;
    assert_eq!(Value::from(rustix::fs::makedev(part("dev_major"), part("dev_minor"))), number("%D"), "{row}");
    for (key, field) in [("atime", "%A@"), ("mtime", "%T@"), ("ctime", "%C@")] {
        assert_eq!(row[key], time(&found[field]), "{key} of {row}");
    }
}

/// What find does not say, or not on Linux.
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

fn agree(root: &Path) {
    // A first look changes the times of access, where the mount keeps them.
    find(root);
    rows(root, &["-lRA"]);
    let found = find(root);
    let rows = rows(root, &["-lRA"]);
    assert!(rows.keys().eq(found.keys()), "{} rows, {} found", rows.len(), found.len());
    for (path, row) in &rows {
        compare(row, &found[path]);
        compare_rest(path, row);
    }
}

/// Extended attributes of a path, by the plain calls.
fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut list = vec![0; 65_536];
    let len = rustix::fs::llistxattr(path, &mut list).unwrap();
    let names = list[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; 65_536];
        let len = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value).unwrap();
        value[..len].to_vec()
    };
    names.map(|name| (name.to_vec(), value(name))).collect()
}

fn xattrs_agree(root: &Path) {
    let mut seen = 0;
    for (options, values) in [("--xattr", true), ("--xattr=names", false)] {
        for (path, row) in rows(root, &["-RA", options]) {
            let listed = row["xattrs"].as_array().unwrap();
            let names = |xattr: &Value| (bytes(xattr, "name").unwrap(), bytes(xattr, "value"));
            let listed: BTreeMap<_, _> = listed.iter().map(names).collect();
            let mut expected = BTreeMap::new();
            for (name, value) in xattrs(Path::new(OsStr::from_bytes(&path))) {
                expected.insert(name, values.then_some(value));
            }
            seen += expected.len();
            assert_eq!(listed, expected, "{row}");
        }
    }
    assert!(seen >= 8, "the tree has some");
}

#[test]
fn json_and_find_agree_on_every_field() {
    on_each_file_system(|root| {
        agree(root);
        xattrs_agree(root);
    });
}

#[test]
fn json_and_find_agree_over_this_machine() {
    agree(Path::new("/usr/share"));
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

#[test]
fn csv_says_what_json_says() {
    let temp = tempfile::tempdir().unwrap();
    crate::tree::populate(temp.path());
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
                // Reading a link or a directory changes its time of access.
                Some(("atime", _)) => {}
                Some((time, part @ ("sec" | "nsec"))) => assert_eq!(row[time][part].to_string(), text, "{key}"),
                _ => assert_eq!(row[key].to_string(), text, "{key}"),
            }
        }
        count += 1;
    }
    assert_eq!(count, json.len());
}
