//! The policy in force, as `scontrol show config` reads it.

use serde_json::Value;
use spur_core::model::config::Policy;

use crate::v1;

/// Keys and values in the order to print: the sections of the configuration file, without nodes, partitions and
/// topologies, which have commands of their own.
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
        // The name of a QOS is in the name of its section.
        let fields = fields.iter().filter(|(key, _)| *key != "name");
        settings.extend(fields.map(|(key, value)| setting(&format!("{section}.{key}"), plain(value))));
    }
    let licenses = policy.licenses.iter().map(|(name, count)| format!("{name}:{count}"));
    settings.push(setting("licenses", licenses.collect::<Vec<_>>().join(",")));
    settings
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
