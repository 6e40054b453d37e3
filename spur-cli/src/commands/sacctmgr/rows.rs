//! Columns of the records in the policy tree: accounts, users, associations, QOS.

use spur_core::text::time::TimeLimit;
use spur_core::text::tres::{Tres, TresKind};
use spur_proto::v1::{AccountRecord, AssociationRecord, LimitValue, QosRecord, UserRecord};

use super::fields::{field, headed};
use crate::format::report::Column;

/// An account, a user, an association, or a line of a list that combines them. The row of a cluster has the
/// association of the account `root`.
#[derive(Clone, Default)]
pub(super) struct Row {
    pub(super) cluster: String,
    pub(super) account: Option<AccountRecord>,
    pub(super) user: Option<UserRecord>,
    pub(super) association: Option<AssociationRecord>,
    /// The controller, in a list of clusters.
    pub(super) server: Server,
    /// True if accounts are indented by their depth in the tree.
    pub(super) tree: bool,
    /// Parts that the row leaves out.
    pub(super) without: Without,
}

/// The controller of a cluster. As in Slurm, port and version of an unknown controller are 0.
#[derive(Clone, Default)]
pub(super) struct Server {
    pub(super) host: String,
    pub(super) port: String,
    /// Version of the protocol.
    pub(super) rpc: u32,
}

/// Parts of an association that a list leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Without {
    /// True for `WOPLimits`: limits and QOS that are inherited.
    pub(super) inherited: bool,
    /// True for `WOPInfo`: the account above, and all that is inherited.
    pub(super) parent: bool,
}

/// Returns the QOS that an association sets itself. Removed ones are left out.
fn own_qos(own: &AssociationRecord) -> Vec<String> {
    let added = own.set_qos.iter().filter(|name| !name.starts_with('-'));
    added.map(|name| name.trim_start_matches('+').to_owned()).collect()
}

impl Row {
    fn of_account(&self, text: impl Fn(&AccountRecord) -> String) -> String {
        self.account.as_ref().map(text).unwrap_or_default()
    }

    fn of_user(&self, text: impl Fn(&UserRecord) -> String) -> String {
        self.user.as_ref().map(text).unwrap_or_default()
    }

    fn of_association(&self, text: impl Fn(&AssociationRecord) -> String) -> String {
        self.association.as_ref().map(text).unwrap_or_default()
    }

    fn account_name(&self) -> String {
        let of_association = self.association.as_ref().map(|own| own.account.clone());
        let name = of_association.unwrap_or_else(|| self.of_account(|account| account.name.clone()));
        let depth = self.association.as_ref().filter(|_| self.tree).map_or(0, |own| own.depth as usize);
        format!("{}{name}", " ".repeat(depth))
    }

    fn user_name(&self) -> String {
        match (&self.association, &self.user) {
            (Some(own), None) => own.user.clone(),
            _ => self.of_user(|user| user.name.clone()),
        }
    }

    fn limit(&self, name: &str) -> String {
        let limits = |own: &AssociationRecord| match self.without.inherited {
            true => value(&own.own_limits, name),
            false => value(&own.limits, name),
        };
        self.of_association(limits)
    }

    fn own_limit(&self, name: &str) -> String {
        self.of_association(|own| value(&own.own_limits, name))
    }
}

/// Returns the value of a limit; empty if it is not set.
fn value(limits: &[LimitValue], name: &str) -> String {
    limits.iter().find(|limit| limit.name == name).map(|limit| limit.value.clone()).unwrap_or_default()
}

/// Returns the amount of one resource in the value of a limit.
fn amount(value: &str, kind: &TresKind) -> String {
    let tres: Tres = value.parse().unwrap_or_default();
    tres.0.get(kind).map(ToString::to_string).unwrap_or_default()
}

/// Formats minutes as Slurm formats durations.
fn span(minutes: &str) -> String {
    let minutes = minutes.parse::<u64>().ok();
    minutes.map(|minutes| TimeLimit::Seconds(minutes.saturating_mul(60)).long()).unwrap_or_default()
}

