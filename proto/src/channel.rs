//! How one end reaches another: addresses, time limits and message limits that all of Spur agrees on.

use std::path::Path;
use std::time::Duration;

use spur_core::text::address::HostPort;
use tonic::transport::Endpoint;

/// How long a connection may take to come up.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may take that needs nothing but the other end.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// After how much silence the other end is asked whether it is still there; so often, too, a call that waits is
/// kept from being taken for dead.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// How long it may take to answer that.
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// What one stream may send ahead of its reader, in bytes: some two hundred jobs of the usual size.
pub const STREAM_WINDOW: u32 = 1 << 20;
/// What all streams of a connection may send ahead together.
pub const CONNECTION_WINDOW: u32 = 2 << 20;

/// The largest frame that the controller takes, in bytes: what a client of a stream encodes at once (32 KiB and a job) goes
/// into one, and is read at once.
pub const FRAME_BYTES: u32 = 64 << 10;

/// The largest script that a job may have, in bytes.
pub const MAX_SCRIPT: usize = 4 << 20;
/// The largest environment that a job may have, in bytes.
pub const MAX_ENVIRONMENT: usize = 8 << 20;
/// The largest message either end takes: a script, an environment and room for the rest of a job.
pub const MAX_MESSAGE: usize = MAX_SCRIPT + MAX_ENVIRONMENT + (4 << 20);
/// The largest message that the controller sends: what it says of a job is little more than what it was told.
pub const MAX_REPLY: usize = 4 * MAX_MESSAGE;

/// Where to connect to for a service, with all of Spur's settings.
///
/// # Errors
/// An address that cannot be part of a URI.
pub fn endpoint(address: &HostPort) -> Result<Endpoint, AddressError> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"));
    endpoint.map(settings).map_err(|_| AddressError(address.to_string()))
}

/// An address that nothing can connect to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot connect to `{0}`: it is no address")]
pub struct AddressError(pub String);

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
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_become_endpoints() {
        let port = |text: &str| endpoint(&text.parse().unwrap()).unwrap().uri().port_u16();
        assert_eq!(port("head1:7000"), Some(7000));
        assert_eq!(port("[::1]:5"), Some(5));
        assert!(unix_endpoint(Path::new("/tmp/a.sock")).is_ok());
    }
}
