//! Slurm's reason words for limits that keep jobs waiting. Their forms are not regular.

use std::sync::LazyLock;

use crate::model::accounts::LimitKind;
use crate::model::reason::Reason;
use crate::text::tres::TresKind;

/// Number of columns of [`REASONS`] for one kind of limit: for no resource and for each class of resources.
const CLASSES: usize = 7;

/// The reasons by kind of limit, class of resource, and owner (association, QOS). A pass needs the reason of
/// every job that a limit stops, and building the word costs more than judging the job.
static REASONS: LazyLock<Vec<[[Reason; 2]; CLASSES]>> = LazyLock::new(|| {
    let gres = TresKind::Gres { name: String::new(), kind: None };
    let license = TresKind::License(String::new());
    let resources = [TresKind::Cpu, TresKind::Mem, TresKind::Node, TresKind::Billing, gres, license];
    let of_kind = |kind: &LimitKind| {
        let mut reasons = [[Reason::None; 2]; CLASSES];
        for tres in std::iter::once(None).chain(resources.iter().map(Some)) {
            reasons[class(tres)] = [false, true].map(|of_qos| spelled(*kind, tres, of_qos));
        }
        reasons
    };
    LimitKind::ALL.iter().map(of_kind).collect()
});

/// The reason of a job that a limit of a QOS or an association stops; the default reason if Slurm has no
/// word.
#[must_use]
pub fn reason(kind: LimitKind, tres: Option<&TresKind>, of_qos: bool) -> Reason {
    REASONS[kind as usize][class(tres)][usize::from(of_qos)]
}

/// The column of a resource in [`REASONS`].
fn class(tres: Option<&TresKind>) -> usize {
    match tres {
        None => 0,
        Some(TresKind::Cpu) => 1,
        Some(TresKind::Mem) => 2,
        Some(TresKind::Node) => 3,
        Some(TresKind::Billing) => 4,
        Some(TresKind::Gres { .. }) => 5,
        Some(TresKind::License(_)) => 6,
    }
}

/// The reason whose word is that of the limit; the default reason if Slurm has no word.
fn spelled(kind: LimitKind, tres: Option<&TresKind>, of_qos: bool) -> Reason {
    let word = tres.map_or_else(|| counts(kind, of_qos), |tres| amounts(kind, tres, of_qos));
    Reason::named(&word).unwrap_or_default()
}

/// The word for a limit of jobs or of time; empty if Slurm has none.
fn counts(kind: LimitKind, of_qos: bool) -> String {
    let owner = owner(of_qos);
    match kind {
        LimitKind::GrpJobs => format!("{owner}GrpJobsLimit"),
        LimitKind::GrpSubmitJobs => format!("{owner}GrpSubmitJobsLimit"),
        LimitKind::GrpWall => format!("{owner}GrpWallLimit"),
        LimitKind::MaxWall => format!("{owner}MaxWallDurationPerJobLimit"),
        LimitKind::MaxJobs => "AssocMaxJobsLimit".to_owned(),
        LimitKind::MaxSubmitJobs => "AssocMaxSubmitJobLimit".to_owned(),
        LimitKind::MaxJobsPerUser => "QOSMaxJobsPerUserLimit".to_owned(),
        LimitKind::MaxSubmitJobsPerUser => "QOSMaxSubmitJobPerUserLimit".to_owned(),
        LimitKind::MaxJobsPerAccount => "MaxJobsPerAccount".to_owned(),
        LimitKind::MaxSubmitJobsPerAccount => "MaxSubmitJobsPerAccount".to_owned(),
        _ => String::new(),
    }
}

