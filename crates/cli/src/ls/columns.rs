//! Columns, filled one after the other, each as wide as its widest entry: as many as fit into the line.

use super::human::spaces;

/// The space between columns.
const GAP: usize = 2;
/// One character and the gap.
const MIN_COLUMN: usize = 3;
const TAB: usize = 8;

/// How wide the screen is.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    /// Columns of the screen; 0 is no limit.
    pub width: usize,
    /// Whether gaps may be filled with tabs. (A tab would take the colour of a background with it.)
    pub tabs: bool,
    /// What ends a line.
    pub eol: u8,
}

/// Reads a width as ls does: decimal, octal or hexadecimal. What is too large is no limit.
///
/// # Errors
/// It is no number.
pub fn parse_width(text: &str) -> Result<usize, String> {
    let digits = text.trim_start();
    let digits = digits.strip_prefix('+').unwrap_or(digits);
    let (digits, radix) = match digits.strip_prefix('0') {
        Some(rest) if rest.starts_with(['x', 'X']) => (&rest[1..], 16),
        Some(octal) if !octal.is_empty() => (octal, 8),
        _ => (digits, 10),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err("a width is a number".to_owned());
    }
    Ok(usize::from_str_radix(digits, radix).unwrap_or(0))
}

impl Screen {
    /// Whether something may run over the edge of the screen: ls counts its bytes.
    pub fn is_left_by(self, column: usize, bytes: usize) -> bool {
        self.width != 0 && bytes != 0 && column / self.width != (column + bytes - 1) / self.width
    }
}

/// An entry waiting to be laid out.
#[derive(Debug)]
struct Cell {
    /// Where its text ends.
    end: usize,
    /// How many columns it takes.
    width: usize,
    /// Bytes of its name if that is coloured, and bytes behind the colour.
    name: u32,
    tail: u32,
    /// Where in the text of all its first colour begins.
    sequence: Option<usize>,
}

/// Entries waiting to be laid out.
#[derive(Debug, Default)]
pub struct Cells {
    text: Vec<u8>,
    cells: Vec<Cell>,
    /// What is to be written before the first colour that is printed: another one than the first that was made.
    reset: Vec<u8>,
}

impl Cells {
    /// Before the first colour, what colours there were ends with `reset`.
    pub fn new(reset: &[u8]) -> Self {
        Self { reset: reset.to_vec(), ..Self::default() }
    }

    /// Where the next entry's text is to be appended; [`Cells::end`] ends it.
    pub fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// Ends an entry, which takes `width` columns.
    pub fn end(&mut self, width: usize) {
        self.end_coloured(width, 0, 0, None);
    }

    /// Ends an entry with a coloured name of so many bytes, and so many bytes behind the colour. Its first colour begins there
    /// in the text.
    pub fn end_coloured(&mut self, width: usize, name: usize, tail: usize, sequence: Option<usize>) {
        self.cells.push(Cell { end: self.text.len(), width, name: name as u32, tail: tail as u32, sequence });
    }

    /// How many entries wait.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Prints an entry up to its tail, and answers that.
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

    /// Lays out what waits, and empties it. `clear` comes after coloured names that may have run over the edge.
    pub fn flush(&mut self, screen: Screen, clear: &[u8], out: &mut Vec<u8>) {
        if screen.width == 0 {
            return self.flush_line(screen, out);
        }
        let widths = self.widths(screen.width);
        let count = self.cells.len();
        let rows = count.div_ceil(widths.len().max(1));
        for row in 0..rows {
            let mut at = 0;
            for (column, index) in (row..count).step_by(rows).enumerate() {
                let Cell { width, name, .. } = self.cells[index];
                let tail = self.put(index, out);
                if screen.is_left_by(at, name as usize) {
                    out.extend_from_slice(clear);
                }
                out.extend_from_slice(tail);
                if index + rows < count {
                    indent(at + width, at + widths[column], screen.tabs, out);
                    at += widths[column];
                }
            }
            out.push(screen.eol);
        }
        self.text.clear();
        self.cells.clear();
    }

