//! Converts the cluster's settings in `slurm.conf` to tables of `spur.toml`.

use std::path::Path;

use spur_core::model::config::{HealthState, PriorityFlag};
use spur_core::text::address::HostPort;
use spur_core::text::gather::is_layer_name;
use spur_core::text::hostlist::HostList;
use spur_core::text::memory::MemoryMb;
use spur_core::text::time::{Seconds, TimeLimit};
use spur_core::text::weights::TresWeights;

use super::keys::Kind;
use super::lines::Pair;
use super::page::Section;
use super::source::{Entry, Notes};

/// Longest duration in `spur.toml`, in seconds.
const YEAR: u64 = 365 * 86_400;
/// Default port of Slurm's and Spur's controllers.
const PORT: &str = "6817";

/// Settings of the cluster that affect partitions.
#[derive(Clone, Debug, Default)]
pub(super) struct Common {
    /// True if nodes are allocated to one job at a time.
    pub(super) whole_nodes: bool,
    /// True if root may use only partitions that permit it.
    pub(super) no_root: bool,
    /// Memory settings of partitions without their own.
    pub(super) memory: Vec<Memory>,
    /// CPUs and memory per GPU for partitions that set neither: `DefCpuPerGPU` and `DefMemPerGPU`.
    pub(super) of_gpu: Vec<Pair>,
}

/// Default or maximum memory of jobs.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    /// Key in `spur.toml`.
    pub(super) key: String,
    /// Amount in MiB; 0 for no limit.
    pub(super) mb: u64,
    /// Position of the setting; `None` for the cluster's.
    pub(super) pair: Option<Pair>,
}

/// Takes the known settings. Returns the sections in the order of `etc/spur.toml`, and [`Common`].
pub(super) fn settings(
    conf: &mut Entry,
    cgroup: &mut Entry,
    job_container: &mut Entry,
    notes: &mut Notes,
) -> (Vec<Section>, Common) {
    let mut all = Taker { conf, cgroup, job_container, notes };
    let top = all.cluster();
    let (controller, loopback) = all.controller();
    let auth = all.auth(loopback);
    let agent = all.agent(loopback);
    let log = all.log();
    let scheduler = all.scheduler();
    let preempt = all.preempt();
    let recovery = all.recovery();
    let power = all.power();
    let licenses = all.licenses();
    let common = all.common();
    let sections = vec![top, controller, auth, agent, log, scheduler, preempt, recovery, power, licenses];
    (sections, common)
}

/// The files that settings are taken from, and the notes on settings that are not taken.
pub(super) struct Taker<'a> {
    pub(super) conf: &'a mut Entry,
    cgroup: &'a mut Entry,
    job_container: &'a mut Entry,
    notes: &'a mut Notes,
}

