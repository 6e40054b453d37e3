//! Changes and records of the policy tree.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spur_core::cluster::Holder;
use spur_core::cluster::limit_use::LimitUse;
use spur_core::cluster::{Accounts, Cluster, Placed};
use spur_core::controller::MOST_AT_ONCE;
use spur_core::model::accounts::ask::{self, Ask, AssociationSet, Entity, LoadLine, Which, Word};
use spur_core::model::accounts::{Account, Association, AssociationId, Limits, Qos, QosAccess, Shares, User};
use spur_core::text::tres::Tres;

use crate::v1;

/// The hint that `sacctmgr` adds to an unknown option of commands with conditions.
const HINT: &str = "\n Use keyword 'where' to modify condition";

/// Parses a change of the policy tree. `cluster` is the name of this cluster.
///
/// # Errors
/// The sentence of `sacctmgr` about the part that cannot be read.
pub fn read(cluster: &str, request: &v1::ChangeAccountsRequest) -> Result<Ask, String> {
    let count = request.names.len().max(request.lines.len());
    if count > MOST_AT_ONCE {
        return Err(format!(" {count} entities in one request, where {MOST_AT_ONCE} is the most"));
    }
    let words = |texts: &[String]| texts.iter().map(|text| Word::read(text)).collect::<Vec<Word>>();
    if request.verb == "load" {
        let lines = request.lines.iter().map(line).collect::<Result<_, _>>()?;
        let clusters = ask::split_clusters(words(&request.conditions)).0;
        return Ok(within(clusters, Ask::Load { lines, clean: request.clean }));
    }
    let unknown = || format!("invalid keyword: {} {}", request.verb, request.entity);
    let entity = entity(&request.entity).ok_or_else(unknown)?;
    let mut settings = words(&request.settings);
    let mut clusters = BTreeSet::new();
    if request.verb == "add" {
        (clusters, settings) = ask::split_clusters(settings);
    }
    let lower = || request.names.iter().map(|name| Arc::from(name.to_lowercase())).collect::<Vec<_>>();
    let plain = || request.names.iter().map(|name| Arc::from(name.as_str())).collect();
    let which = || -> Result<Which, String> {
        let mut which = ask::which(entity, cluster, &words(&request.conditions))?;
        let names = request.names.iter().map(|name| Word::read(name));
        let named = ask::which(entity, cluster, &names.collect::<Vec<_>>())?;
        which.names.extend(named.names);
        which.users.extend(named.users);
        // The request as a whole is for these clusters.
        which.elsewhere = false;
        Ok(which)
    };
    // Entities of clusters are their trees: the names are those of clusters.
    let named = || which().map(|which| which.names.into_iter().chain(which.clusters).collect());
    let ask = match (request.verb.as_str(), entity) {
        ("add", Entity::Account) => Ask::AddAccounts(lower(), ask::account_set(&settings)?),
        ("add", Entity::User) => {
            // As in Slurm, the hint is missing here.
            let add = ask::user_add(&settings);
            Ask::AddUsers(plain(), add.map_err(|text| text.replace(HINT, ""))?)
        }
        ("add", Entity::Qos) => Ask::AddQos(lower(), ask::qos_set(&settings)?),
        ("add", Entity::Coordinator) => Ask::AddCoordinators(which()?),
        ("modify", Entity::Account) => Ask::ModifyAccounts(which()?, ask::account_set(&settings)?),
        ("modify", Entity::User) => Ask::ModifyUsers(which()?, ask::user_set(&settings)?),
        ("modify", Entity::Qos) => Ask::ModifyQos(which()?, ask::qos_set(&settings)?),
        ("add", Entity::Cluster) => {
            Ask::AddClusters(lower().into_iter().collect(), AssociationSet::of_words(&settings)?)
        }
        ("modify", Entity::Cluster) => {
            clusters = named()?;
            Ask::ModifyCluster(AssociationSet::of_words(&settings)?)
        }
        ("delete", Entity::Cluster) => Ask::DeleteClusters(named()?),
        ("delete", Entity::Account) => Ask::DeleteAccounts(which()?),
        ("delete", Entity::User) => Ask::DeleteUsers(which()?),
        ("delete", Entity::Qos) => Ask::DeleteQos(which()?),
        ("delete", Entity::Coordinator) => Ask::DeleteCoordinators(which()?),
        _ => return Err(unknown()),
    };
    if entity == Entity::Coordinator || (request.verb != "add" && entity != Entity::Cluster) {
        clusters = which()?.clusters;
    }
    Ok(within(clusters, ask))
}

