//! Exemptions from limits for parts of a request that an operator has set.

use serde::{Deserialize, Serialize};

use super::accounts::LimitKind;
use crate::text::tres::TresKind;

/// A part of a request that an operator has set. As in Slurm, limits on this part do not apply to the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Exempt {
    /// The time limit of the job.
    Time,
    /// The number of nodes.
    Nodes,
    /// The number of CPUs.
    Cpus,
    /// The memory of the job.
    Memory,
    /// The number of devices.
    Gres,
    /// The number of licenses.
    Licenses,
}

impl Exempt {
    /// True if this exemption lifts a limit for the job.
    #[must_use]
    pub fn lifts(self, kind: LimitKind, tres: Option<&TresKind>) -> bool {
        match (self, tres) {
            (Exempt::Time, None) => kind == LimitKind::MaxWall,
            (Exempt::Nodes, Some(TresKind::Node))
            | (Exempt::Cpus, Some(TresKind::Cpu))
            | (Exempt::Memory, Some(TresKind::Mem))
            | (Exempt::Gres, Some(TresKind::Gres { .. }))
            | (Exempt::Licenses, Some(TresKind::License(_))) => true,
            _ => false,
        }
    }
}
