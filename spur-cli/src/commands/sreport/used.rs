//! Reports of the usage of users, by account and by wckey.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use nix::unistd::User;
use spur_proto::v1::AccountingRow;

use super::amount::Unit;
use super::columns::{Used, UserAndGroup};
use super::{Conditions, Facts, Kind};

impl Facts {
    /// Returns an account and its ancestors in the tree.
    fn chain<'a>(&'a self, account: &'a str) -> Vec<&'a str> {
        let mut chain = vec![account];
        let mut next = account;
        while let Some(node) = self.accounts.iter().find(|node| node.name == next && !node.parent.is_empty())
        {
            next = &node.parent;
            chain.push(next);
        }
        chain
    }

    /// Returns the lines of a report.
    pub(super) fn used(
        &self,
        kind: Kind,
        unit: Unit,
        asked: &Conditions,
        rows: &[AccountingRow],
    ) -> Vec<Used> {
        let mut all = Vec::new();
        let mut chains: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for tres in &self.tres {
            // The account or the wckey of each user.
            let by_wckey = matches!(kind, Kind::UserByWcKey | Kind::WcKeyByUser);
            let mut sums: BTreeMap<(&str, &str), u128> = BTreeMap::new();
            for row in rows {
                let group = if by_wckey { &row.wckey } else { &row.account };
                *sums.entry((group, &row.user)).or_default() += self.seconds(row, tres);
            }
            sums.retain(|_, seconds| *seconds > 0);
            let one = |group: &str, login: &str, seconds: u128| Used {
                cluster: self.cluster.clone(),
                account: if by_wckey { String::new() } else { group.to_owned() },
                wckey: if by_wckey { group.to_owned() } else { String::new() },
                login: login.to_owned(),
                proper: proper(login),
                tres: tres.to_string(),
                seconds,
                shown: unit.text(seconds, self.total(tres)),
                energy: unit.text(0, 0),
            };
            all.extend(sums.iter().map(|((account, user), seconds)| one(account, user, *seconds)));
            if kind == Kind::AccountByUser {
                let mut accounts: BTreeMap<&str, u128> = BTreeMap::new();
                for ((account, _), seconds) in &sums {
                    let chain = chains.entry(account).or_insert_with(|| self.chain(account));
                    chain.iter().for_each(|above| *accounts.entry(above).or_default() += seconds);
                }
                all.extend(accounts.into_iter().map(|(account, seconds)| one(account, "", seconds)));
            }
            if kind == Kind::WcKeyByUser {
                let mut keys: BTreeMap<&str, u128> = BTreeMap::new();
                sums.iter().for_each(|((key, _), seconds)| *keys.entry(key).or_default() += seconds);
                all.extend(keys.into_iter().map(|(key, seconds)| one(key, "", seconds)));
            }
        }
        self.sort(kind, asked, &mut all);
        all
    }

    /// Sorts rows: accounts in the order of the tree, wckeys by name, and users by their use of the first
    /// resource, largest first. Resources stay in their order.
    fn sort(&self, kind: Kind, asked: &Conditions, all: &mut Vec<Used>) {
        let place = |account: &str| {
            let found = self.accounts.iter().position(|node| node.name == account);
            found.unwrap_or(usize::MAX)
        };
        match kind {
            Kind::AccountByUser => {
                all.sort_by_cached_key(|row| (place(&row.account), row.account.clone(), row.login.clone()));
                if asked.tree {
                    for row in all.iter_mut() {
                        let node = self.accounts.iter().find(|node| node.name == row.account);
                        let depth = node.map_or(0, |node| node.depth + usize::from(!row.login.is_empty()));
                        row.account.insert_str(0, &" ".repeat(depth));
                    }
                }
            }
            Kind::WcKeyByUser => all.sort_by(|a, b| (&a.wckey, &a.login).cmp(&(&b.wckey, &b.login))),
            _ => {
                let ranks = self.ranks(all);
                let rank = |row: &Used| ranks.get(&row.user_and_group()).copied().unwrap_or(usize::MAX);
                if kind == Kind::TopUsage {
                    all.retain(|row| rank(row) < asked.top.unwrap_or(10));
                }
                all.sort_by_cached_key(|row| (rank(row), row.user_and_group()));
            }
        }
    }

    /// Returns the positions of users by their use of the first resource, largest first.
    fn ranks(&self, all: &[Used]) -> BTreeMap<UserAndGroup, usize> {
        let first = self.tres.first().map(ToString::to_string).unwrap_or_default();
        let used = all.iter().filter(|row| row.tres == first);
        let mut used: Vec<(Reverse<u128>, UserAndGroup)> =
            used.map(|row| (Reverse(row.seconds), row.user_and_group())).collect();
        used.sort();
        used.into_iter().map(|(_, name)| name).zip(0..).collect()
    }
}

/// Returns the full name of a user, as this host knows it.
fn proper(login: &str) -> String {
    let found = User::from_name(login).ok().flatten().filter(|_| !login.is_empty());
    let gecos = found.map(|user| user.gecos.to_string_lossy().into_owned()).unwrap_or_default();
    gecos.split(',').next().unwrap_or_default().to_owned()
}
