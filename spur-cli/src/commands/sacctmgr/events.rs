//! The command `sacctmgr show events`: periods in which nodes were out of service, with their reasons.

use jiff::Timestamp;
use spur_core::text::time::{TimeLimit, When};
use spur_proto::client::Controller;
use spur_proto::v1::{ListNodeEventsRequest, NodeEvent};

use super::fields::{field, headed};
use super::{Conditions, Settings};
use crate::commands::moment::past_moment;
use crate::commands::query;
use crate::error::Bare;
use crate::format::report::Column;
use crate::format::value::time;
use crate::session::Session;
use crate::zone;

/// An event, its cluster, and the present time, which ends the duration of an open event.
struct Event {
    event: NodeEvent,
    cluster: String,
    now: i64,
}

const EVENT: [Column<Event>; 11] = [
    field("Cluster", 10, |row, _| row.cluster.clone()),
    field("ClusterNodes", 20, |_, _| String::new()),
    field("Duration", 13, |row, _| {
        let secs = row.event.end.unwrap_or(row.now).saturating_sub(row.event.start);
        TimeLimit::Seconds(u64::try_from(secs).unwrap_or(0)).long()
    }),
    headed("End", "TimeEnd", 19, |row, show| time(row.event.end, "Unknown", show)),
    headed("TimeEnd", "TimeEnd", 19, |row, show| time(row.event.end, "Unknown", show)),
    field("Event", 7, |_, _| "Node".to_owned()),
    field("NodeName", -15, |row, _| row.event.node.clone()),
    field("Reason", 30, |row, _| row.event.reason.clone()),
    headed("Start", "TimeStart", 19, |row, show| time(Some(row.event.start), "Unknown", show)),
    field("State", 6, |row, _| row.event.state.clone()),
    field("User", 10, |row, _| match row.event.user.as_str() {
        "root" => "root(0)".to_owned(),
        user => user.to_owned(),
    }),
];
const SHOWN: &str = "cluster,nodename,start,end,state,reason,user";

/// Conditions after the word `events`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    nodes: String,
    states: Vec<String>,
    reasons: Vec<String>,
    users: Vec<String>,
    start: Option<When>,
    end: Option<When>,
    /// True for events of all times instead of those since yesterday.
    all_time: bool,
}

impl Asked {
    fn read(conditions: &Conditions) -> Result<Asked, Bare> {
        let mut asked = Asked::default();
        for name in &conditions.names {
            match name.to_ascii_lowercase().as_str() {
                "all_time" => asked.all_time = true,
                // The cluster is the only one, so this is the default.
                "all_clusters" => {}
                _ => return Err(unknown(name)),
            }
        }
        for word in &conditions.others {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let lower = key.to_ascii_lowercase();
            let is = |name: &str| lower.len() > 1 && name.starts_with(&lower);
            let moment = || value.parse().map_err(|error| Bare(format!("Invalid time {word}: {error}")));
            if is("nodes") {
                value.clone_into(&mut asked.nodes);
            } else if is("states") {
                asked.states = query::list(&value.to_ascii_uppercase());
            } else if is("reasons") {
                asked.reasons = query::list(value);
            } else if is("users") {
                asked.users = query::list(value);
            } else if is("start") {
                asked.start = Some(moment()?);
            } else if is("end") {
                asked.end = Some(moment()?);
            } else if is("events") && value.to_ascii_lowercase().starts_with("node") || is("clusters") {
                // All events belong to nodes of this cluster.
            } else {
                return Err(unknown(word));
            }
        }
        Ok(asked)
    }

