//! The waiting and running jobs that a change of the policy tree would touch.

use std::collections::BTreeMap;

use spur_core::model::accounts::ROOT;
use spur_proto::v1::{Job, JobFilter};

use super::tree::{Key, PolicyTree, parent};
use crate::commands::query;
use crate::session::Session;

/// Number of jobs that are named for one change; of others only the number is printed.
const NAMED: usize = 20;

/// The waiting and running jobs, each with the records that it depends on.
pub(super) struct Touched {
    jobs: Vec<Place>,
}

/// A job's place in the tree.
struct Place {
    id: u32,
    is_running: bool,
    user: String,
    account: String,
    /// The accounts from the job's own up to one below `root`, in the present and in the wanted tree.
    accounts: Vec<String>,
    partitions: Vec<String>,
    qos: String,
}

/// The jobs that one change would touch.
#[derive(Default)]
pub(super) struct Jobs {
    pub(super) pending: Vec<u32>,
    pub(super) running: Vec<u32>,
}

impl Touched {
    /// Reads the jobs of the controller.
    ///
    /// # Errors
    /// No answer.
    pub(super) async fn of(
        session: &mut Session,
        present: &PolicyTree,
        wanted: &PolicyTree,
    ) -> anyhow::Result<Touched> {
        let states = ["PENDING", "RUNNING", "SUSPENDED"].map(str::to_owned).to_vec();
        let filter = JobFilter { states, ..JobFilter::default() };
        let jobs = query::jobs(session.connection()?, filter).await?;
        let above = [present, wanted].map(parents);
        Ok(Touched { jobs: jobs.into_iter().map(|job| place(job, present, &above)).collect() })
    }

    /// Returns the jobs that depend on a record.
    pub(super) fn by(&self, key: &Key) -> Jobs {
        let mut jobs = Jobs::default();
        for job in self.jobs.iter().filter(|job| job.depends_on(key)) {
            if job.is_running { jobs.running.push(job.id) } else { jobs.pending.push(job.id) }
        }
        jobs
    }
}

impl Place {
    fn depends_on(&self, key: &Key) -> bool {
        match key {
            Key::Cluster => true,
            Key::Qos(name) => self.qos == *name,
            Key::Account(name) => self.accounts.contains(name),
            // Levels and default accounts do not concern jobs that were submitted.
            Key::User(_) => false,
            Key::Association { account, user, partition } => {
                self.user == *user
                    && self.account == *account
                    && (partition.is_empty() || self.partitions.contains(partition))
            }
        }
    }
}

/// Returns the account above each account.
fn parents(tree: &PolicyTree) -> BTreeMap<String, String> {
    let accounts = tree.0.iter().filter_map(|(key, settings)| match key {
        Key::Account(name) => Some((name.clone(), parent(settings))),
        _ => None,
    });
    accounts.collect()
}

fn place(job: Job, present: &PolicyTree, above: &[BTreeMap<String, String>; 2]) -> Place {
    let account = match job.account.is_empty() {
        true => {
            let user = present.0.get(&Key::User(job.user.clone())).into_iter().flatten();
            let mut default =
                user.filter(|setting| setting.key == "DefaultAccount").map(|own| own.value.text());
            default.next_back().unwrap_or_else(|| ROOT.to_owned())
        }
        false => job.account.clone(),
    };
    let accounts = above.iter().flat_map(|above| {
        let mut accounts = Vec::new();
        let mut next = Some(&account);
        while let Some(name) = next.filter(|name| *name != ROOT && !accounts.contains(*name)) {
            accounts.push(name.clone());
            next = above.get(name);
        }
        accounts
    });
    let accounts = accounts.collect();
    Place {
        id: job.id,
        is_running: job.state != "PENDING",
        user: job.user,
        account,
        accounts,
        partitions: job.partition.split(',').map(str::to_owned).collect(),
        qos: job.qos,
    }
}

impl std::fmt::Display for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (what, jobs) in [("waiting", &self.pending), ("running", &self.running)] {
            if jobs.is_empty() {
                continue;
            }
            let named: Vec<String> = jobs.iter().take(NAMED).map(u32::to_string).collect();
            let more = jobs.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            write!(f, "\n    {what} jobs: {}{more}", named.join(" "))?;
        }
        Ok(())
    }
}
