//! The commands `sacctmgr add`, `modify` and `delete`. The controller computes the effect of a change and
//! describes it in Slurm's words. The user's consent is sent with this description, so that only the
//! confirmed change is made.

use std::io::Write;
use std::time::Duration;

use spur_core::controller::MOST_AT_ONCE;
use spur_core::model::accounts::ask;
use spur_proto::client::{CallError, Controller};
use spur_proto::v1::{ChangeAccountsRequest, ChangeAccountsResponse, ShownChange};

use super::Settings;
use crate::commands::query;
use crate::error::Bare;
use crate::format::value::local_times;
use crate::session::Session;

/// Maximum time to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const QUESTION: &str = "Would you like to commit changes?";
/// Code of the refusal of a change without effect.
const NOTHING_TO_DO: &str = "SLURM_NO_CHANGE_IN_DATA";

/// Entities that can be changed. Each may be abbreviated to its first letters, at least to this number of
/// letters.
const ENTITIES: [(&str, usize, &str); 7] = [
    ("accounts", 1, "account"),
    ("clusters", 2, "cluster"),
    ("coordinators", 2, "coordinator"),
    ("qos", 1, "qos"),
    ("users", 1, "user"),
    ("associations", 2, ""),
    ("jobs", 1, JOB),
];

/// The entity that can be modified, but neither added nor deleted.
const JOB: &str = "job";

/// Reads the words behind a verb.
///
/// # Errors
/// An entity that cannot be changed.
pub(super) fn read(verb: &'static str, words: &[String]) -> anyhow::Result<Vec<ChangeAccountsRequest>> {
    let (entity, rest) = words.split_first().map_or(("", words), |(word, rest)| (word.as_str(), rest));
    let fits = |(name, least, _): &&(&str, usize, &str)| {
        entity.len() >= *least
            && name.get(..entity.len()).is_some_and(|head| head.eq_ignore_ascii_case(entity))
    };
    let known = ENTITIES.iter().find(fits).map(|(.., entity)| *entity);
    let known = known.filter(|entity| !entity.is_empty() && (*entity != JOB || verb == "modify"));
    let entity = known.ok_or_else(|| unknown(verb, entity))?;
    let mut request =
        ChangeAccountsRequest { verb: verb.to_owned(), entity: entity.to_owned(), ..Default::default() };
    let (mut names, mut sets): (Vec<String>, bool) = (Vec::new(), verb == "add" && entity != "coordinator");
    for word in rest {
        let lower = word.to_ascii_lowercase();
        match lower.as_str() {
            "where" => sets = false,
            "set" => sets = true,
            _ if !word.contains('=') || is_name(entity, &lower) => {
                let value = word.split_once('=').map_or(word.as_str(), |(_, value)| value);
                names.extend(ask::names(value.trim_matches(['\'', '"'])).map_err(Bare)?);
            }
            _ if sets => request.settings.push(word.clone()),
            _ => request.conditions.push(word.clone()),
        }
    }
    if names.len() <= MOST_AT_ONCE {
        return Ok(vec![ChangeAccountsRequest { names, ..request }]);
    }
    let part = |names: &[String]| ChangeAccountsRequest { names: names.to_vec(), ..request.clone() };
    Ok(names.chunks(MOST_AT_ONCE).map(part).collect())
}

/// True if a word names the changed records, as `name=` does.
fn is_name(entity: &str, word: &str) -> bool {
    let key = word.split_once('=').map_or("", |(key, _)| key);
    let own = match entity {
        "user" => "users",
        "qos" => "qos",
        _ => "",
    };
    !key.is_empty() && ("names".starts_with(key) || (!own.is_empty() && own.starts_with(key)))
}

