//! The commands `scontrol reboot` and `scontrol cancel_reboot`.

use anyhow::Context;
use spur_proto::v1::UpdateNodesRequest;

use super::{Controller, bare};
use crate::session::Session;

/// Boots nodes: `[ASAP] [nextstate=RESUME|DOWN] [reason=WHY] ALL|NODES`.
pub(super) async fn reboot(session: &mut Session, words: &[String]) -> anyhow::Result<u8> {
    let request = read(words).map_err(bare)?;
    change(session, request).await.context(bare("scontrol_reboot_nodes error"))?;
    Ok(0)
}

/// Cancels the boot of nodes.
pub(super) async fn cancel(session: &mut Session, nodes: &str) -> anyhow::Result<u8> {
    let (nodes, state) = (nodes.to_owned(), "CANCEL_REBOOT".to_owned());
    let request = UpdateNodesRequest { nodes, state, ..UpdateNodesRequest::default() };
    change(session, request).await.context(bare("slurm_update error"))?;
    Ok(0)
}

async fn change(session: &mut Session, request: UpdateNodesRequest) -> anyhow::Result<()> {
    let call = async |mut controller: Controller, request| controller.update_nodes(request).await;
    session.connection()?.change(request, call).await?;
    Ok(())
}

/// Parses the words in Slurm's order, each of the first three at most once.
fn read(words: &[String]) -> Result<UpdateNodesRequest, String> {
    let mut request = UpdateNodesRequest { state: "REBOOT".to_owned(), ..UpdateNodesRequest::default() };
    let mut words = words.iter().peekable();
    request.asap = words.next_if(|word| word.eq_ignore_ascii_case("ASAP")).is_some();
    if let Some(next) = words.peek().and_then(|word| value(word, "nextstate=")) {
        request.next_state = match next.to_ascii_uppercase() {
            known if ["DOWN", "RESUME"].contains(&known.as_str()) => known,
            _ => return Err(format!("Invalid state: {next}\nValid states: DOWN, RESUME")),
        };
        words.next();
    }
    if let Some(reason) = words.peek().and_then(|word| value(word, "reason=")) {
        reason.clone_into(&mut request.reason);
        words.next();
    }
    match (words.next(), words.next()) {
        (Some(nodes), None) => nodes.clone_into(&mut request.nodes),
        (None, _) => return Err("Missing node list. Specify ALL|<NodeList>".to_owned()),
        (Some(_), Some(_)) => return Err("too many arguments for keyword:reboot".to_owned()),
    }
    Ok(request)
}

/// Returns the value after a key in any letter case; `None` for another key.
fn value<'a>(word: &'a str, key: &str) -> Option<&'a str> {
    let (start, rest) = word.split_at_checked(key.len())?;
    start.eq_ignore_ascii_case(key).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_words_are_read_as_slurm_reads_them() {
        let request = read(&words("asap NextState=resume reason=firmware n[1-3]")).unwrap();
        let wanted = UpdateNodesRequest {
            nodes: "n[1-3]".to_owned(),
            state: "REBOOT".to_owned(),
            asap: true,
            next_state: "RESUME".to_owned(),
            reason: "firmware".to_owned(),
            ..UpdateNodesRequest::default()
        };
        assert_eq!(request, wanted);
        assert_eq!(read(&words("ALL")).unwrap().nodes, "ALL");
        for (line, why) in [
            ("", "Missing node list. Specify ALL|<NodeList>"),
            ("ASAP", "Missing node list. Specify ALL|<NodeList>"),
            ("nextstate=foo n1", "Invalid state: foo\nValid states: DOWN, RESUME"),
            ("n1 n2", "too many arguments for keyword:reboot"),
            ("reason=x ASAP n1", "too many arguments for keyword:reboot"),
        ] {
            assert_eq!(read(&words(line)), Err(why.to_owned()), "{line}");
        }
    }
}
