//! Limits and other numbers of associations and QOS, by kind. One table has the names, units and holders of
//! all kinds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::text::tres::{Tres, TresKind};

/// The unit of a limit's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number without unit.
    Count,
    /// Minutes, written as a time limit.
    Minutes,
    /// Amounts of trackable resources, each a limit of its own.
    Tres,
}

/// Declares the kinds of limits: names in `sacctmgr`, unit, and flags for associations, QOS and inheritance.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal [$($other:literal),*] $unit:ident $assoc:literal $qos:literal $inherits:literal;)+) => {
        /// A kind of limit.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum LimitKind {
            $($(#[$doc])* $kind,)+
        }

        impl LimitKind {
            /// All kinds, in the order in which `sacctmgr dump` writes them.
            pub const ALL: &'static [LimitKind] = &[$(LimitKind::$kind,)+];

            /// The name that `sacctmgr` writes.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(LimitKind::$kind => $name,)+ }
            }

            /// Further names that `sacctmgr` reads.
            #[must_use]
            pub fn other_names(self) -> &'static [&'static str] {
                match self { $(LimitKind::$kind => &[$($other),*],)+ }
            }

            /// The unit of the value.
            #[must_use]
            pub fn unit(self) -> Unit {
                match self { $(LimitKind::$kind => Unit::$unit,)+ }
            }

            /// True if associations have this limit.
            #[must_use]
            pub fn is_of_associations(self) -> bool {
                match self { $(LimitKind::$kind => $assoc,)+ }
            }

            /// True if QOS have this limit.
            #[must_use]
            pub fn is_of_qos(self) -> bool {
                match self { $(LimitKind::$kind => $qos,)+ }
            }

            /// True if an association without a value inherits that of the association above.
            #[must_use]
            pub fn inherits(self) -> bool {
                match self { $(LimitKind::$kind => $inherits,)+ }
            }
        }
    };
}

