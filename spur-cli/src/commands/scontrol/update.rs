//! The command `scontrol update`: selection of the entity and of its changes.

use std::collections::HashMap;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use spur_core::controller::command::NewPlaces;
use spur_core::model::config::edit;
use spur_core::text::ParseError;
use spur_core::text::hostlist::HostExpr;
use spur_core::text::jobid::JobRef;
use spur_core::text::nearest::nearest;
use spur_core::text::time::When;
use spur_proto::v1::{KeyValue, UpdateJobRequest, UpdateNodesRequest, UpdatePartitionRequest};

use crate::commands::moment::moment;
use crate::error::Failure;

/// Requested change.
#[derive(Debug, PartialEq)]
pub enum Update {
    /// Jobs by number.
    Job(UpdateJobRequest),
    /// One or more nodes.
    Nodes(UpdateNodesRequest),
    /// A partition.
    Partition(UpdatePartitionRequest),
    /// The cluster's feature level.
    FeatureLevel(u32),
    /// Jobs by name.
    Named {
        /// Name of the jobs.
        name: String,
        /// User of the jobs; `None` for all users.
        user: Option<String>,
        /// Changes, as in a request for jobs by number.
        changes: HashMap<String, String>,
    },
}

/// Keys of jobs with points in time. Only this command knows the user's zone, so it converts them.
const TIMES: [&str; 4] = ["StartTime", "EligibleTime", "EndTime", "Deadline"];
/// Keys that `scontrol update NodeName=…` accepts.
pub const NODE_KEYS: [&str; 13] = [
    "NodeName",
    "CpuBind",
    "State",
    "Reason",
    "Weight",
    "Features",
    "AvailableFeatures",
    "ActiveFeatures",
    "Gres",
    "Comment",
    "Extra",
    "Topology",
    "Foreign",
];
const NODE_STATES: [&str; 9] = [
    "CANCEL_REBOOT",
    "DOWN",
    "DRAIN",
    "POWER_DOWN",
    "POWER_DOWN_ASAP",
    "POWER_DOWN_FORCE",
    "POWER_UP",
    "RESUME",
    "UNDRAIN",
];
/// States of nodes that Slurm has and Spur does not accept.
const OTHER_STATES: [&str; 5] = ["CLOUD", "FAIL", "FUTURE", "NORESP", "UNKNOWN"];

/// Parses `JobId=… Key=Value …`, or the same with `NodeName` or `PartitionName`. Times are in `zone`,
/// relative to `now`.
///
/// # Errors
/// An unknown entity or key, or an invalid value.
pub fn read(words: &[String], zone: &TimeZone, now: Timestamp) -> Result<Update, Failure> {
    let is = |key: &str, whole: &str| {
        key.len() >= 3 && whole.get(..key.len()).is_some_and(|start| start.eq_ignore_ascii_case(key))
    };
    let mut pairs = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some((key, value)) = word.split_once('=') else {
            let value = match word {
                // `update job 12 …` is the same as `update job=12 …`.
                _ if is(word, "JobId") && pairs.is_empty() => words.next().map(String::as_str),
                // `nice` without a value is the same as the option `--nice`.
                _ if word.eq_ignore_ascii_case("nice") => Some(""),
                _ => None,
            };
            let value = value.ok_or_else(|| unsupported(word, "write KEY=VALUE"))?;
            pairs.push((word.as_str(), value.to_owned()));
            continue;
        };
        pairs.push(match key.strip_suffix(['+', '-']) {
            Some(name) => (name, format!("{}{value}", &key[name.len()..])),
            None => (key, value.to_owned()),
        });
    }
    let position = |whole| pairs.iter().position(|(key, _)| is(key, whole));
    if let Some(at) = position("StepId") {
        let (_, ids) = pairs.remove(at);
        let job_ids = step_ids(&ids)?;
        let changes = changes(pairs, zone, now)?;
        return Ok(Update::Job(UpdateJobRequest { job_ids, changes, ..UpdateJobRequest::default() }));
    }
    if let Some(at) = position("JobId") {
        let (_, ids) = pairs.remove(at);
        // The job's number determines its user.
        pairs.retain(|(key, _)| !key.eq_ignore_ascii_case("UserID"));
        let (job_ids, changes) = (job_ids(&ids)?, changes(pairs, zone, now)?);
        return Ok(Update::Job(UpdateJobRequest { job_ids, changes, ..UpdateJobRequest::default() }));
    }
    if let Some(at) = position("NodeName") {
        let (_, names) = pairs.remove(at);
        return nodes(names, pairs).map(Update::Nodes);
    }
    if let Some(at) = position("PartitionName") {
        let (_, name) = pairs.remove(at);
        return partition(name, pairs).map(Update::Partition);
    }
    let mut taken = |whole: &str| {
        let at = pairs.iter().position(|(key, _)| key.eq_ignore_ascii_case(whole))?;
        Some(pairs.remove(at).1)
    };
    if let Some(level) = taken("FeatureLevel") {
        let number = level.parse();
        let level = number
            .map_err(|_| Failure::new(format!("FeatureLevel={level}: a level is a number, such as 2")))?;
        return match pairs.first() {
            None => Ok(Update::FeatureLevel(level)),
            Some((key, _)) => Err(unsupported(key, "FeatureLevel stands alone")),
        };
    }
    if let Some(name) = taken("JobName") {
        let user = taken("UserID");
        return Ok(Update::Named { name, user, changes: changes(pairs, zone, now)? });
    }
    let text = "No valid entity in update command\n\
                Input line must include \"NodeName\", \"PartitionName\", \"Reservation\", \"JobId\", or \"SlurmctldDebug\"";
    Err(Failure::new(text))
}

