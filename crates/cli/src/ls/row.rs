//! One entry in the form that was asked for.

use pando_vfs::{FileKind, bulk::XattrValue};

use super::{
    colours::{Colours, Subject},
    columns::Cells,
    csv,
    entry::{Entry, LinkEnd},
    human::spaces,
    json,
    long::{LookUps, Widths},
    owner::Owners,
    plan::{Form, Plan},
    quote::{Quote, Quoting},
    time::Clock,
};

/// Renders entries.
pub struct Rows<'p> {
    plan: &'p Plan,
    look: LookUps,
    colours: Option<Colours>,
    /// How wide the columns of the directory at hand are.
    pub widths: Widths,
    /// What comes before the names of the directory at hand, in forms that have paths.
    prefix: Vec<u8>,
}

/// The last part of a path.
fn last_part(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(path.len(), |last| last + 1);
    let begin = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    &path[begin..end]
}

fn class(kind: Option<FileKind>, mode: u32) -> Option<u8> {
    match kind? {
        FileKind::Directory => Some(b'/'),
        FileKind::Symlink => Some(b'@'),
        FileKind::Fifo => Some(b'|'),
        FileKind::Socket => Some(b'='),
        FileKind::File if mode & 0o111 != 0 => Some(b'*'),
        _ => None,
    }
}

impl<'p> Rows<'p> {
    /// Renders as planned.
    pub fn new(plan: &'p Plan) -> Self {
        let look = LookUps {
            owners: Owners::new(),
            clock: Clock::new(plan.time_style.clone()),
            selinux: std::path::Path::new("/sys/fs/selinux/enforce").exists(),
        };
        let colours = plan.colour.then(Colours::from_env);
        Self { plan, look, colours, widths: Widths::default(), prefix: Vec::new() }
    }

    /// Begins a directory with this path; none for arguments.
    pub fn begin(&mut self, path: Option<&[u8]>) {
        self.widths = Widths::default();
        self.prefix.clear();
        if let Some(path) = path {
            self.prefix.extend_from_slice(path);
            if path.last() != Some(&b'/') {
                self.prefix.push(b'/');
            }
        }
    }

    /// Makes room for an entry.
    pub fn measure(&mut self, entry: &Entry<'_>) {
        match self.plan.form {
            Form::Long => self.widths.measure(entry, self.plan, &mut self.look),
            Form::Lines | Form::Columns => {
                self.widths.measure_frills(entry, self.plan);
                self.widths.quotes |= self.plan.aligns_quotes() && self.plan.quote.needs_quotes(entry.name);
            }
            Form::Json | Form::Csv => {}
        }
    }

    /// Appends an entry as a line, or several.
    pub fn write(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        let plan = self.plan;
        match plan.form {
            Form::Long => self.widths.write(entry, plan, &mut self.look, out),
            Form::Lines | Form::Columns => {
                self.widths.write_frills(entry, plan, out);
                if plan.paths {
                    out.extend_from_slice(&self.prefix);
                }
            }
            Form::Json | Form::Csv => return self.write_machine(entry, out),
        }
        self.write_name(entry, out);
        if plan.form == Form::Long {
            self.write_target(entry, out);
        }
        out.push(plan.screen.eol);
        if plan.xattr.is_some() {
            self.write_xattrs(entry, out);
        }
    }

    /// Adds an entry to columns.
    pub fn write_cell(&mut self, entry: &Entry<'_>, cells: &mut Cells) {
        let width = self.widths.write_frills(entry, self.plan, cells.text());
        let width = width + self.write_name(entry, cells.text());
        cells.end(width);
    }

    /// The name, with what stands before and behind it; answers how wide that is.
    fn write_name(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) -> usize {
        let quote = self.plan.quote;
        let mut width = 0;
        if self.widths.quotes && self.plan.aligns_quotes() && !quote.needs_quotes(entry.name) {
            spaces(1, out);
            width = 1;
        }
        width += match &mut self.colours {
            None => quote.write(entry.name, out),
            Some(colours) => colours.paint(Subject::of(entry), out, |out| quote.write(entry.name, out)),
        };
        // A link in the long format shows what its target is instead.
        let linked = self.plan.form == Form::Long && entry.target.is_some();
        let mode = entry.attr.map_or(0, |attr| attr.mode);
        if let Some(class) = class(entry.kind, mode).filter(|_| self.plan.classify && !linked) {
            out.push(class);
            width += 1;
        }
        width
    }

    fn write_target(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        let Some(target) = entry.target else { return };
        let quote = self.plan.quote;
        out.extend_from_slice(b" -> ");
        match &mut self.colours {
            None => quote.write(target, out),
            Some(colours) => colours.paint(Subject::target_of(entry), out, |out| quote.write(target, out)),
        };
        if let LinkEnd::Mode(mode) = entry.link_end
            && let Some(class) = class(FileKind::from_mode(mode), mode).filter(|_| self.plan.classify)
        {
            out.push(class);
        }
    }

    /// Names and values are quoted always: a value is anything.
    fn write_xattrs(&self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        let quote = Quote { style: Quoting::ShellEscape, ..self.plan.quote };
        for xattr in entry.xattrs.clone() {
            out.push(b'\t');
            quote.write(xattr.name, out);
            if let XattrValue::Bytes(value) = xattr.value {
                out.push(b'=');
                quote.write(value, out);
            }
            out.push(self.plan.screen.eol);
        }
    }

    fn write_machine(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        let begin = self.prefix.len();
        self.prefix.extend_from_slice(entry.name);
        let name = if begin == 0 { last_part(&self.prefix) } else { &self.prefix[begin..] };
        let xattrs = self.plan.xattr.is_some();
        let owners = &mut self.look.owners;
        if self.plan.form == Form::Json {
            json::write(entry, &self.prefix, name, xattrs, owners, out);
        } else {
            let columns = csv::Columns { long: self.plan.long, xattrs };
            csv::write(entry, &self.prefix, name, columns, owners, out);
        }
        self.prefix.truncate(begin);
    }

    /// Appends what comes before all entries.
    pub fn write_header(&self, out: &mut Vec<u8>) {
        if self.plan.form == Form::Csv {
            csv::write_header(csv::Columns { long: self.plan.long, xattrs: self.plan.xattr.is_some() }, out);
        }
    }

    /// Appends a line about a directory that could not be opened or read on, in forms that have one.
    pub fn write_failure(&self, path: &[u8], operation: &str, errno: i32, out: &mut Vec<u8>) {
        match self.plan.form {
            Form::Json => json::write_failure(path, operation, errno, out),
            Form::Csv => {
                let columns = csv::Columns { long: self.plan.long, xattrs: self.plan.xattr.is_some() };
                csv::write_failure(path, operation, errno, columns, out);
            }
            Form::Long | Form::Lines | Form::Columns => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::last_part;

    #[test]
    fn the_last_part_of_a_path() {
        for (path, last) in [("a", "a"), ("a/b", "b"), ("/a/b//", "b"), ("/", "/"), ("..", ".."), ("", "")] {
            let expected: &[u8] = if path == "/" { b"" } else { last.as_bytes() };
            assert_eq!(last_part(path.as_bytes()), expected, "{path}");
        }
    }
}
