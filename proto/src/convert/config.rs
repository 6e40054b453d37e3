//! The policy in force, as `scontrol show config` reads it.

use spur_core::model::config::Policy;

use crate::v1;

/// Keys and values in the order to print: the sections of the configuration file, without nodes, partitions and
/// topologies, which have commands of their own.
pub fn settings(policy: &Policy) -> Vec<v1::KeyValue> {
    let mut settings = vec![setting("cluster_name", policy.cluster_name.to_string())];
    let sections = [
        ("controller", serde_json::to_value(&policy.jobs)),
        ("scheduler", serde_json::to_value(&policy.scheduler)),
        ("preempt", serde_json::to_value(&policy.preempt)),
        ("recovery", serde_json::to_value(&policy.recovery)),
    ];
    for (section, value) in sections {
        let Ok(serde_json::Value::Object(fields)) = value else { continue };
        settings.extend(fields.iter().map(|(key, value)| setting(&format!("{section}.{key}"), plain(value))));
    }
    let licenses = policy.licenses.iter().map(|(name, count)| format!("{name}:{count}"));
    settings.push(setting("licenses", licenses.collect::<Vec<_>>().join(",")));
    settings
}

fn setting(key: &str, value: String) -> v1::KeyValue {
    v1::KeyValue { key: key.to_owned(), value }
}

fn plain(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_read_like_the_file() {
        let settings = settings(&Policy::default());
        let value =
            |key: &str| settings.iter().find(|found| found.key == key).map(|found| found.value.as_str());
        assert_eq!(value("controller.kill_wait"), Some("30s"));
        assert_eq!(value("scheduler.backfill"), Some("easy"));
    }
}
