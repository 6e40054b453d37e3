//! How one end reaches another: addresses, time limits and message limits that all of Spur agrees on.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use tonic::transport::Endpoint;

/// The controller's port, where none is given.
pub const CONTROLLER_PORT: u16 = 6817;
/// A node's port, where none is given.
pub const NODE_PORT: u16 = 6818;

/// How long a connection may take to come up.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may take that needs nothing but the other end.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// After how much silence the other end is asked whether it is still there; so often, too, a call that waits is
/// kept from being taken for dead.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// How long it may take to answer that.
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest script that a job may have, in bytes.
pub const MAX_SCRIPT: usize = 4 << 20;
/// The largest environment that a job may have, in bytes.
pub const MAX_ENVIRONMENT: usize = 8 << 20;
/// The largest message either end takes: a script, an environment and room for the rest of a job.
pub const MAX_MESSAGE: usize = MAX_SCRIPT + MAX_ENVIRONMENT + (4 << 20);

/// The host and port of a service. Reads `host`, `host:port`, `[::1]:port`, `::1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// A name or a literal address; IPv6 without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// An address that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid address `{0}`: write HOST, HOST:PORT or [IPV6]:PORT")]
pub struct AddressError(pub String);

impl Address {
    /// Reads an address that may lack its port.
    ///
    /// # Errors
    /// A text that is no address.
    pub fn parse(text: &str, default_port: u16) -> Result<Address, AddressError> {
        let refused = || AddressError(text.to_owned());
        let bracketed = text.strip_prefix('[').map(|rest| rest.split_once(']').ok_or_else(refused));
        let (host, port) = match bracketed.transpose()? {
            Some((host, "")) => (host, None),
            Some((host, rest)) => (host, Some(rest.strip_prefix(':').ok_or_else(refused)?)),
            None => match text.split_once(':') {
                Some((_, rest)) if rest.contains(':') => (text, None),
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let name = |c: char| c.is_ascii_alphanumeric() || "-_.:%".contains(c);
        let port = port.map_or(Ok(default_port), |port| port.parse().map_err(|_| refused()))?;
        if host.is_empty() || !host.chars().all(name) {
            return Err(refused());
        }
        Ok(Address { host: host.to_owned(), port })
    }

    /// Reads several, separated by commas.
    ///
    /// # Errors
    /// The first that is no address; no address at all.
    pub fn parse_list(text: &str, default_port: u16) -> Result<Vec<Address>, AddressError> {
        text.split(',').map(|item| Address::parse(item.trim(), default_port)).collect()
    }

    /// Where to connect to, with all of Spur's settings.
    ///
    /// # Errors
    /// An address that cannot be part of a URI.
    pub fn endpoint(&self) -> Result<Endpoint, AddressError> {
        let endpoint = Endpoint::from_shared(format!("http://{self}"));
        endpoint.map(settings).map_err(|_| AddressError(self.to_string()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        Address::parse(text, CONTROLLER_PORT)
    }
}

/// Where to connect to for a Unix socket.
///
/// # Errors
/// A path that cannot be part of a URI.
pub fn unix_endpoint(path: &Path) -> Result<Endpoint, AddressError> {
    let refused = || AddressError(path.display().to_string());
    let text = path.to_str().ok_or_else(refused)?;
    Endpoint::from_shared(format!("unix://{text}")).map(settings).map_err(|_| refused())
}

fn settings(endpoint: Endpoint) -> Endpoint {
    endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_printed() {
        for (text, printed) in [
            ("head", "head:6817"),
            ("head:7000", "head:7000"),
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("[::1]:7", "[::1]:7"),
            ("[::1]", "[::1]:6817"),
            ("fe80::1%eth0", "[fe80::1%eth0]:6817"),
        ] {
            let address = Address::parse(text, CONTROLLER_PORT).unwrap();
            assert_eq!(address.to_string(), printed, "{text}");
            assert_eq!(printed.parse::<Address>(), Ok(address), "{text}");
        }
        for text in ["", ":1", "a:", "a:x", "a:70000", "[::1", "[::1]7", "a b", "a/b"] {
            assert!(Address::parse(text, 1).is_err(), "{text}");
        }
        let list = Address::parse_list("a, b:2", 9).unwrap();
        assert_eq!(list.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a:9", "b:2"]);
        assert!(Address::parse_list("a,,b", 9).is_err());
    }

    #[test]
    fn addresses_become_endpoints() {
        assert_eq!(Address::parse("::1", 5).unwrap().endpoint().unwrap().uri().port_u16(), Some(5));
        assert!(unix_endpoint(Path::new("/tmp/a.sock")).is_ok());
    }
}
