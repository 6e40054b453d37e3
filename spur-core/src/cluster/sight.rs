//! The jobs, accounts, users and usage that a caller sees, by the cluster's `private_data`.
//!
//! Operators see everything. Every user sees his own jobs, associations and usage, and those of the accounts
//! that he coordinates. A caller may learn numbers and ranks of other users, but no hidden name.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Accounts, Cluster};
use crate::id::JobId;
use crate::model::caller::Caller;
use crate::model::config::Private;
use crate::model::job::JobSpec;

/// The word in the place of names that are hidden.
pub const HIDDEN: &str = "(hidden)";

/// The view that one caller has of the cluster. Clones share the data. The default hides nothing.
#[derive(Clone, Debug, Default)]
pub struct Sight(Option<Arc<Hidden>>);

/// The kinds of data that are hidden from a caller, and the caller's own names. True fields are hidden.
#[derive(Debug)]
struct Hidden {
    user: Arc<str>,
    uid: u32,
    /// The accounts that the caller coordinates, with all below them.
    coordinated: BTreeSet<Arc<str>>,
    accounts: bool,
    jobs: bool,
    usage: bool,
    users: bool,
}

impl Sight {
    /// The view of a caller.
    #[must_use]
    pub fn of(cluster: &Cluster, caller: &Caller) -> Self {
        let hides = |what| cluster.policy().jobs.hides(what, caller);
        let hidden = Hidden {
            user: Arc::clone(&caller.owner.user),
            uid: caller.owner.uid,
            coordinated: BTreeSet::new(),
            accounts: hides(Private::Accounts),
            jobs: hides(Private::Jobs),
            usage: hides(Private::Usage),
            users: hides(Private::Users),
        };
        if !(hidden.accounts || hidden.jobs || hidden.usage || hidden.users) {
            return Self(None);
        }
        let coordinated = cluster.accounts().coordinated_by(&hidden.user);
        Self(Some(Arc::new(Hidden { coordinated, ..hidden })))
    }

    fn sees(&self, check: impl FnOnce(&Hidden) -> bool) -> bool {
        self.0.as_deref().is_none_or(check)
    }

    /// True if the caller sees a job. Other jobs do not exist for the caller.
    #[must_use]
    pub fn job(&self, spec: &JobSpec) -> bool {
        self.run(spec.owner.uid, spec.account.as_deref())
    }

    /// True if the caller sees a run of a job, by the job's owner and account.
    #[must_use]
    pub fn run(&self, uid: u32, account: Option<&str>) -> bool {
        self.sees(|hidden| !hidden.jobs || hidden.uid == uid || hidden.coordinates(account))
    }

    /// True if the caller sees the usage of a user's jobs in an account.
    #[must_use]
    pub fn use_of_run(&self, tree: &Accounts, uid: u32, account: &str) -> bool {
        self.run(uid, Some(account))
            && self.account(tree, account)
            && self.sees(|hidden| {
                !(hidden.usage || hidden.users) || hidden.uid == uid || hidden.coordinates(Some(account))
            })
    }

    /// The caller's uid if the caller sees only his own runs; with `of_usage`, if he sees only the usage of
    /// his own runs. `None` if he may see others.
    #[must_use]
    pub fn only_own(&self, of_usage: bool) -> Option<u32> {
        let hidden = self.0.as_deref().filter(|hidden| hidden.coordinated.is_empty())?;
        (hidden.jobs || (of_usage && (hidden.usage || hidden.users))).then_some(hidden.uid)
    }

    /// True if any kind of data is hidden from the caller, so that he may not see the usage of all runs.
    #[must_use]
    pub fn hides_usage(&self) -> bool {
        self.0.is_some()
    }

    /// True if the caller sees an account. If `accounts` are hidden, these are the accounts that he belongs
    /// to or coordinates, and the accounts above his own.
    #[must_use]
    pub fn account(&self, tree: &Accounts, account: &str) -> bool {
        self.sees(|hidden| !hidden.accounts || hidden.belongs(tree, account))
    }

    /// True if the caller sees that a user exists.
    #[must_use]
    pub fn user(&self, tree: &Accounts, user: &str) -> bool {
        self.sees(|hidden| !hidden.users || hidden.knows(tree, user))
    }

    /// True if the caller sees the usage of a user.
    #[must_use]
    pub fn usage(&self, tree: &Accounts, user: &str) -> bool {
        self.sees(|hidden| !(hidden.users || hidden.usage) || hidden.knows(tree, user))
    }

