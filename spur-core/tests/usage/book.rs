//! Usage computed from a journal's entries alone, and ranks and classic factors computed by recursion.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spur_core::cluster::Holder;
use spur_core::cluster::{AccountChange, Cluster, Entry, Event};
use spur_core::id::JobId;
use spur_core::model::accounts::qos::QosFlag;
use spur_core::model::accounts::{Association, AssociationId, Qos, Shares};
use spur_core::model::config::PriorityFlag;
use spur_core::text::tres::TresKind;

/// Amounts in units of 2^-32 by resource, and for `wall`.
type Amounts = BTreeMap<String, u128>;

/// A run that has not ended.
#[derive(Clone, Debug)]
struct Running {
    holders: Vec<Holder>,
    rates: Amounts,
    started: i64,
    paused: i64,
    suspended: Option<i64>,
    counted: i64,
}

/// Usage of every association, computed from a journal's entries.
#[derive(Default)]
pub(crate) struct Book {
    associations: BTreeMap<u32, Arc<Association>>,
    qos: BTreeMap<u32, Arc<Qos>>,
    users: BTreeMap<JobId, Arc<str>>,
    running: BTreeMap<JobId, Running>,
    used: BTreeMap<Holder, Amounts>,
    /// Billing when usage was last rolled.
    ranked: BTreeMap<Holder, u128>,
    /// Number of times that runs were counted.
    counted: u64,
}

impl Book {
    /// True if a run was ever counted.
    pub(crate) fn has_counted(&self) -> bool {
        self.counted > 0
    }

    pub(crate) fn apply(&mut self, entry: &Entry) {
        let at = entry.at.0;
        match &entry.event {
            Event::AccountsChanged { changes, .. } => changes.iter().for_each(|change| self.change(change)),
            Event::JobSubmitted { job, spec } => {
                self.users.insert(*job, Arc::clone(&spec.owner.user));
                let holder = self.of_request(&spec.owner.user, spec.account.as_deref());
                self.ranked.entry(holder).or_default();
            }
            Event::JobStarted { job, alloc, .. } => {
                let factor = alloc.charged.qos.map_or(1.0, |qos| self.qos[&qos].usage_factor);
                assert!([0.5, 1.0].contains(&factor), "these are exact");
                let scaled =
                    |count: u64| if factor < 1.0 { u128::from(count) << 31 } else { u128::from(count) << 32 };
                let cpus: u64 = alloc.nodes.iter().map(|part| u64::from(part.cpus.len())).sum();
                let gpus: u64 = alloc
                    .nodes
                    .iter()
                    .flat_map(|part| part.gres.iter())
                    .map(|gres| u64::from(gres.ids.len()))
                    .sum();
                let billing = alloc.billing.map_or(u128::from(cpus) << 32, |rate| rate.0);
                let mut rates = Amounts::from([
                    ("cpu".to_owned(), scaled(cpus)),
                    ("mem".to_owned(), scaled(alloc.nodes.iter().map(|part| part.memory_mb).sum())),
                    ("node".to_owned(), scaled(alloc.nodes.len() as u64)),
                    ("wall".to_owned(), scaled(1)),
                    ("billing".to_owned(), if factor < 1.0 { billing >> 1 } else { billing }),
                ]);
                if gpus > 0 {
                    rates.insert("gres/gpu".to_owned(), scaled(gpus));
                    rates.insert("gres/gpu:a100".to_owned(), scaled(gpus));
                }
                let own = alloc.charged.association.expect("the tree has begun");
                let first = match &self.associations[&own.0].user {
                    Some(_) => Holder::Association(own),
                    None => Holder::Outsider { account: own, user: Arc::clone(&self.users[job]) },
                };
                let holders = [first].into_iter().chain(alloc.charged.qos.map(Holder::Qos)).collect();
                let run = Running { holders, rates, started: at, paused: 0, suspended: None, counted: 0 };
                self.running.insert(*job, run);
            }
            Event::JobSuspended { job, .. } => {
                let run = self.running.get_mut(job).expect("it runs");
                run.suspended.get_or_insert(at);
            }
            Event::JobResumed { job } => {
                let run = self.running.get_mut(job).expect("it was suspended");
                run.paused += at - run.suspended.take().expect("it was suspended");
            }
            Event::JobEnding { job, seen, .. } if self.running.contains_key(job) => {
                self.count(*job, seen.map_or(at, |seen| seen.0));
                self.running.remove(job);
            }
            Event::UsageRolled { until, ratio, reset, .. } => {
                assert!(!reset, "none is planned");
                for job in self.running.keys().copied().collect::<Vec<_>>() {
                    self.count(job, until.0);
                }
                for (holder, amounts) in &mut self.used {
                    let kept =
                        matches!(holder, Holder::Qos(qos) if self.qos[qos].flags.contains(&QosFlag::NoDecay));
                    for amount in amounts.values_mut().filter(|_| !kept) {
                        *amount = ratio.0.map_or(*amount, |ratio| product(*amount, ratio));
                    }
                    self.ranked.insert(holder.clone(), amounts.get("billing").copied().unwrap_or(0));
                }
            }
            _ => {}
        }
    }

