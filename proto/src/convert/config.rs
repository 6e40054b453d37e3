//! The policy in force, for `scontrol show config`.

use serde_json::Value;
use spur_core::model::config::{AuthMethod, Local, LogFormat, LogLevel, Policy};
use spur_core::model::topology::{DEFAULT_TOPOLOGY, Plugin};

use crate::v1;

/// Returns keys and values of the configuration file's sections, in printing order. Nodes, partitions and
/// topologies have commands of their own.
pub fn settings(policy: &Policy) -> Vec<v1::KeyValue> {
    let mut settings = vec![setting("cluster_name", policy.cluster_name.to_string())];
    let sections = [
        ("controller".to_owned(), serde_json::to_value(&policy.jobs)),
        ("scheduler".to_owned(), serde_json::to_value(&policy.scheduler)),
        ("preempt".to_owned(), serde_json::to_value(&policy.preempt)),
        ("recovery".to_owned(), serde_json::to_value(&policy.recovery)),
        ("power".to_owned(), serde_json::to_value(&policy.power)),
    ];
    let qos = policy.qos.iter().map(|qos| (format!("qos.{}", qos.name), serde_json::to_value(qos)));
    for (section, value) in sections.into_iter().chain(qos) {
        let Ok(Value::Object(fields)) = value else { continue };
        // The section's name contains the name of the QOS.
        let fields = fields.iter().filter(|(key, _)| *key != "name");
        settings.extend(fields.map(|(key, value)| setting(&format!("{section}.{key}"), plain(value))));
    }
    let licenses = policy.licenses.iter().map(|(name, count)| format!("{name}:{count}"));
    settings.push(setting("licenses", licenses.collect::<Vec<_>>().join(",")));
    let topology = policy.topologies.iter().find(|topology| topology.name == DEFAULT_TOPOLOGY);
    let plugin = match topology.map(|topology| topology.plugin) {
        Some(Plugin::Tree) => "tree",
        Some(Plugin::Block) => "block",
        Some(Plugin::None) | None => "none",
    };
    settings.push(setting("topology.plugin", plugin.to_owned()));
    settings
}

/// Returns the settings of the controller's host and of the node daemons, for `scontrol show config`. Users'
/// limits, devices and the site's certificates are left out.
pub fn local_settings(local: &Local) -> Vec<v1::KeyValue> {
    let Local { controller, auth, agent, log, .. } = local;
    let level = match log.level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    let method = match auth.method {
        AuthMethod::Key => "key",
        AuthMethod::None => "none",
    };
    let format = match log.format {
        LogFormat::Plain => "plain",
        LogFormat::Json => "json",
    };
    let health: Vec<&str> = agent.health_check_node_state.iter().map(|state| state.name()).collect();
    let all = [
        ("controller.listen_addr", controller.listen_addr.to_string()),
        ("controller.addr", joined(&controller.addresses)),
        ("controller.metrics_addr", or_null(controller.metrics_addr.as_ref())),
        ("controller.state", controller.state.to_string()),
        ("controller.mail_prog", or_null(controller.mail_prog.as_ref().map(|path| path.display()))),
        ("auth.method", method.to_owned()),
        ("auth.key_file", auth.key_file.display().to_string()),
        ("auth.socket", auth.socket.display().to_string()),
        ("auth.user", or_null(auth.user.as_ref())),
        ("agent.listen_addr", agent.listen_addr.to_string()),
        ("agent.spool_dir", agent.spool_dir.clone()),
        ("agent.heartbeat_interval", agent.heartbeat_interval.to_string()),
        ("agent.prolog", joined(agent.prolog.iter().map(|path| path.display()))),
        ("agent.epilog", joined(agent.epilog.iter().map(|path| path.display()))),
        ("agent.prolog_timeout", agent.prolog_timeout.to_string()),
        ("agent.task_prolog", or_null(agent.task_prolog.as_ref().map(|path| path.display()))),
        ("agent.task_epilog", or_null(agent.task_epilog.as_ref().map(|path| path.display()))),
        (
            "agent.health_check_program",
            or_null(agent.health_check_program.as_ref().map(|path| path.display())),
        ),
        ("agent.health_check_interval", agent.health_check_interval.to_string()),
        (
            "agent.health_check_node_state",
            if health.is_empty() { "ANY".to_owned() } else { health.join(",") },
        ),
        ("agent.output_wait", agent.output_wait.to_string()),
        ("agent.job_acct_gather_frequency", agent.job_acct_gather_frequency.to_string()),
        ("agent.cgroup_plugin", agent.cgroup_plugin.name().to_owned()),
        ("agent.constrain_devices", agent.constrain_devices.to_string()),
        (
            "agent.job_container_base_path",
            or_null(agent.job_container_base_path.as_ref().map(|path| path.display())),
        ),
        ("agent.job_container_dirs", joined(agent.job_container_dirs.iter().map(|path| path.display()))),
        ("agent.report", joined(agent.report.iter().map(|fact| fact.name()))),
        ("log.level", level.to_owned()),
        ("log.format", format.to_owned()),
        ("log.file", or_null(log.file.as_ref())),
    ];
    all.into_iter().map(|(key, value)| setting(key, value)).collect()
}

fn or_null(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "(null)".to_owned(), |value| value.to_string())
}

fn joined(all: impl IntoIterator<Item = impl ToString>) -> String {
    all.into_iter().map(|one| one.to_string()).collect::<Vec<_>>().join(",")
}

fn setting(key: &str, value: String) -> v1::KeyValue {
    v1::KeyValue { key: key.to_owned(), value }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "(null)".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(plain).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use spur_core::model::config::QosConfig;

    use super::*;

    #[test]
    fn settings_read_like_the_file() {
        let preempt = vec!["low".into(), "standby".into()];
        let high = QosConfig { name: "high".into(), preempt, ..QosConfig::default() };
        let settings = settings(&Policy { qos: vec![high], ..Policy::default() });
        let value =
            |key: &str| settings.iter().find(|found| found.key == key).map(|found| found.value.as_str());
        assert_eq!(value("controller.kill_wait"), Some("30s"));
        assert_eq!(value("scheduler.backfill"), Some("easy"));
        assert_eq!((value("power.resume_rate"), value("power.suspend_time")), (Some("300"), Some("(null)")));
        assert_eq!(value("scheduler.default_qos"), Some("(null)"));
        assert_eq!((value("qos.high.preempt"), value("qos.high.name")), (Some("low,standby"), None));
    }
}
