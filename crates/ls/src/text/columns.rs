//! Columns, filled downwards or across, each as wide as its widest entry, and as many as fit into
//! the line. Also lines of entries separated by commas.

use crate::text::human::spaces;

/// The space between columns.
const GAP: usize = 2;
/// A character and the gap.
const MIN_COLUMN: usize = 3;

/// The place of the next entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Below, in the same column.
    Down,
    /// In the next column.
    Across,
    /// After a comma.
    Commas,
}

/// The width of the screen.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    /// Columns of the screen; 0 is no limit.
    pub width: usize,
    /// The distance of tab stops; 0 if gaps are filled with spaces only. (A tab would extend the
    /// colour of a background.)
    pub tab: usize,
    pub layout: Layout,
    /// The end of a line.
    pub eol: u8,
}

/// Parses a width as ls does: decimal, octal or hexadecimal. A number that is too large means no
/// limit.
///
/// # Errors
/// It is not a number.
pub fn parse_width(text: &str) -> Result<usize, String> {
    parse_number(text, "a width is a number").map(|width| width.unwrap_or(0))
}

/// Parses the distance of tab stops, likewise. A number that is too large is an error.
///
/// # Errors
/// It is not a number that fits.
pub fn parse_tab(text: &str) -> Result<usize, String> {
    const NUMBER: &str = "the distance of tab stops is a number";
    parse_number(text, NUMBER)?.ok_or_else(|| NUMBER.to_owned())
}

/// A number; None if it is too large.
fn parse_number(text: &str, error: &str) -> Result<Option<usize>, String> {
    let digits = text.trim_start();
    let digits = digits.strip_prefix('+').unwrap_or(digits);
    let (digits, radix) = match digits.strip_prefix('0') {
        Some(rest) if rest.starts_with(['x', 'X']) => (&rest[1..], 16),
        Some(octal) if !octal.is_empty() => (octal, 8),
        _ => (digits, 10),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(error.to_owned());
    }
    Ok(usize::from_str_radix(digits, radix).ok().filter(|&number| number <= isize::MAX as usize))
}

impl Screen {
    /// Whether something may wrap at the edge of the screen. ls decides that by the number of
    /// bytes.
    pub fn is_left_by(self, column: usize, bytes: usize) -> bool {
        self.width != 0 && bytes != 0 && column / self.width != (column + bytes - 1) / self.width
    }
}

/// An entry that waits for the layout.
#[derive(Debug)]
struct Cell {
    /// The end of its text.
    end: usize,
    /// Its number of columns.
    width: usize,
    /// The bytes of its name if that is coloured, and the bytes after the colour.
    name: u32,
    tail: u32,
    /// Where its first colour begins in the text of all entries.
    sequence: Option<usize>,
}

/// Entries that wait for the layout.
#[derive(Debug, Default)]
pub struct Cells {
    text: Vec<u8>,
    cells: Vec<Cell>,
    /// The sequence before the first printed colour. The entry that is printed first may not be the
    /// first one in the buffer.
    reset: Vec<u8>,
}

impl Cells {
    /// Ends earlier colours with `reset` before the first colour.
    pub fn new(reset: &[u8]) -> Self {
        Self { reset: reset.to_vec(), ..Self::default() }
    }

    /// The buffer for the text of the next entry; [`Cells::end`] ends it.
    pub fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// Ends an entry that takes `width` columns.
    pub fn end(&mut self, width: usize) {
        self.end_coloured(width, 0, 0, None);
    }

    /// Ends an entry with a coloured name: the bytes of the name, the bytes after the colour, and
    /// where in the text its first colour begins.
    pub fn end_coloured(&mut self, width: usize, name: usize, tail: usize, sequence: Option<usize>) {
        self.cells.push(Cell { end: self.text.len(), width, name: name as u32, tail: tail as u32, sequence });
    }

    /// The number of waiting entries.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Prints an entry without its tail. Returns the tail.
    fn put(&mut self, index: usize, out: &mut Vec<u8>) -> &[u8] {
        let cell = &self.cells[index];
        let mut begin = if index == 0 { 0 } else { self.cells[index - 1].end };
        if let Some(sequence) = cell.sequence {
            out.extend_from_slice(&self.text[begin..sequence]);
            out.append(&mut self.reset);
            begin = sequence;
        }
        let (text, tail) = self.text[begin..cell.end].split_at(cell.end - begin - cell.tail as usize);
        out.extend_from_slice(text);
        tail
    }

    /// Lays out the waiting entries, and removes them. `clear` follows coloured names that may have
    /// wrapped.
    pub fn flush(&mut self, screen: Screen, clear: &[u8], out: &mut Vec<u8>) {
        if self.cells.is_empty() {
            return;
        }
        match screen.layout {
            Layout::Commas => self.flush_separated(b',', screen, clear, out),
            _ if screen.width == 0 => self.flush_separated(b' ', screen, clear, out),
            Layout::Down => self.flush_down(screen, clear, out),
            Layout::Across => self.flush_across(screen, clear, out),
        }
        self.text.clear();
        self.cells.clear();
    }

    /// Prints an entry that begins in this column of the screen.
    fn put_at(&mut self, index: usize, at: usize, screen: Screen, clear: &[u8], out: &mut Vec<u8>) {
        let name = self.cells[index].name as usize;
        let tail = self.put(index, out);
        if screen.is_left_by(at, name) {
            out.extend_from_slice(clear);
        }
        out.extend_from_slice(tail);
    }

