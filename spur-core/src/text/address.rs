//! Network addresses: `head1:6817`, `[::1]:6817`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::{ParseError, serde_as_text};

/// A host, given by name or by address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// Name or address of the host, with an IPv6 address written without its brackets.
    pub host: String,
    /// Port number; 0 lets the system choose a port.
    pub port: u16,
}

impl HostPort {
    /// Reads addresses separated by commas, e.g. `head1:6817,head2:6817`, as in `addr` and `SPUR_CONTROLLER`.
    ///
    /// # Errors
    /// [`ParseError`] for the first address that cannot be read, and for an empty list.
    pub fn parse_list(text: &str) -> Result<Vec<HostPort>, ParseError> {
        text.split(',').map(|item| item.trim().parse()).collect()
    }

    /// True if the host can only be reached from itself: `localhost` or a loopback address.
    pub fn is_loopback(&self) -> bool {
        let by_address = self.host.parse::<IpAddr>().map(|address| address.is_loopback());
        by_address.unwrap_or_else(|_| self.host.eq_ignore_ascii_case("localhost"))
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for HostPort {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<HostPort, ParseError> {
        const HELP: &str = "write HOST:PORT, e.g. `head1:6817`, `10.0.0.1:6817` or `[::1]:6817`";
        let refuse = |problem: &str| ParseError::new("address", text, problem, HELP);
        let (host, port) = text.rsplit_once(':').ok_or_else(|| refuse("the port is missing"))?;
        let port = port.parse().ok().filter(|_| port.bytes().all(|b| b.is_ascii_digit()));
        let port = port.ok_or_else(|| refuse("the port is a number up to 65535"))?;
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(v6) if v6.parse::<std::net::Ipv6Addr>().is_ok() => v6,
            Some(_) => return Err(refuse("the brackets hold no IPv6 address")),
            None if host.contains(':') => return Err(refuse("an IPv6 address stands in brackets")),
            None => host,
        };
        let inside = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        if host.is_empty() || !host.chars().all(inside) {
            return Err(refuse("the host is missing or no name"));
        }
        Ok(HostPort { host: host.to_owned(), port })
    }
}

serde_as_text!(HostPort);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        for (text, loopback) in [
            ("127.0.0.1:6817", true),
            ("localhost:0", true),
            ("[::1]:6817", true),
            ("0.0.0.0:6817", false),
            ("[::]:6817", false),
            ("head1.example:6817", false),
        ] {
            let address: HostPort = text.parse().unwrap();
            assert_eq!((address.to_string().as_str(), address.is_loopback()), (text, loopback));
        }
    }

    #[test]
    fn refused() {
        for (text, problem) in [
            ("head1", "the port is missing"),
            ("head1:", "the port is a number up to 65535"),
            ("head1:+1", "the port is a number up to 65535"),
            ("head1:65536", "the port is a number up to 65535"),
            (":6817", "the host is missing or no name"),
            ("he ad:6817", "the host is missing or no name"),
            ("::1:6817", "an IPv6 address stands in brackets"),
            ("[head]:6817", "the brackets hold no IPv6 address"),
        ] {
            assert_eq!(text.parse::<HostPort>().unwrap_err().problem, problem, "{text}");
        }
        assert_eq!(HostPort::parse_list("head1:1, head2:2").unwrap()[1].host, "head2");
        assert!(HostPort::parse_list("").is_err() && HostPort::parse_list("head1:1,").is_err());
    }
}
