//! Reads the events of a simulation, and counts everything that limits restrict. Shares no code with Spur.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::site::{Ask, Limits, OF_GPU, Site};

/// Seconds of use by which a budget may be exceeded: Spur adds up usage once in so many seconds.
const PERIOD: u64 = 3600;

struct Running {
    job: usize,
    since: u64,
    tres: BTreeMap<String, u64>,
}

/// An entity that has limits and for which jobs count, by its position in the site.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Owner {
    Qos(usize),
    Account(usize),
    User(usize),
}

pub(crate) struct Checker<'a> {
    site: &'a Site,
    asks: &'a [Ask],
    running: BTreeMap<usize, Running>,
    /// The jobs that wait or run.
    submitted: Vec<usize>,
    /// Resource-seconds of runs that have ended, times the usage factor of their QOS. The empty name has
    /// the seconds of the runs.
    past: BTreeMap<(Owner, String), u64>,
    pub(crate) starts: usize,
    pub(crate) rejects: usize,
    /// Number of `pending` events by reason.
    pub(crate) reasons: BTreeMap<String, usize>,
}

impl<'a> Checker<'a> {
    pub(crate) fn new(site: &'a Site, asks: &'a [Ask]) -> Self {
        Self {
            site,
            asks,
            running: BTreeMap::new(),
            submitted: Vec::new(),
            past: BTreeMap::new(),
            starts: 0,
            rejects: 0,
            reasons: BTreeMap::new(),
        }
    }

    pub(crate) fn event(&mut self, event: &Value) {
        let t = event["t"].as_u64().expect("a time");
        let job = || event["job"].as_str().expect("a job")[1..].parse::<usize>().expect("a number");
        match event["event"].as_str().expect("a kind") {
            "submit" => self.submit(job()),
            "reject" => self.reject(job(), event["error"].as_str().expect("an error")),
            "start" => self.start(t, job(), event),
            "end" => self.end(t, job(), event["state"] == "PREEMPTED"),
            "pending" => {
                *self.reasons.entry(event["reason"].as_str().expect("a reason").to_owned()).or_default() += 1
            }
            _ => {}
        }
    }

    /// The QOS of a job in the order of precedence.
    fn qos_of(&self, job: usize) -> Vec<usize> {
        let ask = &self.asks[job];
        let own = self.site.qos(ask.qos).expect("a QOS");
        let of_partition = self.site.qos(OF_GPU).filter(|_| ask.partition == "gpu");
        match (of_partition, self.site.qos[own].denies) {
            (Some(partition), true) => vec![own, partition],
            (Some(partition), false) => vec![partition, own],
            (None, _) => vec![own],
        }
    }

    /// The user and the accounts of a job, from the bottom up.
    fn associations_of(&self, job: usize) -> Vec<Owner> {
        let user = self.asks[job].user;
        let accounts = self.site.chain(self.site.users[user].account);
        std::iter::once(Owner::User(user)).chain(accounts.into_iter().map(Owner::Account)).collect()
    }

