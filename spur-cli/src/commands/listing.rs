//! Options that the listing commands share, each defined once.

use super::query;
use crate::format::json::Wish;
use crate::options::Opt;

/// Values of the shared options.
#[derive(Clone, Debug, Default)]
pub struct Common {
    /// Format of records as JSON or YAML; `None` for text.
    pub wish: Option<Wish>,
    /// `--clusters`: names of clusters.
    pub clusters: Vec<String>,
    /// `--all`: true to include hidden partitions.
    pub all: bool,
    /// `--verbose`: true to print the request and the number of records first.
    pub verbose: bool,
}

/// Settings of a listing command.
pub trait Listing {
    /// Returns the values of the shared options, to be changed.
    fn common(&mut self) -> &mut Common;
}

const NO_FEDERATION: &str = "clusters form no federation";

/// Defines `--json`.
pub const fn json<S: Listing>() -> Opt<S> {
    let help = "as JSON: v0.0.41, spur, or list for the shapes there are";
    let set = |settings: &mut S, text: &str| {
        settings.common().wish = Some(Wish::read(text, false)?);
        Ok(())
    };
    Opt::value("json", None, "SHAPE", help, set).optional()
}

/// Defines `--yaml`.
pub const fn yaml<S: Listing>() -> Opt<S> {
    let set = |settings: &mut S, text: &str| {
        settings.common().wish = Some(Wish::read(text, true)?);
        Ok(())
    };
    Opt::value("yaml", None, "SHAPE", "the same as YAML", set).optional()
}

/// Defines `--clusters`, with its environment variable.
pub const fn clusters<S: Listing>() -> Opt<S> {
    let set = |settings: &mut S, text: &str| {
        settings.common().clusters = query::list(text);
        Ok(())
    };
    Opt::value("clusters", Some('M'), "NAMES", "all, or names of clusters", set)
        .or(&["cluster"])
        .env(&["SLURM_CLUSTERS"])
}

/// Defines `--federation`.
pub const fn federation<S: Listing>(env: &'static [&'static str]) -> Opt<S> {
    Opt::flag("federation", None, "all clusters of the federation", |_, _| Ok(()))
        .env(env)
        .without_effect(NO_FEDERATION)
}

/// Defines `--local`, which is the default behaviour.
pub const fn local<S: Listing>(env: &'static [&'static str]) -> Opt<S> {
    Opt::flag("local", None, "this cluster only", |_, _| Ok(())).env(env)
}

/// Defines `--sibling`.
pub const fn sibling<S: Listing>(env: &'static [&'static str]) -> Opt<S> {
    Opt::flag("sibling", None, "sibling jobs of the federation", |_, _| Ok(()))
        .env(env)
        .without_effect(NO_FEDERATION)
}

/// Defines `--all`.
pub const fn all<S: Listing>(env: &'static [&'static str]) -> Opt<S> {
    let set = |settings: &mut S, _: &str| {
        settings.common().all = true;
        Ok(())
    };
    Opt::flag("all", Some('a'), "hidden partitions and their jobs, too", set).env(env)
}

/// Defines `--hide`.
pub const fn hide<S: Listing>() -> Opt<S> {
    Opt::flag("hide", None, "without hidden partitions and their jobs, as without options", |settings, _| {
        settings.common().all = false;
        Ok(())
    })
}

/// Text of `--watch` in `--help`.
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

/// Defines `--verbose` for commands that have nothing to add.
pub const fn verbose_in_vain<S>() -> Opt<S> {
    Opt::flag("verbose", Some('v'), "say more", |_, _| Ok(())).without_effect("there is nothing more to say")
}

/// Returns the settings in Slurm's form, as `--verbose` prints them first.
pub fn asked(settings: &[(&str, String)]) -> String {
    let rule = "-----------------------------\n";
    let line = |(name, value): &(&str, String)| {
        format!("{name:<11} = {}\n", if value.is_empty() { "(null)" } else { value })
    };
    format!("{rule}{}{rule}\n\n", settings.iter().map(line).collect::<String>())
}
