//! Names as text: unchanged, or quoted so that a shell, a C compiler or a person can read them
//! back.
//!
//! The styles are those of GNU ls. `shell-escape`, its style on a terminal, adds nothing to plain
//! names. It uses single quotes for characters that are special to a shell, double quotes if the
//! only such character is an apostrophe, and `$'\n'` for characters that cannot be printed.

use std::{os::unix::ffi::OsStrExt, path::Path};

use crate::characters::{Piece, Pieces, is_printable_ascii, width};

/// A quoting style.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quoting {
    /// Unchanged.
    Literal,
    /// Quoted for a shell if needed.
    Shell,
    /// Always quoted for a shell.
    ShellAlways,
    /// Quoted for a shell if needed, with escapes for unprintable characters.
    ShellEscape,
    /// The same, but always quoted.
    ShellEscapeAlways,
    /// A string of C.
    C,
    /// A string of C if quotes are needed.
    CMaybe,
    /// With the escapes of C and without quotes.
    Escape,
    /// With the escapes of C, in the quotes of the locale.
    Locale,
    /// The same, with double quotes if the locale has no quotes of its own.
    Clocale,
}

impl Quoting {
    /// The words for the styles, as in `--quoting-style`.
    pub const WORDS: [(&str, Self); 10] = [
        ("literal", Self::Literal),
        ("shell", Self::Shell),
        ("shell-always", Self::ShellAlways),
        ("shell-escape", Self::ShellEscape),
        ("shell-escape-always", Self::ShellEscapeAlways),
        ("c", Self::C),
        ("c-maybe", Self::CMaybe),
        ("escape", Self::Escape),
        ("locale", Self::Locale),
        ("clocale", Self::Clocale),
    ];
}

/// How names are written.
#[derive(Debug, Clone, Copy)]
pub struct Quote {
    /// The style.
    pub style: Quoting,
    /// Whether characters beyond ASCII are UTF-8 and may be printable.
    pub utf8: bool,
    /// Whether a question mark replaces unprintable characters in styles without escapes.
    pub hide: bool,
    /// Characters that are quoted although the style does not require it.
    pub marks: &'static [u8],
}

/// Bytes that are never part of shell syntax. Each is one column wide.
const PLAIN: [bool; 256] = {
    let (mut plain, mut byte) = ([false; 256], 0);
    while byte < 256 {
        plain[byte] = (byte as u8).is_ascii_alphanumeric()
            || matches!(byte as u8, b'%' | b'+' | b',' | b'-' | b'.' | b'/' | b':' | b']' | b'_');
        byte += 1;
    }
    plain
};

fn is_plain(name: &[u8]) -> bool {
    name.iter().all(|&byte| PLAIN[usize::from(byte)]) && !name.is_empty()
}

/// The quotes that a name needs for a shell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Nothing,
    /// The name has an apostrophe, and nothing that is special within double quotes.
    DoubleQuotes,
    SingleQuotes,
}

impl Quote {
    /// A style for UTF-8 that hides nothing and quotes no other characters.
    pub const fn new(style: Quoting) -> Self {
        Self { style, utf8: true, hide: false, marks: b"" }
    }

