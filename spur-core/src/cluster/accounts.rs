//! The policy tree: which accounts, users, associations and QOS there are, and what each has in the end.
//!
//! The tree changes by [`AccountChange`]s alone, each of which carries a whole record. Names of what is deleted stay
//! known. What a record inherits is worked out when it is asked for.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::accounts::{
    Account, AdminLevel, Association, AssociationId, Charged, Limits, NORMAL, Qos, ROOT, User,
};
use crate::model::caller::Caller;
use crate::model::config::{AccountingEnforce, QosConfig};
use crate::model::job::JobSpec;

use super::shared_map::SharedMap;
use super::{Cluster, Derived, Partition};

/// A change of the policy tree. Each carries the result, never the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AccountChange {
    /// An account is so now; a name that was deleted is used again.
    Account(Arc<Account>),
    /// An account is deleted.
    AccountDeleted(Arc<str>),
    /// A user is so now.
    User(Arc<User>),
    /// A user is deleted.
    UserDeleted(Arc<str>),
    /// An association is so now.
    Association(Arc<Association>),
    /// An association is deleted.
    AssociationDeleted(AssociationId),
    /// A QOS is so now.
    Qos(Arc<Qos>),
    /// A QOS is deleted.
    QosDeleted(Arc<str>),
    /// The usage of an association and of all below it is zero now.
    UsageCleared(AssociationId),
    /// The usage of a QOS is zero now, by the number of the QOS.
    QosUsageCleared(u32),
    /// The sections `[[qos]]` of the configuration that the tree has taken over or that were compared with it last.
    FileQos(Vec<QosConfig>),
}

/// The policy tree.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    accounts: SharedMap<Arc<str>, Arc<Account>>,
    users: SharedMap<Arc<str>, Arc<User>>,
    associations: SharedMap<AssociationId, Arc<Association>>,
    qos: BTreeMap<u32, Arc<Qos>>,
    /// The number of each QOS.
    qos_numbers: BTreeMap<Arc<str>, u32>,
    deleted_qos: BTreeSet<Arc<str>>,
    file_qos: Vec<QosConfig>,
    last_association: u32,
    last_qos: u32,
    /// The association of each account.
    of_accounts: SharedMap<Arc<str>, AssociationId>,
    /// Pairs of an account and one right below it.
    children: SharedMap<(Arc<str>, Arc<str>), ()>,
    /// Pairs of an account and the association of one of its users.
    members: SharedMap<(Arc<str>, AssociationId), ()>,
    /// Pairs of a user and one of his associations.
    of_users: SharedMap<(Arc<str>, AssociationId), ()>,
}

/// The second members of the pairs that begin with a name.
fn seconds<'a, T: Ord>(
    pairs: &'a SharedMap<(Arc<str>, T), ()>,
    first: &str,
) -> impl Iterator<Item = &'a T> + use<'a, T> {
    pairs.keys_at(&|(name, _)| (**name).cmp(first)).map(|(_, second)| second)
}

/// An association with its place in the tree.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    /// The association.
    pub association: &'a Arc<Association>,
    /// How many accounts are above; 0 for `root`.
    pub depth: usize,
}

