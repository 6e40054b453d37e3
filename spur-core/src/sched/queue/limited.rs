//! The limits of associations and QOS that apply to jobs in the queue, shared by all jobs that count for the
//! same entities.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::cluster::limits::Rules;
use crate::cluster::tres::{Amounts, Tariff};
use crate::cluster::{Cluster, Holder};
use crate::model::accounts::Charged;
use crate::model::config::AccountingEnforce;
use crate::model::job::JobSpec;
use crate::sched::inventory::Inventory;

use super::Choices;

/// Number of recent, different jobs whose limits are kept, so that the next jobs like them share these.
const ALIKE: usize = 16;

/// The limits of a job in one of its partitions, and the amounts that the job counts for them.
#[derive(Clone, Debug)]
pub(crate) struct ChoiceLimits {
    /// The limits, shared by jobs that count for the same entities.
    pub(crate) rules: Arc<Rules>,
    /// The least resources that the job holds there.
    pub(crate) least: Amounts,
    /// For each limit of a start, the least amount that the job counts.
    pub(crate) wants: Box<[u128]>,
}

/// The limits that apply to the jobs of a queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueueLimits {
    rules: BTreeMap<(Charged, Arc<str>), Arc<Rules>>,
    /// The associations and QOS whose past usage is limited.
    budgets: BTreeSet<Holder>,
    /// The limits of the last jobs, the newest first.
    alike: VecDeque<(Choices, Arc<[ChoiceLimits]>)>,
}

impl QueueLimits {
    /// The associations and QOS whose past usage limits some job of the queue.
    pub(crate) fn budgets(&self) -> &BTreeSet<Holder> {
        &self.budgets
    }

    /// The limits of a job in its partitions; `None` where limits are not enforced.
    pub(super) fn of(
        &mut self,
        cluster: &Cluster,
        inventory: &Inventory,
        spec: &JobSpec,
        choices: &Choices,
    ) -> Option<Arc<[ChoiceLimits]>> {
        if !cluster.enforces(AccountingEnforce::Limits) {
            return None;
        }
        let partitions = || choices.iter().map(|(index, _)| &inventory.partitions[*index].partition);
        let rules: Vec<Arc<Rules>> = partitions()
            .map(|partition| self.rules(cluster, cluster.charged(spec, partition), &spec.owner.user))
            .collect();
        // Jobs with the same choices have the same amounts, except for licences.
        let shares = spec.extra.as_ref().is_none_or(|extra| extra.licenses.is_empty());
        let is_like = |(of, limits): &(Choices, Arc<[ChoiceLimits]>)| {
            Arc::ptr_eq(of, choices)
                && limits.iter().zip(&rules).all(|(one, new)| Arc::ptr_eq(&one.rules, new))
        };
        if let Some((_, known)) = self.alike.iter().find(|known| shares && is_like(known)) {
            return Some(Arc::clone(known));
        }
        let scheduler = &inventory.policy.scheduler;
        let each = choices.iter().zip(partitions()).zip(rules).map(|(((_, request), partition), rules)| {
            let least = request.least(spec, Tariff::new(scheduler, &partition.config));
            let wants = rules.start.iter().map(|rule| least.all.counted(rule.tres.as_ref())).collect();
            ChoiceLimits { least, wants, rules }
        });
        let limits: Arc<[ChoiceLimits]> = each.collect();
        if shares {
            self.alike.truncate(ALIKE - 1);
            self.alike.push_front((Arc::clone(choices), Arc::clone(&limits)));
        }
        Some(limits)
    }

    fn rules(&mut self, cluster: &Cluster, charged: Charged, user: &Arc<str>) -> Arc<Rules> {
        if let Some(known) = self.rules.get(&(charged, Arc::clone(user))) {
            return Arc::clone(known);
        }
        let rules = Arc::new(Rules::new(cluster, charged, user));
        let budgets = rules.start.iter().filter(|rule| rule.kind.is_budget());
        self.budgets.extend(budgets.map(|rule| rule.holder.clone()));
        self.rules.insert((charged, Arc::clone(user)), Arc::clone(&rules));
        rules
    }
}
