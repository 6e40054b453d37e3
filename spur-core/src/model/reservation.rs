//! Reservations of nodes and licenses: their users, their times and their repetition.
//!
//! Whole nodes are reserved, by number, and counts of licenses, or licenses only. A reservation is in force
//! in its windows: from start to end, and in those that follow if it repeats. The record holds the window
//! that ends next; the controller moves it on.

mod ask;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::caller::Owner;
use crate::id::NodeId;
use crate::text::time::{Time, TimeLimit};

pub use ask::{AskError, Edit, KEYS, NodesAsk, ReservationAsk};

/// Seconds of a day. Daylight saving time is not followed.
const DAY: u64 = 86_400;
/// Seconds of a week.
const WEEK: u64 = 7 * DAY;
/// Most windows of a repeating reservation that plans consider. Later windows are considered when they come
/// nearer.
const AHEAD: usize = 64;
const FAR: u64 = 14 * DAY;

/// The start of a reservation with `TIME_FLOAT`, which never comes; see [`Reservation::lead`].
pub const NOT_YET: Time = Time(1 << 40);

/// Seconds for which a reservation with `PURGE_COMP` may be idle by default: Slurm's five minutes.
pub const PURGE_AFTER: u64 = 300;

/// A reservation of nodes and licenses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// The name of the reservation.
    pub name: Arc<str>,
    /// Time at which the window begins; [`NOT_YET`] if it floats with the time.
    pub start: Time,
    /// Time at which the window ends.
    pub end: Time,
    /// Seconds by which a floating reservation is always ahead; `None` for others. See [`Reservation::bars`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead: Option<u64>,
    /// True if the end was given rather than the duration: it then stays when the start is changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ends_then: bool,
    /// The reserved nodes, by number.
    pub nodes: Box<[NodeId]>,
    /// Names and counts of the reserved licenses, each name once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub licenses: Vec<(Box<str>, u32)>,
    /// The partition of its jobs that name none.
    #[serde(default)]
    pub partition: Option<Arc<str>>,
    /// The features that its nodes had to have, as written, if the controller chose the nodes.
    #[serde(default)]
    pub features: Option<Box<str>>,
    /// The users who may use it.
    #[serde(default)]
    pub users: Members,
    /// The accounts that may use it.
    #[serde(default)]
    pub accounts: Members,
    /// Flags of the reservation, sorted.
    #[serde(default)]
    pub flags: Vec<Flag>,
    /// The comment of an administrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<Box<str>>,
    /// Seconds east of UTC at its author's place, where weekdays are counted.
    #[serde(default)]
    pub utc_offset: i32,
    /// Idle seconds after which it ends, if it has `PURGE_COMP`; see [`Reservation::purged_at`].
    #[serde(default = "purge_after")]
    pub purge_after: u64,
    /// Time since which no job has waited for it or run in it; only recorded with `PURGE_COMP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Time>,
}

fn purge_after() -> u64 {
    PURGE_AFTER
}

/// A set of names, or all names but these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Members {
    /// True if the names are excluded.
    pub except: bool,
    /// The names, in the order written.
    pub names: Vec<Arc<str>>,
}

impl Members {
    /// True if no name is given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// True if the set contains a name. Without names, it contains all.
    #[must_use]
    pub fn admit(&self, name: Option<&str>) -> bool {
        self.is_empty() || self.names.iter().any(|known| Some(&**known) == name) != self.except
    }
}

/// Written as `alice,bob` or `-carol`.
impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.names.iter().enumerate() {
            let (comma, minus) = (if index > 0 { "," } else { "" }, if self.except { "-" } else { "" });
            write!(f, "{comma}{minus}{name}")?;
        }
        Ok(())
    }
}

/// Declares the flags and their names, which are Slurm's, in the order in which Slurm prints them.
macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident = $text:literal),* $(,)?) => {
        /// A flag of a reservation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Flag {
            $($(#[$doc])* $name,)*
        }

        impl Flag {
            /// All flags, in the order of declaration.
            pub const ALL: &[Flag] = &[$(Flag::$name),*];

            /// Slurm's name of the flag.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Flag::$name => $text,)*
                }
            }
        }
    };
}

