//! Licenses, for `scontrol show licenses`.

use std::collections::BTreeMap;

use spur_core::cluster::Cluster;
use spur_core::text::time::Time;

use super::narrow;
use crate::v1;

/// Encodes all licenses by name, at `now`; jobs hold theirs until they have ended.
pub fn render_all(cluster: &Cluster, now: Time) -> Vec<v1::License> {
    let extras = cluster.jobs().licensed().filter_map(|job| job.spec.extra.as_ref());
    let used = sums(extras.flat_map(|extra| &extra.licenses));
    let active = cluster.reservations().filter(|reservation| reservation.is_active(now));
    let reserved = sums(active.flat_map(|reservation| &reservation.licenses));
    let of = |sums: &BTreeMap<&str, u64>, name: &str| narrow(sums.get(name).copied().unwrap_or(0));
    let mut licenses: Vec<v1::License> = cluster
        .policy()
        .licenses
        .iter()
        .map(|(name, total)| v1::License {
            name: name.to_string(),
            total: *total,
            used: of(&used, name),
            reserved: of(&reserved, name),
        })
        .collect();
    licenses.sort_by(|one, other| one.name.cmp(&other.name));
    licenses
}

/// Adds up the counts of each license.
fn sums<'a>(counts: impl Iterator<Item = &'a (Box<str>, u32)>) -> BTreeMap<&'a str, u64> {
    let mut sums = BTreeMap::new();
    for (name, count) in counts {
        *sums.entry(&**name).or_default() += u64::from(*count);
    }
    sums
}
