//! Versioned schemas of the SQLite databases. A released migration is never edited: a change is a new
//! migration.
//!
//! A migration that programs of the level before can still use says so in the table `oldest`, whose column
//! `level` has the lowest feature level that a program must know to use the schema. Such a program opens a
//! schema that is newer than its own.

use std::borrow::Cow;
use std::path::Path;

use spur_core::cluster::FeatureLevel;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::sqlite::SqliteConnection;
use sqlx::{Row, SqlSafeStr};

use super::{StoreError, failed};

/// Migrations of one database as pairs of name and statements, version 1 first.
pub(super) type Versions = &'static [(&'static str, &'static str)];

/// Schema of `spur.db`.
pub(super) const JOURNAL: Versions = &[
    ("initial", include_str!("migrations/journal/0001_initial.sql")),
    ("checksums", include_str!("migrations/journal/0002_checksums.sql")),
];
/// Schema of the accounting database.
pub(super) const ACCOUNTING: Versions = &[
    ("initial", include_str!("migrations/accounting/0001_initial.sql")),
    ("usage", include_str!("migrations/accounting/0002_usage.sql")),
    ("signals and memory", include_str!("migrations/accounting/0003_signals_and_memory.sql")),
    ("who cancelled a step", include_str!("migrations/accounting/0004_step_cancelled_by.sql")),
    ("events of nodes", include_str!("migrations/accounting/0005_node_events.sql")),
];

/// Migrates the database at `path` to the newest version. A database of a newer version is refused and left
/// unchanged.
pub(super) async fn migrate(
    conn: &mut SqliteConnection,
    path: &Path,
    versions: Versions,
) -> Result<(), StoreError> {
    let known = i64::try_from(versions.len()).expect("a handful of versions");
    let migrations = (1..).zip(versions).map(|(version, &(name, sql))| {
        Migration::new(version, Cow::Borrowed(name), MigrationType::Simple, sql.into_sql_str(), false)
    });
    match Migrator::with_migrations(migrations.collect()).run(&mut *conn).await {
        Ok(()) => Ok(()),
        Err(MigrateError::VersionMissing(_)) => {
            let found = sqlx::query("SELECT max(version) FROM _sqlx_migrations")
                .fetch_one(&mut *conn)
                .await
                .and_then(|row| row.try_get(0))
                .map_err(|error| failed("read the schema of", path, error))?;
            // A database without the table does not name the programs that can use it.
            let oldest = sqlx::query("SELECT max(level) FROM oldest").fetch_one(conn).await;
            let oldest = oldest.ok().and_then(|row| row.try_get(0).ok());
            match oldest.is_some_and(|oldest: i64| oldest <= i64::from(FeatureLevel::NEWEST.0)) {
                true => Ok(()),
                false => Err(StoreError::NewerSchema { path: path.to_owned(), found, known, oldest }),
            }
        }
        Err(MigrateError::VersionMismatch(version) | MigrateError::Dirty(version)) => Err(
            StoreError::damaged(path, format!("its schema {version} is not the one this program would make")),
        ),
        Err(MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _)) => {
            Err(failed("bring up to date", path, error))
        }
        Err(error) => Err(failed("bring up to date", path, sqlx::Error::Migrate(Box::new(error)))),
    }
}
