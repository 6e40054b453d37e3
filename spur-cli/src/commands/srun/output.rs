//! Output of a step's tasks: line by line to the command's own streams, or to files.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Context;
use spur_core::model::idset::IdSet;
use spur_core::text::pattern::{FilePattern, PatternContext};
use spur_proto::v1::StepFiles;

use crate::options::submission::{Files, StepWishes};

/// Length in bytes beyond which a line is passed on in parts.
const LONGEST_LINE: usize = 64 << 10;

/// Destination of one of the two streams.
#[derive(Debug)]
enum Route {
    /// The command's own stream.
    Own,
    /// No destination: the output is discarded.
    Nowhere,
    /// The command's own stream, with the output of a single task.
    Task(u32),
    /// Files by pattern.
    Files(FilePattern),
    /// The files of the standard output.
    WithOutput,
}

/// Values of placeholders in the names of files.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub job: u32,
    pub array: Option<(u32, u32)>,
    pub step: u32,
    pub user: String,
    pub job_name: String,
    pub restarts: u32,
    /// Names of the step's nodes, each with its tasks.
    pub nodes: Vec<(String, IdSet)>,
    pub directory: PathBuf,
}

/// Output of a step.
pub(super) struct Outputs {
    stdout: Route,
    stderr: Route,
    append: bool,
    names: Names,
    /// Number of digits of the largest task, if lines are labelled.
    label: Option<usize>,
    unbuffered: bool,
    /// Lines that are not yet complete.
    begun: BTreeMap<(u32, bool), Vec<u8>>,
    files: BTreeMap<PathBuf, File>,
}

impl Outputs {
    /// Returns the output that the options request, for a step with this number of tasks.
    ///
    /// # Errors
    /// An invalid pattern.
    pub(super) fn new(
        files: &Files,
        wishes: &StepWishes,
        names: Names,
        tasks: u32,
    ) -> anyhow::Result<Outputs> {
        let digits = tasks.saturating_sub(1).to_string().len();
        let stdout = route(files.output.as_deref(), "--output")?;
        let stderr = match (&files.error, &stdout) {
            (None, Route::Files(_)) => Route::WithOutput,
            (None, Route::Nowhere) => Route::Nowhere,
            (None, Route::Task(task)) => Route::Task(*task),
            _ => route(files.error.as_deref(), "--error")?,
        };
        Ok(Outputs {
            stdout,
            stderr,
            append: files.append.unwrap_or(false),
            names,
            label: wishes.label.then_some(digits),
            unbuffered: wishes.unbuffered,
            begun: BTreeMap::new(),
            files: BTreeMap::new(),
        })
    }

    /// Delegates to the nodes the files that only one node writes; `one_node` is true if the step has no
    /// other node.
    pub(super) fn give_away(&mut self, one_node: bool) -> StepFiles {
        // Nodes do not write labels.
        let labelled = self.label.is_some();
        let own = |route: &Route| match route {
            Route::Files(pattern) if !labelled && (one_node || pattern.per_node() || pattern.per_task()) => {
                Some(pattern.to_string()).filter(|name| !is_here(name)).unwrap_or_default()
            }
            _ => String::new(),
        };
        let (stdout, stderr) = (own(&self.stdout), own(&self.stderr));
        let joined = matches!(self.stderr, Route::WithOutput) && !stdout.is_empty();
        if !stdout.is_empty() {
            self.stdout = Route::Nowhere;
        }
        if joined || !stderr.is_empty() {
            self.stderr = Route::Nowhere;
        }
        StepFiles { stdout, stderr, joined, append: self.append, ..StepFiles::default() }
    }

    /// Opens the remaining files, so that they exist even without output.
    ///
    /// # Errors
    /// What the system says of a file.
    pub(super) fn open(&mut self, tasks: Range<u32>) -> anyhow::Result<()> {
        for task in tasks {
            for (route, stream) in [(&self.stdout, "stdout"), (&self.stderr, "stderr")] {
                let Route::Files(pattern) = route else { continue };
                let path = self.names.path(pattern, task);
                if !self.files.contains_key(&path) {
                    self.files.insert(path.clone(), open(&path, stream, self.append)?);
                }
            }
        }
        Ok(())
    }