    /// All in one line.
    fn flush_line(&mut self, screen: Screen, out: &mut Vec<u8>) {
        for index in 0..self.cells.len() {
            let last = index + 1 == self.cells.len();
            let tail = self.put(index, out);
            out.extend_from_slice(tail);
            out.extend_from_slice(if last { std::slice::from_ref(&screen.eol) } else { b"  " });
        }
        self.text.clear();
        self.cells.clear();
    }

    /// The widths of the most columns that fit.
    fn widths(&self, screen: usize) -> Vec<usize> {
        let count = self.cells.len();
        let mut columns = count.min(screen.div_ceil(MIN_COLUMN));
        while columns > 1 {
            // More columns with as many rows would stay empty: they take room and change nothing else.
            let used = count.div_ceil(count.div_ceil(columns));
            if let Some(widths) = self.widths_of(used, screen) {
                return widths;
            }
            columns = used - 1;
        }
        vec![0]
    }

    /// The widths of this many columns, if they fit.
    fn widths_of(&self, columns: usize, screen: usize) -> Option<Vec<usize>> {
        let rows = self.cells.len().div_ceil(columns);
        let mut widths = vec![MIN_COLUMN; columns];
        let mut line = MIN_COLUMN * columns;
        for (column, cells) in self.cells.chunks(rows).enumerate() {
            let widest = cells.iter().map(|cell| cell.width).max().unwrap_or(0);
            let wanted = widest + if column + 1 == columns { 0 } else { GAP };
            if wanted > widths[column] {
                line += wanted - widths[column];
                widths[column] = wanted;
                if line >= screen {
                    return None;
                }
            }
        }
        // As in ls, columns that are all as narrow as can be always fit.
        Some(widths)
    }
}

/// Moves from one column of the screen to another.
fn indent(mut from: usize, to: usize, tabs: bool, out: &mut Vec<u8>) {
    while from < to {
        if tabs && to / TAB > (from + 1) / TAB {
            out.push(b'\t');
            from += TAB - from % TAB;
        } else {
            let stop = if tabs { from + 1 } else { to };
            spaces(stop - from, out);
            from = stop;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laid_out(names: &[&str], width: usize, tabs: bool) -> String {
        let mut cells = Cells::default();
        for name in names {
            cells.text().extend_from_slice(name.as_bytes());
            cells.end(name.len());
        }
        let mut out = Vec::new();
        cells.flush(Screen { width, tabs, eol: b'\n' }, b"", &mut out);
        assert_eq!(cells.len(), 0);
        String::from_utf8(out).unwrap()
    }

    /// Layouts seen from GNU ls 9.1 -C -w.
    #[test]
    fn columns_are_those_of_gnu_ls() {
        let names = ["a", "bb", "ccc", "dddd", "eeeee", "ffffff", "g"];
        assert_eq!(laid_out(&names, 80, false), "a  bb  ccc  dddd  eeeee  ffffff  g\n");
        assert_eq!(laid_out(&names, 20, false), "a    dddd    g\nbb   eeeee\nccc  ffffff\n");
        assert_eq!(laid_out(&names, 20, true), "a    dddd    g\nbb   eeeee\nccc  ffffff\n");
        assert_eq!(laid_out(&names, 1, false), "a\nbb\nccc\ndddd\neeeee\nffffff\ng\n");
        assert_eq!(laid_out(&[], 80, false), "");
        assert_eq!(laid_out(&["one"], 2, false), "one\n");
        assert_eq!(laid_out(&names, 0, false), "a  bb  ccc  dddd  eeeee  ffffff  g\n");
    }

    #[test]
    fn gaps_are_filled_with_tabs_where_they_reach_a_stop() {
        let text = laid_out(&["a", "long-long-name", "b", "c"], 20, true);
        assert_eq!(text, "a\t\tb\nlong-long-name\tc\n");
    }
}
