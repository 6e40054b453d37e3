//! Jobs that have to wait: their reservations and their reasons.

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::id::JobId;
use crate::model::config::Backfill;
use crate::model::job::JobSpec;
use crate::model::reason::Reason;
use crate::model::reservation::{Flag, Reservation as Site};
use crate::sched::explain;
use crate::sched::feasible;
use crate::sched::plan::{Detail, RESERVED, Waiting};
use crate::sched::planned_starts::Reservation;
use crate::sched::prospect::{self, Prospect, Prospects};
use crate::sched::queue::{self, Candidate, Queued};
use crate::sched::shorter_time;
use crate::sched::timeline::licenses::wanted;
use crate::sched::timeline::realm::OPEN;
use crate::sched::timeline::start_bounds::{Family, Size};

use super::het::{asked, longest};
use super::reservation::Planned;
use super::walk::{EXPLAINED, Walk};
use crate::sched::space::Space;

/// The reason of a job that waits only for a reservation of others.
fn kept_out(by: &Site) -> (Reason, String) {
    let what = RESERVED[usize::from(!by.has(Flag::Maint))];
    (Reason::ReqNodeNotAvail, format!("{what}: {}", by.name))
}

impl<S: Space> Walk<S> {
    /// Notes why a job waits, given the prospects of each component, and reserves the start that was found,
    /// if any: `plan` books it.
    pub(super) fn hold_back<M: IntoIterator<Item = Planned>>(
        &mut self,
        candidate: &Queued,
        prospects: &[Prospects],
        known: Vec<Arc<Reservation>>,
        is_found: bool,
        plan: impl FnOnce(&mut Self) -> M,
    ) {
        if !known.is_empty() {
            for (component, known) in candidate.all().zip(known) {
                self.book(component, &known);
                self.remember_known(known);
            }
            return;
        }
        let all = || prospects.iter().flat_map(|of| of.iter());
        let behind = all().find_map(|prospect| self.head_of(prospect));
        let is_unreserved = self.is_unreserved(candidate);
        let reserves = !is_unreserved && all().any(|prospect| self.reserves(prospect));
        // A job that finds no place in its window may find one when others end early.
        let shares = |(component, prospects): (&Candidate, &Prospects)| {
            prospects.iter().any(|prospect| self.shares_in_window(component, prospect))
        };
        self.wavers |= !is_found && candidate.all().zip(prospects).any(shares);
        let never = match prospects {
            [own] => self.never(candidate, own, is_found, reserves),
            _ if is_found => None,
            _ => self.never_together(candidate, prospects, reserves),
        };
        // A job that cannot end by its deadline delays no other job.
        let late = || shorter_time::too_late(candidate).filter(|_| reserves && !is_found);
        let never = never.or_else(|| Some((Reason::Resources, late()?)));
        if let Some((reason, detail)) = never {
            return self.wait(candidate, reason, detail, None);
        }
        let why = match self.deep {
            true => self.why_not(candidate, prospects, behind),
            false => (Reason::None, String::new()),
        };
        if is_unreserved {
            return self.wait(candidate, why.0, why.1, None);
        }
        // Most jobs have one component.
        let planned: SmallVec<[Planned; 1]> = plan(self).into_iter().collect();
        let made = planned.first().map(|planned| &*planned.made);
        let start = made.map(|made| made.start);
        // A job that is planned for the earliest time at which it may begin waits for that time.
        let waits_for_itself = start.is_some() && start == self.begin(candidate.attempt.job);
        let (reason, detail) = if waits_for_itself { (Reason::BeginTime, String::new()) } else { why };
        for prospect in all().filter(|prospect| !self.is_barred(prospect.partition)).collect::<Vec<_>>() {
            self.sit_behind(candidate, prospect, made);
        }
        self.wait(candidate, reason, detail, planned);
    }

    /// Makes a waiting job with this later start, if any, the head of the prospect's head group if it has
    /// none.
    fn sit_behind(&mut self, candidate: &Queued, prospect: &Prospect, made: Option<&Reservation>) {
        // A job that does not fit into the rest of a reservation keeps no other job out of it.
        if made.is_none() && self.space.realms().window(prospect.realm).is_some() {
            return;
        }
        let seat = self.seat_of(prospect);
        let is_there = |made: &Reservation| {
            *made.partition == **self.inventory.partitions[prospect.partition].partition.name()
                && self.realm_of(made) == Some(prospect.realm)
        };
        if !candidate.rest.is_empty() || made.is_none_or(is_there) || self.is_strict() {
            self.sit(candidate.attempt.job, seat);
        }
        self.raise_floor(seat, made.map(|made| made.start));
    }