    /// The holder that a request counts for: the user's association in the named or default account. A user
    /// without one is an outsider of the account; root stands for an account that does not exist.
    fn of_request(&self, user: &str, account: Option<&str>) -> Holder {
        let all = || self.associations.values();
        let default = || all().find(|own| own.user.as_deref() == Some(user)).map(|own| &*own.account);
        let account = account.or_else(default).unwrap_or("root");
        let of = |account: &str, user: Option<&str>| {
            all().find(|own| &*own.account == account && own.user.as_deref() == user).map(|own| own.id)
        };
        match of(account, Some(user)) {
            Some(id) => Holder::Association(id),
            None => match (of(account, None), of("root", Some(user)), of("root", None)) {
                (Some(account), ..) => Holder::Outsider { account, user: user.into() },
                (None, Some(id), _) => Holder::Association(id),
                (None, None, root) => {
                    Holder::Outsider { account: root.expect("there is a root"), user: user.into() }
                }
            },
        }
    }

    /// Parent account of an association.
    fn above(&self, own: &Association) -> Option<&Arc<Association>> {
        let name = if own.user.is_some() { Some(&own.account) } else { own.parent.as_ref() };
        self.associations.values().find(|other| other.user.is_none() && Some(&other.account) == name)
    }

    fn chain(&self, from: u32) -> Vec<u32> {
        let mut chain = vec![from];
        let mut next = &self.associations[&from];
        while let Some(above) = self.above(next) {
            chain.push(above.id.0);
            next = above;
        }
        chain
    }

    fn count(&mut self, job: JobId, until: i64) {
        let run = self.running.get_mut(&job).expect("it runs");
        let until = run.suspended.map_or(until, |since| since.min(until));
        let ran = ((until - run.started).max(0) - run.paused).max(0);
        let (more, rates, holders) = (ran - run.counted, run.rates.clone(), run.holders.clone());
        run.counted = ran;
        self.counted += 1;
        if more == 0 {
            return;
        }
        let mut all = holders.clone();
        match &holders[0] {
            Holder::Association(id) => {
                all.extend(self.chain(id.0)[1..].iter().map(|id| Holder::Association(AssociationId(*id))));
            }
            Holder::Outsider { account, .. } => {
                all.extend(self.chain(account.0).iter().map(|id| Holder::Association(AssociationId(*id))));
            }
            _ => unreachable!("the first is a user"),
        }
        for holder in all {
            let amounts = self.used.entry(holder).or_default();
            for (kind, rate) in &rates {
                let amount = amounts.entry(kind.clone()).or_default();
                let difference = rate * u128::from(more.unsigned_abs());
                *amount = if more > 0 { *amount + difference } else { amount.saturating_sub(difference) };
            }
        }
    }

