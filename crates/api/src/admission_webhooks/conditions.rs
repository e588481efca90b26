//! The match conditions of the webhooks: which requests need an answer.
//!
//! An exemption names the accounts and what they do. Kubernetes' controllers and nodes are exempt by name, and only where they update an object.

use serde_json::{Value, json};

use super::{Audience, FLUX_GROUPS, Topic};
use crate::access::GROUP_LABEL_PREFIX;
use crate::kubernetes_controllers::{
    API_SERVER, CONTROLLER_MANAGER, CONTROLLERS, GARBAGE_COLLECTOR, NAMESPACE_CONTROLLER, NODE_PREFIX, SCHEDULER,
    VERSION_MIGRATOR,
};
use crate::metadata::{
    CONTROLLER_SERVICE_ACCOUNT, FACTS_PREFIX, KUSTOMIZE_CONTROLLER, LANE_PREFIX, MANAGED_BY, MANAGED_BY_TENURE,
    MANAGING_LABELS, MINTABLE_ACCOUNTS, MINTABLE_FACT, OWNER_NAME, PLATFORM_NAMESPACE, TENANT_LABEL,
};
use crate::package::SUPPLY_NAME;

impl Topic {
    /// Returns the match conditions of the topic's webhook for these users.
    pub(super) fn conditions(self, audience: Audience) -> Value {
        let exempt = self.write_exempt();
        let repairs = write_may("adopt");
        let condition = |name: &str, expression: String| json!({"name": name, "expression": expression});
        let mut conditions = Vec::new();
        // Cheap conditions come first.
        if let Some((name, expression)) = self.condition(audience) {
            conditions.push(condition(name, expression));
        }
        // Updates of existing objects are sent too, and pass while no webhook answers.
        let repairers = match self {
            Self::Objects | Self::Isolation => format!("{repairs} || ({})", write_update_by_kubernetes()),
            _ => repairs.clone(),
        };
        match audience {
            // Controllers create objects that others described.
            Audience::All if matches!(self, Self::Unbounded | Self::Minting) => {}
            Audience::Others if self == Self::Quotas => {
                conditions.push(condition("may-not-repair", format!("!{repairs}")));
            }
            Audience::Repairers if self == Self::Quotas => conditions.push(condition("may-repair", repairs)),
            Audience::Others => {
                conditions.push(condition("not-exempt", format!("!({exempt})")));
                conditions.push(condition("may-not-repair", format!("!{repairs}")));
            }
            Audience::Repairers => {
                conditions.push(condition("not-tenure-itself", format!("!({})", write_own())));
                conditions.push(condition("may-repair", repairers));
            }
            Audience::All => conditions.push(condition("not-exempt", format!("!({exempt})"))),
        }
        Value::Array(conditions)
    }

    /// Returns the exemptions of requests that need no answer: each names the accounts and their
    /// operations.
    fn write_exempt(self) -> String {
        let own = write_own();
        match self {
            // A node requests the tokens of the Pods that it runs.
            Self::Accounts => format!(
                "{own} || ({USER}.startsWith('{NODE_PREFIX}') && request.resource.resource == 'serviceaccounts') || ({})",
                write_update_by_upkeep()
            ),
            Self::Namespaces | Self::Tenants | Self::Flux | Self::Asked | Self::Access | Self::ManagedObjects => {
                format!("{own} || ({})", write_update_by_upkeep())
            }
            Self::Objects | Self::Isolation | Self::LeftPods | Self::LeftClaims | Self::LeftIngresses => {
                format!("{own} || ({})", write_update_by_kubernetes())
            }
            // For objects that Git applied, updates by controllers are sent, too.
            Self::Writes | Self::Managed => format!(
                "{own} || (({}) && !(request.operation == 'UPDATE' && oldObject.metadata.?managedFields.orValue([]).exists(entry, \
                 entry.?manager.orValue('') == '{KUSTOMIZE_CONTROLLER}')))",
                write_by_kubernetes()
            ),
            Self::Cordoned => format!("{own} || ({})", write_by_kubernetes()),
            Self::Spoken | Self::SpokenExclusive => {
                format!("{own} || {USER}.startsWith('{KUBERNETES_ACCOUNTS}')")
            }
            Self::NewNamespaces | Self::Volumes | Self::Unbounded | Self::Quotas | Self::Packages | Self::Minting => {
                own
            }
        }
    }

