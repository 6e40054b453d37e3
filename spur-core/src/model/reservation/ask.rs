//! The keys of `scontrol create reservation` and `scontrol update ReservationName=`.

use std::sync::Arc;

use super::{Flag, Members, PURGE_AFTER};
use crate::model::change::licenses;
use crate::text::features::FeatureExpr;
use crate::text::hostlist::HostExpr;
use crate::text::nearest;
use crate::text::time::{Time, TimeLimit};

/// A change of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit<T> {
    /// Replaces the value (`Key=`).
    Set(T),
    /// Adds to the value (`Key+=`).
    Add(T),
    /// Removes from the value (`Key-=`).
    Remove(T),
}

/// The nodes that a request names.
#[derive(Clone, Debug, PartialEq)]
pub enum NodesAsk {
    /// All nodes of the cluster (`ALL`).
    All,
    /// The nodes of a list.
    These(HostExpr),
}

/// A request to create or change a reservation. Keys that are not given keep their values or get their
/// defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReservationAsk {
    /// Name of the reservation (`ReservationName=`).
    pub name: Option<Arc<str>>,
    /// Start of the reservation (`StartTime=`).
    pub start: Option<Time>,
    /// End of the reservation (`EndTime=`).
    pub end: Option<Time>,
    /// The duration, or its change (`Duration=`).
    pub duration: Option<Edit<TimeLimit>>,
    /// The nodes, or their change (`Nodes=`).
    pub nodes: Option<Edit<NodesAsk>>,
    /// `NodeCnt=`, `TRES=node=`: number of nodes in each group; each group is placed separately.
    pub node_count: Option<Box<[u32]>>,
    /// `Licenses=`, `TRES=license/`: all licenses of the reservation, each name once.
    pub licenses: Option<Vec<(Box<str>, u32)>>,
    /// Partition of the nodes (`PartitionName=`).
    pub partition: Option<Arc<str>>,
    /// Features of the nodes; the inner `None` clears them (`Features=`).
    pub features: Option<Option<FeatureExpr>>,
    /// The users, or their change (`Users=`).
    pub users: Option<Edit<Members>>,
    /// The accounts, or their change (`Accounts=`).
    pub accounts: Option<Edit<Members>>,
    /// The flags, or their change (`Flags=`).
    pub flags: Option<Edit<Vec<Flag>>>,
    /// The seconds of `PURGE_COMP=`, if this flag is given.
    pub purge_after: Option<u64>,
    /// Comment on the reservation (`Comment=`).
    pub comment: Option<Box<str>>,
    /// True to continue with the next window (`Skip`).
    pub skip: bool,
    /// Seconds east of UTC at the requester's place.
    pub utc_offset: i32,
}

/// The reason for which a key or value is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AskError(String);

/// Keys, in Slurm's spelling; compared without regard to case, and by unambiguous beginnings.
pub const KEYS: [&str; 17] = [
    "ReservationName",
    "Reservation",
    "StartTime",
    "EndTime",
    "Duration",
    "Nodes",
    "NodeCnt",
    "Licenses",
    "TRES",
    "PartitionName",
    "Partition",
    "Features",
    "Users",
    "Accounts",
    "Flags",
    "Comment",
    "Skip",
];

/// Keys of Slurm that Spur does not support, with the alternative.
const REFUSED: [(&str, &str); 8] = [
    ("CoreCnt", "whole nodes are reserved; ask NodeCnt="),
    ("BurstBuffer", "there are no burst buffers"),
    ("Watts", "power is not managed"),
    ("MaxStartDelay", "jobs of others never start in a reservation"),
    ("Groups", "name Users= or Accounts="),
    ("QOS", "name Users= or Accounts="),
    ("AllowedPartition", "name Users= or Accounts="),
    ("TimeForce", "leave it out"),
];

/// Flags of Slurm that Spur does not support, with the alternative.
const REFUSED_FLAGS: [(&str, &str); 3] = [
    ("FIRST_CORES", "whole nodes are reserved; ask NodeCnt="),
    ("FORCE_START", "give a StartTime= that lies ahead"),
    ("NO_PURGE_COMP", "Flags-=PURGE_COMP takes it away"),
];

