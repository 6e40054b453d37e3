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

/// The settings of `spur.toml` as the controller has them.
struct Own<'a>(&'a [KeyValue]);

impl Own<'_> {
    fn text(&self, key: &str) -> &str {
        self.0.iter().find(|setting| setting.key == key).map_or("", |setting| setting.value.as_str())
    }

    fn seconds(&self, key: &str) -> u64 {
        self.text(key).parse::<Seconds>().map_or(0, |seconds| seconds.0)
    }

    fn secs(&self, key: &str) -> String {
        format!("{} sec", self.seconds(key))
    }

    fn span(&self, key: &str) -> String {
        TimeLimit::Seconds(self.seconds(key)).long()
    }

    fn weight(&self, name: &str) -> String {
        self.text(&format!("scheduler.priority_weight_{name}")).to_owned()
    }
}

/// Slurm's keys with what is true of them here, in Slurm's order. What Spur has no counterpart of is not there.
pub fn slurm(settings: &[KeyValue], known: &Known<'_>, show: &Show) -> Vec<KeyValue> {
    let own = Own(settings);
    let mut rows = jobs(&own, known, show);
    rows.extend(policy(&own));
    rows.extend(place(&own, known));
    let row = |(key, value): (&str, String)| KeyValue { key: key.to_owned(), value };
    rows.into_iter().map(row).collect()
}

type Rows = Vec<(&'static str, String)>;

fn jobs(own: &Own<'_>, known: &Known<'_>, show: &Show) -> Rows {
    let fixed = str::to_owned;
    vec![
        ("AccountingStorageEnforce", fixed("none")),
        ("AccountingStorageTRES", fixed("cpu,mem,node,billing")),
        ("AccountingStorageType", fixed("accounting_storage/spur")),
        ("AuthType", fixed("auth/spur")),
        ("BOOT_TIME", time(Some(known.controller.started), "Unknown", show)),
        ("BurstBufferType", fixed("(null)")),
        ("ClusterName", own.text("cluster_name").to_owned()),
        ("CredType", fixed("cred/spur")),
        ("DefMemPerNode", fixed("UNLIMITED")),
        ("EnforcePartLimits", own.text("controller.enforce_part_limits").to_owned()),
        ("FederationParameters", fixed("(null)")),
        ("FirstJobId", fixed("1")),
        ("GresTypes", or_null(known.gres)),
        ("InactiveLimit", fixed("0 sec")),
        ("JobRequeue", u8::from(own.text("controller.requeue") == "true").to_string()),
        ("KillWait", own.secs("controller.kill_wait")),
        ("Licenses", or_null(own.text("licenses"))),
        ("MaxArraySize", own.text("controller.max_array_size").to_owned()),
        ("MaxJobCount", own.text("controller.max_job_count").to_owned()),
        ("MaxMemPerNode", fixed("UNLIMITED")),
        ("MaxNodeCount", known.nodes.to_string()),
        ("MCSPlugin", fixed("mcs/none")),
        ("MinJobAge", own.secs("controller.min_job_age")),
        ("MpiDefault", own.text("controller.mpi_default").to_owned()),
    ]
}

fn policy(own: &Own<'_>) -> Rows {
    let preempts = own.text("preempt.by");
    let mode = if preempts == "none" { "OFF".to_owned() } else { own.text("preempt.mode").to_uppercase() };
    let by = match preempts {
        "partition" => "preempt/partition_prio",
        "qos" => "preempt/qos",
        _ => "preempt/none",
    };
    let order = match own.text("scheduler.order") {
        "multifactor" => "priority/multifactor".to_owned(),
        "fcfs" => "priority/basic".to_owned(),
        other => format!("priority/{other}"),
    };
    let hidden = match own.text("controller.private_data") {
        "" => "none",
        names => names,
    };
    let small = if own.text("scheduler.priority_favor_small") == "true" { "Yes" } else { "No" };
    vec![
        ("PreemptExemptTime", own.span("preempt.exempt_time")),
        ("PreemptMode", mode),
        ("PreemptType", by.to_owned()),
        ("PriorityDecayHalfLife", own.span("scheduler.priority_decay_half_life")),
        ("PriorityFavorSmall", small.to_owned()),
        ("PriorityMaxAge", own.span("scheduler.priority_max_age")),
        ("PriorityType", order),
        ("PriorityWeightAge", own.weight("age")),
        ("PriorityWeightAssoc", "0".to_owned()),
        ("PriorityWeightFairShare", own.weight("fairshare")),
        ("PriorityWeightJobSize", own.weight("job_size")),
        ("PriorityWeightPartition", own.weight("partition")),
        ("PriorityWeightQOS", own.weight("qos")),
        ("PriorityWeightTRES", "(null)".to_owned()),
        ("PrivateData", hidden.to_owned()),
    ]
}

fn place(own: &Own<'_>, known: &Known<'_>) -> Rows {
    let (host, port) = known.address.rsplit_once(':').unwrap_or((known.address, "0"));
    let named = &known.controller.hostname;
    let host = if host == named { host.to_owned() } else { format!("{named}({host})") };
    let scheduler = match own.text("scheduler.backfill") {
        "none" => "sched/builtin",
        _ => "sched/backfill",
    };
    let named = |key| match own.text(key) {
        "" => "(null)".to_owned(),
        text => text.to_owned(),
    };
    let rate = |key| format!("{} nodes/min", own.text(key));
    let idle = match own.text("power.suspend_time") {
        "" | "(null)" => "INFINITE".to_owned(),
        _ => own.secs("power.suspend_time"),
    };
    vec![
        ("RebootProgram", named("power.reboot_program")),
        ("ResumeFailProgram", named("power.resume_fail_program")),
        ("ResumeProgram", named("power.resume_program")),
        ("ResumeRate", rate("power.resume_rate")),
        ("ResumeTimeout", own.secs("power.resume_timeout")),
        ("SchedulerType", scheduler.to_owned()),
        ("SelectType", "select/cons_tres".to_owned()),
        ("SelectTypeParameters", "CR_CPU_MEMORY".to_owned()),
        ("SlurmctldHost[0]", host),
        ("SlurmctldPort", port.to_owned()),
        ("SlurmdTimeout", own.secs("recovery.node_timeout")),
        ("SLURM_CONF", known.file.to_owned()),
        ("SLURM_VERSION", SLURM.to_owned()),
        ("SuspendExcNodes", named("power.suspend_exc_nodes")),
        ("SuspendExcParts", named("power.suspend_exc_parts")),
        ("SuspendProgram", named("power.suspend_program")),
        ("SuspendRate", rate("power.suspend_rate")),
        ("SuspendTime", idle),
        ("SuspendTimeout", own.secs("power.suspend_timeout")),
        ("SwitchType", "switch/none".to_owned()),
        ("TrackWCKey", "No".to_owned()),
    ]
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
            setting("controller.mpi_default", "pmix"),
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
            ("MpiDefault", "pmix"),
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
