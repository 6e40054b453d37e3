//! The command line: `spurctld [-D] [-f FILE] [-v]`, `spurctld --new-history`.

use std::ffi::OsString;
use std::path::PathBuf;

use spur_core::id::{HistoryId, InvalidHistory};

/// What `--help` prints.
pub const HELP: &str = "\
Usage: spurctld [-D] [-f FILE] [-v]
       spurctld --new-history [--adopt HISTORY] [-f FILE]

The controller of a Spur cluster.

  -D         stay in the foreground
  -f FILE    configuration (default: $SPUR_CONF, then /etc/spur/spur.toml)
  -v         log more; again for still more
  --new-history
             let an old copy of the journal (a restored backup) go on as a history
             of its own, with job numbers above all that are known to be used, and
             end; spurctld must not run meanwhile
  --adopt HISTORY
             with --new-history: take over the nodes of this history too, whose
             journal is lost
  -h         print this
  -V         print the version
";

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Args {
    /// `-D`: stay in the foreground.
    pub foreground: bool,
    /// `-f`: the configuration file.
    pub config: Option<PathBuf>,
    /// `-v`: how many levels more are logged.
    pub verbose: u8,
    /// `--adopt`: the lost history whose nodes are to be taken over.
    pub adopted: Option<HistoryId>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Run the daemon.
    Run(Args),
    /// Begin a new history, and end.
    NewHistory(Args),
    /// Print the help.
    Help,
    /// Print the version.
    Version,
}

/// Reads the arguments after the program's name.
///
/// # Errors
/// The first that makes no sense, in a sentence.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Wish, String> {
    let mut args = Args::default();
    let mut rest = arguments.into_iter();
    let mut new_history = false;
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            Some("-D") => args.foreground = true,
            Some("-f") => {
                let file = rest.next().ok_or("-f: a file must follow")?;
                args.config = Some(file.into());
            }
            Some("--new-history") => new_history = true,
            Some("--adopt") => {
                let history = rest.next().ok_or("--adopt: a history must follow")?;
                let read = history.to_str().map(str::parse).and_then(Result::ok);
                args.adopted =
                    Some(read.ok_or_else(|| format!("--adopt {}: {InvalidHistory}", history.display()))?);
            }
            Some("-h" | "--help") => return Ok(Wish::Help),
            Some("-V" | "--version") => return Ok(Wish::Version),
            Some(flags)
                if flags.len() > 1
                    && flags[1..].bytes().all(|flag| flag == b'v')
                    && flags.starts_with('-') =>
            {
                args.verbose = args.verbose.saturating_add(u8::try_from(flags.len() - 1).unwrap_or(u8::MAX));
            }
            _ => return Err(format!("unknown argument {}; see spurctld --help", argument.display())),
        }
    }
    match (new_history, args.adopted) {
        (true, _) => Ok(Wish::NewHistory(args)),
        (false, None) => Ok(Wish::Run(args)),
        (false, Some(_)) => Err("--adopt goes with --new-history".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Wish, String> {
        parse(words.iter().map(OsString::from))
    }

    #[test]
    fn arguments_are_read() {
        let run = |foreground, config: Option<&str>, verbose| {
            Ok(Wish::Run(Args { foreground, config: config.map(PathBuf::from), verbose, adopted: None }))
        };
        assert_eq!(read(&[]), run(false, None, 0));
        assert_eq!(read(&["-D", "-f", "x.toml", "-vv", "-v"]), run(true, Some("x.toml"), 3));
        assert_eq!(read(&["-D", "--help"]), Ok(Wish::Help));
        let id = "000102030405060708090a0b0c0d0e0f";
        let renewed = Args { adopted: id.parse().ok(), ..Args::default() };
        assert_eq!(read(&["--new-history"]), Ok(Wish::NewHistory(Args::default())));
        assert_eq!(read(&["--new-history", "--adopt", id]), Ok(Wish::NewHistory(renewed)));
        assert!(read(&["--adopt", id]).unwrap_err().contains("--new-history"));
        assert!(read(&["--new-history", "--adopt", "x"]).unwrap_err().contains("32"));
        assert!(read(&["-f"]).is_err());
        assert!(read(&["--foreground"]).unwrap_err().contains("--foreground"));
        assert!(read(&["-"]).is_err());
    }
}
