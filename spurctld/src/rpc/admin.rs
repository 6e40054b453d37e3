//! Requests of operators: nodes, partitions, reservations, the configuration, the end of the controller.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use spur_core::cluster::sight::Sight;
use spur_core::cluster::{Cluster, FeatureLevel};
use spur_core::controller::command::{NewPlaces, NodeChange, NodeStateChange};
use spur_core::controller::{Command, Haste, Reject};
use spur_core::model::caller::Caller;
use spur_core::model::config::edit;
use spur_core::model::node::NextState;
use spur_proto::convert::{BadField, reject, reservation};
use spur_proto::{identity, v1};
use tonic::Status;

use super::{Desk, Name, filter, no_answer, odd};
use crate::answer::Answer;
use crate::log;
use crate::reload::ReloadError;
use crate::store::Condition;

/// Longest wait until standbys have applied a new policy and compared it with their own configuration.
const FOLLOWED: Duration = Duration::from_secs(3);
/// The wait before the reports of standbys are read again.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Longest wait for the daemons of nodes to end.
const FAREWELL: Duration = Duration::from_secs(5);

const NODE_STATES: [(&str, NodeStateChange); 10] = [
    ("DOWN", NodeStateChange::Down),
    ("DRAIN", NodeStateChange::Drain),
    ("RESUME", NodeStateChange::Resume),
    ("UNDRAIN", NodeStateChange::Undrain),
    ("REBOOT", NodeStateChange::Reboot { asap: false, next: None }),
    ("CANCEL_REBOOT", NodeStateChange::CancelReboot),
    ("POWER_DOWN", NodeStateChange::PowerDown(Haste::Idle)),
    ("POWER_DOWN_ASAP", NodeStateChange::PowerDown(Haste::Drain)),
    ("POWER_DOWN_FORCE", NodeStateChange::PowerDown(Haste::Force)),
    ("POWER_UP", NodeStateChange::PowerUp),
];

/// The user of this process, as Slurm writes it: `root(0)`.
static OWN_USER: LazyLock<String> = LazyLock::new(|| {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    format!("{}({uid})", identity::person(uid, gid).user)
});

impl Desk {
    /// Describes this controller.
    pub(super) fn describe(&self) -> v1::PingResponse {
        let cluster = self.replica.read();
        let (debug_level, debug_flags) = log::in_force();
        v1::PingResponse {
            cluster_name: cluster.policy().cluster_name.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            pid: std::process::id(),
            epoch: self.epoch,
            seq: cluster.seq(),
            started: self.started.0,
            history: cluster.history().map(|history| history.id.to_string()).unwrap_or_default(),
            clock_ahead: cluster.clock().ahead,
            old_copy: cluster.doubt().map(|doubt| doubt.why.to_string()).unwrap_or_default(),
            next_job_id: cluster.next_job().0,
            user: OWN_USER.clone(),
            stands_by: !self.journal.leads(),
            leader: self.journal.leader(),
            database_away: match self.journal.condition() {
                Condition::Well => String::new(),
                Condition::Away { why, .. } => why.to_string(),
            },
            differs: self.differs.read(),
            feature_level: cluster.feature_level().0,
            newest_feature_level: FeatureLevel::NEWEST.0,
            old_nodes: self.old_nodes(&cluster),
            debug_level: debug_level.to_owned(),
            debug_flags,
        }
    }

    pub(super) async fn change_nodes(
        &self,
        caller: Caller,
        request: v1::UpdateNodesRequest,
    ) -> Result<v1::UpdateNodesResponse, Status> {
        let name = Name::read(&request.request_id, request.retry)?;
        let state = node_state(&request)?;
        let features = request.features.map(|features| {
            features.split(',').filter(|feature| !feature.is_empty()).map(Into::into).collect()
        });
        let places = request.topology.as_deref().map(str::parse::<NewPlaces>).transpose();
        let places = places.map_err(|e| reject::bad_field(&BadField::new("Topology", e.to_string())))?;
        let gres = request.gres.as_deref().map(edit::devices).transpose();
        let change = NodeChange {
            state,
            gres: gres.map_err(|problem| reject::bad_field(&BadField::new("Gres", problem)))?,
            comment: request.comment.map(Into::into),
            extra: request.extra.map(Into::into),
            reason: (!request.reason.is_empty()).then(|| request.reason.as_str().into()),
            weight: request.weight,
            features,
            end_foreign: request.end_foreign,
            places,
        };
        let reboots = matches!(change.state, Some(NodeStateChange::Reboot { .. }));
        let nodes = match reboots && request.nodes.eq_ignore_ascii_case("ALL") {
            true => all_nodes(&self.replica.read()),
            false => filter::node_names(&self.replica.read(), &request.nodes)?,
        };
        if nodes.is_empty() {
            return Err(reject::bad_field(&BadField::new("NodeName", "no node is named")));
        }
        self.command(caller, name, Command::UpdateNodes { nodes, change }).await?;
        Ok(v1::UpdateNodesResponse {})
    }