/// Restricts a request to clusters; without any, the request is for all.
fn within(clusters: BTreeSet<Arc<str>>, ask: Ask) -> Ask {
    if clusters.is_empty() { ask } else { Ask::In(clusters, Box::new(ask)) }
}

fn entity(name: &str) -> Option<Entity> {
    Some(match name {
        "account" => Entity::Account,
        "user" => Entity::User,
        "qos" => Entity::Qos,
        "coordinator" => Entity::Coordinator,
        "cluster" => Entity::Cluster,
        "association" => Entity::Association,
        _ => return None,
    })
}

/// Returns the QOS that an association sets, as a dump writes them.
fn set_qos(access: &QosAccess) -> Vec<String> {
    match access {
        QosAccess::Inherited => Vec::new(),
        QosAccess::These(these) => these.iter().map(ToString::to_string).collect(),
        QosAccess::Changed { more, less } => {
            let more = more.iter().map(|name| format!("+{name}"));
            more.chain(less.iter().map(|name| format!("-{name}"))).collect()
        }
    }
}

fn line(line: &v1::DumpLine) -> Result<(u32, LoadLine), String> {
    let words: Vec<Word> = line.settings.iter().map(|text| Word::read(text)).collect();
    let (lower, parent) =
        (|| Arc::from(line.name.to_lowercase()), Arc::<str>::from(line.parent.to_lowercase()));
    let loaded = match line.kind.as_str() {
        "Cluster" => AssociationSet::of_words(&words).map(LoadLine::Cluster),
        "Account" => ask::account_set(&words).map(|set| {
            let set = ask::AccountSet { parent: Some(parent), ..set };
            LoadLine::Account { name: lower(), set }
        }),
        "User" => ask::user_add(&words).map(|add| {
            let add = ask::UserAdd { accounts: vec![parent], ..add };
            LoadLine::User { name: line.name.as_str().into(), add }
        }),
        "QOS" => ask::qos_set(&words).map(|set| LoadLine::Qos { name: lower(), set }),
        "Usage" => ask::UsageLine::of_words(parent, &line.name, &words).map(LoadLine::Usage),
        other => Err(format!(" Misformatted line: there is no {other}")),
    };
    let number = line.number;
    loaded.map(|loaded| (number, loaded)).map_err(|text| {
        let text = text.strip_suffix(HINT).unwrap_or(&text);
        format!("{text}\n Problem with line({number})")
    })
}

/// Parses the conditions of a list.
///
/// # Errors
/// The sentence of `sacctmgr` about the part that cannot be read.
pub fn conditions(cluster: &str, request: &v1::ListAccountsRequest) -> Result<(Entity, Which), String> {
    let entity = entity(&request.entity).ok_or_else(|| format!("invalid keyword: {}", request.entity))?;
    let words = request.names.iter().chain(&request.conditions).map(|text| Word::read(text));
    let which = ask::which(entity, cluster, &words.collect::<Vec<_>>())?;
    Ok((entity, which))
}

/// Encodes an account.
#[must_use]
pub fn account(tree: &Accounts, account: &Account) -> v1::AccountRecord {
    let own = tree.of_account(&account.name);
    let above =
        own.into_iter().flat_map(|own| tree.chain(own)).filter_map(|next| tree.account(&next.account));
    let all: BTreeSet<&Arc<str>> = above.flat_map(|above| &above.coordinators).collect();
    v1::AccountRecord {
        name: account.name.to_string(),
        description: account.description.to_string(),
        organization: account.organization.to_string(),
        coordinators: account.coordinators.iter().map(ToString::to_string).collect(),
        deleted: account.deleted,
        all_coordinators: all.into_iter().map(ToString::to_string).collect(),
    }
}