    /// True if the caller sees the usage of an account. If `usage` is hidden, these are the accounts that he
    /// belongs to or coordinates, and the accounts above his own.
    #[must_use]
    pub fn use_of_account(&self, tree: &Accounts, account: &str) -> bool {
        self.sees(|hidden| !hidden.usage || hidden.belongs(tree, account))
    }

    /// A comma-separated list of accounts, with one word ([`HIDDEN`]) for all that the caller does not see.
    #[must_use]
    pub fn accounts(&self, tree: &Accounts, list: &str) -> String {
        hide(list, |name| self.account(tree, name))
    }

    /// A comma-separated list of users, with one word ([`HIDDEN`]) for all whom the caller does not see.
    #[must_use]
    pub fn users(&self, tree: &Accounts, list: &str) -> String {
        hide(list, |name| self.user(tree, name))
    }

    /// A sentence on a job without the numbers of jobs that the caller does not see: `job 12 comes first`
    /// becomes `another job comes first`.
    #[must_use]
    pub fn sentence(&self, cluster: &Cluster, text: &str) -> String {
        const WORD: &str = "job ";
        if self.0.as_deref().is_none_or(|hidden| !hidden.jobs) {
            return text.to_owned();
        }
        let (mut seen, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(at) = rest.find(WORD) {
            let (before, from) = rest.split_at(at);
            let behind = &from[WORD.len()..];
            let digits = behind.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(behind.len());
            let number = behind[..digits].parse().ok().map(JobId);
            let is_hidden = number.is_some_and(|id| cluster.job(id).is_none_or(|job| !self.job(&job.spec)));
            seen.push_str(before);
            if is_hidden {
                seen.push_str("another job");
            } else {
                seen.push_str(&from[..WORD.len() + digits]);
            }
            rest = &behind[digits..];
            if is_hidden {
                rest = rest.trim_start_matches(|letter: char| {
                    matches!(letter, '_' | '+' | '[' | ']' | '-') || letter.is_ascii_digit()
                });
            }
        }
        seen.push_str(rest);
        seen
    }
}

/// A list of names, each perhaps behind a minus, with [`HIDDEN`] at the end for all names that are not shown.
fn hide(list: &str, shown: impl Fn(&str) -> bool) -> String {
    let names: Vec<&str> = list.split(',').filter(|name| !name.is_empty()).collect();
    let mut left: Vec<&str> = names.clone();
    left.retain(|name| shown(name.trim_start_matches('-')));
    if left.len() < names.len() {
        left.push(HIDDEN);
    }
    left.join(",")
}

impl Hidden {
    fn coordinates(&self, account: Option<&str>) -> bool {
        account.is_some_and(|account| self.coordinated.contains(account))
    }

    /// True if the caller is in an account or below it, or coordinates the account.
    fn belongs(&self, tree: &Accounts, account: &str) -> bool {
        self.coordinates(Some(account))
            || tree.of_user(&self.user).any(|own| tree.is_within(&own.account, account))
    }

    /// True if a user is the caller, or is in an account that the caller coordinates.
    fn knows(&self, tree: &Accounts, user: &str) -> bool {
        *self.user == *user || tree.of_user(user).any(|own| self.coordinated.contains(&own.account))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blind(coordinated: &[&str]) -> Sight {
        Sight(Some(Arc::new(Hidden {
            user: "anna".into(),
            uid: 7,
            coordinated: coordinated.iter().map(|name| Arc::from(*name)).collect(),
            accounts: false,
            jobs: true,
            usage: false,
            users: false,
        })))
    }

    #[test]
    fn sentences_name_no_job_of_others() {
        let (cluster, sight) = (Cluster::default(), blind(&[]));
        for (text, wanted) in [
            ("job 12 comes first", "another job comes first"),
            ("closed by job 12_3; 2 idle nodes", "closed by another job; 2 idle nodes"),
            ("the job asks for 3", "the job asks for 3"),
            ("in r1 when job 7+1 ends", "in r1 when another job ends"),
            ("größer als job", "größer als job"),
        ] {
            assert_eq!(sight.sentence(&cluster, text), wanted);
            assert_eq!(Sight::default().sentence(&cluster, text), text);
        }
    }

    #[test]
    fn coordinators_see_the_runs_of_their_accounts() {
        let sight = blind(&["chem"]);
        assert!(sight.run(7, None) && sight.run(8, Some("chem")) && !sight.run(8, Some("phys")));
        assert_eq!((blind(&[]).only_own(false), sight.only_own(false)), (Some(7), None));
    }

    #[test]
    fn hidden_names_leave_one_word() {
        assert_eq!(hide("a,-b,c", |name| name == "b"), format!("-b,{HIDDEN}"));
        assert_eq!((hide("", |_| false), hide("a", |_| true)), (String::new(), "a".to_owned()));
    }
}
