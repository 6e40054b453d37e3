//! Requests of `sacctmgr`: conditions that select entities, and settings. Words are Slurm's. A key may be
//! abbreviated and is compared without regard to case.

pub mod job;
mod qos;
mod usage;

use std::collections::BTreeSet;
use std::sync::Arc;

pub use qos::qos_set;
pub use usage::UsageLine;

use super::limits::{self, LimitChange, LimitKind};
use super::qos::{Qos, QosFlag};
use super::{AdminLevel, Shares};
use crate::model::config::PreemptMode;
use crate::text::time::Seconds;

/// A word of a request: `KEY=VALUE`, `KEY+=VALUE` or `KEY-=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The key as it was written; empty without `=`.
    pub key: String,
    /// The sign between key and value.
    pub sign: Sign,
    /// The value, without quotes.
    pub value: String,
}

/// The effect of a value on the previous one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sign {
    /// `=`: the value replaces the previous one.
    #[default]
    Is,
    /// `+=`: the value is added to the previous one.
    Plus,
    /// `-=`: the value is removed from the previous one.
    Minus,
}

impl Word {
    /// Reads one word; without `=` the key is empty.
    #[must_use]
    pub fn read(text: &str) -> Word {
        let Some((key, value)) = text.split_once('=') else {
            return Word { key: String::new(), sign: Sign::Is, value: unquoted(text) };
        };
        let (key, sign) = match key.as_bytes().last() {
            Some(b'+') => (&key[..key.len() - 1], Sign::Plus),
            Some(b'-') => (&key[..key.len() - 1], Sign::Minus),
            _ => (key, Sign::Is),
        };
        Word { key: key.to_owned(), sign, value: unquoted(value) }
    }

    /// True if the key is `name` or an abbreviation of at least `least` letters.
    fn is(&self, name: &str, least: usize) -> bool {
        let typed = self.key.as_bytes();
        let head = name.as_bytes().get(..typed.len());
        typed.len() >= least.max(1) && head.is_some_and(|head| head.eq_ignore_ascii_case(typed))
    }

    /// The names in the comma-separated value.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.value.split(',').map(str::trim).filter(|name| !name.is_empty())
    }

    /// The names in the comma-separated value; the empty name if there is none.
    fn names_or_none(&self) -> impl Iterator<Item = &str> {
        let none = Some("").filter(|_| self.value.is_empty());
        self.names().chain(none)
    }

    fn lower(&self) -> impl Iterator<Item = Arc<str>> {
        self.names().map(|name| name.to_lowercase().into())
    }
}

impl std::fmt::Display for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = match self.sign {
            Sign::Is => "=",
            Sign::Plus => "+=",
            Sign::Minus => "-=",
        };
        if self.key.is_empty() {
            f.write_str(&self.value)
        } else {
            write!(f, "{}{sign}{}", self.key, self.value)
        }
    }
}

fn unquoted(text: &str) -> String {
    let text = text.trim();
    let quoted = |quote: char| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    quoted('\'').or_else(|| quoted('"')).unwrap_or(text).to_owned()
}

/// The kind of entity that a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entity {
    /// The request is about accounts.
    Account,
    /// The request is about users.
    User,
    /// The request is about QOS.
    Qos,
    /// The request is about coordinators of accounts.
    Coordinator,
    /// The request is about the cluster, which stands for the account `root`.
    Cluster,
    /// The request is about associations, which can only be listed.
    Association,
}

