//! The simulated site: accounts, users, QOS and limits, as text for `spur sim` and as numbers for the
//! checker, and a month of jobs.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Limits by name and resource. The resource is empty for a limit that counts no resource.
pub(crate) type Limits = BTreeMap<&'static str, BTreeMap<&'static str, u64>>;

/// Parses limits in the format of `sacctmgr dump`: `GrpTRES=cpu=4,gres/gpu=2:GrpJobs=5`.
pub(crate) fn limits(text: &'static str) -> Limits {
    let mut all = Limits::new();
    for part in text.split(':').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').expect("a name and a value");
        let kind = all.entry(name).or_default();
        match value.parse() {
            Ok(count) => drop(kind.insert("", count)),
            Err(_) => {
                for amount in value.split(',') {
                    let (resource, count) = amount.rsplit_once('=').expect("a resource and a count");
                    kind.insert(resource, count.parse().expect("a count"));
                }
            }
        }
    }
    all
}

pub(crate) struct Qos {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    pub(crate) limits: Limits,
    /// True if jobs over a limit are refused, and the limits of this QOS precede those of the partition's
    /// QOS.
    pub(crate) denies: bool,
    pub(crate) usage_factor: u64,
}

fn qos(name: &'static str, more: &'static str, limits_text: &'static str, usage_factor: u64) -> Qos {
    let denies = more.contains("DenyOnLimit");
    Qos { name, text: more, limits: limits(limits_text), denies, usage_factor }
}

pub(crate) struct Account {
    pub(crate) name: String,
    /// Index of the parent account; `None` for `root`.
    pub(crate) parent: Option<usize>,
    pub(crate) shares: u32,
    pub(crate) limits: Limits,
    text: &'static str,
}

pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) account: usize,
    pub(crate) shares: u32,
    pub(crate) limits: Limits,
    text: &'static str,
}

pub(crate) struct Site {
    pub(crate) qos: Vec<Qos>,
    pub(crate) accounts: Vec<Account>,
    pub(crate) users: Vec<User>,
}

/// A job to submit. `at` and `runtime` are in seconds, `minutes` is the time limit.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) at: u64,
    pub(crate) user: usize,
    pub(crate) qos: &'static str,
    pub(crate) partition: &'static str,
    pub(crate) cpus: u64,
    pub(crate) gpus: u64,
    pub(crate) minutes: u64,
    pub(crate) runtime: u64,
}

/// The QOS of the partition `gpu`.
pub(crate) const OF_GPU: &str = "pgpu";

pub(crate) const CONFIG: &str = r#"
cluster_name = "month"
[controller]
accounting_storage_enforce = ["safe"]
[scheduler]
priority_weight_fairshare = 10000
priority_weight_qos = 5000
priority_weight_age = 1000
priority_decay_half_life = "0s"
priority_calc_period = "1h"
backfill = "easy"
[preempt]
by = "qos"
mode = "requeue"
[[nodes]]
names = "c[01-30]"
cpus = 16
memory_mb = 64000
[[nodes]]
names = "g[01-08]"
cpus = 16
memory_mb = 64000
gres = ["gpu:4"]
[[partitions]]
name = "main"
nodes = "c[01-30]"
default = true
max_time = "7-00:00:00"
default_time = "60"
[[partitions]]
name = "gpu"
nodes = "g[01-08]"
max_time = "2-00:00:00"
default_time = "60"
qos = "pgpu"
"#;

/// A generator of pseudo-random numbers, which are the same in each run.
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `most`.
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    pub(crate) fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).expect("small")]
    }
}

