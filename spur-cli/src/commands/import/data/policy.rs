//! The policy tree: `sacctmgr show qos -P` and `sacctmgr dump` as lines that `sacctmgr load` sends, and
//! `sshare -l -a -m -P` as the usage of associations.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, anyhow};
use spur_core::text::tres::TresKind;
use spur_proto::convert::accounts;
use spur_proto::v1::{AssociationRecord, ChangeAccountsRequest, DumpLine};

use super::table::Table;
use crate::commands::sacctmgr::dump;

/// Lines for the controller, and sentences about parts of the file without a counterpart.
#[derive(Default)]
pub(super) struct Lines {
    pub(super) lines: Vec<DumpLine>,
    pub(super) notes: Vec<String>,
}

/// Reads `sacctmgr show qos -P`.
///
/// # Errors
/// A file that cannot be read or is no such table.
pub(super) fn qos(path: &Path) -> anyhow::Result<Lines> {
    let table = Table::read(path, &["Name"], "sacctmgr show qos -P")?;
    let mut read = Lines { lines: Vec::new(), notes: table.notes.clone() };
    for row in &table.rows {
        let settings = table.columns().iter().filter(|column| !column.eq_ignore_ascii_case("Name"));
        let settings = settings.map(|column| (column, table.value(row, column)));
        let settings = settings.filter(|(_, value)| !value.is_empty());
        let line = DumpLine {
            number: u32::try_from(row.line).unwrap_or(u32::MAX),
            kind: "QOS".to_owned(),
            name: table.value(row, "Name").to_owned(),
            parent: String::new(),
            settings: settings.map(|(column, value)| format!("{column}={value}")).collect(),
        };
        read.take(line, &table.place(row.line));
    }
    Ok(read)
}

/// Reads a dump of `sacctmgr`.
///
/// # Errors
/// A file that cannot be read or is no dump.
pub(super) fn tree(path: &Path) -> anyhow::Result<Lines> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let lines = dump::lines(&String::from_utf8_lossy(&text)).map_err(|why| anyhow!("{name}:{why}"))?;
    let mut read = Lines::default();
    for line in lines {
        let place = format!("{name}:{}", line.number);
        read.take(line, &place);
    }
    Ok(read)
}

impl Lines {
    /// Takes the settings of a line that have a counterpart. The others are named, one sentence each.
    fn take(&mut self, line: DumpLine, place: &str) {
        let mut kept = DumpLine { settings: Vec::new(), ..line.clone() };
        for setting in line.settings {
            match refusal(DumpLine { settings: vec![setting.clone()], ..kept.clone() }) {
                None => kept.settings.push(setting),
                Some(why) => self.notes.push(format!("{place}: {setting} is left out: {why}")),
            }
        }
        self.lines.push(kept);
    }
}

/// Returns the reason for which a line cannot be read; `None` if it can.
fn refusal(line: DumpLine) -> Option<String> {
    let request = ChangeAccountsRequest {
        verb: "load".to_owned(),
        lines: vec![line],
        ..ChangeAccountsRequest::default()
    };
    let text = accounts::read("", &request).err()?;
    let sentence = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    Some(sentence.to_owned())
}

/// The key of an association: account, user and partition; the last two may be empty.
type Place = (String, String, String);

/// The associations of a cluster, by account, user and partition.
pub(super) struct Associations(BTreeSet<Place>);

impl Associations {
    /// Returns the keys of the records of a controller.
    pub(super) fn of(records: impl Iterator<Item = AssociationRecord>) -> Associations {
        Associations(records.map(|own| (own.account, own.user, own.partition)).collect())
    }
}

/// Reads `sshare -l -a -m -P`. With `known`, rows of other associations are named and left out.
///
/// # Errors
/// A file that cannot be read or is no such table.
pub(super) fn usage(path: &Path, known: Option<&Associations>) -> anyhow::Result<Lines> {
    let table = Table::read(path, &["Account", "User", "RawUsage"], "sshare -l -a -m -P")?;
    let mut read = Lines { lines: Vec::new(), notes: table.notes.clone() };
    let mut places: BTreeMap<Place, usize> = BTreeMap::new();
    for row in &table.rows {
        let value = |column| table.value(row, column);
        let place: Place =
            (value("Account").to_lowercase(), value("User").to_owned(), value("Partition").to_owned());
        let at = table.place(row.line);
        if let Some(first) = places.insert(place.clone(), row.line) {
            read.notes.push(format!(
                "{at}: left out: line {first} is of the same user and account; sshare -m adds the partition, which tells them \
                 apart"
            ));
            continue;
        }
        if known.is_some_and(|known| !known.0.contains(&place)) {
            let (account, user, partition) = &place;
            let partition =
                if partition.is_empty() { String::new() } else { format!(" in partition {partition}") };
            read.notes.push(format!(
                "{at}: left out: there is no association of user `{user}` in account {account}{partition}; \
                 its usage stays in the sums of the accounts above it"
            ));
            continue;
        }
        let mut settings = vec![format!("RawUsage={}", value("RawUsage"))];
        let (account, user, partition) = place;
        settings
            .extend(Some(partition).filter(|name| !name.is_empty()).map(|name| format!("Partition={name}")));
        let (tres, unknown) = known_tres(value("GrpTRESRaw"));
        settings.extend(Some(tres).filter(|tres| !tres.is_empty()).map(|tres| format!("GrpTRESRaw={tres}")));
        read.notes
            .extend(unknown.iter().map(|item| format!("{at}: {item} is left out: Spur does not count it")));
        let number = u32::try_from(row.line).unwrap_or(u32::MAX);
        let line = DumpLine { number, kind: "Usage".to_owned(), name: user, parent: account, settings };
        match refusal(line.clone()) {
            None => read.lines.push(line),
            Some(why) => read.notes.push(format!("{at}: left out: {why}")),
        }
    }
    Ok(read)
}

/// Separates the resources that Spur counts from others that are not zero.
fn known_tres(text: &str) -> (String, Vec<&str>) {
    let items = text.split(',').filter(|item| !item.is_empty());
    let is_known = |item: &&str| item.split('=').next().is_some_and(|kind| kind.parse::<TresKind>().is_ok());
    let (known, other): (Vec<&str>, Vec<&str>) = items.partition(is_known);
    (known.join(","), other.into_iter().filter(|item| !item.ends_with("=0")).collect())
}
