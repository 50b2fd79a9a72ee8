//! Options of a command that are made only when that command is given. Making the options of all
//! commands takes longer than a small listing.

use std::cell::Cell;

use clap::{ArgMatches, Args, Command, Error, FromArgMatches, builder::Resettable};

/// The options of a command, made on demand.
#[derive(Debug)]
pub struct Deferred<T>(pub T);

thread_local! {
    static AT_ONCE: Cell<bool> = const { Cell::new(false) };
}

/// Has `make` make a command with all options of all commands, which completions need.
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
        // The description of the command is already set, and must not become that of its options.
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