    fn pieces(self, name: &[u8]) -> Pieces<'_> {
        Pieces::new(name, self.utf8)
    }

    /// Whether the style quotes some names and not others.
    pub fn quotes_some(self) -> bool {
        matches!(self.style, Quoting::Shell | Quoting::ShellEscape | Quoting::CMaybe)
    }

    /// Whether a name gets quotes.
    pub fn needs_quotes(self, name: &[u8]) -> bool {
        match self.style {
            Quoting::Literal | Quoting::Escape => false,
            Quoting::Shell | Quoting::ShellEscape => self.need(name) != Need::Nothing,
            Quoting::CMaybe => self.needs_c(name),
            _ => true,
        }
    }

    fn needs_c(self, name: &[u8]) -> bool {
        let special = |byte: &u8| *byte == b'"' || self.marks.contains(byte);
        name.iter().any(special)
            || !is_printable_ascii(name) && self.pieces(name).any(|piece| matches!(piece, Piece::Unprintable(..)))
    }

    fn need(self, name: &[u8]) -> Need {
        if is_plain(name) && self.marks.is_empty() {
            return Need::Nothing;
        }
        let escapes = matches!(self.style, Quoting::ShellEscape | Quoting::ShellEscapeAlways);
        // Double quotes are used only for apostrophes.
        let single_if_any = !name.contains(&b'\'');
        let (mut special, mut apostrophe, mut only_plain) = (name.is_empty(), false, true);
        let mut first = true;
        for piece in self.pieces(name) {
            if special && single_if_any {
                break;
            }
            match piece {
                Piece::Unprintable(bytes, _) => {
                    special |= escapes || matches!(bytes, b"\n" | b"\r" | b"\t");
                    only_plain = false;
                }
                Piece::Printable([byte], _) => match byte {
                    b'\'' => (special, apostrophe) = (true, true),
                    b' ' => special = true,
                    // Special only at the start. Elsewhere they still rule out double quotes.
                    b'#' | b'~' if first => special = true,
                    b'{' | b'}' if name.len() == 1 => special = true,
                    b'#' | b'~' | b'{' | b'}' => only_plain = false,
                    b'!' | b'"' | b'$' | b'&' | b'(' | b')' | b'*' | b';' | b'<' | b'=' | b'>' | b'[' | b'^' | b'`'
                    | b'|' | b'?' | b'\\' => (special, only_plain) = (true, false),
                    _ => {}
                },
                Piece::Printable(..) => {}
            }
            if let Piece::Printable([byte], _) = piece {
                special |= self.marks.contains(byte);
            }
            first = false;
        }
        match (special, apostrophe && only_plain) {
            (false, _) => Need::Nothing,
            (true, true) => Need::DoubleQuotes,
            (true, false) => Need::SingleQuotes,
        }
    }

    /// Appends a name. Returns its number of columns.
    pub fn write(self, name: &[u8], out: &mut Vec<u8>) -> usize {
        let begin = out.len();
        let hides = match self.style {
            Quoting::Literal => return self.write_literal(name, out),
            Quoting::Shell | Quoting::ShellEscape if is_plain(name) && self.marks.is_empty() => {
                out.extend_from_slice(name);
                return name.len();
            }
            Quoting::Shell | Quoting::ShellAlways => {
                self.write_for_shell(name, out);
                self.hide
            }
            Quoting::ShellEscape | Quoting::ShellEscapeAlways => {
                self.write_for_shell(name, out);
                false
            }
            style => {
                self.write_for_c(style, name, out);
                false
            }
        };
        if hides && !is_printable_ascii(&out[begin..]) {
            let quoted = out.split_off(begin);
            return self.write_literal(&quoted, out);
        }
        self.width(&out[begin..])
    }

    /// The number of columns of an unchanged text.
    pub fn width(self, text: &[u8]) -> usize {
        width(text, self.utf8)
    }

    fn write_literal(self, name: &[u8], out: &mut Vec<u8>) -> usize {
        if !self.hide || is_printable_ascii(name) {
            out.extend_from_slice(name);
            return self.width(name);
        }
        let mut columns = 0;
        for piece in self.pieces(name) {
            let (bytes, width) = match piece {
                Piece::Printable(bytes, width) => (bytes, width),
                Piece::Unprintable(..) => (&b"?"[..], 1),
            };
            out.extend_from_slice(bytes);
            columns += width;
        }
        columns
    }

    fn write_for_shell(self, name: &[u8], out: &mut Vec<u8>) {
        let always = matches!(self.style, Quoting::ShellAlways | Quoting::ShellEscapeAlways);
        match self.need(name) {
            Need::Nothing if !always => out.extend_from_slice(name),
            Need::DoubleQuotes => {
                // If a mark is the reason for the quotes, the quotes are enough for it.
                let marks = if always { self.marks } else { b"" };
                write_escaped(self.pieces(name), (b"\"", b"\""), marks, out);
            }
            Need::Nothing | Need::SingleQuotes => self.write_single(name, out),
        }
    }

    fn write_single(self, name: &[u8], out: &mut Vec<u8>) {
        out.push(b'\'');
        if is_printable_ascii(name) && !name.contains(&b'\'') {
            out.extend_from_slice(name);
            return out.push(b'\'');
        }
        let escapes = matches!(self.style, Quoting::ShellEscape | Quoting::ShellEscapeAlways);
        // ls scans a name with an apostrophe twice. The second scan begins in the state in which
        // the first one ended.
        let ends_escaping = || self.pieces(name).last().is_some_and(|last| matches!(last, Piece::Unprintable(..)));
        let mut escaping = escapes && name.contains(&b'\'') && ends_escaping();
        for piece in self.pieces(name) {
            match piece {
                Piece::Unprintable(bytes, _) if escapes => {
                    for &byte in bytes {
                        if !std::mem::replace(&mut escaping, true) {
                            out.extend_from_slice(b"'$'");
                        }
                        write_escape(byte, out);
                    }
                    continue;
                }
                // An apostrophe ends the quotes of an escape as it ends those of plain text.
                Piece::Printable(b"'", _) => {
                    escaping = false;
                    out.extend_from_slice(b"'\\''");
                }
                Piece::Unprintable(bytes, _) | Piece::Printable(bytes, _) => {
                    if std::mem::take(&mut escaping) {
                        out.extend_from_slice(b"''");
                    }
                    out.extend_from_slice(bytes);
                }
            }
        }
        out.push(b'\'');
    }

    fn write_for_c(self, style: Quoting, name: &[u8], out: &mut Vec<u8>) {
        let (quotes, marks): ((&[u8], &[u8]), _) = match style {
            Quoting::CMaybe if !self.needs_c(name) => return out.extend_from_slice(name),
            Quoting::CMaybe => ((b"\"", b"\""), &b""[..]),
            Quoting::Escape => ((b"", b""), self.marks),
            Quoting::Locale | Quoting::Clocale if self.utf8 => {
                (("\u{2018}".as_bytes(), "\u{2019}".as_bytes()), self.marks)
            }
            Quoting::Locale => ((b"'", b"'"), self.marks),
            _ => ((b"\"", b"\""), self.marks),
        };
        write_escaped(self.pieces(name), quotes, marks, out);
    }
}