/// The word for a limit of one resource; empty if Slurm has none. Memory is `Mem` in words of associations.
fn amounts(kind: LimitKind, tres: &TresKind, of_qos: bool) -> String {
    let owner = owner(of_qos);
    let long = match tres {
        TresKind::Cpu => "Cpu",
        TresKind::Mem => "Memory",
        TresKind::Node => "Node",
        TresKind::Billing => "Billing",
        TresKind::Gres { .. } => "GRES",
        TresKind::License(_) => "License",
    };
    let name = if *tres == TresKind::Mem && !of_qos { "Mem" } else { long };
    let is_cpu = *tres == TresKind::Cpu;
    let is_node = *tres == TresKind::Node;
    // Words of CPUs, and some of nodes, end in `Limit`; the others do not.
    let limit = if is_cpu || is_node { "Limit" } else { "" };
    match kind {
        LimitKind::GrpTres if *tres == TresKind::Mem => format!("{owner}GrpMemLimit"),
        LimitKind::GrpTres => format!("{owner}Grp{name}{limit}"),
        LimitKind::GrpTresMins if is_cpu => format!("{owner}GrpCPUMinutesLimit"),
        LimitKind::GrpTresMins => format!("{owner}Grp{name}Minutes"),
        LimitKind::GrpTresRunMins if is_cpu => format!("{owner}GrpCPURunMinutesLimit"),
        LimitKind::GrpTresRunMins => format!("{owner}Grp{name}RunMinutes"),
        LimitKind::MaxTres => format!("{owner}Max{name}PerJob{limit}"),
        LimitKind::MaxTresPerNode => format!("{owner}Max{name}PerNode"),
        LimitKind::MaxTresMins if is_cpu => format!("{owner}MaxCpuMinutesPerJobLimit"),
        LimitKind::MaxTresMins => format!("{owner}Max{name}MinutesPerJob"),
        LimitKind::MaxTresPerUser => format!("QOSMax{name}PerUser{limit}"),
        LimitKind::MinTres if is_cpu => "QOSMinCpuNotSatisfied".to_owned(),
        LimitKind::MinTres => format!("QOSMin{name}"),
        LimitKind::MaxTresPerAccount => format!("Max{long}PerAccount"),
        LimitKind::MaxTresRunMins => format!("Max{long}RunMinsPerUser"),
        LimitKind::MaxTresRunMinsPerAccount => format!("Max{long}RunMinsPerAccount"),
        _ => String::new(),
    }
}

fn owner(of_qos: bool) -> &'static str {
    if of_qos { "QOS" } else { "Assoc" }
}

#[cfg(test)]
mod tests {
    use super::super::rules::{IN_ASSOCIATIONS, IN_QOS};
    use super::*;
    use crate::model::accounts::limits::Unit;

    #[test]
    fn every_limit_has_its_word() {
        let gpu = TresKind::Gres { name: "gpu".to_owned(), kind: None };
        let license = TresKind::License("matlab".to_owned());
        let all = [TresKind::Cpu, TresKind::Mem, TresKind::Node, TresKind::Billing, gpu, license];
        for (of_qos, kind) in IN_QOS
            .concat()
            .into_iter()
            .map(|kind| (true, kind))
            .chain(IN_ASSOCIATIONS.concat().into_iter().map(|kind| (false, kind)))
        {
            if kind.unit() != Unit::Tres {
                assert_ne!(reason(kind, None, of_qos), Reason::None, "{kind:?} {of_qos}");
                continue;
            }
            for tres in &all {
                let is_nowhere = kind == LimitKind::MaxTresPerNode
                    && matches!(tres, TresKind::Node | TresKind::License(_));
                let said = reason(kind, Some(tres), of_qos);
                assert_eq!(said == Reason::None, is_nowhere, "{kind:?} {tres} {of_qos}");
            }
        }
    }

    #[test]
    fn words_are_slurms() {
        let gpu = TresKind::Gres { name: "gpu".to_owned(), kind: Some("a100".to_owned()) };
        for (kind, tres, of_qos, word) in [
            (LimitKind::GrpTresMins, Some(TresKind::Cpu), true, "QOSGrpCPUMinutesLimit"),
            (LimitKind::GrpTresMins, Some(TresKind::Mem), true, "QOSGrpMemoryMinutes"),
            (LimitKind::GrpTresMins, Some(TresKind::Mem), false, "AssocGrpMemMinutes"),
            (LimitKind::GrpTres, Some(TresKind::Mem), true, "QOSGrpMemLimit"),
            (LimitKind::GrpTres, Some(gpu), false, "AssocGrpGRES"),
            (LimitKind::MaxTres, Some(TresKind::Cpu), true, "QOSMaxCpuPerJobLimit"),
            (LimitKind::MaxTresPerUser, Some(TresKind::Node), true, "QOSMaxNodePerUserLimit"),
            (LimitKind::MaxTresPerAccount, Some(TresKind::Cpu), true, "MaxCpuPerAccount"),
            (LimitKind::MaxJobs, None, false, "AssocMaxJobsLimit"),
            (LimitKind::MaxSubmitJobsPerAccount, None, true, "MaxSubmitJobsPerAccount"),
        ] {
            assert_eq!(reason(kind, tres.as_ref(), of_qos).name(), word);
        }
    }
}
