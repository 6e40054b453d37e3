//! The key `accounting_storage_enforce`.

use serde::{Deserialize, Serialize};

use super::JobPolicy;

/// Parts of the policy tree that are enforced, and records that are left out (`accounting_storage_enforce`),
/// with Slurm's names. `qos`, `limits`, `safe` and `wckeys` imply `associations`, `safe` implies `limits`,
/// and `nojobs` implies `nosteps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccountingEnforce {
    /// A job needs an association.
    Associations,
    /// A job needs a QOS of its association.
    Qos,
    /// Jobs stay within the limits of associations and QOS.
    Limits,
    /// A job starts only if it can run to its time limit within the budgets of TRES-minutes.
    Safe,
    /// Accounting records no steps.
    NoSteps,
    /// Accounting records no jobs.
    NoJobs,
    /// A job needs a wckey of its user.
    Wckeys,
}

impl JobPolicy {
    /// True if a part of the policy tree is enforced, or if records are left out.
    #[must_use]
    pub fn enforces(&self, part: AccountingEnforce) -> bool {
        match part {
            AccountingEnforce::Associations => {
                self.accounting_enforce.contains(&part)
                    || self.enforces(AccountingEnforce::Limits)
                    || self.enforces(AccountingEnforce::Qos)
                    || self.enforces(AccountingEnforce::Wckeys)
            }
            AccountingEnforce::Limits => {
                self.accounting_enforce.contains(&part) || self.enforces(AccountingEnforce::Safe)
            }
            AccountingEnforce::NoSteps => {
                self.accounting_enforce.contains(&part) || self.enforces(AccountingEnforce::NoJobs)
            }
            AccountingEnforce::Qos
            | AccountingEnforce::Safe
            | AccountingEnforce::NoJobs
            | AccountingEnforce::Wckeys => self.accounting_enforce.contains(&part),
        }
    }

    /// True if each job has a wckey: with `track_wckey`, and where wckeys are enforced.
    #[must_use]
    pub fn tracks_wckeys(&self) -> bool {
        self.track_wckey || self.enforces(AccountingEnforce::Wckeys)
    }
}