/// A change that a user requests with `sacctmgr`.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// Adds accounts with common settings.
    AddAccounts(Vec<Arc<str>>, AccountSet),
    /// Adds users, or associations of users that exist.
    AddUsers(Vec<Arc<str>>, UserAdd),
    /// Adds QOS with common settings.
    AddQos(Vec<Arc<str>>, QosSet),
    /// Makes users coordinators of accounts.
    AddCoordinators(Which),
    /// Changes the settings of all selected accounts.
    ModifyAccounts(Which, AccountSet),
    /// Changes the settings of all selected users.
    ModifyUsers(Which, UserSet),
    /// Changes the settings of all selected QOS.
    ModifyQos(Which, QosSet),
    /// Changes the association of the account `root`.
    ModifyCluster(AssociationSet),
    /// Begins the trees of other clusters, each with an account and a user `root`.
    AddClusters(BTreeSet<Arc<str>>, AssociationSet),
    /// Deletes the trees of other clusters.
    DeleteClusters(BTreeSet<Arc<str>>),
    /// A request for the trees of these clusters only. Any other request is for the trees of all clusters.
    In(BTreeSet<Arc<str>>, Box<Ask>),
    /// Deletes accounts with everything below them.
    DeleteAccounts(Which),
    /// Deletes users, or some of their associations.
    DeleteUsers(Which),
    /// Deletes all selected QOS.
    DeleteQos(Which),
    /// Removes coordinators from accounts.
    DeleteCoordinators(Which),
    /// Brings the tree in line with a dump.
    Load {
        /// The lines, each with its number in the file.
        lines: Vec<(u32, LoadLine)>,
        /// True if settings that a line does not name are cleared.
        clean: bool,
    },
}

/// A line of a dump.
#[derive(Clone, Debug, PartialEq)]
pub enum LoadLine {
    /// `Cluster - 'name'`: settings of the account `root`.
    Cluster(AssociationSet),
    /// `Account - 'name'` below a `Parent - 'parent'`.
    Account {
        /// Name of the account.
        name: Arc<str>,
        /// The settings; the parent is always given.
        set: AccountSet,
    },
    /// `User - 'name'` below a `Parent - 'account'`.
    User {
        /// Login name of the user.
        name: Arc<str>,
        /// The settings; the account is always given.
        add: UserAdd,
    },
    /// `QOS - 'name'`. Slurm's dumps have none.
    Qos {
        /// Name of the QOS.
        name: Arc<str>,
        /// Settings of the QOS.
        set: QosSet,
    },
    /// The usage of an association in another batch system. No dump has such lines.
    Usage(UsageLine),
}

/// Settings of accounts in a request; those that are absent stay unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccountSet {
    /// The value of `Description=`; `None` if it is not given.
    pub description: Option<Arc<str>>,
    /// The value of `Organization=`; `None` if it is not given.
    pub organization: Option<Arc<str>>,
    /// The value of `Parent=`; `None` if it is not given.
    pub parent: Option<Arc<str>>,
    /// Settings of the accounts' associations.
    pub association: AssociationSet,
}

/// Settings of users in a request; those that are absent stay unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserSet {
    /// The value of `DefaultAccount=`; `None` if it is not given.
    pub default_account: Option<Arc<str>>,
    /// The value of `DefaultWCKey=`; `None` if it is not given.
    pub default_wckey: Option<Arc<str>>,
    /// The value of `AdminLevel=`; `None` if it is not given.
    pub admin_level: Option<AdminLevel>,
    /// Settings of the users' associations.
    pub association: AssociationSet,
}

/// The details of users to add.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserAdd {
    /// The names of `Account=`.
    pub accounts: Vec<Arc<str>>,
    /// The names of `Partition=`.
    pub partitions: Vec<Arc<str>>,
    /// The names of `WCKeys=`, which the users get beside those that they have.
    pub wckeys: Vec<Arc<str>>,
    /// `Coordinator=`: the accounts that they coordinate.
    pub coordinates: Vec<Arc<str>>,
    /// Settings of the users.
    pub set: UserSet,
}

impl UserAdd {
    /// The wckeys of `WCKeys=`, then that of `DefaultWCKey=`, each once.
    #[must_use]
    pub fn all_wckeys(&self) -> Vec<Arc<str>> {
        let mut seen = BTreeSet::new();
        let all = self.wckeys.iter().chain(&self.set.default_wckey);
        all.filter(|key| seen.insert(*key)).cloned().collect()
    }
}

