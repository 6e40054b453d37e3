//! The commands of `scontrol` about the controller itself: ping, reconfigure, log levels, shutdown and
//! takeover.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;
use spur_proto::client::{CallError, Controller};
use spur_proto::v1::{PingRequest, PingResponse, ReconfigureRequest, SetDebugRequest, ShutdownRequest};

use super::{bare, errnumstr, meant};
use crate::commands::query;
use crate::error::Failure;
use crate::format::json::{self, Wish};
use crate::session::Session;

/// Maximum time for another controller to take over.
const TAKEOVER: Duration = Duration::from_secs(60);

/// Pause between two pings while the previous controller ends.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Pings the controller and returns its answer.
///
/// # Errors
/// No answer.
pub async fn ping(session: &mut Session) -> anyhow::Result<PingResponse> {
    let call = async |mut controller: Controller, request| controller.ping(request).await;
    Ok(session.connection()?.read(PingRequest::default(), call).await?)
}

/// Returns the line that `ping` prints, which is also the last one of the configuration.
pub(super) fn is_up(answer: &PingResponse) -> String {
    let but = match answer.old_copy.as_str() {
        "" => String::new(),
        why => format!(
            " and starts nothing: it has an old copy of its journal ({why}); see spurctld --new-history"
        ),
    };
    let clock = match answer.clock_ahead {
        ahead if ahead.unsigned_abs() > 60 => {
            let side = if ahead > 0 { "ahead of" } else { "behind" };
            format!(
                "; its wall clock is {} s {side} the one that durations are counted by",
                ahead.unsigned_abs()
            )
        }
        _ => String::new(),
    };
    let role = if answer.stands_by { "backup" } else { "primary" };
    let away = match answer.database_away.as_str() {
        "" => String::new(),
        why => format!("; its database is away ({why})"),
    };
    let differs = match answer.differs.as_str() {
        "" => String::new(),
        differs => format!("; its configuration is not what is in force: {differs}"),
    };
    format!("Slurmctld({role}) at {} is UP{but}{clock}{away}{differs}", answer.hostname)
}

/// One controller and its state.
struct Found {
    host: String,
    /// True if the controller leads, or is the one that should lead.
    is_primary: bool,
    /// True if the controller is there. A standby of level 1 answers no ping, and names the leader instead.
    is_up: bool,
    /// The controller's answer to a ping; `None` if it gave none.
    answer: Option<PingResponse>,
}

/// Prints the state of each controller; fails if none leads.
pub(super) async fn is_there(session: &mut Session, wish: Option<Wish>) -> anyhow::Result<u8> {
    let mut found = Vec::new();
    let mut failed = None;
    for mut connection in session.connection()?.each() {
        connection.set_patience(Duration::ZERO);
        let address = connection.address().to_owned();
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host).to_owned();
        let call = async |mut controller: Controller, request| controller.ping(request).await;
        found.push(match connection.read(PingRequest { whoever_leads: true }, call).await {
            Ok(answer) => Found { host, is_primary: !answer.stands_by, is_up: true, answer: Some(answer) },
            Err(CallError::Standby { .. }) => Found { host, is_primary: false, is_up: true, answer: None },
            Err(error) => {
                failed = Some(error);
                Found { host: address, is_primary: false, is_up: false, answer: None }
            }
        });
    }
    let leads = found.iter().any(|one| one.is_primary);
    if !leads && let Some(lost) = found.iter_mut().find(|one| !one.is_up) {
        lost.is_primary = true;
    }
    let text = match wish {
        Some(wish) => {
            let mut show = query::show(&|name| session.env(name))?;
            if let Some(answer) = found.iter().find_map(|one| one.answer.as_ref()) {
                show.cluster.clone_from(&answer.cluster_name);
            }
            let pings: Vec<_> = found.iter().map(|one| pinged(one, wish.spur)).collect();
            wish.listing(&show, "pings", &pings, pings.iter().cloned())
        }
        None => found.iter().map(|one| format!("{}\n", in_words(one))).collect(),
    };
    write!(session.out, "{text}")?;
    if let Some(news) = level_news(&found) {
        session.inform(&news);
    }
    match failed {
        _ if leads => Ok(0),
        Some(error) => Err(error.into()),
        None => Err(Failure::new("no controller leads").into()),
    }
}