    /// The reason why a job of one component fits at no time; `None` if it does.
    fn never(
        &mut self,
        candidate: &Queued,
        own: &Prospects,
        is_found: bool,
        reserves: bool,
    ) -> Option<(Reason, String)> {
        let fits = if reserves { is_found } else { !self.deep || !self.lacks_nodes(candidate, own) };
        if fits {
            return None;
        }
        if let Some(barring) = own.iter().find_map(|prospect| prospect.barred_by.first()) {
            return Some(kept_out(barring));
        }
        if let Some((reason, detail)) = prospect::never(&self.inventory, own) {
            return self.limit(candidate, reason).or(Some((reason, detail)));
        }
        Some((Reason::Licenses, self.never_licensed(candidate, own)?))
    }

    /// The limit of the partition or the cluster that forbids a job for good, in the words of a refusal.
    pub(super) fn limit(&mut self, candidate: &Candidate, reason: Reason) -> Option<(Reason, String)> {
        if !self.deep || reason != Reason::BadConstraints || self.explained >= EXPLAINED {
            return None;
        }
        self.explained += 1;
        feasible::limit(&self.inventory, &candidate.spec)
    }

    /// True if a job must end with its reservation but uses what others wait for: nodes outside, or licenses,
    /// which belong to all.
    fn shares_in_window(&self, candidate: &Candidate, prospect: &Prospect) -> bool {
        let realms = self.space.realms();
        let shares = realms.bounds(prospect.realm).is_none() || !wanted(&candidate.spec).is_empty();
        shares && realms.window(prospect.realm).is_some()
    }

    /// Makes a job the head of a head group that has none.
    pub(super) fn sit(&mut self, job: JobId, seat: usize) {
        if !self.is_taken(seat) {
            self.heads[seat] = Some(job);
        }
    }

    /// The reason why a job waits: its reservation, another reservation, a job before it, or missing
    /// resources.
    fn why_not(
        &mut self,
        candidate: &Queued,
        prospects: &[Prospects],
        behind: Option<JobId>,
    ) -> (Reason, String) {
        if let Some(detail) = self.not_begun(prospects) {
            return (Reason::Reservation, detail);
        }
        let lacks = self.lacks_license(candidate, prospects);
        if let ([own], None) = (prospects, &lacks)
            && self.explained < EXPLAINED
            && let Some(prospect) = own.iter().find(|prospect| prospect.realm == OPEN)
            && let Some(other) = self.kept_out_by(candidate, prospect)
        {
            self.explained += 1;
            return kept_out(&other);
        }
        let reason = match behind {
            Some(_) => Reason::Priority,
            None if lacks.is_some() => Reason::Licenses,
            None => Reason::Resources,
        };
        let detail = match prospects {
            [own] => {
                self.explained += 1;
                let tells = self.explained <= EXPLAINED;
                if tells { self.missing(candidate, own, behind, true) } else { String::new() }
            }
            _ => lacks.unwrap_or_else(|| self.missing_together(candidate, prospects, behind)),
        };
        (reason, detail)
    }

    /// A sentence about the license that keeps a job waiting now; `None` if it has all.
    pub(super) fn lacks_license(&self, candidate: &Candidate, prospects: &[Prospects]) -> Option<String> {
        // Each component counts in the realm that it prefers.
        let asked = asked(candidate, prospects.iter().map(|of| &of[0]));
        self.space.lacks_license(&asked, longest(candidate))
    }

    /// A sentence about a license that is never free in sufficient number for a job.
    fn never_licensed(&self, candidate: &Candidate, own: &Prospects) -> Option<String> {
        let asked = |prospect: &Prospect| [(prospect.realm, wanted(&candidate.spec))];
        let lacks = |prospect: &Prospect| {
            self.space.licenses().earliest(&asked(prospect), self.now, candidate.shortest).is_none()
        };
        own.iter().all(lacks).then(|| self.lacks_license(candidate, std::slice::from_ref(own))).flatten()
    }

    /// The reservation that alone keeps a job from starting outside it.
    fn kept_out_by(&mut self, candidate: &Candidate, prospect: &Prospect) -> Option<Arc<Site>> {
        if prospect.barred_by.is_empty() {
            return self.space.kept_out_by(&prospect.query(candidate, self.now + 1), &[]);
        }
        let (choice, need, unshut) = (prospect.choice, prospect.need, (self.space.realms().unshut(), None));
        let sets = &mut self.eligible_sets;
        let free = sets.prospect(&self.inventory, candidate, choice, need, unshut, self.now).ok()?;
        self.space.kept_out_by(&free.query(candidate, self.now + 1), &prospect.barred_by)
    }

    /// A sentence about the reservations that have not begun, for a job that can run in no other.
    fn not_begun(&self, prospects: &[Prospects]) -> Option<String> {
        let realms = self.space.realms();
        let mut names: BTreeSet<&str> = BTreeSet::new();
        for prospect in prospects.iter().flat_map(|of| of.iter()) {
            names.insert(&realms.window(prospect.realm).filter(|own| own.start > self.now)?.name);
        }
        let names: Vec<&str> = names.into_iter().collect();
        Some(format!("reservation {} has not begun", names.join(", ")))
    }

