//! The command line: `spurctld [-D] [-f FILE] [-v]`.

use std::ffi::OsString;
use std::path::PathBuf;

/// What `--help` prints.
pub const HELP: &str = "\
Usage: spurctld [-D] [-f FILE] [-v]

The controller of a Spur cluster.

  -D         stay in the foreground
  -f FILE    configuration (default: $SPUR_CONF, then /etc/spur/spur.toml)
  -v         log more; again for still more
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
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Run the daemon.
    Run(Args),
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
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            Some("-D") => args.foreground = true,
            Some("-f") => {
                let file = rest.next().ok_or("-f: a file must follow")?;
                args.config = Some(file.into());
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
    Ok(Wish::Run(args))
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
            Ok(Wish::Run(Args { foreground, config: config.map(PathBuf::from), verbose }))
        };
        assert_eq!(read(&[]), run(false, None, 0));
        assert_eq!(read(&["-D", "-f", "x.toml", "-vv", "-v"]), run(true, Some("x.toml"), 3));
        assert_eq!(read(&["-D", "--help"]), Ok(Wish::Help));
        assert!(read(&["-f"]).is_err());
        assert!(read(&["--foreground"]).unwrap_err().contains("--foreground"));
        assert!(read(&["-"]).is_err());
    }
}
