//! Accounts and QOS with limits, in which jobs of the simulation count.

use std::sync::Arc;

use spur_core::controller::Command;
use spur_core::model::accounts::ask::{self, Ask, Word};
use spur_core::model::caller::{Caller, Owner};
use spur_core::model::config::{AccountingEnforce, Policy};

use super::World;

/// The accounts that jobs name; both are below `sci`.
const ACCOUNTS: [&str; 2] = ["bio", "chem"];

/// The most CPUs of one job, all components together: three of two nodes each.
const MOST_CPUS: u64 = 24;

/// Limits are enforced, and of some clusters that a job can finish within budgets.
pub(super) fn enforce(policy: &mut Policy, seed: u64) {
    let safe = if seed.is_multiple_of(2) { AccountingEnforce::Safe } else { AccountingEnforce::Limits };
    policy.jobs.accounting_enforce = vec![safe];
    policy.partitions[0].qos = Some("part".into());
}

impl World {
    /// The account of a job.
    pub(super) fn account(&mut self) -> Arc<str> {
        ACCOUNTS[usize::from(self.chance.percent(50))].into()
    }

    /// Adds the accounts, the QOS and their limits, where they are not there yet. Every job by itself is within all
    /// limits, so that each can run in the end.
    pub(super) fn plant(&mut self) {
        let tree = self.controller.as_ref().map(|running| Arc::clone(running.cluster.accounts()));
        if tree.is_none_or(|tree| tree.account("chem").is_some()) {
            return;
        }
        let most = if self.het { MOST_CPUS } else { 8 };
        let jobs = if self.het { 3 } else { 1 };
        let mut any = |least: u64, more: u64| self.chance.between(least, least + more);
        let qos = [
            format!("GrpTRES=cpu={}", any(most, 8)),
            format!("MaxJobsPU={}", any(jobs, 5)),
            format!("MaxTRESPA=node={}", any(2 * jobs, 4)),
            format!("MaxSubmitPU={}", any(40, 60)),
        ];
        let above = [format!("GrpTRES=cpu={},node={}", any(most, 6), any(2 * jobs, 4))];
        let account = [
            format!("GrpJobs={}", any(jobs, 3)),
            format!("MaxJobs={}", any(jobs, 2)),
            format!("GrpTRESRunMins=cpu={}", any(most * 2, 20)),
            format!("GrpSubmit={}", any(30, 20)),
        ];
        let words = |texts: &[String]| texts.iter().map(|text| Word::read(text)).collect::<Vec<_>>();
        let in_sci = [&account[..], &["parent=sci".to_owned()]].concat();
        let user: Vec<String> = ACCOUNTS.iter().map(|name| format!("account={name}")).collect();
        let asks = [
            Ask::AddQos(vec!["part".into()], ask::qos_set(&words(&qos)).expect("limits")),
            Ask::AddAccounts(vec!["sci".into()], ask::account_set(&words(&above)).expect("limits")),
            Ask::AddAccounts(vec!["bio".into()], ask::account_set(&words(&in_sci)).expect("limits")),
            Ask::AddAccounts(vec!["chem".into()], ask::account_set(&words(&in_sci)).expect("limits")),
        ];
        let users = user.iter().map(|account| {
            let words = words(std::slice::from_ref(account));
            Ask::AddUsers(vec![super::user().owner.user.clone()], ask::user_add(&words).expect("an account"))
        });
        for ask in asks.into_iter().chain(users) {
            let command = Command::ChangeAccounts { ask: Box::new(ask), shown: None };
            self.command(root(), command, None);
        }
    }
}

fn root() -> Caller {
    let owner = Owner { uid: 0, gid: 0, user: "root".into(), group: "root".into() };
    Caller::new(Arc::new(owner), Arc::default(), true)
}
