//! Columns of the lists of `sacctmgr`.

use crate::format::Show;
use crate::format::report::Column;

/// A trackable resource: type, name and number.
pub(super) struct Tres(pub(super) String, pub(super) String, pub(super) u32);

/// A kind of record that never exists in Spur.
pub(super) struct Nothing;

pub(super) const fn field<R>(name: &'static str, width: isize, text: fn(&R, &Show) -> String) -> Column<R> {
    Column { name, header: name, width, text }
}

pub(super) const fn headed<R>(
    name: &'static str,
    header: &'static str,
    width: isize,
    text: fn(&R, &Show) -> String,
) -> Column<R> {
    Column { name, header, width, text }
}

pub(super) const CLUSTER_SHOWN: &str = "cluster,controlhost,controlport,rpc,share,grpjobs,grptres,grpsubmitjobs,maxjobs,maxtres,\
                                        maxsubmitjobs,maxwall,qos,defaultqos";

pub(super) const QOS_SHOWN: &str = "name,priority,gracetime,preempt,preemptexempttime,preemptmode,flags%40,usagethreshold,\
                                    usagefactor,grptres,grptresmins,grptresrunmins,grpjobs,grpsubmitjobs,grpwall,maxtres,\
                                    maxtrespernode,maxtresmins,maxwall,maxtrespu,maxjobspu,maxsubmitpu,maxtrespa,maxjobspa,\
                                    maxsubmitpa,mintres";

pub(super) const USER_SHOWN: &str = "user,defaultaccount,adminlevel";

pub(super) const TRES: [Column<Tres>; 3] = [
    field("Type", 8, |row, _| row.0.clone()),
    field("Name", 15, |row, _| row.1.clone()),
    field("ID", 6, |row, _| row.2.to_string()),
];

/// The columns of federations and of resources outside of nodes, of which a cluster has none.
pub(super) const FEDERATION: [Column<Nothing>; 2] =
    [field("Federation", 10, |_, _| String::new()), field("ID", 2, |_, _| String::new())];
pub(super) const FEDERATION_SHOWN: &str = "federation,cluster,id,features,fedstate";
pub(super) const RESOURCE: [Column<Nothing>; 2] =
    [field("Name", 10, |_, _| String::new()), headed("Allocated", "% Allocated", 11, |_, _| String::new())];
pub(super) const RESOURCE_SHOWN: &str = "name,server,type,count,allocated,servertype";

pub(super) const ASSOCIATION_SHOWN: &str = "cluster,account,user,partition,share,priority,grpjobs,grptres,grpsubmitjobs,grpwall,\
                                            grptresmins,maxjobs,maxtres,maxtrespernode,maxsubmitjobs,maxwall,maxtresmins,\
                                            qos,defaultqos,grptresrunmins";
pub(super) const USER_ASSOCIATION_SHOWN: &str = "user,defaultaccount,adminlevel,cluster,account,partition,share,priority,maxjobs,\
                                                 maxnodes,maxcpus,maxsubmitjobs,maxwall,maxcpumins,qos,defaultqos";

/// Returns the columns of a list: its own, and empty ones for all other names in Slurm's `sacctmgr`. They are
/// in the order in which Slurm compares an abbreviation with names. A column under a name that Slurm lacks
/// comes before names that begin with it, or last.
pub(super) fn columns<R>(own: &[Column<R>]) -> Vec<Column<R>> {
    let of_slurm = KNOWN.iter().map(|&(name, header, width)| {
        let own = own.iter().find(|own| own.name.eq_ignore_ascii_case(name)).copied();
        own.unwrap_or(Column { name, header, width, text: |_, _| String::new() })
    });
    let mut all: Vec<Column<R>> = of_slurm.collect();
    let is_known = |own: &&Column<R>| KNOWN.iter().any(|(name, ..)| own.name.eq_ignore_ascii_case(name));
    for own in own.iter().filter(|own| !is_known(own)) {
        let begins = |other: &Column<R>| {
            other.name.get(..own.name.len()).is_some_and(|start| start.eq_ignore_ascii_case(own.name))
        };
        let at = all.iter().position(begins).unwrap_or(all.len());
        all.insert(at, *own);
    }
    all
}