/// Defines columns of limits of associations, each with its name in the tree.
macro_rules! limits {
    ($($name:literal $header:literal $width:literal $key:literal;)+) => {
        [$(headed($name, $header, $width, |row: &Row, _| row.limit($key)),)+]
    };
}

/// Limits of associations that are printed as stored.
pub(super) const LIMITS: [Column<Row>; 17] = limits! {
    "GrpJobs" "GrpJobs" 7 "GrpJobs";
    "GrpJobsAccrue" "GrpJobsAccrue" 13 "GrpJobsAccrue";
    "GrpSubmitJobs" "GrpSubmit" 9 "GrpSubmitJobs";
    "GrpTRES" "GrpTRES" 13 "GrpTRES";
    "GrpTRESMins" "GrpTRESMins" 13 "GrpTRESMins";
    "GrpTRESRunMins" "GrpTRESRunMins" 13 "GrpTRESRunMins";
    "MaxJobs" "MaxJobs" 7 "MaxJobs";
    "MaxJobsAccrue" "MaxJobsAccrue" 13 "MaxJobsAccrue";
    "MaxSubmitJobs" "MaxSubmit" 9 "MaxSubmitJobs";
    "MaxTRES" "MaxTRES" 13 "MaxTRESPerJob";
    "MaxTRESPerJob" "MaxTRES" 13 "MaxTRESPerJob";
    "MaxTRESPerNode" "MaxTRESPerNode" 14 "MaxTRESPerNode";
    "MaxTRESMins" "MaxTRESMins" 13 "MaxTRESMinsPerJob";
    "MaxTRESMinsPerJob" "MaxTRESMins" 13 "MaxTRESMinsPerJob";
    "MaxTRESRunMins" "MaxTRESRunMinsPU" 15 "MaxTRESRunMins";
    "MinPrioThreshold" "MinPrioThres" 12 "MinPrioThreshold";
    "Priority" "Priority" 10 "Priority";
};