fn unknown(verb: &str, entity: &str) -> anyhow::Error {
    let list = match verb {
        "modify" => "\"Account\", \"Cluster\", \"Federation\", \"Job\", \"QOS\", \"Resource\" or \"User\"",
        _ => "\"Account\", \"Cluster\", \"Coordinator\", \"Federation\", \"QOS\", \"Resource\", or \"User\"",
    };
    if !entity.is_empty() && "wckeys".starts_with(&entity.to_ascii_lowercase()) {
        let example = match verb {
            "add" => "sacctmgr add user anna WCKeys=k1",
            "delete" => "sacctmgr delete user anna WCKeys=k1",
            _ => "sacctmgr modify user anna set DefaultWCKey=k1",
        };
        return Bare(format!("No valid entity in {verb} command\nwckeys belong to users: {example}")).into();
    }
    let not_kept = ["resource", "federation", "archive", "event"];
    let word = entity.to_ascii_lowercase();
    if !word.is_empty() && not_kept.iter().any(|name| name.starts_with(&word)) {
        return Bare(format!(" {entity}: not supported by Spur: it is not kept in the policy tree")).into();
    }
    Bare(format!("No valid entity in {verb} command\nInput line must include {list}")).into()
}

/// Makes a change, in several requests if needed.
///
/// # Errors
/// A refusal by the controller.
pub(super) async fn run(
    session: &mut Session,
    settings: &Settings,
    requests: Vec<ChangeAccountsRequest>,
) -> anyhow::Result<u8> {
    if settings.readonly {
        return Err(Bare("Can't run this command in readonly mode.".to_owned()).into());
    }
    let mut shown = Vec::new();
    if !settings.immediate {
        let mut nothing = None;
        for request in requests {
            match send(session, ChangeAccountsRequest { preview: true, ..request.clone() }).await? {
                Ok(lines) => {
                    print(session, &lines)?;
                    shown.push(ChangeAccountsRequest { shown: Some(ShownChange { lines }), ..request });
                }
                Err(text) => nothing = Some(text),
            }
        }
        if let Some(text) = nothing.filter(|_| shown.is_empty()) {
            return Err(Bare(text).into());
        }
        if !agrees(session, QUESTION).await? {
            writeln!(session.out, " Changes Discarded")?;
            return Ok(0);
        }
        for request in shown {
            if let Err(text) = send(session, request).await? {
                return Err(Bare(text).into());
            }
        }
        return Ok(0);
    }
    let (mut done, mut nothing) = (false, None);
    for request in requests {
        match send(session, request).await? {
            Ok(lines) => {
                print(session, &lines)?;
                done = true;
            }
            Err(text) => nothing = Some(text),
        }
    }
    match nothing.filter(|_| !done) {
        Some(text) => Err(Bare(text).into()),
        None => Ok(0),
    }
}

/// Loads the slices of a file and deletes records that the file does not name. With a single slice and no
/// deletions, the user first sees the effect.
///
/// # Errors
/// A refusal by the controller. Earlier slices are loaded, and loading the file again continues after them.
pub(super) async fn load(
    session: &mut Session,
    settings: &Settings,
    slices: Vec<ChangeAccountsRequest>,
    leftovers: Vec<ChangeAccountsRequest>,
) -> anyhow::Result<u8> {
    // The preview refuses impossible deletions before any change is made.
    for request in &leftovers {
        if let Ok(lines) = send(session, ChangeAccountsRequest { preview: true, ..request.clone() }).await? {
            print(session, &lines)?;
        }
    }
    let mut shown = None;
    if let [only] = slices.as_slice() {
        let preview = ChangeAccountsRequest { preview: true, ..only.clone() };
        let lines = send(session, preview).await?.unwrap_or_default();
        if lines.is_empty() && leftovers.is_empty() {
            writeln!(session.out, " Nothing new added.")?;
            return Ok(0);
        }
        print(session, &lines)?;
        shown = Some(lines).filter(|_| !settings.immediate);
    }
    if !settings.immediate && !agrees(session, QUESTION).await? {
        writeln!(session.out, " Changes Discarded")?;
        return Ok(0);
    }
    let alone = slices.len() == 1;
    for request in slices {
        let agreed = shown.take().map(|lines| ShownChange { lines });
        let lines = send(session, ChangeAccountsRequest { shown: agreed, ..request }).await?;
        if !alone {
            print(session, &lines.unwrap_or_default())?;
        }
    }
    for request in leftovers {
        // The record may have been deleted meanwhile.
        let _gone = send(session, request).await?;
    }
    session.inform("Done adding cluster");
    Ok(0)
}