/// Settings of associations in a request; those that are absent stay unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AssociationSet {
    /// The value of `Fairshare=`; `None` if it is not given.
    pub shares: Option<Shares>,
    /// `QOS=`, `QOS+=`, `QOS-=`, in the order in which they are made.
    pub qos: Vec<ListChange>,
    /// `DefaultQOS=`; the inner `None` makes the association inherit.
    pub default_qos: Option<Option<Arc<str>>>,
    /// Limits that are set or cleared.
    pub limits: Vec<(LimitKind, LimitChange)>,
    /// True for `RawUsage=0`: the usage is set to zero.
    pub clears_usage: bool,
}

/// A change of a list of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListChange {
    /// The effect of the names on the previous list.
    pub sign: Sign,
    /// Names to set, add or remove.
    pub names: BTreeSet<Arc<str>>,
}

/// Settings of QOS in a request; those that are absent stay unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QosSet {
    /// The value of `Description=`; `None` if it is not given.
    pub description: Option<Arc<str>>,
    /// The value of `Priority=`; `None` if it is not given.
    pub priority: Option<u32>,
    /// The value of `Preempt=`; `None` if it is not given.
    pub preempt: Option<ListChange>,
    /// `PreemptMode=`; the inner `None` stands for `cluster`.
    pub preempt_mode: Option<Option<PreemptMode>>,
    /// The value of `GraceTime=`; the inner `None` clears it.
    pub grace_time: Option<Option<Seconds>>,
    /// The value of `PreemptExemptTime=`; the inner `None` clears it.
    pub exempt_time: Option<Option<Seconds>>,
    /// The value of `Flags=`; `None` if it is not given.
    pub flags: Option<(Sign, BTreeSet<QosFlag>)>,
    /// The value of `UsageFactor=`; `None` if it is not given.
    pub usage_factor: Option<f64>,
    /// The value of `UsageThreshold=`; the inner `None` clears it.
    pub usage_threshold: Option<Option<f64>>,
    /// The value of `LimitFactor=`; the inner `None` clears it.
    pub limit_factor: Option<Option<f64>>,
    /// Limits that are set or cleared.
    pub limits: Vec<(LimitKind, LimitChange)>,
    /// True for `RawUsage=0`: the usage is set to zero.
    pub clears_usage: bool,
    /// `AllowGroups=`, which Slurm does not have.
    pub allow_groups: Option<ListChange>,
    /// `AllowAccounts=`, which Slurm does not have.
    pub allow_accounts: Option<ListChange>,
}

/// Conditions that select entities; all given ones must hold, and an empty one always holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Which {
    /// Names of entities of the requested kind.
    pub names: BTreeSet<Arc<str>>,
    /// `Account=` of associations.
    pub accounts: BTreeSet<Arc<str>>,
    /// `User=` of associations.
    pub users: BTreeSet<Arc<str>>,
    /// `Partition=` of associations.
    pub partitions: BTreeSet<Arc<str>>,
    /// `QOS=` that associations may have.
    pub qos: BTreeSet<Arc<str>>,
    /// `Parent=` of accounts.
    pub parents: BTreeSet<Arc<str>>,
    /// `DefaultAccount=` of users.
    pub default_accounts: BTreeSet<Arc<str>>,
    /// `WCKeys=` of users, of which one suffices.
    pub wckeys: BTreeSet<Arc<str>>,
    /// `DefaultWCKey=` of users.
    pub default_wckeys: BTreeSet<Arc<str>>,
    /// `AdminLevel=` of users.
    pub admin_level: Option<AdminLevel>,
    /// `Description=` of accounts and QOS.
    pub descriptions: BTreeSet<Arc<str>>,
    /// `Organization=` of accounts.
    pub organizations: BTreeSet<Arc<str>>,
    /// `Cluster=`: names in lower case.
    pub clusters: BTreeSet<Arc<str>>,
    /// True if only other clusters are named, so that nothing is selected.
    pub elsewhere: bool,
}

