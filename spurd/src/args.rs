//! The command line of `spurd`.

use std::path::PathBuf;

use clap::Parser;
use clap::builder::NonEmptyStringValueParser;
use spur_core::text::ParseError;
use spur_core::text::address::HostPort;
use spur_core::text::gres::GresSpec;
use spur_core::text::place::Places;

/// Runs the jobs of one node of a Spur cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Parser)]
#[command(name = "spurd", version, args_override_self = true)]
#[command(after_help = "Signals: TERM stops spurd, jobs go on; HUP reads the configuration again.")]
pub struct Args {
    /// Stay in the foreground and log to standard error.
    #[arg(short = 'D')]
    pub foreground: bool,
    /// Register as if the host had just booted, for hosts that do not really boot.
    #[arg(short = 'b')]
    pub boot: bool,
    /// Configuration (default: $SPUR_CONF, then /etc/spur/spur.toml).
    #[arg(short = 'f', value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The node's name (default: the host's, up to the first dot).
    #[arg(short = 'N', value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub name: Option<String>,
    /// Address of the node's service; port 0 takes any free one.
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<HostPort>,
    /// Where clients reach it, if that is elsewhere.
    #[arg(long, value_name = "ADDR")]
    pub address: Option<HostPort>,
    /// Where the controllers are (default: $SPUR_CONTROLLER, then the configuration).
    #[arg(long, value_name = "ADDRS", value_parser = NonEmptyStringValueParser::new())]
    pub controller: Option<String>,
    /// Directory for what must survive a restart.
    #[arg(long, value_name = "DIR")]
    pub spool: Option<PathBuf>,
    /// Register so many CPUs, whatever there are; tasks are then not bound to CPUs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub cpus: Option<u32>,
    /// Register so much memory.
    #[arg(long = "memory", value_name = "MB", value_parser = clap::value_parser!(u64).range(1..))]
    pub memory_mb: Option<u64>,
    /// Register these devices, such as gpu:mi300x:8, whatever there are.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub gres: Option<Vec<GresSpec>>,
    /// Features for --constraint, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub features: Vec<String>,
    /// Where the node is in the topologies, such as default:spine1:leaf3. The controller puts a node there
    /// that is in no domain and has no jobs.
    #[arg(long, value_name = "PLACE", default_value = "", hide_default_value = true, value_parser = places)]
    pub topology: String,
}

/// Checks the places of a node.
fn places(text: &str) -> Result<String, ParseError> {
    text.parse::<Places>().map(|places| places.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Args, String> {
        let words = line.split_whitespace();
        Args::try_parse_from(["spurd"].into_iter().chain(words)).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_read_in_every_spelling() {
        let args = Args {
            foreground: true,
            config: Some("c.toml".into()),
            name: Some("n1".to_owned()),
            cpus: Some(4),
            ..Args::default()
        };
        for line in
            ["-D -f c.toml -N n1 --cpus 4", "-D -fc.toml -Nn1 --cpus=4", "-DNn1 -fc.toml --cpus=8 --cpus=4"]
        {
            assert_eq!(read(line), Ok(args.clone()), "{line}");
        }
        let args = read("--gres gpu:mi300x:8,nic:2 --features=ib,ssd --listen 127.0.0.1:0").unwrap();
        assert_eq!((args.gres.unwrap().len(), args.features.len(), args.listen.unwrap().port), (2, 2, 0));
    }

    #[test]
    fn mistakes_are_named() {
        let cases = [
            ("--cpu 4", "'--cpu'"),
            ("--cpus 0", "'0' for '--cpus <N>'"),
            ("-N", "-N <NAME>"),
            ("-Dx", "'-x'"),
            ("extra", "'extra'"),
            ("--listen a:b", "'a:b' for '--listen <ADDR>'"),
        ];
        for (line, part) in cases {
            let error = read(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
