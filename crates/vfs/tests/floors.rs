//! The floors of `crates/vfs/src`: a folder is a floor, and imports point down.
//!
//! The test reads the sources: `use` declarations, paths that begin with `crate::` or `super::`,
//! and calls of methods that a file adds to a type of another file. It fails in these cases:
//! - an import points to a higher floor
//! - files import each other in a cycle that is not listed in [`CYCLES`]
//! - a file has more than 600 lines, or a function more than 80
//!
//! The test makes the table of floors in `ARCHITECTURE.md`. `PANDO_WRITE_FLOORS=1 cargo test -p
//! pando-vfs --test floors` writes it there.
//!
//! Calls through traits and closures are not seen. Tests (`mod tests`) may import anything.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// From the lowest floor to the highest.
const FLOORS: [(&str, &str); 9] = [
    ("types", "plain values: errors, names, attributes, flags, credentials"),
    ("driver", "the interface to drivers"),
    ("objects", "superblock, inode, dentry, directory, contents: data and its invariants"),
    ("caches", "inodes by number, negative dentries, path prefixes; loads, write-back, eviction"),
    ("handles", "what callers hold: `Vfs`, `Context`, an open file"),
    ("trace", "what is recorded of operations, and its reader"),
    ("operations", "walk, create, remove, rename, open, read, write, attributes, readdir"),
    ("fs", "the layer in the manner of `std::fs`"),
    ("introspection", "for tests and benchmarks: state and addresses"),
];

/// Files that import each other, and why.
const CYCLES: [(&str, &[&str]); 1] = [(
    "a dentry holds an inode, a directory's inode has a table of dentries, and each of them knows its superblock, which has \
     tables of dentries",
    &[
        "objects/by_number",
        "objects/dentry",
        "objects/directory",
        "objects/file_state",
        "objects/inode",
        "objects/superblock",
        "objects/tables",
    ],
)];

/// Names of methods that also exist in other crates. A call of one proves no import.
const METHODS_OF_OTHER_CRATES: [&str; 3] = ["freeze", "join", "try_write"];

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 80;

