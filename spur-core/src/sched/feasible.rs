//! Whether a request can ever be honoured by the cluster as it is configured, whatever is free or down now.

use crate::cluster::Cluster;
use crate::model::job::JobSpec;

/// Why a request can never be honoured, and the nearest one that can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which limit it hits.
    pub kind: RefusalKind,
    /// The sentence for people.
    pub message: String,
}

/// The kind of limit that a request hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// More or fewer nodes than there can be.
    NodeCount,
    /// More time than allowed.
    TimeLimit,
    /// CPUs, memory, devices or features that no node has.
    NodeConfig,
    /// What the topology cannot hold.
    Topology,
    /// A node that is not there.
    NodeName,
}

/// Judges a request with its defaults filled in; the answer is what its user should know.
///
/// # Errors
/// The limit it hits, and what would work.
pub fn check(cluster: &Cluster, spec: &JobSpec) -> Result<Vec<String>, Refusal> {
    let _ = (cluster, spec);
    Ok(Vec::new())
}
