//! Reports in the cluster's Enforcement whether a lane of several namespaces may request an administrator's token.
//!
//! [`tenure_planner::enforcement`] decides the condition.

use std::sync::Arc;
use std::time::Duration;

use tenure_api::metadata::TENURE_CONTROLLER;
use tenure_cluster::{ClusterError, report_enforcement};
use tenure_planner::enforcement::{EnforcedPart, assess_lanes};

use crate::hub::Hub;

/// How long findings are gathered before they are reported.
const GATHERED: Duration = Duration::from_secs(1);

/// Reports the findings until the future is dropped: at each change, and at intervals, because another writer may have overwritten the report. An
/// empty result is reported only after all lanes had time to be asked, or after an earlier finding.
pub(crate) async fn maintain_report(hub: Arc<Hub>) {
    let (mut complaint, mut is_settled) = (String::new(), false);
    loop {
        let pause = hub.context.policy_interval;
        tokio::select! {
            () = hub.shared_minting.wait() => tokio::time::sleep(GATHERED).await,
            () = tokio::time::sleep(pause) => is_settled = true,
        }
        let state = assess_lanes(hub.shared_minting.list().iter());
        if state.is_in_force && !is_settled {
            continue;
        }
        is_settled = true;
        let (controller, settings) = (&hub.context.controller, &hub.context.settings);
        let written = report_enforcement(controller, TENURE_CONTROLLER, (EnforcedPart::Lanes, &state), settings).await;
        // A cluster without the kind gets only the events.
        let problem = match written {
            Ok(()) | Err(ClusterError::NoKindMatch { .. }) => String::new(),
            Err(error) => error.to_string(),
        };
        if problem != complaint {
            if !problem.is_empty() {
                tracing::warn!(
                    "the Enforcement tenure can't report whether lanes may request tokens of administrators: {problem}"
                );
            }
            complaint = problem;
        }
    }
}