#[test]
fn imports_point_down_and_every_cycle_is_listed() {
    let crate_ = Crate::read();
    let (upward, cycles) = (crate_.upward(), crate_.cycles());
    let unknown: Vec<_> = cycles.iter().filter(|cycle| !CYCLES.iter().any(|(_, known)| cycle.fits(known))).collect();
    let table = crate_.table();
    assert!(upward.is_empty(), "imports of a higher floor:\n{}", upward.join("\n"));
    assert!(unknown.is_empty(), "files import each other:\n{unknown:#?}");
    for (why, known) in CYCLES {
        assert!(cycles.iter().any(|cycle| cycle.fits(known)), "no cycle any more: {why}");
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md");
    let old = fs::read_to_string(&page).expect("ARCHITECTURE.md");
    let new = with_table(&old, &table).expect("ARCHITECTURE.md has a place for the table");
    if std::env::var_os("PANDO_WRITE_FLOORS").is_some() {
        fs::write(&page, new).expect("written");
    } else {
        assert!(old == new, "ARCHITECTURE.md has another table: PANDO_WRITE_FLOORS=1 writes it\n{table}");
    }
}

#[test]
fn files_and_functions_are_short() {
    let crate_ = Crate::read();
    let long: Vec<_> = crate_.files.iter().flat_map(|(name, file)| file.too_long(name)).collect();
    assert!(long.is_empty(), "too long:\n{}", long.join("\n"));
}

const BEGIN: &str = "<!-- floors: made by `cargo test -p pando-vfs --test floors`, from here -->\n";
const END: &str = "<!-- floors: to here -->\n";

fn with_table(page: &str, table: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{table}{END}{after}"))
}

/// A module, as the names on the way to it. The crate's root has none.
type Module = Vec<String>;

struct File {
    source: String,
    /// Without comments and tests.
    code: String,
    /// Also without `use` declarations.
    rest: String,
    /// The paths that the file uses.
    paths: Vec<Used>,
}

struct Used {
    re_exports: bool,
    path: Vec<String>,
    name: String,
}

struct Crate {
    files: BTreeMap<String, File>,
    /// Maps importing file and imported file to the imported names.
    imports: BTreeMap<(String, String), BTreeSet<String>>,
}

#[derive(Debug)]
struct Cycle {
    files: Vec<String>,
    #[expect(dead_code, reason = "shown when the test fails")]
    imports: Vec<String>,
}

impl Cycle {
    /// Whether all its files are in a listed cycle. A cycle that has become smaller is accepted.
    fn fits(&self, known: &[&str]) -> bool {
        self.files.iter().all(|file| known.contains(&file.as_str()))
    }
}

fn floor_of(file: &str) -> Option<usize> {
    let first = file.split('/').next()?;
    FLOORS.iter().position(|(name, _)| *name == first)
}

impl Crate {
    fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut files = BTreeMap::new();
        let mut todo: Vec<PathBuf> = vec![root.clone()];
        while let Some(path) = todo.pop() {
            if path.is_dir() {
                todo.extend(fs::read_dir(&path).expect("a folder").map(|entry| entry.expect("an entry").path()));
                continue;
            }
            let name = path.strip_prefix(&root).expect("below").with_extension("");
            let name = name.to_str().expect("a name").to_owned();
            assert!(!name.ends_with("/mod"), "a module file is `x.rs` beside `x/`: {name}");
            if name == "tests" || name.ends_with("/tests") {
                continue;
            }
            files.insert(name, File::new(fs::read_to_string(&path).expect("a source")));
        }
        let floors = files.keys().filter(|name| *name != "lib" && floor_of(name).is_none()).collect::<Vec<_>>();
        assert!(floors.is_empty(), "on no floor: {floors:?}");
        let mut crate_ = Self { files, imports: BTreeMap::new() };
        crate_.imports = crate_.find_imports();
        crate_
    }

    fn module_of(name: &str) -> Module {
        if name == "lib" { Module::new() } else { name.split('/').map(str::to_owned).collect() }
    }

    fn file_of(module: &[String]) -> String {
        if module.is_empty() { "lib".to_owned() } else { module.join("/") }
    }

    /// The file that defines the target of a path, seen from a module. None if it is in another
    /// crate.
    fn resolve(&self, from: &[String], path: &[String], depth: usize) -> Option<String> {
        assert!(depth < 20, "a path that leads to itself: {path:?} in {from:?}");
        let mut here: Module = from.to_vec();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => (here, rest) = (Module::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {}
            first if !self.files.contains_key(&Self::file_of(&[from, &[first.to_owned()]].concat())) => return None,
            _ => {}
        }
        while let Some(name) = rest.first() {
            if name == "super" {
                here.pop();
                rest = &rest[1..];
                continue;
            }
            let below = [&here[..], std::slice::from_ref(name)].concat();
            if self.files.contains_key(&Self::file_of(&below)) {
                (here, rest) = (below, &rest[1..]);
                continue;
            }
            let file = &self.files[&Self::file_of(&here)];
            if file.defines(name) {
                break;
            }
            let re_exported = file.paths.iter().filter(|used| used.re_exports && used.name == *name);
            if let Some(found) = re_exported.filter_map(|used| self.resolve(&here, &used.path, depth + 1)).next() {
                return Some(found);
            }
            let globs = file.paths.iter().filter(|used| used.re_exports && used.name == "*");
            let in_glob = |used: &Used| {
                let found = self.resolve(&here, &used.path, depth + 1)?;
                self.files[&found].defines(name).then_some(found)
            };
            return globs.filter_map(in_glob).next().or_else(|| Some(Self::file_of(&here)));
        }
        Some(Self::file_of(&here))
    }

    fn find_imports(&self) -> BTreeMap<(String, String), BTreeSet<String>> {
        let mut imports: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        let mut note = |from: &str, to: &str, what: &str| {
            if from != to && from != "lib" && to != "lib" {
                imports.entry((from.to_owned(), to.to_owned())).or_default().insert(what.to_owned());
            }
        };
        for (name, file) in &self.files {
            for used in file.paths.iter().filter(|used| !used.re_exports) {
                if let Some(to) = self.resolve(&Self::module_of(name), &used.path, 0) {
                    note(name, &to, &used.name);
                }
            }
        }
        // Submodules that a module file names by a relative path, and names that it re-exports and
        // uses itself.
        for (name, file) in &self.files {
            for below in self.files.keys().filter_map(|other| other.strip_prefix(name.as_str())?.strip_prefix('/')) {
                if file.rest.contains(&format!(" {below}::")) {
                    note(name, &format!("{name}/{below}"), below);
                }
            }
            for used in file.paths.iter().filter(|used| used.re_exports && file.uses(&used.name)) {
                if let Some(to) = self.resolve(&Self::module_of(name), &used.path, 0) {
                    note(name, &to, &used.name);
                }
            }
        }
        // A call of a method that another file adds to a type is an import of that file. A method
        // name that several files define proves nothing.
        let defines = |file: &File, method: &str| {
            file.code.contains(&format!("fn {method}(")) || file.code.contains(&format!("fn {method}<"))
        };
        for (name, file) in &self.files {
            for method in file.added_methods(self, name) {
                let definers = self.files.values().filter(|other| defines(other, &method)).count();
                if definers > 1 || METHODS_OF_OTHER_CRATES.contains(&method.as_str()) {
                    continue;
                }
                let (call, path) = (format!(".{method}("), format!("::{method}("));
                for (other, text) in &self.files {
                    if text.code.contains(&call) || text.code.contains(&path) {
                        note(other, name, &format!("{call})"));
                    }
                }
            }
        }
        imports
    }

    fn upward(&self) -> Vec<String> {
        let is_upward = |(from, to): &(String, String)| floor_of(from) < floor_of(to);
        let imports = &self.imports;
        imports
            .iter()
            .filter(|(edge, _)| is_upward(edge))
            .map(|((from, to), what)| format!("{from} -> {to}: {what:?}"))
            .collect()
    }

    fn cycles(&self) -> Vec<Cycle> {
        let imports = &self.imports;
        let reach = |from: &str| {
            let (mut seen, mut todo) = (BTreeSet::new(), vec![from.to_owned()]);
            while let Some(file) = todo.pop() {
                let next = imports.keys().filter(|(of, _)| *of == file).map(|(_, to)| to.clone());
                todo.extend(next.filter(|to| seen.insert(to.clone())));
            }
            seen
        };
        let reached: BTreeMap<&String, BTreeSet<String>> = self.files.keys().map(|file| (file, reach(file))).collect();
        let mut cycles: BTreeMap<Vec<String>, Cycle> = BTreeMap::new();
        for (file, there) in reached.iter().filter(|(file, there)| there.contains(**file)) {
            let files: Vec<String> = there.iter().filter(|other| reached[other].contains(*file)).cloned().collect();
            let within = |(from, to): &(String, String)| files.contains(from) && files.contains(to);
            let edges = imports.iter().filter(|(edge, _)| within(edge));
            let imports = edges.map(|((from, to), what)| format!("{from} -> {to}: {what:?}")).collect();
            cycles.entry(files.clone()).or_insert(Cycle { files, imports });
        }
        cycles.into_values().collect()
    }

    fn table(&self) -> String {
        let mut table = String::from("```text\n");
        for (floor, (name, what)) in FLOORS.iter().enumerate().rev() {
            let files = self.files.keys().filter(|file| floor_of(file) == Some(floor));
            let below: Vec<&str> = files.filter_map(|file| file.strip_prefix(name)?.strip_prefix('/')).collect();
            let _ = writeln!(table, "{:>2} {name:<11} {what}", floor + 1);
            wrap(&mut table, "               ", "               ", &below);
        }
        let _ =
            writeln!(table, "```\n\nImports that point up: {}. Files that import each other:\n", self.upward().len());
        for cycle in self.cycles() {
            let why = CYCLES.iter().find(|(_, known)| cycle.fits(known)).map_or("?", |(why, _)| why);
            let files: Vec<String> = cycle.files.iter().map(|file| format!("`{file}`")).collect();
            wrap(
                &mut table,
                "* ",
                "  ",
                &files.join(", ").split(' ').chain(format!("({why})").split(' ')).collect::<Vec<_>>(),
            );
        }
        table
    }
}

