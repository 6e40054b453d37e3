//! Spur's workload format: one JSON object per line.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use spur_core::sim::NodeState;
use spur_core::text::array::ArraySpec;
use spur_core::text::hostlist::HostList;
use spur_core::text::nearest::nearest;

use super::args::Overrides;
use super::deed::{Arrival, Ask, Deed, Users, What, Workload};
use super::input;
use crate::error::Failure;
use crate::options::submission::Submission;

/// Default user of jobs.
const NOBODY: &str = "user";
/// Last second of the year 9999, in seconds since 1970. Later times cannot be printed as dates.
pub(super) const LAST: u64 = 253_402_300_799;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    at: u64,
    submit: Option<Job>,
    cancel: Option<String>,
    node: Option<Nodes>,
    reconfigure: Option<String>,
    command: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Job {
    id: String,
    #[serde(default)]
    argv: Vec<String>,
    user: Option<String>,
    #[serde(default)]
    runtime: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nodes {
    names: String,
    state: State,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Down,
    Drain,
    Resume,
    Fail,
}

/// Reads a workload. Paths in it are relative to `directory`.
///
/// # Errors
/// The first invalid line, with its file, its number and the job's name.
pub(super) fn read(
    text: &str,
    source: &str,
    directory: &Path,
    overrides: &Overrides,
) -> Result<Workload, Failure> {
    let mut reader = Reader {
        directory,
        overrides,
        users: Users::default(),
        ids: BTreeSet::new(),
        arrays: BTreeMap::new(),
    };
    let mut deeds = Vec::new();
    for (index, text) in text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        let line = index + 1;
        let told = |problem: String| Failure::new(format!("{source}:{line}: {problem}"));
        if !text.trim_start().starts_with('{') {
            return Err(told("a line is a JSON object, from `{` to `}`".to_owned()));
        }
        let read: Line = serde_json::from_str(text).map_err(|error| told(json_problem(&error)))?;
        let at = read.at;
        if at > LAST {
            return Err(told(format!("at: {at} is too late; give seconds from the start, at most {LAST}")));
        }
        let what = reader.what(read).map_err(told)?;
        deeds.push(Deed { at, line, what });
    }
    for deed in &deeds {
        if let What::Submit(job) = &deed.what
            && let Some(array) = reader.array_of_task(&job.name)
        {
            let name = &job.name;
            let problem = format!("job {name}: a task of the array {array} has this name");
            return Err(Failure::new(format!("{source}:{}: {problem}", deed.line)));
        }
        if let What::Cancel(job) = &deed.what
            && !reader.knows(job)
        {
            let near = nearest(job, reader.ids.iter().map(|id| &**id));
            let hint = near.map(|id| format!("; did you mean {id}?")).unwrap_or_default();
            return Err(Failure::new(format!("{source}:{}: cancel: there is no job {job}{hint}", deed.line)));
        }
    }
    Ok(Workload { source: source.to_owned(), deeds, skipped: None })
}

/// Returns the problem of a line, without the parser's own line number.
fn json_problem(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(problem) => format!("column {}: {problem}", error.column()),
        None => text,
    }
}

struct Reader<'a> {
    directory: &'a Path,
    overrides: &'a Overrides,
    users: Users,
    ids: BTreeSet<Arc<str>>,
    /// Jobs that are arrays, with their indices.
    arrays: BTreeMap<Arc<str>, ArraySpec>,
}

impl Reader<'_> {
    /// True if the workload has the job, or the array or het job that contains it.
    fn knows(&self, job: &str) -> bool {
        self.ids.contains(job)
            || job.rsplit_once(['_', '+']).is_some_and(|(whole, _)| self.ids.contains(whole))
    }

    /// Returns the array that has a task of this name; `None` if there is none.
    fn array_of_task<'a>(&self, name: &'a str) -> Option<&'a str> {
        let (array, task) = name.rsplit_once('_')?;
        let spec = self.arrays.get(array)?;
        let is_task =
            task.parse().is_ok_and(|number: u32| spec.tasks.contains(number) && number.to_string() == task);
        is_task.then_some(array)
    }

    fn what(&mut self, line: Line) -> Result<What, String> {
        let Line { at: _, submit, cancel, node, reconfigure, command } = line;
        let mut found = Vec::new();
        if let Some(job) = submit {
            found.push(self.submit(job)?);
        }
        found.extend(cancel.map(|job| What::Cancel(job.into())));
        if let Some(node) = node {
            found.push(nodes(&node)?);
        }
        if let Some(file) = reconfigure {
            let policy = input::policy(&self.directory.join(file), self.overrides);
            found.push(What::Reconfigure(Arc::new(policy.map_err(|failure| failure.text)?)));
        }
        if let Some(argv) = command {
            if argv.is_empty() {
                return Err("command: there are no words".to_owned());
            }
            found.push(What::Command(argv));
        }
        match (found.pop(), found.pop()) {
            (Some(only), None) => Ok(only),
            _ => Err("a line has `at` and one of submit, cancel, node, reconfigure and command".to_owned()),
        }
    }

    fn submit(&mut self, job: Job) -> Result<What, String> {
        let name: Arc<str> = job.id.into();
        if name.is_empty() {
            return Err("submit: the id is empty".to_owned());
        }
        if !self.ids.insert(Arc::clone(&name)) {
            return Err(format!("job {name}: a job of this id is on a line above"));
        }
        let options = Submission::parse(&job.argv, &|_| None, None);
        let options = options.map_err(|error| format!("job {name}: {error}"))?;
        let arrays = options.first().and_then(|options| options.spec.array.parse::<ArraySpec>().ok());
        self.arrays.extend(arrays.map(|array| (Arc::clone(&name), array)));
        let owner = self.users.owner(job.user.as_deref().unwrap_or(NOBODY));
        let arrival = Arrival { name, owner, run_time: job.runtime, ask: Ask::Options(options) };
        Ok(What::Submit(Box::new(arrival)))
    }
}

