//! The command `spur import slurm`: writes a `spur.toml` from Slurm's files, or loads the output of Slurm's
//! commands into a running controller (`data`).
//!
//! Only a file that cannot be read stops the import. A setting with a counterpart is written as a key. A
//! setting without one is named in a comment above the nearest table, with the file, the line and the
//! reason. The written configuration can be loaded.

mod data;
mod keys;
mod lines;
pub(in crate::commands) mod nodes;
pub(in crate::commands) mod page;
mod partitions;
pub(in crate::commands) mod rails;
mod settings;
pub(in crate::commands) mod source;
mod specialized;
mod steps;
pub(in crate::commands) mod topology;
pub(in crate::commands) mod tree;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, bail};
use spur_core::model::config::Config;

use crate::commands::called;
use crate::options::{CommandLine, Opt, sets};
use crate::session::Session;
use lines::{Line, Pair};
use nodes::{Devices, Nodes};
use page::Section;
use source::{Entry, Notes};
use topology::Topologies;

/// The options of the command: the files to import, and the destination of a configuration.
#[derive(Debug, Default)]
pub(super) struct Wish {
    output: Option<String>,
    data: data::Files,
    /// True to read files and to name what has no counterpart, without a controller.
    dry_run: bool,
}

const OPTIONS: [Opt<Wish>; 6] = [
    Opt::value(
        "output",
        Some('o'),
        "FILE",
        "write the configuration to FILE, which must not be there yet, instead of the standard output",
        |wish, value| {
            wish.output = Some(value.to_owned());
            Ok(())
        },
    ),
    Opt::value("qos", None, "FILE", "load QOS: what sacctmgr show qos -P printed", |wish, value| {
        wish.data.qos = Some(value.into());
        Ok(())
    }),
    Opt::value(
        "accounts",
        None,
        "FILE",
        "load accounts, users and associations: what sacctmgr dump wrote",
        |wish, value| {
            wish.data.accounts = Some(value.into());
            Ok(())
        },
    ),
    Opt::value(
        "past-usage",
        None,
        "FILE",
        "load past usage: what sshare -l -a -m -P printed",
        |wish, value| {
            wish.data.usage = Some(value.into());
            Ok(())
        },
    ),
    Opt::value(
        "history",
        None,
        "FILE",
        "load ended jobs: what sacct -a -D -P -o COLUMNS printed",
        |wish, value| {
            wish.data.history = Some(value.into());
            Ok(())
        },
    ),
    Opt::flag(
        "dry-run",
        None,
        "read the files and name what has no counterpart, but load nothing",
        sets!(Wish.dry_run),
    ),
];

pub(super) const LINE: CommandLine<Wish> = CommandLine {
    name: "spur import",
    synopsis: "slurm {[-o FILE] DIR | [--qos FILE] [--accounts FILE] [--past-usage FILE] [--history FILE] [--dry-run]}",
    about: "With DIR: reads slurm.conf with all that it includes, gres.conf, topology.conf or topology.yaml, cgroup.conf, job_container.conf and the ages of records in slurmdbd.conf in DIR, \
            and writes the spur.toml that comes nearest. Each key that has no counterpart is named in a comment. DIR may \
            be one of these files, too.\n\n\
            With files: loads what Slurm's commands printed into the running controller, for administrators. Each value that has no counterpart is named \
            with its line. The same command again continues after an interruption, and adds nothing twice.",
    options: &OPTIONS,
    mask: 1,
    env_prefixes: &[],
    permute: true,
};

/// Files of Slurm that are not read, with the reasons.
const NOT_READ: &[(&str, &str)] = &[
    ("acct_gather.conf", "energy and profiles are not measured"),
    ("burst_buffer.conf", "burst buffers are not supported by Spur"),
    ("job_submit.lua", "Spur has no plugins"),
    ("cli_filter.lua", "Spur has no plugins"),
    ("plugstack.conf", "Spur has no plugins"),
    ("oci.conf", "containers are the job's own business"),
    ("mpi.conf", "[controller] mpi_default says what serves MPI programs"),
    ("helpers.conf", "Spur has no plugins"),
    ("knl_generic.conf", "Spur has no plugins"),
];

/// An imported configuration.
#[derive(Debug)]
pub struct Imported {
    /// Text of a `spur.toml`.
    pub text: String,
    /// Number of comments about settings without a counterpart.
    pub notes: usize,
}