/// Other columns of accounts, users and associations.
pub(super) const ROW: [Column<Row>; 32] = [
    // These columns come first, because Slurm selects them for their prefixes.
    field("Cluster", 10, |row, _| {
        row.of_association(
            |own| if own.cluster.is_empty() { row.cluster.clone() } else { own.cluster.clone() },
        )
    }),
    headed("Coordinators", "Coord Accounts", 20, |row, _| match (&row.user, &row.account) {
        (Some(user), _) => user.all_coordinated.join(","),
        (None, Some(account)) => account.all_coordinators.join(","),
        (None, None) => String::new(),
    }),
    headed("Share", "Share", 9, |row, _| row.of_association(|own| own.shares.clone())),
    field("User", 10, |row, _| row.user_name()),
    field("Account", 10, |row, _| row.account_name()),
    headed("AdminLevel", "Admin", 9, |row, _| row.of_user(|user| user.admin_level.clone())),
    headed("DefaultAccount", "Def Acct", 10, |row, _| row.of_user(|user| user.default_account.clone())),
    headed("DefaultWCKey", "Def WCKey", 10, |row, _| row.of_user(|user| user.default_wckey.clone())),
    headed("WCKey", "WCKeys", 20, |row, _| row.of_user(|user| user.wckeys.join(","))),
    headed("DefaultQOS", "Def QOS", 9, |row, _| {
        let shown = |own: &AssociationRecord| own.own_default_qos || !row.without.inherited;
        row.of_association(|own| if shown(own) { own.default_qos.clone() } else { String::new() })
    }),
    headed("Description", "Descr", 20, |row, _| row.of_account(|account| account.description.clone())),
    headed("Fairshare", "Share", 9, |row, _| row.of_association(|own| own.shares.clone())),
    headed("GrpCPUMins", "GrpCPUMins", 11, |row, _| amount(&row.own_limit("GrpTRESMins"), &TresKind::Cpu)),
    headed("GrpCPURunMins", "GrpCPURunMins", 13, |row, _| {
        amount(&row.own_limit("GrpTRESRunMins"), &TresKind::Cpu)
    }),
    headed("GrpCPUs", "GrpCPUs", 8, |row, _| amount(&row.own_limit("GrpTRES"), &TresKind::Cpu)),
    headed("GrpMem", "GrpMem", 7, |row, _| amount(&row.own_limit("GrpTRES"), &TresKind::Mem)),
    headed("GrpNodes", "GrpNodes", 8, |row, _| amount(&row.own_limit("GrpTRES"), &TresKind::Node)),
    headed("GrpWall", "GrpWall", 11, |row, _| span(&row.limit("GrpWall"))),
    field("ID", 6, |row, _| row.of_association(|own| own.id.to_string())),
    headed("MaxCPUMinsPerJob", "MaxCPUMins", 11, |row, _| {
        amount(&row.limit("MaxTRESMinsPerJob"), &TresKind::Cpu)
    }),
    headed("MaxCPURunMins", "MaxCPURunMinsPU", 15, |row, _| {
        amount(&row.limit("MaxTRESRunMins"), &TresKind::Cpu)
    }),
    headed("MaxCPUsPerJob", "MaxCPUs", 8, |row, _| amount(&row.limit("MaxTRESPerJob"), &TresKind::Cpu)),
    headed("MaxNodesPerJob", "MaxNodes", 8, |row, _| amount(&row.limit("MaxTRESPerJob"), &TresKind::Node)),
    headed("MaxWallDurationPerJob", "MaxWall", 11, |row, _| span(&row.limit("MaxWallDurationPerJob"))),
    headed("Name", "Name", 10, |row, _| match (&row.user, &row.account) {
        (Some(user), _) => user.name.clone(),
        _ => row.account_name(),
    }),
    headed("Organization", "Org", 20, |row, _| row.of_account(|account| account.organization.clone())),
    field("ParentID", 8, |row, _| {
        let shown = |own: &AssociationRecord| own.parent_id != 0 && !row.without.parent;
        row.of_association(|own| if shown(own) { own.parent_id.to_string() } else { String::new() })
    }),
    field("ParentName", 10, |row, _| {
        row.of_association(|own| if row.without.parent { String::new() } else { own.parent.clone() })
    }),
    field("Partition", 10, |row, _| row.of_association(|own| own.partition.clone())),
    headed("QOSLevel", "QOS", 20, |row, _| {
        let names = |own: &AssociationRecord| match row.without.inherited {
            true => own_qos(own).join(","),
            false => own.qos.join(","),
        };
        row.of_association(names)
    }),
    headed("Classification", "Class", 9, |_, _| String::new()),
    headed("Flags", "Flags", 20, |row, _| {
        let deleted = row.user.as_ref().is_some_and(|user| user.deleted)
            || row.account.as_ref().is_some_and(|account| account.deleted);
        if deleted { "DELETED".to_owned() } else { String::new() }
    }),
];

fn qos_limit(qos: &QosRecord, name: &str) -> String {
    value(&qos.limits, name)
}

/// Formats seconds as Slurm formats times of a QOS.
fn seconds(seconds: Option<u64>) -> String {
    seconds.map(|seconds| TimeLimit::Seconds(seconds).long()).unwrap_or_default()
}

macro_rules! qos_limits {
    ($($name:literal $header:literal $width:literal $key:literal;)+) => {
        [$(headed($name, $header, $width, |qos: &QosRecord, _| qos_limit(qos, $key)),)+]
    };
}

/// Defines columns of the amount of one resource in limits of QOS.
macro_rules! qos_amounts {
    ($($name:literal $header:literal $width:literal $key:literal $kind:ident;)+) => {
        [$(headed($name, $header, $width, |qos: &QosRecord, _| {
            amount(&qos_limit(qos, $key), &TresKind::$kind)
        }),)+]
    };
}

