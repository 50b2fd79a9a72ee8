//! An entry in the requested form.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use pando_console::quote::Quote;
use pando_records::{FileKind, XattrValue};

use crate::{
    entry::{
        Entry, LinkEnd,
        colours::{Brush, Painted},
    },
    forms::{
        csv,
        dired::Dired,
        json::{self, Shown},
        long::{INDENT, LookUps, Widths, Written},
    },
    plan::{Form, Plan},
    text::{
        columns::Cells,
        human::spaces,
        hyperlink::{self, Hyperlinks},
        owner::Owners,
        time::Clock,
        values::Indicators,
    },
};

/// Renders entries.
pub struct Rows<'p> {
    plan: &'p Plan,
    look: LookUps,
    brush: Option<Brush<'p>>,
    links: Option<Hyperlinks>,
    /// The places of names, if they are asked for.
    pub dired: Option<Dired>,
    /// The widths of the columns of the current directory.
    pub widths: Widths,
    /// The path before the names of the current directory, in forms with paths.
    prefix: Vec<u8>,
}

/// The last part of a path.
fn last_part(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(path.len(), |last| last + 1);
    let begin = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    &path[begin..end]
}

/// The indicator character of a kind. None if the kind is unknown or has no character.
fn class(kind: Option<FileKind>, mode: u32, indicators: Indicators) -> Option<u8> {
    let (letter, from) = match kind? {
        FileKind::Directory => (b'/', Indicators::Slash),
        FileKind::Symlink => (b'@', Indicators::FileType),
        FileKind::Fifo => (b'|', Indicators::FileType),
        FileKind::Socket => (b'=', Indicators::FileType),
        FileKind::File if mode & 0o111 != 0 => (b'*', Indicators::Classify),
        _ => return None,
    };
    (indicators >= from).then_some(letter)
}

/// A name that was written.
#[derive(Clone, Copy)]
struct Text {
    /// Its number of columns.
    width: usize,
    bytes: usize,
    /// The number of spaces before it, which are part of these columns.
    indent: usize,
    /// Whether a colour ended with it, and the number of bytes of sequences.
    coloured: bool,
    after: usize,
}

impl<'p> Rows<'p> {
    /// A renderer for this plan.
    pub fn new(plan: &'p Plan) -> Self {
        let brush = plan.colours.as_ref().map(|palette| Brush::new(palette, plan.form == Form::Columns));
        let look =
            LookUps { owners: Owners::new(), clock: Clock::new(plan.time_style.clone()), written: Written::default() };
        let links = plan.hyperlink.then(Hyperlinks::new);
        let dired = plan.dired.then(Dired::default);
        Self { plan, look, brush, links, dired, widths: Widths::default(), prefix: Vec::new() }
    }

    /// Begins the directory with this path; None for the arguments.
    pub fn begin(&mut self, path: Option<&[u8]>) {
        self.widths = Widths::default();
        self.prefix.clear();
        if let Some(brush) = &mut self.brush {
            brush.hard_links = path.is_none() || self.plan.wants_files();
        }
        if let Some(path) = path {
            self.prefix.extend_from_slice(path);
            if path.last() != Some(&b'/') {
                self.prefix.push(b'/');
            }
        }
    }

    /// Widens the columns for an entry.
    #[inline]
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

    /// Appends an entry as one or more lines.
    pub fn write(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        let plan = self.plan;
        self.begin_text(out);
        // The column of the name, as ls counts it to clear lines: without the numbers before it.
        let mut column = 0;
        match plan.form {
            Form::Long => column = self.widths.write(entry, plan, &mut self.look, out),
            Form::Lines | Form::Columns => {
                self.widths.write_frills(entry, plan, out);
                if plan.paths {
                    out.extend_from_slice(&self.prefix);
                }
            }
            Form::Json | Form::Csv => return self.write_machine(entry, out),
        }
        let name = self.write_name(entry, out);
        self.note_name(name, out.len());
        self.clear_after(column, name, out);
        self.write_class(entry, out);
        if plan.form == Form::Long {
            self.write_target(entry, column + name.bytes, out);
        }
        out.push(plan.screen.eol);
        if plan.xattr.is_some() {
            self.write_xattrs(entry, out);
        }
    }