kinds! {
    /// TRES of all running jobs together.
    GrpTres "GrpTRES" [] Tres true true false;
    /// TRES-minutes used, after decay.
    GrpTresMins "GrpTRESMins" [] Tres true true false;
    /// TRES-minutes that running jobs may still use.
    GrpTresRunMins "GrpTRESRunMins" [] Tres true true false;
    /// Number of running jobs.
    GrpJobs "GrpJobs" [] Count true true false;
    /// Number of pending jobs that gain priority by age.
    GrpJobsAccrue "GrpJobsAccrue" [] Count true true false;
    /// Number of pending and running jobs.
    GrpSubmitJobs "GrpSubmitJobs" ["GrpSubmit"] Count true true false;
    /// Wall-clock minutes used, after decay.
    GrpWall "GrpWall" [] Minutes true true false;
    /// TRES-minutes of one job.
    MaxTresMins "MaxTRESMinsPerJob" ["MaxTRESMins"] Tres true true true;
    /// TRES-minutes that running jobs may still use, for each user of an association or of a QOS.
    MaxTresRunMins "MaxTRESRunMins" ["MaxTRESRunMinsPU", "MaxTRESRunMinsPerUser"] Tres true true true;
    /// TRES-minutes that running jobs may still use, for each account in a QOS.
    MaxTresRunMinsPerAccount "MaxTRESRunMinsPerAccount" ["MaxTRESRunMinsPA"] Tres false true false;
    /// TRES of one job.
    MaxTres "MaxTRESPerJob" ["MaxTRES"] Tres true true true;
    /// TRES of one job on each node.
    MaxTresPerNode "MaxTRESPerNode" ["MaxTRESPN"] Tres true true true;
    /// TRES of the running jobs of one user.
    MaxTresPerUser "MaxTRESPerUser" ["MaxTRESPU"] Tres false true false;
    /// TRES of the running jobs of one account.
    MaxTresPerAccount "MaxTRESPerAccount" ["MaxTRESPA"] Tres false true false;
    /// Number of running jobs of an association.
    MaxJobs "MaxJobs" [] Count true false true;
    /// Number of running jobs of one user.
    MaxJobsPerUser "MaxJobsPerUser" ["MaxJobsPU", "MaxJobs"] Count false true false;
    /// Number of running jobs of one account.
    MaxJobsPerAccount "MaxJobsPerAccount" ["MaxJobsPA"] Count false true false;
    /// Number of pending jobs of an association that gain priority by age.
    MaxJobsAccrue "MaxJobsAccrue" [] Count true false true;
    /// Number of pending jobs of one user that gain priority by age.
    MaxJobsAccruePerUser "MaxJobsAccruePerUser" ["MaxJobsAccruePU", "MaxJobsAccrue"] Count false true false;
    /// Number of pending jobs of one account that gain priority by age.
    MaxJobsAccruePerAccount "MaxJobsAccruePerAccount" ["MaxJobsAccruePA"] Count false true false;
    /// Number of pending and running jobs of an association.
    MaxSubmitJobs "MaxSubmitJobs" ["MaxSubmit"] Count true false true;
    /// Number of pending and running jobs of one user.
    MaxSubmitJobsPerUser "MaxSubmitJobsPerUser" ["MaxSubmitJobsPU", "MaxSubmitPU", "MaxSubmitJobs", "MaxSubmit"] Count false true false;
    /// Number of pending and running jobs of one account.
    MaxSubmitJobsPerAccount "MaxSubmitJobsPerAccount" ["MaxSubmitJobsPA", "MaxSubmitPA"] Count false true false;
    /// The time limit of one job in minutes.
    MaxWall "MaxWallDurationPerJob" ["MaxWall"] Minutes true true true;
    /// The smallest amount of TRES that a job must have.
    MinTres "MinTRESPerJob" ["MinTRES"] Tres false true false;
    /// The priority below which backfill keeps no nodes for a waiting job.
    MinPrioThreshold "MinPrioThreshold" [] Count true true true;
    /// The priority of an association, from which its jobs get the association factor.
    Priority "Priority" [] Count true false true;
}

impl LimitKind {
    /// True if the limit counts pending and running jobs, and so refuses submissions.
    #[must_use]
    pub fn counts_submitted(self) -> bool {
        matches!(
            self,
            LimitKind::GrpSubmitJobs
                | LimitKind::MaxSubmitJobs
                | LimitKind::MaxSubmitJobsPerUser
                | LimitKind::MaxSubmitJobsPerAccount
        )
    }

    /// True if the flag `Relative` of a QOS makes the limit a percentage.
    #[must_use]
    pub fn may_be_relative(self) -> bool {
        matches!(
            self,
            LimitKind::GrpTres
                | LimitKind::MaxTres
                | LimitKind::MaxTresPerUser
                | LimitKind::MaxTresPerAccount
                | LimitKind::MinTres
        )
    }

    /// True if the limit counts pending jobs that gain priority by age.
    #[must_use]
    pub fn counts_accruing(self) -> bool {
        matches!(
            self,
            LimitKind::GrpJobsAccrue
                | LimitKind::MaxJobsAccrue
                | LimitKind::MaxJobsAccruePerUser
                | LimitKind::MaxJobsAccruePerAccount
        )
    }

    /// True if the limit counts running jobs, or the resources that they hold.
    #[must_use]
    pub fn counts_running(self) -> bool {
        matches!(
            self,
            LimitKind::GrpTres
                | LimitKind::GrpJobs
                | LimitKind::MaxTresPerUser
                | LimitKind::MaxTresPerAccount
                | LimitKind::MaxJobs
                | LimitKind::MaxJobsPerUser
                | LimitKind::MaxJobsPerAccount
        )
    }

