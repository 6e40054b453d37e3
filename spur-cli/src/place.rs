//! Properties of the caller that a job or step inherits: environment, resource limits, working directory and
//! local time.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use jiff::civil::DateTime;
use nix::unistd::{Gid, Group, Uid, User, initgroups, setgid, setuid};
use rustix::fs::Mode;
use rustix::process::{Resource, getrlimit, umask};
use spur_core::text::hostlist::{HostExpr, HostList};
use spur_core::text::nodes::NodeCount;
use spur_core::text::time::{Civil, CivilNow, Time, When};
use spur_proto::channel::MAX_ENVIRONMENT;
use spur_proto::v1::Limit;

use crate::error::Failure;
use crate::options::submission::{Export, Propagate, Submission, Surroundings};
use crate::options::told::Place;
use crate::session::Session;
use crate::zone;

/// Environment variables by name, in ascending order.
pub type Environment = BTreeMap<OsString, OsString>;

/// Prefixes of the variables that every job and step inherits.
const OURS: [&str; 2] = ["SLURM_", "SPUR_"];

/// Returns the part of `environment` that `--export` passes on.
pub fn exported(environment: &Environment, export: &Export) -> Environment {
    let ours = |name: &OsStr| OURS.iter().any(|prefix| name.as_bytes().starts_with(prefix.as_bytes()));
    let (all, set) = match export {
        Export::All => (true, &[][..]),
        Export::None => (false, &[][..]),
        Export::Some { all, variables } => (*all, &variables[..]),
    };
    let kept = environment.iter().filter(|(name, _)| all || ours(name));
    let mut exported: Environment = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
    for (name, value) in set {
        let value = value.as_ref().map(OsString::from).or_else(|| environment.get(OsStr::new(name)).cloned());
        if let Some(value) = value {
            exported.insert(name.into(), value);
        }
    }
    exported
}

/// True if a variable describes a het job and its components. A job submitted from within the het job must
/// not inherit it.
pub fn is_of_het_job(name: &OsStr) -> bool {
    name == "SLURM_HET_SIZE" || name.to_string_lossy().contains("_HET_GROUP_")
}

/// Reads a file of `NAME=VALUE`, each terminated by a zero byte. A number names an open file descriptor.
///
/// # Errors
/// A file that cannot be read or has another format.
pub fn read_variables(file: &str) -> anyhow::Result<Environment> {
    let number = file.parse::<u32>().ok().map(|number| format!("/proc/self/fd/{number}"));
    let path = number.as_deref().unwrap_or(file);
    let what = || format!("--export-file: cannot read {file}");
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(path).with_context(what)?;
    opened.take(MAX_ENVIRONMENT as u64 + 1).read_to_end(&mut bytes).with_context(what)?;
    let mut variables = Environment::new();
    for entry in bytes.split(|&byte| byte == 0).filter(|entry| !entry.is_empty()) {
        let Some(at) = entry.iter().position(|&byte| byte == b'=').filter(|&at| at > 0) else {
            let entry = String::from_utf8_lossy(entry);
            bail!("--export-file: {file} holds `{entry}`; write NAME=VALUE, each followed by a zero byte");
        };
        let (name, value) = (entry[..at].to_vec(), entry[at + 1..].to_vec());
        variables.insert(OsString::from_vec(name), OsString::from_vec(value));
    }
    Ok(variables)
}

/// Encodes variables for the request: `NAME=VALUE`, each terminated by a zero byte.
///
/// # Errors
/// An environment that is larger than the maximum.
pub fn packed(environment: &Environment) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for (name, value) in environment {
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(b'=');
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0);
    }
    if bytes.len() > MAX_ENVIRONMENT {
        bail!(
            "the environment has {} bytes; at most {MAX_ENVIRONMENT} are accepted: pass less on, e.g. with --export=NONE",
            bytes.len()
        );
    }
    Ok(bytes)
}

const LIMITS: &[(&str, Resource)] = &[
    ("AS", Resource::As),
    ("CORE", Resource::Core),
    ("CPU", Resource::Cpu),
    ("DATA", Resource::Data),
    ("FSIZE", Resource::Fsize),
    ("MEMLOCK", Resource::Memlock),
    ("NOFILE", Resource::Nofile),
    ("NPROC", Resource::Nproc),
    ("RSS", Resource::Rss),
    ("STACK", Resource::Stack),
];

/// Returns the soft limits that `--propagate` passes on.
pub fn limits(propagate: &Propagate) -> Vec<Limit> {
    let chosen = |name: &str| match propagate {
        Propagate::All => true,
        Propagate::None => false,
        Propagate::Some(names) => names.iter().any(|chosen| chosen == name),
    };
    let soft = |resource| getrlimit(resource).current.unwrap_or(u64::MAX);
    let chosen = LIMITS.iter().filter(|(name, _)| chosen(name));
    chosen.map(|&(name, resource)| Limit { name: name.to_owned(), soft: soft(resource) }).collect()
}

