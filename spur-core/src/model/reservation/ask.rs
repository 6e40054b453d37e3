//! What `scontrol create reservation` and `scontrol update ReservationName=` may say, key by key.

use std::sync::Arc;

use super::{Flag, Members};
use crate::text::features::FeatureExpr;
use crate::text::hostlist::HostExpr;
use crate::text::nearest;
use crate::text::time::{Time, TimeLimit};

/// How a list is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit<T> {
    /// `Key=`
    Set(T),
    /// `Key+=`
    Add(T),
    /// `Key-=`
    Remove(T),
}

/// Which nodes are named.
#[derive(Clone, Debug, PartialEq)]
pub enum NodesAsk {
    /// `ALL`
    All,
    /// These.
    These(HostExpr),
}

/// What is said of a reservation. What is not said stays as it is, or gets its default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReservationAsk {
    /// `ReservationName=`
    pub name: Option<Arc<str>>,
    /// `StartTime=`
    pub start: Option<Time>,
    /// `EndTime=`
    pub end: Option<Time>,
    /// `Duration=`
    pub duration: Option<TimeLimit>,
    /// `Nodes=`
    pub nodes: Option<Edit<NodesAsk>>,
    /// `NodeCnt=`, `TRES=node=`
    pub node_count: Option<u32>,
    /// `PartitionName=`
    pub partition: Option<Arc<str>>,
    /// `Features=`
    pub features: Option<Option<FeatureExpr>>,
    /// `Users=`
    pub users: Option<Edit<Members>>,
    /// `Accounts=`
    pub accounts: Option<Edit<Members>>,
    /// `Flags=`
    pub flags: Option<Edit<Vec<Flag>>>,
    /// `Comment=`
    pub comment: Option<Box<str>>,
    /// Seconds east of Greenwich of whoever asks.
    pub utc_offset: i32,
}

/// Why a key and value say nothing of a reservation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AskError(String);

/// Keys, with Slurm's spelling; read without regard to case.
const KEYS: [&str; 15] = [
    "ReservationName",
    "Reservation",
    "StartTime",
    "EndTime",
    "Duration",
    "Nodes",
    "NodeCnt",
    "TRES",
    "PartitionName",
    "Partition",
    "Features",
    "Users",
    "Accounts",
    "Flags",
    "Comment",
];

/// Keys that Slurm has and this release does not, and what to do instead.
const REFUSED: [(&str, &str); 10] = [
    ("CoreCnt", "whole nodes are reserved; ask NodeCnt="),
    ("Licenses", "nodes are reserved, no licenses"),
    ("BurstBuffer", "there are no burst buffers"),
    ("Watts", "power is not managed"),
    ("MaxStartDelay", "jobs of others never start in a reservation"),
    ("Groups", "name Users= or Accounts="),
    ("QOS", "name Users= or Accounts="),
    ("AllowedPartition", "name Users= or Accounts="),
    ("Skip", "update StartTime= and EndTime="),
    ("TimeForce", "leave it out"),
];

/// Flags that Slurm has and this release does not, and what to do instead.
const REFUSED_FLAGS: [(&str, &str); 8] = [
    ("ANY_NODES", "name nodes or NodeCnt="),
    ("FORCE_START", "give a StartTime= that lies ahead"),
    ("LICENSE_ONLY", "nodes are reserved, no licenses"),
    ("PURGE_COMP", "give an EndTime=, or delete it"),
    ("REPLACE", "update Nodes="),
    ("REPLACE_DOWN", "update Nodes="),
    ("TIME_FLOAT", "give a StartTime= that stands"),
    ("NO_PURGE_COMP", "leave it out"),
];

/// Other names of flags.
const SYNONYMS: [(&str, Flag); 4] = [
    ("IGNORE_RUNNING", Flag::IgnoreJobs),
    ("IGNORE_JOB", Flag::IgnoreJobs),
    ("STATIC_ALLOC", Flag::StaticAlloc),
    ("NO_HOLD_JOBS_AFTER", Flag::NoHoldJobsAfter),
];