    /// True if the limit counts the amounts that jobs have used, or that running jobs may still use.
    #[must_use]
    pub fn counts_use(self) -> bool {
        self.is_budget()
            || matches!(
                self,
                LimitKind::GrpTresRunMins | LimitKind::MaxTresRunMins | LimitKind::MaxTresRunMinsPerAccount
            )
    }

    /// True if the limit is a budget, which past usage counts against.
    #[must_use]
    pub fn is_budget(self) -> bool {
        matches!(self, LimitKind::GrpTresMins | LimitKind::GrpWall)
    }

    /// True if the limit applies to each job by itself, so that other jobs do not count.
    #[must_use]
    pub fn is_of_one_job(self) -> bool {
        matches!(
            self,
            LimitKind::MaxTres
                | LimitKind::MaxTresPerNode
                | LimitKind::MaxTresMins
                | LimitKind::MaxWall
                | LimitKind::MinTres
        )
    }

    /// True if the limit counts minutes, or resources times minutes.
    #[must_use]
    pub fn is_of_minutes(self) -> bool {
        self.unit() == Unit::Minutes
            || matches!(
                self,
                LimitKind::GrpTresMins
                    | LimitKind::GrpTresRunMins
                    | LimitKind::MaxTresMins
                    | LimitKind::MaxTresRunMins
                    | LimitKind::MaxTresRunMinsPerAccount
            )
    }

    /// The name that `sacctmgr` uses to report a setting.
    #[must_use]
    pub fn short_name(self) -> &'static str {
        match self {
            LimitKind::MaxTres => "MaxTRES",
            LimitKind::MaxTresMins => "MaxTRESMins",
            LimitKind::MaxWall => "MaxWall",
            LimitKind::MinTres => "MinTRES",
            other => other.name(),
        }
    }
}

/// Values by kind of limit. A kind that is absent is not limited; 0 is a limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    numbers: BTreeMap<LimitKind, u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tres: BTreeMap<LimitKind, Tres>,
}

/// A change of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitChange {
    /// The new number; `None` clears the limit.
    Number(Option<u64>),
    /// New amounts of TRES; `None` clears the limit of that TRES. Other TRES keep theirs.
    Tres(Vec<(TresKind, Option<u64>)>),
}

impl Limits {
    /// The number set for a kind: a count, or minutes. `None` if no limit is set.
    #[must_use]
    pub fn number(&self, kind: LimitKind) -> Option<u64> {
        self.numbers.get(&kind).copied()
    }

    /// The amounts of TRES set for a kind; `None` if no limit is set.
    #[must_use]
    pub fn tres(&self, kind: LimitKind) -> Option<&Tres> {
        self.tres.get(&kind)
    }

    /// The budgets that are set: minutes of runs (without a resource), and minutes of each resource. Past
    /// usage counts against budgets.
    pub fn budgets(&self) -> impl Iterator<Item = (Option<&TresKind>, u64)> {
        let wall = self.number(LimitKind::GrpWall).map(|most| (None, most));
        let tres = self.tres(LimitKind::GrpTresMins).into_iter().flat_map(|tres| &tres.0);
        wall.into_iter().chain(tres.map(|(kind, most)| (Some(kind), *most)))
    }

    /// True if a limit on the number of pending jobs that gain priority by age is set.
    #[must_use]
    pub fn limits_accrual(&self) -> bool {
        self.numbers.keys().any(|kind| kind.counts_accruing())
    }