/// Encodes a user.
#[must_use]
pub fn user(tree: &Accounts, user: &User) -> v1::UserRecord {
    let coordinated = tree.accounts().filter(|account| account.coordinators.contains(&user.name));
    let below = tree.accounts().filter(|account| tree.coordinates(&user.name, &account.name));
    v1::UserRecord {
        name: user.name.to_string(),
        default_account: user.default_account.as_deref().unwrap_or_default().to_owned(),
        admin_level: user.admin_level.to_string(),
        coordinates: coordinated.map(|account| account.name.to_string()).collect(),
        all_coordinated: below.map(|account| account.name.to_string()).collect(),
        deleted: user.deleted,
        wckeys: user.wckeys.iter().map(ToString::to_string).collect(),
        default_wckey: user.default_wckey.as_deref().unwrap_or_default().to_owned(),
        cluster: String::new(),
    }
}

/// Encodes an association.
#[must_use]
pub fn association(tree: &Accounts, placed: Placed<'_>) -> v1::AssociationRecord {
    let Placed { association, depth } = placed;
    let text = |name: &Option<Arc<str>>| name.as_deref().unwrap_or_default().to_owned();
    let owner = association.user.as_ref().and_then(|name| tree.user(name));
    let is_default = owner.is_some_and(|user| user.default_account.as_ref() == Some(&association.account));
    v1::AssociationRecord {
        id: association.id.0,
        account: association.account.to_string(),
        user: text(&association.user),
        partition: text(&association.partition),
        parent: text(&association.parent),
        parent_id: tree.above(association).map_or(0, |above: &Arc<Association>| above.id.0),
        depth: u32::try_from(depth).unwrap_or(u32::MAX),
        shares: association.shares.to_string(),
        qos: tree.qos_of(association).iter().map(ToString::to_string).collect(),
        own_qos: association.qos != QosAccess::Inherited,
        set_qos: set_qos(&association.qos),
        default_qos: tree.default_qos_of(association).as_deref().unwrap_or_default().to_owned(),
        own_default_qos: association.default_qos.is_some(),
        limits: limits(&tree.limits_of(association)),
        own_limits: limits(&association.limits),
        is_default,
        usage: None,
        lineage: lineage(tree, association),
        cluster: String::new(),
    }
}

/// Returns the path of an association from the top account down, in Slurm's notation of a lineage.
fn lineage(tree: &Accounts, association: &Arc<Association>) -> String {
    let accounts = tree.chain(association).filter(|above| above.user.is_none());
    let mut accounts: Vec<&str> = accounts.map(|above| &*above.account).collect();
    // `root` has no name in a lineage.
    accounts.pop();
    let own = association.user.iter().map(|user| format!("0-{user}/"));
    let partition = association.partition.iter().map(|name| format!("{name}/"));
    let accounts = accounts.into_iter().rev().map(|name| format!("{name}/"));
    std::iter::once("/".to_owned()).chain(accounts).chain(own).chain(partition).collect()
}

/// A user who shares without an association, as a child of an account.
#[must_use]
pub fn outsider(account: &Association, user: &str, depth: usize) -> v1::AssociationRecord {
    v1::AssociationRecord {
        account: account.account.to_string(),
        user: user.to_owned(),
        parent_id: account.id.0,
        depth: u32::try_from(depth).unwrap_or(u32::MAX),
        shares: Shares::default().to_string(),
        ..v1::AssociationRecord::default()
    }
}

