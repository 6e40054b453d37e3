//! How records are printed: Slurm's format strings, its tables to the character, and JSON.
//!
//! Each kind of record has one table of fields in [`fields`]: letter, long name, header, how its text is made
//! and how it sorts. A [`spec::Format`] picks columns from such a table; [`table`] lays them out. Nothing here
//! asks a server, a clock or the environment: what a text depends on besides the record is in [`Show`].

mod field;
pub mod fields;
pub mod json;
pub mod report;
mod sort;
mod spec;
pub mod table;
pub mod value;

pub use field::{Asker, Field, Order, Show, Table, Times};
pub use sort::Sort;
pub use spec::{Column, Columns, Format};
