//! What a tenant reaches beyond its own namespaces, and no administrator granted.

use std::collections::BTreeSet;

use crate::cluster::Cluster;
use crate::node::{Identity, Node, Scope};
use crate::report::{Reach, Reached};
use crate::search::Search;
use crate::subject::Subject;

/// Lists what a tenant reaches outside its namespaces beyond what bindings give its owners and ServiceAccounts directly. A binding outside the tenant's
/// namespaces was made by an administrator, or by the owner of the other namespace.
///
/// # Errors
/// When the cluster has no such tenant.
pub fn list_beyond(cluster: &Cluster, tenant: &str) -> Result<Vec<Reached>, String> {
    let reach = Reach::search(cluster, &Subject::Tenant(tenant.to_owned()))?;
    let Some(record) = cluster.tenants.get(tenant) else {
        return Ok(Vec::new());
    };
    let owners: BTreeSet<&Identity> = record.owners.iter().collect();
    let is_inside = |node: &Node| match node {
        Node::Tenant(_) => true,
        Node::Identity(identity) => {
            owners.contains(identity)
                || matches!(identity, Identity::Account { namespace, .. } if record.namespaces.contains(namespace))
                || is_own_lane(reach.cluster(), tenant, identity)
        }
        _ => false,
    };
    // What bindings give directly: where, and, in the whole cluster, that they do.
    let mut granted: BTreeSet<Scope> = BTreeSet::new();
    for node in reach.nodes().iter().filter(|node| is_inside(node)) {
        let Some(identity) = node.identity() else { continue };
        let bindings = cluster.list_bindings(identity, &identity.list_groups());
        let with_powers = bindings.into_iter().filter(|binding| {
            cluster
                .roles
                .get(binding.role)
                .is_some_and(|role| !role.powers.is_empty())
        });
        granted.extend(with_powers.map(|binding| binding.scope.clone()));
    }
    let is_own = |scope: &Scope| match scope {
        Scope::Namespace(namespace) => record.namespaces.contains(namespace) || granted.contains(scope),
        Scope::Cluster | Scope::EveryNamespace => false,
    };
    let holds_all = reach
        .find_cluster_admin()
        .is_some_and(|admin| admin.path.len() <= 2 && is_direct(&admin));
    if holds_all {
        return Ok(Vec::new());
    }
    // What holds all rights reaches all identities, too.
    let admin = reach.nodes().iter().position(Node::is_cluster_admin);
    let administrator = admin.and_then(|number| reach.list_way(number).into_iter().rev().nth(1));
    // A path's nodes come before its end.
    let mut beyond_nodes: BTreeSet<&Node> = BTreeSet::new();
    let mut beyond = Vec::new();
    for (number, node) in reach.nodes().iter().enumerate() {
        let scope = match node {
            Node::Role { scope, .. }
            | Node::Everything(scope)
            | Node::Pods(scope)
            | Node::RunningPods(scope)
            | Node::Tokens(scope)
            | Node::Secrets(scope)
            | Node::Network(scope)
            | Node::NewSecrets(scope)
            | Node::NewAccounts(scope)
            | Node::NamespaceLabels(scope, _)
            | Node::Deputies { scope, .. } => Some(scope.clone()),
            Node::Secret { namespace, .. } | Node::Identity(Identity::Account { namespace, .. }) => {
                Some(Scope::of_namespace(namespace))
            }
            _ => None,
        };
        let way = reach.list_way(number);
        let before: &[&Node] = way.split_last().map_or(&[], |(_, before)| before);
        let is_granted = |scope: &Scope| {
            // What a binding in the whole cluster gives directly is an administrator's word; what it leads to is not.
            is_own(scope)
                || (node.identity().is_none()
                    && granted.contains(scope)
                    && before.last().is_some_and(|from| is_inside(from)))
        };
        let is_ability = matches!(
            node,
            // What an identity may do by itself is no authority over others.
            Node::AccessRequest(_) | Node::AccessApproval(..) | Node::CertificateRequests | Node::NewNamespaces
        );
        if is_inside(node) || is_ability || scope.as_ref().is_some_and(is_granted) {
            continue;
        }
        // The first step out is a finding, and so is each identity; cluster-admin has all others.
        let is_first = !before.iter().any(|from| beyond_nodes.contains(from));
        let is_through_admin = before
            .iter()
            .any(|from| from.is_cluster_admin() || Some(*from) == administrator);
        beyond_nodes.insert(node);
        let is_worth = is_first
            || node.identity().is_some()
            || node.is_cluster_admin()
            || matches!(node, Node::Nodes | Node::Credential(_));
        if is_worth && (node.is_cluster_admin() || !is_through_admin) {
            beyond.extend(reach.describe(number));
        }
    }
    beyond.retain(|reached| reached.is_certain);
    beyond.sort_by_key(|reached| reached.path.len());
    Ok(beyond)
}

/// Whether a path is a binding of the tenant's own identity: an administrator's word.
fn is_direct(reached: &Reached) -> bool {
    reached
        .path
        .iter()
        .all(|step| matches!(step.edge.as_str(), "owner" | "has-account" | "all-rights" | "member-of"))
}

/// The lane of a tenant has rights in the tenant's namespaces alone.
fn is_own_lane(cluster: &Cluster, tenant: &str, identity: &Identity) -> bool {
    let own = cluster.tenants.get(tenant).map(|tenant| &tenant.namespaces);
    let works_for = |namespace: &String| {
        cluster
            .lanes
            .get(namespace)
            .is_some_and(|lanes| lanes.contains(identity))
    };
    Search::is_lane(identity)
        && cluster
            .lanes
            .iter()
            .filter(|(_, lanes)| lanes.contains(identity))
            .all(|(namespace, _)| own.is_some_and(|own| own.contains(namespace) && works_for(namespace)))
}
