//! The site's program that looks after the node: it finds out whether something is wrong, and drains the node by `scontrol`
//! itself.

use std::sync::Arc;
use std::time::Duration;

use spur_core::model::config::HealthState;
use spur_proto::v1;
use tokio::sync::{mpsc, oneshot, watch};

use crate::prolog;
use crate::settings::Settings;

/// How long it may take, as with Slurm.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs the program once, if there is one.
async fn check(settings: &Settings) {
    let Some(path) = &settings.agent.health_check_program else { return };
    if let Err(why) = prolog::program(path, settings, Vec::new(), LIMIT).run().await {
        tracing::warn!("health_check_program {why}");
    }
}

/// Somebody who wants to know how the node stands with the controller; who breaks off is not answered.
pub(crate) type StandingWanted = oneshot::Sender<v1::Standing>;

/// Runs it once now, and then as often as the configuration says, where the node is in a state that it names; who talks to
/// the controller is asked for that.
pub(crate) async fn look_after(settings: watch::Receiver<Arc<Settings>>) -> mpsc::Receiver<StandingWanted> {
    let now = Arc::clone(&settings.borrow());
    check(&now).await;
    let (controller, asked) = mpsc::channel(1);
    tokio::spawn(keep_checking(settings, controller));
    asked
}

/// Whether the node is in a state in which its health is looked at; it waits until a controller says so.
async fn is_due(states: &[HealthState], controller: &mpsc::Sender<StandingWanted>) -> bool {
    if states.is_empty() || states == [HealthState::StartOnly] {
        return states.is_empty();
    }
    let (wanted, answer) = oneshot::channel();
    if controller.send(wanted).await.is_err() {
        return false;
    }
    // With the connection the answer is lost, and the next time will do.
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