flags! {
    /// The reservation is for maintenance: it may take nodes of other reservations, and its nodes are shown
    /// as in maintenance.
    Maint = "MAINT",
    /// The reservation may take nodes of other reservations.
    Overlap = "OVERLAP",
    /// Jobs on its nodes do not prevent its creation or change.
    IgnoreJobs = "IGNORE_JOBS",
    /// The reservation repeats an hour later.
    Hourly = "HOURLY",
    /// The reservation repeats a day later.
    Daily = "DAILY",
    /// The reservation repeats on the next day from Monday to Friday.
    Weekday = "WEEKDAY",
    /// The reservation repeats on the next Saturday or Sunday.
    Weekend = "WEEKEND",
    /// The reservation repeats a week later.
    Weekly = "WEEKLY",
    /// The nodes of the reservation were named.
    SpecNodes = "SPEC_NODES",
    /// All nodes are reserved.
    AllNodes = "ALL_NODES",
    /// Jobs of the reservation may use other nodes, too; the reservation need not have any.
    AnyNodes = "ANY_NODES",
    /// All nodes of its partition are reserved, whatever these are at the time.
    PartNodes = "PART_NODES",
    /// The nodes stay the same, also if the controller chose them.
    StaticAlloc = "STATIC",
    /// The start is always as far ahead as it was at first.
    TimeFloat = "TIME_FLOAT",
    /// Nodes that are out of service or taken by jobs are replaced by idle ones.
    Replace = "REPLACE",
    /// Nodes that are out of service are replaced by idle ones, which is also the default.
    ReplaceDown = "REPLACE_DOWN",
    /// The reservation ends once it has been idle for some time.
    PurgeComp = "PURGE_COMP",
    /// Jobs that still wait for it when it ends wait on without it.
    NoHoldJobsAfter = "NO_HOLD_JOBS_AFTER_END",
    /// Jobs may begin before the reservation, end after it, and use other nodes.
    Flex = "FLEX",
    /// Jobs that may use it do so without naming it.
    Magnetic = "MAGNETIC",
    /// Users of the reservation may delete it.
    UserDelete = "USER_DELETE",
}

impl Flag {
    /// True if the flag makes a reservation repeat.
    fn repeats(self) -> bool {
        matches!(self, Flag::Hourly | Flag::Daily | Flag::Weekday | Flag::Weekend | Flag::Weekly)
    }
}

impl Reservation {
    /// True if the reservation has the flag.
    #[must_use]
    pub fn has(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }

    /// The flags in Slurm's format.
    #[must_use]
    pub fn flags_text(&self) -> String {
        let text = |flag: &Flag| match flag {
            Flag::PurgeComp => format!("{}={}", flag.name(), TimeLimit::Seconds(self.purge_after).long()),
            _ => flag.name().to_owned(),
        };
        self.flags.iter().map(text).collect::<Vec<_>>().join(",")
    }

    /// True if nodes of the reservation are replaced: the controller chose them, and they need not stay the
    /// same.
    #[must_use]
    pub fn is_replenished(&self) -> bool {
        let stay = [Flag::SpecNodes, Flag::AllNodes, Flag::PartNodes, Flag::StaticAlloc];
        self.partition.is_some() && !stay.iter().any(|flag| self.has(*flag))
    }

    /// Time at which the reservation will end because it is idle; `None` if it is not idle or lacks the flag
    /// `PURGE_COMP`. Time before its start does not count.
    #[must_use]
    pub fn purged_at(&self) -> Option<Time> {
        let idle = self.idle_since.filter(|_| self.has(Flag::PurgeComp))?;
        Some(idle.max(self.start) + self.purge_after)
    }

    /// True if its jobs may only use its own nodes.
    #[must_use]
    pub fn binds_to_nodes(&self) -> bool {
        !self.has(Flag::Flex) && !self.has(Flag::AnyNodes)
    }

    /// True if its jobs must begin and end within it.
    #[must_use]
    pub fn binds_to_time(&self) -> bool {
        !self.has(Flag::Flex)
    }

    /// Number of this license that it reserves.
    #[must_use]
    pub fn license(&self, name: &str) -> u32 {
        self.licenses.iter().find(|(known, _)| **known == *name).map_or(0, |(_, count)| *count)
    }

    /// True if the reservation is in force.
    #[must_use]
    pub fn is_active(&self, now: Time) -> bool {
        self.start <= now && now < self.end
    }

    /// True if a floating reservation keeps its nodes from a job of others that runs for `seconds`. This
    /// holds for any start of the job, because the reservation stays so far ahead that only shorter jobs end
    /// before it.
    #[must_use]
    pub fn bars(&self, seconds: u64) -> bool {
        self.lead.is_some_and(|lead| seconds > lead)
    }