impl Accounts {
    /// Whether the tree has begun, which it does at the first start of a controller of this release.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.of_accounts.contains_key(ROOT)
    }

    /// The accounts by name, without those that are deleted.
    pub fn accounts(&self) -> impl Iterator<Item = &Arc<Account>> {
        self.accounts.values().filter(|account| !account.deleted)
    }

    /// The accounts by name, with those that are deleted.
    pub fn all_accounts(&self) -> impl Iterator<Item = &Arc<Account>> {
        self.accounts.values()
    }

    /// An account that is not deleted.
    #[must_use]
    pub fn account(&self, name: &str) -> Option<&Arc<Account>> {
        self.accounts.get(name).filter(|account| !account.deleted)
    }

    /// The users by name, without those that are deleted.
    pub fn users(&self) -> impl Iterator<Item = &Arc<User>> {
        self.users.values().filter(|user| !user.deleted)
    }

    /// The users by name, with those that are deleted.
    pub fn all_users(&self) -> impl Iterator<Item = &Arc<User>> {
        self.users.values()
    }

    /// A user who is not deleted.
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

    /// A QOS by its number.
    #[must_use]
    pub fn qos_numbered(&self, number: u32) -> Option<&Arc<Qos>> {
        self.qos.get(&number)
    }

    /// The names of QOS that were deleted and not added again.
    pub fn deleted_qos(&self) -> impl Iterator<Item = &Arc<str>> {
        self.deleted_qos.iter()
    }

    /// The sections `[[qos]]` that the tree was compared with last.
    #[must_use]
    pub fn file_qos(&self) -> &[QosConfig] {
        &self.file_qos
    }

    /// The number of the next association.
    #[must_use]
    pub fn next_association(&self) -> AssociationId {
        AssociationId(self.last_association + 1)
    }

    /// The number of the next QOS.
    #[must_use]
    pub fn next_qos(&self) -> u32 {
        self.last_qos + 1
    }

    /// An association by its number.
    #[must_use]
    pub fn association(&self, id: AssociationId) -> Option<&Arc<Association>> {
        self.associations.get(&id)
    }

    /// The association of an account itself.
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

    /// The association of a user in an account that is for exactly this partition, or for all.
    #[must_use]
    pub fn exactly(&self, user: &str, account: &str, partition: Option<&str>) -> Option<&Arc<Association>> {
        self.of_user(user).find(|found| &*found.account == account && found.partition.as_deref() == partition)
    }

    /// The association that a user's job in an account and a partition counts for: that of the partition if there is
    /// one, or else the one for all partitions.
    #[must_use]
    pub fn find(&self, user: &str, account: &str, partition: &str) -> Option<&Arc<Association>> {
        self.exactly(user, account, Some(partition)).or_else(|| self.exactly(user, account, None))
    }

    /// The association that a job counts for in a partition: its user's with the account that the job names, or with his
    /// default account if it names none; else that of the account, or of `root`, as whose child he counts.
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

    /// The association right above another one; `None` above `root`.
    #[must_use]
    pub fn above(&self, association: &Association) -> Option<&Arc<Association>> {
        match (&association.user, &association.parent) {
            (Some(_), _) => self.of_account(&association.account),
            (None, parent) => self.of_account(parent.as_deref()?),
        }
    }

    /// An association and all above it, up to `root`.
    pub fn chain<'a>(
        &'a self,
        association: &'a Arc<Association>,
    ) -> impl Iterator<Item = &'a Arc<Association>> {
        std::iter::successors(Some(association), |below| self.above(below))
    }

    /// Whether an account is `ancestor` or below it.
    #[must_use]
    pub fn is_within(&self, account: &str, ancestor: &str) -> bool {
        let first = self.of_account(account);
        first.is_some_and(|first| self.chain(first).any(|above| &*above.account == ancestor))
    }

    /// The limits of an association, with those that it inherits.
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

    /// The QOS that the jobs of an association may have.
    #[must_use]
    pub fn qos_of(&self, association: &Arc<Association>) -> BTreeSet<Arc<str>> {
        let chain: Vec<&Arc<Association>> = self.chain(association).collect();
        let all: BTreeSet<Arc<str>> = BTreeSet::new();
        let found = chain.iter().rev().fold(all, |above, next| next.qos.resolve(&above));
        found.into_iter().filter(|name| self.qos_named(name).is_some()).collect()
    }

    /// The QOS of the jobs of an association that name none.
    #[must_use]
    pub fn default_qos_of(&self, association: &Arc<Association>) -> Option<Arc<str>> {
        self.chain(association).find_map(|next| next.default_qos.clone())
    }

    /// Whether a user coordinates an account: is named for it, or for one above it.
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

    /// All associations: an account, its users, then the accounts below it, in the order of their names.
    #[must_use]
    pub fn walk(&self) -> Vec<Placed<'_>> {
        self.walk_from(ROOT)
    }

    /// The associations of an account and of all that is below it.
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

    /// The changes from which the tree can be built again.
    pub fn records(&self) -> impl Iterator<Item = AccountChange> + '_ {
        let file = Some(AccountChange::FileQos(self.file_qos.clone())).filter(|_| self.has_begun());
        let qos = self.qos().cloned().map(AccountChange::Qos);
        let deleted = self.deleted_qos.iter().cloned().map(AccountChange::QosDeleted);
        let accounts = self.accounts.values().cloned().map(AccountChange::Account);
        let users = self.users.values().cloned().map(AccountChange::User);
        let associations = self.associations.values().cloned().map(AccountChange::Association);
        file.into_iter().chain(deleted).chain(qos).chain(accounts).chain(users).chain(associations)
    }

    /// The largest numbers that were ever given to an association and to a QOS.
    #[must_use]
    pub fn last_numbers(&self) -> (u32, u32) {
        (self.last_association, self.last_qos)
    }

    /// Puts back the largest numbers that were ever given.
    pub(super) fn restore_numbers(&mut self, association: u32, qos: u32) {
        (self.last_association, self.last_qos) = (association, qos);
    }

    /// Makes one change.
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
                    let user = Arc::make_mut(user);
                    (user.deleted, user.admin_level, user.default_account) = (true, AdminLevel::None, None);
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
            AccountChange::UsageCleared(_) | AccountChange::QosUsageCleared(_) => {}
        }
    }

    fn link(&mut self, association: &Arc<Association>) {
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
    /// The policy tree.
    #[must_use]
    pub fn accounts(&self) -> &Arc<Accounts> {
        &self.accounts
    }

    /// Applies changes of the policy tree. Where QOS change, so does what the planner goes by.
    pub(super) fn change_accounts(&mut self, changes: &[AccountChange]) {
        let moves = self.moves_jobs(changes);
        for change in changes {
            self.change_usage(change);
            Arc::make_mut(&mut self.accounts).apply(change);
        }
        self.derived = Derived::default();
        // Whom a limit now keeps from starting shall not have others leave for it.
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

    /// Puts the QOS of the tree in the place of those of the configuration, once the tree has begun. `normal` alone, as the
    /// tree began with it, leaves QOS without a meaning, as a configuration without `[[qos]]` does.
    pub(super) fn take_qos_of_tree(&mut self) {
        if !self.accounts.has_begun() {
            return;
        }
        let mut qos: Vec<QosConfig> = self.accounts.qos().map(|qos| qos.config()).collect();
        if self.policy.jobs.enforces(AccountingEnforce::Limits) {
            // It is one of the limits that are judged by their order of precedence.
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

    /// The caller with the privileges that the tree gives now, whatever it gave before. Root and the user of the daemon
    /// are administrators all the same.
    #[must_use]
    pub fn recognize(&self, caller: Caller) -> Caller {
        let level = match caller.owns_cluster {
            true => AdminLevel::Administrator,
            false => self.accounts.level_of(&caller.owner.user),
        };
        Caller { level, ..caller }
    }

    /// Whether the caller may change a job: his own, any as an operator, and those of accounts that he coordinates.
    #[must_use]
    pub fn may_change(&self, caller: &Caller, spec: &JobSpec) -> bool {
        let coordinates = |account: &Arc<str>| self.accounts.coordinates(&caller.owner.user, account);
        caller.may_change(&spec.owner) || spec.account.as_ref().is_some_and(coordinates)
    }

    /// Whether the jobs of a user need an association.
    #[must_use]
    pub fn enforces(&self, word: AccountingEnforce) -> bool {
        self.accounts.has_begun() && self.policy.jobs.enforces(word)
    }

    /// The association and the QOS that a job counts for in a partition. A user who is not in the tree counts as a child of
    /// the account that the job names, if the tree has that account, or else of `root`.
    #[must_use]
    pub fn charged(&self, spec: &JobSpec, partition: &Partition) -> Charged {
        self.accounts.charged(spec, partition)
    }

    /// Whether a job has the association that it needs in a partition, if it needs one.
    #[must_use]
    pub fn has_association(&self, spec: &JobSpec, partition: &str) -> bool {
        !self.enforces(AccountingEnforce::Associations) || self.association_of(spec, partition).is_some()
    }

    /// The association that a job counts for in a partition.
    #[must_use]
    pub fn association_of(&self, spec: &JobSpec, partition: &str) -> Option<&Arc<Association>> {
        self.accounts.find(&spec.owner.user, spec.account.as_deref()?, partition)
    }
}
