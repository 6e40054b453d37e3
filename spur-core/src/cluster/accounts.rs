//! The policy tree: accounts, users, associations and QOS, with the limits and QOS that each association
//! inherits.
//!
//! Only [`AccountChange`]s change the tree, and each carries a whole record. The names of deleted records
//! stay known. Inherited values are computed when they are asked for.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::accounts::usage::Amount;
use crate::model::accounts::{
    Account, AdminLevel, Association, AssociationId, Charged, LimitKind, Limits, NORMAL, Qos, ROOT, User,
};
use crate::model::caller::Caller;
use crate::model::config::{AccountingEnforce, QosConfig};
use crate::model::job::JobSpec;
use crate::text::tres::TresKind;

use super::shared_map::SharedMap;
use super::{Cluster, Derived, Partition};

/// A change of the policy tree. Each carries the record that results, never the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AccountChange {
    /// Adds an account or replaces its record. The name of a deleted account may be used again.
    Account(Arc<Account>),
    /// Marks an account as deleted and removes its coordinators.
    AccountDeleted(Arc<str>),
    /// Adds a user or replaces the user's record.
    User(Arc<User>),
    /// Marks a user as deleted. Only the name and the mark remain.
    UserDeleted(Arc<str>),
    /// Adds an association or replaces its record.
    Association(Arc<Association>),
    /// Removes an association from the tree.
    AssociationDeleted(AssociationId),
    /// Adds a QOS or replaces its record.
    Qos(Arc<Qos>),
    /// Removes a QOS from the tree.
    QosDeleted(Arc<str>),
    /// Sets the usage of an association, and of all associations below it, to zero.
    UsageCleared(AssociationId),
    /// Sets the usage of the QOS with this number to zero.
    QosUsageCleared(u32),
    /// Sets the part of an association's usage that another batch system counted. An earlier imported part is
    /// replaced; the usage of this cluster's jobs stays.
    UsageImported {
        /// The association.
        association: AssociationId,
        /// Billing times seconds.
        billing: Amount,
        /// Resources times seconds.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tres: Vec<(TresKind, Amount)>,
    },
    /// The `[[qos]]` sections of the configuration that the tree last took over or was last compared with.
    FileQos(Vec<QosConfig>),
    /// Begins the tree of another cluster, still without accounts.
    ClusterAdded(Arc<str>),
    /// Removes the tree of another cluster.
    ClusterDeleted(Arc<str>),
    /// A change of an account, a user or an association in the tree of another cluster.
    OfCluster {
        /// Name of the other cluster, in lower case.
        cluster: Arc<str>,
        /// The change of its tree.
        change: Box<AccountChange>,
    },
}

/// The policy tree: accounts, users, associations and QOS.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    accounts: SharedMap<Arc<str>, Arc<Account>>,
    users: SharedMap<Arc<str>, Arc<User>>,
    associations: SharedMap<AssociationId, Arc<Association>>,
    qos: BTreeMap<u32, Arc<Qos>>,
    /// The number of each QOS, by name.
    qos_numbers: BTreeMap<Arc<str>, u32>,
    deleted_qos: BTreeSet<Arc<str>>,
    file_qos: Vec<QosConfig>,
    last_association: u32,
    last_qos: u32,
    /// Number of associations that limit the number of jobs that gain age.
    limiting_accrual: usize,
    /// The association of each account.
    of_accounts: SharedMap<Arc<str>, AssociationId>,
    /// Pairs of an account and one right below it.
    children: SharedMap<(Arc<str>, Arc<str>), ()>,
    /// Pairs of an account and the association of one of its users.
    members: SharedMap<(Arc<str>, AssociationId), ()>,
    /// Pairs of a user and one of his associations.
    of_users: SharedMap<(Arc<str>, AssociationId), ()>,
    /// The trees of other clusters, by their names in lower case. They have no QOS of their own. Jobs are
    /// not judged by them.
    others: BTreeMap<Arc<str>, Arc<Accounts>>,
}

/// The second members of the pairs that begin with a name.
fn seconds<'a, T: Ord>(
    pairs: &'a SharedMap<(Arc<str>, T), ()>,
    first: &str,
) -> impl Iterator<Item = &'a T> + use<'a, T> {
    pairs.keys_at(&|(name, _)| (**name).cmp(first)).map(|(_, second)| second)
}

