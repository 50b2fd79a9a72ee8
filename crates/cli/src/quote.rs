//! Names as they are shown: as they are, or quoted so that a shell reads them back.
//!
//! The quoted form is the one GNU ls uses on a terminal (style `shell-escape`): nothing where nothing is needed, single
//! quotes where the shell would see something special, double quotes if that is only an apostrophe, and `$'\n'` for
//! what cannot be printed.

use std::{os::unix::ffi::OsStrExt, path::Path};

use clap::ValueEnum;
use unicode_width::UnicodeWidthChar;

/// How names look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Quoting {
    /// As they are
    Literal,
    /// Quoted for a shell where that is needed
    ShellEscape,
    /// Quoted for a shell always
    ShellEscapeAlways,
}

/// How names are shown.
#[derive(Debug, Clone, Copy)]
pub struct Quote {
    /// The style.
    pub style: Quoting,
    /// Whether characters beyond ASCII are printable if they are UTF-8.
    pub utf8: bool,
    /// Whether a question mark stands for what cannot be printed (literal names on a terminal).
    pub hide: bool,
    /// Whether names with `@` are quoted: behind a name it says that it is a link's (-F).
    pub at: bool,
}

/// Whether the locale's characters are UTF-8, as the environment says.
pub fn locale_is_utf8() -> bool {
    let value = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .filter_map(std::env::var_os)
        .find(|value| !value.is_empty())
        .unwrap_or_default();
    is_utf8(&value.to_string_lossy())
}

/// Locales of UTF-8 whose names do not say so (`localedata/SUPPORTED` of glibc 2.36). Those with modifiers are there if
/// they differ from those without.
const UTF8_LOCALES: &str = "\
    aa_ER aa_ET agr_PE ak_GH am_ET anp_IN ar_IN ar_SS as_IN ayc_PE az_AZ az_IR be_BY@latin bem_ZM ber_DZ ber_MA \
    bho_IN bho_NP bi_VU bn_BD bn_IN bo_CN bo_IN brx_IN byn_ER ca_ES@valencia ce_RU chr_US ckb_IQ cmn_TW crh_UA \
    csb_PL cv_RU doi_IN dsb_DE dv_MV dz_BT en_AG en_IL en_IN en_NG en_ZM eo es_CU fa_IR ff_SN fil_PH fur_IT fy_DE \
    fy_NL gez_ER gez_ET gu_IN ha_NG hak_TW hi_IN hif_FJ hne_IN ht_HT hy_AM ia_FR ig_NG ik_CA iu_CA kab_DZ km_KH \
    kn_IN kok_IN ks_IN ky_KG lb_LU li_BE li_NL lij_IT ln_CD lo_LA lzh_TW mag_IN mai_IN mai_NP mfe_MU mhr_RU miq_NI \
    mjw_IN ml_IN mn_MN mni_IN mnw_MM mr_IN my_MM nan_TW nds_DE nds_NL ne_NP nhn_MX niu_NU niu_NZ nl_AW nr_ZA \
    nso_ZA om_ET or_IN os_RU pa_IN pa_PK pap_AW pap_CW ps_AF quz_PE raj_IN rif_MA rw_RW sa_IN sah_RU sat_IN sc_IT \
    sd_IN se_NO sgs_LT shn_MM shs_CA si_LK sid_ET sm_WS so_ET sq_MK sr_ME sr_RS ss_ZA sw_KE sw_TZ syr szl_PL ta_IN \
    ta_LK te_IN the_NP ti_ER ti_ET tig_ER tk_TM tn_ZA to_TO tpi_PG ts_ZA tt_RU ug_CN unm_US ur_IN ur_PK \
    uz_UZ@cyrillic ve_ZA vi_VN wae_CH wal_ET wo_SN yo_NG yue_HK yuw_PG";

/// `language_TERRITORY.codeset@modifier`
fn is_utf8(locale: &str) -> bool {
    let name = locale.split('@').next().unwrap_or_default();
    match name.split_once('.') {
        Some((_, codeset)) => ["utf-8", "utf8"].iter().any(|utf8| codeset.eq_ignore_ascii_case(utf8)),
        None => UTF8_LOCALES.split_ascii_whitespace().any(|known| known == name || known == locale),
    }
}

/// A character, or a byte that is none.
enum Piece<'a> {
    Printable(&'a [u8], usize),
    Unprintable(&'a [u8]),
}

/// Cuts a name into pieces.
struct Pieces<'a> {
    rest: &'a [u8],
    utf8: bool,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let (&first, _) = self.rest.split_first()?;
        let (len, width) = if first.is_ascii() {
            (1, (first == b' ' || first.is_ascii_graphic()).then_some(1))
        } else if self.utf8 {
            self.character()
        } else {
            (1, None)
        };
        let (piece, rest) = self.rest.split_at(len);
        self.rest = rest;
        Some(match width {
            Some(width) => Piece::Printable(piece, width),
            None => Piece::Unprintable(piece),
        })
    }
}

