//! Licenses that are in use or reserved: whether those that a start needs are free, and whether a number of
//! them can be reserved.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::model::job::{Job, JobSpec};
use crate::model::reservation::{Flag, Reservation};
use crate::text::time::{Time, TimeLimit};

use super::feasible::meant;
use super::forecast::{ENDLESS, Limits};
use super::timeline::holding;
use super::timeline::licenses::{Licenses, WantedLicenses, wanted};
use super::timeline::realm::{OPEN, Realms};

/// The parts of a start that decide about licenses: the request, the limit, and the reservation in which it
/// starts.
pub type Starter<'a> = (&'a JobSpec, TimeLimit, Option<&'a str>);

/// True if jobs that start at one moment have the licenses they need for all of their time: no job holds
/// these, and no reservation keeps them for its own jobs.
#[must_use]
pub fn lets_start(cluster: &Cluster, now: Time, jobs: &[Starter<'_>]) -> bool {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, count) in jobs.iter().flat_map(|(spec, ..)| wanted(spec)) {
        *sums.entry(name).or_default() += u64::from(*count);
    }
    let known = &cluster.policy().licenses;
    let has_enough = |(name, sum): (&&str, &u64)| {
        let total = known.iter().find(|(known, _)| **known == **name).map(|(_, total)| u64::from(*total));
        total.is_some_and(|total| cluster.jobs().held_of_license(name) + sum <= total)
    };
    if !sums.iter().all(has_enough) {
        return false;
    }
    // Running jobs take no more licenses later: only a reservation can leave fewer than there are now.
    let has_one = |name: &&str| cluster.reservations().any(|reservation| reservation.license(name) > 0);
    if !sums.keys().any(has_one) {
        return true;
    }
    let all = cluster.reservations().filter(|reservation| !reservation.licenses.is_empty());
    let realms = Realms::new(&all.cloned().collect(), now);
    let wants_some = |job: &Job| wanted(&job.spec).iter().any(|(name, _)| sums.contains_key(&**name));
    let licenses = left(cluster, &realms, now, wants_some);
    let asked: Vec<(usize, &WantedLicenses)> =
        jobs.iter().map(|(spec, _, within)| (realms.within(*within), wanted(spec))).collect();
    let longest = jobs.iter().map(|(_, limit, _)| limit.seconds().unwrap_or(ENDLESS)).max().unwrap_or(1);
    licenses.lacking(&asked, now, longest).is_none() && licenses.earliest(&asked, now, longest) == Some(now)
}

/// The licenses left beside the jobs for which `counts` holds.
fn left(cluster: &Cluster, realms: &Realms, now: Time, counts: impl Fn(&Job) -> bool) -> Licenses {
    let held = cluster.jobs().licensed().filter(|job| counts(job));
    let ends = held.filter_map(|job| {
        let (_, end) = holding::until(cluster, job, &Limits, now)?;
        Some((end.max(now), job.id))
    });
    Licenses::new(cluster, realms, ends, now)
}

