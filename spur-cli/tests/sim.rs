//! Tests of `spur sim` as a user runs it: the scenarios in `tests/data/sim`, and properties of all workloads.
//!
//! A scenario is a directory with `cluster.toml`, `jobs.jsonl`, optionally `options`, and `expected.jsonl`.
//! The last file has every event in order, with the relevant fields; events may have further fields.
//! `UPDATE_EXPECT=1` rewrites the expected events, without the explanations of starts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use spur_cli::commands::sim;
use spur_cli::error;
use spur_cli::session::Session;

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/sim")
}

/// Returns a directory for the files of a test.
fn scratch(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&directory).expect("the target directory can be written");
    directory
}

/// Runs `spur sim`; returns its output, or the exit code and text of its error.
fn sim(words: &[String]) -> Result<String, (u8, String)> {
    let mut session = Session::in_memory("spur sim", BTreeMap::new(), None);
    match sim::run(&mut session, words) {
        Ok(code) => {
            assert_eq!(code, 0);
            Ok(session.out.take_text())
        }
        Err(error) => {
            let code = error::report(&mut session, &error);
            Err((code, session.take_complaints()))
        }
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Runs a simulation; returns its summary and its events as text.
fn run(name: &str, options: &str) -> (String, String) {
    let events = scratch("sim").join(format!("{name}.jsonl"));
    let summary = sim(&words(&format!("{options} --json --events {}", events.display())));
    let summary = summary.unwrap_or_else(|(code, text)| panic!("{name}: exit code {code}: {text}"));
    (summary, fs::read_to_string(events).expect("events were written"))
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON object a line")).collect()
}

/// True if the event has all expected fields, possibly with others.
fn agrees(expected: &Value, event: &Value) -> bool {
    let (Some(expected), Some(event)) = (expected.as_object(), event.as_object()) else { return false };
    expected.iter().all(|(field, value)| event.get(field) == Some(value))
}

fn options(directory: &Path) -> String {
    let more = fs::read_to_string(directory.join("options")).unwrap_or_default();
    let directory = directory.display();
    format!("--config {directory}/cluster.toml --workload {directory}/jobs.jsonl {more}")
}

fn directories() -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(scenarios()).expect("the scenarios are there");
    let mut found: Vec<(String, PathBuf)> = entries
        .map(|entry| entry.expect("it can be read"))
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .collect();
    found.sort();
    found
}

#[test]
fn scenarios_happen_as_expected() {
    let mut wrong = Vec::new();
    for (name, directory) in directories() {
        let (_, events) = run(&name, &options(&directory));
        let file = directory.join("expected.jsonl");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            // The explanation is the last field of a start.
            let kept = events.lines().map(|line| match line.split_once(",\"why\":") {
                Some((fields, _)) => format!("{fields}}}\n"),
                None => format!("{line}\n"),
            });
            fs::write(&file, kept.collect::<String>()).expect("it can be written");
            continue;
        }
        let expected = lines(&fs::read_to_string(&file).unwrap_or_else(|error| panic!("{name}: {error}")));
        let happened = lines(&events);
        for index in 0..expected.len().max(happened.len()) {
            match (expected.get(index), happened.get(index)) {
                (Some(expected), Some(event)) if agrees(expected, event) => {}
                (expected, event) => {
                    let shown = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
                    wrong.push(format!("{name}: expected {}\n  happened {}", shown(expected), shown(event)));
                    break;
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}\nUPDATE_EXPECT=1 rewrites what is expected", wrong.join("\n"));
}

#[test]
fn events_may_go_to_the_standard_output() {
    let options = options(&scenarios().join("commands"));
    let (summary, events) = run("streamed", &options);
    let mut session = Session::in_memory("spur sim", BTreeMap::new(), None);
    let code = sim::run(&mut session, &words(&format!("{options} --json --events -"))).expect("it runs");
    assert_eq!((code, session.out.take_text()), (0, events));
    assert_eq!(without_cost(&session.take_complaints()), without_cost(&summary));
    assert!(!Path::new("-").exists(), "no file of that name was meant");
}

/// Returns the summary without the cost of the simulation.
fn without_cost(summary: &str) -> Value {
    let mut summary: Value = serde_json::from_str(summary).expect("the summary is JSON");
    summary.as_object_mut().expect("an object").remove("cost").expect("the cost is told");
    summary
}

fn spines() -> PathBuf {
    scenarios().join("best-fit-over-spines/cluster.toml")
}

#[test]
fn a_second_run_is_the_same_to_the_byte() {
    let made_up = format!("--config {} --generate lublin --jobs 60 --load 1.1 --seed 4", spines().display());
    for pass in ["event", "timestamp"] {
        let options = format!("{made_up} --pass {pass} --backfill conservative --depth 0");
        let (one, two) = (run("same-1", &options), run("same-2", &options));
        assert!(one.1.lines().count() > 120, "jobs start and end");
        assert_eq!(one.1, two.1);
        assert_eq!(without_cost(&one.0), without_cost(&two.0));
    }
}

#[test]
fn events_without_those_who_wait_are_otherwise_the_same() {
    let made_up = format!("--config {} --generate lublin --jobs 60 --load 1.1 --seed 4", spines().display());
    for backfill in ["easy", "conservative"] {
        let options = format!("{made_up} --backfill {backfill}");
        let (all, few) = (run("pending", &options), run("no-pending", &format!("{options} --no-pending")));
        let others: Vec<&str> = all.1.lines().filter(|line| !line.contains(r#""event":"pending""#)).collect();
        assert!(others.len() < all.1.lines().count(), "somebody waits");
        assert_eq!(others, few.1.lines().collect::<Vec<_>>());
        assert_eq!(without_cost(&all.0), without_cost(&few.0));
    }
}

#[test]
fn events_of_a_time_come_in_the_order_of_the_contract() {
    // A job that is resumed and then ends, or is suspended again, has its events in this order.
    let rank = |event: &Value, last: i64| match event["event"].as_str().expect("an event has a kind") {
        "submit" | "reject" | "test" => 0,
        "command" => 1,
        "preempt" => 2,
        "suspend" | "resume" if last <= 3 => 3,
        "end" => 4,
        "suspend" | "resume" => 5,
        "replace" => 6,
        "start" => 7,
        "pending" => 8,
        other => panic!("what is {other}?"),
    };
    let mut seen = 0;
    for (name, directory) in directories() {
        let (_, events) = run(&format!("order-{name}"), &options(&directory));
        let mut numbers = BTreeMap::new();
        let mut last = (-1, 0, 0);
        for event in lines(&events) {
            let job = event["job"].as_str().unwrap_or_default().to_owned();
            if let Some(number) = event["jobid"].as_i64() {
                numbers.insert(job.clone(), number);
            }
            let t = event["t"].as_i64().expect("an event has a time");
            let rank = rank(&event, if t == last.0 { last.1 } else { 0 });
            // The number of a task that was split from its array is in no event.
            let unknown = if (t, rank) == (last.0, last.1) && rank > 1 { last.2 } else { 0 };
            let number = numbers.get(&job).copied().filter(|_| rank > 1).unwrap_or(unknown);
            let here = (t, rank, number);
            assert!(last <= here, "{name}: {event} comes after {last:?}");
            last = here;
            seen += 1;
        }
    }
    assert!(seen > 100, "the scenarios have events");
}

#[test]
fn only_what_runs_is_stopped_and_only_what_is_stopped_goes_on() {
    let mut stopped = 0;
    for (name, directory) in directories() {
        let (_, events) = run(&format!("stopped-{name}"), &options(&directory));
        let mut states: BTreeMap<String, String> = BTreeMap::new();
        for event in lines(&events) {
            let state = states.entry(format!("{} {}", event["job"], event["component"])).or_default();
            let kind = event["event"].as_str().expect("an event has a kind");
            let follows: &[&str] = match kind {
                "start" => &["", "end"],
                "suspend" => &["start", "resume"],
                "resume" => &["suspend"],
                "end" => &["", "start", "suspend", "resume"],
                _ => continue,
            };
            assert!(follows.contains(&state.as_str()), "{name}: {event} after {state:?}");
            stopped += usize::from(kind == "suspend");
            kind.clone_into(state);
        }
    }
    assert!(stopped > 5, "some scenarios suspend jobs");
}

#[test]
fn a_pass_follows_every_event_if_wished() {
    // Two jobs end in the same second. With a pass after each event, a small job fits into the nodes of the
    // first.
    let directory = scratch("sim-pass");
    let workload = directory.join("jobs.jsonl");
    let job = |id: &str, at: u64, nodes: u32, minutes: u32, run: u64| {
        let argv = format!(r#"["-N","{nodes}","--exclusive","-t","{minutes}"]"#);
        format!(r#"{{"at":{at},"submit":{{"id":"{id}","argv":{argv},"runtime":{run}}}}}"#)
    };
    let jobs = [job("a", 0, 2, 10, 100), job("b", 0, 2, 10, 100)];
    let waiting = [job("head", 1, 4, 10, 10), job("small", 2, 2, 5, 10)];
    let text = [jobs.join("\n"), waiting.join("\n")].join("\n");
    fs::write(&workload, text).expect("it can be written");
    let cluster = scenarios().join("failures/cluster.toml");
    let started = |pass: &str| {
        let options =
            format!("--config {} --workload {} --pass {pass}", cluster.display(), workload.display());
        let (summary, events) = run(&format!("pass-{pass}"), &options);
        let starts = lines(&events).into_iter().filter(|event| event["event"] == "start");
        let starts: Vec<String> = starts.map(|event| format!("{}@{}", event["job"], event["t"])).collect();
        let passes = serde_json::from_str::<Value>(&summary).expect("JSON")["cost"]["passes"].as_i64();
        (starts.join(" "), passes.expect("passes are counted"))
    };
    let (once, few) = started("timestamp");
    let (each, many) = started("event");
    assert_eq!(once, r#""a"@0 "b"@0 "head"@100 "small"@110"#);
    assert_eq!(each, r#""a"@0 "b"@0 "small"@100 "head"@110"#);
    assert!(many > few, "{many} passes against {few}");
}

#[test]
fn the_summary_adds_up() {
    // Four nodes of four CPUs: a holds two nodes from 0 to 100, b waits 50 s and holds four from 100 to 150.
    let directory = scratch("sim-summary");
    let workload = directory.join("jobs.jsonl");
    let text = r#"{"at":0,"submit":{"id":"a","argv":["-N","2","--exclusive"],"runtime":100}}
{"at":50,"submit":{"id":"b","argv":["-N","4","--exclusive"],"runtime":50}}
{"at":60,"submit":{"id":"c","argv":["-N","5"],"runtime":50}}"#;
    fs::write(&workload, text).expect("it can be written");
    let cluster = scenarios().join("failures/cluster.toml");
    let (summary, _) =
        run("summary", &format!("--config {} --workload {}", cluster.display(), workload.display()));
    assert!(summary.contains(r#""wait":{"mean":25.000000,"p50":0,"p95":50,"p99":50,"max":50}"#), "{summary}");
    assert!(summary.contains(r#""mean":1.500000"#), "slowdowns are 1 and 2: {summary}");
    // 8 CPUs for 100 s and 16 for 50 s, of 16 for 150 s.
    assert!(summary.contains(r#""utilization":0.666667,"makespan":150"#), "{summary}");
    assert!(summary.starts_with(r#"{"jobs":3,"started":2,"rejected":1,"#), "{summary}");
}

#[test]
fn runs_are_judged_on_the_fabric_on_which_they_were_placed() {
    let directory = scratch("sim-other-fabric");
    let config = |leaves: &str| {
        format!(
            "cluster_name = 'f'\n[[nodes]]\nnames = 'n[1-4]'\ncpus = 1\n[[partitions]]\nname = 'main'\nnodes = 'ALL'\n\
             default = true\n[topology]\nplugin = 'tree'\nswitches = [{leaves}]\n"
        )
    };
    let one = "{ name = 'a', nodes = 'n[1-4]' }";
    let two = "{ name = 'a', nodes = 'n[1-2]' }, { name = 'b', nodes = 'n[3-4]' }, { name = 't', switches = 'a,b' }";
    fs::write(directory.join("one.toml"), config(one)).expect("it can be written");
    fs::write(directory.join("two.toml"), config(two)).expect("it can be written");
    let text = r#"{"at":0,"submit":{"id":"a","argv":["-N","4","--exclusive"],"runtime":100}}
{"at":50,"reconfigure":"two.toml"}"#;
    let workload = directory.join("jobs.jsonl");
    fs::write(&workload, text).expect("it can be written");
    let cluster = directory.join("one.toml");
    let (summary, _) =
        run("other-fabric", &format!("--config {} --workload {}", cluster.display(), workload.display()));
    assert!(summary.contains(r#""leaf":{"mean":1.000000,"over_minimum":1.000000"#), "{summary}");
}

#[test]
fn what_makes_no_sense_is_told_with_its_exit_code() {
    let directory = scratch("sim-errors");
    let file = |name: &str, text: &str| {
        let path = directory.join(name);
        fs::write(&path, text).expect("it can be written");
        path.display().to_string()
    };
    let cluster = spines().display().to_string();
    let good = file("good.jsonl", "");
    let unknown = file("unknown.jsonl", "{\"at\":0,\"submit\":{\"id\":\"a\",\"argv\":[\"--nodez=3\"]}}\n");
    let node = file("node.jsonl", "\n{\"at\":3,\"node\":{\"names\":\"node-99\",\"state\":\"down\"}}\n");
    let config = file("bad.toml", "cluster_nam = \"x\"\n");
    let trace = file("bad.swf", "; MaxProcs: 4\n1 2 x\n");
    let endless = file("endless.swf", "1 0 -1 5 4 -1 -1 4 10 -1 1 1 1 -1 1 -1 -1 -1\n");
    let table = [
        (String::new(), 2, "nothing to run: give --workload, --swf or --generate"),
        (format!("--workload {good}"), 2, "no machine to run on: give --config or --procs"),
        (format!("--workload {good} --swf {trace}"), 2, "give one of --workload, --swf and --generate"),
        (format!("--workload {good} --config {cluster} --seed 1"), 2, "are for --generate"),
        (format!("--workload {good} --config {cluster} --order lifo"), 2, "--order: `lifo` is not known"),
        (format!("--workload {good} --config {cluster} --scale-arrivals 0"), 2, "no number above 0"),
        (format!("--workload {good} --config {cluster} --max-wait abc"), 2, "write `30s`, `5m`, `2h`, `1d`"),
        (format!("--swf {endless} --procs 99999999999"), 2, "no whole number from 1 to 4294967295"),
        (format!("--workload {good} --config {cluster} --no-pending"), 2, "--no-pending is for --events"),
        (format!("--workload {good} --config {cluster} more"), 2, "`more` is no option"),
        (format!("--workload {good} --config /nowhere.toml"), 1, "cannot read /nowhere.toml: "),
        (format!("--workload {good} --config {config}"), 1, "bad.toml:1"),
        (format!("--workload {unknown} --config {cluster}"), 1, "unknown.jsonl:1: job a: "),
        (format!("--workload {node} --config {cluster}"), 1, "node.jsonl:2: node: Invalid node name"),
        (format!("--swf {trace}"), 1, "bad.swf:2: `x` is no number"),
        (format!("--swf {endless}"), 1, "give --procs or --config"),
    ];
    for (options, code, says) in table {
        let (found, text) = sim(&words(&options)).expect_err(&options);
        assert_eq!(found, code, "{options}: {text}");
        assert!(text.starts_with("spur sim: error: ") && text.contains(says), "{options}: {text}");
        assert!(!text.contains("error: Try"), "{options}: {text}");
    }
}

#[test]
fn how_a_file_was_saved_makes_no_difference() {
    let from = scenarios().join("racks-as-block");
    let to = scratch("saved");
    for (name, edit) in [
        ("marked", (|text| format!("\u{feff}{text}")) as fn(String) -> String),
        ("carriage-returns", |text| text.replace('\n', "\r\n")),
        ("blank-lines", |text| format!("\n{}\n\n", text.replace('\n', "\n \n"))),
        ("no-last-end", |text| text.trim_end().to_owned()),
    ] {
        for file in ["cluster.toml", "jobs.jsonl"] {
            let text = fs::read_to_string(from.join(file)).expect("a scenario has it");
            fs::write(to.join(file), edit(text)).expect("the target directory can be written");
        }
        let (_, expected) = run("saved-plain", &options(&from));
        let (_, came) = run("saved", &options(&to));
        assert_eq!(came, expected, "{name}");
    }
    let trace = "; MaxProcs: 8\n1 0 -1 50 4 -1 -1 -1 40 -1 1 3 -1 -1 -1 -1 -1 -1\n";
    let replay = |text: &str| {
        let file = to.join("trace.swf");
        fs::write(&file, text).expect("the target directory can be written");
        run("saved-trace", &format!("--swf {}", file.display())).1
    };
    let expected = replay(trace);
    assert_eq!(lines(&expected).len(), 3);
    assert_eq!(replay(&format!("\u{feff}{}", trace.trim_end().replace('\n', "\r\n"))), expected);
}

#[test]
fn pictures_are_drawn_even_of_nothing() {
    let directory = scratch("sim-plots");
    let options = format!("--config {} --generate lublin --jobs 40", spines().display());
    for (options, name) in [(options.as_str(), "some"), ("--procs 4 --swf /dev/null", "none")] {
        let pictures = directory.join(name);
        sim(&words(&format!("{options} --plot {}", pictures.display()))).expect("pictures are drawn");
        for picture in ["utilisation", "queue", "gantt", "fragmentation", "waits"] {
            let svg =
                fs::read_to_string(pictures.join(format!("{picture}.svg"))).expect("the picture is there");
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{picture}");
        }
    }
}

#[test]
fn a_plan_tells_when_and_where_without_submitting() {
    let plan = |state: &str, rest: &str| {
        let directory = scenarios().join(state);
        let directory = directory.display();
        let options =
            format!("--config {directory}/cluster.toml --state {directory}/jobs.jsonl --json {rest}");
        let mut session = Session::in_memory("spur plan", BTreeMap::new(), None);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let code = runtime.block_on(sim::plan::run(&mut session, &words(&options))).expect(rest);
        let answer: Value = serde_json::from_str(&session.out.take_text()).expect("JSON");
        (code, answer)
    };
    let (code, now) = plan("best-fit-over-spines", "--at 0 -- -N 3 --exclusive --gather=must:block");
    assert_eq!((code, now["start"].as_i64(), now["nodes"].as_str()), (0, Some(0), Some("node-[9-11]")));
    assert_eq!(now["spans"], serde_json::json!({"node": 3, "block": 1, "spine": 1}));
    // The scenario has the same result for `--test-only` at that time.
    let (code, later) = plan("backfill-easy", "--at 4 -- -N 4 --exclusive -t 5");
    assert_eq!((code, later["start"].as_i64(), later["nodes"].as_str()), (0, Some(3000), Some("n[1-4]")));
    let (code, never) = plan("best-fit-over-spines", "-- -N 6 --exclusive");
    assert_eq!((code, never["start"].as_i64(), never["nodes"].as_str()), (1, None, None));
    assert!(never["detail"].as_str().is_some_and(|text| text.contains("holds 5; ask")), "{never}");
}