impl Which {
    /// True if there is no condition besides clusters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Which { clusters, elsewhere, .. } = self;
        *self == Which { clusters: clusters.clone(), elsewhere: *elsewhere, ..Which::default() }
    }

    /// True if a condition selects some associations of an entity rather than all of them.
    #[must_use]
    pub fn narrows(&self) -> bool {
        !self.partitions.is_empty() || !self.qos.is_empty()
    }
}

/// Reads conditions.
///
/// # Errors
/// Slurm's message about an unknown key.
pub fn which(entity: Entity, cluster: &str, words: &[Word]) -> Result<Which, String> {
    let mut found = Which::default();
    for word in words {
        let lower = || word.lower();
        let plain = || word.names().map(Arc::from);
        match () {
            () if word.key.is_empty() || word.is("Names", 1) => match entity {
                Entity::User => found.names.extend(plain()),
                Entity::Coordinator => found.users.extend(plain()),
                _ => found.names.extend(lower()),
            },
            () if word.is("Clusters", 1) => {
                found.elsewhere |= word.names().all(|name| !name.eq_ignore_ascii_case(cluster));
                found.clusters.extend(lower());
            }
            () if entity == Entity::Qos && (word.is("QosLevel", 1) || word.is("Ids", 1)) => {
                found.names.extend(lower());
            }
            () if entity == Entity::Qos && word.is("Description", 1) => found.descriptions.extend(plain()),
            // Slurm prints this name of its own code in the message.
            () if entity == Entity::Qos => {
                return Err(unknown_condition(word).replace("value", "SLURM_PRINT_VALUE"));
            }
            () if entity == Entity::Account && (word.is("Accounts", 1) || word.is("Acct", 4)) => {
                found.names.extend(lower());
            }
            () if entity == Entity::User && word.is("Users", 1) => found.names.extend(plain()),
            () if entity == Entity::User && word.is("AdminLevel", 2) => {
                found.admin_level =
                    Some(AdminLevel::read(&word.value).ok_or_else(|| unknown_condition(word))?);
            }
            () if entity == Entity::User && word.is("DefaultAccount", 8) => {
                found.default_accounts.extend(lower())
            }
            () if entity == Entity::User && word.is("DefaultWCKey", 8) => {
                found.default_wckeys.extend(lower())
            }
            () if entity == Entity::User && word.is("WCKeys", 1) => found.wckeys.extend(lower()),
            () if entity == Entity::Account && word.is("Description", 1) => {
                found.descriptions.extend(plain())
            }
            () if entity == Entity::Account && word.is("Organization", 1) => {
                found.organizations.extend(plain())
            }
            () if word.is("Accounts", 1) || word.is("Acct", 4) => found.accounts.extend(lower()),
            () if word.is("Users", 1) => found.users.extend(word.names_or_none().map(Arc::from)),
            () if word.is("Partitions", 4) => found.partitions.extend(plain()),
            () if word.is("Parents", 4) => {
                found.parents.extend(word.names_or_none().map(|name| name.to_lowercase().into()));
            }
            () if word.is("QosLevel", 1) => found.qos.extend(lower()),
            () if entity == Entity::Association => return Err(format!(" Unknown condition: {word}")),
            () => return Err(unknown_condition(word)),
        }
    }
    Ok(found)
}

fn unknown_condition(word: &Word) -> String {
    format!(" Unknown condition: {word}\n Use keyword 'set' to modify value")
}

fn unknown_option(word: &Word) -> String {
    format!(" Unknown option: {word}\n Use keyword 'where' to modify condition")
}

/// The message about a value that cannot be read.
fn bad_value(sentence: &str, word: &Word) -> String {
    format!("sacctmgr: error: {sentence}\n{}", unknown_option(word))
}

