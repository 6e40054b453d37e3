//! `scontrol show config`: what Slurm's programs ask for under Slurm's keys, then the settings of `spur.toml`.

use spur_core::text::time::{Seconds, TimeLimit};
use spur_proto::v1::{KeyValue, PingResponse};

use crate::format::Show;
use crate::format::value::{or_null, time};
use crate::version::SLURM;

/// What is known of the controller beside its settings.
pub struct Known<'a> {
    /// What it says of itself.
    pub controller: &'a PingResponse,
    /// Where it is reached: `host:port`.
    pub address: &'a str,
    /// The configuration that this command read.
    pub file: &'a str,
    /// Devices that nodes have, with commas between.
    pub gres: &'a str,
    /// How many nodes there are.
    pub nodes: usize,
}

/// Slurm's keys with what is true of them here, in Slurm's order. What Spur has no counterpart of is not there.
pub fn slurm(settings: &[KeyValue], known: &Known<'_>, show: &Show) -> Vec<KeyValue> {
    let of = |key: &str| {
        settings.iter().find(|setting| setting.key == key).map_or("", |setting| setting.value.as_str())
    };
    let seconds = |key: &str| of(key).parse::<Seconds>().map_or(0, |seconds| seconds.0);
    let secs = |key: &str| format!("{} sec", seconds(key));
    let span = |key: &str| TimeLimit::Seconds(seconds(key)).long();
    let yes = |key: &str| if of(key) == "true" { "Yes" } else { "No" }.to_owned();
    let weight = |name: &str| of(&format!("scheduler.priority_weight_{name}")).to_owned();
    let (host, port) = known.address.rsplit_once(':').unwrap_or((known.address, "0"));
    let preempts = of("preempt.by");
    let fixed = str::to_owned;
    let rows = [
        ("AccountingStorageEnforce", fixed("none")),
        ("AccountingStorageTRES", fixed("cpu,mem,node,billing")),
        ("AccountingStorageType", fixed("accounting_storage/spur")),
        ("AuthType", fixed("auth/spur")),
        ("BOOT_TIME", time(Some(known.controller.started), "Unknown", show)),
        ("BurstBufferType", fixed("(null)")),
        ("ClusterName", of("cluster_name").to_owned()),
        ("CredType", fixed("cred/spur")),
        ("DefMemPerNode", fixed("UNLIMITED")),
        ("EnforcePartLimits", fixed("NO")),
        ("FederationParameters", fixed("(null)")),
        ("FirstJobId", fixed("1")),
        ("GresTypes", or_null(known.gres)),
        ("InactiveLimit", fixed("0 sec")),
        ("JobContainerType", fixed("job_container/none")),
        ("JobRequeue", if of("controller.requeue") == "true" { fixed("1") } else { fixed("0") }),
        ("KillWait", secs("controller.kill_wait")),
        ("Licenses", or_null(of("licenses"))),
        ("MaxArraySize", of("controller.max_array_size").to_owned()),
        ("MaxJobCount", of("controller.max_job_count").to_owned()),
        ("MaxMemPerNode", fixed("UNLIMITED")),
        ("MaxNodeCount", known.nodes.to_string()),
        ("MCSPlugin", fixed("mcs/none")),
        ("MinJobAge", secs("controller.min_job_age")),
        ("MpiDefault", fixed("none")),
        ("PreemptExemptTime", span("preempt.exempt_time")),
        ("PreemptMode", if preempts == "none" { fixed("OFF") } else { of("preempt.mode").to_uppercase() }),
        (
            "PreemptType",
            match preempts {
                "partition" => fixed("preempt/partition_prio"),
                "qos" => fixed("preempt/qos"),
                _ => fixed("preempt/none"),
            },
        ),
        ("PriorityDecayHalfLife", span("scheduler.priority_decay_half_life")),
        ("PriorityFavorSmall", yes("scheduler.priority_favor_small")),
        ("PriorityMaxAge", span("scheduler.priority_max_age")),
        (
            "PriorityType",
            match of("scheduler.order") {
                "multifactor" => fixed("priority/multifactor"),
                "fcfs" => fixed("priority/basic"),
                own => format!("priority/{own}"),
            },
        ),
        ("PriorityWeightAge", weight("age")),
        ("PriorityWeightAssoc", fixed("0")),
        ("PriorityWeightFairShare", weight("fairshare")),
        ("PriorityWeightJobSize", weight("job_size")),
        ("PriorityWeightPartition", weight("partition")),
        ("PriorityWeightQOS", weight("qos")),
        ("PriorityWeightTRES", fixed("(null)")),
        ("PrivateData", fixed("none")),
        (
            "SchedulerType",
            if of("scheduler.backfill") == "none" { "sched/builtin" } else { "sched/backfill" }.to_owned(),
        ),
        ("SelectType", fixed("select/cons_tres")),
        ("SelectTypeParameters", fixed("CR_CPU_MEMORY")),
        (
            "SlurmctldHost[0]",
            match host == known.controller.hostname {
                true => host.to_owned(),
                false => format!("{}({host})", known.controller.hostname),
            },
        ),
        ("SlurmctldPort", port.to_owned()),
        ("SlurmdTimeout", secs("recovery.node_timeout")),
        ("SLURM_CONF", known.file.to_owned()),
        ("SLURM_VERSION", fixed(SLURM)),
        ("SwitchType", fixed("switch/none")),
        ("TrackWCKey", fixed("No")),
    ];
    let row = |(key, value): (&str, String)| KeyValue { key: key.to_owned(), value };
    rows.into_iter().map(row).collect()
}

