//! The command line of spurd.

use std::path::PathBuf;

use spur_core::text::address::HostPort;
use spur_core::text::gres::GresSpec;

/// What `--help` prints.
pub const USAGE: &str = "\
Usage: spurd [OPTIONS]

Runs the jobs of one node of a Spur cluster.

  -D                     stay in the foreground and log to standard error
  -f FILE                configuration (default: $SPUR_CONF, then /etc/spur/spur.toml)
  -N NAME                the node's name (default: the host's, up to the first dot)
      --listen ADDR      address of the node's service; port 0 takes any free one
      --address ADDR     where clients reach it, if that is elsewhere
      --controller ADDRS where the controllers are (default: $SPUR_CONTROLLER, then the configuration)
      --spool DIR        directory for what must survive a restart
      --cpus N           register so many CPUs, whatever there are; tasks are then not bound to CPUs
      --memory MB        register so much memory
      --gres LIST        register these devices, such as gpu:mi300x:8, whatever there are
      --features LIST    features for --constraint, separated by commas
      --topology PLACE   where the node is in the topologies, such as default:spine1:leaf3
  -h, --help             print this
  -V, --version          print the version

Signals: TERM stops spurd, jobs go on; HUP reads the configuration again.
";

/// The command line, read but not yet combined with the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Args {
    /// `-D`.
    pub foreground: bool,
    /// `-f`.
    pub config: Option<PathBuf>,
    /// `-N`.
    pub name: Option<String>,
    /// `--listen`.
    pub listen: Option<HostPort>,
    /// `--address`.
    pub address: Option<HostPort>,
    /// `--controller`.
    pub controllers: Option<String>,
    /// `--spool`.
    pub spool: Option<PathBuf>,
    /// `--cpus`.
    pub cpus: Option<u32>,
    /// `--memory`, in MiB.
    pub memory_mb: Option<u64>,
    /// `--gres`.
    pub gres: Option<Vec<GresSpec>>,
    /// `--features`.
    pub features: Vec<String>,
    /// `--topology`.
    pub topology: String,
}

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Run.
    Run(Box<Args>),
    /// Print the usage.
    Help,
    /// Print the version.
    Version,
}

/// A command line that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} (spurd --help lists the options)")]
pub struct ArgsError(String);

impl Args {
    /// Reads the arguments that follow the program's name.
    ///
    /// # Errors
    /// [`ArgsError`] naming the first one that makes no sense.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Wish, ArgsError> {
        let mut args = Args::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let (option, joined) = split(&argument);
            match option {
                "-D" => args.foreground = true,
                "-h" | "--help" => return Ok(Wish::Help),
                "-V" | "--version" => return Ok(Wish::Version),
                _ => {
                    let value = || joined.map(str::to_owned).or_else(|| arguments.next());
                    args.set(option, value)?;
                    continue;
                }
            }
            if joined.is_some() {
                return Err(ArgsError(format!("{option} takes no value")));
            }
        }
        Ok(Wish::Run(Box::new(args)))
    }

    fn set(&mut self, option: &str, value: impl FnOnce() -> Option<String>) -> Result<(), ArgsError> {
        const KNOWN: [&str; 11] = [
            "-f",
            "-N",
            "--listen",
            "--address",
            "--controller",
            "--spool",
            "--cpus",
            "--memory",
            "--gres",
            "--features",
            "--topology",
        ];
        if !KNOWN.contains(&option) {
            return Err(ArgsError(format!("unknown argument {option}")));
        }
        let text = value().filter(|text| !text.is_empty());
        let text = text.ok_or_else(|| ArgsError(format!("{option} needs a value")))?;
        let wrong = |problem: &dyn std::fmt::Display| ArgsError(format!("{option} {text}: {problem}"));
        match option {
            "-f" => self.config = Some(text.into()),
            "-N" => self.name = Some(text),
            "--listen" => self.listen = Some(text.parse().map_err(|error| wrong(&error))?),
            "--address" => self.address = Some(text.parse().map_err(|error| wrong(&error))?),
            "--controller" => self.controllers = Some(text),
            "--spool" => self.spool = Some(text.into()),
            "--cpus" => self.cpus = Some(positive(&text).ok_or_else(|| wrong(&"not a number of CPUs"))?),
            "--memory" => {
                self.memory_mb = Some(positive(&text).ok_or_else(|| wrong(&"not a number of MiB"))?.into());
            }
            "--gres" => {
                let list: Result<Vec<GresSpec>, _> = text.split(',').map(str::parse).collect();
                self.gres = Some(list.map_err(|error| wrong(&error))?);
            }
            "--features" => self.features = text.split(',').map(str::to_owned).collect(),
            _ => self.topology = text,
        }
        Ok(())
    }
}

fn positive(text: &str) -> Option<u32> {
    text.parse().ok().filter(|&number| number > 0)
}

/// An option and the value written into the same argument: `--cpus=4`, `-Nn1`.
fn split(argument: &str) -> (&str, Option<&str>) {
    if argument.starts_with("--") {
        return argument.split_once('=').map_or((argument, None), |(option, value)| (option, Some(value)));
    }
    match argument.split_at_checked(2) {
        Some((option, value)) if option.starts_with('-') && !value.is_empty() => (option, Some(value)),
        _ => (argument, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Wish, ArgsError> {
        Args::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_read_in_every_spelling() {
        let spelled = ["-D -f c.toml -N n1 --cpus 4", "-D -fc.toml -Nn1 --cpus=4"];
        let args = Args {
            foreground: true,
            config: Some("c.toml".into()),
            name: Some("n1".to_owned()),
            cpus: Some(4),
            ..Args::default()
        };
        for line in spelled {
            assert_eq!(parse(line), Ok(Wish::Run(Box::new(args.clone()))), "{line}");
        }
        let Ok(Wish::Run(args)) = parse("--gres gpu:mi300x:8,nic:2 --features=ib,ssd --listen 127.0.0.1:0")
        else {
            panic!("these are options");
        };
        assert_eq!((args.gres.unwrap().len(), args.features.len(), args.listen.unwrap().port), (2, 2, 0));
        assert_eq!((parse("--help"), parse("-V")), (Ok(Wish::Help), Ok(Wish::Version)));
    }

    #[test]
    fn mistakes_are_named() {
        let cases = [
            ("--cpu 4", "unknown argument --cpu"),
            ("--cpus 0", "--cpus 0: not a number of CPUs"),
            ("-N", "-N needs a value"),
            ("-Dx", "-D takes no value"),
            ("extra", "unknown argument extra"),
            ("--listen a:b", "--listen a:b"),
        ];
        for (line, part) in cases {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.starts_with(part), "{line}: {error}");
        }
    }
}
