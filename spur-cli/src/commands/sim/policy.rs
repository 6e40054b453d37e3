//! Commands on the policy tree of a simulation, run as root: `sacctmgr`, `sshare` and `sprio`.

use std::sync::Arc;

use spur_core::cluster::Cluster;
use spur_core::model::caller::{Caller, Owner};
use spur_core::sim::{Watch, World};
use spur_proto::convert::{accounts, config, policy_tree, priority};
use spur_proto::v1::accounts_row::Row as Record;
use spur_proto::v1::{ChangeAccountsRequest, ListAccountsRequest, PriorityFactors};

use super::shown::{numbered, show};
use crate::commands::query::Asked;
use crate::commands::sacctmgr::offline::{self, Tree};
use crate::commands::{sprio, sshare};
use crate::format::fields::priority::Weights;

/// The policy tree of a simulation.
struct OfWorld<'a, W>(&'a mut World<W>);

impl<W: Watch> Tree for OfWorld<'_, W> {
    fn cluster(&self) -> String {
        self.0.cluster().policy().cluster_name.to_string()
    }

    fn list(&self, request: &ListAccountsRequest) -> Result<Vec<Record>, String> {
        policy_tree::rows(self.0.cluster(), &root(), self.0.now(), request)
    }

    fn change(&mut self, request: &ChangeAccountsRequest) -> Result<Vec<String>, String> {
        let ask = accounts::read(&self.cluster(), request)?;
        self.0.change_accounts(ask).map_err(|reject| reject.to_string())
    }
}

fn root() -> Caller {
    let owner = Owner { uid: 0, gid: 0, user: "root".into(), group: "root".into() };
    Caller::new(Arc::new(owner), Arc::default(), true)
}

/// Runs `sacctmgr` on the policy tree. Returns its output.
///
/// # Errors
/// Fails with the error of `sacctmgr`.
pub(super) fn sacctmgr<W: Watch>(world: &mut World<W>, words: &[String]) -> Result<String, String> {
    offline::run(&mut OfWorld(world), words).map_err(|error| error.to_string())
}

/// Runs `sshare` on the policy tree. Returns its output.
///
/// # Errors
/// Options that it does not have.
pub(super) fn sshare<W: Watch>(world: &mut World<W>, words: &[String]) -> Result<String, String> {
    let now = show(world);
    let tree = OfWorld(world);
    let list = |request: &ListAccountsRequest| tree.list(request);
    sshare::offline(words, &tree.cluster(), "root", &now, list).map_err(|error| error.to_string())
}

/// Runs `sprio` on the simulated jobs. Returns its output.
///
/// # Errors
/// Options that it does not have.
pub(super) fn sprio<W: Watch>(world: &World<W>, words: &[String]) -> Result<String, String> {
    let told = |error: anyhow::Error| error.to_string();
    let query = match sprio::Query::read(&numbered(world, words), &|_| None).map_err(told)? {
        Asked::Show(text) => return Ok(text),
        Asked::Run(query) => query,
    };
    let cluster: &Cluster = world.cluster();
    let waiting = cluster.jobs().pending();
    let factors = waiting.flat_map(|job| priority::render_all(cluster, job, world.now()));
    let factors: Vec<PriorityFactors> = factors.filter(|job| query.admits(job)).collect();
    let weights = Weights::of(&config::settings(cluster.policy()));
    query.text(factors, weights, &show(world)).map_err(told)
}
