//! Small languages that users write: on command lines, in job scripts and in the configuration.
//!
//! Every type of this module has one canonical spelling. `Display` prints it, and `FromStr` reads it back to
//! an equal value. `FromStr` also accepts the other spellings that Slurm accepts. A text that cannot be
//! honoured is refused with a [`ParseError`], which quotes the text and names an accepted form. Types
//! serialize as that same text unless their documentation says otherwise.

pub mod address;
pub mod array;
pub mod clique;
pub mod cpubind;
pub mod dependency;
mod error;
pub mod exit;
pub mod features;
pub mod gather;
pub mod gpubind;
pub mod gres;
pub mod hostlist;
pub mod jobid;
pub mod length;
pub mod license;
pub mod login;
pub mod mail;
pub mod membind;
pub mod memory;
pub mod multiprog;
pub mod nearest;
pub mod nodes;
mod number;
pub mod oom;
pub mod pattern;
pub mod place;
pub mod sampling;
pub mod score;
pub mod signal;
pub mod time;
pub mod tres;
pub mod weights;

pub use error::ParseError;

/// Implements serde for a type through its text: serializes with `Display` and deserializes with `FromStr`.
macro_rules! serde_as_text {
    ($($type:ty),+ $(,)?) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}
pub(crate) use serde_as_text;

#[cfg(test)]
mod tests;
