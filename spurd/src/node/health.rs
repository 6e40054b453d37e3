//! The site's health check program, which drains the node by `scontrol` if something is wrong.

use std::sync::Arc;
use std::time::Duration;

use spur_core::model::config::HealthState;
use spur_proto::v1;
use tokio::sync::{mpsc, oneshot, watch};

use crate::prolog;
use crate::settings::Settings;

/// Longest run time of the program, as in Slurm.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs the program once, if one is configured.
async fn check(settings: &Settings) {
    let Some(path) = &settings.agent.health_check_program else { return };
    if let Err(why) = prolog::program(path, settings, Vec::new(), LIMIT).run().await {
        tracing::warn!("health_check_program {why}");
    }
}

/// A request for the state of this node (busy, full, drained) at the controller. The sender is dropped
/// without an answer if the stream breaks.
pub(crate) type StandingWanted = oneshot::Sender<v1::Standing>;

/// Runs the program once, then repeats it at the configured interval while the node is in a configured state.
///
/// The returned receiver yields requests for the node's state, which the stream to the controller answers.
pub(crate) async fn look_after(settings: watch::Receiver<Arc<Settings>>) -> mpsc::Receiver<StandingWanted> {
    let now = Arc::clone(&settings.borrow());
    check(&now).await;
    let (controller, asked) = mpsc::channel(1);
    tokio::spawn(keep_checking(settings, controller));
    asked
}

/// Returns true if the health check program is to run: always if `states` is empty, never for `START_ONLY`
/// alone, otherwise if the controller answers that the node is in one of `states`.
async fn is_due(states: &[HealthState], controller: &mpsc::Sender<StandingWanted>) -> bool {
    if states.is_empty() || states == [HealthState::StartOnly] {
        return states.is_empty();
    }
    let (wanted, answer) = oneshot::channel();
    if controller.send(wanted).await.is_err() {
        return false;
    }
    // A broken connection loses the answer; the next interval asks again.
    let Ok(v1::Standing { busy, full, drained }) = answer.await else { return false };
    states.iter().any(|state| state.is_of(busy, full, drained))
}

async fn keep_checking(
    mut settings: watch::Receiver<Arc<Settings>>,
    controller: mpsc::Sender<StandingWanted>,
) {
    loop {
        let now = Arc::clone(&settings.borrow_and_update());
        let every = Duration::from_secs(now.agent.health_check_interval.0.max(1));
        tokio::select! {
            changed = settings.changed() => if changed.is_err() {
                return;
            },
            () = tokio::time::sleep(every) => {
                if is_due(&now.agent.health_check_node_state, &controller).await {
                    check(&now).await;
                }
            }
        }
    }
}