    /// Writes the output of a task. `own` has the command's own streams.
    ///
    /// # Errors
    /// An error of the stream or file.
    pub(super) fn write(
        &mut self,
        (task, stderr): (u32, bool),
        data: &[u8],
        own: &mut Own<'_>,
    ) -> anyhow::Result<()> {
        if self.unbuffered && self.label.is_none() {
            return self.put(task, stderr, data, own);
        }
        let mut begun = self.begun.remove(&(task, stderr)).unwrap_or_default();
        begun.extend_from_slice(data);
        let whole = begun.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        for line in begun[..whole].split_inclusive(|&byte| byte == b'\n') {
            self.line(task, stderr, line, own)?;
        }
        begun.drain(..whole);
        if begun.len() >= LONGEST_LINE || (self.unbuffered && !begun.is_empty()) {
            // As with Slurm, labelled output ends the line.
            if self.unbuffered {
                begun.push(b'\n');
            }
            self.line(task, stderr, &begun, own)?;
            begun.clear();
        }
        if !begun.is_empty() {
            self.begun.insert((task, stderr), begun);
        }
        Ok(())
    }

    /// Writes the incomplete lines of a task that has ended.
    ///
    /// # Errors
    /// An error of the stream or file.
    pub(super) fn finish(&mut self, task: u32, own: &mut Own<'_>) -> anyhow::Result<()> {
        for stderr in [false, true] {
            if let Some(mut rest) = self.begun.remove(&(task, stderr)) {
                if self.label.is_some() {
                    rest.push(b'\n');
                }
                self.line(task, stderr, &rest, own)?;
            }
        }
        Ok(())
    }

    /// Writes the incomplete lines of all tasks.
    ///
    /// # Errors
    /// An error of the stream or file.
    pub(super) fn finish_all(&mut self, own: &mut Own<'_>) -> anyhow::Result<()> {
        let tasks: Vec<u32> = self.begun.keys().map(|&(task, _)| task).collect();
        tasks.into_iter().try_for_each(|task| self.finish(task, own))
    }

    /// Writes a line, with its label if requested.
    fn line(&mut self, task: u32, stderr: bool, line: &[u8], own: &mut Own<'_>) -> anyhow::Result<()> {
        match self.label {
            None => self.put(task, stderr, line, own),
            Some(width) => {
                let mut labelled = format!("{task:>width$}: ").into_bytes();
                labelled.extend_from_slice(line);
                self.put(task, stderr, &labelled, own)
            }
        }
    }

    fn put(&mut self, task: u32, stderr: bool, data: &[u8], own: &mut Own<'_>) -> anyhow::Result<()> {
        let route = if stderr { &self.stderr } else { &self.stdout };
        let route = if matches!(route, Route::WithOutput) { &self.stdout } else { route };
        match route {
            Route::Own | Route::WithOutput => Ok(own.write(stderr, data)?),
            Route::Task(chosen) if *chosen == task => Ok(own.write(stderr, data)?),
            Route::Task(_) | Route::Nowhere => Ok(()),
            Route::Files(pattern) => {
                let path = self.names.path(pattern, task);
                let append = self.append;
                let file = match self.files.entry(path) {
                    std::collections::btree_map::Entry::Occupied(file) => file.into_mut(),
                    std::collections::btree_map::Entry::Vacant(place) => {
                        let stream = if stderr { "stderr" } else { "stdout" };
                        let file = open(place.key(), stream, append)?;
                        place.insert(file)
                    }
                };
                Ok(file.write_all(data)?)
            }
        }
    }
}

impl Names {
    fn path(&self, pattern: &FilePattern, task: u32) -> PathBuf {
        let node = self.nodes.iter().position(|(_, ranks)| ranks.contains(task)).unwrap_or(0);
        let name = pattern.render(&PatternContext {
            job: self.job,
            array: self.array,
            step: Some(spur_core::text::jobid::StepRef::Number(self.step)),
            node: self.nodes.get(node).map_or("", |(name, _)| name),
            node_number: u32::try_from(node).unwrap_or(u32::MAX),
            task,
            user: &self.user,
            job_name: &self.job_name,
            restarts: self.restarts,
        });
        self.directory.join(name)
    }
}

/// Streams of the command.
pub(super) struct Own<'a> {
    pub out: &'a mut dyn Write,
    pub err: &'a mut dyn Write,
}

impl Own<'_> {
    fn write(&mut self, stderr: bool, data: &[u8]) -> io::Result<()> {
        if stderr { self.err.write_all(data) } else { self.out.write_all(data) }
    }
}

fn route(file: Option<&str>, option: &str) -> anyhow::Result<Route> {
    Ok(match file {
        None | Some("all" | "-") => Route::Own,
        Some("none") => Route::Nowhere,
        Some(text) => match text.parse() {
            Ok(task) => Route::Task(task),
            Err(_) => Route::Files(text.parse().with_context(|| option.to_owned())?),
        },
    })
}

