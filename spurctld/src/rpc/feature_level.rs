//! The cluster's feature level: the levels that the other daemons know, and the request that raises it.

use std::collections::BTreeMap;
use std::time::Duration;

use spur_core::cluster::{Cluster, FeatureLevel};
use spur_core::controller::Command;
use spur_core::controller::command::KnownLevels;
use spur_core::model::caller::Caller;
use spur_core::text::hostlist::HostList;
use spur_proto::client::{CallError, Connection, Controller, Identity};
use spur_proto::convert::known_level;
use spur_proto::{identity, v1};
use tonic::Status;

use super::{Desk, Name};

/// Longest wait for a standby's answer to a ping.
const STANDBY_WAIT: Duration = Duration::from_secs(5);

impl Desk {
    /// Raises the cluster's feature level, if every daemon knows the new one.
    pub(super) async fn raise_level(
        &self,
        caller: Caller,
        request: v1::RaiseFeatureLevelRequest,
    ) -> Result<v1::RaiseFeatureLevelResponse, Status> {
        let name = Name::read(&request.request_id, request.retry)?;
        let level = FeatureLevel(request.level);
        let standbys = self.standby_levels().await?;
        let daemons = KnownLevels { nodes: self.agents.known_levels(), standbys };
        self.command(caller, name, Command::RaiseFeatureLevel { level, daemons }).await?;
        // An older node may have connected since.
        self.agents.cut_off_below(level);
        Ok(v1::RaiseFeatureLevelResponse {})
    }

    /// Asks each standby for the highest level that it knows; `None` for a standby that does not answer.
    async fn standby_levels(&self) -> Result<BTreeMap<String, Option<FeatureLevel>>, Status> {
        let standbys = self.journal.standbys().await;
        let standbys = standbys.map_err(|error| Status::unavailable(error.to_string()))?;
        let mut levels = BTreeMap::new();
        for standby in standbys {
            let knows = tokio::time::timeout(STANDBY_WAIT, self.level_of(&standby.address)).await;
            levels.insert(standby.address, knows.ok().flatten());
        }
        Ok(levels)
    }

    async fn level_of(&self, address: &str) -> Option<FeatureLevel> {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let claims = identity::person(uid, gid);
        let identity = match &self.keyring {
            Some(keyring) => Identity::Keys(keyring.now(), claims),
            None => Identity::Unsigned(claims),
        };
        let connection = Connection::new(&[address.parse().ok()?], identity).ok()?;
        let call = async |mut controller: Controller, request| controller.ping(request).await;
        let mut connection = connection.with_patience(Duration::ZERO);
        match connection.read(v1::PingRequest { whoever_leads: true }, call).await {
            Ok(answer) => Some(known_level(answer.newest_feature_level)),
            // A standby of level 1 answers no ping, and names the leader instead.
            Err(CallError::Standby { .. }) => Some(FeatureLevel::OLDEST),
            Err(_) => None,
        }
    }

    /// Returns the connected nodes whose daemons do not know this controller's highest level, as a hostlist.
    pub(super) fn old_nodes(&self, cluster: &Cluster) -> String {
        if cluster.feature_level() >= FeatureLevel::NEWEST {
            return String::new();
        }
        let levels = self.agents.known_levels();
        let old = levels.into_iter().filter(|(_, knows)| *knows < FeatureLevel::NEWEST).map(|(node, _)| node);
        HostList::from_names(cluster.names_of(old)).to_string()
    }
}