    /// The reservation with the start and end that it has at `now`.
    #[must_use]
    pub fn anchored(&self, now: Time) -> Self {
        let start = self.lead.map_or(self.start, |lead| now + lead);
        Self { start, end: start + self.end.since(self.start), lead: None, ..self.clone() }
    }

    /// The reservation as a floating one, always as far ahead as it is at `now`.
    #[must_use]
    pub fn floating(&self, now: Time) -> Self {
        let (lead, lasts) = (self.start.since(now), self.end.since(self.start));
        Self { start: NOT_YET, end: NOT_YET + lasts, lead: Some(lead), ..self.clone() }
    }

    /// True if the reservation repeats.
    #[must_use]
    pub fn repeats(&self) -> bool {
        self.flags.iter().any(|flag| flag.repeats())
    }

    /// True if the reservation includes a node.
    #[must_use]
    pub fn holds(&self, node: NodeId) -> bool {
        self.nodes.binary_search(&node).is_ok()
    }

    /// True if jobs of this owner and account may run in the reservation; always true for root.
    #[must_use]
    pub fn admits(&self, owner: &Owner, account: Option<&str>) -> bool {
        owner.uid == 0 || (self.users.admit(Some(&owner.user)) && self.accounts.admit(account))
    }

    /// True if it keeps another reservation's jobs from nodes that both have at the same time. A reservation
    /// for maintenance gives way to none, one with `OVERLAP` only to maintenance.
    #[must_use]
    pub fn shuts_out(&self, other: &Self) -> bool {
        let may_overlap = other.has(Flag::Overlap) && !self.has(Flag::Maint);
        self.name != other.name && !other.has(Flag::Maint) && !may_overlap
    }

    /// The next window; `None` if the reservation does not repeat.
    #[must_use]
    pub fn next_window(&self) -> Option<(Time, Time)> {
        let later = self.interval(self.start)?;
        Some((self.start + later, self.end + later))
    }

    /// Seconds from the start of one window to that of the next; `None` if the reservation does not repeat.
    fn interval(&self, start: Time) -> Option<u64> {
        let flag = self.flags.iter().find(|flag| flag.repeats())?;
        let days = |is: fn(i64) -> bool| (1..=7).find(|days| is(self.weekday(start, *days))).unwrap_or(1);
        Some(match flag {
            Flag::Hourly => DAY / 24,
            Flag::Weekday => days(|day| (1..=5).contains(&day)) * DAY,
            Flag::Weekend => days(|day| day == 0 || day == 6) * DAY,
            Flag::Weekly => WEEK,
            _ => DAY,
        })
    }

    /// The day of the week `later` days after a time; 0 is Sunday.
    fn weekday(&self, start: Time, later: u64) -> i64 {
        let local = start.0 + i64::from(self.utc_offset);
        // The Unix epoch was a Thursday.
        (local.div_euclid(86_400) + 4 + i64::try_from(later).unwrap_or(0)).rem_euclid(7)
    }

    /// The reservation in its next window; `None` if it does not repeat.
    #[must_use]
    pub fn moved(&self) -> Option<Self> {
        let (start, end) = self.next_window()?;
        Some(Self { start, end, ..self.clone() })
    }

    /// The reservation in the first window that ends after `now`; `None` if there is none.
    #[must_use]
    pub fn moved_past(&self, now: Time) -> Option<Self> {
        let mut moved = self.clone();
        while moved.end <= now {
            moved = moved.moved()?;
        }
        Some(moved)
    }

    /// The windows that end after `now`, as far as plans look ahead; none for a floating reservation.
    #[must_use]
    pub fn windows(&self, now: Time) -> Vec<(Time, Time)> {
        let mut windows = Vec::new();
        let mut next = self.lead.is_none().then(|| self.clone());
        while let Some(window) = next.filter(|window| window.start <= now + FAR || windows.is_empty()) {
            if window.end > now {
                windows.push((window.start, window.end));
            }
            if windows.len() >= AHEAD {
                break;
            }
            next = window.moved();
        }
        windows
    }

    /// True if it shares a node with another reservation while both are in force, from `now` on.
    #[must_use]
    pub fn meets(&self, other: &Self, now: Time) -> bool {
        self.nodes.iter().any(|node| other.holds(*node)) && self.is_at_one_time_with(other, now)
    }

    /// True if both are in force at the same time from `now` on, however far ahead.
    #[must_use]
    pub fn is_at_one_time_with(&self, other: &Self, now: Time) -> bool {
        self.is_at_one_time_before(other, now, Time::MAX)
    }