/// Writes a text between quotes. Marks, backslashes and the closing quote get a backslash.
fn write_escaped(pieces: Pieces<'_>, (left, right): (&[u8], &[u8]), marks: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(left);
    for piece in pieces {
        match piece {
            Piece::Unprintable(bytes, _) => bytes.iter().for_each(|&byte| write_escape(byte, out)),
            Piece::Printable(bytes, _) => {
                if bytes == right || bytes == b"\\" || matches!(bytes, [byte] if marks.contains(byte)) {
                    out.push(b'\\');
                }
                out.extend_from_slice(bytes);
            }
        }
    }
    out.extend_from_slice(right);
}

fn write_escape(byte: u8, out: &mut Vec<u8>) {
    let letter = match byte {
        0x07 => b'a',
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0b => b'v',
        0x0c => b'f',
        b'\r' => b'r',
        _ => {
            out.extend_from_slice(&[b'\\', b'0' + (byte >> 6), b'0' + (byte >> 3 & 7), b'0' + (byte & 7)]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', letter]);
}

/// A name for a message, always quoted.
pub fn in_message(name: &[u8]) -> String {
    quoted(name, Quoting::ShellEscapeAlways)
}

/// A path that can be copied into a shell, for messages that propose a command.
pub fn for_shell(path: &Path) -> String {
    quoted(path.as_os_str().as_bytes(), Quoting::ShellEscape)
}

fn quoted(name: &[u8], style: Quoting) -> String {
    let mut text = Vec::new();
    Quote::new(style).write(name, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &[u8], utf8: bool) -> (String, usize) {
        let mut out = Vec::new();
        let width = Quote { utf8, ..Quote::new(Quoting::ShellEscape) }.write(name, &mut out);
        (String::from_utf8(out).unwrap(), width)
    }

    /// The expected bytes are the output of GNU ls 9.1 --quoting-style=shell-escape.
    #[test]
    fn names_are_quoted_as_by_gnu_ls() {
        for (name, utf8, text, width) in [
            (&b"plain.txt"[..], true, "plain.txt", 9),
            (b"a b", true, "'a b'", 5),
            (b"it's", true, "\"it's\"", 6),
            (b"\n'x", true, "''$'\\n'\\''x'", 12),
            (b"a\n'\n", true, "'''a'$'\\n'\\'''$'\\n'", 19),
            (b"it's $1", true, "'it'\\''s $1'", 12),
            (b"a\nb", true, "'a'$'\\n''b'", 11),
            (b"\n", true, "''$'\\n'", 7),
            (b"end\t", true, "'end'$'\\t'", 10),
            (b"~", true, "'~'", 3),
            (b"a~", true, "a~", 2),
            (b"#a", true, "'#a'", 4),
            (b"{", true, "'{'", 3),
            (b"{a", true, "{a", 2),
            ("gr\u{fc}n".as_bytes(), true, "gr\u{fc}n", 4),
            ("gr\u{fc}n".as_bytes(), false, "'gr'$'\\303\\274''n'", 18),
            (b"\xff\xfe", true, "''$'\\377\\376'", 13),
            ("\u{6f22} \u{5b57}".as_bytes(), true, "'\u{6f22} \u{5b57}'", 7),
            (b"\x1b[0m", true, "''$'\\033''[0m'", 14),
        ] {
            assert_eq!(shown(name, utf8), (text.to_owned(), width), "{}", name.escape_ascii());
        }
    }

    /// Each byte among others.
    #[test]
    fn always_quoted_names_use_single_quotes_except_for_apostrophes() {
        let always = Quote::new(Quoting::ShellEscapeAlways);
        for byte in 0..=0xff_u8 {
            let (name, mut out) = ([b'a', byte, b'z'], Vec::new());
            let width = always.write(&name, &mut out);
            let expected = match byte {
                b'\'' => b"\"a'z\"".to_vec(),
                b' '..=b'~' => [b"'".as_slice(), &name, b"'"].concat(),
                _ => {
                    let mut escaped = b"'a'$'".to_vec();
                    write_escape(byte, &mut escaped);
                    [&escaped, b"''z'".as_slice()].concat()
                }
            };
            assert_eq!((out.escape_ascii().to_string(), width), (expected.escape_ascii().to_string(), expected.len()));
        }
        let mut out = Vec::new();
        assert_eq!((always.write(b"", &mut out), out), (2, b"''".to_vec()));
    }

    #[test]
    fn hidden_characters_are_question_marks() {
        let quote = Quote { hide: true, ..Quote::new(Quoting::Literal) };
        let mut out = Vec::new();
        assert_eq!(quote.write(b"a\nb\xff\xc3\xbc", &mut out), 5);
        assert_eq!(out, b"a?b?\xc3\xbc");
    }
}