impl ReservationAsk {
    /// Takes one `Key=Value`; a sign at the end of the key adds to a list or takes from it. Times are seconds since the
    /// epoch.
    ///
    /// # Errors
    /// An unknown key, with the nearest known one; one that cannot be honoured, with what to do instead; a value that
    /// does not fit.
    pub fn take(&mut self, key: &str, value: &str) -> Result<(), AskError> {
        let (bare, sign) = match key.strip_suffix(['+', '-']) {
            Some(bare) => (bare, key.chars().last()),
            None => (key, None),
        };
        let wrong = |problem: String| AskError(format!("{key}={value}: {problem}"));
        if let Some((name, instead)) = REFUSED.iter().find(|(name, _)| name.eq_ignore_ascii_case(bare)) {
            return Err(AskError(format!("{name}= is not supported by this release; {instead}")));
        }
        let Some(known) = KEYS.iter().find(|known| known.eq_ignore_ascii_case(bare)) else {
            let near = nearest::nearest(bare, KEYS)
                .map_or_else(String::new, |near| format!("; did you mean {near}?"));
            return Err(AskError(format!("Unknown parameter {bare}{near}")));
        };
        if sign.is_some() && !["Nodes", "Users", "Accounts", "Flags"].contains(known) {
            return Err(wrong("only Nodes, Users, Accounts and Flags are added to".to_owned()));
        }
        self.set(known, sign, value).map_err(wrong)
    }

    fn set(&mut self, key: &str, sign: Option<char>, value: &str) -> Result<(), String> {
        match key {
            "ReservationName" | "Reservation" => self.name = Some(name(value)?),
            "StartTime" => self.start = Some(time(value)?),
            "EndTime" => self.end = Some(time(value)?),
            "Duration" => self.duration = Some(value.parse().map_err(|error| format!("{error}"))?),
            "Nodes" if value.eq_ignore_ascii_case("all") => self.nodes = Some(edit(sign, NodesAsk::All)),
            "Nodes" => {
                let list: HostExpr = value.parse().map_err(|error| format!("{error}"))?;
                self.nodes = Some(edit(sign, NodesAsk::These(list)));
            }
            "NodeCnt" => self.node_count = Some(count(value)?),
            "TRES" => {
                let nodes =
                    value.strip_prefix("node=").ok_or("whole nodes are reserved; ask TRES=node=NUMBER")?;
                self.node_count = Some(count(nodes)?);
            }
            "PartitionName" | "Partition" => self.partition = Some(name(value)?),
            "Features" if value.is_empty() => self.features = Some(None),
            "Features" => self.features = Some(Some(value.parse().map_err(|error| format!("{error}"))?)),
            "Users" => self.users = Some(edit(sign, members(value)?)),
            "Accounts" => self.accounts = Some(edit(sign, members(value)?)),
            "Flags" => self.flags = Some(edit(sign, flags(value)?)),
            _ => self.comment = Some(value.into()),
        }
        Ok(())
    }
}

fn edit<T>(sign: Option<char>, value: T) -> Edit<T> {
    match sign {
        Some('+') => Edit::Add(value),
        Some(_) => Edit::Remove(value),
        None => Edit::Set(value),
    }
}

fn name(value: &str) -> Result<Arc<str>, String> {
    let odd = |c: char| c.is_whitespace() || c == ',';
    if value.is_empty() || value.contains(odd) {
        return Err("a name has neither blanks nor commas".to_owned());
    }
    Ok(value.into())
}

fn time(value: &str) -> Result<Time, String> {
    value.parse().map(Time).map_err(|_| "not a time".to_owned())
}

fn count(value: &str) -> Result<u32, String> {
    match value.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err("write one number of nodes".to_owned()),
    }
}