    /// True if both are in force at the same time from `now` on and before `limit`.
    #[must_use]
    pub fn is_at_one_time_before(&self, other: &Self, now: Time, limit: Time) -> bool {
        let begins = |one: &Self| one.lead.map_or(one.start, |lead| now + lead);
        let (mine, theirs) = (begins(self), begins(other));
        // Once both have begun, what repeats has the same pattern every week.
        let from = now.max(mine).max(theirs);
        let until = limit.min(from + WEEK);
        let (mine, theirs) =
            (self.windows_between(mine, from, until), other.windows_between(theirs, from, until));
        mine.iter().any(|mine| theirs.iter().any(|other| mine.0 < other.1 && other.0 < mine.1))
    }

    /// The windows between `from` and `until` of a reservation that begins at `start`.
    fn windows_between(&self, mut start: Time, from: Time, until: Time) -> Vec<(Time, Time)> {
        let (lasts, mut windows) = (self.end.since(self.start), Vec::new());
        while start < until {
            if start + lasts > from {
                windows.push((start, start + lasts));
            }
            let Some(interval) = self.interval(start) else { break };
            start = start + interval;
            let weeks = from.since(start + lasts) / WEEK;
            start = start + weeks * WEEK;
        }
        windows
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A reservation of `count` licenses `a` and no nodes.
    pub(crate) fn licensed(start: i64, end: i64, count: u32) -> Reservation {
        let licenses = vec![("a".into(), count)];
        let made = reservation(start, Time(end).since(Time(start)), &[Flag::AnyNodes]);
        Reservation { nodes: Box::default(), licenses, ..made }
    }

    fn reservation(start: i64, seconds: u64, flags: &[Flag]) -> Reservation {
        Reservation {
            name: "r".into(),
            start: Time(start),
            end: Time(start) + seconds,
            lead: None,
            ends_then: false,
            nodes: Box::from([NodeId(1), NodeId(3)]),
            licenses: Vec::new(),
            partition: None,
            features: None,
            users: Members::default(),
            accounts: Members::default(),
            flags: flags.to_vec(),
            comment: None,
            utc_offset: 0,
            purge_after: PURGE_AFTER,
            idle_since: None,
        }
    }

    #[test]
    fn windows_come_again() {
        // 1970-01-02 was a Friday.
        let friday = 86_400 + 3_600;
        for (flag, days) in [
            (Flag::Daily, vec![0, 1, 2]),
            (Flag::Weekly, vec![0, 7]),
            (Flag::Weekday, vec![0, 3, 4]),
            (Flag::Weekend, vec![0, 1, 2, 8]),
        ] {
            let windows = reservation(friday, 600, &[flag]).windows(Time(0));
            let starts = windows.iter().map(|(start, end)| {
                assert_eq!(*end - *start, 600);
                (*start - Time(friday)) / 86_400
            });
            let starts: Vec<i64> = starts.collect();
            assert_eq!(starts[..days.len()], days, "{flag:?}");
        }
        assert_eq!(reservation(0, 60, &[Flag::Hourly]).windows(Time(0)).len(), 64);
        assert_eq!(reservation(100, 60, &[]).windows(Time(0)), [(Time(100), Time(160))]);
        assert_eq!(reservation(100, 60, &[]).windows(Time(160)), []);
    }

    #[test]
    fn weekdays_are_those_of_who_made_it() {
        // Thursday, 23:30 in Greenwich, is a Friday two hours to the east.
        let late = reservation(86_400 - 1_800, 60, &[Flag::Weekday]);
        let east = Reservation { utc_offset: 7_200, ..late.clone() };
        let days = |reservation: &Reservation| {
            (reservation.next_window().expect("it repeats").0 - late.start) / 86_400
        };
        assert_eq!((days(&late), days(&east)), (1, 3));
    }

    #[test]
    fn a_window_that_is_over_is_moved_on() {
        let daily = reservation(0, 60, &[Flag::Daily]);
        assert_eq!(daily.moved_past(Time(3 * 86_400 + 70)).map(|moved| moved.start), Some(Time(4 * 86_400)));
        assert_eq!(reservation(0, 60, &[]).moved_past(Time(60)), None);
    }

    #[test]
    fn an_idle_one_is_purged_some_time_after_it_began() {
        let purged = |flags: &[Flag], idle: Option<i64>| {
            let made =
                Reservation { purge_after: 90, idle_since: idle.map(Time), ..reservation(1_000, 600, flags) };
            made.purged_at().map(|at| at.0)
        };
        for (flags, idle, at) in [
            (&[Flag::PurgeComp][..], Some(500), Some(1_090)),
            (&[Flag::PurgeComp], Some(1_200), Some(1_290)),
            (&[Flag::PurgeComp], None, None),
            (&[], Some(500), None),
        ] {
            assert_eq!(purged(flags, idle), at, "{flags:?} {idle:?}");
        }
        let shown = reservation(0, 60, &[Flag::Daily, Flag::PurgeComp]).flags_text();
        assert_eq!(shown, "DAILY,PURGE_COMP=00:05:00");
    }

    #[test]
    fn one_that_floats_is_always_ahead() {
        let floating = reservation(1_000, 60, &[Flag::TimeFloat]).floating(Time(400));
        assert_eq!((floating.lead, floating.is_active(Time(1_010))), (Some(600), false));
        assert_eq!((floating.bars(600), floating.bars(601)), (false, true));
        assert_eq!(floating.windows(Time(400)), []);
        let shown = floating.anchored(Time(5_000));
        assert_eq!((shown.start, shown.end, shown.lead), (Time(5_600), Time(5_660), None));
        let other = reservation(1_030, 60, &[]);
        assert!(floating.meets(&other, Time(400)) && other.meets(&floating, Time(400)));
        assert!(!floating.meets(&other, Time(500)));
    }

    #[test]
    fn reservations_meet_on_a_node_at_a_time() {
        let one = reservation(86_400 * 3 + 10, 60, &[]);
        let daily = reservation(30, 60, &[Flag::Daily]);
        assert!(one.meets(&daily, Time(0)) && daily.meets(&one, Time(0)));
        assert!(!one.meets(&reservation(86_400 * 3 + 70, 60, &[]), Time(0)));
        assert!(!one.meets(&Reservation { nodes: Box::from([NodeId(2)]), ..daily }, Time(0)));
    }

    /// The windows of both are compared in full for half a year, in which every pattern repeats.
    #[test]
    fn clashes_are_found_however_far_ahead() {
        const MOST: Time = Time(26 * 7 * 86_400);
        let overlap = |one: &Reservation, other: &Reservation| {
            let windows = |of: &Reservation| {
                let all = std::iter::successors(Some(of.clone()), Reservation::moved);
                all.take_while(|of| of.start < MOST).map(|of| (of.start, of.end)).collect::<Vec<_>>()
            };
            let theirs = windows(other);
            windows(one).into_iter().any(|(start, end)| {
                let next = theirs.partition_point(|window| window.1 <= start);
                theirs.get(next).is_some_and(|window| window.0 < end)
            })
        };
        let repeats: [&[Flag]; 6] =
            [&[], &[Flag::Hourly], &[Flag::Daily], &[Flag::Weekday], &[Flag::Weekend], &[Flag::Weekly]];
        let mut met = [0, 0];
        for (mine, theirs) in repeats.iter().flat_map(|mine| repeats.iter().map(move |theirs| (mine, theirs)))
        {
            for (days, minutes) in [(0, 0), (1, 40), (17, 0), (19, 20), (40, 29), (40, 30), (100, 59)] {
                let one = reservation(3 * 86_400 + 36_000, 1_800, mine);
                let other = reservation((3 + days) * 86_400 + 36_000 + minutes * 60, 1_800, theirs);
                let expected = overlap(&one, &other);
                assert_eq!(one.meets(&other, Time(0)), expected, "{mine:?} {theirs:?} {days} {minutes}");
                assert_eq!(other.meets(&one, Time(0)), expected, "{theirs:?} {mine:?} {days} {minutes}");
                met[usize::from(expected)] += 1;
            }
        }
        assert!(met.iter().all(|count| *count > 20), "{met:?}");
    }

    #[test]
    fn members_are_these_or_all_others() {
        let names = |except, names: &[&str]| Members {
            except,
            names: names.iter().map(|name| (*name).into()).collect(),
        };
        for (members, name, admitted) in [
            (names(false, &[]), Some("a"), true),
            (names(false, &["a"]), Some("a"), true),
            (names(false, &["a"]), Some("b"), false),
            (names(false, &["a"]), None, false),
            (names(true, &["a"]), Some("a"), false),
            (names(true, &["a"]), Some("b"), true),
            (names(true, &["a"]), None, true),
        ] {
            assert_eq!(members.admit(name), admitted, "{members} and {name:?}");
        }
    }
}
