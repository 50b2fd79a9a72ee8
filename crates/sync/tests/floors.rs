//! The floors of `src`: a folder is a floor, and imports point down.
//!
//! The test reads the sources: every path that begins with `crate::`, outside tests and models. It
//! does not see paths that begin with `super::`, which stay within a floor.

#![cfg(not(loom))]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// From below. Modules of one floor do not import each other, but for their own.
const FLOORS: [&[&str]; 10] = [
    &["facade", "tuning"],
    &["base"],
    &["allocator", "ring"],
    &["reclaim"],
    &["counters"],
    &["refcount"],
    &["locks"],
    &["op"],
    &["split_table"],
    &["hash_table"],
];

fn floor(module: &str) -> Option<usize> {
    FLOORS.iter().position(|modules| modules.contains(&module))
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        match name {
            "tests.rs" | "loom_model.rs" | "lib.rs" => {}
            _ if path.is_dir() => sources(&path, found),
            _ => found.push(path),
        }
    }
}

/// The first segments of all paths in the crate: `crate::x` and `use crate::{x, y}`.
fn imports(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(all(test").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n");
    let mut found = Vec::new();
    for (at, prefix) in code.match_indices("crate::") {
        let mut depth = 0;
        let mut name = String::new();
        for c in code[at + prefix.len()..].chars() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ if depth <= 1 && (c.is_alphanumeric() || c == '_') => name.push(c),
                _ if depth <= 1 && !name.is_empty() => {
                    // Only the first segment of a path counts: the others follow `::`.
                    found.push(std::mem::take(&mut name));
                    if depth == 0 {
                        break;
                    }
                }
                _ => {}
            }
            if depth == 0 && (c == '}' || c == ';') {
                break;
            }
        }
    }
    found
}

#[test]
fn imports_point_down() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    let (mut upward, mut seen) = (Vec::new(), 0);
    for file in &files {
        let inside = file.strip_prefix(&src).expect("within src");
        let module = inside.iter().next().and_then(|name| name.to_str()).expect("a name").trim_end_matches(".rs");
        let own = floor(module).unwrap_or_else(|| panic!("{module} has no floor"));
        for import in imports(&fs::read_to_string(file).expect("a source")) {
            let Some(other) = floor(&import) else { continue };
            seen += 1;
            if import != module && other >= own {
                upward.push(format!("{}: {import}", inside.display()));
            }
        }
    }
    assert!(seen > 100, "only {seen} imports were found");
    assert!(upward.is_empty(), "imports that do not point down:\n{}", upward.join("\n"));
}
