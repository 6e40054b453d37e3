//! `[controller] state`: the file or the database in which the controller keeps its journal.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::text::time::Seconds;

/// The place of the controller's journal and accounting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Files beside this SQLite database: one controller on one host.
    Sqlite(PathBuf),
    /// A PostgreSQL database: several controllers, of which one leads.
    Postgres(PostgresState),
}

/// A PostgreSQL database, with its credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresState {
    /// URLs of the servers that may hold the database, at least one. The controller uses the first that is
    /// not in recovery.
    pub urls: Vec<DatabaseUrl>,
    /// `password_file`: the file whose first line is the password; `None` for certificates and trusted
    /// sockets.
    pub password_file: Option<PathBuf>,
    /// `lease`: time in seconds for which a leader leads without renewing its lease.
    pub lease: Seconds,
}

impl PostgresState {
    /// The default of `lease`.
    pub const DEFAULT_LEASE: Seconds = Seconds(3);
}

impl State {
    /// The SQLite database; `None` for PostgreSQL.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            State::Sqlite(path) => Some(path),
            State::Postgres(_) => None,
        }
    }
}

impl fmt::Display for State {
    /// Writes the file, or the URLs separated by commas.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Sqlite(path) => path.display().fmt(f),
            State::Postgres(state) => {
                let urls: Vec<&str> = state.urls.iter().map(DatabaseUrl::as_str).collect();
                f.write_str(&urls.join(","))
            }
        }
    }
}

/// A `postgres://` URL that holds no password, and that asks for a verified server unless the server is on
/// this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseUrl(Arc<str>);

/// The reason for which a text is not a [`DatabaseUrl`]. The message never repeats the text, which may hold a
/// password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatabaseUrlError {
    /// The scheme is another one.
    #[error("a database is named as `postgres://USER@HOST/DATABASE`")]
    Scheme,
    /// The URL holds a password.
    #[error(
        "a URL must not hold a password, which every reader of the file would see; write it to a file and name that with `password_file`"
    )]
    Password,
    /// The URL names several hosts.
    #[error("a URL names one host; write a list of URLs for several")]
    Hosts,
    /// The host is remote and `sslmode` allows an unverified server.
    #[error(
        "a database on another host is reached with `sslmode=verify-full` only, which is the default: leave `sslmode` out"
    )]
    Unverified,
}

impl DatabaseUrl {
    /// Checks the text of a URL.
    ///
    /// # Errors
    /// [`DatabaseUrlError`].
    pub fn parse(text: &str) -> Result<DatabaseUrl, DatabaseUrlError> {
        let rest = text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://"));
        let rest = rest.ok_or(DatabaseUrlError::Scheme)?;
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        // A password may hold an @ or a slash that was not encoded: any colon before any @ is
        // refused.
        let before_last_at = rest.rsplit_once('@').map_or("", |(before, _)| before);
        let parameters = || parameters(rest);
        if before_last_at.contains(':') || parameters().any(|(key, _)| key.eq_ignore_ascii_case("password")) {
            return Err(DatabaseUrlError::Password);
        }
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        if host.contains(',') {
            return Err(DatabaseUrlError::Hosts);
        }
        let url = DatabaseUrl(text.into());
        let mode = parameters().find(|(key, _)| ["sslmode", "ssl-mode"].contains(key));
        if !url.is_local() && mode.is_some_and(|(_, mode)| mode != "verify-full") {
            return Err(DatabaseUrlError::Unverified);
        }
        Ok(url)
    }

    /// The text of the URL.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if the URL sets `sslmode`.
    #[must_use]
    pub fn has_mode(&self) -> bool {
        parameters(&self.0).any(|(key, _)| ["sslmode", "ssl-mode"].contains(&key))
    }

    /// True if the server is on this host: a socket, a loopback address, or `localhost`.
    #[must_use]
    pub fn is_local(&self) -> bool {
        let rest = self.0.split_once("://").map_or("", |(_, rest)| rest);
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let named = parameters(rest)
            .filter(|(key, _)| ["host", "hostaddr"].contains(key))
            .map(|(_, host)| host)
            .last();
        let host = named.unwrap_or(host);
        if host.starts_with('/') || host.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("%2f")) {
            return true;
        }
        let name = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
            Some((v6, _)) => v6,
            None => host.split(':').next().unwrap_or_default(),
        };
        let loopback = name.parse::<IpAddr>().map(|address| address.is_loopback());
        loopback.unwrap_or_else(|_| name.eq_ignore_ascii_case("localhost"))
    }
}

/// The parameters after the question mark.
fn parameters(rest: &str) -> impl Iterator<Item = (&str, &str)> {
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    query.split('&').filter_map(|pair| pair.split_once('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_with_passwords_and_unverified_servers_are_refused() {
        use DatabaseUrlError::{Hosts, Password, Scheme, Unverified};
        for (text, wanted) in [
            ("postgres://spur@db1/spur", Ok(false)),
            ("postgresql://spur@db1:5433/spur?sslmode=verify-full", Ok(false)),
            ("postgres://spur@localhost/spur", Ok(true)),
            ("postgres://spur@127.0.0.1:5433/spur?sslmode=disable", Ok(true)),
            ("postgres://spur@[::1]:5433/spur", Ok(true)),
            ("postgres://spur@%2Frun%2Fpostgresql/spur", Ok(true)),
            ("postgres:///spur?host=/run/postgresql&user=spur", Ok(true)),
            ("postgres://spur@localhost/spur?host=db1", Ok(false)),
            ("postgres://spur:secret@db1/spur", Err(Password)),
            ("postgres://spur:se@cret/x@db1/spur", Err(Password)),
            ("postgres://spur:se/cret@db1/spur", Err(Password)),
            ("postgres://spur@db1/spur?password=secret", Err(Password)),
            ("postgres://spur@db1,db2/spur", Err(Hosts)),
            ("postgres://spur@db1/spur?sslmode=require", Err(Unverified)),
            ("mysql://spur@db1/spur", Err(Scheme)),
        ] {
            let read = DatabaseUrl::parse(text);
            assert_eq!(read.as_ref().map(DatabaseUrl::is_local).map_err(|error| *error), wanted, "{text}");
            if let Err(error) = read {
                assert!(!error.to_string().contains("secret"));
            }
        }
    }
}