fn nodes(line: &Nodes) -> Result<What, String> {
    let names: HostList = line.names.parse().map_err(|error| format!("node: {error}"))?;
    if names.is_empty() {
        return Err("node: no node is named".to_owned());
    }
    let state = match line.state {
        State::Down => NodeState::Down,
        State::Drain => NodeState::Drain,
        State::Resume => NodeState::Resume,
        State::Fail => NodeState::Fail,
    };
    Ok(What::Nodes { names: names.iter().map(Arc::from).collect(), state })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let good = r#"{"at":0,"submit":{"id":"a","argv":["-N","1"],"runtime":5}}"#;
        let table = [
            (r#"{"at":0}"#, "w:2: a line has `at` and one of submit, cancel, node, reconfigure and command"),
            (r#"{"at":0,"cancel":"a","command":["x"]}"#, "w:2: a line has `at` and one of"),
            (r#"{"at":-1,"cancel":"a"}"#, "w:2: column 8: invalid value: integer `-1`"),
            (r#"{"at":0,"cancle":"a"}"#, "w:2: column 16: unknown field `cancle`"),
            (r#"{"at":0,"submit":{"id":"b","runtim":3}}"#, "w:2: column 35: unknown field `runtim`"),
            (
                r#"{"at":0,"submit":{"id":"a","runtime":3}}"#,
                "w:2: job a: a job of this id is on a line above",
            ),
            (r#"{"at":0,"submit":{"id":"b","argv":["--gather"]}}"#, "w:2: job b: "),
            (r#"{"at":0,"submit":{"id":"b","argv":["--no-such"]}}"#, "w:2: job b: "),
            (r#"{"at":0,"cancel":"aa"}"#, "w:2: cancel: there is no job aa; did you mean a?"),
            (r#"{"at":0,"node":{"names":"n[1","state":"down"}}"#, "w:2: node: "),
            (r#"{"at":0,"node":{"names":"n1","state":"up"}}"#, "w:2: column 41: unknown variant `up`"),
            (r#"{"at":0,"reconfigure":"none.toml"}"#, "w:2: cannot read /nowhere/none.toml: "),
            (r#"{"at":0,"command":[]}"#, "w:2: command: there are no words"),
            ("{", "w:2: "),
            (r#"[0,null,"a",null,null,null]"#, "w:2: a line is a JSON object"),
            ("# a comment", "w:2: a line is a JSON object"),
            (
                r#"{"at":253402300800,"cancel":"a"}"#,
                "w:2: at: 253402300800 is too late; give seconds from the start, at most 253402300799",
            ),
            (r#"{"at":0,"node":{"names":"","state":"down"}}"#, "w:2: node: no node is named"),
        ];
        for (line, says) in table {
            let text = format!("{good}\n{line}\n");
            let read = read(&text, "w", Path::new("/nowhere"), &Overrides::default());
            let error = read.expect_err(line).to_string();
            assert!(error.starts_with(says), "{line}: {error}");
        }
    }

    #[test]
    fn no_job_has_the_name_of_a_task() {
        let array = r#"{"at":0,"submit":{"id":"a","argv":["--array=1-9:2"],"runtime":5}}"#;
        let named = |id: &str| {
            let text = format!("{{\"at\":0,\"submit\":{{\"id\":\"{id}\",\"runtime\":5}}}}\n{array}\n");
            read(&text, "w", Path::new("."), &Overrides::default())
        };
        let error = named("a_3").expect_err("a task has it").to_string();
        assert_eq!(error, "w:1: job a_3: a task of the array a has this name");
        for free in ["a_2", "a_03", "b_3"] {
            assert!(named(free).is_ok(), "{free}");
        }
    }
}
