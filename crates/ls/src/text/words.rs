//! Words that are the value of an option. As in GNU ls, they may be abbreviated.

use std::ffi::OsStr;

use clap::{
    Arg, Command, Error,
    builder::{PossibleValue, TypedValueParser},
    error::{ContextKind, ContextValue, ErrorKind},
};

/// The exit status for an unknown word, as in GNU ls. Other errors of the command line make 2.
const REFUSED: isize = 1;

/// The exit status for an error of the command line.
pub fn exit_code(error: &Error) -> u8 {
    match error.get(ContextKind::Custom) {
        Some(ContextValue::Number(code)) => u8::try_from(*code).unwrap_or(2),
        _ => u8::try_from(error.exit_code()).unwrap_or(2),
    }
}

/// The words for the values of an option: those of GNU ls, and those of `pando ls` alone.
#[derive(Debug, Clone, Copy)]
pub struct Words<T: 'static> {
    ls: &'static [(&'static str, T)],
    own: &'static [(&'static str, T)],
}

impl<T: Copy + PartialEq> Words<T> {
    /// The words of an option that GNU ls has.
    pub const fn new(ls: &'static [(&'static str, T)]) -> Self {
        Self { ls, own: &[] }
    }

    /// With words that GNU ls does not have. They never make a word of GNU ls ambiguous.
    pub const fn and(self, own: &'static [(&'static str, T)]) -> Self {
        Self { own, ..self }
    }

    /// The value of a word, or of an abbreviation for words that all mean the same.
    pub fn find(&self, text: &str) -> Option<T> {
        let exact = |words: &[(&str, T)]| words.iter().find(|(word, _)| *word == text).map(|&(_, value)| value);
        exact(self.ls).or_else(|| exact(self.own)).or_else(|| {
            let begun: Vec<T> = [self.ls, self.own]
                .iter()
                .map(|words| words.iter().filter(|(word, _)| word.starts_with(text)).map(|&(_, value)| value))
                .map(Iterator::collect)
                .find(|begun: &Vec<T>| !begun.is_empty())?;
            begun.iter().all(|value| *value == begun[0]).then_some(begun[0])
        })
    }

    fn names(&self) -> impl Iterator<Item = &'static str> + use<T> {
        self.ls.iter().chain(self.own).map(|&(word, _)| word)
    }
}

impl<T: Copy + PartialEq + Send + Sync + 'static> TypedValueParser for Words<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        value.to_str().and_then(|text| self.find(text)).ok_or_else(|| {
            let mut error = Error::new(ErrorKind::InvalidValue).with_cmd(command);
            let arg = arg.map_or_else(|| "...".to_owned(), ToString::to_string);
            error.insert(ContextKind::InvalidArg, ContextValue::String(arg));
            let text = value.to_string_lossy().into_owned();
            error.insert(ContextKind::InvalidValue, ContextValue::String(text));
            let words = self.names().map(str::to_owned).collect();
            error.insert(ContextKind::ValidValue, ContextValue::Strings(words));
            error.insert(ContextKind::Custom, ContextValue::Number(REFUSED));
            error
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.names().map(PossibleValue::new)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_may_be_abbreviated_if_they_are_unambiguous() {
        const WORDS: Words<u8> =
            Words::new(&[("always", 1), ("auto", 2), ("yes", 1), ("yell", 1)]).and(&[("yonder", 3)]);
        for (text, value) in [
            ("always", Some(1)),
            ("al", Some(1)),
            ("a", None),
            ("ye", Some(1)),
            ("y", Some(1)),
            ("yo", Some(3)),
            ("", None),
            ("always1", None),
            ("Auto", None),
        ] {
            assert_eq!(WORDS.find(text), value, "{text}");
        }
    }
}
