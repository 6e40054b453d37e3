//! The command line of `spurctld`.

use std::path::PathBuf;

use clap::{ArgAction, Parser};
use spur_core::id::HistoryId;

/// The controller of a Spur cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Parser)]
#[command(name = "spurctld", version, args_override_self = true)]
#[command(after_help = "Signals: TERM stops the controller, jobs go on; HUP reads the configuration again.")]
pub struct Args {
    /// Stay in the foreground.
    #[arg(short = 'D')]
    pub foreground: bool,
    /// Configuration (default: $SPUR_CONF, then /etc/spur/spur.toml).
    #[arg(short = 'f', value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Log more; again for still more.
    #[arg(short = 'v', action = ArgAction::Count)]
    pub verbose: u8,
    /// Let an old copy of the journal (a restored backup) go on as a history of its own, with job numbers
    /// above all that are known to be used, and end; spurctld must not run meanwhile.
    #[arg(long)]
    pub new_history: bool,
    /// Take over the nodes of this history too, whose journal is lost.
    #[arg(long, value_name = "HISTORY", requires = "new_history")]
    pub adopt: Option<HistoryId>,
    /// Copy the SQLite journal in this file, with its accounting, into the empty PostgreSQL database that the
    /// configuration names, compare both, and end; spurctld must not run meanwhile.
    #[arg(long, value_name = "FILE", group = "moving")]
    pub migrate: Option<PathBuf>,
    /// Copy the SQLite journal and its accounting into this new directory, and end; spurctld may run
    /// meanwhile.
    #[arg(long, value_name = "DIRECTORY", group = "moving")]
    pub backup: Option<PathBuf>,
    /// Put such a copy where the configuration says that the SQLite journal is, and end; there must be none.
    #[arg(long, value_name = "DIRECTORY", group = "moving", conflicts_with = "new_history")]
    pub restore: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Args, String> {
        let words = line.split_whitespace();
        Args::try_parse_from(["spurctld"].into_iter().chain(words)).map_err(|error| error.to_string())
    }

    #[test]
    fn arguments_are_read() {
        assert_eq!(read(""), Ok(Args::default()));
        let config = Some(PathBuf::from("x.toml"));
        let verbose = Args { foreground: true, config, verbose: 3, ..Args::default() };
        assert_eq!(read("-D -f y.toml -f x.toml -vv -v"), Ok(verbose));
        let id = "000102030405060708090a0b0c0d0e0f";
        let renewed = Args { new_history: true, adopt: id.parse().ok(), ..Args::default() };
        assert_eq!(read(&format!("--new-history --adopt {id}")), Ok(renewed));
    }

    #[test]
    fn mistakes_are_named() {
        for (line, part) in [
            ("--adopt 000102030405060708090a0b0c0d0e0f", "--new-history"),
            ("--new-history --adopt x", "32"),
            ("-f", "-f <FILE>"),
            ("--foreground", "--foreground"),
            ("extra", "extra"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
