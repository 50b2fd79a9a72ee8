//! Times compared with GNU ls, in many formats and styles.

use std::{fs, path::Path};

use crate::{
    gnu::{has_gnu_ls, same_with},
    tree::set_times,
};

/// The parts before the letters of conversions, and the letters: flags, and modifiers without
/// effect in this locale.
const CONVERSIONS: [(&str, &str); 11] = [
    ("", "aAbBcCdDeFgGhHIjklmMnNpPqrRsStTuUVwWxXyYzZ%"),
    ("_", "CdeGgHIjklmMSuUVwWyY"),
    ("-", "CdeGgHIjklmMSuUVwWyY"),
    ("0", "CdeGgHIjklmMSuUVwWyY"),
    ("^", "aAbBhpZ"),
    ("#", "pZ"),
    ("E", "cCxXyY"),
    ("O", "bBdeHImMSuUVwWy"),
    ("_O", "deHImMSuUVwWy"),
    ("^O", "bB"),
    ("^E", "cCxXyY"),
];

const FORMATS: [&str; 7] = [
    "+",
    "+%c, %x; %X",
    "+%%c%%Ex%EY %OH\u{e9}",
    // Two lines: for times that are not recent, and for recent ones.
    "+A\nB",
    "+%F\n%R",
    "+\nB",
    "+%s\n%%s",
];

/// Files with times around the starts of years, weeks, months and halves of the day, and before
/// 1970.
fn populate_times(root: &Path) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
    let mut times = vec![0, -1, 1, -315_521_755, -1_000_000_000, 951_782_400, 1_234_567_890, 4_294_967_296];
    times.extend([now - 10, now - 100 * 86_400, now - 190 * 86_400]);
    for year in 0..12 {
        // The first of January 1995, and of the years after that.
        let begin = 788_918_400 + (year * 365 + (year + 2) / 4) * 86_400;
        times.extend([begin - 1, begin, begin + 4 * 86_400, begin + 59 * 86_400 + 43_200, begin + 200 * 86_400]);
    }
    for (index, secs) in times.into_iter().enumerate() {
        let file = root.join(format!("t{index}"));
        fs::write(&file, "").unwrap();
        // Before 1970, %s and a fraction differ.
        set_times(&file, secs, if secs < 0 { 0 } else { [0, 123_456_789, 789, 120_000_000][index % 4] });
    }
}

#[test]
fn formats_have_the_same_meaning_as_in_gnu_ls() {
    if !has_gnu_ls() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    populate_times(temp.path());
    let every_letter = CONVERSIONS.map(|(before, letters)| {
        let conversions = letters.chars().map(|letter| format!("|%{before}{letter}"));
        "+".to_owned() + &conversions.collect::<String>()
    });
    let formats: Vec<&str> = every_letter.iter().map(String::as_str).chain(FORMATS).collect();
    for zone in ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"] {
        for &format in &formats {
            same_with(&[("TZ", zone), ("TIME_STYLE", format)], "-l", &[], temp.path());
        }
    }
}

#[test]
fn zones_match_those_of_the_c_library() {
    if !has_gnu_ls() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    // The years in which a rule without years has applied.
    for (name, secs) in [("winter", 1_770_000_000), ("spring", 1_774_000_000), ("summer", 1_783_000_000)] {
        let file = temp.path().join(name);
        fs::write(&file, "").unwrap();
        set_times(&file, secs, 0);
    }
    for zone in [
        "",
        ":America/New_York",
        "/usr/share/zoneinfo/Asia/Kathmandu",
        "posix/Europe/Berlin",
        "europe/berlin",
        "nowhere",
        "/dev/zero",
        "CET-1CEST",
        ":CET-1CEST",
        "<+0130>-1:30",
        "NZST-12NZDT,M9.5.0,M4.1.0/3",
    ] {
        same_with(&[("TZ", zone)], "-l", &["--time-style=full-iso"], temp.path());
    }
}

#[test]
fn posix_styles_apply_only_to_other_locales() {
    if !has_gnu_ls() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    populate_times(temp.path());
    let locales: [&[(&str, &str)]; 6] = [
        &[("LC_ALL", "C")],
        &[("LC_ALL", "POSIX")],
        &[("LC_ALL", "C.UTF-8")],
        &[("LC_ALL", ""), ("LC_TIME", "C"), ("LANG", "C.UTF-8")],
        &[("LC_ALL", ""), ("LC_TIME", "C.UTF-8"), ("LANG", "C")],
        &[("LC_ALL", ""), ("LC_TIME", ""), ("LANG", "C.UTF-8")],
    ];
    for locale in locales {
        for style in ["full-iso", "long-iso", "iso", "locale", "+%Y"] {
            for prefix in ["", "posix-", "posix-posix-"] {
                same_with(locale, &format!("-l --time-style={prefix}{style}"), &[], temp.path());
            }
        }
    }
}
