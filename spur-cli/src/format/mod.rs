//! Printing of records: Slurm's format strings and tables, exact to the character, and JSON.
//!
//! Each kind of record has one table of fields in [`fields`] with letter, long name, header, text and order.
//! A [`spec::Format`] selects columns from such a table, and [`table`] lays them out. Nothing here calls a
//! server, a clock or the environment: all facts besides the record are in [`Show`].

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