fn unsupported(word: &str, help: &str) -> Failure {
    Failure::new(format!("Update of this parameter is not supported: {word}; {help}\nRequest aborted"))
}

/// Returns the changes of jobs by key.
fn changes(
    pairs: Vec<(&str, String)>,
    zone: &TimeZone,
    now: Timestamp,
) -> Result<HashMap<String, String>, Failure> {
    let mut changes = HashMap::new();
    for (key, value) in pairs {
        let moment = TIMES.iter().find(|name| name.eq_ignore_ascii_case(key));
        let value = match moment {
            Some(name) if !value.is_empty() => {
                point(&value, zone, now).map_err(|e| Failure::new(format!("Invalid {name}: {e}")))?
            }
            _ => value,
        };
        if changes.insert(key.to_owned(), value).is_some() {
            return Err(Failure::new(format!("{key} is given twice\nRequest aborted")));
        }
    }
    if changes.is_empty() {
        return Err(Failure::new("No changes specified"));
    }
    Ok(changes)
}

/// Parses a comma-separated list of jobs.
///
/// # Errors
/// The first invalid job.
pub fn job_ids(text: &str) -> Result<Vec<String>, Failure> {
    let jobs = JobRef::<u32>::parse_list(text).map_err(|e| Failure::new(format!("Invalid job id: {e}")))?;
    if let Some(step) = jobs.iter().find(|job| job.step.is_some()) {
        return Err(Failure::new(format!("{step} is a step; name the job")));
    }
    Ok(jobs.iter().map(JobRef::to_string).collect())
}

/// Parses a comma-separated list of steps.
fn step_ids(text: &str) -> Result<Vec<String>, Failure> {
    let steps = JobRef::<u32>::parse_list(text).map_err(|e| Failure::new(format!("Invalid step id: {e}")))?;
    match steps.iter().find(|step| step.step.is_none()) {
        Some(job) => Err(Failure::new(format!("Invalid step id: {job} is a job; write JOB.STEP"))),
        None => Ok(steps.iter().map(JobRef::to_string).collect()),
    }
}

/// A point in time as the wire has it: seconds since the epoch.
pub(super) fn point(text: &str, zone: &TimeZone, now: Timestamp) -> Result<String, String> {
    let when: When = text.parse().map_err(|e: ParseError| e.to_string())?;
    moment(&when, zone, now).map(|seconds| seconds.to_string())
}

/// Returns the value of `Topology=` for the controller, which is `reported` for the places that the nodes
/// report.
fn places(value: &str) -> Result<String, Failure> {
    match value.parse().map_err(|e: ParseError| Failure::new(e.to_string()))? {
        NewPlaces::Named(places) => Ok(places.to_string()),
        NewPlaces::Reported => Ok("reported".to_owned()),
    }
}