/// The message about a key that Spur does not support.
fn refused(word: &Word, why: &str) -> String {
    format!(" {}: not supported by Spur: {why}", word.key)
}

/// Splits the settings of an added entity: the names of `Cluster=`, in lower case, and the settings with
/// other keys.
#[must_use]
pub fn split_clusters(words: Vec<Word>) -> (BTreeSet<Arc<str>>, Vec<Word>) {
    let (clusters, others): (Vec<Word>, Vec<Word>) =
        words.into_iter().partition(|word| word.is("Clusters", 2));
    (clusters.iter().flat_map(Word::lower).collect(), others)
}

/// Reads the settings of accounts.
///
/// # Errors
/// Slurm's message about an unknown key or a bad value.
pub fn account_set(words: &[Word]) -> Result<AccountSet, String> {
    let mut set = AccountSet::default();
    for word in words {
        match () {
            () if word.is("Description", 1) => set.description = Some(word.value.as_str().into()),
            () if word.is("Organization", 1) => set.organization = Some(word.value.as_str().into()),
            () if word.is("Parent", 1) => set.parent = Some(word.value.to_lowercase().into()),
            () => set.association.read(word)?,
        }
    }
    Ok(set)
}

/// Reads settings of users.
///
/// # Errors
/// Slurm's message about an unknown key or a bad value.
pub fn user_set(words: &[Word]) -> Result<UserSet, String> {
    let mut set = UserSet::default();
    for word in words {
        set.read(word)?;
    }
    Ok(set)
}

/// Reads the details of users to add.
///
/// # Errors
/// Slurm's message about an unknown key or a bad value.
pub fn user_add(words: &[Word]) -> Result<UserAdd, String> {
    let mut add = UserAdd::default();
    for word in words {
        match () {
            () if word.is("Accounts", 1) || word.is("Acct", 4) => add.accounts.extend(word.lower()),
            () if word.is("Partitions", 4) => add.partitions.extend(word.names().map(Arc::from)),
            () if word.is("Coordinators", 2) => add.coordinates.extend(word.lower()),
            () if word.is("WCKeys", 1) => add.wckeys.extend(word.lower()),
            () => add.set.read(word)?,
        }
    }
    Ok(add)
}

impl UserSet {
    fn read(&mut self, word: &Word) -> Result<(), String> {
        match () {
            () if word.is("AdminLevel", 2) => {
                let level = AdminLevel::read(&word.value);
                self.admin_level = Some(
                    level.ok_or_else(|| bad_value(&format!("Invalid admin level ({})", word.value), word))?,
                );
            }
            () if word.is("DefaultAccount", 8) => {
                self.default_account = Some(word.value.to_lowercase().into())
            }
            () if word.is("DefaultWCKey", 8) => self.default_wckey = Some(word.value.to_lowercase().into()),
            () if word.is("NewName", 1) => {
                return Err(refused(word, "a user has the name of his login; add one and delete the other"));
            }
            () => self.association.read(word)?,
        }
        Ok(())
    }
}

impl AssociationSet {
    /// True if nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The settings `RawUsage=0` and nothing else.
    #[must_use]
    pub fn only_clears_usage() -> Self {
        Self { clears_usage: true, ..Self::default() }
    }

    /// Reads settings of the cluster.
    ///
    /// # Errors
    /// Slurm's message about an unknown key or a bad value.
    pub fn of_words(words: &[Word]) -> Result<Self, String> {
        let mut set = Self::default();
        words.iter().try_for_each(|word| set.read(word))?;
        Ok(set)
    }

    fn read(&mut self, word: &Word) -> Result<(), String> {
        match () {
            () if word.is("Fairshare", 1) || word.is("Shares", 1) => {
                let shares = word
                    .value
                    .parse()
                    .map_err(|_| bad_value(&format!("Invalid value for FairShare ({})", word.value), word))?;
                self.shares = Some(shares);
            }
            () if word.is("QosLevel", 1) => self.qos.extend(word.lists()),
            () if word.is("DefaultQOS", 8) => {
                let name = word.value.to_lowercase();
                self.default_qos = Some((!matches!(&*name, "" | "-1")).then(|| name.into()));
            }
            () if word.is("RawUsage", 3) => self.clears_usage = word.is_zero()?,
            () => word.add_limit(LimitKind::is_of_associations, &mut self.limits)?,
        }
        Ok(())
    }
}

