//! A month of a site in `spur sim --policy`: three faculties with nested accounts, 200 users, QOS for
//! debug, long and high priority, and limits of each kind. A checker that shares no code with Spur asserts
//! that no start exceeds a limit. The checker's usage and ranks at the end are equal to Spur's.
//!
//! `SPUR_JOBS_A_DAY` sets the number of jobs per day: 10 by default, 1000 for a large site.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod checker;
mod site;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use checker::Checker;
use serde_json::{Value, json};
use site::{Ask, CONFIG, Draw, Site};
use spur_cli::commands::sim;
use spur_cli::session::Session;

/// Seconds after the start at which all remaining jobs are cancelled. At `END`, usage is compared.
const CANCELLED: u64 = 38 * 86_400;
const END: u64 = 40 * 86_400;

fn line(site: &Site, number: usize, ask: &Ask) -> Value {
    let user = &site.users[ask.user];
    let account = &site.accounts[user.account].name;
    let mut argv = vec![
        format!("--account={account}"),
        format!("--qos={}", ask.qos),
        format!("--partition={}", ask.partition),
        format!("--ntasks={}", ask.cpus),
        format!("--time={}", ask.minutes),
    ];
    if ask.gpus > 0 {
        argv.extend([format!("--gres=gpu:{}", ask.gpus), "--nodes=1".to_owned()]);
    }
    json!({
        "at": ask.at,
        "submit": { "id": format!("j{number}"), "argv": argv, "user": user.name, "runtime": ask.runtime },
    })
}

#[test]
fn no_limit_is_exceeded_in_a_month_and_usage_is_that_of_the_runs() {
    let jobs_a_day = std::env::var("SPUR_JOBS_A_DAY").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    let mut draw = Draw::new(42);
    let site = Site::new(&mut draw);
    let asks = site.month(jobs_a_day, &mut draw);
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("month");
    fs::create_dir_all(&directory).unwrap();
    let write = |name: &str, text: String| {
        let path = directory.join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let mut jobs: Vec<String> =
        asks.iter().enumerate().map(|(number, ask)| line(&site, number, ask).to_string()).collect();
    jobs.extend(
        (0..asks.len()).map(|number| json!({ "at": CANCELLED, "cancel": format!("j{number}") }).to_string()),
    );
    jobs.push(json!({ "at": END, "command": ["sshare", "-a", "-l", "-P", "-n"] }).to_string());
    let (config, policy) = (write("cluster.toml", CONFIG.to_owned()), write("policy.cfg", site.dump()));
    let (workload, events) = (write("jobs.jsonl", jobs.join("\n")), directory.join("events.jsonl"));
    let mut session = Session::in_memory("spur sim", BTreeMap::new(), None);
    let words = ["--config", &config, "--policy", &policy, "--workload", &workload, "--json", "--events"];
    let words: Vec<String> =
        words.into_iter().map(str::to_owned).chain([events.display().to_string()]).collect();
    assert_eq!(sim::run(&mut session, &words).unwrap(), 0);

    let mut checker = Checker::new(&site, &asks);
    let mut shares = String::new();
    for text in fs::read_to_string(events).unwrap().lines() {
        let event: Value = serde_json::from_str(text).unwrap();
        checker.event(&event);
        if event["event"] == "command" && event["argv"][0] == "sshare" {
            assert_eq!(event["status"], 0, "{event}");
            event["stdout"].as_str().unwrap().clone_into(&mut shares);
        }
    }
    assert!(checker.is_idle(), "everything that ran has ended");
    assert!(checker.starts * 2 > asks.len(), "{} of {} jobs started", checker.starts, asks.len());
    compare(&site, &checker, &shares);
    println!("{} starts, {} refused, reasons: {:?}", checker.starts, checker.rejects, checker.reasons);
    let limits =
        checker.reasons.keys().filter(|reason| reason.starts_with("QOS") || reason.starts_with("Assoc"));
    assert!(limits.count() >= 8, "limits of many kinds stopped jobs: {:?}", checker.reasons);
}

/// Compares the output of `sshare` at the end with the checker's own counts.
fn compare(site: &Site, checker: &Checker<'_>, shares: &str) {
    let (ranks, all) = checker.ranks();
    let mut compared = 0;
    for row in shares.lines() {
        let fields: Vec<&str> = row.split('|').collect();
        let (account, user) = (fields[0].trim(), fields[1]);
        let used: u64 = fields[4].parse().unwrap();
        if let Some(at) = site.users.iter().position(|known| known.name == user) {
            assert_eq!(used, checker.used_by_user(at), "usage of {user}");
            let factor = format!("{:.6}", ranks[at] as f64 / all as f64);
            assert_eq!(fields[7], factor, "fair share of {user}");
        } else if let Some(at) =
            site.accounts.iter().position(|known| known.name == account && user.is_empty())
        {
            assert_eq!(used, checker.used_by_account(at), "usage of account {account}");
        } else {
            assert_eq!((user, used), ("root", 0));
        }
        compared += 1;
    }
    assert_eq!(compared, site.users.len() + site.accounts.len() + 1);
}
