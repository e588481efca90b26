//! Reports in the cluster's Enforcement whether a lane of several namespaces may request an administrator's token.
//!
//! Owns what the keepers of lanes' rights have found, by namespace. What follows from it is decided by [`tenure_planner::enforcement`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_api::metadata::TENURE_CONTROLLER;
use tenure_cluster::{ClusterError, report_enforcement};
use tenure_planner::enforcement::{Part, Standing, judge_lanes};
use tenure_planner::rights::SharedMinting;
use tokio::sync::Notify;

use crate::hub::Hub;

/// How long findings are gathered before they are reported.
const GATHERED: Duration = Duration::from_secs(1);

/// What the keepers of lanes' rights have found.
#[derive(Debug, Default)]
pub(crate) struct MintingBoard {
    found: Mutex<BTreeMap<String, SharedMinting>>,
    changed: Notify,
}

impl MintingBoard {
    /// Takes what was found in a namespace, or that nothing was.
    pub(crate) fn note(&self, namespace: &str, minting: Option<&SharedMinting>) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.get(namespace) == minting {
            return;
        }
        match minting {
            Some(minting) => found.insert(namespace.to_owned(), minting.clone()),
            None => found.remove(namespace),
        };
        drop(found);
        self.changed.notify_one();
    }

    fn judge(&self) -> Standing {
        judge_lanes(self.found.lock().unwrap_or_else(PoisonError::into_inner).values())
    }
}

/// Reports it, until it is dropped: at each change, and now and then, since somebody may have written over it. That
/// nothing is found is reported only once all lanes had time to be asked, or after something was.
pub(crate) async fn keep(hub: Arc<Hub>) {
    let (mut complaint, mut is_settled) = (String::new(), false);
    loop {
        let pause = hub.means.policy_interval;
        tokio::select! {
            () = hub.shared_minting.changed.notified() => tokio::time::sleep(GATHERED).await,
            () = tokio::time::sleep(pause) => is_settled = true,
        }
        let standing = hub.shared_minting.judge();
        if standing.is_in_force && !is_settled {
            continue;
        }
        is_settled = true;
        let (controller, settings) = (&hub.means.controller, &hub.means.settings);
        let written = report_enforcement(controller, TENURE_CONTROLLER, (Part::Lanes, &standing), settings).await;
        // Where the kind isn't installed, the events say it.
        let told = match written {
            Ok(()) | Err(ClusterError::NoKindMatch { .. }) => String::new(),
            Err(error) => error.to_string(),
        };
        if told != complaint {
            if !told.is_empty() {
                tracing::warn!(
                    "whether lanes may request tokens of administrators can't be said in the Enforcement tenure: {told}"
                );
            }
            complaint = told;
        }
    }
}