fn members(value: &str) -> Result<Members, String> {
    let names: Vec<&str> = value.split(',').filter(|name| !name.is_empty()).collect();
    let except = names.iter().filter(|name| name.starts_with('-')).count();
    if except > 0 && except < names.len() {
        return Err("name who may, or with - who may not, not both".to_owned());
    }
    let names = names.iter().map(|name| Arc::from(name.trim_start_matches('-'))).collect();
    Ok(Members { except: except > 0, names })
}

fn flags(value: &str) -> Result<Vec<Flag>, String> {
    let mut flags =
        value.split(',').filter(|word| !word.is_empty()).map(flag).collect::<Result<Vec<_>, _>>()?;
    flags.sort_unstable();
    flags.dedup();
    Ok(flags)
}

fn flag(word: &str) -> Result<Flag, String> {
    let upper = word.to_ascii_uppercase();
    let bare = upper.split('=').next().unwrap_or_default();
    if let Some((name, instead)) = REFUSED_FLAGS.iter().find(|(name, _)| *name == bare) {
        return Err(format!("the flag {name} is not supported by this release; {instead}"));
    }
    let named = Flag::ALL.iter().copied().find(|flag| flag.name() == upper);
    let found = named.or_else(|| SYNONYMS.iter().find(|(name, _)| *name == upper).map(|(_, flag)| *flag));
    found.ok_or_else(|| {
        let near = nearest::nearest(&upper, Flag::ALL.iter().map(|flag| flag.name()));
        format!(
            "there is no flag {word}{}",
            near.map_or_else(String::new, |near| format!("; did you mean {near}?"))
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(words: &str) -> Result<ReservationAsk, String> {
        let mut ask = ReservationAsk::default();
        for word in words.split_whitespace() {
            let (key, value) = word.split_once('=').expect("KEY=VALUE");
            ask.take(key, value).map_err(|error| error.to_string())?;
        }
        Ok(ask)
    }

    #[test]
    fn keys_and_values() {
        let read =
            ask("reservationname=r StartTime=60 Duration=10 TRES=node=4 Users=-a,-b flags=maint,ignore_jobs");
        let wanted = ReservationAsk {
            name: Some("r".into()),
            start: Some(Time(60)),
            duration: Some(TimeLimit::Seconds(600)),
            node_count: Some(4),
            users: Some(Edit::Set(Members { except: true, names: vec!["a".into(), "b".into()] })),
            flags: Some(Edit::Set(vec![Flag::Maint, Flag::IgnoreJobs])),
            ..ReservationAsk::default()
        };
        assert_eq!(read, Ok(wanted));
        assert_eq!(ask("Flags+=FLEX").map(|ask| ask.flags), Ok(Some(Edit::Add(vec![Flag::Flex]))));
        assert_eq!(ask("Nodes=ALL").map(|ask| ask.nodes), Ok(Some(Edit::Set(NodesAsk::All))));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (words, part) in [
            (
                "CoreCnt=4",
                "CoreCnt= is not supported by this release; whole nodes are reserved; ask NodeCnt=",
            ),
            ("Flags=REPLACE_DOWN", "the flag REPLACE_DOWN is not supported"),
            ("Flags=PURGE_COMP=5", "the flag PURGE_COMP is not supported"),
            ("Flags=MAINTT", "did you mean MAINT?"),
            ("StartTme=5", "Unknown parameter StartTme; did you mean StartTime?"),
            ("TRES=cpu=5", "ask TRES=node=NUMBER"),
            ("NodeCnt=0", "write one number of nodes"),
            ("Users=a,-b", "not both"),
            ("Comment+=x", "only Nodes, Users, Accounts and Flags"),
            ("ReservationName=a,b", "neither blanks nor commas"),
        ] {
            let error = ask(words).expect_err(words);
            assert!(error.contains(part), "{words}: {error}");
        }
    }
}