impl Word {
    /// Reads the word as a limit and adds it to others.
    fn add_limit(
        &self,
        admit: fn(LimitKind) -> bool,
        limits: &mut Vec<(LimitKind, LimitChange)>,
    ) -> Result<(), String> {
        let Some(named) = limits::limit_named(&self.key, admit) else { return Err(unknown_option(self)) };
        let change = limits::read_named(&named, &self.value);
        limits::add_change(limits, named.kind, change.map_err(|sentence| bad_value(&sentence, self))?);
        Ok(())
    }

    /// Reads the value of `RawUsage`, which may only be 0.
    fn is_zero(&self) -> Result<bool, String> {
        match self.value.parse::<u64>() {
            Ok(0) => Ok(true),
            _ => Err("sacctmgr: error: Raw usage can only be set to 0 (zero)".to_owned()),
        }
    }

    /// Reads changes of a list of names in lower case. A sign may also precede each name, as in Slurm's
    /// dumps: `QOS='+a,-b'`.
    fn lists(&self) -> Vec<ListChange> {
        if self.sign == Sign::Is && matches!(self.value.as_str(), "" | "-1") {
            return vec![self.list()];
        }
        let mut changes: Vec<ListChange> = Vec::new();
        let mut sign = self.sign;
        for name in self.names() {
            let (own, name) = match (name.strip_prefix('+'), name.strip_prefix('-')) {
                (Some(name), _) => (Sign::Plus, name),
                (None, Some(name)) => (Sign::Minus, name),
                (None, None) => (sign, name),
            };
            sign = own;
            let name = Arc::from(name.to_lowercase());
            match changes.last_mut().filter(|last| last.sign == sign) {
                Some(last) => drop(last.names.insert(name)),
                None => changes.push(ListChange { sign, names: BTreeSet::from([name]) }),
            }
        }
        changes
    }

    /// Reads a list of names in lower case. A sign may also precede the first name.
    fn list(&self) -> ListChange {
        let (sign, value) = match (self.sign, self.value.strip_prefix('+'), self.value.strip_prefix('-')) {
            (Sign::Is, Some(value), _) => (Sign::Plus, value),
            (Sign::Is, None, Some(value)) if value != "1" => (Sign::Minus, value),
            (Sign::Is, None, Some(_)) => (Sign::Is, ""),
            (sign, ..) => (sign, self.value.as_str()),
        };
        let names = value.split(',').map(str::trim).filter(|name| !name.is_empty());
        ListChange { sign, names: names.map(|name| name.to_lowercase().into()).collect() }
    }
}

impl ListChange {
    /// The list after the change.
    #[must_use]
    pub fn apply(&self, list: &BTreeSet<Arc<str>>) -> BTreeSet<Arc<str>> {
        match self.sign {
            Sign::Is => self.names.clone(),
            Sign::Plus => list.union(&self.names).cloned().collect(),
            Sign::Minus => list.difference(&self.names).cloned().collect(),
        }
    }
}