/// Runs `spur import`.
///
/// # Errors
/// A directory or file that cannot be read or is not one of Slurm's, an output file that exists, or a refusal
/// of the controller.
pub async fn run(session: &mut Session, words: &[String]) -> anyhow::Result<u8> {
    let mut wish = Wish::default();
    let Some(operands) = called::operands(session, &LINE, words, &mut wish)? else {
        return Ok(0);
    };
    if !wish.data.is_empty() || wish.dry_run {
        return match &operands[..] {
            [kind] if kind == "slurm" && wish.output.is_none() && !wish.data.is_empty() => {
                data::run(session, &wish.data, wish.dry_run).await
            }
            [kind] if kind == "slurm" && wish.output.is_none() => {
                bail!("--dry-run needs a file: --qos, --accounts, --past-usage or --history")
            }
            _ => bail!(
                "a configuration and data are imported one after the other: spur import slurm DIR, then, with a running \
                 controller, spur import slurm --qos FILE --accounts FILE --past-usage FILE --history FILE"
            ),
        };
    }
    let directory = match &operands[..] {
        [kind, directory] if kind == "slurm" => directory,
        [kind, _] => bail!("`{kind}` cannot be imported: spur import slurm DIR"),
        _ => bail!("one directory is expected: spur import slurm DIR"),
    };
    let imported = directory_of(Path::new(directory))?;
    let checked = Config::parse(&imported.text, "the imported configuration");
    match &wish.output {
        Some(path) => {
            let mut file = fs::File::create_new(path).with_context(|| format!("cannot make {path}"))?;
            file.write_all(imported.text.as_bytes()).with_context(|| format!("cannot write {path}"))?;
        }
        None => write!(session.out, "{}", imported.text)?,
    }
    match checked {
        Ok(Config { policy, .. }) => {
            let (nodes, partitions) = (policy.nodes.len(), policy.partitions.len());
            let text = format!(
                "{nodes} nodes, {partitions} partitions; comments name {} things without a counterpart",
                imported.notes
            );
            session.inform(&text);
            Ok(0)
        }
        Err(errors) => Err(errors).context("this must be mended by hand"),
    }
}

