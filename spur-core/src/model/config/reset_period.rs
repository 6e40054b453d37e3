//! The periods after which usage is reset.

use serde::{Deserialize, Serialize};

/// The period after which usage is set to zero (`[scheduler] priority_usage_reset_period`), at midnight in
/// the cluster's time zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ResetPeriod {
    /// Usage is never reset.
    #[default]
    None,
    /// Usage is reset every day.
    Daily,
    /// Usage is reset every Sunday.
    Weekly,
    /// Usage is reset on the first day of every month.
    Monthly,
    /// Usage is reset on the first day of every quarter.
    Quarterly,
    /// Usage is reset on the first day of every year.
    Yearly,
}
