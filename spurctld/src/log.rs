//! The controller's log: standard error or a file, as text or JSON, at a level that `scontrol setdebug`
//! changes.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use spur_core::model::config::{LogFormat, LogLevel, LogLocal};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::reload;

const LEVELS: [LevelFilter; 5] =
    [LevelFilter::ERROR, LevelFilter::WARN, LevelFilter::INFO, LevelFilter::DEBUG, LevelFilter::TRACE];

/// Slurm's debug flags that have a meaning here, each with the module whose log it enables.
const FLAGS: [(&str, &str); 14] = [
    ("Agent", "spurctld::agents"),
    ("Backfill", "spurctld::planner"),
    ("BackfillMap", "spurctld::planner"),
    ("DB_Job", "spurctld::archive"),
    ("DB_Step", "spurctld::archive"),
    ("License", "spur_core::sched"),
    ("Network", "spur_proto"),
    ("Priority", "spur_core::sched"),
    ("Protocol", "spurctld::rpc"),
    ("Reservation", "spur_core::sched"),
    ("Route", "spurctld::agents"),
    ("SelectType", "spur_core::sched"),
    ("Steps", "spurctld::owner"),
    ("TraceJobs", "spurctld::owner"),
];

/// Slurm's level names that `scontrol setdebug` takes, each with its index into [`LEVELS`].
const NAMES: [(&str, usize); 10] = [
    ("error", 0),
    ("fatal", 0),
    ("quiet", 0),
    ("info", 2),
    ("verbose", 2),
    ("debug", 3),
    ("debug2", 4),
    ("debug3", 4),
    ("debug4", 4),
    ("debug5", 4),
];

/// The level and debug flags in force.
#[derive(Clone, Debug)]
struct Said {
    /// Index into [`LEVELS`].
    level: usize,
    /// Slurm's name for the level.
    name: &'static str,
    /// Debug flags, by their names in [`FLAGS`]; the modules of these log down to [`LevelFilter::TRACE`].
    flags: BTreeSet<&'static str>,
}

static SAID: Mutex<Said> = Mutex::new(Said { level: 2, name: "info", flags: BTreeSet::new() });
/// Replaces the filter of the running subscriber.
static FILTER: OnceLock<Box<dyn Fn(EnvFilter) -> bool + Send + Sync>> = OnceLock::new();

/// Starts the log at `more` levels beyond the configured one; `RUST_LOG` overrides both.
pub fn begin(config: &LogLocal, more: u8) {
    let configured = match config.level {
        LogLevel::Error => 0,
        LogLevel::Warn => 1,
        LogLevel::Info => 2,
        LogLevel::Debug => 3,
        LogLevel::Trace => 4,
    };
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    said.level = (configured + usize::from(more)).min(LEVELS.len() - 1);
    said.name = NAMES.iter().find(|(_, level)| *level == said.level).map_or("error", |(name, _)| *name);
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(said.filter()));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let begun = match config.format {
        LogFormat::Plain => {
            let builder = builder.with_ansi(false).with_filter_reloading();
            keep(builder.reload_handle());
            builder.try_init()
        }
        LogFormat::Json => {
            let builder = builder.json().with_filter_reloading();
            keep(builder.reload_handle());
            builder.try_init()
        }
    };
    if let Err(error) = begun {
        tracing::warn!(%error, "logging was begun before");
    }
}

/// Sends standard error to the end of a file. A second call reopens the file of this name, after log
/// rotation.
pub fn write_to(path: &Path) {
    let file = File::options().create(true).append(true).mode(0o640).open(path);
    if let Err(error) = file.and_then(|file| rustix::stdio::dup2_stderr(&file).map_err(Into::into)) {
        tracing::warn!(%error, log = %path.display(), "the log stays where it was");
    }
}

impl Said {
    fn filter(&self) -> String {
        // Below the highest level the messages of libraries are left out.
        let mut filter = match LEVELS[self.level] {
            LevelFilter::TRACE => "trace".to_owned(),
            level => format!("warn,spurctld={level},spur_core={level},spur_proto={level}"),
        };
        for target in self.flags.iter().filter_map(|flag| target(flag)).collect::<BTreeSet<_>>() {
            filter.push_str(&format!(",{target}=trace"));
        }
        filter
    }

    /// Returns level and flags after a change in Slurm's words.
    fn changed(&self, level: &str, on: &[String], off: &[String]) -> Result<Said, String> {
        let mut said = self.clone();
        if !level.is_empty() {
            let known = NAMES.iter().find(|(name, _)| *name == level);
            (said.name, said.level) = *known.ok_or_else(|| format!("invalid debug level: {level}"))?;
        }
        let named = |flag: &String| {
            let known = FLAGS.iter().find(|(name, _)| name.eq_ignore_ascii_case(flag));
            let names = || FLAGS.map(|(name, _)| name).join(", ");
            known
                .map(|(name, _)| *name)
                .ok_or_else(|| format!("invalid debug flag: {flag}; there are {}", names()))
        };
        for flag in on {
            said.flags.insert(named(flag)?);
        }
        for flag in off {
            said.flags.remove(named(flag)?);
        }
        Ok(said)
    }
}

/// Returns the module whose log a debug flag enables; `None` for an unknown flag.
fn target(flag: &str) -> Option<&'static str> {
    FLAGS.iter().find(|(name, _)| *name == flag).map(|(_, target)| *target)
}

/// Returns Slurm's name of the level in force, and the debug flags, separated by commas.
pub fn in_force() -> (&'static str, String) {
    let said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    (said.name, said.flags.iter().copied().collect::<Vec<_>>().join(","))
}

/// Changes the level and the debug flags, in Slurm's words; an empty `level` keeps the level.
///
/// # Errors
/// Names an unknown level or flag; then nothing has changed.
pub fn change(level: &str, on: &[String], off: &[String]) -> Result<(), String> {
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    let changed = said.changed(level, on, off)?;
    let filter = changed.filter();
    if FILTER.get().is_some_and(|set| set(EnvFilter::new(&filter))) {
        tracing::info!(filter, "the log says more or less now");
    }
    *said = changed;
    Ok(())
}

fn keep<S: 'static>(handle: reload::Handle<EnvFilter, S>) {
    let _ = FILTER.set(Box::new(move |filter| handle.reload(filter).is_ok()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slurms_words_change_what_is_logged() {
        let said = Said { level: 2, name: "info", flags: BTreeSet::new() };
        let words = |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
        let more = said.changed("", &words("Backfill Agent"), &[]).unwrap();
        assert_eq!(
            more.filter(),
            "warn,spurctld=info,spur_core=info,spur_proto=info,spurctld::agents=trace,spurctld::planner=trace"
        );
        let less = more.changed("error", &[], &words("backfill")).unwrap();
        assert!(less.filter().starts_with("warn,spurctld=error") && !less.filter().contains("planner"));
        assert_eq!(said.changed("debug5", &[], &[]).unwrap().filter(), "trace");
        let both = said.changed("debug", &words("Backfill BackfillMap"), &[]).unwrap();
        let one = both.changed("", &[], &words("BackfillMap")).unwrap();
        assert!(one.filter().ends_with(",spurctld::planner=trace"), "{}", one.filter());
        assert_eq!((one.name, one.flags.len()), ("debug", 1));
        assert!(said.changed("loud", &[], &[]).is_err());
        assert!(said.changed("", &words("Foo"), &[]).unwrap_err().starts_with("invalid debug flag: Foo"));
    }
}