    /// Returns the name and the expression of the topic's own match condition, if it has one.
    fn condition(self, audience: Audience) -> Option<(&'static str, String)> {
        let provisions = write_may("provision");
        let flux = FLUX_GROUPS.map(|group| format!("'{group}'")).join(", ");
        match self {
            Self::Namespaces => {
                let claims = |object: &str| {
                    format!(
                        "({object} != null && ((has({object}.metadata.labels) && '{TENANT_LABEL}' in {object}.metadata.labels) || \
                         (has({object}.metadata.ownerReferences) && {object}.metadata.ownerReferences.exists(owner, owner.kind == 'Tenant'))))"
                    )
                };
                let claimed = format!("{} || {}", claims("object"), claims("oldObject"));
                // A new label of this kind gives the namespace a group's credential.
                let is_given = format!(
                    "(object != null && has(object.metadata.labels) && object.metadata.labels.exists(key, key.startsWith('{GROUP_LABEL_PREFIX}') && \
                     !(oldObject != null && has(oldObject.metadata.labels) && key in oldObject.metadata.labels)))"
                );
                // These annotations name the accounts whose tokens lanes may request.
                let names = format!(
                    "(object != null && oldObject != null && ['{MINTABLE_FACT}', '{MINTABLE_ACCOUNTS}'].exists(key, \
                     object.metadata.?annotations[?key] != oldObject.metadata.?annotations[?key])) || \
                     (object != null && oldObject == null && object.metadata.?annotations.orValue({{}}).exists(key, \
                     key == '{MINTABLE_ACCOUNTS}' || key.startsWith('{FACTS_PREFIX}')))"
                );
                // An owner's new namespace is made the tenant's. Another user's that claims no tenant waits for no answer. An owner patches namespaces only
                // to apply new ones.
                let is_new = match audience {
                    Audience::Others => format!(
                        "(request.operation == 'CREATE' && {provisions}) || (request.operation == 'UPDATE' && {provisions} && !{})",
                        write_may_update("request.name")
                    ),
                    Audience::Repairers | Audience::All => "request.operation == 'CREATE'".to_owned(),
                };
                Some((
                    "is-of-a-tenant-or-new",
                    format!("{claimed} || {is_given} || {names} || {is_new}"),
                ))
            }
            // A Pod that names no account, and a Secret without a token, give no access to an
            // account.
            Self::Accounts => Some((
                "reaches-for-an-account",
                "request.resource.resource == 'pods' ? ((has(object.spec.serviceAccountName) && object.spec.serviceAccountName != 'default') || \
                 (has(object.spec.serviceAccount) && object.spec.serviceAccount != 'default')) : \
                 request.resource.resource == 'secrets' ? (has(object.type) && object.type == 'kubernetes.io/service-account-token') : true"
                    .to_owned(),
            )),
            // For Pods, only their specs are checked.
            Self::Objects | Self::Unbounded | Self::LeftPods | Self::LeftClaims | Self::LeftIngresses => Some((
                "changes-what-is-judged",
                "request.operation == 'CREATE' || object.?spec != oldObject.?spec || (request.resource.resource != 'pods' && \
                 (object.metadata.?labels != oldObject.metadata.?labels || object.metadata.?annotations != oldObject.metadata.?annotations))"
                    .to_owned(),
            )),
            Self::Isolation => Some((
                "reaches-others",
                "request.resource.resource == 'ingresses' ? object.?spec.?rules.orValue([]).exists(rule, rule.?host.orValue('').startsWith('*')) : \
                 ((object.?spec.?volumeName.orValue('') != '' || has(object.spec.selector)) && \
                 (oldObject == null || object.?spec.?volumeName != oldObject.?spec.?volumeName || object.?spec.?selector != oldObject.?spec.?selector))"
                    .to_owned(),
            )),
            Self::Volumes => Some((
                "is-given-a-claim",
                format!(
                    "object.?spec.?claimRef.?namespace.orValue('') != '' && \
                     (oldObject == null || object.?spec.?claimRef.?namespace != oldObject.?spec.?claimRef.?namespace) && \
                     (object.metadata.?labels[?'{TENANT_LABEL}'].hasValue() || \
                     (oldObject != null && oldObject.metadata.?labels[?'{TENANT_LABEL}'].hasValue()))"
                ),
            )),
            Self::Cordoned => Some((
                "by-a-tenant",
                format!(
                    "!(request.resource.resource == 'events' && request.resource.group in ['', 'events.k8s.io']) && \
                     ({USER}.startsWith('system:serviceaccount:') || {provisions})"
                ),
            )),
            Self::ManagedObjects => {
                let managed = |object: &str| {
                    format!(
                        "({object} != null && {object}.?metadata.?labels[?'{MANAGED_BY}'].orValue('') == '{MANAGED_BY_TENURE}')"
                    )
                };
                let was_managed = managed("oldObject");
                let labels = MANAGING_LABELS.map(|key| format!("'{key}'"));
                Some((
                    "gains-a-finalizer-or-changes-its-marks",
                    format!(
                        "({was_managed} && ([{}].exists(key, oldObject.?metadata.?labels[?key].orValue('') != \
                         object.?metadata.?labels[?key].orValue('')) || oldObject.?metadata.?ownerReferences.orValue([]) != \
                         object.?metadata.?ownerReferences.orValue([]))) || object.?metadata.?finalizers.orValue([]).exists(name, \
                         !({was_managed} && name in oldObject.?metadata.?finalizers.orValue([])))",
                        labels.join(", ")
                    ),
                ))
            }
            Self::NewNamespaces => Some(("owns-no-tenant", format!("!{provisions}"))),
            Self::SpokenExclusive => Some((
                "shows-no-token-of-an-exclusive-account",
                format!(
                    "{SHOWS_NO_TOKEN} && !(has(request.dryRun) && request.dryRun) && {} && !{}",
                    write_may("show-token"),
                    write_may("own")
                ),
            )),
            // Flux's kinds have webhooks of their own, and Events need no answer.
            Self::Writes => Some((
                "is-not-of-flux-and-no-event",
                format!(
                    "(request.operation == 'DELETE' || !(request.resource.group in [{flux}])) && \
                     !(request.resource.resource == 'events' && request.resource.group in ['', 'events.k8s.io'])"
                ),
            )),
            Self::Managed => Some((
                "is-labelled-as-managed",
                format!(
                    "has(oldObject.metadata) && has(oldObject.metadata.labels) && '{OWNER_NAME}' in oldObject.metadata.labels"
                ),
            )),
            // The id of a token shows that the user showed it.
            Self::Spoken => Some((
                "shows-no-token",
                SHOWS_NO_TOKEN.to_owned(),
            )),
            Self::Minting => Some((
                "by-tenure",
                format!(
                    "request.userInfo.username.startsWith('system:serviceaccount:{PLATFORM_NAMESPACE}:tenure-')"
                ),
            )),
            Self::Packages => Some((
                "is-of-the-platforms-supply",
                format!("request.resource.group == 'cozystack.io' || request.?name.orValue('') == '{SUPPLY_NAME}'"),
            )),
            // ResourceQuotas themselves must exist before anything is counted.
            Self::Quotas => Some((
                "may-be-counted",
                "!(request.resource.resource in ['events', 'resourcequotas'] && request.resource.group in ['', 'events.k8s.io']) && \
                 (request.operation == 'CREATE' || object.?spec != oldObject.?spec)"
                    .to_owned(),
            )),
            Self::Tenants | Self::Flux | Self::Asked | Self::Access => None,
        }
    }
}