    pub(super) async fn change_partition(
        &self,
        caller: Caller,
        request: v1::UpdatePartitionRequest,
    ) -> Result<v1::UpdatePartitionResponse, Status> {
        let name = Name::read(&request.request_id, request.retry)?;
        let mut settings = pairs(request.settings);
        if !request.state.is_empty() {
            settings.push(("State".into(), request.state.into()));
        }
        let command = Command::UpdatePartition { name: request.name.into(), settings };
        self.command(caller, name, command).await?;
        Ok(v1::UpdatePartitionResponse {})
    }

    pub(super) async fn make_partition(
        &self,
        caller: Caller,
        request: v1::CreatePartitionRequest,
    ) -> Result<v1::CreatePartitionResponse, Status> {
        let name = Name::read(&request.request_id, request.retry)?;
        let command =
            Command::CreatePartition { name: request.name.into(), settings: pairs(request.settings) };
        self.command(caller, name, command).await?;
        Ok(v1::CreatePartitionResponse {})
    }

    pub(super) async fn drop_partition(
        &self,
        caller: Caller,
        request: v1::DeletePartitionRequest,
    ) -> Result<v1::DeletePartitionResponse, Status> {
        let name = Name::read(&request.request_id, request.retry)?;
        self.command(caller, name, Command::DeletePartition { name: request.name.into() }).await?;
        Ok(v1::DeletePartitionResponse {})
    }

    pub(super) async fn make_nodes(
        &self,
        caller: Caller,
        request: v1::CreateNodesRequest,
    ) -> Result<v1::CreateNodesResponse, Status> {
        let name = Name::read(&request.request_id, request.retry)?;
        let nodes = filter::node_names(&self.replica.read(), &request.nodes)?;
        let command = Command::CreateNodes { nodes, settings: pairs(request.settings) };
        self.command(caller, name, command).await?;
        Ok(v1::CreateNodesResponse {})
    }

    pub(super) async fn drop_nodes(
        &self,
        caller: Caller,
        request: v1::DeleteNodesRequest,
    ) -> Result<v1::DeleteNodesResponse, Status> {
        let name = Name::read(&request.request_id, request.retry)?;
        let nodes = filter::node_names(&self.replica.read(), &request.nodes)?;
        self.command(caller, name, Command::DeleteNodes { nodes }).await?;
        Ok(v1::DeleteNodesResponse {})
    }

    /// Returns the figures, and resets them on request.
    pub(super) fn figures(
        &self,
        caller: &Caller,
        request: v1::GetStatisticsRequest,
    ) -> Result<v1::GetStatisticsResponse, Status> {
        if request.reset && !caller.is_operator() {
            return Err(reject::status(&Reject::AccessDenied));
        }
        let mut figures = self.sources().figures(request.reset);
        let cluster = self.replica.read();
        let sight = Sight::of(&cluster, caller);
        figures.by_user.retain(|count| sight.user(cluster.accounts(), &count.name));
        Ok(figures)
    }

    /// Changes the level of the log, until the controller is restarted.
    pub(super) fn log_more(
        caller: &Caller,
        request: &v1::SetDebugRequest,
    ) -> Result<v1::SetDebugResponse, Status> {
        if !caller.is_operator() {
            return Err(reject::status(&Reject::AccessDenied));
        }
        log::change(&request.level, &request.flags_on, &request.flags_off)
            .map_err(|problem| reject::status(&Reject::Invalid(problem)))?;
        Ok(v1::SetDebugResponse {})
    }

    pub(super) async fn reserve(
        &self,
        caller: Caller,
        request: v1::CreateReservationRequest,
    ) -> Result<v1::CreateReservationResponse, Status> {
        let name = Name::read(&request.request_id, request.retry)?;
        let ask =
            reservation::ask(&request.settings, request.utc_offset).map_err(|e| reject::bad_field(&e))?;
        match self.command(caller, name, Command::CreateReservation(Box::new(ask))).await? {
            Answer::Reserved { name } => Ok(v1::CreateReservationResponse { name: name.to_string() }),
            other => Err(odd(&other)),
        }
    }

    pub(super) async fn change_reservation(
        &self,
        caller: Caller,
        request: v1::UpdateReservationRequest,
    ) -> Result<v1::UpdateReservationResponse, Status> {
        let name = Name::read(&request.request_id, request.retry)?;
        let mut ask = reservation::ask(&request.settings, 0).map_err(|e| reject::bad_field(&e))?;
        ask.name = Some(request.name.as_str().into());
        self.command(caller, name, Command::UpdateReservation(Box::new(ask))).await?;
        Ok(v1::UpdateReservationResponse {})
    }

