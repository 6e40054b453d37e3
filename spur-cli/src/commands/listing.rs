//! Options that the commands which list things share, each said once.

use super::query;
use crate::format::json::Wish;
use crate::options::Opt;

/// What the shared options say.
#[derive(Clone, Debug, Default)]
pub struct Common {
    /// Records as JSON or YAML.
    pub wish: Option<Wish>,
    /// `--clusters`.
    pub clusters: Vec<String>,
    /// `--all`: hidden partitions, too.
    pub all: bool,
    /// `--verbose`: what was asked for, and how many records there are, before these.
    pub verbose: bool,
}

/// The settings of a command that lists things.
pub trait Listing {
    /// Where the shared options leave what they say.
    fn common(&mut self) -> &mut Common;
}

const ONE: &str = "there is one cluster, and no federation";

/// `--json`.
pub const fn json<S: Listing>() -> Opt<S> {
    let help = "as JSON: v0.0.41, spur, or list for the shapes there are";
    let set = |settings: &mut S, text: &str| {
        settings.common().wish = Some(Wish::read(text, false)?);
        Ok(())
    };
    Opt::value("json", None, "SHAPE", help, set).optional()
}

/// `--yaml`.
pub const fn yaml<S: Listing>() -> Opt<S> {
    let set = |settings: &mut S, text: &str| {
        settings.common().wish = Some(Wish::read(text, true)?);
        Ok(())
    };
    Opt::value("yaml", None, "SHAPE", "the same as YAML", set).optional()
}

/// `--clusters`, with the variable that says the same.
pub const fn clusters<S: Listing>() -> Opt<S> {
    let set = |settings: &mut S, text: &str| {
        settings.common().clusters = query::list(text);
        Ok(())
    };
    Opt::value("clusters", Some('M'), "NAMES", "all, or names of clusters", set)
        .or(&["cluster"])
        .env(&["SLURM_CLUSTERS"])
}

/// `--federation`.
pub const fn federation<S: Listing>(env: &'static [&'static str]) -> Opt<S> {
    Opt::flag("federation", None, "all clusters of the federation", |_, _| Ok(()))
        .env(env)
        .without_effect(ONE)
}

/// `--local`: what is always done.
pub const fn local<S: Listing>(env: &'static [&'static str]) -> Opt<S> {
    Opt::flag("local", None, "this cluster only", |_, _| Ok(())).env(env)
}

/// `--sibling`.
pub const fn sibling<S: Listing>(env: &'static [&'static str]) -> Opt<S> {
    Opt::flag("sibling", None, "sibling jobs of the federation", |_, _| Ok(())).env(env).without_effect(ONE)
}

/// `--all`.
pub const fn all<S: Listing>(env: &'static [&'static str]) -> Opt<S> {
    let set = |settings: &mut S, _: &str| {
        settings.common().all = true;
        Ok(())
    };
    Opt::flag("all", Some('a'), "hidden partitions and their jobs, too", set).env(env)
}

/// `--hide`.
pub const fn hide<S: Listing>() -> Opt<S> {
    Opt::flag("hide", None, "without hidden partitions and their jobs, as without options", |settings, _| {
        settings.common().all = false;
        Ok(())
    })
}

/// What `--watch` is for.
pub const WATCH: &str = "a page now, and another one whenever something changes";

/// `--verbose`, for commands that say what they were asked for.
pub const fn verbose<S: Listing>() -> Opt<S> {
    Opt::flag(
        "verbose",
        Some('v'),
        "say what is asked for, and how many records there are",
        |settings: &mut S, _| {
            settings.common().verbose = true;
            Ok(())
        },
    )
}

/// `--verbose`, for commands that have nothing more to say.
pub const fn verbose_in_vain<S>() -> Opt<S> {
    Opt::flag("verbose", Some('v'), "say more", |_, _| Ok(())).without_effect("there is nothing more to say")
}

/// What `--verbose` prints first: the settings between lines, in Slurm's form.
pub fn asked(settings: &[(&str, String)]) -> String {
    let rule = "-----------------------------\n";
    let line = |(name, value): &(&str, String)| {
        format!("{name:<11} = {}\n", if value.is_empty() { "(null)" } else { value })
    };
    format!("{rule}{}{rule}\n\n", settings.iter().map(line).collect::<String>())
}