    /// Notes that a job waits with all its components, and the promise to the head of the queue.
    pub(super) fn wait(
        &mut self,
        candidate: &Queued,
        reason: Reason,
        detail: impl Into<Detail>,
        planned: impl IntoIterator<Item = Planned>,
    ) {
        let job = candidate.attempt.job;
        let (priority, mut planned) = (candidate.priority, planned.into_iter());
        let detail: Detail = detail.into();
        let mut next = |component: &Candidate, detail: Detail| {
            let said = |Planned { made, said }| (Some(made), said);
            let (made, said) = planned.next().map_or((None, Waiting::of(component.attempt.job)), said);
            (made, Waiting { priority, reason, detail, ..said })
        };
        let details = vec![detail.clone(); candidate.rest.len()];
        let (made, waiting) = next(candidate, detail);
        let open = &self.heads[..self.inventory.partitions.len()];
        let is_own = made.as_ref().is_some_and(|made| made.within.is_some());
        let is_head = !is_own && !self.wavers && open.iter().flatten().all(|head| *head == job);
        // Outside a reservation that it did not ask for, the job would run longer.
        let asks = candidate.spec.reservations().next().is_some();
        self.wavers |= is_own && !asks;
        let overdue = queue::is_overdue(&self.inventory.policy.scheduler, candidate.eligible, self.now);
        // Where every job has a reservation, the next deep pass promises the starts that a quick pass adds.
        let may = self.deep || self.backfill != Backfill::Conservative;
        // An array at its limit is no head.
        let may = may && reason != Reason::JobArrayTaskLimit;
        let first = may && !candidate.promised && candidate.waits == 0 && self.plan.promise.is_none();
        if is_head && (self.firm || overdue) && first {
            // A start that depends on an overdue job cannot be promised.
            self.plan.promise = waiting.start.filter(|start| *start > self.now).map(|start| (job, start));
        }
        let rest = candidate.rest.iter().zip(details).map(|(component, detail)| next(component, detail));
        for (made, waiting) in std::iter::once((made, waiting)).chain(rest) {
            made.into_iter().for_each(|made| self.remember(made));
            self.plan.waiting.extend((self.deep && !candidate.told).then_some(waiting));
        }
    }

    /// True if a job would not fit even on an idle cluster with the nodes that are up; checked for the first
    /// jobs only.
    pub(super) fn lacks_nodes(&mut self, candidate: &Candidate, prospects: &[Prospect]) -> bool {
        self.explained < EXPLAINED
            && !prospects.iter().any(|prospect| self.fits_up(&candidate.spec, prospect))
    }

    /// True if a job would fit if every node that is up were idle. A job that is no larger than a fitting one
    /// fits, too.
    fn fits_up(&mut self, spec: &JobSpec, prospect: &Prospect) -> bool {
        let request = prospect.request();
        let size = Size { nodes: request.min_nodes(), slots: request.min_slots(), run_time: 0 };
        let is_lasting = prospect.follows_from(&self.inventory, spec);
        let (stages, sets) = (prospect.stages.iter(), &prospect.eligible_sets);
        for (stage, eligible) in stages.flat_map(|stage| sets.iter().map(move |eligible| (stage, eligible))) {
            let family = Family::of(eligible.outline, stage.ask()).filter(|_| request.sizes.is_none());
            let smaller = self.space.findings().needs.smaller();
            let is_known = match &family {
                Some(family) => self.fitting.iter().any(|(known, need, larger)| {
                    size.within(larger) && known == family && smaller.than(*need).contains(&prospect.need)
                }),
                None => is_lasting && self.inventory.fit_up.find(prospect.partition, spec).is_some(),
            };
            if is_known {
                return true;
            }
            if explain::fits_up(&self.inventory, eligible, stage) {
                match family {
                    Some(family) => self.fitting.push((family, prospect.need, size)),
                    None if is_lasting => self.inventory.fit_up.note(prospect.partition, spec, ()),
                    None => {}
                }
                return true;
            }
        }
        false
    }

    /// A sentence about what is missing now; with `aside` also about idle nodes that do not count, which only
    /// deep passes know.
    pub(super) fn missing(
        &mut self,
        candidate: &Queued,
        own: &Prospects,
        behind: Option<JobId>,
        aside: bool,
    ) -> String {
        let Some(prospect) = own.first() else { return String::new() };
        let query = prospect.query(candidate, self.now + 1);
        let eligible = prospect.plain();
        match (self.space.misfit(&query), behind) {
            (Some((misfit, free)), _) => {
                let said = explain::waiting(&eligible.fabric, prospect.request(), &misfit, free);
                let aside = aside.then(|| explain::aside(&self.space.aside(&self.inventory, &query)));
                said + &aside.unwrap_or_default()
            }
            (None, behind) => {
                let first = behind.map(|head| format!("job {head} comes first"));
                self.lacks_license(candidate, std::slice::from_ref(own)).or(first).unwrap_or_default()
            }
        }
    }
}