/// Amounts of one resource in limits of QOS.
const QOS_AMOUNTS: [Column<QosRecord>; 11] = qos_amounts! {
    "GrpCPUs" "GrpCPUs" 8 "GrpTRES" Cpu;
    "GrpCPUMins" "GrpCPUMins" 11 "GrpTRESMins" Cpu;
    "GrpCPURunMins" "GrpCPURunMins" 13 "GrpTRESRunMins" Cpu;
    "GrpMem" "GrpMem" 7 "GrpTRES" Mem;
    "GrpNodes" "GrpNodes" 8 "GrpTRES" Node;
    "MaxCPUMinsPerJob" "MaxCPUMins" 11 "MaxTRESMinsPerJob" Cpu;
    "MaxCPUsPerJob" "MaxCPUs" 8 "MaxTRESPerJob" Cpu;
    "MaxCPUsPerUser" "MaxCPUsPU" 9 "MaxTRESPerUser" Cpu;
    "MaxNodesPerJob" "MaxNodes" 8 "MaxTRESPerJob" Node;
    "MaxNodesPerUser" "MaxNodesPU" 10 "MaxTRESPerUser" Node;
    "MinCPUsPerJob" "MinCPUs" 8 "MinTRESPerJob" Cpu;
};

/// Limits of QOS that are printed as stored.
const QOS_LIMITS: [Column<QosRecord>; 34] = qos_limits! {
    "GrpJobs" "GrpJobs" 7 "GrpJobs";
    "GrpJobsAccrue" "GrpJobsAccrue" 13 "GrpJobsAccrue";
    "GrpSubmitJobs" "GrpSubmit" 9 "GrpSubmitJobs";
    "GrpTRES" "GrpTRES" 13 "GrpTRES";
    "GrpTRESMins" "GrpTRESMins" 13 "GrpTRESMins";
    "GrpTRESRunMins" "GrpTRESRunMins" 13 "GrpTRESRunMins";
    "MaxJobs" "MaxJobs" 7 "MaxJobsPerUser";
    "MaxSubmitJobs" "MaxSubmit" 9 "MaxSubmitJobsPerUser";
    "MaxJobsPA" "MaxJobsPA" 9 "MaxJobsPerAccount";
    "MaxJobsPerAccount" "MaxJobsPA" 9 "MaxJobsPerAccount";
    "MaxJobsPU" "MaxJobsPU" 9 "MaxJobsPerUser";
    "MaxJobsPerUser" "MaxJobsPU" 9 "MaxJobsPerUser";
    "MaxJobsAccruePA" "MaxJobsAccruePA" 15 "MaxJobsAccruePerAccount";
    "MaxJobsAccruePerAccount" "MaxJobsAccruePA" 15 "MaxJobsAccruePerAccount";
    "MaxJobsAccruePU" "MaxJobsAccruePU" 15 "MaxJobsAccruePerUser";
    "MaxJobsAccruePerUser" "MaxJobsAccruePU" 15 "MaxJobsAccruePerUser";
    "MaxSubmitPA" "MaxSubmitPA" 11 "MaxSubmitJobsPerAccount";
    "MaxSubmitJobsPA" "MaxSubmitPA" 11 "MaxSubmitJobsPerAccount";
    "MaxSubmitJobsPerAccount" "MaxSubmitPA" 11 "MaxSubmitJobsPerAccount";
    "MaxSubmitPU" "MaxSubmitPU" 11 "MaxSubmitJobsPerUser";
    "MaxSubmitJobsPU" "MaxSubmitPU" 11 "MaxSubmitJobsPerUser";
    "MaxSubmitJobsPerUser" "MaxSubmitPU" 11 "MaxSubmitJobsPerUser";
    "MaxTRES" "MaxTRES" 13 "MaxTRESPerJob";
    "MaxTRESPerJob" "MaxTRES" 13 "MaxTRESPerJob";
    "MaxTRESPA" "MaxTRESPA" 13 "MaxTRESPerAccount";
    "MaxTRESPerAccount" "MaxTRESPA" 13 "MaxTRESPerAccount";
    "MaxTRESPU" "MaxTRESPU" 13 "MaxTRESPerUser";
    "MaxTRESPerUser" "MaxTRESPU" 13 "MaxTRESPerUser";
    "MaxTRESPerNode" "MaxTRESPerNode" 14 "MaxTRESPerNode";
    "MaxTRESMins" "MaxTRESMins" 13 "MaxTRESMinsPerJob";
    "MaxTRESMinsPerJob" "MaxTRESMins" 13 "MaxTRESMinsPerJob";
    "MaxTRESRunMins" "MaxTRESRunMinsPU" 15 "MaxTRESRunMins";
    "MinTRES" "MinTRES" 13 "MinTRESPerJob";
    "MinPrioThreshold" "MinPrioThres" 12 "MinPrioThreshold";
};

