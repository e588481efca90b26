//! Reads other accounts that are, or could act as, a tenant's account: Pods and bindings of its home namespace, and cluster-wide bindings, which all
//! Tenants share for a while. It makes no choice, and stores only the names of Pods.

use std::ops::ControlFlow;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use tenure_cluster::{Client, ClusterError};
use tenure_planner::tenant::account_access::{
    AccessFacts, AccessFindings, HomeAccount, MOST_PODS, find_running, summarize_access,
};
use tenure_tenancy::access::bindings::{Bindings, Roles};
use tenure_tenancy::identity;

use crate::hub::Hub;
use crate::hub::cluster_wide_rights::ClusterWideRights;

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Reads the facts about an account. Unreadable facts are reported as unseen.
pub(super) async fn read_findings(hub: &Hub, place: HomeAccount) -> Result<AccessFindings, ClusterError> {
    let client = hub.act_as(&identity::use_for_bookkeeping().into(), &place.home).await?;
    let wide = share_cluster_rights(hub, &client).await;
    let mut pods = Vec::new();
    let listed = visit_objects(&client, ("v1", "Pod"), &place.home, |pod| {
        pods.extend(find_running(&place, &pod));
        match pods.len() < MOST_PODS {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    let pods = listed.await.map(|()| pods);
    let own = read_bindings(&client, ("Role", "RoleBinding"), &place.home, Some(&wide.roles)).await;
    let seen = AccessFacts {
        pods,
        own: own.1,
        cluster: &wide.bindings,
    };
    let platform = &hub.context.settings.platform_namespace;
    Ok(summarize_access(place, &seen, platform, Timestamp::now()))
}

/// Returns the cluster-wide bindings, read once for all callers at about the same time.
async fn share_cluster_rights(hub: &Hub, client: &Client) -> Arc<ClusterWideRights> {
    let mut shared = hub.wide_rights.lock().await;
    if let Some(wide) = shared.as_ref().filter(|wide| wide.is_fresh()) {
        return Arc::clone(wide);
    }
    let (roles, bindings) = read_bindings(client, ("ClusterRole", "ClusterRoleBinding"), "", None).await;
    let wide = Arc::new(ClusterWideRights::new(roles, bindings));
    *shared = Some(Arc::clone(&wide));
    wide
}

/// Reads roles and bindings. The rules of an unreadable role are unknown.
async fn read_bindings(
    client: &Client,
    (role, binding): (&str, &str),
    namespace: &str,
    cluster_roles: Option<&Roles>,
) -> (Roles, Result<Bindings, String>) {
    let mut roles = Roles::default();
    let listed = visit_objects(client, (RBAC, role), namespace, |role| {
        roles.add(&role);
        ControlFlow::Continue(())
    });
    if listed.await.is_err() {
        roles = Roles::unread();
    }
    let mut bindings = Bindings::default();
    let listed = visit_objects(client, (RBAC, binding), namespace, |binding| {
        bindings.add(&binding, &roles, cluster_roles.unwrap_or(&roles));
        match bindings.is_partial {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    let read = listed.await;
    (roles, read.map(|()| bindings))
}

async fn visit_objects(
    client: &Client,
    (version, kind): (&str, &str),
    namespace: &str,
    take: impl FnMut(Value) -> ControlFlow<()>,
) -> Result<(), String> {
    let resource = match client.resource(version, kind).await {
        // A cluster without the kind Pod, such as a kcp workspace, runs no Pods.
        Err(ClusterError::NoKindMatch { .. }) if kind == "Pod" => return Ok(()),
        found => found.map_err(explain_failure)?,
    };
    client.visit(&resource, namespace, take).await.map_err(explain_failure)
}

/// Returns why objects can't be listed.
fn explain_failure(error: ClusterError) -> String {
    match error {
        ClusterError::Forbidden { .. } => "the controllers may not list them".to_owned(),
        other => other.to_string(),
    }
}
