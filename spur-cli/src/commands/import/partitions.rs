//! Converts lines of partitions to `[[partitions]]`.

use std::collections::BTreeMap;

use spur_core::text::gather::is_layer_name;
use spur_core::text::hostlist::HostList;
use spur_core::text::time::{Seconds, TimeLimit};
use spur_core::text::weights::TresWeights;

use super::keys::Kind;
use super::lines::Pair;
use super::nodes::{Nodes, hostlist};
use super::page::Section;
use super::settings::{self, Common, Memory};
use super::source::{Entry, Notes};
use super::topology::Topologies;

/// Highest tier.
const MOST_TIER: u32 = 65_533;

/// Context for the conversion of partitions.
pub(super) struct Around<'a> {
    pub(super) nodes: &'a Nodes,
    pub(super) topologies: &'a Topologies,
    pub(super) common: &'a Common,
    /// Names of all partitions.
    pub(super) names: Vec<String>,
}

/// Returns the partitions in the order of the file, and the QOS that they name.
pub(super) fn partitions(
    entries: Vec<(String, Entry)>,
    around: &Around<'_>,
    notes: &mut Notes,
) -> (Vec<Section>, Vec<String>) {
    let default = entries.iter().rposition(|(_, entry)| {
        let says = |pair: &Pair| {
            pair.key.eq_ignore_ascii_case("Default") && settings::yes(&pair.value) == Some(true)
        };
        entry.clone().rest().iter().any(says)
    });
    let mut qos = Vec::new();
    let mut sections = Vec::new();
    for (index, (name, entry)) in entries.into_iter().enumerate() {
        let section = Section::new("[[partitions]]");
        let mut one = One { entry, section, around, notes, limits: BTreeMap::new() };
        sections.extend(one.read(&name, default == Some(index), &mut qos));
    }
    (sections, qos)
}

/// State of the conversion of one partition.
struct One<'a, 'b> {
    entry: Entry,
    section: Section,
    around: &'a Around<'a>,
    notes: &'b mut Notes,
    /// Limits in seconds and megabytes, by which defaults are checked.
    limits: BTreeMap<&'static str, u64>,
}

impl One<'_, '_> {
    fn note(&mut self, pair: &Pair, why: &str) {
        self.notes.tell(&mut self.section, pair, why);
    }

    fn read(&mut self, name: &str, is_default: bool, qos: &mut Vec<String>) -> Option<Section> {
        if !is_layer_name(name) {
            self.section.comment(format_args!(
                "PartitionName={name}: names consist of letters, digits, `_`, `-` and `.`"
            ));
            return Some(std::mem::take(&mut self.section).comments_only());
        }
        self.section.text("name", name);
        self.members(name);
        if is_default {
            self.section.plain("default", true);
        }
        let _ = self.entry.pair("Default");
        self.state();
        self.limits();
        self.tiers();
        self.sharing();
        self.access();
        self.qos(qos);
        self.alternate(name);
        self.memory();
        self.of_gpu();
        self.preemption();
        self.topology();
        let left = std::mem::take(&mut self.entry).rest();
        let switched_off = |pair: &Pair| {
            settings::yes(&pair.value) == Some(false) || pair.value == "ALL" || pair.value == "(null)"
        };
        let left = left.into_iter().filter(|pair| !switched_off(pair)).collect();
        for text in self.notes.left(Kind::Partition, left) {
            self.section.comment(text);
        }
        Some(std::mem::take(&mut self.section))
    }

    fn members(&mut self, name: &str) {
        let nodes = self.around.nodes;
        let pair = self.entry.pair("Nodes");
        let is_all = pair.as_ref().is_some_and(|pair| pair.value.eq_ignore_ascii_case("ALL"));
        if is_all {
            return self.section.text("nodes", "ALL");
        }
        let members = pair.map(|pair| nodes.expand(&pair, &mut self.section, self.notes)).unwrap_or_default();
        if members.is_empty() {
            self.section.comment(format_args!("Partition {name} has no nodes: jobs wait in it."));
        }
        self.section.text("nodes", HostList::from_names(&members).unique());
    }