/// An association and its depth in the tree.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    /// Association in the tree.
    pub association: &'a Arc<Association>,
    /// Number of accounts above this one; 0 for `root`.
    pub depth: usize,
}

impl Accounts {
    /// True once the tree exists. The first start of a controller of this release creates it.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.of_accounts.contains_key(ROOT)
    }

    /// Accounts that are not deleted, by name.
    pub fn accounts(&self) -> impl Iterator<Item = &Arc<Account>> {
        self.accounts.values().filter(|account| !account.deleted)
    }

    /// All accounts, deleted ones included, by name.
    pub fn all_accounts(&self) -> impl Iterator<Item = &Arc<Account>> {
        self.accounts.values()
    }

    /// The account of this name; `None` if there is none or it is deleted.
    #[must_use]
    pub fn account(&self, name: &str) -> Option<&Arc<Account>> {
        self.accounts.get(name).filter(|account| !account.deleted)
    }

    /// Users who are not deleted, by name.
    pub fn users(&self) -> impl Iterator<Item = &Arc<User>> {
        self.users.values().filter(|user| !user.deleted)
    }

    /// All users, deleted ones included, by name.
    pub fn all_users(&self) -> impl Iterator<Item = &Arc<User>> {
        self.users.values()
    }

    /// The user of this name; `None` if there is none or the user is deleted.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<&Arc<User>> {
        self.users.get(name).filter(|user| !user.deleted)
    }

    /// The QOS, in the order in which they were added.
    pub fn qos(&self) -> impl Iterator<Item = &Arc<Qos>> {
        self.qos.values()
    }

    /// The associations, in the order in which they were added.
    pub fn associations(&self) -> impl Iterator<Item = &Arc<Association>> {
        self.associations.values()
    }

    /// A QOS by its name, without regard to case.
    #[must_use]
    pub fn qos_named(&self, name: &str) -> Option<&Arc<Qos>> {
        let number = self.qos_numbers.get(name).copied();
        let number = number.or_else(|| self.qos_numbers.get(&*name.to_ascii_lowercase()).copied());
        self.qos_numbered(number?)
    }

    /// The QOS of this number; `None` if there is none.
    #[must_use]
    pub fn qos_numbered(&self, number: u32) -> Option<&Arc<Qos>> {
        self.qos.get(&number)
    }

    /// Names of QOS that were deleted and not added again.
    pub fn deleted_qos(&self) -> impl Iterator<Item = &Arc<str>> {
        self.deleted_qos.iter()
    }

    /// The `[[qos]]` sections of the configuration that the tree was last compared with.
    #[must_use]
    pub fn file_qos(&self) -> &[QosConfig] {
        &self.file_qos
    }

    /// The number that the next association gets.
    #[must_use]
    pub fn next_association(&self) -> AssociationId {
        AssociationId(self.last_association + 1)
    }

    /// The number that the next QOS gets.
    #[must_use]
    pub fn next_qos(&self) -> u32 {
        self.last_qos + 1
    }

    /// The names of the other clusters that have a tree here, in alphabetical order.
    pub fn other_clusters(&self) -> impl Iterator<Item = &Arc<str>> {
        self.others.keys()
    }

    /// The tree of another cluster, with the QOS of this tree, which all clusters share. `None` if there is
    /// no such tree. Numbers of its associations are different from those of this tree.
    #[must_use]
    pub fn of_cluster(&self, name: &str) -> Option<Accounts> {
        let mut tree = Accounts::clone(self.others.get(&*name.to_lowercase())?);
        tree.qos.clone_from(&self.qos);
        tree.qos_numbers.clone_from(&self.qos_numbers);
        tree.last_association = self.last_association;
        Some(tree)
    }

    /// The association of this number; `None` if there is none.
    #[must_use]
    pub fn association(&self, id: AssociationId) -> Option<&Arc<Association>> {
        self.associations.get(&id)
    }

    /// The association of the account itself, not of one of its users; `None` if the account has none.
    #[must_use]
    pub fn of_account(&self, account: &str) -> Option<&Arc<Association>> {
        self.association(*self.of_accounts.get(account)?)
    }

    /// The associations of a user, in the order in which they were added.
    pub fn of_user(&self, user: &str) -> impl Iterator<Item = &Arc<Association>> + use<'_> {
        seconds(&self.of_users, user).filter_map(|id| self.association(*id))
    }

    /// The associations of the users of an account, in the order in which they were added.
    pub fn members(&self, account: &str) -> impl Iterator<Item = &Arc<Association>> + use<'_> {
        seconds(&self.members, account).filter_map(|id| self.association(*id))
    }

    /// The association of a user in an account for exactly this partition; with `None`, the one for all
    /// partitions.
    #[must_use]
    pub fn exactly(&self, user: &str, account: &str, partition: Option<&str>) -> Option<&Arc<Association>> {
        self.of_user(user).find(|found| &*found.account == account && found.partition.as_deref() == partition)
    }

    /// The association of a user's job in an account and a partition. It is the one for that partition if
    /// there is one, else the one for all partitions. `None` if the user has neither.
    #[must_use]
    pub fn find(&self, user: &str, account: &str, partition: &str) -> Option<&Arc<Association>> {
        self.exactly(user, account, Some(partition)).or_else(|| self.exactly(user, account, None))
    }

    /// The association that a job counts for in a partition. The account is the one that the job names, else
    /// its user's default account, else `root`. The user's association in this account comes first; then the
    /// association of the account itself; then the user's in `root`; then that of `root`.
    #[must_use]
    pub fn counts_for(&self, spec: &JobSpec, partition: &str) -> Option<&Arc<Association>> {
        let user = &*spec.owner.user;
        let default = || self.user(user).and_then(|user| user.default_account.as_deref());
        let account = spec.account.as_deref().or_else(default).unwrap_or(ROOT);
        let account = match account.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => Cow::Owned(account.to_lowercase()),
            false => Cow::Borrowed(account),
        };
        let own = self.find(user, &account, partition);
        let of_root = || self.find(user, ROOT, partition).or_else(|| self.of_account(ROOT));
        own.or_else(|| self.of_account(&account)).or_else(of_root)
    }

    /// The association and the QOS that a job counts for in a partition; see [`Cluster::charged`].
    #[must_use]
    pub fn charged(&self, spec: &JobSpec, partition: &Partition) -> Charged {
        if !self.has_begun() {
            return Charged::default();
        }
        let number = |name: &Arc<str>| self.qos_named(name).map(|qos| qos.id);
        Charged {
            association: self.counts_for(spec, partition.name()).map(|association| association.id),
            qos: spec.qos.as_ref().and_then(number),
            partition_qos: partition.config.qos.as_ref().and_then(number),
        }
    }

    /// The association directly above another one; `None` for that of `root`.
    #[must_use]
    pub fn above(&self, association: &Association) -> Option<&Arc<Association>> {
        match (&association.user, &association.parent) {
            (Some(_), _) => self.of_account(&association.account),
            (None, parent) => self.of_account(parent.as_deref()?),
        }
    }

    /// An association and all associations above it, up to `root`.
    pub fn chain<'a>(
        &'a self,
        association: &'a Arc<Association>,
    ) -> impl Iterator<Item = &'a Arc<Association>> {
        std::iter::successors(Some(association), |below| self.above(below))
    }

    /// True if an account is `ancestor` or below `ancestor`.
    #[must_use]
    pub fn is_within(&self, account: &str, ancestor: &str) -> bool {
        let first = self.of_account(account);
        first.is_some_and(|first| self.chain(first).any(|above| &*above.account == ancestor))
    }

    /// The limits of an association, inherited ones included.
    #[must_use]
    pub fn limits_of(&self, association: &Arc<Association>) -> Limits {
        let mut limits = Limits::default();
        let mut chain = self.chain(association);
        if let Some(own) = chain.next() {
            limits = own.limits.clone();
        }
        chain.for_each(|above| limits.inherit(&above.limits));
        limits
    }

    /// True if an association or a QOS limits the number of pending jobs that gain priority by age.
    #[must_use]
    pub fn limits_accrual(&self) -> bool {
        self.limiting_accrual > 0 || self.qos().any(|qos| qos.limits.limits_accrual())
    }

    /// The `Priority` of an association, inherited if it has none of its own; `None` if none is set.
    #[must_use]
    pub fn priority_of(&self, association: &Arc<Association>) -> Option<u64> {
        self.chain(association).find_map(|next| next.limits.number(LimitKind::Priority))
    }

    /// The QOS that jobs of an association may use, inherited ones included. QOS that do not exist are left
    /// out.
    #[must_use]
    pub fn qos_of(&self, association: &Arc<Association>) -> BTreeSet<Arc<str>> {
        let chain: Vec<&Arc<Association>> = self.chain(association).collect();
        let all: BTreeSet<Arc<str>> = BTreeSet::new();
        let found = chain.iter().rev().fold(all, |above, next| next.qos.resolve(&above));
        found.into_iter().filter(|name| self.qos_named(name).is_some()).collect()
    }

    /// The QOS of an association's jobs that name none; inherited from above if the association has none of
    /// its own.
    #[must_use]
    pub fn default_qos_of(&self, association: &Arc<Association>) -> Option<Arc<str>> {
        self.chain(association).find_map(|next| next.default_qos.clone())
    }

    /// True if a user is a coordinator of the account or of an account above it.
    #[must_use]
    pub fn coordinates(&self, user: &str, account: &str) -> bool {
        let Some(first) = self.of_account(account) else { return false };
        let names = |account: &Arc<Account>| account.coordinators.iter().any(|name| **name == *user);
        self.chain(first).any(|above| self.account(&above.account).is_some_and(names))
    }

    /// The accounts that a user coordinates, with all below them.
    #[must_use]
    pub fn coordinated_by(&self, user: &str) -> BTreeSet<Arc<str>> {
        let named = self.accounts().filter(|account| account.coordinators.iter().any(|name| **name == *user));
        let below = named.flat_map(|account| self.walk_from(&account.name));
        below.map(|placed| Arc::clone(&placed.association.account)).collect()
    }

    /// The privileges of a user of the tree.
    #[must_use]
    pub fn level_of(&self, user: &str) -> AdminLevel {
        self.user(user).map_or(AdminLevel::None, |user| user.admin_level)
    }

    /// All associations: each account, then its users, then the accounts below it, each in the order of
    /// names.
    #[must_use]
    pub fn walk(&self) -> Vec<Placed<'_>> {
        self.walk_from(ROOT)
    }

    /// The associations of an account and of everything below the account, in the order of
    /// [`walk`](Self::walk).
    #[must_use]
    pub fn walk_from(&self, account: &str) -> Vec<Placed<'_>> {
        let mut found = Vec::new();
        let Some(first) = self.of_account(account) else { return found };
        let mut open: Vec<(&str, usize)> = vec![(&first.account, 0)];
        while let Some((account, depth)) = open.pop() {
            let own = self.of_account(account);
            found.extend(own.map(|association| Placed { association, depth }));
            let mut members: Vec<&Arc<Association>> = self.members(account).collect();
            members.sort_by(|one, other| (&one.user, &one.partition).cmp(&(&other.user, &other.partition)));
            found.extend(members.into_iter().map(|association| Placed { association, depth: depth + 1 }));
            let known = open.len();
            open.extend(seconds(&self.children, account).map(|name| (&**name, depth + 1)));
            open[known..].reverse();
        }
        found
    }

    /// The changes that build this tree from an empty one; snapshots store them.
    pub fn records(&self) -> impl Iterator<Item = AccountChange> + '_ {
        let file = Some(AccountChange::FileQos(self.file_qos.clone())).filter(|_| self.has_begun());
        let qos = self.qos().cloned().map(AccountChange::Qos);
        let deleted = self.deleted_qos.iter().cloned().map(AccountChange::QosDeleted);
        let others = self.others.iter().flat_map(|(cluster, tree)| {
            let of_cluster =
                |change| AccountChange::OfCluster { cluster: Arc::clone(cluster), change: Box::new(change) };
            let added = std::iter::once(AccountChange::ClusterAdded(Arc::clone(cluster)));
            added.chain(tree.accounts_and_users().map(of_cluster))
        });
        file.into_iter().chain(deleted).chain(qos).chain(self.accounts_and_users()).chain(others)
    }

    /// The changes that build the accounts, users and associations of this tree from an empty one.
    fn accounts_and_users(&self) -> impl Iterator<Item = AccountChange> + '_ {
        let accounts = self.accounts.values().cloned().map(AccountChange::Account);
        let users = self.users.values().cloned().map(AccountChange::User);
        let associations = self.associations.values().cloned().map(AccountChange::Association);
        accounts.chain(users).chain(associations)
    }

    /// The largest numbers ever given to an association and to a QOS.
    #[must_use]
    pub fn last_numbers(&self) -> (u32, u32) {
        (self.last_association, self.last_qos)
    }

    /// Restores the largest numbers ever given, from a snapshot.
    pub(super) fn restore_numbers(&mut self, association: u32, qos: u32) {
        (self.last_association, self.last_qos) = (association, qos);
    }

    /// Applies one change to the tree.
    pub fn apply(&mut self, change: &AccountChange) {
        match change {
            AccountChange::Account(account) => {
                drop(self.accounts.insert(Arc::clone(&account.name), Arc::clone(account)));
            }
            AccountChange::AccountDeleted(name) => {
                if let Some(account) = self.accounts.get_mut(name) {
                    let account = Arc::make_mut(account);
                    account.coordinators.clear();
                    account.deleted = true;
                }
            }
            AccountChange::User(user) => drop(self.users.insert(Arc::clone(&user.name), Arc::clone(user))),
            AccountChange::UserDeleted(name) => {
                if let Some(user) = self.users.get_mut(name) {
                    let name = Arc::clone(&user.name);
                    *user = Arc::new(User { name, deleted: true, ..User::default() });
                }
            }
            AccountChange::Association(association) => {
                self.unlink(association.id);
                self.last_association = self.last_association.max(association.id.0);
                self.link(association);
            }
            AccountChange::AssociationDeleted(id) => self.unlink(*id),
            AccountChange::Qos(qos) => {
                self.last_qos = self.last_qos.max(qos.id);
                self.deleted_qos.remove(&qos.name);
                self.qos_numbers.insert(Arc::clone(&qos.name), qos.id);
                self.qos.insert(qos.id, Arc::clone(qos));
            }
            AccountChange::QosDeleted(name) => {
                self.qos_numbers.remove(name);
                self.qos.retain(|_, qos| qos.name != *name);
                self.deleted_qos.insert(Arc::clone(name));
            }
            AccountChange::FileQos(qos) => self.file_qos.clone_from(qos),
            AccountChange::ClusterAdded(name) => drop(self.others.entry(Arc::clone(name)).or_default()),
            AccountChange::ClusterDeleted(name) => drop(self.others.remove(name)),
            AccountChange::OfCluster { cluster, change } => {
                if let Some(tree) = self.others.get_mut(cluster) {
                    Arc::make_mut(tree).apply(change);
                    self.last_association = self.last_association.max(tree.last_association);
                }
            }
            AccountChange::UsageCleared(_)
            | AccountChange::QosUsageCleared(_)
            | AccountChange::UsageImported { .. } => {}
        }
    }

    fn link(&mut self, association: &Arc<Association>) {
        self.limiting_accrual += usize::from(association.limits.limits_accrual());
        let (id, account) = (association.id, Arc::clone(&association.account));
        match &association.user {
            Some(user) => {
                self.members.insert((account, id), ());
                self.of_users.insert((Arc::clone(user), id), ());
            }
            None => {
                if let Some(parent) = &association.parent {
                    self.children.insert((Arc::clone(parent), Arc::clone(&account)), ());
                }
                self.of_accounts.insert(account, id);
            }
        }
        self.associations.insert(id, Arc::clone(association));
    }

    fn unlink(&mut self, id: AssociationId) {
        let Some(association) = self.associations.remove(&id) else { return };
        self.limiting_accrual -= usize::from(association.limits.limits_accrual());
        match &association.user {
            Some(user) => {
                self.members.remove(&(Arc::clone(&association.account), id));
                self.of_users.remove(&(Arc::clone(user), id));
            }
            None => {
                self.of_accounts.remove(&association.account);
                if let Some(parent) = &association.parent {
                    self.children.remove(&(Arc::clone(parent), Arc::clone(&association.account)));
                }
            }
        }
    }
}