/// Other names of flags.
const SYNONYMS: [(&str, Flag); 6] = [
    ("MAINTENANCE", Flag::Maint),
    ("IGNORE_RUNNING", Flag::IgnoreJobs),
    ("IGNORE_JOB", Flag::IgnoreJobs),
    ("LICENSE_ONLY", Flag::AnyNodes),
    ("STATIC_ALLOC", Flag::StaticAlloc),
    ("NO_HOLD_JOBS_AFTER", Flag::NoHoldJobsAfter),
];

impl ReservationAsk {
    /// Reads one `Key=Value`. A sign at the end of the key adds to a list or removes from it. Times are
    /// seconds since the Unix epoch.
    ///
    /// # Errors
    /// An unknown key, with the nearest known one; an unsupported key, with the alternative; or a value that
    /// does not fit.
    pub fn take(&mut self, key: &str, value: &str) -> Result<(), AskError> {
        let (bare, sign) = match key.strip_suffix(['+', '-']) {
            Some(bare) => (bare, key.chars().last()),
            None => (key, None),
        };
        let wrong = |problem: String| AskError(format!("{key}={value}: {problem}"));
        let known = key_of(bare).map_err(AskError)?;
        if let Some((name, instead)) = REFUSED.iter().find(|(name, _)| *name == known) {
            return Err(AskError(format!("{name}= is not supported by this release; {instead}")));
        }
        if sign.is_some() && known == "Licenses" {
            let all =
                "The +=/-= notation is not supported when updating licenses; write all that it is to have";
            return Err(wrong(all.to_owned()));
        }
        if sign.is_some() && !["Nodes", "Users", "Accounts", "Flags", "Duration"].contains(&known) {
            return Err(wrong("only Nodes, Users, Accounts, Flags and Duration are added to".to_owned()));
        }
        self.set(known, sign, value).map_err(wrong)
    }

    fn set(&mut self, key: &str, sign: Option<char>, value: &str) -> Result<(), String> {
        match key {
            "ReservationName" | "Reservation" => self.name = Some(name(value)?),
            "StartTime" => self.start = Some(time(value)?),
            "EndTime" => self.end = Some(time(value)?),
            "Duration" => {
                let duration = value.parse().map_err(|error| format!("{error}"))?;
                self.duration = Some(edit(sign, duration));
            }
            "Nodes" if value.eq_ignore_ascii_case("all") => self.nodes = Some(edit(sign, NodesAsk::All)),
            "Nodes" => {
                let list: HostExpr = value.parse().map_err(|error| format!("{error}"))?;
                self.nodes = Some(edit(sign, NodesAsk::These(list)));
            }
            "NodeCnt" => self.node_count = Some(counts(value)?),
            "Licenses" => self.licenses = Some(licenses(value)?),
            "TRES" => self.set_tres(value)?,
            "PartitionName" | "Partition" => self.partition = Some(name(value)?),
            "Features" if value.is_empty() => self.features = Some(None),
            "Features" => self.features = Some(Some(value.parse().map_err(|error| format!("{error}"))?)),
            "Users" => self.users = Some(edit(sign, members(value)?)),
            "Accounts" => self.accounts = Some(edit(sign, members(&value.to_lowercase())?)),
            "Flags" => {
                // The older way to remove flags.
                let less = value.strip_prefix('-');
                let (sign, value) = (if less.is_some() { Some('-') } else { sign }, less.unwrap_or(value));
                let given = edit(sign, flags(value)?);
                self.flags = Some(match self.flags.take() {
                    Some(before) => together(before, given),
                    None => given,
                });
                self.purge_after = purge_after(value)?.or(self.purge_after);
            }
            "Skip" if value.is_empty() => self.skip = true,
            "Skip" => return Err("it has no value; write Skip alone".to_owned()),
            _ => self.comment = Some(value.into()),
        }
        Ok(())
    }