    fn change(&mut self, change: &AccountChange) {
        match change {
            AccountChange::Association(new) => {
                let before = self.associations.get(&new.id.0).map(|_| self.chain(new.id.0)[1..].to_vec());
                let is_new = before.is_none();
                self.associations.insert(new.id.0, Arc::clone(new));
                let after = self.chain(new.id.0)[1..].to_vec();
                if before.as_ref().is_some_and(|before| *before != after) {
                    self.shift(new.id, &before.unwrap_or_default(), &after);
                }
                if let (true, Some(user), Some(above)) = (is_new, &new.user, after.first()) {
                    let outsider =
                        Holder::Outsider { account: AssociationId(*above), user: Arc::clone(user) };
                    let own = Holder::Association(new.id);
                    if let Some(used) = self.used.remove(&outsider) {
                        self.used.insert(own.clone(), used);
                    }
                    if let Some(ranked) = self.ranked.remove(&outsider) {
                        self.ranked.insert(own, ranked);
                    }
                }
            }
            AccountChange::Qos(qos) => drop(self.qos.insert(qos.id, Arc::clone(qos))),
            AccountChange::QosUsageCleared(qos) => drop(self.used.remove(&Holder::Qos(*qos))),
            AccountChange::UsageCleared(id) => {
                let above = self.chain(id.0)[1..].to_vec();
                self.shift(*id, &above, &[]);
                let below: BTreeSet<u32> = self
                    .associations
                    .keys()
                    .copied()
                    .filter(|other| self.chain(*other).contains(&id.0))
                    .collect();
                let is_below = |holder: &Holder| match holder {
                    Holder::Association(own) => below.contains(&own.0),
                    Holder::Outsider { account, .. } => below.contains(&account.0),
                    _ => false,
                };
                self.used.retain(|holder, _| !is_below(holder));
                self.ranked
                    .iter_mut()
                    .filter(|(holder, _)| is_below(holder))
                    .for_each(|(_, ranked)| *ranked = 0);
            }
            _ => {}
        }
    }

    fn shift(&mut self, id: AssociationId, before: &[u32], after: &[u32]) {
        let own = Holder::Association(id);
        let moved = self.used.get(&own).cloned().unwrap_or_default();
        let ranked = self.ranked.get(&own).copied().unwrap_or(0);
        for above in before {
            let holder = Holder::Association(AssociationId(*above));
            for (kind, amount) in self.used.entry(holder.clone()).or_default() {
                *amount = amount.saturating_sub(moved.get(kind).copied().unwrap_or(0));
            }
            let of_above = self.ranked.entry(holder).or_default();
            *of_above = of_above.saturating_sub(ranked);
        }
        for above in after {
            let holder = Holder::Association(AssociationId(*above));
            for (kind, amount) in &moved {
                *self.used.entry(holder.clone()).or_default().entry(kind.clone()).or_default() += amount;
            }
            *self.ranked.entry(holder).or_default() += ranked;
        }
    }

    /// Differences between the book and a cluster.
    pub(crate) fn differences(&self, cluster: &Cluster) -> Vec<String> {
        let mut found = Vec::new();
        let kinds = ["cpu", "mem", "node", "billing", "gres/gpu", "gres/gpu:a100"];
        let associations = self.associations.keys().map(|id| Holder::Association(AssociationId(*id)));
        let all: BTreeSet<Holder> =
            self.used.keys().chain(self.ranked.keys()).cloned().chain(associations).collect();
        for holder in &all {
            let own =
                |kind: &str| self.used.get(holder).and_then(|used| used.get(kind)).copied().unwrap_or(0);
            for kind in kinds {
                let tres: TresKind = kind.parse().expect("a resource");
                let theirs = cluster.usage().past(holder, &tres).0;
                if theirs != own(kind) {
                    found.push(format!("{holder:?}: {kind} is {theirs}, and {} in the book", own(kind)));
                }
            }
            let wall = cluster.usage().past_wall(holder).0;
            if wall != own("wall") {
                found.push(format!("{holder:?}: wall is {wall}, and {} in the book", own("wall")));
            }
        }
        let (ranks, shares) = (self.ranks(), cluster.fair_shares());
        let scheduler = &cluster.policy().scheduler;
        if scheduler.has_flag(PriorityFlag::NoFairTree) {
            let settings = (
                f64::from(scheduler.fair_share_dampening_factor),
                scheduler.has_flag(PriorityFlag::DepthOblivious),
            );
            for (holder, factor) in self.classic_factors(settings) {
                let theirs = shares.factor(&holder);
                if (theirs - factor).abs() > 1e-9 {
                    found.push(format!("{holder:?} has factor {theirs}, and {factor} in the book"));
                }
            }
            return found;
        }
        if ranks.len() != shares.users as usize {
            found.push(format!("{} users share, and {} in the book", shares.users, ranks.len()));
        }
        for (holder, rank) in ranks {
            let theirs = shares.standing(&holder).map(|standing| standing.rank);
            if theirs != Some(rank) {
                found.push(format!("{holder:?} has rank {theirs:?}, and {rank} in the book"));
            }
        }
        found
    }