    /// Adds an entry to columns.
    pub fn write_cell(&mut self, entry: &Entry<'_>, cells: &mut Cells) {
        self.begin_text(cells.text());
        let frills = self.widths.write_frills(entry, self.plan, cells.text());
        let name = self.write_name(entry, cells.text());
        let class = self.write_class(entry, cells.text());
        let width = frills + name.width + class;
        let first = self.brush.as_mut().and_then(Brush::take_first);
        if name.coloured { cells.end_coloured(width, name.bytes, class, first) } else { cells.end(width) }
    }

    /// Records the place of a name that was just written.
    fn note_name(&mut self, name: Text, end: usize) {
        if let Some(dired) = &mut self.dired {
            let from = end - name.after - name.bytes + name.indent;
            let uncounted = self.brush.as_ref().map_or(0, |brush| brush.written) - name.after as u64;
            dired.add_name(from, end - name.after, uncounted);
        }
    }

    fn begin_text(&mut self, out: &mut Vec<u8>) {
        if let Some(brush) = &mut self.brush {
            brush.begin_text(out);
        }
    }

    /// Writes the name and the numbers before it.
    fn write_name(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) -> Text {
        let quote = self.plan.quote;
        let indented = self.widths.quotes && self.plan.aligns_quotes() && !quote.needs_quotes(entry.name);
        spaces(usize::from(indented), out);
        let painted = self.brush.as_mut().map(|brush| brush.begin_name(entry, out));
        let path = self.links.as_ref().and_then(|_| self.absolute(entry));
        let unlinked_quotes = self.widths.quotes && self.plan.aligns_quotes() && !indented;
        let text = self.write_painted(entry.name, painted, path.as_deref().map(|path| (path, unlinked_quotes)), out);
        let indent = usize::from(indented);
        Text { width: text.width + indent, bytes: text.bytes + indent, indent, ..text }
    }

    /// The path that a link to an entry leads to.
    fn absolute(&self, entry: &Entry<'_>) -> Option<std::path::PathBuf> {
        let path = [&self.prefix, entry.name].concat();
        hyperlink::canonical(Path::new(OsStr::from_bytes(&path))).ok()
    }

    /// Writes a text in its colour, and as a link to a path, perhaps without the quotes.
    fn write_painted(
        &mut self,
        text: &[u8],
        painted: Option<Painted>,
        link: Option<(&Path, bool)>,
        out: &mut Vec<u8>,
    ) -> Text {
        let begin = out.len();
        let width = self.plan.quote.write(text, out);
        let bytes = out.len() - begin;
        if let (Some((path, unlinked_quotes)), Some(links)) = (link, &self.links) {
            let quoted = out.split_off(begin);
            let quotes = usize::from(unlinked_quotes);
            out.extend_from_slice(&quoted[..quotes]);
            links.begin(path, out);
            out.extend_from_slice(&quoted[quotes..bytes - quotes]);
            out.extend_from_slice(hyperlink::END);
            out.extend_from_slice(&quoted[bytes - quotes..]);
        }
        let end = out.len();
        let coloured = match (&mut self.brush, painted) {
            (Some(brush), Some(painted)) => brush.end(painted, out),
            _ => false,
        };
        Text { width, bytes, indent: 0, coloured, after: out.len() - end }
    }

