//! `pando bench WORKLOAD TARGET...`: the short form of `run`, with one subcommand per workload.

use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Subcommand, error::ErrorKind};

use super::{help::SHORT_HELP, options::How};
use crate::{
    target::TargetSpec,
    workload::{Named, WorkloadSpec, parse_all, shown},
};

/// One workload, or a group of workloads, on some targets.
#[derive(Debug)]
pub(super) struct Short {
    pub(super) workloads: Vec<WorkloadSpec>,
    pub(super) targets: Vec<TargetSpec>,
    pub(super) how: How,
}

#[derive(Debug, Args)]
struct ShortArgs {
    /// The targets to measure (--help lists them); ratios refer to the first one
    #[arg(
        value_name = "TARGET",
        default_value = "mem",
        long_help = "The targets to measure (listed below); ratios refer to the first one"
    )]
    targets: Vec<TargetSpec>,
    /// A setting of the workload (`pando bench run --help` lists them)
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    how: How,
}

/// The workloads that the short help shows. The help of `run` lists the others.
const SHOWN: [&str; 2] = ["crunl", "stat"];

impl Subcommand for Short {
    fn augment_subcommands(command: Command) -> Command {
        shown().fold(command, |command, (name, work)| {
            let sub = ShortArgs::augment_args(Command::new(name)).about(work).long_about(None);
            command.subcommand(sub.hide(!SHOWN.contains(&name)).after_long_help(SHORT_HELP.as_str()))
        })
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        shown().any(|(known, _)| known == name)
    }
}

impl FromArgMatches for Short {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let (name, matches) = matches.subcommand().ok_or_else(|| Error::new(ErrorKind::MissingSubcommand))?;
        let ShortArgs { targets, set, how } = ShortArgs::from_arg_matches(matches)?;
        let named: Named =
            format!("{name}:{}", set.join(",")).trim_end_matches(':').parse().map_err(|why: String| {
                let text = format!("invalid value '{}' for '--set <KEY=VALUE>': {why}", set.join(","));
                Error::raw(ErrorKind::ValueValidation, text)
            })?;
        Ok(Self { workloads: parse_all(&[named]), targets, how })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