    /// Reads `node=4,2,license/matlab=1`. A number without a name belongs to the name before it.
    fn set_tres(&mut self, value: &str) -> Result<(), String> {
        let (mut nodes, mut wanted): (Vec<&str>, Vec<String>) = (Vec::new(), Vec::new());
        for item in value.split(',') {
            match item.split_once('=') {
                Some(("node", count)) if nodes.is_empty() => nodes.push(count),
                Some((license, count)) if license.starts_with("license/") => {
                    wanted.push(format!("{}:{count}", &license["license/".len()..]));
                }
                None if !nodes.is_empty() && wanted.is_empty() => nodes.push(item),
                _ => return Err("ask TRES=node=NUMBER, TRES=license/NAME=NUMBER, or both".to_owned()),
            }
        }
        if !nodes.is_empty() {
            self.node_count = Some(counts(&nodes.join(","))?);
        }
        if !wanted.is_empty() {
            self.licenses = Some(licenses(&wanted.join(","))?);
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

/// Reads numbers of nodes, one for each group that is placed close together.
fn counts(value: &str) -> Result<Box<[u32]>, String> {
    value.split(',').map(count).collect()
}

/// Reads a number of nodes; `k` stands for a factor of 1024.
fn count(value: &str) -> Result<u32, String> {
    let (digits, times) = match value.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1024),
        None => (value, 1),
    };
    let count = digits.parse::<u32>().ok().and_then(|count| count.checked_mul(times));
    count
        .filter(|count| *count > 0)
        .ok_or_else(|| "write a number of nodes, or several with commas between".to_owned())
}

/// Finds a key by its name or by an unambiguous beginning of the name.
fn key_of(word: &str) -> Result<&'static str, String> {
    let all = || KEYS.into_iter().chain(REFUSED.map(|(name, _)| name));
    let lower = word.to_ascii_lowercase();
    let begins = |key: &str| key.to_ascii_lowercase().starts_with(&lower);
    let exact = all().find(|key| key.eq_ignore_ascii_case(word));
    let mut beginning = all().filter(|key| !lower.is_empty() && begins(key));
    let first = beginning.next();
    // A shorter name of the same key follows the longer one in the table.
    let only = first.filter(|first| beginning.all(|other| first.starts_with(other)));
    exact.or(only).ok_or_else(|| {
        let near = nearest::nearest(word, KEYS);
        format!(
            "Unknown parameter {word}{}",
            near.map_or_else(String::new, |near| format!("; did you mean {near}?"))
        )
    })
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

/// Unites two lists of flags with the same sign. Of lists with different signs the later one counts.
fn together(before: Edit<Vec<Flag>>, given: Edit<Vec<Flag>>) -> Edit<Vec<Flag>> {
    let all = |mut before: Vec<Flag>, given: Vec<Flag>| {
        before.extend(given);
        before.sort_unstable();
        before.dedup();
        before
    };
    match (before, given) {
        (Edit::Set(before), Edit::Set(given)) => Edit::Set(all(before, given)),
        (Edit::Add(before), Edit::Add(given)) => Edit::Add(all(before, given)),
        (Edit::Remove(before), Edit::Remove(given)) => Edit::Remove(all(before, given)),
        (_, given) => given,
    }
}

fn flags(value: &str) -> Result<Vec<Flag>, String> {
    let mut flags =
        value.split(',').filter(|word| !word.is_empty()).map(flag).collect::<Result<Vec<_>, _>>()?;
    flags.sort_unstable();
    flags.dedup();
    Ok(flags)
}

/// The seconds of the flag `PURGE_COMP`, with its default; `None` if the flag is not given.
fn purge_after(value: &str) -> Result<Option<u64>, String> {
    let purge = |word: &str| match word.split_once('=') {
        Some((name, time)) => name.eq_ignore_ascii_case(Flag::PurgeComp.name()).then(|| seconds(time)),
        None => word.eq_ignore_ascii_case(Flag::PurgeComp.name()).then_some(Ok(PURGE_AFTER)),
    };
    value.split(',').find_map(purge).transpose()
}

fn seconds(time: &str) -> Result<u64, String> {
    match time.parse() {
        Ok(TimeLimit::Seconds(seconds)) if seconds > 0 => Ok(seconds),
        Ok(_) => Err("PURGE_COMP= wants some time, of minutes unless it says".to_owned()),
        Err(error) => Err(format!("PURGE_COMP={time}: {error}")),
    }
}

fn flag(word: &str) -> Result<Flag, String> {
    let upper = word.to_ascii_uppercase();
    let bare = upper.split('=').next().unwrap_or_default();
    if let Some((name, instead)) = REFUSED_FLAGS.iter().find(|(name, _)| *name == bare) {
        return Err(format!("the flag {name} is not supported by this release; {instead}"));
    }
    if bare == Flag::PurgeComp.name() {
        return Ok(Flag::PurgeComp);
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
            duration: Some(Edit::Set(TimeLimit::Seconds(600))),
            node_count: Some(Box::from([4])),
            users: Some(Edit::Set(Members { except: true, names: vec!["a".into(), "b".into()] })),
            flags: Some(Edit::Set(vec![Flag::Maint, Flag::IgnoreJobs])),
            ..ReservationAsk::default()
        };
        assert_eq!(read, Ok(wanted));
        let short = ask("res=r start=60 dur=10 TRES=node=4 user=-a,-b fl=maintenance,ignore_jobs");
        assert_eq!(
            short,
            ask("ReservationName=r StartTime=60 Duration=10 NodeCnt=4 Users=-a,-b Flags=MAINT,IGNORE_JOBS")
        );
        assert_eq!(
            ask("NodeCnt=2k part=p").map(|ask| (ask.node_count, ask.partition)),
            Ok((Some(Box::from([2048])), Some("p".into())))
        );
        let wanted = vec![("matlab".into(), 2), ("ansys".into(), 1)];
        for words in
            ["Lic=matlab:2,ansys", "TRES=license/matlab=2,license/ansys=1", "Licenses=matlab,matlab,ansys"]
        {
            assert_eq!(
                ask(words).map(|ask| (ask.licenses, ask.node_count)),
                Ok((Some(wanted.clone()), None))
            );
        }
        let both = ask("TRES=node=4,2,license/matlab=2").map(|ask| (ask.licenses, ask.node_count));
        assert_eq!(both, Ok((Some(vec![("matlab".into(), 2)]), Some(Box::from([4, 2])))));
        assert_eq!(ask("Licenses=").map(|ask| ask.licenses), Ok(Some(Vec::new())));
        for flag in ["LICENSE_ONLY", "any_nodes"] {
            let read = ask(&format!("Flags={flag}")).map(|ask| ask.flags);
            assert_eq!(read, Ok(Some(Edit::Set(vec![Flag::AnyNodes]))), "{flag}");
        }
        assert_eq!(ask("NodeCnt=4,1").map(|ask| ask.node_count), Ok(Some(Box::from([4, 1]))));
        let half_an_hour = TimeLimit::Seconds(1_800);
        assert_eq!(ask("Duration+=30").map(|ask| ask.duration), Ok(Some(Edit::Add(half_an_hour))));
        assert_eq!(ask("dur-=30").map(|ask| ask.duration), Ok(Some(Edit::Remove(half_an_hour))));
        for (flags, seconds) in
            [("DAILY", None), ("PURGE_COMP", Some(300)), ("DAILY,purge_comp=1:30", Some(90))]
        {
            assert_eq!(ask(&format!("Flags={flags}")).map(|ask| ask.purge_after), Ok(seconds), "{flags}");
        }
        let both = Ok(Some(Edit::Set(vec![Flag::Maint, Flag::IgnoreJobs])));
        assert_eq!(ask("Flags=Maint Flags=ignore_jobs").map(|ask| ask.flags), both);
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
            ("Core=4", "CoreCnt= is not supported by this release"),
            ("Flags=FORCE_START", "the flag FORCE_START is not supported by this release; give a StartTime="),
            ("Flags=PURGE_COMP=0", "PURGE_COMP= wants some time"),
            ("Flags=PURGE_COMP=soon", "PURGE_COMP=soon: "),
            ("Skip=1", "write Skip alone"),
            ("Node=n1", "Unknown parameter Node; did you mean Nodes?"),
            ("NodeCnt=5000000k", "write a number of nodes"),
            ("Flags=MAINTT", "did you mean MAINT?"),
            ("StartTme=5", "Unknown parameter StartTme; did you mean StartTime?"),
            ("TRES=cpu=5", "ask TRES=node=NUMBER"),
            ("TRES=license/a=1,2", "ask TRES=node=NUMBER"),
            ("TRES=node=1,node=2", "ask TRES=node=NUMBER"),
            ("Licenses=matlab:0", "`matlab:0`: write NAME or NAME:COUNT"),
            ("Licenses+=matlab", "The +=/-= notation is not supported when updating licenses"),
            ("NodeCnt=0", "write a number of nodes"),
            ("NodeCnt=2,", "write a number of nodes"),
            ("StartTime+=60", "only Nodes, Users, Accounts, Flags and Duration"),
            ("Users=a,-b", "not both"),
            ("Comment+=x", "only Nodes, Users, Accounts, Flags and Duration"),
            ("ReservationName=a,b", "neither blanks nor commas"),
        ] {
            let error = ask(words).expect_err(words);
            assert!(error.contains(part), "{words}: {error}");
        }
    }
}
