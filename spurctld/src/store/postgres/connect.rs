//! Connections: choice of the server, authentication, and checks before the database is trusted.

use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use spur_core::model::config::PostgresState;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{ConnectOptions, Connection, Row};

use super::{StoreError, failed, timed_out};

/// Longest time to establish a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Longest duration of a statement that reads or writes a bounded number of rows.
pub(super) const STATEMENT_LIMIT: Duration = Duration::from_secs(3);
/// Longest wait of a session for a lock: less than a statement may take, so that the session survives the
/// wait.
const LOCK_TIMEOUT: &str = "2s";
/// The oldest supported version of PostgreSQL, as `server_version_num`.
const OLDEST_VERSION: i32 = 130_000;

/// A PostgreSQL database on one of several servers. Clones share the knowledge about the servers.
#[derive(Clone)]
pub struct Database {
    inner: Arc<Inner>,
}

struct Inner {
    servers: Vec<Server>,
    password_file: Option<PathBuf>,
    lease: Duration,
    /// Index of the server of the last connection.
    current: AtomicUsize,
    /// Number of the server whose settings were checked last, from 1; 0 for none.
    checked: AtomicUsize,
}

struct Server {
    options: PgConnectOptions,
    /// The URL, which contains no password.
    place: PathBuf,
}

impl fmt::Debug for Database {
    /// Shows the URLs only: the options may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.inner.servers.iter().map(|server| &server.place)).finish()
    }
}