/// Checks that the licenses of a reservation can be kept for it. There must be enough beside what other
/// reservations hold at the same time. Jobs that may still hold licenses when it begins count too, unless it
/// ignores jobs or had the licenses before.
///
/// # Errors
/// The message gives the license, what is left of it, and what would work.
pub fn check(cluster: &Cluster, now: Time, made: &Reservation) -> Result<(), String> {
    let known = &cluster.policy().licenses;
    for (name, count) in &made.licenses {
        match known.iter().find(|(known, _)| **known == **name) {
            Some((_, total)) if count > total => {
                return Err(format!("Licenses={name}:{count}: there are {total}; ask {name}:{total}"));
            }
            Some(_) => {}
            None => {
                let near = meant(name, known.iter().map(|(known, _)| &**known));
                return Err(format!("Licenses={name}: there is no such license{near}"));
            }
        }
    }
    let others = cluster.reservations().filter(|other| other.name != made.name && !other.licenses.is_empty());
    let others: Arc<[Arc<Reservation>]> = others.map(|other| Arc::new(other.anchored(now))).collect();
    let realms = Realms::new(&others, now);
    let before = cluster.reservation(&made.name).map(|before| before.anchored(now));
    let beside_others = left(cluster, &realms, now, |_| false);
    let within =
        |job: &Job| job.phase.alloc().and_then(|alloc| alloc.reservation.as_ref()) == Some(&made.name);
    let beside_jobs = left(cluster, &realms, now, |job| !within(job));
    for (name, count) in &made.licenses {
        let least = |licenses: &Licenses| least_during(licenses, made, now, name).unwrap_or(i64::MAX);
        let spare = least(&beside_others);
        if spare < i64::from(*count) {
            let names: Vec<&str> = others
                .iter()
                .filter(|other| other.license(name) > 0 && other.is_at_one_time_with(made, now))
                .map(|other| &*other.name)
                .collect();
            return Err(too_many(name, *count, spare, &names.join(", "), ""));
        }
        let had = before.as_ref().filter(|before| made.start >= before.start);
        let is_new = had.is_none_or(|had| had.license(name) < *count);
        let spare = if is_new && !made.has(Flag::IgnoreJobs) { least(&beside_jobs) } else { spare };
        if spare < i64::from(*count) {
            let besides = ", or add Flags=IGNORE_JOBS";
            return Err(too_many(name, *count, spare, "jobs that may hold some then", besides));
        }
    }
    Ok(())
}

/// One sentence for each license that a new table makes too few: fewer than before, and fewer than
/// reservations hold at one time.
#[must_use]
pub fn short_of(cluster: &Cluster, now: Time, table: &[(Arc<str>, u32)]) -> Vec<String> {
    let all = cluster.reservations().filter(|reservation| !reservation.licenses.is_empty());
    let all: Arc<[Arc<Reservation>]> = all.map(|one| Arc::new(one.anchored(now))).collect();
    let realms = Realms::new(&all, now);
    let total = |name: &str| table.iter().find(|(known, _)| **known == *name).map_or(0, |(_, count)| *count);
    let known = &cluster.policy().licenses;
    let counts: Vec<(Arc<str>, u32)> =
        known.iter().map(|(name, _)| (Arc::clone(name), total(name))).collect();
    let licenses = Licenses::unused(&counts, &realms, now);
    let fewer = known.iter().filter(|(name, count)| total(name) < *count);
    let sentence = |(name, _): &(Arc<str>, u32)| {
        let least = |one: &Reservation| least_during(&licenses, one, now, name).unwrap_or(0);
        let short = all.iter().filter(|one| one.license(name) > 0).map(|one| (&*one.name, least(one)));
        let short: Vec<(&str, i64)> = short.filter(|(_, least)| *least < 0).collect();
        let most = i64::from(total(name)) - short.iter().map(|(_, least)| *least).min()?;
        let names: Vec<&str> = short.into_iter().map(|(name, _)| name).collect();
        let (ending, names) = (if names.len() == 1 { "" } else { "s" }, names.join(", "));
        Some(format!(
            "license {name}: there are {}, and reservation{ending} {names} had {most} at one time; their jobs wait \
             for what is missing",
            total(name)
        ))
    };
    fewer.filter_map(sentence).collect()
}

/// The fewest free licenses outside all reservations while a reservation is in force; `None` if it never is.
fn least_during(licenses: &Licenses, made: &Reservation, now: Time, name: &str) -> Option<i64> {
    let windows = made.windows(now).into_iter();
    windows.map(|(from, to)| licenses.least(OPEN, name, from.max(now), to)).min()
}

fn too_many(name: &str, count: u32, spare: i64, whom: &str, besides: &str) -> String {
    let (most, hint) = match spare {
        ..=0 => ("none".to_owned(), "give another StartTime= or Duration=".to_owned()),
        _ => (format!("at most {spare}"), format!("ask {name}:{spare}")),
    };
    format!("Licenses={name}:{count}: {most} beside {whom}; {hint}{besides}")
}