    /// The factors of users and accounts under classic fair share, each computed upwards from its holder.
    fn classic_factors(&self, settings: (f64, bool)) -> Vec<(Holder, f64)> {
        let usage = |holder: &Holder| self.ranked.get(holder).copied().unwrap_or(0) as f64;
        let raw = |shares: Shares| match shares {
            Shares::Raw(shares) => Some(f64::from(shares)),
            Shares::Parent => None,
        };
        let associations = self.associations.values().map(|own| {
            let holder = Holder::Association(own.id);
            let above = self.above(own).map(|above| above.id);
            Member { usage: usage(&holder), holder, above, shares: raw(own.shares) }
        });
        let outsiders = self.ranked.keys().filter_map(|holder| match holder {
            Holder::Outsider { account, .. } => Some(Member {
                holder: holder.clone(),
                above: Some(*account),
                shares: Some(1.0),
                usage: usage(holder),
            }),
            _ => None,
        });
        let family = Family { members: associations.chain(outsiders).collect(), depth_oblivious: settings.1 };
        let factor = |member: &Member| match family.norm_shares(member) {
            0.0 => 0.0,
            shares => 2_f64.powf(-family.effective_usage(member) / shares / settings.0),
        };
        family.members.iter().map(|member| (member.holder.clone(), factor(member))).collect()
    }

    fn ranks(&self) -> BTreeMap<Holder, u32> {
        let users = self.associations.values().filter(|own| own.user.is_some()).count();
        let outsiders = self.ranked.keys().filter(|holder| matches!(holder, Holder::Outsider { .. })).count();
        let mut walk = Walk { book: self, left: (users + outsiders) as u32, rank: 0, ranks: BTreeMap::new() };
        let root = self.associations.values().find(|own| own.user.is_none() && own.parent.is_none());
        if let Some(root) = root {
            walk.children(root, false);
        }
        walk.ranks
    }
}

/// A holder that shares: the association above, raw shares (`None` for the parent's), and usage.
struct Member {
    holder: Holder,
    above: Option<AssociationId>,
    shares: Option<f64>,
    usage: f64,
}

/// All holders that share.
struct Family {
    members: Vec<Member>,
    depth_oblivious: bool,
}

impl Family {
    /// The nearest member above that has shares of its own.
    fn above(&self, of: &Member) -> Option<&Member> {
        let id = of.above?;
        let above = self.members.iter().find(|member| member.holder == Holder::Association(id))?;
        match above.shares {
            None => self.above(above),
            Some(_) => Some(above),
        }
    }

    /// The members that share out the same shares as `of`, which is among them unless it has its parent's.
    fn siblings(&self, of: &Member) -> Vec<&Member> {
        let holder = |member: &Member| self.above(member).map(|above| above.holder.clone());
        let own = holder(of);
        self.members.iter().filter(|other| other.shares.is_some() && holder(other) == own).collect()
    }

    /// The raw shares of a member over those of all siblings; 0 if nobody has any.
    fn portion(&self, of: &Member, shares: f64) -> f64 {
        let all: f64 = self.siblings(of).iter().filter_map(|sibling| sibling.shares).sum();
        if all == 0.0 { 0.0 } else { shares / all }
    }

    fn norm_shares(&self, of: &Member) -> f64 {
        let Some(above) = self.above(of) else { return 1.0 };
        self.norm_shares(above) * of.shares.map_or(1.0, |shares| self.portion(of, shares))
    }

    fn norm_usage(&self, of: &Member) -> f64 {
        let root = self.members.iter().find(|member| member.above.is_none()).map_or(0.0, |root| root.usage);
        if root == 0.0 { 0.0 } else { of.usage / root }
    }

