//! The exemptions of Kubernetes' own controllers.
//!
//! A controller acts on a template that a tenant wrote. So an exemption names the rule, the controller, the operation, the resource and the fields
//! that the controller sets by itself. CREATE is exempt only for objects that no template describes. Functions and policies read the same table
//! ([`EXEMPTIONS`]).

use serde_json::Value;
use tenure_api::kubernetes_controllers::{
    ACCOUNT_CREATOR, API_SERVER, CERTIFICATE_PUBLISHER, CONTROLLER_MANAGER, GARBAGE_COLLECTOR, NAMESPACE_CONTROLLER,
    ROLE_AGGREGATOR, VOLUME_BINDER, name_user,
};

use super::request::SERVICE_ACCOUNT_PREFIX;
use super::{Case, Operation, Rule};

/// A request that some of Kubernetes' controllers may send although a rule denies it to other users.
pub(super) struct Exemption {
    /// The rule that denies the request to others.
    pub(super) rule: Rule,
    /// Names of the controllers' ServiceAccounts in `kube-system`.
    pub(super) controllers: &'static [&'static str],
    pub(super) operation: Operation,
    /// Group and plural name; `*` is any name.
    pub(super) resource: (&'static str, &'static str),
    /// The fields that an UPDATE may change, as JSON pointers.
    pub(super) fields: &'static [&'static str],
}

const UPKEEP: &[&str] = &["/metadata/finalizers", "/metadata/ownerReferences"];

/// All exemptions.
pub(super) const EXEMPTIONS: &[Exemption] = &[
    Exemption {
        rule: Rule::PersistentVolumes,
        controllers: &[VOLUME_BINDER],
        operation: Operation::Update,
        resource: ("", "persistentvolumeclaims"),
        fields: &["/spec/volumeName"],
    },
    Exemption {
        rule: Rule::GitManaged,
        controllers: &[VOLUME_BINDER],
        operation: Operation::Update,
        resource: ("", "persistentvolumeclaims"),
        fields: &["/spec/volumeName", "/spec/storageClassName"],
    },
    Exemption {
        rule: Rule::GitManaged,
        controllers: &[ROLE_AGGREGATOR],
        operation: Operation::Update,
        resource: ("rbac.authorization.k8s.io", "clusterroles"),
        fields: &["/rules"],
    },
    Exemption {
        rule: Rule::Access,
        controllers: &[GARBAGE_COLLECTOR, NAMESPACE_CONTROLLER],
        operation: Operation::Update,
        resource: ("tenure.dev", "*"),
        fields: UPKEEP,
    },
    Exemption {
        rule: Rule::FieldOwnership,
        controllers: &[GARBAGE_COLLECTOR],
        operation: Operation::Update,
        resource: ("cozystack.io", "packagesources"),
        fields: UPKEEP,
    },
    Exemption {
        rule: Rule::FieldOwnership,
        controllers: &[GARBAGE_COLLECTOR],
        operation: Operation::Delete,
        resource: ("cozystack.io", "packagesources"),
        fields: &[],
    },
    Exemption {
        rule: Rule::FieldOwnership,
        controllers: &[GARBAGE_COLLECTOR, NAMESPACE_CONTROLLER],
        operation: Operation::Update,
        resource: ("source.toolkit.fluxcd.io", "*"),
        fields: UPKEEP,
    },
    Exemption {
        rule: Rule::FieldOwnership,
        controllers: &[GARBAGE_COLLECTOR, NAMESPACE_CONTROLLER],
        operation: Operation::Delete,
        resource: ("source.toolkit.fluxcd.io", "*"),
        fields: &[],
    },
    // These two are for a namespace whose facts are not written yet. Only policies deny requests in such a namespace.
    Exemption {
        rule: Rule::NamespaceMembership,
        controllers: &[ACCOUNT_CREATOR],
        operation: Operation::Create,
        resource: ("", "serviceaccounts"),
        fields: &[],
    },
    Exemption {
        rule: Rule::NamespaceMembership,
        controllers: &[CERTIFICATE_PUBLISHER],
        operation: Operation::Create,
        resource: ("", "configmaps"),
        fields: &[],
    },
];

impl Exemption {
    /// Lists the user names of the exempt controllers.
    pub(super) fn list_users(&self) -> Vec<String> {
        let accounts = self.controllers.iter().map(|name| name_user(name));
        accounts.chain([CONTROLLER_MANAGER.to_owned()]).collect()
    }

    /// Checks whether the exemption covers the operation, resource and user of a request. Changed fields are not
    /// compared.
    fn covers(&self, case: Case<'_>) -> bool {
        let request = case.request;
        let (group, name) = self.resource;
        self.operation == request.operation
            && group == request.resource.group
            && (name == "*" || name == request.resource.name)
            && request.resource.subresource.is_empty()
            && self.list_users().iter().any(|user| user == request.actor.user)
    }
}

/// Returns the exemptions of a rule for a request. Most users are no controllers, so the table isn't read for
/// them.
fn list_exemptions(case: Case<'_>, rule: Rule) -> impl Iterator<Item = &'static Exemption> {
    let is_controller = case.request.actor.user.starts_with("system:");
    let of_rule = EXEMPTIONS.iter().filter(move |exemption| exemption.rule == rule);
    of_rule.filter(move |exemption| is_controller && exemption.covers(case))
}

/// Checks whether a controller may change a field although the rule refuses it to others.
pub(super) fn may_change(case: Case<'_>, rule: Rule, field: &str) -> bool {
    list_exemptions(case, rule).any(|exemption| exemption.fields.contains(&field))
}

/// Checks whether a controller may delete an object although the rule refuses it to others.
pub(super) fn may_delete(case: Case<'_>, rule: Rule) -> bool {
    list_exemptions(case, rule).any(|exemption| exemption.operation == Operation::Delete)
}

/// Returns the new object without the changes that the rule allows to the controller. Returns none if it allows
/// no change.
pub(super) fn undo_exempt_changes(case: Case<'_>, rule: Rule, (old, new): (&Value, &Value)) -> Option<Value> {
    let fields: Vec<&str> = list_exemptions(case, rule)
        .flat_map(|exemption| exemption.fields.iter().copied())
        .collect();
    if fields.is_empty() {
        return None;
    }
    let mut undone = new.clone();
    for (parent, key) in fields.iter().filter_map(|field| field.rsplit_once('/')) {
        let before = old.pointer(parent).and_then(|parent| parent.get(key)).cloned();
        let Some(parent) = undone.pointer_mut(parent).and_then(Value::as_object_mut) else {
            continue;
        };
        match before {
            Some(value) => drop(parent.insert(key.to_owned(), value)),
            None => drop(parent.remove(key)),
        }
    }
    Some(undone)
}

/// Checks whether the user is the API server itself or an account of Tenure. Neither acts on a tenant's
/// template.
pub(super) fn is_api_server_or_tenure(case: Case<'_>) -> bool {
    let user = case.request.actor.user;
    let platform = &case.facts.settings().platform_namespace;
    let account = user
        .strip_prefix(SERVICE_ACCOUNT_PREFIX)
        .and_then(|account| account.split_once(':'));
    match account {
        Some((namespace, name)) => namespace == platform && name.starts_with("tenure-"),
        None => user == API_SERVER,
    }
}