impl Pieces<'_> {
    /// Length and width of the character at the front, which is not ASCII.
    fn character(&self) -> (usize, Option<usize>) {
        let front = &self.rest[..self.rest.len().min(4)];
        let valid = match std::str::from_utf8(front) {
            Ok(text) => text,
            // What begins at the end of the name is one piece.
            Err(error) if error.valid_up_to() == 0 && error.error_len().is_none() => return (front.len(), None),
            Err(error) => std::str::from_utf8(&front[..error.valid_up_to()]).unwrap_or_default(),
        };
        valid.chars().next().map_or((1, None), |character| (character.len_utf8(), character.width()))
    }
}

/// Bytes that are part of no shell syntax wherever they stand. Each is a column wide.
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

/// Whether all of a text is visible ASCII: eight bytes at a time, since compilers make few instructions of a fold over so many.
fn is_graphic(text: &[u8]) -> bool {
    let each = |bytes: &[u8; 8]| bytes.iter().fold(true, |all, byte| all & byte.is_ascii_graphic());
    match text.last_chunk() {
        Some(last) => text.as_chunks().0.iter().all(each) && each(last),
        None => text.iter().all(u8::is_ascii_graphic),
    }
}

/// What a name needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Nothing,
    /// An apostrophe, and besides nothing that double quotes would not keep as it is.
    DoubleQuotes,
    SingleQuotes,
}

impl Quote {
    fn pieces(self, name: &[u8]) -> Pieces<'_> {
        Pieces { rest: name, utf8: self.utf8 }
    }

    /// Whether a name is shown in quotes.
    pub fn needs_quotes(self, name: &[u8]) -> bool {
        match self.style {
            Quoting::Literal => false,
            Quoting::ShellEscapeAlways => true,
            Quoting::ShellEscape => self.need(name) != Need::Nothing,
        }
    }

    fn need(self, name: &[u8]) -> Need {
        if is_plain(name) {
            return Need::Nothing;
        }
        // Double quotes are for apostrophes.
        let single_if_any = !name.contains(&b'\'');
        let (mut special, mut apostrophe, mut only_plain) = (name.is_empty(), false, true);
        let mut first = true;
        for piece in self.pieces(name) {
            if special && single_if_any {
                break;
            }
            match piece {
                Piece::Unprintable(_) => (special, only_plain) = (true, false),
                Piece::Printable([byte], _) => match byte {
                    b'\'' => (special, apostrophe) = (true, true),
                    b' ' => special = true,
                    b'@' if self.at => special = true,
                    // Special where they stand first; elsewhere double quotes are still not chosen for them.
                    b'#' | b'~' if first => special = true,
                    b'{' | b'}' if name.len() == 1 => special = true,
                    b'#' | b'~' | b'{' | b'}' => only_plain = false,
                    b'!' | b'"' | b'$' | b'&' | b'(' | b')' | b'*' | b';' | b'<' | b'=' | b'>' | b'[' | b'^' | b'`'
                    | b'|' | b'?' | b'\\' => (special, only_plain) = (true, false),
                    _ => {}
                },
                Piece::Printable(..) => {}
            }
            first = false;
        }
        match (special, apostrophe && only_plain) {
            (false, _) => Need::Nothing,
            (true, true) => Need::DoubleQuotes,
            (true, false) => Need::SingleQuotes,
        }
    }

    /// Appends a name as it is shown. Answers how many columns it takes.
    pub fn write(self, name: &[u8], out: &mut Vec<u8>) -> usize {
        let need = match self.style {
            Quoting::Literal => return self.write_literal(name, out),
            Quoting::ShellEscape if is_plain(name) => {
                out.extend_from_slice(name);
                return name.len();
            }
            Quoting::ShellEscape => self.need(name),
            Quoting::ShellEscapeAlways => match self.need(name) {
                Need::Nothing => Need::SingleQuotes,
                need => need,
            },
        };
        match need {
            Need::Nothing => self.write_pieces(name, out),
            Need::DoubleQuotes => {
                out.push(b'"');
                let width = self.write_pieces(name, out);
                out.push(b'"');
                width + 2
            }
            Need::SingleQuotes => self.write_single(name, out),
        }
    }

    fn write_pieces(self, name: &[u8], out: &mut Vec<u8>) -> usize {
        out.extend_from_slice(name);
        self.width(name)
    }

    /// How many columns a text takes as it is.
    pub fn width(self, text: &[u8]) -> usize {
        if is_graphic(text) {
            return text.len();
        }
        self.pieces(text)
            .map(|piece| match piece {
                Piece::Printable(_, width) => width,
                // ls counts nothing for what has no width, and one for what is no character, though it prints both as they
                // are.
                Piece::Unprintable(bytes) => usize::from(self.utf8 && std::str::from_utf8(bytes).is_err()),
            })
            .sum()
    }

    fn write_literal(self, name: &[u8], out: &mut Vec<u8>) -> usize {
        if !self.hide {
            return self.write_pieces(name, out);
        }
        let mut width = 0;
        for piece in self.pieces(name) {
            width += match piece {
                Piece::Printable(bytes, width) => {
                    out.extend_from_slice(bytes);
                    width
                }
                Piece::Unprintable(_) => {
                    out.push(b'?');
                    1
                }
            };
        }
        width
    }

    fn write_single(self, name: &[u8], out: &mut Vec<u8>) -> usize {
        let begin = out.len();
        if name.iter().all(|&byte| matches!(byte, b' '..=b'~') && byte != b'\'') {
            out.push(b'\'');
            out.extend_from_slice(name);
            out.push(b'\'');
            return out.len() - begin;
        }
        let mut wide = 0;
        out.push(b'\'');
        let mut escaping = false;
        for piece in self.pieces(name) {
            match piece {
                Piece::Unprintable(bytes) => {
                    for &byte in bytes {
                        if !std::mem::replace(&mut escaping, true) {
                            out.extend_from_slice(b"'$'");
                        }
                        write_escape(byte, out);
                    }
                }
                Piece::Printable(b"'", _) => {
                    // The quotes of an escape end here as well, as those of plain text do.
                    if std::mem::take(&mut escaping) {
                        out.extend_from_slice(b"''");
                    }
                    out.extend_from_slice(b"'\\''");
                }
                Piece::Printable(bytes, width) => {
                    if std::mem::take(&mut escaping) {
                        out.extend_from_slice(b"''");
                    }
                    out.extend_from_slice(bytes);
                    // What is added up at the end counts each byte for one.
                    wide += bytes.len() - width.min(bytes.len());
                }
            }
        }
        out.push(b'\'');
        out.len() - begin - wide
    }
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