impl Site {
    /// Returns a site of three faculties with two departments of two groups each, and 200 users.
    pub(crate) fn new(draw: &mut Draw) -> Self {
        let qos = vec![
            qos("normal", "", "MaxTRESPerUser=cpu=128:MaxJobsPerAccount=30", 1),
            qos(
                "debug",
                ":Priority=100:Flags='DenyOnLimit,OverPartQOS'",
                "MaxWallDurationPerJob=30:MaxJobsPerUser=2:MaxTRESPerJob=cpu=16,gres/gpu=2:MaxSubmitJobsPerUser=4",
                0,
            ),
            qos(
                "long",
                "",
                "GrpTRES=cpu=160:MaxTRESPerUser=cpu=48:GrpTRESRunMins=cpu=400000:MaxTRESPerAccount=cpu=96",
                1,
            ),
            qos(
                "high",
                ":Priority=1000:Preempt='normal'",
                "GrpJobs=6:MaxTRESPerUser=cpu=64:MinTRESPerJob=cpu=2",
                2,
            ),
            qos(OF_GPU, "", "GrpTRES=gres/gpu=20:MaxTRESPerUser=gres/gpu=8:MaxTRESPerNode=cpu=12", 1),
        ];
        let account = |name: &str, parent, shares, text: &'static str| Account {
            name: name.to_owned(),
            parent,
            shares,
            limits: limits(text),
            text,
        };
        let mut accounts = vec![account("root", None, 1, "")];
        let faculties = [
            ("sci", 50, "GrpTRES=cpu=300,gres/gpu=12:MaxJobs=12:MaxTRESMinsPerJob=cpu=40000"),
            ("eng", 30, "GrpTRES=cpu=200,mem=500000:GrpJobs=40:MaxWallDurationPerJob=4000"),
            ("arts", 20, "GrpTRES=cpu=64:GrpTRESMins=cpu=1500000:GrpWall=150000:MaxSubmitJobs=15"),
        ];
        for (faculty, shares, text) in faculties {
            let parent = accounts.len();
            accounts.push(account(faculty, Some(0), shares, text));
            for (department, text) in
                [("a", "GrpTRESRunMins=cpu=150000"), ("b", "GrpSubmitJobs=60:GrpJobs=25")]
            {
                let above = accounts.len();
                accounts.push(account(&format!("{faculty}-{department}"), Some(parent), 1, text));
                for (group, shares) in [("1", 3), ("2", 1)] {
                    let name = format!("{faculty}-{department}{group}");
                    accounts.push(account(&name, Some(above), shares, ""));
                }
            }
        }
        let groups: Vec<usize> = (0..accounts.len()).filter(|at| accounts[*at].name.len() > 5).collect();
        let groups: Vec<usize> =
            groups.into_iter().filter(|at| accounts[*at].name.ends_with(['1', '2'])).collect();
        let user = |number: usize| {
            let text = draw.one_of(&["", "", "", "MaxJobs=3", "MaxTRESPerJob=cpu=32", "GrpTRES=cpu=40"]);
            let (account, shares) = (groups[number % groups.len()], draw.one_of(&[1, 1, 2, 5]));
            User { name: format!("u{number:03}"), account, shares, limits: limits(text), text }
        };
        let users = (0..200).map(user).collect();
        Self { qos, accounts, users }
    }

    /// Returns the content of the file for `--policy`.
    pub(crate) fn dump(&self) -> String {
        let mut text = String::new();
        let colon = |limits: &str| if limits.is_empty() { String::new() } else { format!(":{limits}") };
        for qos in &self.qos {
            let limits = qos.limits.iter().map(|(name, amounts)| format!(":{name}={}", written(amounts)));
            let limits: String = limits.collect();
            let _ =
                writeln!(text, "QOS - '{}'{}:UsageFactor={}{limits}", qos.name, qos.text, qos.usage_factor);
        }
        let all: Vec<&str> = self.qos.iter().map(|qos| qos.name).filter(|name| *name != OF_GPU).collect();
        let _ = writeln!(text, "Cluster - 'month':Fairshare=1:QOS='{}':DefaultQOS='normal'", all.join(","));
        for (at, account) in self.accounts.iter().enumerate() {
            let _ = writeln!(text, "Parent - '{}'", account.name);
            for child in self.accounts.iter().filter(|child| child.parent == Some(at)) {
                let limits = colon(child.text);
                let _ = writeln!(
                    text,
                    "Account - '{}':Description='d':Organization='o':Fairshare={}{limits}",
                    child.name, child.shares
                );
            }
            for user in self.users.iter().filter(|user| user.account == at) {
                let limits = colon(user.text);
                let _ = writeln!(
                    text,
                    "User - '{}':DefaultAccount='{}':Fairshare={}{limits}",
                    user.name, account.name, user.shares
                );
            }
        }
        text
    }

    /// Returns the jobs of 30 days, in the order of their submission.
    pub(crate) fn month(&self, jobs_a_day: u64, draw: &mut Draw) -> Vec<Ask> {
        let count = jobs_a_day * 30;
        let mut asks: Vec<Ask> = (0..count).map(|_| self.ask(draw)).collect();
        asks.sort_by_key(|ask| ask.at);
        asks
    }

    fn ask(&self, draw: &mut Draw) -> Ask {
        let qos = draw.one_of(&["normal", "normal", "normal", "normal", "debug", "long", "long", "high"]);
        let partition = draw.one_of(&["main", "main", "main", "gpu"]);
        let minutes = match qos {
            "debug" => draw.one_of(&[10, 20, 30, 30, 45]),
            "long" => draw.one_of(&[1440, 2880, 5000, 7200]),
            _ => draw.one_of(&[30, 60, 240, 600, 1440]),
        };
        let minutes = if partition == "gpu" { minutes.min(2880) } else { minutes };
        // A few jobs run longer than their time limits.
        let runtime = 1 + draw.below(minutes * 63);
        Ask {
            at: draw.below(30 * 86_400),
            user: usize::try_from(draw.below(self.users.len() as u64)).expect("small"),
            qos,
            partition,
            cpus: draw.one_of(&[1, 2, 4, 8, 16, 32, 64]).min(if partition == "gpu" { 16 } else { 64 }),
            gpus: if partition == "gpu" { 1 + draw.below(4) } else { 0 },
            minutes,
            runtime,
        }
    }

    pub(crate) fn qos(&self, name: &str) -> Option<usize> {
        self.qos.iter().position(|qos| qos.name == name)
    }

    /// Returns an account and all accounts above it, from the bottom up.
    pub(crate) fn chain(&self, account: usize) -> Vec<usize> {
        std::iter::successors(Some(account), |below| self.accounts[*below].parent).collect()
    }
}

fn written(amounts: &BTreeMap<&str, u64>) -> String {
    let one = |(resource, count): (&&str, &u64)| match *resource {
        "" => count.to_string(),
        resource => format!("{resource}={count}"),
    };
    amounts.iter().map(one).collect::<Vec<_>>().join(",")
}
