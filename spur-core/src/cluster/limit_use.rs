//! The limits that apply to a user or an account, with the amounts that are used of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Cluster;
use super::holder::Holder;
use super::limits::{Rule, Rules, Running, Started, Sums};
use crate::model::accounts::usage::Amount;
use crate::model::accounts::{Association, Charged, LimitKind, ROOT};
use crate::model::config::AccountingEnforce;
use crate::text::time::Time;

/// The account and the QOS of jobs; `None` for jobs without a QOS.
type Case = (Arc<str>, Option<Arc<str>>);

/// One limit, with the amount that is used of it.
#[derive(Clone, Debug)]
pub struct LimitUse {
    /// The limit.
    pub rule: Arc<Rule>,
    /// The amount that counts against the limit now; `None` for a limit of one job, and if limits are not
    /// enforced.
    pub used: Option<u64>,
    /// The accounts and QOS of the jobs to which the limit applies; empty for all that the user may submit.
    pub cases: BTreeSet<Case>,
}

impl Cluster {
    /// The limits that apply to the jobs of a user, each once, in the order in which starts are judged.
    #[must_use]
    pub fn limits_of_user(&self, user: &Arc<str>, now: Time) -> Vec<LimitUse> {
        let own: Vec<&Arc<Association>> = self.accounts().of_user(user).collect();
        let outside = self.accounts().of_account(ROOT).filter(|_| own.is_empty());
        self.limits_of(&own.into_iter().chain(outside).collect::<Vec<_>>(), user, now)
    }

    /// The limits of an account, of those above and of the account in QOS. Limits of single users are left
    /// out.
    #[must_use]
    pub fn limits_of_account(&self, account: &str, now: Time) -> Vec<LimitUse> {
        let own: Vec<&Arc<Association>> = self.accounts().of_account(account).into_iter().collect();
        let mut found = self.limits_of(&own, &Arc::from(""), now);
        found.retain(|limit| {
            let counts_users = matches!(
                limit.rule.kind,
                LimitKind::MaxJobs | LimitKind::MaxSubmitJobs | LimitKind::MaxJobsAccrue
            );
            !counts_users && !matches!(limit.rule.holder, Holder::QosUser { .. })
        });
        found
    }

    fn limits_of(&self, associations: &[&Arc<Association>], user: &Arc<str>, now: Time) -> Vec<LimitUse> {
        let mut found: Vec<LimitUse> = Vec::new();
        let mut all: BTreeSet<Case> = BTreeSet::new();
        for association in associations {
            let of_partitions = self.partition_qos(association);
            let names = self.accounts().qos_of(association).into_iter().map(Some);
            let none = names.len() == 0;
            for qos in names.chain(none.then_some(None)) {
                let number = |name: &Arc<str>| self.accounts().qos_named(name).map(|qos| qos.id);
                let case = (Arc::clone(&association.account), qos.clone());
                all.insert(case.clone());
                for partition_qos in &of_partitions {
                    let charged = Charged {
                        association: Some(association.id),
                        qos: qos.as_ref().and_then(number),
                        partition_qos: *partition_qos,
                    };
                    self.add_rules(charged, user, &case, &mut found);
                }
            }
        }
        for limit in &mut found {
            limit.used = self.used_of(&limit.rule, now);
            if limit.cases == all {
                limit.cases.clear();
            }
        }
        found
    }

    /// The QOS of the partitions that an association is for, each once; `None` stands for partitions without
    /// one.
    fn partition_qos(&self, association: &Association) -> BTreeSet<Option<u32>> {
        let is_for = |name: &Arc<str>| association.partition.as_ref().is_none_or(|own| own == name);
        let partitions = self.partitions().iter().filter(|partition| is_for(partition.name()));
        let qos = partitions.map(|partition| partition.config.qos.as_ref());
        let numbers = qos.map(|name| Some(self.accounts().qos_named(name?)?.id));
        numbers.collect()
    }

    fn add_rules(&self, charged: Charged, user: &Arc<str>, case: &Case, found: &mut Vec<LimitUse>) {
        let rules = Rules::new(self, charged, user);
        let of_submissions = rules.submit.into_iter().filter(|rule| rule.kind.counts_submitted());
        for rule in rules.start.into_iter().chain(of_submissions).chain(rules.accrual) {
            match found.iter_mut().find(|limit| limit.rule == rule) {
                Some(known) => drop(known.cases.insert(case.clone())),
                None => {
                    let cases = BTreeSet::from([case.clone()]);
                    found.push(LimitUse { rule, used: None, cases });
                }
            }
        }
    }

    /// The amount that counts against a limit; `None` for a limit of one job, and if limits are not enforced.
    fn used_of(&self, rule: &Rule, now: Time) -> Option<u64> {
        if !self.enforces(AccountingEnforce::Limits) {
            return None;
        }
        let started = Started::default();
        let (counters, usage) = (&**self.counters(), self.usage());
        let sums = Running { counters, usage, started: &started, except: &[], now };
        let minutes = |amount: Amount| Amount(amount.0.div_ceil(60)).units_up();
        match rule.kind {
            LimitKind::GrpWall => Some(minutes(sums.past(rule))),
            LimitKind::GrpTresMins => {
                let safe = self.enforces(AccountingEnforce::Safe);
                let to_come = if safe { sums.promised(rule) } else { Amount::ZERO };
                Some(minutes(sums.past(rule).plus(to_come)))
            }
            LimitKind::GrpTresRunMins | LimitKind::MaxTresRunMins | LimitKind::MaxTresRunMinsPerAccount => {
                Some(minutes(sums.promised(rule)))
            }
            LimitKind::GrpTres | LimitKind::MaxTresPerUser | LimitKind::MaxTresPerAccount => {
                Some(sums.held(rule).rounded_up().count())
            }
            LimitKind::GrpJobs
            | LimitKind::MaxJobs
            | LimitKind::MaxJobsPerUser
            | LimitKind::MaxJobsPerAccount => Some(sums.jobs(rule)),
            kind if kind.counts_accruing() => {
                Some(counters.tally(&rule.holder).map_or(0, |tally| tally.accruing))
            }
            kind if kind.counts_submitted() => Some(sums.submitted(rule)),
            _ => None,
        }
    }
}