    /// Appends the name of a directory as a header.
    pub fn write_directory(&mut self, path: &[u8], out: &mut Vec<u8>) {
        if self.dired.is_some() {
            out.extend_from_slice(INDENT);
        }
        let absolute = self.links.as_ref().and_then(|_| hyperlink::canonical(Path::new(OsStr::from_bytes(path))).ok());
        if let (Some(links), Some(absolute)) = (&self.links, &absolute) {
            links.begin(absolute, out);
        }
        let begin = out.len();
        self.plan.header_quote().write(path, out);
        if let Some(dired) = &mut self.dired {
            dired.add_directory(begin, out.len(), self.brush.as_ref().map_or(0, |brush| brush.written));
        }
        if absolute.is_some() {
            out.extend_from_slice(hyperlink::END);
        }
        out.extend_from_slice(b":\n");
    }

    fn clear_after(&mut self, column: usize, text: Text, out: &mut Vec<u8>) {
        if text.coloured && self.plan.screen.is_left_by(column, text.bytes) {
            out.extend_from_slice(self.plan.clear());
            if let Some(brush) = &mut self.brush {
                brush.written += self.plan.clear().len() as u64;
            }
        }
    }

    /// Appends the indicator character of an entry. Returns its width.
    fn write_class(&self, entry: &Entry<'_>, out: &mut Vec<u8>) -> usize {
        // In the long format, a link shows the indicator of its target instead.
        let linked = self.plan.form == Form::Long && entry.kind == Some(FileKind::Symlink);
        let mode = entry.attr().map_or(0, |attr| attr.mode);
        let class = class(entry.kind, mode, self.plan.indicators).filter(|_| !linked);
        out.extend(class);
        usize::from(class.is_some())
    }

    /// Appends the target of a link. The link's name ends in this column.
    fn write_target(&mut self, entry: &Entry<'_>, column: usize, out: &mut Vec<u8>) {
        const ARROW: &[u8] = b" -> ";
        let Some(target) = entry.target else { return };
        out.extend_from_slice(ARROW);
        let painted = self.brush.as_mut().map(|brush| brush.begin_target(entry, out));
        let path = self.links.as_ref().and_then(|_| self.absolute(entry));
        let unlinked_quotes = self.widths.quotes && self.plan.aligns_quotes() && self.plan.quote.needs_quotes(target);
        let text = self.write_painted(target, painted, path.as_deref().map(|path| (path, unlinked_quotes)), out);
        self.clear_after(column + ARROW.len(), text, out);
        if let LinkEnd::Mode(mode) = entry.link_end
            && let Some(class) = class(FileKind::from_mode(mode), mode, self.plan.indicators)
        {
            out.push(class);
        }
    }

    /// Writes extended attributes. Names and values are always quoted, because a value can hold any
    /// bytes.
    fn write_xattrs(&self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        let quote: Quote = self.plan.shell_quote();
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
        let (shown, owners) = (self.shown(), &mut self.look.owners);
        if self.plan.form == Form::Json {
            json::write(entry, &self.prefix, name, shown, owners, out);
        } else {
            csv::write(entry, &self.prefix, name, shown, owners, out);
        }
        self.prefix.truncate(begin);
    }

    /// The parts that JSON and CSV show.
    fn shown(&self) -> Shown {
        Shown { long: self.plan.long, xattrs: self.plan.xattr.is_some() }
    }

    /// Appends the text before all entries.
    pub fn write_header(&self, out: &mut Vec<u8>) {
        if self.plan.form == Form::Csv {
            csv::write_header(self.shown(), out);
        }
    }

    /// Appends the text after all entries.
    pub fn write_end(&self, out: &mut Vec<u8>) {
        if let Some(brush) = &self.brush {
            brush.finish(out);
        }
        if let Some(dired) = &self.dired {
            dired.write(self.plan, out);
        }
    }

    /// Appends a line about a directory that could not be opened, or not be read to its end, in
    /// forms that have one.
    pub fn write_failure(&self, path: &[u8], operation: &str, errno: i32, out: &mut Vec<u8>) {
        match self.plan.form {
            Form::Json => json::write_failure(path, operation, errno, out),
            Form::Csv => csv::write_failure(path, operation, errno, self.shown(), out),
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