/// Returns what keeps the cluster from a higher feature level, or the command that raises it; `None` if
/// the cluster has the highest level that its controllers know, or if no controller leads.
fn level_news(found: &[Found]) -> Option<String> {
    let answers = || found.iter().filter_map(|one| one.answer.as_ref());
    let leader = answers().find(|answer| !answer.stands_by)?;
    let (has, newest) = (leader.feature_level, leader.newest_feature_level);
    if has >= newest {
        return None;
    }
    let knows = |answer: &PingResponse| answer.newest_feature_level >= newest;
    let old = answers()
        .filter(|answer| !knows(answer))
        .map(|answer| format!("the controller at {}", answer.hostname));
    let silent =
        found.iter().filter(|one| one.answer.is_none()).map(|one| format!("the controller at {}", one.host));
    let nodes = (!leader.old_nodes.is_empty()).then(|| format!("the spurd of {}", leader.old_nodes));
    let waits_for: Vec<String> = old.chain(silent).chain(nodes).collect();
    Some(match waits_for.is_empty() {
        true => format!(
            "FeatureLevel={has}; all daemons that answer know FeatureLevel={newest}, and scontrol update \
             FeatureLevel={newest} raises it"
        ),
        false => format!(
            "FeatureLevel={has}; FeatureLevel={newest} waits for an upgrade of {}",
            waits_for.join(", ")
        ),
    })
}

fn in_words(found: &Found) -> String {
    if let Some(answer) = &found.answer {
        return is_up(answer);
    }
    let role = if found.is_primary { "primary" } else { "backup" };
    let state = if found.is_up { "UP" } else { "DOWN" };
    format!("Slurmctld({role}) at {} is {state}", found.host)
}

/// Returns the result of a ping under Slurm's keys; `own` adds the leader's answer.
fn pinged(found: &Found, own: bool) -> serde_json::Value {
    let mut ping = json!({
        "hostname": found.answer.as_ref().map_or(&found.host, |answer| &answer.hostname),
        "pinged": if found.is_up { "UP" } else { "DOWN" },
        "responding": found.is_up,
        "mode": if found.is_primary { "primary" } else { "backup" },
        "primary": found.is_primary,
        "latency": 0,
    });
    if let Some(answer) = found.answer.as_ref().filter(|_| own) {
        ping["controller"] = json::to_value(answer);
    }
    ping
}

/// Makes the controller read its configuration again and prints the changes.
pub(super) async fn reconfigure(session: &mut Session) -> anyhow::Result<u8> {
    let call = async |mut controller: Controller, request| controller.reconfigure(request).await;
    let answer = session.connection()?.read(ReconfigureRequest {}, call).await;
    let answer = answer.context(bare("slurm_reconfigure error"))?;
    for change in answer.changes {
        session.inform(&change);
    }
    Ok(0)
}

/// Ends the daemons, or only the controller if `whose` names it.
pub(super) async fn shut_down(session: &mut Session, whose: Option<&str>) -> anyhow::Result<u8> {
    let controller_only = match whose.map(|whose| (whose, meant(whose, &["controller", "slurmctld"]))) {
        None => false,
        Some((_, Some(_))) => true,
        Some((other, None)) => {
            let message =
                format!("invalid option for keyword:shutdown: {other}; controller, slurmctld or none");
            return Err(bare(message).into());
        }
    };
    end(session, ShutdownRequest { controller_only, hand_over: false }).await?;
    Ok(0)
}

async fn end(session: &mut Session, request: ShutdownRequest) -> Result<(), anyhow::Error> {
    let call = async |mut controller: Controller, request| controller.shutdown(request).await;
    let ended = session.connection()?.read(request, call).await;
    ended.context(bare("slurm_shutdown error"))?;
    Ok(())
}