/// Names that Slurm's `sacctmgr` accepts for every list, with headers and widths. A prefix selects the first
/// name, so a long name represents shorter ones with the same header.
const KNOWN: [(&str, &str, isize); 115] = [
    // These names come first, because Slurm selects them for their abbreviations.
    ("Cluster", "Cluster", 10),
    ("Coordinators", "Coord Accounts", 20),
    ("GrpCPUs", "GrpCPUs", 8),
    ("Problem", "Problem", 40),
    ("Share", "Share", 9),
    ("State", "State", 6),
    ("TimeStamp", "Time", 19),
    ("User", "User", 10),
    ("Account", "Account", 10),
    ("Action", "Action", 20),
    ("Actor", "Actor", 10),
    ("AdminLevel", "Admin", 9),
    ("Allowed", "% Allowed", 10),
    ("Associations", "Assocs", 10),
    ("Classification", "Class", 9),
    ("ClusterNodes", "Cluster Nodes", 20),
    ("ControlHost", "ControlHost", 15),
    ("ControlPort", "ControlPort", 12),
    ("Count", "Count", 6),
    ("CPUCount", "CPU Cnt", 7),
    ("DefaultAccount", "Def Acct", 10),
    ("DefaultQOS", "Def QOS", 9),
    ("DefaultWCKey", "Def WCKey", 10),
    ("Description", "Descr", 20),
    ("Duration", "Duration", 13),
    ("End", "TimeEnd", 19),
    ("Event", "Event", 7),
    ("EventRaw", "EventRaw", 8),
    ("Fairshare", "Share", 9),
    ("Features", "Features", 20),
    ("Federation", "Federation", 10),
    ("FedState", "FedState", 12),
    ("FedStateRaw", "FedStateRaw", 11),
    ("Flags", "Flags", 20),
    ("GraceTime", "GraceTime", 10),
    ("GrpCPUMins", "GrpCPUMins", 11),
    ("GrpCPURunMins", "GrpCPURunMins", 13),
    ("GrpJobs", "GrpJobs", 7),
    ("GrpJobsAccrue", "GrpJobsAccrue", 13),
    ("GrpMem", "GrpMem", 7),
    ("GrpNodes", "GrpNodes", 8),
    ("GrpSubmitJobs", "GrpSubmit", 9),
    ("GrpTRES", "GrpTRES", 13),
    ("GrpTRESMins", "GrpTRESMins", 13),
    ("GrpTRESRunMins", "GrpTRESRunMins", 13),
    ("GrpWall", "GrpWall", 11),
    ("ID", "ID", 6),
    ("Info", "Info", 20),
    ("LFT", "LFT", 6),
    ("LimitFactor", "LimitFactor", 11),
    ("MaxCPUMinsPerJob", "MaxCPUMins", 11),
    ("MaxCPURunMins", "MaxCPURunMinsPU", 15),
    ("MaxCPUsPerJob", "MaxCPUs", 8),
    ("MaxCPUsPerUser", "MaxCPUsPU", 9),
    ("MaxJobs", "MaxJobs", 7),
    ("MaxJobsAccrue", "MaxJobsAccrue", 13),
    ("MaxJobsAccruePA", "MaxJobsAccruePA", 15),
    ("MaxJobsAccruePerAccount", "MaxJobsAccruePA", 15),
    ("MaxJobsAccruePerUser", "MaxJobsAccruePU", 15),
    ("MaxJobsAccruePU", "MaxJobsAccruePU", 15),
    ("MaxJobsPA", "MaxJobsPA", 9),
    ("MaxJobsPerAccount", "MaxJobsPA", 9),
    ("MaxJobsPerUser", "MaxJobsPU", 9),
    ("MaxJobsPU", "MaxJobsPU", 9),
    ("MaxNodesPerJob", "MaxNodes", 8),
    ("MaxNodesPerUser", "MaxNodesPU", 10),
    ("MaxSubmitJobs", "MaxSubmit", 9),
    ("MaxSubmitJobsPerUser", "MaxSubmitPU", 11),
    ("MaxSubmitJobsPU", "MaxSubmitPU", 11),
    ("MaxSubmitJobsPA", "MaxSubmitPA", 11),
    ("MaxSubmitJobsPerAccount", "MaxSubmitPA", 11),
    ("MaxSubmitPU", "MaxSubmitPU", 11),
    ("MaxSubmitPA", "MaxSubmitPA", 11),
    ("MaxTRES", "MaxTRES", 13),
    ("MaxTRESMinsPerJob", "MaxTRESMins", 13),
    ("MaxTRESPA", "MaxTRESPA", 13),
    ("MaxTRESPerAccount", "MaxTRESPA", 13),
    ("MaxTRESPerJob", "MaxTRES", 13),
    ("MaxTRESPerNode", "MaxTRESPerNode", 14),
    ("MaxTRESPerUser", "MaxTRESPU", 13),
    ("MaxTRESPU", "MaxTRESPU", 13),
    ("MaxTRESRunMins", "MaxTRESRunMinsPU", 15),
    ("MaxWallDurationPerJob", "MaxWall", 11),
    ("MinCPUsPerJob", "MinCPUs", 8),
    ("MinPrioThreshold", "MinPrioThres", 12),
    ("MinTRESPerJob", "MinTRES", 13),
    ("Name", "Name", 10),
    ("NodeCount", "NodeCount", 9),
    ("NodeNames", "NodeName", 15),
    ("Organization", "Org", 20),
    ("ParentID", "ParentID", 8),
    ("ParentName", "ParentName", 10),
    ("Partition", "Partition", 10),
    ("PluginIDSelect", "PluginIDSelect", 14),
    ("Preempt", "Preempt", 10),
    ("PreemptExemptTime", "PreemptExemptTime", 19),
    ("PreemptMode", "PreemptMode", 11),
    ("Priority", "Priority", 10),
    ("QOSLevel", "QOS", 20),
    ("QosRawLevel", "QOS_RAW", 10),
    ("Reason", "Reason", 30),
    ("RGT", "RGT", 6),
    ("RPC", "RPC", 5),
    ("Server", "Server", 10),
    ("ServerType", "ServerType", 10),
    ("Start", "TimeStart", 19),
    ("StateRaw", "StateRaw", 8),
    ("TimeEnd", "TimeEnd", 19),
    ("TimeStart", "TimeStart", 19),
    ("TRES", "TRES", 20),
    ("Type", "Type", 8),
    ("UnusedWall", "UnusedWall", 10),
    ("UsageFactor", "UsageFactor", 11),
    ("UsageThreshold", "UsageThres", 10),
    ("WCKey", "WCKeys", 20),
];
