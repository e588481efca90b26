//! The nodes that a tenant reaches beyond its own namespaces without an administrator's grant.

use std::collections::BTreeSet;

use crate::cluster::Cluster;
use crate::node::{Identity, Node, Scope};
use crate::report::{Reach, Reached};
use crate::search::Search;
use crate::subject::Subject;

/// Lists the nodes outside its namespaces that a tenant reaches beyond the direct rights of its owners and ServiceAccounts. An administrator, or the
/// owner of the other namespace, made each binding outside the tenant's namespaces.
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
    // The scopes of all bindings of the tenant's own identities.
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
    // A subject with cluster-admin also reaches all identities. Nodes behind cluster-admin are left out.
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
            | Node::Deputies { scope, .. }
            | Node::FreeDeputies { scope, .. } => Some(scope.clone()),
            Node::Secret { namespace, .. } | Node::Identity(Identity::Account { namespace, .. }) => {
                Some(Scope::of_namespace(namespace))
            }
            _ => None,
        };
        let way = reach.list_way(number);
        let before: &[&Node] = way.split_last().map_or(&[], |(_, before)| before);
        let is_granted = |scope: &Scope| {
            // A binding in the whole cluster is an administrator's grant of the direct rights, and not of the nodes
            // that they lead to.
            is_own(scope)
                || (node.identity().is_none()
                    && granted.contains(scope)
                    && before.last().is_some_and(|from| is_inside(from)))
        };
        let is_ability = matches!(
            node,
            // The own abilities of an identity are no authority over others.
            Node::AccessRequest(_) | Node::AccessApproval(..) | Node::CertificateRequests | Node::NewNamespaces
        );
        if is_inside(node) || is_ability || scope.as_ref().is_some_and(is_granted) {
            continue;
        }
        // The first step out is a finding, and so is each identity. An identity with cluster-admin
        // has all others.
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

/// Checks whether a path uses only bindings of the tenant's own identities, which an administrator made.
fn is_direct(reached: &Reached) -> bool {
    reached
        .path
        .iter()
        .all(|step| matches!(step.edge.as_str(), "owner" | "has-account" | "all-rights" | "member-of"))
}

/// Checks whether an identity is the tenant's lane, which has rights in the tenant's namespaces
/// alone.
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