impl Cluster {
    /// The cluster's policy tree.
    #[must_use]
    pub fn accounts(&self) -> &Arc<Accounts> {
        &self.accounts
    }

    /// Applies changes of the policy tree to the tree, the usage, the counters and the QOS that the planner
    /// uses.
    pub(super) fn change_accounts(&mut self, changes: &[AccountChange]) {
        let moves = self.moves_jobs(changes);
        for change in changes {
            self.change_usage(change);
            Arc::make_mut(&mut self.accounts).apply(change);
        }
        self.derived = Derived::default();
        // A job that a limit now keeps from starting must not make other jobs leave.
        if self.enforces(AccountingEnforce::Limits) {
            self.drop_nominations(|_, _| true);
        }
        if changes.iter().any(|change| matches!(change, AccountChange::Qos(_) | AccountChange::QosDeleted(_)))
        {
            self.take_qos_of_tree();
        }
        if moves {
            self.count_all();
        }
    }

    /// Replaces the QOS of the configuration by those of the tree, once the tree exists. A tree with only an
    /// unchanged `normal` means no QOS at all, as does a configuration without `[[qos]]`, unless QOS or
    /// limits are enforced.
    pub(super) fn take_qos_of_tree(&mut self) {
        if !self.accounts.has_begun() {
            return;
        }
        let mut qos: Vec<QosConfig> = self.accounts.qos().map(|qos| qos.config()).collect();
        if self.policy.jobs.enforces(AccountingEnforce::Limits) {
            // With limits enforced, `MaxWall` is judged with them, in their order of precedence.
            qos.iter_mut().for_each(|qos| qos.max_wall = None);
        }
        let enforces = |part| self.policy.jobs.enforces(part);
        let enforced = enforces(AccountingEnforce::Qos) || enforces(AccountingEnforce::Limits);
        if let [only] = qos.as_slice()
            && *only == (QosConfig { name: NORMAL.into(), ..QosConfig::default() })
            && !enforced
            && self.accounts.file_qos.is_empty()
        {
            qos.clear();
        }
        if self.policy.qos != qos {
            Arc::make_mut(&mut self.policy).qos = qos;
        }
    }