fn nodes(names: String, pairs: Vec<(&str, String)>) -> Result<UpdateNodesRequest, Failure> {
    names.parse::<HostExpr>().map_err(|e| Failure::new(e.to_string()))?;
    let mut request = UpdateNodesRequest { nodes: names, ..UpdateNodesRequest::default() };
    let mut unbound = false;
    for (key, value) in pairs {
        match key.to_ascii_lowercase().as_str() {
            "state" => {
                let state = match value.to_ascii_uppercase() {
                    // IDLE is the state of a node in service.
                    idle if idle == "IDLE" => "RESUME".to_owned(),
                    state => state,
                };
                if state == "REBOOT" {
                    let text = format!("Invalid input: State={value}: scontrol reboot boots nodes");
                    return Err(Failure::new(text));
                }
                if OTHER_STATES.contains(&state.as_str()) {
                    let text = format!("Invalid input: State={value}: not supported by Spur");
                    return Err(Failure::new(text));
                }
                request.state = one_of(&NODE_STATES, &state, &value)?;
            }
            "reason" => request.reason = value,
            "weight" => {
                let wrong = |_| Failure::new(format!("Invalid input: Weight={value}; write a whole number"));
                request.weight = Some(value.parse().map_err(wrong)?);
            }
            // In Spur all available features are active.
            "features" | "availablefeatures" | "available_features" | "activefeatures"
            | "active_features" => {
                if request.features.as_ref().is_some_and(|given| *given != value) {
                    let text = "AvailableFeatures and ActiveFeatures are the same here; give one of them";
                    return Err(Failure::new(text));
                }
                request.features = Some(value);
            }
            "topology" => request.topology = Some(places(&value)?),
            // Only steps determine the binding of tasks.
            "cpubind" if ["", "none", "off"].contains(&value.to_ascii_lowercase().as_str()) => {
                unbound = true;
            }
            "comment" => request.comment = Some(value),
            "extra" => request.extra = Some(value),
            "gres" => {
                edit::devices(&value)
                    .map_err(|problem| Failure::new(format!("Invalid input: Gres={value}: {problem}")))?;
                request.gres = Some(value);
            }
            "foreign" if value.eq_ignore_ascii_case("end") => request.end_foreign = true,
            "foreign" => {
                let text =
                    format!("Invalid input: Foreign={value}; END ends what runs there and is not known here");
                return Err(Failure::new(text));
            }
            _ => {
                let help = format!("nodes have {}", NODE_KEYS[1..].join(", "));
                return Err(unsupported(&format!("{key}={value}"), &help));
            }
        }
    }
    if matches!(request.state.as_str(), "DOWN" | "DRAIN") && request.reason.is_empty() {
        let text = "You must specify a reason when DOWNING or DRAINING a node. Request denied";
        return Err(Failure::new(text));
    }
    let asks = request.weight.is_some() || request.features.is_some() || request.topology.is_some();
    let texts = request.gres.is_some() || request.comment.is_some() || request.extra.is_some();
    let asks = asks || request.end_foreign || texts || unbound;
    if !asks && request.state.is_empty() && request.reason.is_empty() {
        return Err(Failure::new("No changes specified"));
    }
    Ok(request)
}

fn partition(name: String, pairs: Vec<(&str, String)>) -> Result<UpdatePartitionRequest, Failure> {
    // Only the controller knows the valid keys and values.
    let settings = pairs.into_iter().map(|(key, value)| KeyValue { key: key.to_owned(), value });
    let settings: Vec<KeyValue> = settings.collect();
    if settings.is_empty() {
        return Err(Failure::new("No changes specified"));
    }
    Ok(UpdatePartitionRequest { name, settings, ..UpdatePartitionRequest::default() })
}