/// Writes words in lines of 100 columns.
fn wrap(page: &mut String, first: &str, others: &str, words: &[&str]) {
    let mut line = first.to_owned();
    for word in words {
        if line.len() + word.len() > 100 {
            let _ = writeln!(page, "{}", line.trim_end());
            line = others.to_owned();
        }
        line.push_str(word);
        line.push(' ');
    }
    if !line.trim().is_empty() {
        let _ = writeln!(page, "{}", line.trim_end());
    }
}

impl File {
    fn new(source: String) -> Self {
        let mut code: String =
            source.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
        if let Some(tests) =
            code.find("#[cfg(test)]\nmod tests").or_else(|| code.find("#[cfg(test)]\npub(crate) mod tests"))
        {
            code.truncate(tests);
        }
        let mut paths = Vec::new();
        let mut rest = String::new();
        for statement in code.split_inclusive(';') {
            // Attributes, or the end of an item, may precede the declaration.
            match statement.rfind("use ").filter(|at| is_use(statement, *at)) {
                Some(at) => {
                    let re_exports = statement[..at].trim_end().ends_with("pub")
                        || statement[..at].trim_end().ends_with("pub(crate)");
                    rest.push_str(&statement[..at]);
                    let tree: String =
                        statement[at + 4..].trim_end_matches(';').split_whitespace().collect::<Vec<_>>().join(" ");
                    leaves(&tree, &[], re_exports, &mut paths);
                }
                None => rest.push_str(statement),
            }
        }
        for start in ["crate::", "super::"] {
            for (at, _) in rest.match_indices(start) {
                let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
                if rest[..at].ends_with(|c: char| c == ':' || c.is_alphanumeric()) {
                    continue;
                }
                let end = rest[at..].find(|c| !is_path(c)).map_or(rest.len(), |len| at + len);
                let path: Vec<String> =
                    rest[at..end].split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
                let name = path.last().cloned().unwrap_or_default();
                paths.push(Used { re_exports: false, path, name });
            }
        }
        Self { source, code, rest, paths }
    }

