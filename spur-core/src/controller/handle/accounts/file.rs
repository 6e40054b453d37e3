//! The `[[qos]]` sections of the configuration: taken over when the policy tree begins, and only compared
//! afterwards.

use std::sync::Arc;

use super::super::super::{Ctx, Reply};
use crate::cluster::{AccountChange, Accounts, Cluster, Event};
use crate::model::accounts::{
    Account, AdminLevel, Association, AssociationId, NORMAL, Qos, QosAccess, ROOT, User,
};
use crate::model::config::QosConfig;

/// Begins the policy tree, unless it exists: account and user `root`, QOS `normal`, and the QOS of the file.
pub(in super::super::super) fn begin(ctx: &mut Ctx<'_>, file: &[QosConfig]) -> Reply {
    if !ctx.cluster().accounts().has_begun() {
        ctx.emit(Event::AccountsChanged { by: ROOT.into(), changes: first(file) });
    }
    Reply::Done
}

fn first(file: &[QosConfig]) -> Vec<AccountChange> {
    let root: Arc<str> = ROOT.into();
    let mut changes = vec![AccountChange::FileQos(file.to_vec())];
    let own = file.iter().find(|qos| *qos.name == *NORMAL);
    let normal = QosConfig { name: NORMAL.into(), ..QosConfig::default() };
    let normal = Qos::of_config(1, own.unwrap_or(&normal));
    let description =
        if own.is_none() { "Normal QOS default".into() } else { Arc::clone(&normal.description) };
    changes.push(AccountChange::Qos(Arc::new(Qos { description, ..normal })));
    let others = (2..).zip(file.iter().filter(|qos| *qos.name != *NORMAL));
    changes.extend(others.map(|(id, qos)| AccountChange::Qos(Arc::new(Qos::of_config(id, qos)))));
    changes.push(AccountChange::Account(Arc::new(Account {
        name: Arc::clone(&root),
        description: "default root account".into(),
        organization: Arc::clone(&root),
        ..Account::default()
    })));
    let all = std::iter::once(NORMAL.into()).chain(file.iter().map(|qos| Arc::clone(&qos.name))).collect();
    changes.push(AccountChange::Association(Arc::new(Association {
        id: AssociationId(1),
        account: Arc::clone(&root),
        qos: QosAccess::These(all),
        ..Association::default()
    })));
    changes.push(AccountChange::User(Arc::new(User {
        name: Arc::clone(&root),
        default_account: Some(Arc::clone(&root)),
        admin_level: AdminLevel::Administrator,
        ..User::default()
    })));
    changes.push(AccountChange::Association(Arc::new(Association {
        id: AssociationId(2),
        account: Arc::clone(&root),
        user: Some(root),
        ..Association::default()
    })));
    changes
}

/// The differences between `file` and the sections last compared, one sentence each with the `sacctmgr`
/// command for the change.
pub(in super::super::super) fn compare(cluster: &Cluster, file: &[QosConfig]) -> Vec<String> {
    let tree = cluster.accounts();
    if !tree.has_begun() || tree.file_qos() == file {
        return Vec::new();
    }
    let sentence = |name: &str, command: String| {
        format!(
            "[[qos]] {name}: the file's sections have no effect once QOS are kept; the change is made by: {command}"
        )
    };
    let mut found = Vec::new();
    for qos in file {
        let before = tree.file_qos().iter().find(|before| before.name == qos.name);
        if before != Some(qos) {
            found.extend(command(tree, qos).map(|command| sentence(&qos.name, command)));
        }
    }
    for gone in tree.file_qos().iter().filter(|before| file.iter().all(|qos| qos.name != before.name)) {
        if tree.qos_named(&gone.name).is_some() {
            found.push(sentence(&gone.name, format!("sacctmgr delete qos {}", gone.name)));
        }
    }
    found
}

/// The command that makes a QOS of the tree equal to a section; `None` if it is equal already.
fn command(tree: &Accounts, section: &QosConfig) -> Option<String> {
    let is = tree.qos_named(&section.name).map(|qos| qos.config());
    let verb = if is.is_some() { "modify" } else { "add" };
    let is = is.unwrap_or_else(|| QosConfig { name: Arc::clone(&section.name), ..QosConfig::default() });
    let list = |names: &[Arc<str>]| names.join(",");
    let span = |seconds: Option<crate::text::time::Seconds>| {
        seconds.map_or_else(
            || "-1".to_owned(),
            |seconds| crate::text::time::TimeLimit::Seconds(seconds.0).long(),
        )
    };
    let mode = |mode: Option<crate::model::config::PreemptMode>| {
        mode.map_or_else(|| "cluster".to_owned(), |mode| format!("{mode:?}").to_lowercase())
    };
    let wall = |limit: Option<crate::text::time::TimeLimit>| {
        limit
            .and_then(crate::text::time::TimeLimit::seconds)
            .map_or_else(|| "-1".to_owned(), |seconds| seconds.div_ceil(60).to_string())
    };
    let sorted = |names: &[Arc<str>]| names.iter().cloned().collect::<std::collections::BTreeSet<_>>();
    let settings = [
        (is.priority != section.priority, format!("Priority={}", section.priority)),
        (sorted(&is.preempt) != sorted(&section.preempt), format!("Preempt={}", list(&section.preempt))),
        (is.preempt_mode != section.preempt_mode, format!("PreemptMode={}", mode(section.preempt_mode))),
        (is.grace_time != section.grace_time, format!("GraceTime={}", span(section.grace_time))),
        (is.exempt_time != section.exempt_time, format!("PreemptExemptTime={}", span(section.exempt_time))),
        (wall(is.max_wall) != wall(section.max_wall), format!("MaxWall={}", wall(section.max_wall))),
        (
            sorted(&is.allow_groups) != sorted(&section.allow_groups),
            format!("AllowGroups={}", list(&section.allow_groups)),
        ),
        (
            sorted(&is.allow_accounts) != sorted(&section.allow_accounts),
            format!("AllowAccounts={}", list(&section.allow_accounts)),
        ),
    ];
    let set: Vec<String> =
        settings.into_iter().filter(|(differs, _)| *differs).map(|(_, text)| text).collect();
    let name = &section.name;
    match (verb, set.is_empty()) {
        ("add", true) => Some(format!("sacctmgr add qos {name}")),
        ("add", false) => Some(format!("sacctmgr add qos {name} {}", set.join(" "))),
        (_, true) => None,
        (_, false) => Some(format!("sacctmgr modify qos {name} set {}", set.join(" "))),
    }
}