fn one_of(known: &[&'static str], state: &str, written: &str) -> Result<String, Failure> {
    if known.contains(&state) {
        return Ok(state.to_owned());
    }
    let hint = nearest(state, known.iter().copied());
    let hint = hint.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
    let text =
        format!("Invalid input: State={written}{hint}\nAcceptable State values are {}", known.join(", "));
    Err(Failure::new(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(text: &str) -> Result<Update, String> {
        let words: Vec<String> = text.split(' ').map(|word| word.replace('_', " ")).collect();
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        let now = Timestamp::from_second(1_795_176_697).unwrap();
        read(&words, &zone, now).map_err(|e| e.to_string())
    }

    fn changes(text: &str) -> Vec<(String, String)> {
        match update(text) {
            Ok(Update::Job(request)) => {
                let mut changes: Vec<_> = request.changes.into_iter().collect();
                changes.sort();
                changes.insert(0, ("".into(), request.job_ids.join(" ")));
                changes
            }
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn jobs_are_changed_in_all_keys_at_once() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            changes("JobId=4,5 TimeLimit=30:00 Priority=500 Comment="),
            [pair("", "4 5"), pair("Comment", ""), pair("Priority", "500"), pair("TimeLimit", "30:00")]
        );
        assert_eq!(changes("job 4 TimeLimit=5"), [pair("", "4"), pair("TimeLimit", "5")]);
        assert_eq!(changes("job=4 nice"), [pair("", "4"), pair("nice", "")]);
        assert_eq!(changes("job=4 TimeLimit+=30"), [pair("", "4"), pair("TimeLimit", "+30")]);
        assert_eq!(changes("TimeLimit=-5 jobid=4"), [pair("", "4"), pair("TimeLimit", "-5")]);
    }

    #[test]
    fn times_are_seconds_of_the_users_zone() {
        let wanted = [("".to_owned(), "4".to_owned()), ("StartTime".to_owned(), "1795255200".to_owned())];
        assert_eq!(changes("JobId=4 StartTime=2026-11-21T11:00:00"), wanted);
        assert_eq!(changes("JobId=4 EligibleTime=now+60")[1].1, "1795176757");
        assert_eq!(changes("JobId=4 Deadline=")[1].1, "");
    }

    #[test]
    fn nodes_and_partitions_have_their_own_keys() {
        let pair = |key: &str, value: &str| KeyValue { key: key.into(), value: value.into() };
        let wanted = UpdateNodesRequest {
            nodes: "n[1-2]".into(),
            state: "DRAIN".into(),
            reason: "bad fan".into(),
            ..UpdateNodesRequest::default()
        };
        assert_eq!(update("NodeName=n[1-2] State=drain Reason=bad_fan"), Ok(Update::Nodes(wanted)));
        let wanted = UpdateNodesRequest {
            nodes: "n1".into(),
            weight: Some(7),
            features: Some(String::new()),
            ..UpdateNodesRequest::default()
        };
        assert_eq!(update("node=n1 Weight=7 Features="), Ok(Update::Nodes(wanted)));
        let wanted = UpdateNodesRequest {
            nodes: "n1".into(),
            features: Some("a".into()),
            state: "RESUME".into(),
            ..UpdateNodesRequest::default()
        };
        assert_eq!(
            update("node=n1 state=idle availablefeatures=a activefeatures=a"),
            Ok(Update::Nodes(wanted))
        );
        for (written, sent) in [("Reported", "reported"), ("default:top:s1", "default:top:s1"), ("", "")] {
            let wanted = UpdateNodesRequest {
                nodes: "n1".into(),
                topology: Some(sent.into()),
                ..UpdateNodesRequest::default()
            };
            assert_eq!(update(&format!("node=n1 Topology={written}")), Ok(Update::Nodes(wanted)));
        }
        let wanted = UpdatePartitionRequest {
            name: "p".into(),
            settings: vec![pair("state", "up"), pair("Nodes", "+n3")],
            ..UpdatePartitionRequest::default()
        };
        assert_eq!(update("partition=p state=up Nodes+=n3"), Ok(Update::Partition(wanted)));
    }

    #[test]
    fn what_cannot_be_changed_is_refused() {
        for (text, part) in [
            ("foo=1", "No valid entity"),
            ("jobid=4", "No changes"),
            ("jobid=x nice=1", "Invalid job id"),
            ("jobid=4.0 nice=1", "4.0 is a step"),
            ("jobid=4 tidy", "not supported: tidy"),
            ("nice job 4", "not supported: job"),
            ("job", "not supported: job"),
            ("jobid=4 nice=1 nice=2", "given twice"),
            ("jobid=4 starttime=yesteryear", "Invalid StartTime"),
            ("nodename=n1 state=drain", "must specify a reason"),
            ("nodename=n1 state=dran reason=x", "did you mean DRAIN?"),
            ("nodename=n1 availablefeatures=a activefeatures=b", "the same here"),
            ("nodename=n1 colour=red", "not supported: colour=red"),
            ("nodename=n1 weight=heavy", "whole number"),
            ("nodename=n[1 state=resume", "n[1"),
            ("nodename=n1 state=fail", "not supported by Spur"),
            ("nodename=n1 gres=:", "Invalid input: Gres=:"),
            ("partition=p", "No changes"),
        ] {
            let error = update(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