/// Ends the controller in charge, so that another one takes over, and waits for the other's answer.
pub(super) async fn take_over(session: &mut Session, index: Option<&str>) -> anyhow::Result<u8> {
    let others = session.connection()?.controllers() - 1;
    let index = index.unwrap_or("1");
    if !index.parse::<usize>().is_ok_and(|index| (1..=others).contains(&index)) {
        let text = match others {
            0 => "slurm_takeover error: Unable to contact slurm controller (connect failure): there is no other".to_owned(),
            _ => format!("takeover: invalid backup controller index ({index})"),
        };
        return Err(bare(text).into());
    }
    let before = ping(session).await?;
    end(session, ShutdownRequest { controller_only: true, hand_over: true }).await?;
    session.connection()?.set_patience(TAKEOVER);
    let give_up = Instant::now() + TAKEOVER;
    loop {
        let now = ping(session).await?;
        if (&now.hostname, now.pid) != (&before.hostname, before.pid) {
            session.inform(&is_up(&now));
            return Ok(0);
        }
        // The previous controller answers until it has ended.
        if Instant::now() >= give_up {
            return Err(Failure::new(format!("{} is still in charge", now.hostname)).into());
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Slurm's log levels by number.
const LEVELS: [&str; 10] =
    ["quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5"];

/// Runs `setdebug LEVEL`.
pub(super) async fn set_debug(session: &mut Session, level: &str) -> anyhow::Result<u8> {
    let number = level.parse::<usize>().ok().or_else(|| LEVELS.iter().position(|name| *name == level));
    let Some(name) = number.and_then(|number| LEVELS.get(number)) else {
        return Err(bare(format!("invalid debug level: {level}")).into());
    };
    let request = SetDebugRequest { level: (*name).to_owned(), ..SetDebugRequest::default() };
    ask_debug(session, request, "slurm_set_debug_level error").await
}

/// Runs `setdebugflags [+|-]FLAG …`.
pub(super) async fn set_debug_flags(session: &mut Session, words: &[String]) -> anyhow::Result<u8> {
    let mut request = SetDebugRequest::default();
    for word in words {
        match word.strip_prefix('-') {
            Some(flag) => request.flags_off.push(flag.to_owned()),
            None => request.flags_on.push(word.strip_prefix('+').unwrap_or(word).to_owned()),
        }
    }
    ask_debug(session, request, "slurm_set_debugflags error").await
}

/// Runs `schedloglevel 0|1|disable|enable`, which switches the planner's log.
pub(super) async fn set_scheduler_log(session: &mut Session, level: &str) -> anyhow::Result<u8> {
    let flag = vec!["Backfill".to_owned()];
    let request = match level.to_ascii_lowercase().as_str() {
        "1" | "enable" => SetDebugRequest { flags_on: flag, ..SetDebugRequest::default() },
        "0" | "disable" => SetDebugRequest { flags_off: flag, ..SetDebugRequest::default() },
        _ => return Err(bare(format!("invalid schedlog level: {level}")).into()),
    };
    ask_debug(session, request, "slurm_set_schedlog_level error").await
}

/// Changes the controller's log. `failed` begins the message of a refusal, in Slurm's words.
async fn ask_debug(
    session: &mut Session,
    request: SetDebugRequest,
    failed: &'static str,
) -> anyhow::Result<u8> {
    let call = async |mut controller: Controller, request| controller.set_debug(request).await;
    session.connection()?.read(request, call).await.context(bare(failed))?;
    Ok(0)
}

/// Runs `errnumstr NUMBER`.
pub(super) fn error_words(session: &mut Session, number: &str) -> anyhow::Result<u8> {
    let Ok(number) = number.parse() else {
        return Err(bare("numeric arguments required for keyword:errnumstr").into());
    };
    writeln!(session.out, "{}", errnumstr::words(number))?;
    Ok(0)
}