    fn state(&mut self) {
        let Some(pair) = self.entry.pair("State") else { return };
        match pair.value.to_ascii_uppercase().as_str() {
            word @ ("UP" | "DOWN" | "DRAIN" | "INACTIVE") => self.section.text("state", word),
            _ => self.note(&pair, "not a state of a partition"),
        }
    }

    fn limits(&mut self) {
        for (from, to) in [("MaxTime", "max_time"), ("DefaultTime", "default_time")] {
            let Some(pair) = self.entry.pair(from) else { continue };
            let endless =
                ["infinite", "unlimited", "-1"].iter().any(|word| word.eq_ignore_ascii_case(&pair.value));
            if endless && to == "max_time" {
                self.section.text(to, "UNLIMITED");
                continue;
            }
            if endless || ["none", "(null)", ""].iter().any(|word| word.eq_ignore_ascii_case(&pair.value)) {
                continue;
            }
            let Ok(limit) = pair.value.parse::<TimeLimit>() else {
                self.note(&pair, "not a time");
                continue;
            };
            let most = self.limits.get("max_time").copied();
            if let (Some(seconds), Some(most)) = (limit.seconds(), most)
                && seconds > most
            {
                self.note(&pair, "longer than MaxTime, which is the limit then");
                continue;
            }
            self.limits.extend(limit.seconds().map(|seconds| (to, seconds)));
            self.section.text(to, &pair.value);
        }
        let mut least = 0;
        for (from, to, of) in [
            ("MinNodes", "min_nodes", "nodes"),
            ("MaxNodes", "max_nodes", "nodes"),
            ("MaxCPUsPerNode", "max_cpus_per_node", "CPUs"),
            ("MaxCPUsPerSocket", "max_cpus_per_socket", "CPUs"),
        ] {
            let Some(pair) = self.entry.pair(from) else { continue };
            if ["unlimited", "infinite", "-1"].iter().any(|word| word.eq_ignore_ascii_case(&pair.value)) {
                continue;
            }
            match pair.value.parse::<u32>() {
                Ok(0) if to != "min_nodes" => self.note(&pair, "no job could run"),
                Ok(number) if to == "max_nodes" && number < least => self.note(&pair, "less than MinNodes"),
                Ok(number) => {
                    if to == "min_nodes" {
                        least = number;
                    }
                    self.section.plain(to, number);
                }
                Err(_) => self.note(&pair, &format!("not a number of {of}")),
            }
        }
    }

    fn tiers(&mut self) {
        let old = self.entry.pair("Priority");
        for (from, to) in [("PriorityTier", "priority_tier"), ("PriorityJobFactor", "priority_job_factor")] {
            let Some(pair) = self.entry.pair(from).or_else(|| old.clone()) else { continue };
            match pair.value.parse::<u32>() {
                Ok(number) => self.section.plain(to, number.min(MOST_TIER)),
                Err(_) => self.note(&pair, "not a number"),
            }
        }
    }

    fn sharing(&mut self) {
        let whole = self.around.common.whole_nodes;
        let Some(pair) = self.entry.pair("OverSubscribe") else {
            if whole {
                self.section.comment("SelectType=select/linear: jobs get whole nodes.");
                self.section.text("oversubscribe", "EXCLUSIVE");
            }
            return;
        };
        let (word, many) = pair.value.split_once(':').unwrap_or((&pair.value, ""));
        match (word.to_ascii_uppercase().as_str(), many) {
            ("EXCLUSIVE", _) => self.section.text("oversubscribe", "EXCLUSIVE"),
            ("NO", _) => self.section.text("oversubscribe", if whole { "EXCLUSIVE" } else { "NO" }),
            ("YES" | "FORCE", many) => {
                // Preemption by suspending requires `FORCE:1`, with which no CPU is shared.
                if many != "1" {
                    self.note(&pair, "jobs share nodes, and never a CPU: oversubscribe = \"NO\"");
                }
                self.section.text("oversubscribe", "NO");
            }
            _ => self.note(&pair, "not a way to share"),
        }
    }