    /// The caller with the administrator level that the tree gives. Root and the user of the daemon are
    /// always administrators.
    #[must_use]
    pub fn recognize(&self, caller: Caller) -> Caller {
        let level = match caller.owns_cluster {
            true => AdminLevel::Administrator,
            false => self.accounts.level_of(&caller.owner.user),
        };
        Caller { level, ..caller }
    }

    /// True if the caller may change a job: one of their own, any job as an operator, or a job of an account
    /// that they coordinate.
    #[must_use]
    pub fn may_change(&self, caller: &Caller, spec: &JobSpec) -> bool {
        let coordinates = |account: &Arc<str>| self.accounts.coordinates(&caller.owner.user, account);
        caller.may_change(&spec.owner) || spec.account.as_ref().is_some_and(coordinates)
    }

    /// True if `AccountingStorageEnforce` contains this word and the policy tree exists.
    #[must_use]
    pub fn enforces(&self, word: AccountingEnforce) -> bool {
        self.accounts.has_begun() && self.policy.jobs.enforces(word)
    }

    /// The association and the QOS that a job counts for in a partition. The account is the one that the job
    /// names, else its user's default account. A job whose user has no association there counts as a child
    /// of that account if the tree has it, else for `root`.
    #[must_use]
    pub fn charged(&self, spec: &JobSpec, partition: &Partition) -> Charged {
        self.accounts.charged(spec, partition)
    }

    /// True if a job has an association in a partition, or associations are not enforced.
    #[must_use]
    pub fn has_association(&self, spec: &JobSpec, partition: &str) -> bool {
        !self.enforces(AccountingEnforce::Associations) || self.association_of(spec, partition).is_some()
    }

    /// The user's own association in the account that the job names; `None` if there is none or the job names
    /// no account.
    #[must_use]
    pub fn association_of(&self, spec: &JobSpec, partition: &str) -> Option<&Arc<Association>> {
        self.accounts.find(&spec.owner.user, spec.account.as_deref()?, partition)
    }
}