/// Every setting on a line: those of Slurm, then those of `spur.toml` under a heading of their own.
pub fn text(slurm: &[KeyValue], own: &[KeyValue], show: &Show) -> String {
    let line = |setting: &KeyValue| format!("{:<23} = {}\n", setting.key, setting.value);
    let heading = if slurm.is_empty() || own.is_empty() { "" } else { "\nSpur Configuration:\n" };
    let settings: String =
        slurm.iter().map(line).chain([heading.to_owned()]).chain(own.iter().map(line)).collect();
    format!("Configuration data as of {}\n{settings}", time(Some(show.now), "Unknown", show))
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    fn setting(key: &str, value: &str) -> KeyValue {
        KeyValue { key: key.into(), value: value.into() }
    }

    #[test]
    fn keys_stand_in_a_column_that_long_ones_leave() {
        let slurm = [setting("ClusterName", "ref"), setting("AccountingStorageBackupHost", "(null)")];
        let own = [setting("scheduler.backfill", "easy")];
        let expected = "Configuration data as of 2026-11-20T12:17:16\n\
                        ClusterName             = ref\n\
                        AccountingStorageBackupHost = (null)\n\
                        \n\
                        Spur Configuration:\n\
                        scheduler.backfill      = easy\n";
        assert_eq!(text(&slurm, &own, &Show::new(TimeZone::UTC, 1_795_177_036)), expected);
    }

    #[test]
    fn keys_of_slurm_say_what_is_set() {
        let settings = [
            setting("cluster_name", "ref"),
            setting("controller.min_job_age", "5m"),
            setting("preempt.by", "qos"),
            setting("preempt.mode", "requeue"),
            setting("scheduler.priority_max_age", "7d"),
        ];
        let controller = PingResponse { hostname: "vm".into(), ..PingResponse::default() };
        let known =
            Known { controller: &controller, address: "127.0.0.1:6817", file: "/x", gres: "", nodes: 3 };
        let all = slurm(&settings, &known, &Show::new(TimeZone::UTC, 0));
        let value = |key: &str| all.iter().find(|row| row.key == key).map(|row| row.value.as_str());
        for (key, wanted) in [
            ("ClusterName", "ref"),
            ("MinJobAge", "300 sec"),
            ("PreemptMode", "REQUEUE"),
            ("PreemptType", "preempt/qos"),
            ("PriorityMaxAge", "7-00:00:00"),
            ("SlurmctldHost[0]", "vm(127.0.0.1)"),
            ("SlurmctldPort", "6817"),
        ] {
            assert_eq!(value(key), Some(wanted), "{key}");
        }
    }
}
