//! The command `spur policy`: the policy tree as one TOML file, for sites that keep the tree under version
//! control.

mod change;
mod touched;
mod tree;

use std::io::Write as _;

use anyhow::{Context as _, bail};

use crate::commands::called;
use crate::commands::query;
use crate::commands::sacctmgr::change::{QUESTION, agrees, send};
use crate::commands::sacctmgr::dump;
use crate::format::json;
use crate::options::{CommandLine, Opt, sets};
use crate::session::Session;
use change::{Change, Requests, changes, requests};
use spur_proto::v1::ChangeAccountsRequest;
use touched::Touched;
use tree::PolicyTree;

#[derive(Debug, Default)]
pub(super) struct Args {
    immediate: bool,
    json: bool,
}

pub(super) const LINE: CommandLine<Args> = CommandLine {
    name: "spur policy",
    synopsis: "export | diff [--json] FILE | import [-i] FILE",
    about: "The policy tree (QOS, accounts, users and associations, with limits and shares) as one TOML file.\n\n\
            export prints the tree. diff names what would change if FILE were imported, and the waiting and running jobs that each \
            change would touch; the exit code is 1 if anything would change. import makes the tree equal to FILE, with the rules \
            of sacctmgr: nothing that has waiting or running jobs is deleted. FILE may be - for the standard input of diff.",
    options: &[
        Opt::flag("immediate", Some('i'), "import without asking", sets!(Args.immediate)),
        Opt::flag("json", None, "print the differences as JSON", sets!(Args.json)),
    ],
    mask: 1,
    env_prefixes: &[],
    permute: true,
};

/// Runs `spur policy`.
///
/// # Errors
/// Words that are no request, a file that is no tree, or a refusal of the controller.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let mut args = Args::default();
    let Some(operands) = called::operands(session, &LINE, &words, &mut args)? else { return Ok(0) };
    let operands: Vec<&str> = operands.iter().map(String::as_str).collect();
    match operands[..] {
        ["export"] if !args.json && !args.immediate => export(session).await,
        ["diff", file] if !args.immediate => diff(session, file, args.json).await,
        ["import", file] if !args.json => import(session, file, args.immediate).await,
        _ => bail!(
            "one of these is expected: spur policy export, spur policy diff [--json] FILE, spur policy import [-i] FILE"
        ),
    }
}

async fn export(session: &mut Session) -> anyhow::Result<u8> {
    let cluster = query::cluster_name(session).await?;
    let tree = dump::tree(session).await?;
    let has_place = |name: &str| tree.associations.iter().any(|own| own.user == name);
    for user in tree.users.values().filter(|user| !has_place(&user.name)) {
        session.warn(&format!("user {} is left out: the user has no association", user.name));
    }
    write!(session.out, "{}", PolicyTree::of(&tree).to_toml(&cluster))?;
    Ok(0)
}

/// Reads a file, and returns its differences from the controller's tree with both trees.
async fn compare(session: &mut Session, file: &str) -> anyhow::Result<(Vec<Change>, PolicyTree, PolicyTree)> {
    let text = match file {
        "-" => std::io::read_to_string(std::io::stdin()).context("cannot read the standard input")?,
        file => std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?,
    };
    let wanted = PolicyTree::parse(&text).with_context(|| file.to_owned())?;
    let present = PolicyTree::of(&dump::tree(session).await?);
    Ok((changes(&present, &wanted), present, wanted))
}

async fn diff(session: &mut Session, file: &str, as_json: bool) -> anyhow::Result<u8> {
    let (changes, present, wanted) = compare(session, file).await?;
    let touched = Touched::of(session, &present, &wanted).await?;
    if as_json {
        let record = |change: &Change| {
            let jobs = touched.by(&change.key);
            serde_json::json!({ "change": change.to_string(), "pending": jobs.pending, "running": jobs.running })
        };
        let records: Vec<serde_json::Value> = changes.iter().map(record).collect();
        writeln!(session.out, "{}", json::Wish::default().own([("changes", records.into())]))?;
    } else {
        for change in &changes {
            writeln!(session.out, "{change}{}", touched.by(&change.key))?;
        }
        if changes.is_empty() {
            session.inform("nothing would change");
        }
    }
    Ok(u8::from(!changes.is_empty()))
}

async fn import(session: &mut Session, file: &str, immediate: bool) -> anyhow::Result<u8> {
    if file == "-" && !immediate {
        bail!(
            "spur policy import - reads the tree where the answer would be read; write spur policy import -i -"
        );
    }
    let (changes, _, wanted) = compare(session, file).await?;
    if changes.is_empty() {
        session.inform("nothing changes");
        return Ok(0);
    }
    let Requests { settings, deletions } = requests(&changes, &wanted)?;
    // The file is of the controller's own cluster, not of others whose trees it keeps.
    let here = format!("Cluster={}", query::cluster_name(session).await?);
    let of_here = |request: ChangeAccountsRequest| {
        let conditions = request.conditions.iter().chain([&here]).cloned().collect();
        ChangeAccountsRequest { conditions, ..request }
    };
    let settings: Vec<_> = settings.into_iter().map(of_here).collect();
    let deletions: Vec<_> = deletions.into_iter().map(of_here).collect();
    // Deletions that the controller would refuse stop the import before anything is changed.
    for request in &deletions {
        let _lines = send(session, ChangeAccountsRequest { preview: true, ..request.clone() }).await?;
    }
    changes.iter().try_for_each(|change| writeln!(session.out, "{change}"))?;
    if !immediate && !agrees(session, QUESTION).await? {
        writeln!(session.out, " Changes Discarded")?;
        return Ok(0);
    }
    for request in settings.into_iter().chain(deletions) {
        // The inner error says that there is nothing left to do.
        let _lines = send(session, request).await?;
    }
    session.inform(&format!("{} records changed", changes.len()));
    Ok(0)
}