    fn access(&mut self) {
        let mut accounts = false;
        for (from, to) in [
            ("AllowGroups", "allow_groups"),
            ("AllocNodes", "alloc_nodes"),
            ("AllowAccounts", "allow_accounts"),
            ("DenyAccounts", "deny_accounts"),
        ] {
            let Some(pair) = self.entry.pair(from) else { continue };
            let names = match from {
                // `ALL` is a keyword here, not a name.
                "AllocNodes" if !pair.value.eq_ignore_ascii_case("ALL") => {
                    let hosts = hostlist(&pair, &mut self.section, self.notes);
                    hosts.map(|hosts| hosts.iter().collect()).unwrap_or_default()
                }
                _ => words(&pair.value),
            };
            if from == "DenyAccounts" && accounts && !names.is_empty() {
                self.note(&pair, "nothing but AllowAccounts is allowed anyway");
                continue;
            }
            accounts = from == "AllowAccounts" && !names.is_empty();
            self.section.list(to, &names);
        }
        for (from, to) in [
            ("DisableRootJobs", "disable_root_jobs"),
            ("RootOnly", "root_only"),
            ("ReqResv", "req_resv"),
            ("Hidden", "hidden"),
        ] {
            let Some(pair) = self.entry.pair(from) else {
                if from == "DisableRootJobs" && self.around.common.no_root {
                    self.section.plain(to, true);
                }
                continue;
            };
            match settings::yes(&pair.value) {
                Some(true) => self.section.plain(to, true),
                Some(false) => {}
                None => self.note(&pair, "neither yes nor no"),
            }
        }
    }

    fn qos(&mut self, qos: &mut Vec<String>) {
        let mut allowed = false;
        for (from, to) in [("AllowQos", "allow_qos"), ("DenyQos", "deny_qos")] {
            let Some(pair) = self.entry.pair(from) else { continue };
            let mut names = words(&pair.value);
            for name in names.extract_if(.., |name| !is_layer_name(name)) {
                let said = Pair { value: name, ..pair.clone() };
                self.note(&said, "names consist of letters, digits, `_`, `-` and `.`");
            }
            if allowed && !names.is_empty() {
                self.note(&pair, "nothing but AllowQos is allowed anyway");
                continue;
            }
            allowed = !names.is_empty();
            self.section.list(to, &names);
            qos.extend(names);
        }
        if let Some(pair) =
            self.entry.pair("QOS").filter(|pair| pair.value != "N/A" && !pair.value.is_empty())
        {
            if is_layer_name(&pair.value) {
                self.section.text("qos", &pair.value);
                self.note(&pair, "the limits of the QOS are in Slurm's database (sacctmgr show qos); sacctmgr modify qos sets them here");
                qos.push(pair.value);
            } else {
                self.note(&pair, "names consist of letters, digits, `_`, `-` and `.`");
            }
        }
    }

    fn alternate(&mut self, name: &str) {
        let Some(pair) = self.entry.pair("Alternate") else { return };
        match pair.value.as_str() {
            "" | "(null)" => {}
            other if other != name && self.around.names.iter().any(|known| known == other) => {
                self.section.text("alternate", other);
            }
            _ => self.note(&pair, "no other partition of this name"),
        }
    }

    /// Writes memory per CPU or per node; the partition's settings override those of the cluster.
    fn memory(&mut self) {
        let (def, max) = (self.memory_of("Def"), self.memory_of("Max"));
        let Some(Memory { key, mb: most, .. }) = &max else {
            if let Some(def) = def {
                self.section.plain(&def.key, def.mb);
            }
            return;
        };
        if let Some(def) = def {
            let same = def.key[3..] == key[3..];
            if let Some(pair) = def.pair.filter(|_| same && def.mb > *most) {
                self.note(&pair, &format!("more than {key} = {most}, which counts"));
            }
            self.section.plain(&def.key, if same { def.mb.min(*most) } else { def.mb });
        }
        self.section.plain(key, most);
    }