    /// True if no limit is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty() && self.tres.is_empty()
    }

    /// Sets or clears a limit.
    pub fn change(&mut self, kind: LimitKind, change: &LimitChange) {
        match change {
            LimitChange::Number(Some(number)) => drop(self.numbers.insert(kind, *number)),
            LimitChange::Number(None) => drop(self.numbers.remove(&kind)),
            LimitChange::Tres(amounts) => {
                let limit = self.tres.entry(kind).or_default();
                for (tres, amount) in amounts {
                    match amount {
                        Some(amount) => limit.set(tres.clone(), *amount),
                        None => drop(limit.0.remove(tres)),
                    }
                }
                if limit.is_empty() {
                    self.tres.remove(&kind);
                }
            }
        }
    }

    /// Takes over from `above` the inheritable values that are not set here; for TRES, each amount
    /// separately.
    pub fn inherit(&mut self, above: &Limits) {
        for (kind, number) in above.numbers.iter().filter(|(kind, _)| kind.inherits()) {
            self.numbers.entry(*kind).or_insert(*number);
        }
        for (kind, amounts) in above.tres.iter().filter(|(kind, _)| kind.inherits()) {
            let own = self.tres.entry(*kind).or_default();
            for (tres, amount) in &amounts.0 {
                own.0.entry(tres.clone()).or_insert(*amount);
            }
        }
    }

    /// The value of a kind in the format of `sacctmgr dump`; `None` if it is not set.
    #[must_use]
    pub fn text(&self, kind: LimitKind) -> Option<String> {
        match kind.unit() {
            Unit::Count | Unit::Minutes => self.number(kind).map(|number| number.to_string()),
            Unit::Tres => self.tres(kind).map(ToString::to_string),
        }
    }

    /// All values in the format of `sacctmgr dump`.
    pub fn texts(&self) -> impl Iterator<Item = (LimitKind, String)> + '_ {
        LimitKind::ALL.iter().filter_map(|kind| Some((*kind, self.text(*kind)?)))
    }
}

/// The kind with this name, compared without regard to case, among those for which `admit` returns true.
#[must_use]
pub fn kind_named(name: &str, admit: impl Fn(LimitKind) -> bool) -> Option<LimitKind> {
    let is = |kind: &&LimitKind| {
        kind.name().eq_ignore_ascii_case(name)
            || kind.other_names().iter().any(|other| other.eq_ignore_ascii_case(name))
    };
    LimitKind::ALL.iter().filter(|kind| admit(**kind)).find(is).copied()
}

/// A limit that a request names: a kind, and the one resource that the name stands for, as `GrpCPUs` does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLimit {
    /// The kind of the limit.
    pub kind: LimitKind,
    /// The resource; `None` if the value names resources, or counts none.
    pub tres: Option<TresKind>,
}

/// A name of limits that may be cut to its first letters.
struct Cut {
    name: &'static str,
    /// The smallest number of letters.
    least: usize,
    /// The kinds of associations and of QOS, one of each at most.
    kinds: &'static [LimitKind],
    tres: Option<TresKind>,
}

const fn cut(name: &'static str, least: usize, kinds: &'static [LimitKind]) -> Cut {
    Cut { name, least, kinds, tres: None }
}

const fn of(name: &'static str, least: usize, kinds: &'static [LimitKind], tres: TresKind) -> Cut {
    Cut { name, least, kinds, tres: Some(tres) }
}

