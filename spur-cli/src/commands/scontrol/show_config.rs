//! The command `scontrol show config`: Slurm's keys, which Slurm's programs parse, and then the settings of
//! `spur.toml`.

use spur_proto::v1::KeyValue;

use super::slurm_keys::{self, Known};
use crate::format::Show;
use crate::format::value::time;

/// Parts of the output.
pub(super) struct Page {
    /// Keys of `slurm.conf`.
    pub(super) slurm: Vec<KeyValue>,
    /// Keys of `cgroup.conf`.
    pub(super) cgroup: Vec<KeyValue>,
    /// Settings of `spur.toml`, and the version of the controller.
    pub(super) own: Vec<KeyValue>,
}

impl Page {
    /// Returns the output for the controller's settings.
    pub(super) fn of(settings: Vec<KeyValue>, known: &Known<'_>, show: &Show) -> Page {
        let spur = KeyValue { key: "SPUR_VERSION".to_owned(), value: known.controller.version.clone() };
        let level = known.controller.feature_level.max(1).to_string();
        let level = KeyValue { key: "FeatureLevel".to_owned(), value: level };
        Page {
            slurm: slurm_keys::rows(&settings, known, show),
            cgroup: slurm_keys::control_groups(&settings, known, show),
            own: [vec![spur, level], settings].concat(),
        }
    }

    /// Keeps the keys that begin with `name` in any letter case; `None` if there are none.
    pub(super) fn named(mut self, name: &str) -> Option<Page> {
        let name = name.to_lowercase();
        for part in [&mut self.slurm, &mut self.cgroup, &mut self.own] {
            part.retain(|setting| setting.key.to_lowercase().starts_with(&name));
        }
        let found = [&self.slurm, &self.cgroup, &self.own].iter().any(|part| !part.is_empty());
        found.then_some(self)
    }

    /// Returns the text with one setting per line, under the heading of each part.
    pub(super) fn text(&self, show: &Show) -> String {
        let mut text = format!("Configuration data as of {}\n", time(Some(show.now), "Unknown", show));
        for (heading, part) in [
            ("", &self.slurm),
            ("\nCgroup Support Configuration:\n", &self.cgroup),
            ("\nSpur Configuration:\n", &self.own),
        ] {
            text.push_str(if part.is_empty() { "" } else { heading });
            for setting in part {
                text.push_str(&format!("{:<23} = {}\n", setting.key, setting.value));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;
    use spur_proto::v1::PingResponse;

    use super::*;

    fn setting(key: &str, value: &str) -> KeyValue {
        KeyValue { key: key.into(), value: value.into() }
    }

    #[test]
    fn keys_stand_in_a_column_that_long_ones_leave() {
        let slurm = vec![setting("ClusterName", "ref"), setting("AccountingStorageBackupHost", "(null)")];
        let page = Page { slurm, cgroup: Vec::new(), own: vec![setting("scheduler.backfill", "easy")] };
        let expected = "Configuration data as of 2026-11-20T12:17:16\n\
                        ClusterName             = ref\n\
                        AccountingStorageBackupHost = (null)\n\
                        \n\
                        Spur Configuration:\n\
                        scheduler.backfill      = easy\n";
        let show = Show::new(TimeZone::UTC, 1_795_177_036);
        assert_eq!(page.text(&show), expected);
        let one = page.named("SCHED").map(|page| page.text(&show)).unwrap_or_default();
        assert!(one.ends_with("\nscheduler.backfill      = easy\n") && !one.contains("ClusterName"), "{one}");
    }

    #[test]
    fn keys_of_slurm_say_what_is_set() {
        let settings = [
            ("cluster_name", "ref"),
            ("controller.inactive_limit", "2m"),
            ("controller.min_job_age", "5m"),
            ("controller.mpi_default", "pmix"),
            ("preempt.by", "qos"),
            ("preempt.mode", "suspend"),
            ("scheduler.depth", "1000"),
            ("scheduler.depth_per_user", "0"),
            ("scheduler.priority_max_age", "7d"),
            ("agent.listen_addr", "0.0.0.0:6818"),
            ("agent.prolog", "/a,/b"),
            ("agent.epilog", "/c"),
            ("auth.method", "key"),
            ("log.file", "/var/log/%d-%n.log"),
            ("log.level", "warn"),
            ("topology.plugin", "tree"),
        ];
        let settings: Vec<KeyValue> = settings.iter().map(|(key, value)| setting(key, value)).collect();
        let controller = PingResponse {
            hostname: "vm".into(),
            version: "0.1.0".into(),
            user: "spur(99)".into(),
            next_job_id: 7,
            ..PingResponse::default()
        };
        let known = Known {
            controller: &controller,
            address: "127.0.0.1:6817",
            file: "/x",
            gres: "gpu",
            nodes: 3,
            containment: vec!["kill:cgroup/v2,memory:sampled", "kill:cgroup/v1,memory:cgroup/v1"],
            shared_hosts: false,
        };
        let page = Page::of(settings, &known, &Show::new(TimeZone::UTC, 0));
        let all: Vec<&KeyValue> = page.slurm.iter().chain(&page.cgroup).chain(&page.own).collect();
        let value = |key: &str| all.iter().find(|row| row.key == key).map(|row| row.value.as_str());
        for (key, wanted) in [
            ("AccountingStorageTRES", "cpu,mem,node,billing,gres/gpu"),
            ("ClusterName", "ref"),
            ("CompleteWait", "(null)"),
            ("Epilog", "/c"),
            ("InactiveLimit", "120 sec"),
            ("MinJobAge", "300 sec"),
            ("MpiDefault", "pmix"),
            ("NEXT_JOB_ID", "7"),
            ("PreemptMode", "GANG,SUSPEND"),
            ("PreemptType", "preempt/qos"),
            ("PriorityMaxAge", "7-00:00:00"),
            ("ProctrackType", "proctrack/cgroup"),
            ("Prolog[1]", "/b"),
            ("SchedulerParameters", "bf_max_job_test=1000"),
            ("SlurmUser", "spur(99)"),
            ("SlurmctldHost[0]", "vm(127.0.0.1)"),
            ("SlurmctldPort", "6817"),
            ("SlurmdDebug", "error"),
            ("SlurmdLogFile", "/var/log/spurd-%n.log"),
            ("SlurmdPort", "6818"),
            ("SlurmdUser", "root(0)"),
            ("TopologyPlugin", "topology/tree"),
            ("ConstrainRAMSpace", "no"),
            ("SPUR_VERSION", "0.1.0"),
        ] {
            assert_eq!(value(key), Some(wanted), "{key}");
        }
    }
}