    /// Whether the file uses a name besides re-exporting it.
    fn uses(&self, name: &str) -> bool {
        let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let alone = |at: usize| {
            !is_word(self.rest[..at].chars().next_back()) && !is_word(self.rest[at + name.len()..].chars().next())
        };
        self.rest.match_indices(name).any(|(at, _)| alone(at))
    }

    /// Whether the file defines an item of this name.
    fn defines(&self, name: &str) -> bool {
        let kinds = ["struct", "enum", "trait", "fn", "const", "static", "type", "union"];
        let ends = |at: usize| !self.code[at..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
        kinds.iter().any(|kind| {
            let item = format!("{kind} {name}");
            self.code.match_indices(&item).any(|(at, _)| ends(at + item.len()))
        }) || self.code.contains("enum Error") && name == "Error"
    }

    /// The methods that this file adds to types of other files.
    fn added_methods(&self, crate_: &Crate, file: &str) -> BTreeSet<String> {
        let mut methods = BTreeSet::new();
        let mut is_foreign = false;
        for line in self.code.lines() {
            if let Some(head) = line.strip_prefix("impl ") {
                let of: String = head.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                let used = self.paths.iter().find(|used| used.name == of);
                let to = used.and_then(|used| crate_.resolve(&Crate::module_of(file), &used.path, 0));
                is_foreign = !head.contains(" for ") && !self.defines(&of) && to.is_some_and(|to| to != file);
            } else if line == "}" {
                is_foreign = false;
            } else if is_foreign
                && let Some((before, after)) = line.split_once("fn ")
                && (before.trim().is_empty() || before.trim_start().starts_with("pub"))
            {
                methods.insert(after.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
            }
        }
        methods
    }

    fn too_long(&self, name: &str) -> Vec<String> {
        let lines: Vec<&str> = self.source.lines().collect();
        let mut long = Vec::new();
        if lines.len() > FILE_LINES_MAX {
            long.push(format!("{name}: {} lines", lines.len()));
        }
        for (start, line) in lines.iter().enumerate() {
            let indent = &line[..line.len() - line.trim_start().len()];
            let head = line.trim_start();
            let is_function = head.split_once("fn ").is_some_and(|(before, _)| {
                before.is_empty() || before.split_whitespace().all(|word| word.starts_with("pub") || word == "const")
            });
            if !is_function {
                continue;
            }
            // A function without a body ends with a semicolon.
            let ends = |line: &&str| {
                line.strip_prefix(indent).is_some_and(|rest| !rest.starts_with(' ') && rest.ends_with(['}', ';']))
            };
            let len = lines[start..].iter().position(ends).unwrap_or(0) + 1;
            if len > FUNCTION_LINES_MAX {
                long.push(format!("{name}:{}: {len} lines: {head}", start + 1));
            }
        }
        long
    }
}

/// Whether `use` is a keyword there, at the beginning of a declaration.
fn is_use(statement: &str, at: usize) -> bool {
    let before = statement[..at].trim_end();
    !statement[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
        && (before.is_empty() || before.ends_with([';', '}', ']', ')', '{']) || before.ends_with("pub"))
}

/// Collects the paths of a `use` tree.
fn leaves(tree: &str, above: &[String], re_exports: bool, paths: &mut Vec<Used>) {
    let tree = tree.trim();
    if let Some((head, group)) = tree.split_once('{') {
        let head: Vec<String> =
            head.split("::").map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let above = [above, &head].concat();
        let group = group.rsplit_once('}').map_or(group, |(group, _)| group);
        let (mut depth, mut start) = (0, 0);
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    leaves(&group[start..at], &above, re_exports, paths);
                    start = at + 1;
                }
                _ => {}
            }
        }
        return leaves(&group[start..], &above, re_exports, paths);
    }
    if tree.is_empty() {
        return;
    }
    let (path, name) = tree.split_once(" as ").unwrap_or((tree, ""));
    let mut path: Vec<String> =
        above.iter().cloned().chain(path.split("::").map(|name| name.trim().to_owned())).collect();
    let last = path.last().cloned().unwrap_or_default();
    if last == "self" || last == "*" {
        path.pop();
    }
    let name = if !name.is_empty() { name.to_owned() } else { last };
    paths.push(Used { re_exports, path, name });
}