/// Other columns of QOS.
const QOS: [Column<QosRecord>; 16] = [
    field("Name", 10, |qos, _| qos.name.clone()),
    field("Priority", 10, |qos, _| qos.priority.to_string()),
    field("GraceTime", 10, |qos, _| seconds(Some(qos.grace_time.unwrap_or(0)))),
    field("Preempt", 10, |qos, _| qos.preempt.join(",")),
    field("PreemptExemptTime", 19, |qos, _| seconds(qos.preempt_exempt_time)),
    field("PreemptMode", 11, |qos, _| qos.preempt_mode.clone()),
    field("Flags", 20, |qos, _| if qos.deleted { "DELETED".to_owned() } else { qos.flags.join(",") }),
    field("UsageFactor", 11, |qos, _| format!("{:.6}", qos.usage_factor)),
    headed("UsageThreshold", "UsageThres", 10, |qos, _| factor(qos.usage_threshold)),
    field("LimitFactor", 11, |qos, _| factor(qos.limit_factor)),
    headed("GrpWall", "GrpWall", 11, |qos, _| span(&qos_limit(qos, "GrpWall"))),
    headed("MaxWallDurationPerJob", "MaxWall", 11, |qos, _| span(&qos_limit(qos, "MaxWallDurationPerJob"))),
    headed("Description", "Descr", 20, |qos, _| qos.description.clone()),
    field("ID", 6, |qos, _| qos.id.to_string()),
    field("AllowGroups", 20, |qos, _| qos.allow_groups.join(",")),
    field("AllowAccounts", 20, |qos, _| qos.allow_accounts.join(",")),
];

/// Columns of clusters alone.
const CLUSTER: [Column<Row>; 5] = [
    field("Cluster", 10, |row, _| row.cluster.clone()),
    headed("Name", "Cluster", 10, |row, _| row.cluster.clone()),
    field("ControlHost", 15, |row, _| row.server.host.clone()),
    field("ControlPort", 12, |row, _| row.server.port.clone()),
    field("RPC", 5, |row, _| row.server.rpc.to_string()),
];

/// Names of the columns of associations that clusters have, too.
const CLUSTER_AS_ASSOCIATION: [&str; 26] = [
    "Share",
    "Fairshare",
    "QOSLevel",
    "DefaultQOS",
    "GrpCPUs",
    "GrpCPUMins",
    "GrpMem",
    "GrpNodes",
    "GrpWall",
    "MaxCPUMinsPerJob",
    "MaxCPUsPerJob",
    "MaxNodesPerJob",
    "MaxWallDurationPerJob",
    "GrpJobs",
    "GrpJobsAccrue",
    "GrpSubmitJobs",
    "GrpTRES",
    "GrpTRESMins",
    "GrpTRESRunMins",
    "MaxJobs",
    "MaxSubmitJobs",
    "MaxTRES",
    "MaxTRESPerJob",
    "MaxTRESPerNode",
    "MaxTRESMins",
    "MaxTRESMinsPerJob",
];

/// Returns all columns of clusters.
pub(super) fn cluster_columns() -> Vec<Column<Row>> {
    let shared = ROW.iter().chain(&LIMITS).filter(|column| CLUSTER_AS_ASSOCIATION.contains(&column.name));
    CLUSTER.iter().chain(shared).copied().collect()
}

/// Returns all columns of QOS.
pub(super) fn qos_columns() -> Vec<Column<QosRecord>> {
    QOS.iter().chain(&QOS_LIMITS).chain(&QOS_AMOUNTS).copied().collect()
}

fn factor(factor: Option<f64>) -> String {
    factor.map(|factor| format!("{factor:.6}")).unwrap_or_default()
}
