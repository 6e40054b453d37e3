//! Limits that an administrator can raise, and requests that keep them.

use crate::model::config::{Limit, Policy};
use crate::model::job::JobSpec;
use crate::model::reason::Reason;
use crate::sched::inventory::Inventory;
use crate::sched::request::Request;

use super::RefusalKind;
use super::mend::{Offer, Refused};
use super::parameters::Parameter;

/// Checks the time limit of a QOS.
pub(super) fn of_qos(policy: &Policy, spec: &JobSpec) -> Result<(), Refused> {
    let Some(qos) = policy.qos_of(spec.qos.as_deref()) else { return Ok(()) };
    let least = spec.least_time();
    let Some(most) = qos.max_wall.filter(|most| least > *most) else { return Ok(()) };
    let text = format!("time limit {least}: QOS {} allows {most}", qos.name);
    let offer = most.seconds().map(|most| Offer::AtMost(Parameter::Time, most));
    let refused = Refused::new(RefusalKind::TimeLimit, text, offer);
    Err(refused.raised_by(Reason::QOSMaxWallDurationPerJobLimit))
}

/// Checks the limits of a partition.
pub(super) fn of_partition(inventory: &Inventory, index: usize, spec: &JobSpec) -> Result<(), Refused> {
    let config = &inventory.partitions[index].partition.config;
    let Some(limit) = config.limit(spec, inventory.policy.qos_of(spec.qos.as_deref())) else { return Ok(()) };
    let mut text = limit.sentence(config, spec);
    let (kind, offer) = match limit {
        Limit::Qos => {
            match &config.allow_qos[..] {
                [] => text.push_str("; ask for any other, or another partition"),
                allowed => text += &format!("; ask for --qos={}", allowed.join(" or --qos=")),
            }
            (RefusalKind::Qos, None)
        }
        Limit::Account => {
            text.push_str("; ask for one with -A");
            (RefusalKind::Account, None)
        }
        Limit::Time { most } => {
            (RefusalKind::TimeLimit, most.seconds().map(|most| Offer::AtMost(Parameter::Time, most)))
        }
        Limit::MostNodes { most, .. } => {
            let request = inventory.request(index, spec).ok();
            let offer = request.map(|request| Offer::AtMost(node_parameter(&request), most.into()));
            (RefusalKind::NodeCount, offer)
        }
        Limit::FewestNodes { least, .. } => (RefusalKind::NodeCount, Some(Offer::MoreNodes(least))),
        Limit::Memory { most, .. } => (RefusalKind::NodeConfig, Some(Offer::AtMost(Parameter::Memory, most))),
    };
    Err(Refused::new(kind, text, offer).raised_by(limit.reason()))
}

/// The parameter to reduce where a request wants too many nodes.
pub(super) fn node_parameter(request: &Request) -> Parameter {
    if request.slots.is_some() { Parameter::Nodes } else { Parameter::Slots }
}