    fn effective_usage(&self, of: &Member) -> f64 {
        let Some(above) = self.above(of) else { return 1.0 };
        let own = self.norm_usage(of);
        if above.above.is_none() {
            return own;
        }
        let theirs = self.effective_usage(above);
        let Some(shares) = of.shares else { return theirs };
        if !self.depth_oblivious {
            let siblings: f64 = self.siblings(of).iter().filter_map(|sibling| sibling.shares).sum();
            return if siblings == 0.0 { theirs } else { own + (theirs - own) * shares / siblings };
        }
        let (wide, narrow) = (self.norm_shares(above), self.norm_shares(of));
        if [own, theirs, wide, narrow].contains(&0.0) {
            return own;
        }
        let all: f64 = self.siblings(of).iter().map(|sibling| self.norm_usage(sibling)).sum();
        let (ratio, local) = ((theirs / wide).ln(), (own / narrow / (all / wide)).ln());
        let damped = if ratio * local < 0.0 { local / (1.0 + (5.0 * ratio) * (5.0 * ratio)) } else { local };
        narrow * (ratio + damped).exp()
    }
}

/// A child of an account: shares, usage and name.
struct Child {
    holder: Holder,
    account: Option<Arc<Association>>,
    shares: Option<u32>,
    usage: u128,
    name: String,
}

struct Walk<'a> {
    book: &'a Book,
    left: u32,
    rank: u32,
    ranks: BTreeMap<Holder, u32>,
}

impl Walk<'_> {
    fn children(&mut self, of: &Association, mut tied: bool) {
        let book = self.book;
        let ranked = |holder: &Holder| book.ranked.get(holder).copied().unwrap_or(0);
        let mut children: Vec<Child> = Vec::new();
        for own in book.associations.values() {
            if book.above(own).is_some_and(|above| above.id == of.id) {
                let holder = Holder::Association(own.id);
                children.push(Child {
                    usage: ranked(&holder),
                    holder,
                    account: own.user.is_none().then(|| Arc::clone(own)),
                    shares: match own.shares {
                        Shares::Raw(shares) => Some(shares),
                        Shares::Parent => None,
                    },
                    name: own.user.as_ref().unwrap_or(&own.account).to_string(),
                });
            }
        }
        for holder in book.ranked.keys() {
            if let Holder::Outsider { account, user } = holder
                && *account == of.id
            {
                let (usage, name) = (ranked(holder), user.to_string());
                children.push(Child { holder: holder.clone(), account: None, shares: Some(1), usage, name });
            }
        }
        let above = ranked(&Holder::Association(of.id));
        // Shares over usage as a fraction; nothing over one is last, one over nothing is first.
        let level = |child: &Child| match child.shares {
            Some(0) => (0, 1),
            None => (1, 0),
            Some(_) if child.usage == 0 || above == 0 => (1, 0),
            Some(shares) => (u128::from(shares), child.usage),
        };
        let order = |one: &Child, other: &Child| {
            let ((a, b), (c, d)) = (level(one), level(other));
            match (b, d) {
                (0, 0) => Ordering::Equal,
                (0, _) => Ordering::Greater,
                (_, 0) => Ordering::Less,
                _ => (a * d).cmp(&(c * b)),
            }
        };
        children.sort_by(|one, other| {
            order(other, one)
                .then(one.account.is_some().cmp(&other.account.is_some()))
                .then(one.name.cmp(&other.name))
        });
        for (index, child) in children.iter().enumerate() {
            if index > 0 {
                tied = order(&children[index - 1], child) == Ordering::Equal;
            }
            match &child.account {
                Some(account) => self.children(account, tied),
                None => {
                    if !tied {
                        self.rank = self.left;
                    }
                    self.ranks.insert(child.holder.clone(), self.rank);
                    self.left -= 1;
                }
            }
        }
    }
}

/// Returns `amount` times `ratio` in units of 2^-64, rounded down. Amounts in these tests are below 2^95.
fn product(amount: u128, ratio: u64) -> u128 {
    let (high, low) = (amount >> 32, amount & 0xffff_ffff);
    let (upper, lower) = (high * u128::from(ratio), low * u128::from(ratio));
    (upper >> 32) + ((((upper & 0xffff_ffff) << 32) + lower) >> 64)
}