impl Taker<'_> {
    pub(super) fn note(&mut self, section: &mut Section, pair: &Pair, why: &str) {
        self.notes.tell(section, pair, why);
    }

    /// Takes a whole number of at most `most`.
    fn number(&mut self, section: &mut Section, from: &str, to: &str, most: u64) {
        let Some(pair) = self.conf.pair(from) else { return };
        match pair.value.parse::<u64>() {
            Ok(number) if number <= most => section.plain(to, number),
            Ok(_) => {
                section.plain(to, most);
                self.note(section, &pair, &format!("the most is {most}"));
            }
            Err(_) => self.note(section, &pair, "not a number"),
        }
    }

    /// Takes a duration in seconds or in Slurm's format; infinity becomes the longest duration.
    fn duration(&mut self, section: &mut Section, from: &str, to: &str, range: (u64, u64)) {
        let Some(pair) = self.conf.pair(from) else { return };
        let seconds = pair.value.parse::<u64>().ok().or_else(|| seconds(&pair.value));
        match seconds {
            Some(seconds) => {
                let within = seconds.clamp(range.0, range.1);
                if within != seconds {
                    let text = format!("it must be from {} to {} here", Seconds(range.0), Seconds(range.1));
                    self.note(section, &pair, &text);
                }
                section.text(to, Seconds(within));
            }
            None => self.note(section, &pair, "not a time"),
        }
    }

    /// Yes or no, in any of Slurm's spellings.
    pub(super) fn flag(&mut self, section: &mut Section, from: &str, to: &str) {
        let Some(pair) = self.conf.pair(from) else { return };
        match yes(&pair.value) {
            Some(flag) => section.plain(to, flag),
            None => self.note(section, &pair, "neither yes nor no"),
        }
    }

    fn program(&mut self, section: &mut Section, from: &str, to: &str) {
        let mut pairs = self.conf.all(from);
        let Some(pair) = pairs.pop() else { return };
        for other in pairs {
            self.note(section, &other, "one program is run; let the one that is named call the others");
        }
        if pair.value.is_empty() || pair.value == "(null)" {
            return;
        }
        if pair.value.contains(['*', '?', '[', ',']) {
            self.note(section, &pair, "one program is run; name one that calls the others");
        } else {
            section.text(to, &pair.value);
        }
    }

    /// Takes programs and patterns of their names, one per line.
    fn programs(&mut self, section: &mut Section, from: &str, to: &str) {
        let pairs = self.conf.all(from).into_iter().map(|pair| pair.value);
        let paths: Vec<String> = pairs.filter(|path| !path.is_empty() && path != "(null)").collect();
        match &paths[..] {
            [path] => section.text(to, path),
            paths => section.list(to, paths),
        }
    }

    fn cluster(&mut self) -> Section {
        let mut top = Section::new("");
        if let Some(pair) = self.conf.pair("ClusterName") {
            let name: String = pair.value.chars().filter(|c| is_layer_name(&c.to_string())).collect();
            if name != pair.value {
                self.note(&mut top, &pair, "names consist of letters, digits, `_`, `-` and `.`");
            }
            if !name.is_empty() {
                top.text("cluster_name", name);
            }
        }
        top
    }

    /// Returns `[controller]`, and true if all addresses are on loopback.
    fn controller(&mut self) -> (Section, bool) {
        let mut section = Section::new("[controller]");
        let port = match self.conf.pair("SlurmctldPort") {
            Some(pair) => {
                let first = pair.value.split('-').next().unwrap_or_default().to_owned();
                if first != pair.value {
                    self.note(&mut section, &pair, "one port is enough: the first");
                }
                if first.parse::<u16>().is_ok_and(|port| port > 0) {
                    first
                } else {
                    self.note(&mut section, &pair, &format!("not a port; {PORT} is taken"));
                    PORT.to_owned()
                }
            }
            None => PORT.to_owned(),
        };
        let hosts = self.hosts(&mut section);
        let loopback = hosts.iter().all(|host| ["localhost", "127.0.0.1", "::1"].contains(&host.as_str()))
            && !hosts.is_empty();
        let listen = if loopback { "127.0.0.1" } else { "0.0.0.0" };
        section.text("listen_addr", format_args!("{listen}:{port}"));
        if !hosts.is_empty() {
            let addresses: Vec<String> = hosts.iter().map(|host| address(host, &port)).collect();
            section.text("addr", addresses.join(","));
        }
        if hosts.len() > 1 {
            section.comment(
                "Commands and nodes try the controllers in this order; one of them serves at a time, \
                             from a state that they share.",
            );
        }
        if let Some(pair) = self.conf.pair("MailProg") {
            section.text("mail_prog", &pair.value);
        }
        self.duration(&mut section, "KillWait", "kill_wait", (0, 86_400));
        self.duration(&mut section, "MinJobAge", "min_job_age", (0, YEAR));
        self.number(&mut section, "MaxJobCount", "max_job_count", 100_000_000);
        self.flag(&mut section, "JobRequeue", "job_requeue");
        self.number(&mut section, "MaxArraySize", "max_array_size", 4_000_001);
        self.number(&mut section, "MaxBatchRequeue", "max_batch_requeue", 1_000_000);
        self.duration(&mut section, "InactiveLimit", "inactive_limit", (0, YEAR));
        self.part_limits(&mut section);
        self.mpi_default(&mut section);
        self.of_steps(&mut section);
        self.private_data(&mut section);
        self.flag(&mut section, "TrackWCKey", "track_wckey");
        self.purges(&mut section);
        let before = section.len();
        self.program(&mut section, "PrologSlurmctld", "prolog_slurmctld");
        self.program(&mut section, "EpilogSlurmctld", "epilog_slurmctld");
        if section.len() > before {
            self.duration(&mut section, "PrologEpilogTimeout", "prolog_epilog_timeout", (1, 86_400));
        }
        (section, loopback)
    }

    /// Takes the ages at which records are purged. A number without a unit counts months.
    fn purges(&mut self, section: &mut Section) {
        for (from, to) in [("PurgeJobAfter", "purge_job_after"), ("PurgeEventAfter", "purge_event_after")] {
            let Some(pair) = self.conf.pair(from) else { continue };
            let digits = pair.value.find(|c: char| !c.is_ascii_digit()).unwrap_or(pair.value.len());
            let (number, unit) = pair.value.split_at(digits);
            let unit = unit.trim().to_ascii_lowercase();
            let unit = ["months", "days", "hours"].into_iter().find(|known| known.starts_with(&unit));
            match (number.parse::<u32>(), unit) {
                (Ok(0), _) => self.note(section, &pair, "records stay for ever"),
                (Ok(number), Some(unit)) => section.text(to, format_args!("{number}{unit}")),
                _ => self.note(section, &pair, "neither months, days nor hours"),
            }
        }
    }

    /// Returns the controllers' hosts in the order of preference.
    fn hosts(&mut self, section: &mut Section) -> Vec<String> {
        let mut hosts = Vec::new();
        for pair in self.conf.all("SlurmctldHost") {
            // The address in parentheses is used, as in `head(10.0.0.1)`.
            let (name, inside) = pair.value.split_once('(').unwrap_or((&pair.value, ""));
            let inside = inside.trim_end_matches(')');
            hosts.push(if inside.is_empty() { name } else { inside }.to_owned());
        }
        for (name, address) in [("ControlMachine", "ControlAddr"), ("BackupController", "BackupAddr")] {
            let name = self.conf.value(name);
            let address = self.conf.value(address);
            let names = name.as_deref().and_then(|name| name.split(',').next()).map(str::to_owned);
            if hosts.is_empty() || address.is_some() || name.is_some() {
                hosts.extend(address.or(names));
            }
        }
        if let Some(address) = self.conf.value("SlurmctldAddr") {
            hosts = vec![address];
        }
        hosts.retain(|host| address(host, PORT).parse::<HostPort>().is_ok());
        hosts.dedup();
        if hosts.is_empty() {
            section.comment(
                "No SlurmctldHost: say with `addr` where the controller is, unless all is on one host.",
            );
        }
        hosts
    }

    fn auth(&mut self, loopback: bool) -> Section {
        let mut section = Section::new("[auth]");
        let pair = self.conf.pair("AuthType");
        let unsigned = pair.as_ref().is_some_and(|pair| pair.value.eq_ignore_ascii_case("auth/none"));
        if unsigned && loopback {
            section.text("method", "none");
            return section;
        }
        if let Some(pair) = pair {
            let why =
                if unsigned { "Spur trusts everybody on loopback only" } else { "Spur has a key of its own" };
            self.note(&mut section, &pair, why);
        }
        section.comment("`spur keygen /etc/spur/cluster.key` makes the key; every host needs the same file.");
        section.text("method", "key");
        section
    }

    fn agent(&mut self, loopback: bool) -> Section {
        let mut section = Section::new("[agent]");
        if let Some(pair) = self.conf.pair("SlurmdPort") {
            match pair.value.parse::<u16>() {
                Ok(port) if port > 0 => {
                    let host = if loopback { "127.0.0.1" } else { "0.0.0.0" };
                    section.text("listen_addr", format_args!("{host}:{port}"));
                }
                _ => self.note(&mut section, &pair, "not a port"),
            }
        }
        self.programs(&mut section, "Prolog", "prolog");
        self.programs(&mut section, "Epilog", "epilog");
        self.program(&mut section, "TaskProlog", "task_prolog");
        self.program(&mut section, "TaskEpilog", "task_epilog");
        self.health_check(&mut section);
        let before = section.len();
        self.duration(&mut section, "PrologEpilogTimeout", "prolog_timeout", (1, 86_400));
        if section.len() == before {
            self.duration(&mut section, "PrologTimeout", "prolog_timeout", (1, 86_400));
        }
        self.frequency(&mut section);
        if let Some(pair) = self.cgroup.pair("CgroupPlugin") {
            match pair.value.to_ascii_lowercase().as_str() {
                known @ ("autodetect" | "cgroup/v1" | "cgroup/v2" | "disabled") => {
                    section.text("cgroup_plugin", known);
                }
                _ => self.note(&mut section, &pair, "no such control groups; nodes find out"),
            }
        }
        if let Some(pair) = self.cgroup.pair("ConstrainDevices") {
            match yes(&pair.value) {
                Some(flag) => section.plain("constrain_devices", flag),
                None => self.note(&mut section, &pair, "neither yes nor no"),
            }
        }
        self.private_directories(&mut section);
        section
    }

    /// Takes `JobContainerType`, with `BasePath` and `Dirs` of `job_container.conf`.
    fn private_directories(&mut self, section: &mut Section) {
        let (base, dirs) = (self.job_container.pair("BasePath"), self.job_container.pair("Dirs"));
        let Some(kind) = self.conf.pair("JobContainerType") else {
            let why = "slurm.conf has no JobContainerType: jobs have the node's own /tmp";
            base.iter().chain(&dirs).for_each(|pair| self.note(section, pair, why));
            return;
        };
        match (kind.value.to_ascii_lowercase().trim_start_matches("job_container/"), base) {
            ("none" | "" | "(null)", _) => {}
            ("tmpfs", Some(base)) => {
                let dirs = dirs.map_or("/tmp,/dev/shm".to_owned(), |pair| pair.value);
                let dirs: Vec<&str> = dirs.split(',').map(str::trim).filter(|dir| !dir.is_empty()).collect();
                // Each node has its own directory below the part of the path before `%`.
                let path: Vec<&str> = base.value.split('/').take_while(|part| !part.contains('%')).collect();
                let path = path.join("/");
                let is_whole = |path: &str| path.starts_with('/') && !path.contains("..");
                let is_hidden = dirs.iter().any(|dir| Path::new(&path).starts_with(dir));
                if !is_whole(&path) || is_hidden || !dirs.iter().all(|dir| is_whole(dir) && *dir != "/") {
                    let why = "no place outside of what jobs have to themselves: name one as [agent] job_container_base_path";
                    self.note(section, &base, why);
                    return;
                }
                section.text("job_container_base_path", path);
                section.list("job_container_dirs", &dirs);
            }
            ("tmpfs", None) => {
                let why = "job_container.conf names no BasePath: name one as [agent] job_container_base_path";
                self.note(section, &kind, why);
            }
            _ => self.note(section, &kind, "only job_container/tmpfs has a counterpart"),
        }
    }

    /// Takes `HealthCheckProgram`, which Slurm never runs without an interval.
    fn health_check(&mut self, section: &mut Section) {
        let interval = self.conf.pair("HealthCheckInterval");
        let seconds = interval.as_ref().and_then(|pair| pair.value.parse::<u64>().ok()).unwrap_or(0);
        if seconds == 0 {
            if let Some(program) = self.conf.pair("HealthCheckProgram") {
                self.note(section, &program, "it never runs without HealthCheckInterval");
            }
            self.health_states(section, false);
            return;
        }
        let before = section.len();
        self.program(section, "HealthCheckProgram", "health_check_program");
        let runs = section.len() > before;
        if runs {
            section.text("health_check_interval", Seconds(seconds.min(86_400)));
        }
        self.health_states(section, runs);
    }

    /// Takes `HealthCheckNodeState`, a list that has no effect without a program.
    fn health_states(&mut self, section: &mut Section, runs: bool) {
        let Some(pair) = self.conf.pair("HealthCheckNodeState") else { return };
        if !runs {
            return self.note(section, &pair, "no HealthCheckProgram runs");
        }
        let words = pair.value.split(',').map(|word| word.trim().to_ascii_uppercase());
        let (known, other): (Vec<String>, Vec<String>) = words
            .partition(|word| word == "ANY" || HealthState::ALL.iter().any(|state| state.name() == word));
        if !known.is_empty() {
            section.list("health_check_node_state", &known);
        }
        for word in other {
            let why = match word.as_str() {
                "CYCLE" => "each node counts from its own start, so nodes are not in step anyway",
                _ => "no such state here",
            };
            self.note(section, &Pair { value: word, ..pair.clone() }, why);
        }
    }

    fn part_limits(&mut self, section: &mut Section) {
        let Some(pair) = self.conf.pair("EnforcePartLimits") else { return };
        match pair.value.to_ascii_uppercase().as_str() {
            "YES" | "ALL" => section.text("enforce_part_limits", "ALL"),
            known @ ("ANY" | "NO") => section.text("enforce_part_limits", known),
            _ => self.note(section, &pair, "not one of ALL, ANY and NO"),
        }
    }

    /// Takes `MpiDefault`; all plugins for versions of PMIx become `pmix`.
    fn mpi_default(&mut self, section: &mut Section) {
        let Some(pair) = self.conf.pair("MpiDefault") else { return };
        match pair.value.to_ascii_lowercase().as_str() {
            known @ ("none" | "pmi2") => section.text("mpi_default", known),
            // Slurm used this name for releases of Open MPI that need no service from `srun`.
            "openmpi" => section.text("mpi_default", "none"),
            pmix if pmix == "pmix" || pmix.starts_with("pmix_v") => section.text("mpi_default", "pmix"),
            _ => self.note(section, &pair, "not one of none, pmi2 and pmix"),
        }
    }

    fn private_data(&mut self, section: &mut Section) {
        const KNOWN: [&str; 9] =
            ["accounts", "cloud", "events", "jobs", "nodes", "partitions", "reservations", "usage", "users"];
        let Some(pair) = self.conf.pair("PrivateData") else { return };
        let words: Vec<String> = pair.value.split(',').map(|word| word.trim().to_ascii_lowercase()).collect();
        let (known, other): (Vec<_>, Vec<_>) =
            words.into_iter().partition(|word| KNOWN.contains(&word.as_str()));
        section.list("private_data", &known);
        if !other.is_empty() {
            let rest = Pair { value: other.join(","), ..pair.clone() };
            self.note(section, &rest, "not one of what can be hidden");
        }
    }

    /// Takes `JobAcctGatherFrequency`, such as `30` or `task=30,energy=60`; only `task` has a counterpart.
    fn frequency(&mut self, section: &mut Section) {
        let Some(pair) = self.conf.pair("JobAcctGatherFrequency") else { return };
        let of_tasks = |item: &str| match item.split_once('=') {
            Some((what, seconds)) => {
                what.trim().eq_ignore_ascii_case("task").then(|| seconds.trim().to_owned())
            }
            None => Some(item.trim().to_owned()),
        };
        let mut left: Vec<&str> = Vec::new();
        for item in pair.value.split(',') {
            match of_tasks(item).map(|seconds| seconds.parse::<u64>()) {
                Some(Ok(seconds)) => {
                    section.text("job_acct_gather_frequency", Seconds(seconds.min(86_400)));
                }
                _ => left.push(item),
            }
        }
        if !left.is_empty() {
            let rest = Pair { value: left.join(","), ..pair.clone() };
            self.note(section, &rest, "only tasks are looked at");
        }
    }

    fn log(&mut self) -> Section {
        let mut section = Section::new("[log]");
        if let Some(pair) = self.conf.pair("SlurmctldDebug") {
            let level = match pair.value.to_ascii_lowercase().as_str() {
                "quiet" | "fatal" | "error" | "0" | "1" | "2" => "error",
                "info" | "verbose" | "3" | "4" => "info",
                "debug" | "5" => "debug",
                "debug2" | "debug3" | "debug4" | "debug5" | "6" | "7" | "8" | "9" => "trace",
                _ => {
                    self.note(&mut section, &pair, "not a level");
                    return section;
                }
            };
            section.text("level", level);
        }
        let files = ["SlurmctldLogFile", "SlurmdLogFile"].map(|key| self.conf.value(key));
        let absolute =
            |file: &String| Some(Path::new(file).parent()?.to_owned()).filter(|at| at.is_absolute());
        if let Some(directory) = files.iter().flatten().find_map(absolute) {
            section.text("file", directory.join("%d.log").display());
        }
        section
    }

    fn scheduler(&mut self) -> Section {
        let mut section = Section::new("[scheduler]");
        if let Some(pair) = self.conf.pair("SchedulerType") {
            match pair.value.to_ascii_lowercase().as_str() {
                "sched/backfill" => section.text("backfill", "easy"),
                "sched/builtin" => section.text("backfill", "none"),
                _ => self.note(&mut section, &pair, "no such scheduler; jobs are backfilled"),
            }
        }
        self.parameters(&mut section);
        let multifactor = match self.conf.pair("PriorityType") {
            Some(pair) if pair.value.eq_ignore_ascii_case("priority/basic") => {
                section.text("order", "fcfs");
                false
            }
            Some(pair) if pair.value.eq_ignore_ascii_case("priority/multifactor") => {
                section.text("order", "multifactor");
                true
            }
            Some(pair) => {
                self.note(&mut section, &pair, "no such order; priorities are multifactor");
                false
            }
            None => false,
        };
        self.duration(&mut section, "PriorityMaxAge", "priority_max_age", (1, 100 * YEAR));
        self.duration(&mut section, "PriorityDecayHalfLife", "priority_decay_half_life", (0, 100 * YEAR));
        for (name, from) in [
            ("age", "PriorityWeightAge"),
            ("assoc", "PriorityWeightAssoc"),
            ("fairshare", "PriorityWeightFairshare"),
            ("job_size", "PriorityWeightJobSize"),
            ("partition", "PriorityWeightPartition"),
            ("qos", "PriorityWeightQOS"),
        ] {
            let before = section.len();
            self.number(&mut section, from, &format!("priority_weight_{name}"), u64::from(u32::MAX));
            if multifactor && section.len() == before {
                // In Slurm, a weight that is not set is 0.
                section.plain(&format!("priority_weight_{name}"), 0);
            }
        }
        let dampening = "fair_share_dampening_factor";
        self.number(&mut section, "FairShareDampeningFactor", dampening, u64::from(u16::MAX));
        self.flag(&mut section, "PriorityFavorSmall", "priority_favor_small");
        self.usage(&mut section);
        section
    }

    fn usage(&mut self, section: &mut Section) {
        if let Some(pair) = self.conf.pair("PriorityWeightTRES") {
            match pair.value.parse::<TresWeights>() {
                Ok(weights) => section.text("priority_weight_tres", weights),
                Err(error) => self.note(section, &pair, &error.to_string()),
            }
        }
        if let Some(pair) = self.conf.pair("PriorityCalcPeriod") {
            match pair.value.parse::<u64>().ok().or_else(|| Some(seconds(&pair.value)? / 60)) {
                Some(minutes @ 1..=1440) => section.text("priority_calc_period", Seconds(minutes * 60)),
                _ => self.note(section, &pair, "not a number of minutes from 1 to 1440"),
            }
        }
        if let Some(pair) = self.conf.pair("PriorityUsageResetPeriod") {
            let word = pair.value.to_ascii_uppercase();
            match word.as_str() {
                "NONE" | "DAILY" | "WEEKLY" | "MONTHLY" | "QUARTERLY" | "YEARLY" => {
                    section.text("priority_usage_reset_period", word);
                }
                "NOW" => {
                    let why = "sacctmgr modify account root set RawUsage=0 sets usage to zero once";
                    self.note(section, &pair, why);
                }
                _ => self.note(section, &pair, "no such period"),
            }
        }
        if let Some(pair) = self.conf.pair("PriorityFlags") {
            let words: Vec<&str> = pair.value.split(',').map(str::trim).collect();
            let (known, others): (Vec<&str>, Vec<&str>) =
                words.into_iter().partition(|word| PriorityFlag::named(word).is_some());
            section.list("priority_flags", &known);
            // FAIR_TREE is the default of Slurm since 19.05, and of Spur.
            let others: Vec<&str> =
                others.into_iter().filter(|word| !word.eq_ignore_ascii_case("FAIR_TREE")).collect();
            if !others.is_empty() {
                self.note(section, &pair, &format!("{} has no counterpart", others.join(",")));
            }
        }
    }

    fn parameters(&mut self, section: &mut Section) {
        let mut left = Vec::new();
        let mut depth = None;
        let Some(pair) = self.conf.pair("SchedulerParameters") else { return };
        for item in pair.value.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (name, value) = item.split_once('=').unwrap_or((item, ""));
            let number = value.parse::<u64>().ok().filter(|number| *number <= 100_000_000);
            match (name.to_ascii_lowercase().as_str(), number) {
                ("bf_max_job_test", Some(number)) => depth = Some(number),
                ("bf_max_job_user", Some(number)) => section.plain("depth_per_user", number),
                ("bf_max_job_part", Some(number)) => section.plain("depth_per_partition", number),
                _ => left.push(item),
            }
        }
        if let Some(depth) = depth {
            section.plain("depth", depth);
        }
        if !left.is_empty() {
            let rest = Pair { value: left.join(","), ..pair.clone() };
            self.note(
                section,
                &rest,
                "no counterpart: every pass looks at all jobs and nodes up to [scheduler] depth",
            );
        }
    }

    fn preempt(&mut self) -> Section {
        let mut section = Section::new("[preempt]");
        let mode = self.conf.pair("PreemptMode");
        let words = mode.as_ref().map(|pair| pair.value.to_ascii_lowercase()).unwrap_or_default();
        let known = words.split(',').find(|word| ["cancel", "requeue", "suspend"].contains(word));
        let kind = self.conf.pair("PreemptType");
        let by = match kind.as_ref().map(|pair| pair.value.to_ascii_lowercase()).as_deref() {
            Some("preempt/partition_prio") if known.is_some() => "partition",
            Some("preempt/qos") => {
                let pair = kind.as_ref().expect("it was matched");
                let why = "the QOS are in Slurm's database: define them in [[qos]] (sacctmgr show qos), then say by = \"qos\"";
                self.note(&mut section, pair, why);
                "none"
            }
            Some("preempt/partition_prio" | "preempt/none" | "") | None => "none",
            Some(_) => {
                let pair = kind.as_ref().expect("it was matched");
                self.note(&mut section, pair, "no such way; nobody makes way");
                "none"
            }
        };
        section.text("by", by);
        if let Some(known) = known {
            section.text("mode", known);
        }
        if let Some(pair) = mode {
            let others = words.split(',').filter(|word| Some(*word) != known && !["off", ""].contains(word));
            let others: Vec<&str> = others.collect();
            if !others.is_empty() {
                let why = format!("{}: jobs do not take turns on the same CPUs", others.join(", "));
                self.note(&mut section, &pair, &why);
            }
        }
        self.duration(&mut section, "PreemptExemptTime", "exempt_time", (0, YEAR));
        section
    }

    fn recovery(&mut self) -> Section {
        let mut section = Section::new("[recovery]");
        if let Some(pair) = self.conf.pair("SlurmdTimeout") {
            match pair.value.parse::<u64>() {
                Ok(0) => {
                    section.text("node_timeout", Seconds(YEAR));
                    self.note(&mut section, &pair, "never is a year here");
                }
                Ok(seconds) => section.text("node_timeout", Seconds(seconds.min(YEAR))),
                Err(_) => self.note(&mut section, &pair, "not a number of seconds"),
            }
        }
        section
    }

    fn power(&mut self) -> Section {
        let mut section = Section::new("[power]");
        self.program(&mut section, "RebootProgram", "reboot_program");
        let boots = !section.is_empty();
        let is_set = |key| self.conf.says(key, |_| true);
        let switches = is_set("SuspendProgram") && is_set("ResumeProgram");
        if switches {
            self.program(&mut section, "SuspendProgram", "suspend_program");
            self.program(&mut section, "ResumeProgram", "resume_program");
            self.program(&mut section, "ResumeFailProgram", "resume_fail_program");
            let is_forever = |time: &str| time == "-1" || time.eq_ignore_ascii_case("INFINITE");
            match self.conf.says("SuspendTime", is_forever) {
                // A missing key disables suspending in Spur as well.
                true => drop(self.conf.pair("SuspendTime")),
                false => self.duration(&mut section, "SuspendTime", "suspend_time", (1, 100 * YEAR)),
            }
            self.duration(&mut section, "SuspendTimeout", "suspend_timeout", (0, 86_400));
            self.rates_and_exceptions(&mut section);
        } else {
            for key in [
                "SuspendProgram",
                "ResumeProgram",
                "SuspendTime",
                "SuspendTimeout",
                "SuspendRate",
                "ResumeRate",
            ] {
                self.left(
                    &mut section,
                    key,
                    "nodes are switched only where there are SuspendProgram and ResumeProgram",
                );
            }
            for key in ["ResumeFailProgram", "SuspendExcNodes", "SuspendExcParts", "SuspendExcStates"] {
                self.left(&mut section, key, "no node is switched off");
            }
        }
        match boots || switches {
            true => self.duration(&mut section, "ResumeTimeout", "resume_timeout", (1, 86_400)),
            false => self.left(&mut section, "ResumeTimeout", "nothing is booted or switched on"),
        }
        section
    }

    fn rates_and_exceptions(&mut self, section: &mut Section) {
        for (from, to) in [("SuspendRate", "suspend_rate"), ("ResumeRate", "resume_rate")] {
            let Some(pair) = self.conf.pair(from) else { continue };
            match pair.value.parse::<u32>() {
                Ok(rate) => section.plain(to, rate),
                Err(_) => self.note(section, &pair, "not a number of nodes"),
            }
        }
        if let Some(pair) = self.conf.pair("SuspendExcNodes") {
            match pair.value.parse::<HostList>() {
                Ok(_) if !pair.value.contains(':') => section.text("suspend_exc_nodes", &pair.value),
                _ => self.note(section, &pair, "nodes are named one and all, not counted"),
            }
        }
        if let Some(pair) = self.conf.pair("SuspendExcParts") {
            let names: Vec<String> = pair.value.split(',').map(|name| name.trim().to_owned()).collect();
            section.list("suspend_exc_parts", &names);
        }
        if let Some(pair) = self.conf.pair("SuspendExcStates") {
            let (drained, others): (Vec<&str>, Vec<&str>) =
                pair.value.split(',').map(str::trim).partition(|state| state.eq_ignore_ascii_case("DRAIN"));
            if !drained.is_empty() {
                section.list("suspend_exc_states", &["DRAIN".to_owned()]);
            }
            if !others.is_empty() {
                let why = format!("{}: nodes are switched off that are idle or drained", others.join(","));
                self.note(section, &pair, &why);
            }
        }
    }

    /// Notes a key without a counterpart, if it is set.
    fn left(&mut self, section: &mut Section, key: &str, why: &str) {
        if let Some(pair) = self.conf.pair(key) {
            self.note(section, &pair, why);
        }
    }

    fn common(&mut self) -> Common {
        let linear =
            self.conf.value("SelectType").is_some_and(|kind| kind.eq_ignore_ascii_case("select/linear"));
        let mut memory = Vec::new();
        for which in ["Def", "Max"] {
            for (by, key) in [("CPU", "cpu"), ("Node", "node")] {
                let said = self.conf.value(&format!("{which}MemPer{by}"));
                let key = format!("{}_mem_per_{key}", which.to_lowercase());
                memory.extend(said.map(|said| Memory { key, mb: megabytes(&said), pair: None }));
            }
        }
        let of_gpu =
            ["DefCpuPerGPU", "DefMemPerGPU"].into_iter().filter_map(|key| self.conf.pair(key)).collect();
        let no_root = self.conf.value("DisableRootJobs").and_then(|word| yes(&word)) == Some(true);
        Common { whole_nodes: linear, no_root, memory, of_gpu }
    }
}

