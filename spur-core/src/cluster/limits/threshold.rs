//! The usage threshold of a QOS (`UsageThreshold` with the flag `EnforceUsageThreshold`): jobs wait while the
//! fair-share factor of their association is below the threshold.

use std::fmt;
use std::sync::Arc;

use crate::cluster::{Cluster, Partition};
use crate::model::accounts::Qos;
use crate::model::accounts::qos::QosFlag;
use crate::model::config::AccountingEnforce;
use crate::model::job::JobSpec;

/// A usage threshold that keeps a job waiting.
#[derive(Clone, Debug, PartialEq)]
pub struct BelowThreshold {
    /// The name of the QOS.
    pub qos: Arc<str>,
    /// The threshold of the QOS.
    pub threshold: f64,
    /// The fair-share factor of the job's association, below the threshold.
    pub factor: f64,
}

impl fmt::Display for BelowThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BelowThreshold { qos, threshold, factor } = self;
        write!(
            f,
            "UsageThreshold={threshold:.6} of QOS {qos}: the fair-share factor of the job is {factor:.6}"
        )
    }
}

impl Qos {
    /// The fair-share factor below which jobs of the QOS wait; `None` if none is enforced.
    #[must_use]
    pub fn enforced_threshold(&self) -> Option<f64> {
        self.usage_threshold.filter(|_| self.flags.contains(&QosFlag::EnforceUsageThreshold))
    }
}

impl Cluster {
    /// The usage threshold, of the QOS of the partition or of the job, that keeps a job waiting in a
    /// partition; `None` if there is none, or if limits are not enforced.
    #[must_use]
    pub fn below_threshold(&self, spec: &JobSpec, partition: &Partition) -> Option<BelowThreshold> {
        if !self.enforces(AccountingEnforce::Limits) {
            return None;
        }
        let charged = self.charged(spec, partition);
        let numbers = charged.partition_qos.into_iter().chain(charged.qos);
        let all = numbers.filter_map(|number| self.accounts().qos_numbered(number));
        let mut enforced = all.filter_map(|qos| Some((qos, qos.enforced_threshold()?))).peekable();
        enforced.peek()?;
        let factor = self.fair_shares().factor(&self.own_holder_of(charged, spec));
        let (qos, threshold) = enforced.find(|(_, threshold)| factor < *threshold)?;
        Some(BelowThreshold { qos: Arc::clone(&qos.name), threshold, factor })
    }
}
