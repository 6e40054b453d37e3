//! The lines with which usage is imported.

use std::sync::Arc;

use super::Word;
use crate::text::tres::Tres;

/// The usage of an association that another batch system counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UsageLine {
    /// The account of the association.
    pub account: Arc<str>,
    /// The user of the association; `None` for that of the account itself.
    pub user: Option<Arc<str>>,
    /// The partition of the association; `None` for all partitions.
    pub partition: Option<Arc<str>>,
    /// Billing times seconds (`RawUsage=`).
    pub billing: u64,
    /// Resources times minutes (`GrpTRESRaw=`).
    pub tres: Tres,
}

impl UsageLine {
    /// Reads the settings of a line.
    ///
    /// # Errors
    /// A setting that is unknown or is not a number.
    pub fn of_words(account: Arc<str>, user: &str, words: &[Word]) -> Result<UsageLine, String> {
        let user = Some(Arc::from(user)).filter(|_| !user.is_empty());
        let mut line = UsageLine { account, user, ..UsageLine::default() };
        for word in words {
            let value = word.value.as_str();
            if word.is("rawusage", 8) {
                let billing = value.parse().map_err(|_| format!(" Bad RawUsage value: {value}"))?;
                line.billing = billing;
            } else if word.is("grptresraw", 10) {
                line.tres = value.parse().map_err(|error| format!(" {error}"))?;
            } else if word.is("partition", 9) {
                line.partition = Some(value.into()).filter(|_| !value.is_empty());
            } else {
                return Err(format!(" Unknown option: {}={value}", word.key));
            }
        }
        Ok(line)
    }
}
