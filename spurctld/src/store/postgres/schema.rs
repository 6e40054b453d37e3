//! The versions of the schema. A released migration is never edited: a new one is added. The table `oldest`
//! has the same meaning as in SQLite, see [`sqlite::schema`](crate::store::sqlite).

use spur_core::cluster::FeatureLevel;
use sqlx::postgres::PgConnection;
use sqlx::{Connection, Executor, Row};

use super::connect::{Database, limited};
use super::{StoreError, failed, from_sql};

/// The statements that lead from each version to the next, version 1 first.
const VERSIONS: &[&str] = &[include_str!("migrations/0001_initial.sql")];
/// Number of the advisory lock under which controllers that start together migrate the schema one after
/// another.
const LOCK: i64 = 0x5350_5552;

/// Migrates the schema to the newest version, in one transaction. A newer schema is refused and left as it
/// is.
pub(super) async fn migrate(connection: &mut PgConnection, database: &Database) -> Result<(), StoreError> {
    let place = database.place().to_owned();
    let found = limited(migrated(connection)).await;
    let found = found.map_err(|error| failed("bring the schema up to date in", &place, error))?;
    let known = i64::try_from(VERSIONS.len()).expect("a handful of versions");
    if found <= known {
        return Ok(());
    }
    let oldest = limited(oldest(connection)).await;
    let oldest = oldest.map_err(|error| failed("read the schema of", &place, error))?;
    match oldest.is_some_and(|oldest| oldest <= i64::from(FeatureLevel::NEWEST.0)) {
        true => Ok(()),
        false => Err(StoreError::NewerSchema { path: place, found, known, oldest }),
    }
}

/// Returns the lowest feature level that a program must know to use the schema, if the schema names it.
async fn oldest(connection: &mut PgConnection) -> Result<Option<i64>, sqlx::Error> {
    let there = "SELECT to_regclass('spur.oldest') IS NOT NULL";
    if !sqlx::query(there).fetch_one(&mut *connection).await?.try_get::<bool, _>(0)? {
        return Ok(None);
    }
    sqlx::query("SELECT max(level) FROM spur.oldest").fetch_one(connection).await?.try_get(0)
}

/// Returns the version that was found, or the newest one after a migration.
async fn migrated(connection: &mut PgConnection) -> Result<i64, sqlx::Error> {
    if let Some(found) = version(connection).await?
        && from_sql(found) >= VERSIONS.len() as u64
    {
        return Ok(found);
    }
    let mut transaction = connection.begin().await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(LOCK).execute(&mut *transaction).await?;
    transaction.execute("CREATE SCHEMA IF NOT EXISTS spur").await?;
    transaction.execute("CREATE TABLE IF NOT EXISTS schema_version (version bigint NOT NULL)").await?;
    let row = sqlx::query("SELECT max(version) FROM schema_version").fetch_one(&mut *transaction).await?;
    let found: i64 = row.try_get::<Option<i64>, _>(0)?.unwrap_or(0);
    for (number, sql) in (1_i64..).zip(VERSIONS) {
        if number > found {
            transaction.execute(*sql).await?;
            let insert = sqlx::query("INSERT INTO schema_version (version) VALUES ($1)").bind(number);
            insert.execute(&mut *transaction).await?;
        }
    }
    transaction.commit().await?;
    Ok(found.max(i64::try_from(VERSIONS.len()).expect("a handful of versions")))
}

/// Returns the version of the schema, if there is one.
async fn version(connection: &mut PgConnection) -> Result<Option<i64>, sqlx::Error> {
    let there = "SELECT to_regclass('spur.schema_version') IS NOT NULL";
    if !sqlx::query(there).fetch_one(&mut *connection).await?.try_get::<bool, _>(0)? {
        return Ok(None);
    }
    sqlx::query("SELECT max(version) FROM schema_version").fetch_one(connection).await?.try_get(0)
}
