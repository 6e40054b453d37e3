//! The configuration: the policy of the controller, and the settings of this host.
//!
//! [`Config::parse`] reads one file. Every mistake is reported at once, with file, line and key; nothing that
//! was written is ignored. `etc/spur.toml` documents every key with its default.

pub mod edit;
mod enforce;
mod error;
mod limit;
mod local;
pub mod merge;
mod parse;
mod partition;
mod policy;
mod priority_flag;
mod propagated;
mod qos;
mod reset_period;
mod specialized;
mod state;
#[cfg(test)]
mod tests;
mod warnings;

pub use enforce::AccountingEnforce;
pub use error::{ConfigError, ConfigErrors};
pub use limit::Limit;
pub use local::*;
pub use partition::{Oversubscribe, PartitionConfig, PartitionState};
pub use policy::*;
pub use priority_flag::PriorityFlag;
pub use propagated::{RESOURCE_LIMITS, resource_limit};
pub use qos::QosConfig;
pub use reset_period::ResetPeriod;
pub use state::{DatabaseUrl, DatabaseUrlError, PostgresState, State};

/// One configuration file, read and checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// The policy by which the controller decides; journalled when it changes.
    pub policy: Policy,
    /// Addresses, paths and keys of this host; never journalled.
    pub local: Local,
}

impl Config {
    /// The file that is read unless another one is named.
    pub const DEFAULT_FILE: &'static str = "/etc/spur/spur.toml";

    /// Reads the text of a configuration file; errors name it `file_name`.
    ///
    /// # Errors
    /// Every mistake in the text, in the order of its lines.
    pub fn parse(text: &str, file_name: &str) -> Result<Config, ConfigErrors> {
        parse::config(text).map_err(|errors| ConfigErrors::new(file_name, errors))
    }
}