/// A name in a message.
pub fn in_message(name: &[u8]) -> String {
    quoted(name, Quoting::ShellEscapeAlways)
}

/// A path that may be copied into a shell, as in a command line that is proposed.
pub fn for_shell(path: &Path) -> String {
    quoted(path.as_os_str().as_bytes(), Quoting::ShellEscape)
}

fn quoted(name: &[u8], style: Quoting) -> String {
    let mut text = Vec::new();
    Quote { style, utf8: true, hide: false, at: false }.write(name, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &[u8], utf8: bool) -> (String, usize) {
        let mut out = Vec::new();
        let width = Quote { style: Quoting::ShellEscape, utf8, hide: false, at: false }.write(name, &mut out);
        (String::from_utf8(out).unwrap(), width)
    }

    /// Bytes seen from GNU ls 9.1 --quoting-style=shell-escape.
    #[test]
    fn names_look_as_gnu_ls_shows_them() {
        for (name, utf8, text, width) in [
            (&b"plain.txt"[..], true, "plain.txt", 9),
            (b"a b", true, "'a b'", 5),
            (b"it's", true, "\"it's\"", 6),
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

    /// Each byte among others: what it needs, and what a shell would read.
    #[test]
    fn what_is_always_quoted_is_in_single_quotes_but_for_apostrophes() {
        let always = Quote { style: Quoting::ShellEscapeAlways, utf8: true, hide: false, at: false };
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
    fn one_byte_of_another_kind_is_found_wherever_it_is() {
        for len in 0..40 {
            let text = vec![b'~'; len];
            assert!(is_graphic(&text));
            for (at, other) in (0..len).flat_map(|at| [b' ', 0x7f, 0x80, 0].map(|other| (at, other))) {
                let mut text = text.clone();
                text[at] = other;
                assert!(!is_graphic(&text), "{text:?}");
            }
        }
    }

    #[test]
    fn locales_of_utf8_are_known_by_their_names() {
        for (locale, expected) in [
            ("C.UTF-8", true),
            ("de_DE.utf8", true),
            ("de_DE.UTF-8@euro", true),
            ("ca_ES.utf8@valencia", true),
            ("hi_IN", true),
            ("en_IN", true),
            ("vi_VN", true),
            ("gez_ET@abegede", true),
            ("uz_UZ@cyrillic", true),
            ("uz_UZ", false),
            ("de_DE", false),
            ("de_DE@euro", false),
            ("de_DE.ISO-8859-15", false),
            ("hi_IN.ISO-8859-1", false),
            ("C", false),
            ("POSIX", false),
            ("", false),
        ] {
            assert_eq!(is_utf8(locale), expected, "{locale}");
        }
    }

    #[test]
    fn hidden_characters_are_question_marks() {
        let quote = Quote { style: Quoting::Literal, utf8: true, hide: true, at: false };
        let mut out = Vec::new();
        assert_eq!(quote.write(b"a\nb\xff\xc3\xbc", &mut out), 5);
        assert_eq!(out, b"a?b?\xc3\xbc");
    }
}