/// Sends a request. The inner error means that the request has no effect.
pub(crate) async fn send(
    session: &mut Session,
    request: ChangeAccountsRequest,
) -> anyhow::Result<Result<Vec<String>, String>> {
    let call = async |mut controller: Controller, request| controller.change_accounts(request).await;
    match session.connection()?.change(request, call).await {
        Ok(ChangeAccountsResponse { lines }) => Ok(Ok(lines)),
        Err(error) if error.code() == Some(NOTHING_TO_DO) => Ok(Err(error.to_string())),
        Err(error @ CallError::Refused { .. }) => Err(Bare(error.to_string()).into()),
        Err(error) => Err(error.into()),
    }
}

fn print(session: &mut Session, lines: &[String]) -> anyhow::Result<()> {
    let show = query::show(&|name| session.env(name))?;
    lines.iter().try_for_each(|line| writeln!(session.out, "{}", local_times(line, &show)))?;
    Ok(())
}

/// True if the user answers yes in time.
pub(crate) async fn agrees(session: &mut Session, question: &str) -> anyhow::Result<bool> {
    write!(session.out, "{question} (You have {} seconds to decide)\n(N/y): ", PATIENCE.as_secs())?;
    session.out.flush()?;
    // The thread that waits for input ends with the process.
    let (say, mut answers) = tokio::sync::mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if say.blocking_send(line).is_err() {
                return;
            }
        }
    });
    let answered = tokio::time::timeout(PATIENCE, async {
        while let Some(line) = answers.recv().await {
            match line.trim().to_ascii_lowercase().as_str() {
                "y" | "yes" => return Ok(true),
                "n" | "no" | "" => return Ok(false),
                _ => {
                    write!(session.out, "Y or N please\n(N/y): ")?;
                    session.out.flush()?;
                }
            }
        }
        Ok::<bool, std::io::Error>(false)
    });
    let agrees = answered.await.unwrap_or(Ok(false))?;
    writeln!(session.out)?;
    Ok(agrees)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn words_are_names_conditions_and_settings() {
        let read = |verb, text| read(verb, &words(text)).unwrap().remove(0);
        let request = read("add", "user u[1-2],x account=chem fairshare=3");
        assert_eq!((request.entity.as_str(), request.names), ("user", words("u1 u2 x")));
        assert_eq!((request.settings, request.conditions.len()), (words("account=chem fairshare=3"), 0));
        let request = read("modify", "user where name=a account=chem set maxjobs=3");
        assert_eq!((request.names, request.conditions), (words("a"), words("account=chem")));
        assert_eq!(request.settings, words("maxjobs=3"));
        let request = read("delete", "acc chem");
        assert_eq!((request.entity.as_str(), request.names), ("account", words("chem")));
        let request = read("add", "coord account=chem names=a");
        assert_eq!((request.names, request.conditions), (words("a"), words("account=chem")));
    }

    #[test]
    fn long_lists_are_sent_in_parts() {
        let requests = read("add", &words("user u[1-2500] account=a")).unwrap();
        let counts: Vec<usize> = requests.iter().map(|request| request.names.len()).collect();
        assert_eq!(counts, [1000, 1000, 500]);
    }

    #[test]
    fn what_is_not_kept_is_refused() {
        for words in ["resource x", "foo x", ""] {
            assert!(read("add", &self::words(words)).is_err(), "{words}");
        }
        for (verb, wanted) in [
            ("add", "sacctmgr add user anna WCKeys=k1"),
            ("modify", "set DefaultWCKey=k1"),
            ("delete", "sacctmgr delete user anna WCKeys=k1"),
        ] {
            let refused = read(verb, &words("wckey x")).unwrap_err().to_string();
            assert!(refused.contains(wanted), "{refused}");
        }
    }
}