/// Returns the nice value of this process, from -20 to 19.
pub fn niceness() -> i32 {
    rustix::process::getpriority_process(None).unwrap_or(0)
}

/// Reads the files of hosts named by `--nodefile`, `--nodelist` and `--exclude`. Names are separated by white
/// space or commas.
///
/// # Errors
/// A file that cannot be read, or that names no hosts.
pub fn read_hosts(wishes: &mut Submission) -> anyhow::Result<()> {
    let read = |file: &str, option: &str| {
        let text = std::fs::read_to_string(file).with_context(|| format!("{option}: cannot read {file}"))?;
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let names = lines.flat_map(|line| line.split(|c: char| c.is_whitespace() || c == ','));
        // Commas inside brackets separate numbers. The parts are joined again, and the list is parsed as a
        // whole.
        let list = names.filter(|name| !name.is_empty()).collect::<Vec<_>>().join(",");
        if list.is_empty() {
            bail!("{option}: {file} names no hosts");
        }
        list.parse::<HostExpr>().with_context(|| format!("{option}: {file}"))?;
        anyhow::Ok(list)
    };
    if let Some(file) = wishes.nodefile.take() {
        wishes.spec.nodelist = read(&file, "--nodefile")?;
    }
    if let Some(file) = wishes.excludefile.take() {
        wishes.spec.exclude = read(&file, "--exclude")?;
    }
    Ok(())
}

/// Compares the number of named nodes with the largest number of requested nodes. A batch job or an
/// allocation that names too many nodes is refused. `srun` prints a message and uses the first of them, as
/// in Slurm.
///
/// # Errors
/// Too many nodes.
pub fn count_named(session: &mut Session, wishes: &mut Submission) -> anyhow::Result<()> {
    let most = wishes.spec.nodes.parse::<NodeCount>().ok().and_then(|nodes| nodes.max);
    let (Some(most), Ok(named)) = (most, wishes.spec.nodelist.parse::<HostList>()) else { return Ok(()) };
    let named = named.unique().sorted();
    if named.len() <= most as usize {
        return Ok(());
    }
    if !wishes.is_srun {
        bail!("invalid number of nodes (-N {}-{most})", named.len());
    }
    session.error(&format!(
        "Required nodelist includes more nodes than permitted by max-node count ({} > {most}). Eliminating nodes from the \
         nodelist.",
        named.len()
    ));
    wishes.spec.nodelist = HostList::from_names(named.iter().take(most as usize)).to_string();
    Ok(())
}

/// Makes this process one of the user and group that `--uid` and `--gid` name, so that all it does from here
/// on is theirs. Only root may; for others their own names change nothing.
///
/// # Errors
/// An unknown user or group, or another user or group than the caller's own unless the caller is root.
pub fn become_user(uid: Option<&str>, gid: Option<&str>) -> anyhow::Result<()> {
    let unknown = |option: &str, name: &str| Failure::new(format!("Invalid {option} specification: {name}"));
    let user = match uid {
        None => User::from_uid(Uid::current())?,
        Some(name) => {
            let by_number = || name.parse().ok().and_then(|uid| User::from_uid(Uid::from_raw(uid)).ok()?);
            let user = User::from_name(name)?.or_else(by_number);
            Some(user.ok_or_else(|| unknown("--uid", name))?)
        }
    };
    let group = match gid {
        None => user.as_ref().map_or(Gid::current(), |user| user.gid),
        Some(name) => {
            let by_number = || name.parse().ok().map(Gid::from_raw);
            let group = Group::from_name(name)?.map(|group| group.gid).or_else(by_number);
            group.ok_or_else(|| unknown("--gid", name))?
        }
    };
    let uid = user.as_ref().map_or(Uid::current(), |user| user.uid);
    if (uid, group) == (Uid::current(), Gid::current()) {
        return Ok(());
    }
    if !Uid::effective().is_root() {
        bail!(Failure::new("--uid and --gid are for root: only root may submit for others"));
    }
    if let Some(user) = &user {
        let name = CString::new(user.name.as_str())?;
        initgroups(&name, group).context("cannot take on the user's groups")?;
    }
    setgid(group).and_then(|()| setuid(uid)).context("cannot become the user")?;
    Ok(())
}

/// Returns the file mode creation mask of this process.
pub fn file_mask() -> u32 {
    let mask = umask(Mode::empty());
    umask(mask);
    mask.as_raw_mode()
}

