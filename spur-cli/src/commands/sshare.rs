//! `sshare`: the shares of associations. There are none here: priority knows no fair share yet.

use std::io::Write;

use super::listing::{self, Common, Listing};
use super::query;
use crate::commands::called;
use crate::format::report::{Column, Layout, Report};
use crate::options::{CommandLine, Opt};
use crate::session::Session;

/// What the options say.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    common: Common,
    format: Option<String>,
    long: bool,
    partition: bool,
    no_header: bool,
    parsable: Option<bool>,
    help_format: bool,
}

impl Listing for Settings {
    fn common(&mut self) -> &mut Common {
        &mut self.common
    }
}

type SettingsOpt = Opt<Settings>;

const NONE: &str = "there are no associations to choose among";

const OPTIONS: &[SettingsOpt] = &[
    SettingsOpt::value("accounts", Some('A'), "NAMES", "only these accounts", |_, _| Ok(()))
        .without_effect(NONE),
    SettingsOpt::flag("all", Some('a'), "all users", |_, _| Ok(())).without_effect(NONE),
    listing::clusters(),
    SettingsOpt::value("format", Some('o'), "FIELDS", "columns as name[%[-]width],…", |settings, text| {
        settings.format = Some(text.to_owned());
        Ok(())
    }),
    SettingsOpt::flag("helpformat", Some('e'), "list the fields there are", |settings, _| {
        settings.help_format = true;
        Ok(())
    }),
    SettingsOpt::flag("long", Some('l'), "more columns", |settings, _| {
        settings.long = true;
        Ok(())
    }),
    SettingsOpt::flag("noheader", Some('h'), "no header", |settings, _| {
        settings.no_header = true;
        Ok(())
    }),
    SettingsOpt::flag("no-header", Some('n'), "no header", |settings, _| {
        settings.no_header = true;
        Ok(())
    }),
    SettingsOpt::flag("parsable", Some('p'), "values with | behind each", |settings, _| {
        settings.parsable = Some(true);
        Ok(())
    }),
    SettingsOpt::flag("parsable2", Some('P'), "values with | between them", |settings, _| {
        settings.parsable = Some(false);
        Ok(())
    }),
    SettingsOpt::flag("partition", Some('m'), "with partitions", |settings, _| {
        settings.partition = true;
        Ok(())
    }),
    SettingsOpt::value("users", Some('u'), "NAMES", "only these users", |_, _| Ok(()))
        .or(&["uid"])
        .without_effect(NONE),
    SettingsOpt::flag("Users", Some('U'), "only users, no accounts", |_, _| Ok(())).without_effect(NONE),
    listing::verbose_in_vain(),
];

/// How it is called.
pub const LINE: CommandLine<Settings> = CommandLine {
    name: "sshare",
    synopsis: "[OPTIONS]",
    about: "Shows the shares of associations: none, for Spur keeps no associations, and priority knows no fair share.",
    options: OPTIONS,
    mask: 1,
    env_prefixes: &[],
    permute: true,
};

/// An association, of which there is none.
struct Share;

const fn blank(name: &'static str, width: isize) -> Column<Share> {
    Column { name, header: name, width, text: |_, _| String::new() }
}

const FIELDS: [Column<Share>; 15] = [
    blank("Account", -20),
    blank("Cluster", 10),
    blank("EffectvUsage", 13),
    blank("FairShare", 10),
    blank("GrpTRESMins", 30),
    blank("GrpTRESRaw", 30),
    blank("ID", 6),
    blank("LevelFS", 10),
    blank("NormShares", 11),
    blank("NormUsage", 11),
    blank("Partition", 12),
    blank("RawShares", 10),
    blank("RawUsage", 11),
    blank("TRESRunMins", 30),
    blank("User", 10),
];

/// Runs `sshare`.
///
/// # Errors
/// A field that there is not, a controller that does not answer.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let mut settings = Settings::default();
    let Some(operands) = called::operands(session, &LINE, &words, &mut settings)? else {
        return Ok(0);
    };
    query::no_operands(operands.into_iter())?;
    if settings.help_format {
        for fields in FIELDS.chunks(4) {
            let line: String = fields.iter().map(|field| format!("{:<17} ", field.name)).collect();
            writeln!(session.out, "{}", line.trim_end())?;
        }
        return Ok(0);
    }
    listing::check_clusters(session, &settings.common.clusters).await?;
    // Whether there is a cluster at all is part of the answer.
    query::cluster_name(session).await?;
    write!(session.out, "{}", settings.text()?)?;
    Ok(0)
}

impl Settings {
    fn text(&self) -> anyhow::Result<String> {
        let partition = if self.partition { "partition," } else { "" };
        let middle = match self.long {
            true => "normusage,effectvusage,fairshare,levelfs,grptresmins,tresrunmins",
            false => "effectvusage,fairshare",
        };
        let shown = format!("account,user,{partition}rawshares,normshares,rawusage,{middle}");
        let report = Report::of(&FIELDS, self.format.as_deref().unwrap_or(&shown))?;
        let layout = match self.parsable {
            None => Layout::Columns,
            Some(closed) => Layout::Delimited { delimiter: "|".to_owned(), closed },
        };
        let show = query::show(&|_| None)?;
        Ok(report.render(&[], &layout, !self.no_header, &show))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_slurms() {
        let text = Settings::default().text().unwrap();
        let header =
            "Account                    User  RawShares  NormShares    RawUsage  EffectvUsage  FairShare ";
        assert_eq!(text.lines().next(), Some(header));
        let bare = Settings { no_header: true, parsable: Some(false), ..Settings::default() };
        assert_eq!(bare.text().unwrap(), "");
        let wrong = Settings { format: Some("foo".into()), ..Settings::default() };
        assert!(wrong.text().unwrap_err().to_string().starts_with("Invalid field requested: \"foo\""));
    }
}