/// Encodes the usage and fair share of an association or an outsider. `to_come` is the usage that running
/// jobs may still add.
#[must_use]
pub fn usage(cluster: &Cluster, holder: &Holder, to_come: &BTreeMap<Holder, Tres>) -> v1::UsageRecord {
    let (usage, shares) = (cluster.usage(), cluster.fair_shares());
    let raw = |holder: &Holder| usage.of(holder).map_or(0.0, |used| used.billing.real());
    let root = raw(&Holder::Association(AssociationId(1)));
    let standing = shares.standing(holder).copied().unwrap_or_default();
    v1::UsageRecord {
        raw: raw(holder),
        norm_shares: standing.norm_shares,
        norm_usage: if root == 0.0 { 0.0 } else { raw(holder) / root },
        effective_usage: standing.effective_usage,
        level: standing.level,
        factor: standing.factor,
        tres_seconds: usage.seconds(holder).to_string(),
        tres_run_seconds: to_come.get(holder).cloned().unwrap_or_default().to_string(),
    }
}

fn limits(limits: &Limits) -> Vec<v1::LimitValue> {
    limits.texts().map(|(kind, value)| v1::LimitValue { name: kind.name().to_owned(), value }).collect()
}

/// Encodes a QOS.
#[must_use]
pub fn qos(qos: &Qos) -> v1::QosRecord {
    let names = |names: &[Arc<str>]| names.iter().map(ToString::to_string).collect();
    let mode = qos.preempt_mode.map(|mode| format!("{mode:?}").to_lowercase());
    v1::QosRecord {
        id: qos.id,
        name: qos.name.to_string(),
        description: qos.description.to_string(),
        priority: qos.priority,
        preempt: qos.preempt.iter().map(ToString::to_string).collect(),
        preempt_mode: mode.unwrap_or_else(|| "cluster".to_owned()),
        grace_time: qos.grace_time.map(|span| span.0),
        preempt_exempt_time: qos.exempt_time.map(|span| span.0),
        flags: qos.flags.iter().map(ToString::to_string).collect(),
        usage_factor: qos.usage_factor,
        usage_threshold: qos.usage_threshold,
        limit_factor: qos.limit_factor,
        limits: limits(&qos.limits),
        allow_groups: names(&qos.allow_groups),
        allow_accounts: names(&qos.allow_accounts),
        deleted: false,
    }
}

/// Converts a limit, with its use and the accounts and QOS to which it applies.
#[must_use]
pub fn limit(tree: &Accounts, limit: &LimitUse) -> v1::LimitRecord {
    let rule = &limit.rule;
    let name = |(account, qos): &(Arc<str>, Option<Arc<str>>)| {
        format!("{account}/{}", qos.as_deref().unwrap_or_default())
    };
    v1::LimitRecord {
        name: rule.kind.short_name().to_owned(),
        resource: rule.tres.as_ref().map(ToString::to_string).unwrap_or_default(),
        most: rule.most,
        used: limit.used,
        is_minutes: rule.kind.is_of_minutes(),
        setter: rule.setter.to_string(),
        counts: if rule.kind.is_of_one_job() { "job".to_owned() } else { holder(tree, &rule.holder) },
        applies: limit.cases.iter().map(name).collect(),
        ..v1::LimitRecord::default()
    }
}

/// Returns the text for an entity whose jobs count for a limit.
fn holder(tree: &Accounts, holder: &Holder) -> String {
    let account_of = |id| tree.association(id).map_or("", |own| &*own.account);
    let qos_of = |number| tree.qos_numbered(number).map_or("", |qos| &*qos.name);
    match holder {
        Holder::Association(id) => match tree.association(*id).and_then(|own| own.user.as_deref()) {
            Some(user) => format!("user {user} in account {}", account_of(*id)),
            None => format!("account {}", account_of(*id)),
        },
        Holder::Outsider { account, user } => format!("user {user} in account {}", account_of(*account)),
        Holder::Qos(number) => format!("QOS {}", qos_of(*number)),
        Holder::QosUser { qos, user } => format!("user {user} in QOS {}", qos_of(*qos)),
        Holder::QosAccount { qos, account } => format!("account {account} in QOS {}", qos_of(*qos)),
    }
}