/// Returns the working directory of a program: the current one, or `chdir` relative to it.
///
/// # Errors
/// A current directory that was deleted, or a name that is not UTF-8.
pub fn directory(chdir: Option<&str>) -> anyhow::Result<String> {
    let here = std::env::current_dir().context("cannot find out the current directory")?;
    let directory: PathBuf = chdir.map_or(here.clone(), |chdir| here.join(chdir));
    match directory.into_os_string().into_string() {
        Ok(directory) => Ok(directory),
        Err(directory) => bail!("the directory {} is not UTF-8", directory.display()),
    }
}

/// Returns the path of a program. A name that neither contains a slash nor is in PATH is also searched in
/// `directory`.
pub fn program(name: &str, directory: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_found = name.contains('/') || std::env::split_paths(&path).any(|place| place.join(name).is_file());
    let here = Path::new(directory).join(name);
    if !is_found && here.is_file() { here } else { name.into() }
}

/// Returns the name of this host.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Clock and time zone of this host, both read on demand.
pub struct Here;

impl Surroundings for Here {
    fn now(&self) -> CivilNow {
        let now = jiff::Timestamp::now().to_zoned(zone::local());
        let civil = Civil {
            year: now.year().into(),
            month: now.month().unsigned_abs(),
            day: now.day().unsigned_abs(),
            hour: now.hour().unsigned_abs(),
            minute: now.minute().unsigned_abs(),
            second: now.second().unsigned_abs(),
        };
        CivilNow { time: Time(now.timestamp().as_second()), civil }
    }

    fn to_epoch(&self, civil: Civil) -> Option<Time> {
        let small = |number: u8| i8::try_from(number).ok();
        let civil = DateTime::new(
            i16::try_from(civil.year).ok()?,
            small(civil.month)?,
            small(civil.day)?,
            small(civil.hour)?,
            small(civil.minute)?,
            small(civil.second)?,
            0,
        );
        let zoned = zone::local().to_ambiguous_zoned(civil.ok()?).compatible().ok()?;
        Some(Time(zoned.timestamp().as_second()))
    }
}

impl Place for Here {
    fn stamp(&self, when: When) -> Option<String> {
        let time = when.resolve(self.now(), &|civil| self.to_epoch(civil)).ok()?;
        let zoned = jiff::Timestamp::from_second(time.0).ok()?.to_zoned(zone::local());
        Some(zoned.strftime("%Y-%m-%dT%H:%M:%S").to_string())
    }

    fn path(&self, file: &str) -> String {
        directory(Some(file)).unwrap_or_else(|_| file.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn export_says_what_comes_along() {
        let here = environment(&[("A", "1"), ("B", "2"), ("SLURM_X", "3")]);
        for (export, expected) in [
            ("ALL", environment(&[("A", "1"), ("B", "2"), ("SLURM_X", "3")])),
            ("NONE", environment(&[("SLURM_X", "3")])),
            ("B,C,D=4", environment(&[("B", "2"), ("D", "4"), ("SLURM_X", "3")])),
            ("ALL,A=9", environment(&[("A", "9"), ("B", "2"), ("SLURM_X", "3")])),
        ] {
            assert_eq!(exported(&here, &export.parse().unwrap()), expected, "{export}");
        }
    }

    #[test]
    fn the_environment_travels_with_zero_bytes() {
        assert_eq!(packed(&environment(&[("A", "1"), ("B", "")])).unwrap(), b"A=1\0B=\0");
        let large = environment(&[("A", &"x".repeat(MAX_ENVIRONMENT))]);
        assert!(packed(&large).unwrap_err().to_string().contains("--export=NONE"));
    }

    #[test]
    fn limits_are_those_of_this_process() {
        assert_eq!(limits(&Propagate::None), []);
        let one = limits(&Propagate::Some(vec!["NOFILE".into()]));
        assert_eq!(one.len(), 1);
        assert!(one[0].soft > 0);
        let known = spur_core::model::config::RESOURCE_LIMITS;
        assert!(LIMITS.iter().map(|&(name, _)| name).eq(known.iter().copied()));
        assert_eq!(limits(&Propagate::All).len(), LIMITS.len());
    }

    #[test]
    fn hosts_are_read_from_files() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("hosts");
        std::fs::write(&file, "n1 n2,n3 # the rest\n\nn[5,7-8]\n").unwrap();
        let path = file.to_str().map(str::to_owned);
        let mut wishes = Submission { nodefile: path.clone(), excludefile: path, ..Submission::default() };
        read_hosts(&mut wishes).unwrap();
        assert_eq!(wishes.spec.nodelist, "n1,n2,n3,n[5,7-8]");
        assert_eq!(wishes.spec.exclude, wishes.spec.nodelist);
        std::fs::write(&file, "# nobody\n").unwrap();
        wishes.nodefile = file.to_str().map(str::to_owned);
        assert!(read_hosts(&mut wishes).unwrap_err().to_string().contains("--nodefile"));
    }

    #[test]
    fn the_mask_stays_as_it_was() {
        assert_eq!(file_mask(), file_mask());
    }
}