/// Names that Slurm reads, with the letters that it needs, in the order in which it compares them.
static CUTS: [Cut; 28] = [
    of("GrpCPURunMins", 7, &[LimitKind::GrpTresRunMins], TresKind::Cpu),
    of("GrpCPUMins", 7, &[LimitKind::GrpTresMins], TresKind::Cpu),
    of("GrpCPUs", 7, &[LimitKind::GrpTres], TresKind::Cpu),
    cut("GrpJobs", 4, &[LimitKind::GrpJobs]),
    cut("GrpJobsAccrue", 8, &[LimitKind::GrpJobsAccrue]),
    of("GrpMemory", 4, &[LimitKind::GrpTres], TresKind::Mem),
    of("GrpNodes", 4, &[LimitKind::GrpTres], TresKind::Node),
    cut("GrpSubmitJobs", 4, &[LimitKind::GrpSubmitJobs]),
    cut("GrpTRES", 7, &[LimitKind::GrpTres]),
    cut("GrpTRESMins", 8, &[LimitKind::GrpTresMins]),
    cut("GrpTRESRunMins", 8, &[LimitKind::GrpTresRunMins]),
    cut("GrpWall", 4, &[LimitKind::GrpWall]),
    of("MaxCPUMinsPerJob", 7, &[LimitKind::MaxTresMins], TresKind::Cpu),
    of("MaxCPURunMinsPerUser", 7, &[LimitKind::MaxTresRunMins], TresKind::Cpu),
    of("MaxCPUsPerJob", 7, &[LimitKind::MaxTres], TresKind::Cpu),
    of("MaxCPUsPerUser", 9, &[LimitKind::MaxTresPerUser], TresKind::Cpu),
    of("MaxCPUsPU", 9, &[LimitKind::MaxTresPerUser], TresKind::Cpu),
    cut("MaxJobs", 4, &[LimitKind::MaxJobs, LimitKind::MaxJobsPerUser]),
    cut("MaxJobsAccrue", 8, &[LimitKind::MaxJobsAccrue, LimitKind::MaxJobsAccruePerUser]),
    of("MaxNodesPerJob", 4, &[LimitKind::MaxTres], TresKind::Node),
    of("MaxNodesPerUser", 10, &[LimitKind::MaxTresPerUser], TresKind::Node),
    of("MaxNodesPU", 10, &[LimitKind::MaxTresPerUser], TresKind::Node),
    cut("MaxSubmitJobs", 4, &[LimitKind::MaxSubmitJobs, LimitKind::MaxSubmitJobsPerUser]),
    cut("MaxTRESPerJob", 7, &[LimitKind::MaxTres]),
    cut("MaxTRESMinsPerJob", 8, &[LimitKind::MaxTresMins]),
    cut("MaxTRESRunMins", 8, &[LimitKind::MaxTresRunMins]),
    cut("MaxWallDurationPerJob", 4, &[LimitKind::MaxWall]),
    of("MinCPUsPerJob", 7, &[LimitKind::MinTres], TresKind::Cpu),
];

/// Names of other values that may be cut.
static OTHER_CUTS: [Cut; 3] = [
    cut("MinTRESPerJob", 4, &[LimitKind::MinTres]),
    cut("MinPrioThreshold", 4, &[LimitKind::MinPrioThreshold]),
    cut("Priority", 2, &[LimitKind::Priority]),
];

/// The limit that a request names, among the kinds for which `admit` returns true. Whole names come before
/// cut ones. Names are compared without regard to case.
#[must_use]
pub fn limit_named(name: &str, admit: impl Fn(LimitKind) -> bool) -> Option<NamedLimit> {
    if let Some(kind) = kind_named(name, &admit) {
        return Some(NamedLimit { kind, tres: None });
    }
    let is_cut = |cut: &&Cut| {
        let head = cut.name.get(..name.len());
        name.len() >= cut.least && head.is_some_and(|head| head.eq_ignore_ascii_case(name))
    };
    let fits = |cut: &Cut| {
        let kind = cut.kinds.iter().copied().find(|kind| admit(*kind))?;
        Some(NamedLimit { kind, tres: cut.tres.clone() })
    };
    CUTS.iter().chain(&OTHER_CUTS).filter(is_cut).find_map(fits)
}

/// Reads the value of a limit that a request names.
///
/// # Errors
/// Slurm's message about a bad value.
pub fn read_named(limit: &NamedLimit, text: &str) -> Result<LimitChange, String> {
    match &limit.tres {
        None => read(limit.kind, text),
        Some(_) if text.contains([',', '=']) => {
            Err(format!("Invalid value for {} ({text})", limit.kind.name()))
        }
        Some(tres) => read(limit.kind, &format!("{tres}={text}")),
    }
}