    fn limits(&self, owner: Owner) -> &'a Limits {
        match owner {
            Owner::Qos(at) => &self.site.qos[at].limits,
            Owner::Account(at) => &self.site.accounts[at].limits,
            Owner::User(at) => &self.site.users[at].limits,
        }
    }

    fn counts_for(&self, job: usize, owner: Owner) -> bool {
        match owner {
            Owner::Qos(at) => self.qos_of(job).contains(&at),
            other => self.associations_of(job).contains(&other),
        }
    }

    /// Returns the limits of one kind that apply to a job. For each resource the first QOS with a limit
    /// counts, else the associations. A `Max` limit of an association is that of the nearest association
    /// that sets the limit, and counts the user's jobs.
    fn rules(&self, job: usize, of_qos: &str, of_associations: &str) -> Vec<(Owner, &'static str, u64)> {
        let mut rules: Vec<(Owner, &'static str, u64)> = Vec::new();
        for at in self.qos_of(job) {
            for (resource, most) in self.limits(Owner::Qos(at)).get(of_qos).into_iter().flatten() {
                if rules.iter().all(|(_, known, _)| known != resource) {
                    rules.push((Owner::Qos(at), resource, *most));
                }
            }
        }
        let set: Vec<&str> = rules.iter().map(|(_, resource, _)| *resource).collect();
        let is_inherited = of_associations.starts_with("Max");
        let own = Owner::User(self.asks[job].user);
        for owner in self.associations_of(job) {
            for (resource, most) in self.limits(owner).get(of_associations).into_iter().flatten() {
                let nearer =
                    is_inherited && rules.iter().any(|(of, known, _)| *of == own && known == resource);
                if !set.contains(resource) && !nearer {
                    rules.push((if is_inherited { own } else { owner }, resource, *most));
                }
            }
        }
        rules
    }

    fn submit(&mut self, job: usize) {
        self.submitted.push(job);
        assert!(!self.is_over_submit_limit(job, 0), "job {job} was taken over a submit limit");
    }

    /// True if the waiting and running jobs together with `more` jobs exceed a submit limit that applies
    /// to this job.
    fn is_over_submit_limit(&self, job: usize, more: u64) -> bool {
        let user = self.asks[job].user;
        let grp = self.rules(job, "GrpSubmitJobs", "GrpSubmitJobs");
        let own = self.rules(job, "MaxSubmitJobsPerUser", "MaxSubmitJobs");
        grp.iter().chain(&own).any(|(owner, _, most)| {
            let counts = |other: &&usize| {
                let is_own = !matches!(owner, Owner::Qos(_)) || self.asks[**other].user == user;
                self.counts_for(**other, *owner) && is_own
            };
            self.submitted.iter().filter(counts).count() as u64 + more > *most
        })
    }

    fn reject(&mut self, job: usize, error: &str) {
        self.rejects += 1;
        let denied = self.qos_of(job).iter().any(|at| self.site.qos[*at].denies) && self.is_over_alone(job);
        assert!(denied || self.is_over_submit_limit(job, 1), "job {job} was refused for no limit: {error}");
    }

    /// True if a job alone exceeds a limit.
    fn is_over_alone(&self, job: usize) -> bool {
        let ask = &self.asks[job];
        let amount = |resource: &str| match resource {
            "cpu" => ask.cpus,
            "gres/gpu" => ask.gpus,
            _ => 0,
        };
        let size = [
            ("MaxTRESPerJob", "MaxTRESPerJob"),
            ("GrpTRES", "GrpTRES"),
            ("MaxTRESPerUser", ""),
            ("MaxTRESPerAccount", ""),
        ];
        let mut sizes = size.iter().flat_map(|(qos, association)| self.rules(job, qos, association));
        let mut walls = self.rules(job, "MaxWallDurationPerJob", "MaxWallDurationPerJob").into_iter();
        let mut minutes = self.rules(job, "MaxTRESMinsPerJob", "MaxTRESMinsPerJob").into_iter();
        let mut nodes = self.rules(job, "MaxTRESPerNode", "MaxTRESPerNode").into_iter();
        sizes.any(|(_, resource, most)| amount(resource) > most)
            || walls.any(|(_, _, most)| ask.minutes > most)
            || minutes.any(|(_, resource, most)| amount(resource) * ask.minutes > most)
            || nodes.any(|(_, resource, most)| amount(resource) > most)
    }

    fn start(&mut self, t: u64, job: usize, event: &Value) {
        self.starts += 1;
        let tres = event["tres"].as_object().expect("resources");
        let tres: BTreeMap<String, u64> =
            tres.iter().map(|(name, amount)| (name.clone(), amount.as_u64().expect("a count"))).collect();
        let account = &self.site.accounts[self.site.users[self.asks[job].user].account].name;
        assert_eq!(
            (event["account"].as_str(), event["qos"].as_str()),
            (Some(&**account), Some(self.asks[job].qos))
        );
        assert!(
            tres["cpu"] >= self.asks[job].cpus
                && tres.get("gres/gpu").copied().unwrap_or(0) >= self.asks[job].gpus
        );
        assert!(self.running.insert(job, Running { job, since: t, tres }).is_none(), "job {job} runs twice");
        self.check_counts(job);
        self.check_size(job);
        self.check_minutes(t, job);
    }

    fn sum(&self, resource: &str, counts: impl Fn(usize) -> bool) -> u64 {
        let held = self.running.values().filter(|run| counts(run.job));
        held.map(|run| run.tres.get(resource).copied().unwrap_or(0)).sum()
    }

    fn check_counts(&self, job: usize) {
        let (user, account) = (self.asks[job].user, self.site.users[self.asks[job].user].account);
        let held = |resource: &str| self.running[&job].tres.get(resource).copied().unwrap_or(0);
        for (owner, resource, most) in self.rules(job, "GrpTRES", "GrpTRES") {
            let sum = self.sum(resource, |other| self.counts_for(other, owner));
            assert!(
                sum <= most || held(resource) == 0,
                "job {job}: GrpTRES {resource} of {owner:?}: {sum} of {most}"
            );
        }
        for (name, of_user) in [("MaxTRESPerUser", true), ("MaxTRESPerAccount", false)] {
            for (owner, resource, most) in self.rules(job, name, "") {
                let is_own = |other: usize| match of_user {
                    true => self.asks[other].user == user,
                    false => self.site.users[self.asks[other].user].account == account,
                };
                let sum = self.sum(resource, |other| self.counts_for(other, owner) && is_own(other));
                assert!(sum <= most || held(resource) == 0, "job {job}: {name} {resource}: {sum} of {most}");
            }
        }
        let jobs = [("GrpJobs", "GrpJobs"), ("MaxJobsPerUser", "MaxJobs"), ("MaxJobsPerAccount", "MaxJobs")];
        for (of_qos, of_associations) in jobs {
            for (owner, _, most) in self.rules(job, of_qos, of_associations) {
                let is_own = |other: usize| match (owner, of_qos) {
                    (Owner::Qos(_), "MaxJobsPerUser") => self.asks[other].user == user,
                    (Owner::Qos(_), "MaxJobsPerAccount") => {
                        self.site.users[self.asks[other].user].account == account
                    }
                    _ => true,
                };
                // A limit of either name of a QOS replaces that of the association.
                let replaced = of_associations == "MaxJobs"
                    && !matches!(owner, Owner::Qos(_))
                    && ["MaxJobsPerUser", "MaxJobsPerAccount"].iter().any(|name| {
                        self.qos_of(job).iter().any(|at| self.site.qos[*at].limits.contains_key(name))
                    });
                let count =
                    self.running.keys().filter(|other| self.counts_for(**other, owner) && is_own(**other));
                let count = count.count() as u64;
                assert!(replaced || count <= most, "job {job}: {of_qos} of {owner:?}: {count} of {most}");
            }
        }
    }

    fn check_size(&self, job: usize) {
        let (run, ask) = (&self.running[&job], &self.asks[job]);
        let held = |resource: &str| run.tres.get(resource).copied().unwrap_or(0);
        for (_, resource, most) in self.rules(job, "MaxTRESPerJob", "MaxTRESPerJob") {
            assert!(held(resource) <= most, "job {job}: MaxTRES {resource} {most}");
        }
        for (_, resource, most) in self.rules(job, "MaxTRESMinsPerJob", "MaxTRESMinsPerJob") {
            assert!(held(resource) * ask.minutes <= most, "job {job}: MaxTRESMins {resource} {most}");
        }
        for (_, resource, least) in self.rules(job, "MinTRESPerJob", "") {
            assert!(held(resource) >= least, "job {job}: MinTRES {resource} {least}");
        }
        for (_, _, most) in self.rules(job, "MaxWallDurationPerJob", "MaxWallDurationPerJob") {
            assert!(ask.minutes <= most, "job {job}: MaxWall {most}");
        }
        if held("node") == 1 {
            for (_, resource, most) in self.rules(job, "MaxTRESPerNode", "MaxTRESPerNode") {
                assert!(held(resource) <= most, "job {job}: MaxTRESPerNode {resource} {most}");
            }
        }
    }

    fn check_minutes(&self, t: u64, job: usize) {
        let left = |run: &Running| (run.since + self.asks[run.job].minutes * 60).saturating_sub(t);
        let promised = |owner: Owner, resource: &str| -> u64 {
            let counted = self.running.values().filter(|run| self.counts_for(run.job, owner));
            counted.map(|run| run.tres.get(resource).copied().unwrap_or(0) * left(run)).sum()
        };
        for (owner, resource, most) in self.rules(job, "GrpTRESRunMins", "GrpTRESRunMins") {
            let seconds = promised(owner, resource);
            assert!(seconds <= most * 60, "job {job}: GrpTRESRunMins {resource} of {owner:?}: {seconds} s");
        }
        for (owner, resource, most) in self.rules(job, "GrpTRESMins", "GrpTRESMins") {
            let past = self.past.get(&(owner, resource.to_owned())).copied().unwrap_or(0);
            // A run with a usage factor above 1 uses more than the time left to its limit suggests.
            let rate = 2 * self.sum(resource, |other| self.counts_for(other, owner));
            let seconds = past + self.under_way(t, owner, resource) + promised(owner, resource);
            assert!(
                seconds <= most * 60 + rate * PERIOD,
                "job {job}: GrpTRESMins {resource}: {seconds} s of {most}"
            );
        }
        for (owner, _, most) in self.rules(job, "GrpWall", "GrpWall") {
            let seconds = self.past.get(&(owner, String::new())).copied().unwrap_or(0);
            assert!(seconds < most * 60, "job {job}: GrpWall of {owner:?}: {seconds} s");
        }
    }

    /// Resource-seconds of the runs that have not ended, so far.
    fn under_way(&self, t: u64, owner: Owner, resource: &str) -> u64 {
        let counted = self.running.values().filter(|run| self.counts_for(run.job, owner));
        let used = |run: &Running| run.tres.get(resource).copied().unwrap_or(0) * (t - run.since);
        counted.map(|run| used(run) * self.factor(run.job)).sum()
    }

    /// The factor of usage of a job's QOS.
    fn factor(&self, job: usize) -> u64 {
        self.site.qos[self.site.qos(self.asks[job].qos).expect("a QOS")].usage_factor
    }

    fn end(&mut self, t: u64, job: usize, waits_again: bool) {
        if !waits_again {
            self.submitted.retain(|other| *other != job);
        }
        let Some(run) = self.running.remove(&job) else { return };
        let seconds = t - run.since;
        let factor = self.factor(job);
        let qos = self.qos_of(job).into_iter().map(Owner::Qos);
        let owners: Vec<Owner> = qos.chain(self.associations_of(job)).collect();
        for owner in owners {
            let mut add = |resource: &str, amount: u64| {
                *self.past.entry((owner, resource.to_owned())).or_default() += amount * seconds * factor;
            };
            add("", 1);
            run.tres.iter().for_each(|(resource, amount)| add(resource, *amount));
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Returns the billing-seconds of an account.
    pub(crate) fn used_by_account(&self, at: usize) -> u64 {
        self.past.get(&(Owner::Account(at), "billing".to_owned())).copied().unwrap_or(0)
    }

    pub(crate) fn used_by_user(&self, at: usize) -> u64 {
        self.past.get(&(Owner::User(at), "billing".to_owned())).copied().unwrap_or(0)
    }

    /// Returns each user's rank by Fair Tree, and the number of ranked users. `root`'s own user, who has
    /// used nothing, is one of the ranked users.
    pub(crate) fn ranks(&self) -> (Vec<u64>, u64) {
        let all = self.site.users.len() as u64 + 1;
        let mut walk = Walk { checker: self, ranks: vec![0; self.site.users.len()], next: all, rank: all };
        walk.children(0, false);
        (walk.ranks, all)
    }
}

struct Walk<'c, 'a> {
    checker: &'c Checker<'a>,
    ranks: Vec<u64>,
    next: u64,
    rank: u64,
}

#[derive(Clone, PartialEq, Eq)]
enum Child {
    Root,
    User(usize),
    Account(usize),
}

impl Walk<'_, '_> {
    /// Returns shares and usage of a child.
    fn level(&self, child: &Child) -> (u128, u128) {
        let site = self.checker.site;
        match child {
            Child::Root => (1, 0),
            Child::User(at) => (site.users[*at].shares.into(), self.checker.used_by_user(*at).into()),
            Child::Account(at) => {
                (site.accounts[*at].shares.into(), self.checker.used_by_account(*at).into())
            }
        }
    }

    fn compare(&self, one: &Child, other: &Child) -> std::cmp::Ordering {
        let ((shares, used), (others, theirs)) = (self.level(one), self.level(other));
        match (used == 0, theirs == 0) {
            (true, true) => std::cmp::Ordering::Equal,
            (true, false) => std::cmp::Ordering::Greater,
            (false, true) => std::cmp::Ordering::Less,
            (false, false) => (shares * theirs).cmp(&(others * used)),
        }
    }

    fn children(&mut self, of: usize, mut tied: bool) {
        let site = self.checker.site;
        let users = (0..site.users.len()).filter(|at| site.users[*at].account == of).map(Child::User);
        let accounts = (0..site.accounts.len()).filter(|at| site.accounts[*at].parent == Some(of));
        let root = (of == 0).then_some(Child::Root);
        let mut all: Vec<Child> = root.into_iter().chain(users).chain(accounts.map(Child::Account)).collect();
        let name = |child: &Child| match child {
            Child::Root => (false, "root".to_owned()),
            Child::User(at) => (false, site.users[*at].name.clone()),
            Child::Account(at) => (true, site.accounts[*at].name.clone()),
        };
        all.sort_by(|one, other| self.compare(other, one).then_with(|| name(one).cmp(&name(other))));
        for index in 0..all.len() {
            if index > 0 {
                tied = self.compare(&all[index - 1], &all[index]).is_eq();
            }
            match all[index] {
                Child::Account(at) => self.children(at, tied),
                Child::Root | Child::User(_) => {
                    self.rank = if tied { self.rank } else { self.next };
                    self.next -= 1;
                    if let Child::User(at) = all[index] {
                        self.ranks[at] = self.rank;
                    }
                }
            }
        }
    }
}
