//! The place of a journal, and the condition of its database.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use spur_core::model::config::State;
use spur_core::text::time::Time;

use super::{Database, StoreError};

/// The place of a journal and its accounting.
#[derive(Clone, Debug)]
pub enum Place {
    /// A SQLite database in this file.
    File(PathBuf),
    /// A PostgreSQL database that several controllers share.
    Database {
        /// The database.
        database: Database,
        /// Address at which clients and nodes reach this controller; several are separated by commas.
        address: String,
    },
}

impl Place {
    /// Returns the place that a configuration names. `address` is where clients and nodes reach this
    /// controller.
    ///
    /// # Errors
    /// Fails if the URL is not valid.
    pub fn of(state: &State, address: &str) -> Result<Place, StoreError> {
        match state {
            State::Sqlite(path) => Ok(Place::File(path.clone())),
            State::Postgres(state) => {
                Ok(Place::Database { database: Database::new(state)?, address: address.to_owned() })
            }
        }
    }

    /// Returns the place of the journal's accounting: a file beside the journal's, or the same database.
    #[must_use]
    pub fn accounting(&self) -> Place {
        match self {
            Place::File(path) => Place::File(path.with_file_name("acct.db")),
            database => database.clone(),
        }
    }
}

impl From<&Path> for Place {
    fn from(path: &Path) -> Self {
        Place::File(path.to_owned())
    }
}

impl From<&PathBuf> for Place {
    fn from(path: &PathBuf) -> Self {
        Place::File(path.clone())
    }
}

impl From<&Place> for Place {
    fn from(place: &Place) -> Self {
        place.clone()
    }
}

/// The condition of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The database answered the last statement.
    Well,
    /// The database does not answer, or refuses statements that it should accept. It is asked again until it
    /// answers.
    Away {
        /// Time of the first failure, on the wall's clock.
        since: Time,
        /// The error of the database or the system.
        why: Arc<str>,
    },
}
