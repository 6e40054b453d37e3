//! Accounts and QOS with limits for the jobs of the simulation.

use std::sync::Arc;

use spur_core::controller::Command;
use spur_core::model::accounts::ask::{self, Ask, Word};
use spur_core::model::caller::{Caller, Owner};
use spur_core::model::config::{AccountingEnforce, Policy};
use spur_core::model::job::{Extra, MemoryNeed, Shape};
use spur_core::model::node::NodeGres;
use spur_core::text::gres::GresList;
use spur_core::text::time::Seconds;

use super::World;

/// The accounts that jobs name; both are below `sci`.
const ACCOUNTS: [&str; 2] = ["bio", "chem"];

/// The largest number of CPUs of one job, all components together: three of two nodes each.
const MOST_CPUS: u64 = 24;

/// Returns the devices of a node in clusters whose jobs request devices, memory and licences: GPUs of two
/// types.
pub(super) fn gpus() -> Vec<NodeGres> {
    let gpu = |kind: &str| NodeGres { name: "gpu".into(), kind: kind.into(), count: 1 };
    vec![gpu("a100"), gpu("h100")]
}

/// Enforces limits, in some clusters also that a job can finish within its budgets. Usage decays fast, so
/// that exhausted budgets have room again. Some partitions have billing weights.
pub(super) fn enforce(policy: &mut Policy, seed: u64) {
    let safe = if seed.is_multiple_of(2) { AccountingEnforce::Safe } else { AccountingEnforce::Limits };
    policy.jobs.accounting_enforce = vec![safe];
    policy.partitions[0].qos = Some("part".into());
    policy.licenses = vec![("lic".into(), 3)];
    policy.scheduler.priority_calc_period = Seconds(60);
    policy.scheduler.priority_decay_half_life = Seconds(120);
    if seed % 5 < 2 {
        for partition in &mut policy.partitions {
            partition.tres_billing_weights =
                "CPU=0.5,Mem=1G,GRES/gpu=1.25,License/lic=0.25".parse().expect("weights");
        }
    }
}

impl World {
    /// A random account for a job.
    pub(super) fn account(&mut self) -> Arc<str> {
        ACCOUNTS[usize::from(self.chance.percent(50))].into()
    }

    /// True if jobs request devices, memory and licences besides CPUs.
    fn asks_for_all(&self) -> bool {
        self.limited && self.real_planner
    }

    /// Returns a QOS for some jobs, whose limits precede those of the partition's QOS.
    pub(super) fn qos_of_limits(&mut self) -> Option<Arc<str>> {
        let asks = self.limited && self.policy.qos.is_empty() && self.chance.percent(30);
        asks.then(|| "over".into())
    }

    /// Adds a licence to the extra request of some jobs.
    pub(super) fn with_licenses(&mut self, extra: Option<Box<Extra>>) -> Option<Box<Extra>> {
        if !self.asks_for_all() || self.chance.percent(70) {
            return extra;
        }
        let mut extra = extra.unwrap_or_default();
        extra.licenses = vec![("lic".into(), 1)];
        Some(extra)
    }

    /// Adds memory and GPUs to some requests.
    pub(super) fn with_memory_and_gpus(&mut self, shape: Shape) -> Shape {
        if !self.asks_for_all() {
            return shape;
        }
        let memory = self.chance.percent(50).then(|| MemoryNeed::PerNode(self.chance.between(50, 300)));
        let gres = match self.chance.below(4) {
            0 => "gpu:1",
            1 => "gpu:a100:1",
            _ => "",
        };
        let gres: GresList = gres.parse().expect("a list");
        Shape { memory, gres: gres.0, ..shape }
    }

    /// Adds the missing accounts and QOS with their limits. Each job alone is within all limits, so that
    /// each can run in the end.
    pub(super) fn plant(&mut self) {
        let tree = self.controller.as_ref().map(|running| Arc::clone(running.cluster.accounts()));
        if tree.is_none_or(|tree| tree.account("chem").is_some()) {
            return;
        }
        let most = if self.het { MOST_CPUS } else { 8 };
        let jobs = if self.het { 3 } else { 1 };
        // Two nodes with all of their GPUs are billed as 2 × 4 CPUs, or less by weights.
        let mut any = |least: u64, more: u64| self.chance.between(least, least + more);
        let qos = [
            format!("GrpTRES=cpu={},billing={},license/lic={}", any(most, 8), any(most, 8), any(jobs, 2)),
            format!("MaxJobsPU={}", any(jobs, 5)),
            format!("MaxJobsAccruePU={}", any(1, 3)),
            format!("MaxTRESPA=node={}", any(2 * jobs, 4)),
            format!("MaxTRESPU=gres/gpu:a100={}", any(2 * jobs, 4)),
            format!("MaxSubmitPU={}", any(40, 60)),
            format!("MaxTRESRunMinsPA=billing={}", any(most * 2, 20)),
            format!("MaxWall={}", any(2, 2)),
            "MinTRES=cpu=1".to_owned(),
        ];
        let over = [
            format!("GrpTRES=cpu={}", any(most, 4)),
            format!("MaxJobsPA={}", any(jobs, 3)),
            format!("MaxSubmitPA={}", any(40, 20)),
            format!("MaxTRESMins=cpu={}", any(16, 4)),
            "Flags=OverPartQOS".to_owned(),
        ];
        let above = [
            format!("GrpTRES=cpu={},node={},mem={}M", any(most, 6), any(2 * jobs, 4), any(600 * jobs, 600)),
            format!("GrpWall={}", any(10, 20)),
            format!("GrpJobsAccrue={}", any(2, 6)),
            format!("MaxTRESPN=cpu={},gres/gpu=2", any(4, 2)),
        ];
        let account = [
            format!("GrpJobs={}", any(jobs, 3)),
            format!("GrpTRES=gres/gpu={},billing={}", any(4 * jobs, 4), any(most, 8)),
            format!("MaxJobs={}", any(jobs, 2)),
            format!("MaxJobsAccrue={}", any(1, 3)),
            format!("MaxTRES=cpu={},mem=600M", any(8, 4)),
            format!("GrpTRESRunMins=cpu={}", any(most * 2, 20)),
            format!("GrpTRESMins=cpu={},billing={}", any(most * 4, 40), any(most * 4, 60)),
            format!("GrpSubmit={}", any(30, 20)),
            format!("MaxSubmit={}", any(30, 20)),
        ];
        let words = |texts: &[String]| texts.iter().map(|text| Word::read(text)).collect::<Vec<_>>();
        let in_sci = [&account[..], &["parent=sci".to_owned()]].concat();
        let user: Vec<String> = ACCOUNTS.iter().map(|name| format!("account={name}")).collect();
        let asks = [
            Ask::AddQos(vec!["part".into()], ask::qos_set(&words(&qos)).expect("limits")),
            Ask::AddQos(vec!["over".into()], ask::qos_set(&words(&over)).expect("limits")),
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