/// Imports a directory, or a single file.
///
/// # Errors
/// A directory that cannot be read or has no files of Slurm.
pub fn directory_of(path: &Path) -> anyhow::Result<Imported> {
    let shown = path.display();
    let meta = fs::metadata(path).with_context(|| format!("cannot read {shown}"))?;
    let mut files = Files { notes: Notes::default(), problems: Vec::new() };
    if meta.is_dir() {
        let file = |name: &str| Some(path.join(name)).filter(|path| path.is_file());
        let yaml = file("topology.yaml").or_else(|| file("topology.yml"));
        let sources = Sources {
            conf: file("slurm.conf"),
            gres: file("gres.conf"),
            topology: yaml.or_else(|| file("topology.conf")),
            cgroup: file("cgroup.conf"),
            job_container: file("job_container.conf"),
            slurmdbd: file("slurmdbd.conf"),
        };
        if sources.conf.is_none() && sources.topology.is_none() {
            bail!("{shown} has neither slurm.conf nor topology.conf nor topology.yaml in it");
        }
        for (name, why) in NOT_READ.iter().filter(|(name, _)| path.join(name).exists()) {
            let text = files.notes.sentence(format!("{name} is not read: {why}"));
            files.problems.extend(text);
        }
        if sources.topology.as_ref().is_some_and(|path| path.extension().is_some_and(|end| end != "conf"))
            && path.join("topology.conf").exists()
        {
            let text = "topology.conf is not read beside topology.yaml, as with Slurm".to_owned();
            files.problems.extend(files.notes.sentence(text));
        }
        return import(&sources, files);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if name == "slurmdbd.conf" {
        bail!("{shown}: slurmdbd.conf is read beside slurm.conf; name their directory");
    }
    let sources =
        if name.starts_with("topology") || name.ends_with("topology.conf") || name.ends_with(".yaml") {
            Sources { topology: Some(path.to_owned()), ..Sources::default() }
        } else {
            Sources { conf: Some(path.to_owned()), ..Sources::default() }
        };
    import(&sources, files)
}

/// The files that exist.
#[derive(Debug, Default)]
struct Sources {
    conf: Option<PathBuf>,
    gres: Option<PathBuf>,
    topology: Option<PathBuf>,
    cgroup: Option<PathBuf>,
    job_container: Option<PathBuf>,
    slurmdbd: Option<PathBuf>,
}

/// Notes and problems found while reading.
struct Files {
    notes: Notes,
    problems: Vec<String>,
}

impl Files {
    /// Returns the lines of a file, with those of included files in their place.
    fn lines(&mut self, path: &Path, cluster: &mut String, open: &[PathBuf]) -> anyhow::Result<Vec<Line>> {
        let name: Rc<str> = path_name(path).into();
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let open: Vec<PathBuf> = open.iter().cloned().chain([path.to_owned()]).collect();
        let mut all = Vec::new();
        for line in lines::read(&String::from_utf8_lossy(&text), &name) {
            if let Some(pair) = line.pairs.first().filter(|pair| pair.key.eq_ignore_ascii_case("ClusterName"))
            {
                cluster.clone_from(&pair.value);
            }
            let included = match line.rest.as_slice() {
                [word, file] if word.eq_ignore_ascii_case("include") && line.pairs.is_empty() => file,
                _ => {
                    all.push(line);
                    continue;
                }
            };
            let what = || format!("{}: Include {included}", line.place);
            let target = self.included(path, &included.replace("%c", cluster), &line);
            if open.contains(&target) {
                bail!("{}: the file includes itself", what());
            }
            all.extend(self.lines(&target, cluster, &open).with_context(what)?);
        }
        Ok(all)
    }

    /// Returns the path of the file that an `Include` line of `path` names. If there is no such file, a
    /// file of the same name beside `path` is used: a copy of `/etc/slurm` still names the original paths.
    fn included(&mut self, path: &Path, name: &str, line: &Line) -> PathBuf {
        let directory = path.parent().unwrap_or(Path::new("."));
        let named = directory.join(name);
        let beside = named.file_name().map(|file| directory.join(file));
        match beside.filter(|beside| !named.exists() && beside.exists()) {
            Some(beside) => {
                let text = format!(
                    "{}: Include {name}: the file of this name beside {} is read",
                    line.place,
                    path_name(path)
                );
                self.problems.extend(self.notes.sentence(text));
                beside
            }
            None => named,
        }
    }
}

/// Returns the name of a file without its directory; empty if the path has no name.
fn path_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Lines of `slurm.conf`, grouped by kind.
#[derive(Default)]
struct Conf {
    cluster: Entry,
    twice: Vec<Pair>,
    nodes: Vec<Entry>,
    sets: Vec<Entry>,
    partitions: Vec<(String, Entry)>,
    unread: Vec<Section>,
}

impl Conf {
    fn of(lines: &[Line], notes: &mut Notes) -> Conf {
        let mut conf = Conf::default();
        let (mut node_defaults, mut partition_defaults) = (Entry::default(), Entry::default());
        for line in lines {
            let mut unread = Section::default();
            for word in &line.rest {
                let text = notes.sentence(format!("{}: {word}: not understood", line.place));
                text.into_iter().for_each(|text| unread.comment(text));
            }
            conf.unread.push(unread);
            let kind = |key: &str| line.pairs.iter().find(|pair| pair.key.eq_ignore_ascii_case(key));
            let mut entry = Entry::of_line(line);
            if let Some(pair) = kind("NodeName") {
                if pair.value.eq_ignore_ascii_case("DEFAULT") {
                    let _ = entry.pair("NodeName");
                    entry.rest().into_iter().for_each(|pair| drop(node_defaults.set(pair)));
                } else {
                    let mut defaults = node_defaults.clone();
                    // The number of sockets can be given in two ways; the line's own way replaces the
                    // default.
                    if kind("SocketsPerBoard").is_some() || kind("Boards").is_some() {
                        let _ = defaults.pair("Sockets");
                    } else if kind("Sockets").is_some() {
                        let _ = (defaults.pair("Boards"), defaults.pair("SocketsPerBoard"));
                    }
                    entry.fill_from(&defaults);
                    conf.nodes.push(entry);
                }
            } else if kind("PartitionName").is_some() {
                let names = entry.value("PartitionName").unwrap_or_default();
                if names.eq_ignore_ascii_case("DEFAULT") {
                    entry.rest().into_iter().for_each(|pair| drop(partition_defaults.set(pair)));
                } else {
                    entry.fill_from(&partition_defaults);
                    names.split(',').for_each(|name| conf.partition(name.trim(), entry.clone()));
                }
            } else if kind("NodeSet").is_some() {
                conf.sets.push(entry);
            } else if kind("DownNodes").is_some() {
                conf.down(&mut entry, notes);
            } else {
                for pair in entry.rest() {
                    let repeats =
                        ["SlurmctldHost", "Prolog", "Epilog"].iter().any(|key| keys::same(key, &pair.key));
                    match repeats {
                        true => conf.cluster.append(pair),
                        false => conf.twice.extend(conf.cluster.set(pair)),
                    }
                }
            }
        }
        conf
    }

    /// Adds a line of a partition. A further line adds its nodes; of other keys, the last value counts.
    fn partition(&mut self, name: &str, entry: Entry) {
        let Some((_, known)) = self.partitions.iter_mut().find(|(known, _)| known == name) else {
            return self.partitions.push((name.to_owned(), entry));
        };
        for mut pair in entry.rest() {
            if keys::same(&pair.key, "Nodes")
                && let Some(before) = known.pair("Nodes")
            {
                pair.value = format!("{},{}", before.value, pair.value);
            }
            drop(known.set(pair));
        }
    }

    fn down(&mut self, entry: &mut Entry, notes: &mut Notes) {
        let mut section = Section::default();
        let reason = entry.value("Reason").unwrap_or_else(|| "imported".to_owned());
        let state = entry.value("State").unwrap_or_else(|| "DOWN".to_owned());
        if let Some(pair) = entry.pair("DownNodes") {
            let why = format!(
                "say it once it runs: scontrol update NodeName={} State={state} Reason=\"{reason}\"",
                pair.value
            );
            notes.tell(&mut section, &pair, &why);
        }
        self.unread.push(section);
    }
}

fn import(sources: &Sources, mut files: Files) -> anyhow::Result<Imported> {
    let mut cluster = String::new();
    let mut read = |files: &mut Files, path: &Option<PathBuf>| match path {
        Some(path) => files.lines(path, &mut cluster, &[]),
        None => Ok(Vec::new()),
    };
    let conf_lines = read(&mut files, &sources.conf)?;
    let gres_lines = read(&mut files, &sources.gres)?;
    let mut cgroup = Entry::of_lines(&read(&mut files, &sources.cgroup)?);
    let mut job_container = Entry::of_lines(&read(&mut files, &sources.job_container)?);
    let slurmdbd = Entry::of_lines(&read(&mut files, &sources.slurmdbd)?).rest();
    if !slurmdbd.is_empty() {
        let text =
            "slurmdbd.conf: only the ages of records are taken: the controller keeps accounting itself";
        files.problems.extend(files.notes.sentence(text.to_owned()));
    }
    let notes = &mut files.notes;
    let mut conf = Conf::of(&conf_lines, notes);
    for pair in slurmdbd.into_iter().filter(|pair| keys::is_of_records(&pair.key)) {
        conf.twice.extend(conf.cluster.set(pair));
    }
    let plugin = conf.cluster.pair("TopologyPlugin");
    let mut topologies = topologies(sources, plugin, &mut files)?;
    let notes = &mut files.notes;
    let (devices, gres) = Devices::read(&gres_lines, notes);
    let mut nodes = Nodes::default();
    if sources.conf.is_none() {
        nodes = Nodes::of_names(topologies.nodes());
        conf.partitions.push(("main".to_owned(), everywhere()));
    }
    conf.nodes.into_iter().for_each(|entry| nodes::nodes(entry, &devices, &mut nodes, notes));
    topologies.place(&nodes.places);
    let sets: Vec<Section> = conf.sets.into_iter().map(|entry| nodes.set(entry, notes)).collect();
    let (mut sections, common) =
        settings::settings(&mut conf.cluster, &mut cgroup, &mut job_container, notes);
    let names = conf.partitions.iter().map(|(name, _)| name.clone()).collect();
    let around = partitions::Around { nodes: &nodes, topologies: &topologies, common: &common, names };
    let (partitions, qos) = partitions::partitions(conf.partitions, &around, notes);
    let mut left = Section::default();
    for (kind, entry) in [(keys::Kind::Cgroup, cgroup), (keys::Kind::JobContainer, job_container)] {
        notes.left(kind, entry.rest()).into_iter().for_each(|text| left.comment(text));
    }
    let mut tail = vec![gres, left];
    tail.extend(sets);
    tail.extend(conf.unread);
    tail.push(settings::rest(conf.cluster, &conf.twice, notes));
    sections.extend(qos_sections(qos));
    sections.extend(std::mem::take(&mut nodes.sections));
    sections.extend(devices.sections(&nodes, notes));
    sections.extend(partitions);
    sections.extend(topologies.sections(&nodes, notes));
    let from = sources.conf.as_ref().or(sources.topology.as_ref()).and_then(|path| path.file_name());
    let from = from.unwrap_or_default().to_string_lossy().into_owned();
    let mut text = written(&from, &files.problems, &sections, &tail);
    if let Ok(Config { policy, .. }) = Config::parse(&text, "the imported configuration") {
        let warnings = policy.warnings();
        files.problems.extend(warnings.into_iter().filter_map(|warning| files.notes.sentence(warning)));
        text = written(&from, &files.problems, &sections, &tail);
    }
    Ok(Imported { text, notes: files.notes.count() })
}

/// Returns the topologies of a file; none if Slurm would use none.
fn topologies(sources: &Sources, plugin: Option<Pair>, files: &mut Files) -> anyhow::Result<Topologies> {
    let word = plugin.as_ref().map(|pair| pair.value.to_ascii_lowercase()).unwrap_or_default();
    let word = word.trim_start_matches("topology/");
    let Some(path) = &sources.topology else {
        if let Some(pair) = plugin.as_ref().filter(|_| ["tree", "block"].contains(&word)) {
            files.problems.extend(
                files.notes.about(pair, "there is neither topology.conf nor topology.yaml beside it"),
            );
        }
        return Ok(Topologies::default());
    };
    if path.extension().is_some_and(|end| end != "conf") {
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        return match topology::from_yaml(&String::from_utf8_lossy(&text), &name) {
            Ok(all) => Ok(Topologies::new(all)),
            Err(problem) => {
                files.problems.extend(files.notes.sentence(problem));
                Ok(Topologies::default())
            }
        };
    }
    let lines = files.lines(path, &mut String::new(), &[])?;
    let topology = topology::from_lines(&lines, &mut files.notes);
    match plugin {
        Some(pair) if !["tree", "block"].contains(&word) => {
            let why = "topology.conf is taken all the same: a tree only packs jobs, and --topology=none does without";
            files.problems.extend(files.notes.about(&pair, why));
        }
        None if sources.conf.is_some() => {
            let why = "slurm.conf has no TopologyPlugin; topology.conf is taken all the same";
            files.problems.extend(files.notes.sentence(why.to_owned()));
        }
        _ => {}
    }
    Ok(Topologies::new(vec![topology]))
}

/// Returns a partition of all nodes, for a topology without a `slurm.conf`.
fn everywhere() -> Entry {
    let lines = lines::read("Nodes=ALL Default=YES", &"".into());
    Entry::of_line(&lines[0])
}

/// Returns sections for the QOS that partitions name. With any such section Spur refuses all other QOS, so
/// `normal` is added.
fn qos_sections(named: Vec<String>) -> Vec<Section> {
    let mut seen = BTreeSet::new();
    let mut sections = Vec::new();
    if named.is_empty() {
        return sections;
    }
    for name in named.into_iter().chain(["normal".to_owned()]) {
        if !seen.insert(name.clone()) {
            continue;
        }
        let mut section = Section::new("[[qos]]");
        if sections.is_empty() {
            section.comment("The QOS that partitions name. Their priorities and limits are in Slurm's database (sacctmgr show qos):");
            section.comment("write them here, and the QOS that no partition names, because another than these is refused.");
        }
        section.text("name", name);
        sections.push(section);
    }
    sections
}

fn written(from: &str, problems: &[String], sections: &[Section], tail: &[Section]) -> String {
    let mut text = format!(
        "# Imported from {from} by `spur import slurm`. What has no counterpart is named in comments.\n"
    );
    for problem in problems {
        let mut section = Section::default();
        section.comment(problem);
        let _ = write!(text, "{section}");
    }
    for section in sections.iter().filter(|section| !section.is_empty()) {
        let _ = write!(text, "\n{section}");
    }
    if tail.iter().any(|section| !section.is_empty()) {
        text.push_str("\n# Without a counterpart:\n");
        for section in tail {
            let _ = write!(text, "{section}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every key that the tables list as taken is taken by the import.
    #[test]
    fn keys_that_are_called_taken_are() {
        let directory = std::env::temp_dir().join(format!("spur-import-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("the temporary directory can be written");
        let path = directory.join("slurm.conf");
        for (kind, before) in [
            (keys::Kind::Cluster, ""),
            (keys::Kind::Node, "NodeName=n1 CPUs=1 "),
            (keys::Kind::Partition, "NodeName=n1 CPUs=1\nPartitionName=p Nodes=n1 "),
        ] {
            for key in keys::taken(kind) {
                if before.contains(key) {
                    continue;
                }
                fs::write(&path, format!("{before}{key}=1\n")).expect("it can be written");
                let text = directory_of(&path).expect("it can be read").text;
                assert!(!text.contains("it stands twice"), "{key}: {text}");
            }
        }
        fs::remove_dir_all(&directory).expect("it can be removed");
    }
}