    pub(super) async fn unreserve(
        &self,
        caller: Caller,
        request: v1::DeleteReservationRequest,
    ) -> Result<v1::DeleteReservationResponse, Status> {
        let name = Name::read(&request.request_id, request.retry)?;
        let command = Command::DeleteReservation { name: request.name.as_str().into() };
        self.command(caller, name, command).await?;
        Ok(v1::DeleteReservationResponse {})
    }

    /// Reads the configuration file again and puts its policy in force.
    pub(super) async fn reconfigured(&self, caller: Caller) -> Result<v1::ReconfigureResponse, Status> {
        match self.reload.ordered_by(caller).await {
            Ok(mut changes) => {
                changes.extend(self.differing_standbys().await);
                Ok(v1::ReconfigureResponse { changes })
            }
            Err(ReloadError::Refused(rejected)) => Err(reject::status(&rejected)),
            Err(ReloadError::NoAnswer(error)) => Err(no_answer(error)),
        }
    }

    /// Returns a sentence for each standby whose configuration differs from the policy in force, or that
    /// has not applied the last change.
    async fn differing_standbys(&self) -> Vec<String> {
        let (seq, until) = (self.replica.read().seq(), Instant::now() + FOLLOWED);
        loop {
            let standbys = match self.journal.standbys().await {
                Ok(standbys) => standbys,
                Err(error) => return vec![format!("whether standbys differ is not known: {error}")],
            };
            if Instant::now() < until && standbys.iter().any(|standby| standby.seq < seq) {
                // The reports in the database are the only source of the standbys' progress.
                tokio::time::sleep(LOOK_AGAIN).await;
                continue;
            }
            let told = standbys.into_iter().filter_map(|standby| match standby.differs.as_str() {
                _ if standby.seq < seq => Some(format!(
                    "the standby at {} has not followed yet; scontrol ping says in what its configuration differs",
                    standby.address
                )),
                "" => None,
                differs => {
                    Some(format!("the standby at {} has another configuration: {differs}", standby.address))
                }
            });
            return told.collect();
        }
    }

    pub(super) async fn shut_down(
        &self,
        caller: &Caller,
        request: v1::ShutdownRequest,
    ) -> Result<v1::ShutdownResponse, Status> {
        if !caller.is_operator() {
            return Err(reject::status(&Reject::AccessDenied));
        }
        let nodes_too = !request.controller_only;
        tracing::info!(by = %caller.owner.user, nodes_too, "told to shut down");
        if nodes_too && tokio::time::timeout(FAREWELL, self.agents.dismiss()).await.is_err() {
            tracing::warn!("some nodes were told to shut down and have not");
        }
        match request.hand_over {
            true => self.stop.hand_over(),
            false => self.stop.wish(),
        }
        Ok(v1::ShutdownResponse {})
    }
}

/// Converts keys and values of a request.
fn pairs(settings: Vec<v1::KeyValue>) -> Vec<(Arc<str>, Arc<str>)> {
    settings.into_iter().map(|setting| (setting.key.into(), setting.value.into())).collect()
}

/// Returns the names of all configured nodes.
fn all_nodes(cluster: &Cluster) -> Vec<Arc<str>> {
    let configured = cluster.nodes().iter().filter(|node| node.configured);
    configured.map(|node| Arc::clone(node.name())).collect()
}

fn node_state(request: &v1::UpdateNodesRequest) -> Result<Option<NodeStateChange>, Status> {
    let written = request.state.as_str();
    if written.is_empty() {
        return Ok(None);
    }
    let found = NODE_STATES.iter().find(|(name, _)| name.eq_ignore_ascii_case(written));
    let (_, change) = found.ok_or_else(|| {
        let known = NODE_STATES.map(|(name, _)| name).join(", ");
        reject::bad_field(&BadField::new("State", format!("`{written}` is none of {known}")))
    })?;
    Ok(Some(match change {
        NodeStateChange::Reboot { .. } => {
            NodeStateChange::Reboot { asap: request.asap, next: next_state(&request.next_state)? }
        }
        other => *other,
    }))
}

fn next_state(written: &str) -> Result<Option<NextState>, Status> {
    match written {
        "" => Ok(None),
        "RESUME" => Ok(Some(NextState::Resume)),
        "DOWN" => Ok(Some(NextState::Down)),
        other => {
            let problem = format!("`{other}` is none of DOWN, RESUME");
            Err(reject::bad_field(&BadField::new("nextstate", problem)))
        }
    }
}