    /// Returns the request for a period, by default since yesterday. States without a start time select nodes
    /// that are in such a state at present.
    fn request(&self, now: Timestamp) -> Result<ListNodeEventsRequest, Bare> {
        let zone = zone::local();
        let moment = |when: &When| past_moment(*when, &zone, now).map_err(Bare);
        let open = !self.states.is_empty() && self.start.is_none() && !self.all_time;
        let start = match &self.start {
            Some(when) => Some(moment(when)?),
            None if open || self.all_time => None,
            None => Some(moment(&"today".parse().map_err(|_| Bare(String::new()))?)? - 86_400),
        };
        let end = self.end.as_ref().map(moment).transpose()?;
        Ok(ListNodeEventsRequest { start, end, nodelist: self.nodes.clone(), open })
    }

    /// True if an event has one of the requested states, reasons and users.
    fn admits(&self, event: &NodeEvent) -> bool {
        let state = |wanted: &String| {
            event.state.split('+').any(|word| word == wanted || word.trim_end_matches('*') == wanted)
        };
        let is = |list: &[String], value: &str| list.is_empty() || list.iter().any(|one| one == value);
        (self.states.is_empty() || self.states.iter().any(state))
            && is(&self.reasons, &event.reason)
            && is(&self.users, &event.user)
    }
}

fn unknown(word: &str) -> Bare {
    Bare(format!(" Unknown condition: {word}"))
}

/// Returns the table of events.
///
/// # Errors
/// An unknown condition or field, or a refusal by the controller.
pub(super) async fn run(
    session: &mut Session,
    settings: &Settings,
    conditions: &Conditions,
) -> anyhow::Result<String> {
    let asked = Asked::read(conditions)?;
    let now = Timestamp::now();
    let request = asked.request(now)?;
    let call = async |mut controller: Controller, request| controller.list_node_events(request).await;
    let pages = session.connection()?.list(request, call).await?;
    let cluster = query::cluster_name(session).await?;
    let events = pages.into_iter().flat_map(|page| page.events).filter(|event| asked.admits(event));
    let row = |event| Event { event, cluster: cluster.clone(), now: now.as_second() };
    let rows: Vec<Event> = events.map(row).collect();
    settings.table(&EVENT, SHOWN, conditions, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(names: &[&str], others: &[&str]) -> Result<Asked, String> {
        let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let conditions = Conditions { names: list(names), others: list(others), ..Conditions::default() };
        Asked::read(&conditions).map_err(|Bare(text)| text)
    }

    #[test]
    fn events_are_chosen_by_state_reason_and_user() {
        let event = NodeEvent {
            state: "DOWN*+DRAIN".into(),
            reason: "fan".into(),
            user: "root".into(),
            ..NodeEvent::default()
        };
        for (words, admitted) in [
            (&[][..], true),
            (&["states=down"], true),
            (&["State=drain,idle"], true),
            (&["states=idle"], false),
            (&["reason=fan"], true),
            (&["reason=fan", "user=alice"], false),
            (&["events=nodes", "cluster=lab"], true),
        ] {
            assert_eq!(asked(&[], words).map(|asked| asked.admits(&event)), Ok(admitted), "{words:?}");
        }
        assert_eq!(asked(&[], &["nosuch=1"]), Err(" Unknown condition: nosuch=1".to_owned()));
        assert_eq!(asked(&["all"], &[]), Err(" Unknown condition: all".to_owned()));
    }

    #[test]
    fn the_window_begins_yesterday_unless_states_are_named() {
        let now = Timestamp::from_second(1_795_177_036).expect("a time");
        let request = |names: &[&str], words: &[&str]| {
            asked(names, words).expect("conditions").request(now).expect("a window")
        };
        let usual = request(&[], &[]);
        assert!(usual.start.is_some_and(|start| (86_400..=2 * 86_400).contains(&(now.as_second() - start))));
        assert!(!usual.open && usual.end.is_none());
        assert_eq!(request(&["All_Time"], &[]).start, None);
        let open = request(&[], &["states=down"]);
        assert!(open.open && open.start.is_none());
        assert_eq!(request(&[], &["states=down", "start=now-1hour"]).start, Some(now.as_second() - 3600));
    }
}