/// Adds a change to others. Changes of the same kind become one, with its resources in order.
pub fn add_change(changes: &mut Vec<(LimitKind, LimitChange)>, kind: LimitKind, change: LimitChange) {
    let known = changes.iter_mut().find(|(known, _)| *known == kind);
    match (known, change) {
        (Some((_, LimitChange::Tres(known))), LimitChange::Tres(more)) => {
            known.extend(more);
            known.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        (_, change) => changes.push((kind, change)),
    }
}

/// Reads the value of a limit; `-1` clears the limit.
///
/// # Errors
/// Slurm's message about a bad value.
pub fn read(kind: LimitKind, text: &str) -> Result<LimitChange, String> {
    let invalid = || format!("Invalid value for {} ({text})", kind.name());
    match kind.unit() {
        _ if text == "-1" && kind.unit() != Unit::Tres => Ok(LimitChange::Number(None)),
        Unit::Count => text.parse().map(|count| LimitChange::Number(Some(count))).map_err(|_| invalid()),
        Unit::Minutes => {
            let limit: crate::text::time::TimeLimit = text.parse().map_err(|_| invalid())?;
            Ok(LimitChange::Number(limit.seconds().map(|seconds| seconds.div_ceil(60))))
        }
        Unit::Tres => amounts(text).map(LimitChange::Tres),
    }
}

/// Reads amounts of TRES: `cpu=5,mem=10G,gres/gpu=-1`.
fn amounts(text: &str) -> Result<Vec<(TresKind, Option<u64>)>, String> {
    let amount = |item: &str| {
        let name = item.split_once('=').map_or(item, |(name, _)| name);
        let kind: TresKind =
            name.parse().map_err(|_| format!("slurmdb_format_tres_str: no TRES known by type {name}"))?;
        if !item.contains('=') {
            return Err(format!("slurmdb_format_tres_str: no TRES id found for {item}"));
        }
        if item.ends_with("=-1") {
            return Ok((kind, None));
        }
        let one: Tres = item.parse().map_err(|error: crate::text::ParseError| error.to_string())?;
        Ok((kind.clone(), Some(one.get(&kind))))
    };
    text.split(',').filter(|item| !item.is_empty()).map(amount).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_set_and_cleared() {
        let mut limits = Limits::default();
        for (kind, text) in [
            (LimitKind::GrpTres, "cpu=100,mem=10G"),
            (LimitKind::GrpTres, "cpu=-1,gres/gpu=4"),
            (LimitKind::MaxWall, "1-0"),
            (LimitKind::MaxJobs, "5"),
            (LimitKind::GrpJobs, "7"),
            (LimitKind::GrpJobs, "-1"),
        ] {
            limits.change(kind, &read(kind, text).unwrap());
        }
        let texts: Vec<(&str, String)> = limits.texts().map(|(kind, text)| (kind.name(), text)).collect();
        let wanted = [("GrpTRES", "mem=10G,gres/gpu=4"), ("MaxJobs", "5"), ("MaxWallDurationPerJob", "1440")];
        assert_eq!(texts, wanted.map(|(name, text)| (name, text.to_owned())));
        let mut below = Limits::default();
        below.inherit(&limits);
        assert_eq!(below.number(LimitKind::MaxJobs), Some(5));
        assert_eq!(below.tres(LimitKind::GrpTres), None, "a limit of a group is not inherited");
        let json = serde_json::to_string(&limits).unwrap();
        assert_eq!(serde_json::from_str::<Limits>(&json).unwrap(), limits);
    }

    #[test]
    fn old_and_cut_names_are_read() {
        for (word, assoc, qos) in [
            ("grpcpus=7", "GrpTRES cpu=7", "GrpTRES cpu=7"),
            ("GrpCPUMin=7", "GrpTRESMins cpu=7", "GrpTRESMins cpu=7"),
            ("grpcpur=7", "GrpTRESRunMins cpu=7", "GrpTRESRunMins cpu=7"),
            ("grpcpu=7", "", ""),
            ("GrpMem=100", "GrpTRES mem=100M", "GrpTRES mem=100M"),
            ("GrpNode=2", "GrpTRES node=2", "GrpTRES node=2"),
            ("GrpJob=2", "GrpJobs 2", "GrpJobs 2"),
            ("grpjobsa=2", "GrpJobsAccrue 2", "GrpJobsAccrue 2"),
            ("grps=2", "GrpSubmitJobs 2", "GrpSubmitJobs 2"),
            ("maxcpusp=2", "MaxTRESPerJob cpu=2", "MaxTRESPerJob cpu=2"),
            ("MaxCPUsPerUser=2", "", "MaxTRESPerUser cpu=2"),
            ("MaxCPUMins=2", "MaxTRESMinsPerJob cpu=2", "MaxTRESMinsPerJob cpu=2"),
            ("maxcpurunmins=2", "MaxTRESRunMins cpu=2", "MaxTRESRunMins cpu=2"),
            ("MaxNode=2", "MaxTRESPerJob node=2", "MaxTRESPerJob node=2"),
            ("MaxNodesPerUser=2", "", "MaxTRESPerUser node=2"),
            ("maxj=2", "MaxJobs 2", "MaxJobsPerUser 2"),
            ("maxs=2", "MaxSubmitJobs 2", "MaxSubmitJobsPerUser 2"),
            ("maxw=2", "MaxWallDurationPerJob 2", "MaxWallDurationPerJob 2"),
            ("maxt=cpu=2", "", ""),
            ("mincpus=2", "", "MinTRESPerJob cpu=2"),
            ("minp=2", "MinPrioThreshold 2", "MinPrioThreshold 2"),
        ] {
            let (name, value) = word.split_once('=').unwrap();
            let read = |admit: fn(LimitKind) -> bool| {
                let Some(named) = limit_named(name, admit) else { return String::new() };
                let mut limits = Limits::default();
                limits.change(named.kind, &read_named(&named, value).unwrap());
                let text = limits.texts().map(|(kind, text)| format!("{} {text}", kind.name()));
                text.collect::<Vec<_>>().join(" ")
            };
            assert_eq!(read(LimitKind::is_of_associations), assoc, "{word}");
            assert_eq!(read(LimitKind::is_of_qos), qos, "{word}");
        }
        let cpus = limit_named("GrpCPUs", LimitKind::is_of_qos).unwrap();
        assert_eq!(read_named(&cpus, "-1"), Ok(LimitChange::Tres(vec![(TresKind::Cpu, None)])));
        assert!(read_named(&cpus, "1,mem=5").is_err() && read_named(&cpus, "x").is_err());
        let nodes = limit_named("GrpNodes", LimitKind::is_of_qos).unwrap();
        let mut changes = Vec::new();
        add_change(&mut changes, nodes.kind, read_named(&nodes, "2").unwrap());
        add_change(&mut changes, cpus.kind, read_named(&cpus, "5").unwrap());
        let both = LimitChange::Tres(vec![(TresKind::Cpu, Some(5)), (TresKind::Node, Some(2))]);
        assert_eq!(changes, [(LimitKind::GrpTres, both)]);
    }

    #[test]
    fn refusals_are_slurms() {
        for (kind, text, wanted) in [
            (LimitKind::MaxJobs, "x", "Invalid value for MaxJobs (x)"),
            (LimitKind::GrpTres, "foo=1", "slurmdb_format_tres_str: no TRES known by type foo"),
        ] {
            assert_eq!(read(kind, text), Err(wanted.to_owned()));
        }
    }

    #[test]
    fn a_name_means_one_kind_of_each_owner() {
        for kind in LimitKind::ALL {
            for name in std::iter::once(&kind.name()).chain(kind.other_names()) {
                if kind.is_of_associations() {
                    assert_eq!(kind_named(name, LimitKind::is_of_associations), Some(*kind), "{name}");
                }
                if kind.is_of_qos() {
                    assert_eq!(kind_named(name, LimitKind::is_of_qos), Some(*kind), "{name}");
                }
            }
        }
    }
}
