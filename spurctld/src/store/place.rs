//! Where a journal is, and whether that place answers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use spur_core::model::config::State;
use spur_core::text::time::Time;

use super::{Database, StoreError};

/// Where a journal and its accounting are.
#[derive(Clone, Debug)]
pub enum Place {
    /// A SQLite database in this file.
    File(PathBuf),
    /// A PostgreSQL database that several controllers share.
    Database {
        /// The database.
        database: Database,
        /// Where clients and nodes reach this controller, with commas between several addresses.
        address: String,
    },
}

impl Place {
    /// The place that a configuration names. `address` is where clients and nodes reach this controller.
    ///
    /// # Errors
    /// A URL that cannot be used.
    pub fn of(state: &State, address: &str) -> Result<Place, StoreError> {
        match state {
            State::Sqlite(path) => Ok(Place::File(path.clone())),
            State::Postgres(state) => {
                Ok(Place::Database { database: Database::new(state)?, address: address.to_owned() })
            }
        }
    }

    /// Where the accounting of this journal is: a file beside the journal's, or the same database.
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

/// Whether a database answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The last statement was answered.
    Well,
    /// The database does not answer, or refuses what it should do. It is asked again until it does.
    Away {
        /// When that was noticed, on the wall's clock.
        since: Time,
        /// What the database or the system said.
        why: Arc<str>,
    },
}
