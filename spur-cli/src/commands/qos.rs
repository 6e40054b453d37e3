//! QOS of the configuration in force.

use spur_core::text::time::{Seconds, TimeLimit};
use spur_proto::v1::KeyValue;

use super::query;
use crate::session::Session;

/// One QOS; settings without a value are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Qos {
    /// Name of the QOS.
    pub(super) name: String,
    /// Priority of the QOS.
    pub(super) priority: u32,
    /// QOS whose jobs its jobs can preempt, separated by commas.
    pub(super) preempt: String,
    /// Mode in which its jobs are preempted.
    pub(super) preempt_mode: String,
    /// Grace time of its jobs when they are preempted, in Slurm's format of times.
    pub(super) grace_time: String,
    /// Time for which its jobs run before they can be preempted.
    pub(super) exempt_time: String,
    /// Maximum time limit of its jobs.
    pub(super) max_wall: String,
}

/// Returns all QOS in the order of the configuration.
///
/// # Errors
/// No answer.
pub(super) async fn all(session: &mut Session) -> anyhow::Result<Vec<Qos>> {
    Ok(read(&query::settings(session.connection()?).await?))
}

/// Returns the QOS in a list of settings `qos.NAME.KEY`.
fn read(settings: &[KeyValue]) -> Vec<Qos> {
    let mut all: Vec<Qos> = Vec::new();
    for setting in settings {
        let Some((name, key)) = setting.key.strip_prefix("qos.").and_then(|rest| rest.rsplit_once('.'))
        else {
            continue;
        };
        if all.last().is_none_or(|last| last.name != name) {
            let (preempt_mode, grace_time) = ("cluster".to_owned(), "00:00:00".to_owned());
            all.push(Qos { name: name.to_owned(), preempt_mode, grace_time, ..Qos::default() });
        }
        let (Some(qos), value) = (all.last_mut(), setting.value.as_str()) else { continue };
        if value == "(null)" {
            continue;
        }
        let span =
            || value.parse::<Seconds>().map(|span| TimeLimit::Seconds(span.0).long()).unwrap_or_default();
        match key {
            "priority" => qos.priority = value.parse().unwrap_or_default(),
            "preempt" => qos.preempt = value.to_owned(),
            "preempt_mode" => qos.preempt_mode = value.to_owned(),
            "grace_time" => qos.grace_time = span(),
            "preempt_exempt_time" => qos.exempt_time = span(),
            "max_wall" => {
                qos.max_wall = value.parse::<TimeLimit>().map(TimeLimit::long).unwrap_or_default();
            }
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_make_qos() {
        let setting = |key: &str, value: &str| KeyValue { key: key.into(), value: value.into() };
        let all = read(&[
            setting("cluster_name", "c"),
            setting("qos.high.priority", "100"),
            setting("qos.high.preempt", "low,standby"),
            setting("qos.high.grace_time", "(null)"),
            setting("qos.v1.5.max_wall", "1-00:00:00"),
            setting("qos.v1.5.grace_time", "1m"),
        ]);
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].priority, all[0].preempt.as_str()), (100, "low,standby"));
        assert_eq!((all[0].preempt_mode.as_str(), all[0].grace_time.as_str()), ("cluster", "00:00:00"));
        assert_eq!((all[1].name.as_str(), all[1].max_wall.as_str()), ("v1.5", "1-00:00:00"));
        assert_eq!(all[1].grace_time, "00:01:00");
    }
}
