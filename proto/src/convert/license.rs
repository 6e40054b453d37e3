//! Licenses as `scontrol show licenses` reads them.

use std::collections::BTreeMap;

use spur_core::cluster::Cluster;

use super::narrow;
use crate::v1;

/// All licenses that there are, by name; jobs have theirs until they have ended.
pub fn render_all(cluster: &Cluster) -> Vec<v1::License> {
    let mut used: BTreeMap<&str, u64> = BTreeMap::new();
    let extras = cluster.jobs().active().filter_map(|job| job.spec.extra.as_ref());
    for (name, count) in extras.flat_map(|extra| &extra.licenses) {
        *used.entry(name).or_default() += u64::from(*count);
    }
    let mut licenses: Vec<v1::License> = cluster
        .policy()
        .licenses
        .iter()
        .map(|(name, total)| v1::License {
            name: name.to_string(),
            total: *total,
            used: narrow(used.get(&**name).copied().unwrap_or(0)),
        })
        .collect();
    licenses.sort_by(|one, other| one.name.cmp(&other.name));
    licenses
}
