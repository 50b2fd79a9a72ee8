//! Options of a command that are made when that command is given: making those of all commands takes longer than a small listing.

use std::cell::Cell;

use clap::{ArgMatches, Args, Command, Error, FromArgMatches, builder::Resettable};

/// These options.
#[derive(Debug)]
pub struct Deferred<T>(pub T);

thread_local! {
    static AT_ONCE: Cell<bool> = const { Cell::new(false) };
}

/// Has `make` make a command with all that it contains: completions want to know it from the beginning.
pub fn at_once(make: fn() -> Command) -> Command {
    AT_ONCE.set(true);
    let command = make();
    AT_ONCE.set(false);
    command
}

impl<T: Args> Args for Deferred<T> {
    fn augment_args(command: Command) -> Command {
        if AT_ONCE.get() {
            return T::augment_args(command);
        }
        // What the command is for was said before, and not by its options.
        command.defer(|command| {
            let (about, long_about) = (command.get_about().cloned(), command.get_long_about().cloned());
            T::augment_args(command).about(Resettable::from(about)).long_about(Resettable::from(long_about))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        T::augment_args_for_update(command)
    }
}

impl<T: FromArgMatches> FromArgMatches for Deferred<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}