/// Parses mebibytes; 0 for no limit or an invalid number.
pub(super) fn megabytes(text: &str) -> u64 {
    text.parse::<u64>().ok().or_else(|| text.parse().ok().map(|MemoryMb(mb)| mb)).unwrap_or(0)
}

/// Returns a section of comments with the remaining settings of `slurm.conf` and those given twice.
pub(super) fn rest(conf: Entry, twice: &[Pair], notes: &mut Notes) -> Section {
    let mut section = Section::new("");
    for pair in twice {
        section.comment(
            notes.about(pair, "it is said again further down, and the last counts").unwrap_or_default(),
        );
    }
    for text in notes.left(Kind::Cluster, conf.rest()) {
        section.comment(text);
    }
    section
}

/// Returns `host:port`, with brackets around an IPv6 address.
fn address(host: &str, port: &str) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Parses a time in Slurm's format to seconds, infinity as 100 years; `None` if it is invalid.
pub(super) fn seconds(text: &str) -> Option<u64> {
    if ["infinite", "unlimited", "none", "-1"].iter().any(|word| word.eq_ignore_ascii_case(text)) {
        return Some(100 * YEAR);
    }
    text.parse::<TimeLimit>().ok()?.seconds()
}

/// Parses a yes or no; `None` for any other text.
pub(super) fn yes(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "yes" | "y" | "true" | "up" | "1" => Some(true),
        "no" | "n" | "false" | "down" | "0" => Some(false),
        _ => None,
    }
}