impl QosSet {
    /// The QOS with these settings applied. Names of QOS to preempt are not resolved.
    #[must_use]
    pub fn apply(&self, before: &Qos) -> Qos {
        let mut made = before.clone();
        made.description = self.description.clone().unwrap_or(made.description);
        made.priority = self.priority.unwrap_or(made.priority);
        made.preempt_mode = self.preempt_mode.unwrap_or(made.preempt_mode);
        made.grace_time = self.grace_time.unwrap_or(made.grace_time);
        made.exempt_time = self.exempt_time.unwrap_or(made.exempt_time);
        made.usage_factor = self.usage_factor.unwrap_or(made.usage_factor);
        made.usage_threshold = self.usage_threshold.unwrap_or(made.usage_threshold);
        made.limit_factor = self.limit_factor.unwrap_or(made.limit_factor);
        for (kind, change) in &self.limits {
            made.limits.change(*kind, change);
        }
        if let Some((sign, flags)) = &self.flags {
            match sign {
                Sign::Is => made.flags.clone_from(flags),
                Sign::Plus => made.flags.extend(flags),
                Sign::Minus => made.flags.retain(|flag| !flags.contains(flag)),
            }
        }
        let list = |list: &[Arc<str>]| list.iter().cloned().collect::<BTreeSet<_>>();
        if let Some(change) = &self.allow_groups {
            made.allow_groups = change.apply(&list(&made.allow_groups)).into_iter().collect();
        }
        if let Some(change) = &self.allow_accounts {
            made.allow_accounts = change.apply(&list(&made.allow_accounts)).into_iter().collect();
        }
        if let Some(change) = &self.preempt {
            made.preempt = change.apply(&made.preempt);
        }
        made
    }
}

/// Names as they are written: a comma list in which brackets hold ranges of numbers, `u[1-3],x`.
///
/// # Errors
/// Brackets that cannot be read.
pub fn names(text: &str) -> Result<Vec<String>, String> {
    if !text.contains('[') {
        return Ok(text
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect());
    }
    let list: crate::text::hostlist::HostList =
        text.parse().map_err(|error: crate::text::ParseError| error.to_string())?;
    Ok(list.iter().map(|name| name.to_string()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Word> {
        text.split_whitespace().map(Word::read).collect()
    }

    #[test]
    fn keys_may_be_cut() {
        let set = account_set(&words("desc='x' org=uni fair=10 maxt=3 pa=sci")).unwrap_err();
        assert!(set.starts_with(" Unknown option: maxt=3"), "{set}");
        let set = account_set(&words("Desc='x' org=uni fair=10 maxjobs=3 parent=Sci qos+=High")).unwrap();
        assert_eq!(set.parent.as_deref(), Some("sci"));
        assert_eq!(set.association.shares, Some(Shares::Raw(10)));
        let qos = set.association.qos[0].clone();
        assert_eq!((qos.sign, qos.names.first().map(|name| &**name)), (Sign::Plus, Some("high")));
        let add = user_add(&words("account=a,b partition=p adminlevel=op")).unwrap();
        assert_eq!((add.accounts.len(), add.set.admin_level), (2, Some(AdminLevel::Operator)));
    }

    #[test]
    fn conditions_are_slurms() {
        let found = which(Entity::User, "c", &words("alice account=chem cluster=c")).unwrap();
        assert!(found.names.contains("alice") && found.accounts.contains("chem") && !found.elsewhere);
        assert!(which(Entity::User, "c", &words("cluster=d")).unwrap().elsewhere);
        let error = which(Entity::User, "c", &words("foo=bar")).unwrap_err();
        assert_eq!(error, " Unknown condition: foo=bar\n Use keyword 'set' to modify value");
    }

    #[test]
    fn qos_fields_are_read() {
        let text =
            "priority=100 preempt=low flags=DenyOnLimit,noreserve maxwall=60 MaxTRESPU=cpu=10 gracetime=90";
        let set = qos_set(&words(text)).unwrap();
        assert_eq!((set.priority, set.limits.len(), set.grace_time), (Some(100), 2, Some(Some(Seconds(90)))));
        assert!(qos_set(&words("flags=Foo")).is_err() && qos_set(&words("foo=1")).is_err());
    }

    #[test]
    fn brackets_are_ranges() {
        assert_eq!(names("u[1-3],x").unwrap(), ["u1", "u2", "u3", "x"]);
        assert_eq!(names("a, b").unwrap(), ["a", "b"]);
    }
}