impl Database {
    /// Returns the database of a configuration, without connecting.
    ///
    /// # Errors
    /// Fails if a URL is not valid.
    pub fn new(state: &PostgresState) -> Result<Self, StoreError> {
        let mut servers = Vec::new();
        for url in &state.urls {
            let place = PathBuf::from(url.as_str());
            let options = PgConnectOptions::from_str(url.as_str());
            let mut options = options.map_err(|error| failed("use the URL", &place, error))?;
            if !url.is_local() {
                options = options.ssl_mode(PgSslMode::VerifyFull);
            } else if !url.has_mode() {
                options = options.ssl_mode(PgSslMode::Disable);
            }
            options = options
                .application_name("spurctld")
                .options([
                    ("search_path", "spur"),
                    ("synchronous_commit", "on"),
                    ("lock_timeout", LOCK_TIMEOUT),
                    ("statement_timeout", "0"),
                    ("default_transaction_isolation", "read committed"),
                    ("default_transaction_read_only", "off"),
                    // Ends the backend of a controller that is gone.
                    ("tcp_keepalives_idle", "5"),
                    ("tcp_keepalives_interval", "2"),
                    ("tcp_keepalives_count", "3"),
                ])
                .disable_statement_logging();
            servers.push(Server { options, place });
        }
        let inner = Inner {
            servers,
            password_file: state.password_file.clone(),
            lease: Duration::from_secs(state.lease.0),
            current: AtomicUsize::new(0),
            checked: AtomicUsize::new(0),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the time for which a lease lasts without renewal.
    pub(super) fn lease(&self) -> Duration {
        self.inner.lease
    }

    /// Returns the URL of the server of the last connection.
    pub(super) fn place(&self) -> &Path {
        &self.inner.servers[self.inner.current.load(Ordering::Relaxed)].place
    }

    /// Requires a check of the settings at the next connection to any server.
    pub(super) fn check_anew(&self) {
        self.inner.checked.store(0, Ordering::Relaxed);
    }

    /// Connects to the first server that is not in recovery; tries the one of before first.
    pub(super) async fn connect(&self) -> Result<PgConnection, StoreError> {
        let (count, current) = (self.inner.servers.len(), self.inner.current.load(Ordering::Relaxed));
        let mut first_error = None;
        for number in (current..count).chain(0..current) {
            let server = &self.inner.servers[number];
            match limited_by(CONNECT_LIMIT, self.connect_to(server)).await {
                Ok(mut connection) => {
                    self.inner.current.store(number, Ordering::Relaxed);
                    match self.check(&mut connection, number).await {
                        Ok(()) => return Ok(connection),
                        Err(error) => drop(first_error.get_or_insert(error)),
                    }
                }
                Err(error) => {
                    let error = match error {
                        Trouble::Password(error) => error,
                        Trouble::Sql(error) => failed("connect to", &server.place, error),
                    };
                    first_error.get_or_insert(error);
                }
            }
        }
        Err(first_error.unwrap_or(StoreError::Stopped))
    }

    /// Returns the connection options of the last server, with the password.
    pub(super) async fn options(&self) -> Result<PgConnectOptions, StoreError> {
        self.options_of(&self.inner.servers[self.inner.current.load(Ordering::Relaxed)]).await
    }

    async fn options_of(&self, server: &Server) -> Result<PgConnectOptions, StoreError> {
        let options = server.options.clone();
        let Some(path) = &self.inner.password_file else { return Ok(options) };
        // Read each time: a site may change the password while the controller runs.
        let text = tokio::fs::read_to_string(path).await;
        let text = text.map_err(|error| StoreError::io("read", path, error))?;
        Ok(options.password(text.lines().next().unwrap_or_default()))
    }

    async fn connect_to(&self, server: &Server) -> Result<PgConnection, Trouble> {
        let options = self.options_of(server).await.map_err(Trouble::Password)?;
        let mut connection = options.connect().await?;
        let row = sqlx::query("SELECT pg_is_in_recovery()").fetch_one(&mut connection).await?;
        if row.try_get(0)? {
            let _ = connection.close().await;
            let standby = std::io::Error::other("this server is in recovery: it is a replica");
            return Err(sqlx::Error::Io(standby).into());
        }
        Ok(connection)
    }

    /// Refuses a server that can lose acknowledged commits in a crash, and warns of one that can lose them
    /// in a failover. The server that was checked last is not checked again.
    async fn check(&self, connection: &mut PgConnection, server: usize) -> Result<(), StoreError> {
        if self.inner.checked.load(Ordering::Relaxed) == server + 1 {
            return Ok(());
        }
        // An ordinary role can read the number of replicas, but not whether they are synchronous.
        let read = "SELECT current_setting('server_version_num')::int, current_setting('server_version'),
                           current_setting('fsync'), current_setting('full_page_writes'),
                           (SELECT count(*) FROM pg_stat_replication),
                           current_setting('synchronous_standby_names')";
        let place = self.place().to_owned();
        let row = limited(sqlx::query(read).fetch_one(connection)).await;
        let read = row.and_then(|row| {
            let settings: [String; 2] = [row.try_get(2)?, row.try_get(3)?];
            Ok((
                row.try_get(0)?,
                row.try_get::<String, _>(1)?,
                settings,
                row.try_get::<i64, _>(4)?,
                row.try_get::<String, _>(5)?,
            ))
        });
        let (number, version, settings, replicas, synchronous): (i32, _, _, _, _) =
            read.map_err(|error| failed("read the settings of", &place, error))?;
        if number < OLDEST_VERSION {
            return Err(StoreError::Unsafe {
                path: place,
                what: format!("it is PostgreSQL {version}, and 13 is the oldest that works"),
            });
        }
        for (name, value) in ["fsync", "full_page_writes"].iter().zip(&settings) {
            if value == "off" {
                let what = format!(
                    "{name} is off, so a crash of the server can lose what it has acknowledged; set {name} = on"
                );
                return Err(StoreError::Unsafe { path: place, what });
            }
        }
        if replicas > 0 && synchronous.is_empty() {
            tracing::warn!(
                replicas,
                "no replica of the database is synchronous: a failover of the database can lose acknowledged jobs"
            );
        }
        self.inner.checked.store(server + 1, Ordering::Relaxed);
        Ok(())
    }
}

/// The reason why there is no connection.
enum Trouble {
    Password(StoreError),
    Sql(sqlx::Error),
}

impl From<sqlx::Error> for Trouble {
    fn from(error: sqlx::Error) -> Self {
        Trouble::Sql(error)
    }
}

/// Runs `work` with the time limit of a statement.
pub(super) async fn limited<T>(work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    limited_by(STATEMENT_LIMIT, work).await
}

/// Runs `work` with a time limit.
pub(super) async fn limited_by<T, E: From<sqlx::Error>>(
    limit: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(timed_out().into()))
}