/// The user of a request.
const USER: &str = "request.userInfo.username";
/// The prefix of the users of accounts in `kube-system`.
const KUBERNETES_ACCOUNTS: &str = "system:serviceaccount:kube-system:";
/// The expression that a ServiceAccount shows no token of its own.
const SHOWS_NO_TOKEN: &str = "request.userInfo.username.startsWith('system:serviceaccount:') && \
    !(has(request.userInfo.extra) && 'authentication.kubernetes.io/credential-id' in request.userInfo.extra && \
    request.userInfo.extra['authentication.kubernetes.io/credential-id'].exists(id, id.startsWith('JTI=')))";

/// Returns the expression that the user has a verb on all Tenants.
fn write_may(verb: &str) -> String {
    format!("authorizer.group('capsule.clastix.io').resource('tenants').check('{verb}').allowed()")
}

/// Returns the expression that the user may update a namespace: by rights in the cluster, or in the namespace.
fn write_may_update(name: &str) -> String {
    format!("authorizer.group('').resource('namespaces').namespace({name}).name({name}).check('update').allowed()")
}

/// Returns the expression for the API server itself and Tenure's accounts. Neither acts on a
/// tenant's template.
fn write_own() -> String {
    format!(
        "{USER} in ['{API_SERVER}', 'system:serviceaccount:{PLATFORM_NAMESPACE}:{CONTROLLER_SERVICE_ACCOUNT}'] || \
         {USER}.startsWith('system:serviceaccount:{PLATFORM_NAMESPACE}:{LANE_PREFIX}')"
    )
}

/// Returns the expression that one of these controllers sends the request, by its account or by
/// their common user.
fn write_by_controllers(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    format!(
        "{USER} == '{CONTROLLER_MANAGER}' || ({USER}.startsWith('{KUBERNETES_ACCOUNTS}') && {USER}.substring({}) in [{}])",
        KUBERNETES_ACCOUNTS.len(),
        quoted.join(", ")
    )
}

/// Returns the expression that a controller of Kubernetes, its scheduler or a node sends the
/// request.
fn write_by_kubernetes() -> String {
    format!(
        "{USER} == '{SCHEDULER}' || {USER}.startsWith('{NODE_PREFIX}') || {}",
        write_by_controllers(&CONTROLLERS)
    )
}

/// Returns the expression that Kubernetes updates an object that exists: it binds a claim, sets a
/// finalizer.
fn write_update_by_kubernetes() -> String {
    format!("request.operation == 'UPDATE' && ({})", write_by_kubernetes())
}

/// Returns the expression that a controller updates objects of any kind. It changes only their finalizers and
/// ownerReferences, or nothing.
fn write_update_by_upkeep() -> String {
    let names = [GARBAGE_COLLECTOR, NAMESPACE_CONTROLLER, VERSION_MIGRATOR];
    format!("request.operation == 'UPDATE' && ({})", write_by_controllers(&names))
}