    /// Takes `JobDefaults`, `DefCpuPerGPU` and `DefMemPerGPU` of the partition, and those of the cluster
    /// that the partition does not set.
    fn of_gpu(&mut self) {
        let mut defaults: Vec<Pair> = Vec::new();
        if let Some(pair) = self.entry.pair("JobDefaults").filter(|pair| pair.value != "(null)") {
            for item in pair.value.split(',').map(str::trim).filter(|item| !item.is_empty()) {
                let (key, value) = item.split_once('=').unwrap_or((item, ""));
                defaults.push(Pair { key: key.to_owned(), value: value.to_owned(), ..pair.clone() });
            }
        }
        for key in ["DefCpuPerGPU", "DefMemPerGPU"] {
            defaults.extend(self.entry.pair(key));
        }
        let is_said = |pair: &&Pair| defaults.iter().any(|own| own.key.eq_ignore_ascii_case(&pair.key));
        let common: Vec<Pair> =
            self.around.common.of_gpu.iter().filter(|pair| !is_said(pair)).cloned().collect();
        for pair in defaults.into_iter().chain(common) {
            let number = match pair.key.to_ascii_lowercase().as_str() {
                "defcpupergpu" => pair.value.parse::<u64>().ok().map(|cpus| ("def_cpu_per_gpu", cpus)),
                "defmempergpu" => Some(("def_mem_per_gpu", settings::megabytes(&pair.value))),
                _ => None,
            };
            match number {
                Some((_, 0)) => {}
                Some((key, number)) => self.section.plain(key, number),
                None => self.note(&pair, "none of DefCpuPerGPU=COUNT and DefMemPerGPU=MB"),
            }
        }
    }

    /// `DefMemPerCPU` or `DefMemPerNode`, and the same of `Max`, as far as it limits anything.
    fn memory_of(&mut self, which: &str) -> Option<Memory> {
        let mut own = Vec::new();
        for (by, key) in [("CPU", "cpu"), ("Node", "node")] {
            let Some(pair) = self.entry.pair(&format!("{which}MemPer{by}")) else { continue };
            let mb = settings::megabytes(&pair.value);
            own.push(Memory { key: format!("{}_mem_per_{key}", which.to_lowercase()), mb, pair: Some(pair) });
        }
        let common =
            self.around.common.memory.iter().filter(|memory| memory.key.starts_with(&which.to_lowercase()));
        let mut all = if own.is_empty() { common.cloned().collect() } else { own };
        all.retain(|memory| memory.mb > 0);
        let other = (all.len() > 1).then(|| all.remove(1)).and_then(|memory| memory.pair);
        if let Some(pair) = other {
            self.note(&pair, "memory is counted by CPU or by node, and by CPU here");
        }
        all.pop()
    }

    fn preemption(&mut self) {
        if let Some(pair) = self.entry.pair("TRESBillingWeights") {
            match pair.value.parse::<TresWeights>() {
                Ok(weights) => self.section.text("tres_billing_weights", weights),
                Err(error) => self.note(&pair, &error.to_string()),
            }
        }
        if let Some(pair) = self.entry.pair("PreemptMode") {
            let words = pair.value.to_ascii_lowercase();
            match words.split(',').find(|word| ["off", "cancel", "requeue", "suspend"].contains(word)) {
                Some(word) => self.section.text("preempt_mode", word),
                None => self.note(&pair, "jobs do not take turns on the same CPUs"),
            }
        }
        if let Some(pair) = self.entry.pair("GraceTime") {
            let number = pair.value.parse::<u64>().ok().or_else(|| settings::seconds(&pair.value));
            match number {
                Some(0) => {}
                Some(seconds) => self.section.text("grace_time", Seconds(seconds.min(365 * 86_400))),
                None => self.note(&pair, "not a time"),
            }
        }
    }

    fn topology(&mut self) {
        let topologies = self.around.topologies;
        match self.entry.pair("Topology") {
            Some(pair) => match topologies.named(&pair.value) {
                Some(name) => self.section.text("topology", name),
                None => self.note(&pair, "topology.yaml defines no such topology"),
            },
            None => {
                if let Some(name) = &topologies.default {
                    self.section.text("topology", name);
                }
            }
        }
    }
}

/// Returns the words of a list; empty if the list contains `ALL`.
fn words(list: &str) -> Vec<String> {
    let words = list.split(',').map(str::trim).filter(|word| !word.is_empty() && *word != "(null)");
    let words: Vec<String> = words.map(str::to_owned).collect();
    if words.iter().any(|word| word.eq_ignore_ascii_case("ALL")) { Vec::new() } else { words }
}
