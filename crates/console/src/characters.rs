//! Which characters of names can be printed, and how wide they are, as in the C library.

mod glibc_widths;

use std::cmp::Ordering;

use unicode_width::UnicodeWidthChar;

use self::glibc_widths::{ONE, TWO, UNPRINTABLE, ZERO};

/// Whether the locale that the environment selects uses UTF-8.
pub fn locale_is_utf8() -> bool {
    let value = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .filter_map(std::env::var_os)
        .find(|value| !value.is_empty())
        .unwrap_or_default();
    is_utf8(&value.to_string_lossy())
}

/// Locales with UTF-8 whose names do not contain it (`localedata/SUPPORTED` of glibc 2.36). A
/// locale with a modifier is listed if it differs from the one without.
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

/// A character, or invalid bytes, with the number of columns that ls counts for it when it prints
/// it unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// It can be printed.
    Printable(&'a [u8], usize),
    /// It cannot be printed.
    Unprintable(&'a [u8], usize),
}

/// Splits a text into pieces.
pub struct Pieces<'a> {
    rest: &'a [u8],
    utf8: bool,
}

impl<'a> Pieces<'a> {
    /// The pieces of a text in UTF-8, or in ASCII.
    pub fn new(text: &'a [u8], utf8: bool) -> Self {
        Self { rest: text, utf8 }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let (&first, _) = self.rest.split_first()?;
        let (len, printable, width) = if first.is_ascii() {
            let printable = matches!(first, b' '..=b'~');
            (1, printable, usize::from(printable))
        } else if self.utf8 {
            self.character()
        } else {
            (1, false, 0)
        };
        let (piece, rest) = self.rest.split_at(len);
        self.rest = rest;
        Some(if printable { Piece::Printable(piece, width) } else { Piece::Unprintable(piece, width) })
    }
}

impl Pieces<'_> {
    /// The length, printability and width of the first character, which is not ASCII.
    fn character(&self) -> (usize, bool, usize) {
        let front = &self.rest[..self.rest.len().min(4)];
        let valid = match std::str::from_utf8(front) {
            Ok(text) => text,
            // A character that is cut off by the end of the text is one piece.
            Err(error) if error.valid_up_to() == 0 && error.error_len().is_none() => return (front.len(), false, 1),
            Err(error) => std::str::from_utf8(&front[..error.valid_up_to()]).unwrap_or_default(),
        };
        match valid.chars().next() {
            Some(character) => {
                let (printable, width) = printed(character);
                (character.len_utf8(), printable, width)
            }
            None if is_beyond_unicode(front) => (4, false, 1),
            None => (1, false, 1),
        }
    }
}

/// Whether four bytes encode a number above the last character of Unicode. The C library takes them
/// for one character.
fn is_beyond_unicode(bytes: &[u8]) -> bool {
    let [first, rest @ ..] = bytes else { return false };
    matches!(first, 0xf4..=0xf7) && rest.len() == 3 && rest.iter().all(|byte| matches!(byte, 0x80..=0xbf))
}

/// Whether a character beyond ASCII is printable, and its number of columns in ls: none for control
/// characters.
fn printed(character: char) -> (bool, usize) {
    let number = u32::from(character);
    let is_in = |ranges: &[(u32, u32)]| {
        let place = ranges.binary_search_by(|&(first, last)| match () {
            () if last < number => Ordering::Less,
            () if first > number => Ordering::Greater,
            () => Ordering::Equal,
        });
        place.is_ok()
    };
    match () {
        () if is_in(&UNPRINTABLE) => (false, usize::from(!matches!(number, 0x2028 | 0x2029))),
        () if is_in(&ZERO) => (true, 0),
        () if is_in(&ONE) => (true, 1),
        () if is_in(&TWO) => (true, 2),
        () => character.width().map_or((false, 0), |width| (true, width)),
    }
}

/// Whether a text is printable ASCII. It tests eight bytes at a time, because compilers make few
/// instructions of a fold over eight bytes.
pub fn is_printable_ascii(text: &[u8]) -> bool {
    let each = |bytes: &[u8; 8]| bytes.iter().fold(true, |all, byte| all & matches!(byte, b' '..=b'~'));
    match text.last_chunk() {
        Some(last) => text.as_chunks().0.iter().all(each) && each(last),
        None => text.iter().all(|byte| matches!(byte, b' '..=b'~')),
    }
}

/// The number of columns of an unchanged text.
pub fn width(text: &[u8], utf8: bool) -> usize {
    if is_printable_ascii(text) {
        return text.len();
    }
    Pieces::new(text, utf8).map(|(Piece::Printable(_, width) | Piece::Unprintable(_, width))| width).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locales_with_utf8_are_recognized() {
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
    fn one_byte_that_is_not_printable_ascii_is_found_at_each_place() {
        for len in 0..40 {
            let text = vec![b' '; len];
            assert!(is_printable_ascii(&text));
            for (at, other) in (0..len).flat_map(|at| [0x1f, 0x7f, 0x80, 0].map(|other| (at, other))) {
                let mut text = text.clone();
                text[at] = other;
                assert!(!is_printable_ascii(&text), "{text:?}");
            }
        }
    }

    #[test]
    fn ranges_are_sorted_and_do_not_overlap() {
        for ranges in [&UNPRINTABLE[..], &ZERO, &ONE, &TWO] {
            assert!(ranges.iter().all(|(first, last)| first <= last));
            assert!(ranges.windows(2).all(|two| two[0].1 < two[1].0));
        }
    }
}
