//! What an operator has set for a job, and which limits the job is exempt from for that.

use serde::{Deserialize, Serialize};

use super::accounts::LimitKind;
use crate::text::tres::TresKind;

/// A part of a request that an operator has set: limits of it do not hold for the job, as in Slurm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Exempt {
    /// The time limit.
    Time,
    /// The number of nodes.
    Nodes,
    /// The number of CPUs.
    Cpus,
    /// The memory.
    Memory,
    /// Devices.
    Gres,
    /// Licences.
    Licenses,
}

impl Exempt {
    /// Whether a limit does not hold for the job.
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