/// True if a name refers to a file of this process, such as `/dev/stdout`.
fn is_here(name: &str) -> bool {
    ["/dev/", "/proc/"].iter().any(|place| name.starts_with(place))
}

fn open(path: &Path, stream: &str, append: bool) -> anyhow::Result<File> {
    // The file behind `/dev/stdout` must not be truncated.
    let append = append || path.to_str().is_some_and(is_here);
    let mut options = OpenOptions::new();
    options.create(true).append(append).write(true).truncate(!append);
    options.open(path).with_context(|| format!("Could not open {stream} file {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let nodes = vec![("n1".to_owned(), IdSet::first(8)), ("n2".to_owned(), (8..12).collect())];
        Names { job: 42, step: 3, nodes, job_name: "test".into(), user: "ada".into(), ..Names::default() }
    }

    fn written(files: &Files, wishes: &StepWishes, pieces: &[(u32, bool, &str)]) -> (String, String) {
        let mut outputs = Outputs::new(files, wishes, names(), 12).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut own = Own { out: &mut out, err: &mut err };
        for &(task, stderr, text) in pieces {
            outputs.write((task, stderr), text.as_bytes(), &mut own).unwrap();
        }
        outputs.finish_all(&mut own).unwrap();
        (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    #[test]
    fn lines_of_several_tasks_are_never_mixed() {
        let pieces =
            [(0, false, "a"), (1, false, "b\nc"), (0, false, "x\n"), (1, true, "e\n"), (1, false, "\nd")];
        let (out, err) = written(&Files::default(), &StepWishes::default(), &pieces);
        assert_eq!((out.as_str(), err.as_str()), ("b\nax\nc\nd", "e\n"));
    }

    #[test]
    fn labels_are_as_wide_as_the_largest_task() {
        let wishes = StepWishes { label: true, ..StepWishes::default() };
        let (out, _) = written(&Files::default(), &wishes, &[(3, false, "a\nb"), (11, false, "c\n")]);
        assert_eq!(out, " 3: a\n11: c\n 3: b\n");
    }

    #[test]
    fn unbuffered_output_passes_at_once() {
        let wishes = StepWishes { unbuffered: true, ..StepWishes::default() };
        let (out, _) =
            written(&Files::default(), &wishes, &[(0, false, "a"), (1, false, "b"), (0, false, "c\n")]);
        assert_eq!(out, "abc\n");
    }

    #[test]
    fn unbuffered_pieces_with_labels_have_lines_of_their_own() {
        let wishes = StepWishes { unbuffered: true, label: true, ..StepWishes::default() };
        let pieces = [(0, false, "a"), (1, false, "b"), (0, false, "c\n")];
        let (out, _) = written(&Files::default(), &wishes, &pieces);
        assert_eq!(out, " 0: a\n 1: b\n 0: c\n");
    }

    #[test]
    fn one_task_may_be_chosen_or_none() {
        let pieces = [(0, false, "a\n"), (1, false, "b\n"), (1, true, "e\n"), (0, true, "f\n")];
        let only = |text: &str| Files { output: Some(text.into()), ..Files::default() };
        let (out, err) = written(&only("1"), &StepWishes::default(), &pieces);
        assert_eq!((out.as_str(), err.as_str()), ("b\n", "e\n"));
        let (out, err) = written(&only("none"), &StepWishes::default(), &pieces);
        assert_eq!((out.as_str(), err.as_str()), ("", ""));
    }

    #[test]
    fn files_are_named_by_their_patterns() {
        let name = |pattern: &str, task| names().path(&pattern.parse().unwrap(), task).display().to_string();
        assert_eq!(name("%x-%j.%s.out", 5), "test-42.3.out");
        assert_eq!(name("%N-%n-%t", 7), "n1-0-7");
        assert_eq!(name("%N-%n-%3t", 8), "n2-1-008");
    }

    #[test]
    fn errors_join_the_output_in_its_file() {
        let directory = std::env::temp_dir().join(format!("spur-srun-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let pattern = directory.join("out-%t").display().to_string();
        let files = Files { output: Some(pattern), ..Files::default() };
        let pieces = [(0, false, "a\n"), (0, true, "b\n"), (1, false, "c\n")];
        let (out, err) = written(&files, &StepWishes::default(), &pieces);
        assert_eq!((out.as_str(), err.as_str()), ("", ""));
        let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
        assert_eq!((read("out-0").as_str(), read("out-1").as_str()), ("a\nb\n", "c\n"));
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
