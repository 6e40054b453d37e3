//! The command `scontrol listpids`: lists the processes of running steps.

use std::fmt::Write as _;
use std::io::Write as _;

use spur_core::text::jobid::JobRef;
use spur_proto::v1::LiveStep;

use super::bare;
use crate::commands::sstat;
use crate::session::Session;

/// Prints the processes of jobs or of a step, on one node or on all.
pub(super) async fn run(session: &mut Session, words: &[String]) -> anyhow::Result<u8> {
    let Some((job, node)) = words.split_first() else { return Ok(0) };
    let node = node.first().map(String::as_str);
    let mut steps = Vec::new();
    let mut missing = Vec::new();
    for job in JobRef::parse_list(job).map_err(|error| bare(error.to_string()))? {
        let found = sstat::live_steps(session, &job, true).await?;
        if !runs(&found, node) {
            let kind = if job.step.is_some() { "StepId" } else { "JobId" };
            missing.push(format!("{kind}={job}"));
        }
        steps.extend(found);
    }
    for name in &missing {
        session.say(&match node {
            Some(node) => format!("{name} does not exist on node {node}."),
            None => format!("{name} does not exist on any node."),
        });
    }
    write!(session.out, "{}", text(&steps, node))?;
    Ok(u8::from(!missing.is_empty()))
}

/// Returns whether one of the steps has processes on the node, or on any node.
fn runs(steps: &[LiveStep], node: Option<&str>) -> bool {
    let mut places = steps.iter().flat_map(|step| &step.processes);
    places.any(|on| node.is_none_or(|node| on.node == node))
}

/// Returns the lines for the processes of these steps, on one node or on all.
fn text(steps: &[LiveStep], node: Option<&str>) -> String {
    let mut text =
        format!("{:<8} {:<8} {:<8} {:<7} {:<8}\n", "PID", "JOBID", "STEPID", "LOCALID", "GLOBALID");
    for step in steps {
        let Some(row) = &step.row else { continue };
        for on in step.processes.iter().filter(|on| node.is_none_or(|node| on.node == node)) {
            for pid in &on.pids {
                let task = on.task_pids.iter().position(|own| own == pid);
                let local = task.map_or("-".to_owned(), |task| task.to_string());
                let global = task.and_then(|task| on.ranks.get(task)).map_or("-".to_owned(), u32::to_string);
                // Writing to a string cannot fail.
                let _ =
                    writeln!(text, "{pid:<8} {:<8} {:<8} {local:<7} {global:<8}", row.job_id, row.step_id);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use spur_proto::v1::{AccountingRow, StepProcesses};

    use super::*;

    #[test]
    fn processes_of_tasks_have_their_numbers() {
        let row = AccountingRow { job_id: 7, step_id: "0".to_owned(), ..AccountingRow::default() };
        let on = |node: &str, pids: &[u32], task_pids: &[u32], ranks: &[u32]| StepProcesses {
            node: node.to_owned(),
            pids: pids.to_vec(),
            task_pids: task_pids.to_vec(),
            ranks: ranks.to_vec(),
        };
        let processes = vec![on("n1", &[10, 11], &[10], &[4]), on("n2", &[12], &[12], &[5])];
        let steps = [LiveStep { row: Some(row), processes }];
        let head = "PID      JOBID    STEPID   LOCALID GLOBALID\n";
        let first =
            "10       7        0        0       4       \n11       7        0        -       -       \n";
        assert_eq!(text(&steps, Some("n1")), format!("{head}{first}"));
        assert_eq!(text(&steps, None).lines().count(), 4);
        for (node, expected) in [(None, true), (Some("n2"), true), (Some("n3"), false)] {
            assert_eq!(runs(&steps, node), expected, "{node:?}");
        }
        assert!(!runs(&[], None));
    }
}
