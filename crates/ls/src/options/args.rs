//! The arguments of `pando ls`: its options, and which of them are in effect.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use pando_console::args::LAST;

use crate::options::{Options, choices::Choices};

/// The arguments of `pando ls`.
#[derive(Debug)]
pub struct LsArgs {
    /// All options.
    pub(crate) options: Options,
    /// The choices in effect among options that override each other.
    pub(crate) choices: Choices,
}

impl Args for LsArgs {
    fn augment_args(command: Command) -> Command {
        let command = with_posix_order(Options::augment_args(command));
        if command.get_arguments().any(|arg| arg.get_id() == "verbose") {
            command.mut_arg("verbose", verbosity)
        } else {
            command.arg(verbosity(Arg::new("verbose")))
        }
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The option --verbose, which is -v for all other commands and has only its long name here.
fn verbosity(arg: Arg) -> Arg {
    let help = "Log more on stderr: once events, twice each refused request, three times everything";
    arg.short(None).long("verbose").action(ArgAction::Count).display_order(LAST).help(help).long_help(help)
}

/// With POSIXLY_CORRECT, options end at the first path, as in getopt(3).
fn with_posix_order(command: Command) -> Command {
    if std::env::var_os("POSIXLY_CORRECT").is_none() {
        return command;
    }
    command.mut_arg("paths", |arg| arg.trailing_var_arg(true).allow_hyphen_values(true))
}

impl FromArgMatches for LsArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let options = Options::from_arg_matches(matches)?;
        let choices = Choices::new(matches, &options);
        Ok(Self { options, choices })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