    fn flush_down(&mut self, screen: Screen, clear: &[u8], out: &mut Vec<u8>) {
        let widths = self.widths(screen);
        let count = self.cells.len();
        let rows = count.div_ceil(widths.len());
        for row in 0..rows {
            let mut at = 0;
            for (column, index) in (row..count).step_by(rows).enumerate() {
                self.put_at(index, at, screen, clear, out);
                if index + rows < count {
                    indent(at + self.cells[index].width, at + widths[column], screen.tab, out);
                    at += widths[column];
                }
            }
            out.push(screen.eol);
        }
    }

    fn flush_across(&mut self, screen: Screen, clear: &[u8], out: &mut Vec<u8>) {
        let widths = self.widths(screen);
        let mut at = 0;
        for index in 0..self.cells.len() {
            let column = index % widths.len();
            if column > 0 {
                indent(at + self.cells[index - 1].width, at + widths[column - 1], screen.tab, out);
                at += widths[column - 1];
            } else if index > 0 {
                out.push(screen.eol);
                at = 0;
            }
            self.put_at(index, at, screen, clear, out);
        }
        out.push(screen.eol);
    }

    /// Puts as many entries into a line as fit, with a character and a space after each.
    fn flush_separated(&mut self, separator: u8, screen: Screen, clear: &[u8], out: &mut Vec<u8>) {
        let mut at = 0;
        for index in 0..self.cells.len() {
            let width = if screen.width == 0 { 0 } else { self.cells[index].width };
            if index > 0 {
                let fits = screen.width == 0 || at + width + GAP < screen.width;
                at = if fits { at + GAP } else { 0 };
                out.extend_from_slice(&[separator, if fits { b' ' } else { screen.eol }]);
            }
            self.put_at(index, at, screen, clear, out);
            at += width;
        }
        out.push(screen.eol);
    }

    /// The widths of the largest number of columns that fit.
    fn widths(&self, screen: Screen) -> Vec<usize> {
        let count = self.cells.len();
        let mut columns = count.min(screen.width.div_ceil(MIN_COLUMN));
        while columns > 1 {
            // With as many rows, further columns would stay empty. They would only take space.
            let used = match screen.layout {
                Layout::Across => columns,
                _ => count.div_ceil(count.div_ceil(columns)),
            };
            if let Some(widths) = self.widths_of(used, screen) {
                return widths;
            }
            columns = used - 1;
        }
        vec![0]
    }

    /// The widths of this number of columns, if they fit.
    fn widths_of(&self, columns: usize, screen: Screen) -> Option<Vec<usize>> {
        let rows = self.cells.len().div_ceil(columns);
        let mut widths = vec![MIN_COLUMN; columns];
        let mut line = MIN_COLUMN * columns;
        for (index, cell) in self.cells.iter().enumerate() {
            let column = if screen.layout == Layout::Across { index % columns } else { index / rows };
            let wanted = cell.width + if column + 1 == columns { 0 } else { GAP };
            if wanted > widths[column] {
                line += wanted - widths[column];
                widths[column] = wanted;
                if line >= screen.width {
                    return None;
                }
            }
        }
        // As in ls, columns of the least width always fit.
        Some(widths)
    }
}

/// Moves from one column of the screen to another.
fn indent(mut from: usize, to: usize, tab: usize, out: &mut Vec<u8>) {
    while from < to {
        if tab != 0 && to / tab > (from + 1) / tab {
            out.push(b'\t');
            from += tab - from % tab;
        } else {
            let stop = if tab != 0 { from + 1 } else { to };
            spaces(stop - from, out);
            from = stop;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laid_out(names: &[&str], width: usize, tab: usize) -> String {
        let mut cells = Cells::default();
        for name in names {
            cells.text().extend_from_slice(name.as_bytes());
            cells.end(name.len());
        }
        let mut out = Vec::new();
        cells.flush(Screen { width, tab, layout: Layout::Down, eol: b'\n' }, b"", &mut out);
        assert_eq!(cells.len(), 0);
        String::from_utf8(out).unwrap()
    }

    /// The expected layouts are the output of GNU ls 9.1 -C -w.
    #[test]
    fn columns_are_laid_out_as_by_gnu_ls() {
        let names = ["a", "bb", "ccc", "dddd", "eeeee", "ffffff", "g"];
        assert_eq!(laid_out(&names, 80, 0), "a  bb  ccc  dddd  eeeee  ffffff  g\n");
        assert_eq!(laid_out(&names, 20, 0), "a    dddd    g\nbb   eeeee\nccc  ffffff\n");
        assert_eq!(laid_out(&names, 20, 8), "a    dddd    g\nbb   eeeee\nccc  ffffff\n");
        assert_eq!(laid_out(&names, 1, 0), "a\nbb\nccc\ndddd\neeeee\nffffff\ng\n");
        assert_eq!(laid_out(&[], 80, 0), "");
        assert_eq!(laid_out(&["one"], 2, 0), "one\n");
        assert_eq!(laid_out(&names, 0, 0), "a  bb  ccc  dddd  eeeee  ffffff  g\n");
    }

    #[test]
    fn gaps_are_filled_with_tabs_where_they_reach_a_stop() {
        let text = laid_out(&["a", "long-long-name", "b", "c"], 20, 8);
        assert_eq!(text, "a\t\tb\nlong-long-name\tc\n");
    }
}
