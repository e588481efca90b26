//! The webhook configurations by which a cluster's API server asks Tenure about writes, as data.
//!
//! Every field is set, also those with defaults. So the stored form either equals this one, or another user changed it.
//!
//! A dead webhook stops no more than it must. `Fail` is used only where policies don't enforce the rule, in namespaces with a tenant's label, for
//! namespaces and Tenants themselves. It never applies to users that may repair (the verb `adopt` on all Tenants, asked of the authorizer) or to
//! Tenure's accounts: a second webhook asks about the former, and is ignored while it is dead. Kubernetes' controllers and nodes are exempt where
//! they update an object. They are bound where they create one: otherwise a Deployment's Pods would pass where its author's Pods don't.

mod conditions;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::access;
use crate::metadata::{
    BOUNDED_LABEL, CORDONED_LABEL, COUNTED_LABEL, LEFT_CLAIMS_LABEL, LEFT_INGRESSES_LABEL, LEFT_PODS_LABEL, MANAGED_BY,
    MANAGED_BY_TENURE, PLATFORM_NAMESPACE, TENANT_LABEL,
};
use crate::package::SUPPLY_NAMESPACE;

/// The name of both configurations.
pub const CONFIGURATION: &str = "tenure";
/// The Service that leads to the webhook.
pub const SERVICE: &str = "tenure-webhook";
/// The port that the webhook listens on.
pub const PORT: u16 = 9443;
/// The Secret with its certificate and authority.
pub const SECRET: &str = "tenure-webhook";
/// The prefix of the Leases with the reservations of Tenants. The Tenant's uid follows.
pub const LEDGER_PREFIX: &str = "tenure-ledger-";
/// The annotation of such a Lease with the reserved namespaces, and the ends of the reservations, in
/// milliseconds since 1970.
pub const LEDGER_ANNOTATION: &str = "tenure.dev/reserved";
/// The annotation of such a Lease with the admitted objects that quotas count over the Tenant's namespaces, and the ends of their
/// reservations.
pub const QUOTA_LEDGER_ANNOTATION: &str = "tenure.dev/reserved-quota";
/// The prefix of the Leases with hosts that no two Ingresses of the cluster may share. A number follows.
pub const HOST_LEDGER_PREFIX: &str = "tenure-hosts-";
/// The annotation of such a Lease, or of a Tenant's, with the admitted hosts and paths, their Ingresses, and the ends of the
/// reservations.
pub const HOST_LEDGER_ANNOTATION: &str = "tenure.dev/reserved-hosts";
/// The paths of the two phases.
pub const MUTATE_PATH: &str = "/mutate";
/// See [`MUTATE_PATH`].
pub const VALIDATE_PATH: &str = "/validate";

/// The groups of Flux's kinds and Tenure's, whose accounts, references and shards are checked.
const FLUX_GROUPS: [&str; 7] = [
    "helm.toolkit.fluxcd.io",
    "image.toolkit.fluxcd.io",
    "kustomize.toolkit.fluxcd.io",
    "notification.toolkit.fluxcd.io",
    "source.extensions.fluxcd.io",
    "source.toolkit.fluxcd.io",
    "tenure.dev",
];
/// Namespaces whose writes never wait for an answer.
const NEVER_STOPPED: [&str; 5] = [
    "default",
    "kube-node-lease",
    "kube-public",
    "kube-system",
    PLATFORM_NAMESPACE,
];
/// The timeouts of the API server: for a webhook that fails closed, and for one that fails open.
const PATIENCE: (u32, u32) = (5, 2);

/// The address at which the API server finds the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookPlace {
    /// At the Service of an installation.
    Service,
    /// At an address: `https://HOST:PORT`.
    Address(String),
}

/// The facts of a cluster that decide which requests its webhooks are asked about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Surroundings<'a> {
    /// True if policies enforce their part of the rules, also while no webhook answers. The part then waits for no
    /// answer.
    pub has_policies: bool,
    /// Namespaces that never belong to a tenant by the administrator's settings. A selector can't match the prefixes among them.
    pub protected_namespaces: &'a [String],
}

impl<'a> Surroundings<'a> {
    /// Lists the namespaces whose writes never wait for an answer.
    fn list_never_stopped(&self) -> Vec<&'a str> {
        let protected = self.protected_namespaces.iter().map(String::as_str);
        let names = protected.filter(|name| !name.ends_with('*') && !NEVER_STOPPED.contains(name));
        NEVER_STOPPED.into_iter().chain(names).collect()
    }
}

/// The requests that one webhook is asked about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Topic {
    /// The tenant of namespaces.
    Namespaces,
    /// Tenants among each other.
    Tenants,
    /// Access to a tenant's account.
    Accounts,
    /// Flux's kinds and Tenure's in tenants' namespaces.
    Flux,
    /// Pods, claims, Ingresses and Services in namespaces of tenants with bounds. Controllers create them from other users' templates, so
    /// requests of controllers are sent, too.
    Objects,
    /// Objects of the same kinds in other tenants' namespaces. No write waits for an answer there.
    Unbounded,
    /// Objects by which a tenant could reach another one, in all tenants' namespaces: claims that name or select volumes, and hostnames that begin
    /// with `*`.
    Isolation,
    /// PersistentVolumes with a tenant's label, and the claims that get them.
    Volumes,
    /// Pods, claims and Ingresses whose checks policies leave in part: classes by their labels, and hosts that others have. These topics are used
    /// only where policies check the rest.
    LeftPods,
    /// See [`Topic::LeftPods`].
    LeftClaims,
    /// See [`Topic::LeftPods`].
    LeftIngresses,
    /// Changes in the namespaces of a cordoned tenant, by an owner or a ServiceAccount.
    Cordoned,
    /// Finalizers on objects that Tenure manages in tenants' namespaces, and changes of its label.
    ManagedObjects,
    /// New namespaces that claim no tenant, by users that own none.
    NewNamespaces,
    /// Objects that may be counted in namespaces of tenants with quotas for all namespaces together: new ones and growing ones, by any
    /// user.
    Quotas,
    /// All writes in tenants' namespaces: objects that Git manages there, and cordons.
    Writes,
    /// Objects that Git manages elsewhere.
    Managed,
    /// A platform's Packages, and the sources of its charts: only the part that a policy checks, so that no repair of the platform waits.
    Packages,
    /// Requests for access to a Git host, in any namespace.
    Asked,
    /// Approvals and records of this access. A grant that was not checked could name a false approver, so none is written while the webhook is dead, unless
    /// policies check it.
    Access,
    /// Impersonation of a ServiceAccount, in any namespace.
    Spoken,
    /// Requests in the name of an account that its Tenant keeps exclusive.
    SpokenExclusive,
    /// Token requests of Tenure's own accounts, in any namespace. They never wait for an answer, since the process that
    /// answers has to get tokens first.
    Minting,
}

/// The users that a webhook is asked about, and the fate of their writes while it doesn't answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Audience {
    /// Users that may not repair: the write fails.
    Others,
    /// Users that may repair: the write is allowed.
    Repairers,
    /// All users: the write is allowed.
    All,
}

/// Returns the webhook configurations of both phases. `authorities` are the authorities of the webhook's certificate,
/// in PEM.
#[must_use]
pub fn configurations(place: &WebhookPlace, authorities: &str, surroundings: Surroundings<'_>) -> [Value; 2] {
    [
        configuration((place, authorities), surroundings, Phase::Mutating),
        configuration((place, authorities), surroundings, Phase::Validating),
    ]
}

/// The admission phases. Each has a webhook configuration of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Mutating,
    Validating,
}

fn configuration(to: (&WebhookPlace, &str), surroundings: Surroundings<'_>, phase: Phase) -> Value {
    let both = [Audience::Others, Audience::Repairers];
    let mut asked: Vec<(Topic, Audience)> = Vec::new();
    let topics: &[Topic] = match phase {
        Phase::Mutating => &[Topic::Namespaces, Topic::Flux, Topic::Asked, Topic::Objects],
        Phase::Validating => &[
            Topic::Namespaces,
            Topic::Tenants,
            Topic::Accounts,
            Topic::Flux,
            Topic::Asked,
            Topic::Access,
            Topic::Objects,
            Topic::Isolation,
            Topic::Volumes,
            Topic::Cordoned,
            Topic::ManagedObjects,
            Topic::Quotas,
            Topic::SpokenExclusive,
        ],
    };
    for topic in topics {
        asked.extend(both.map(|audience| (*topic, audience)));
    }
    if phase == Phase::Validating && surroundings.has_policies {
        for topic in [Topic::LeftPods, Topic::LeftClaims, Topic::LeftIngresses] {
            asked.extend(both.map(|audience| (topic, audience)));
        }
    }
    asked.push((Topic::Unbounded, Audience::All));
    asked.push((Topic::NewNamespaces, Audience::All));
    if phase == Phase::Validating {
        let topics = [
            Topic::Writes,
            Topic::Managed,
            Topic::Packages,
            Topic::Spoken,
            Topic::Minting,
        ];
        asked.extend(topics.map(|topic| (topic, Audience::All)));
    }
    let webhooks: Vec<Value> = asked
        .into_iter()
        .map(|asked| webhook(to, surroundings, phase, asked))
        .collect();
    let kind = match phase {
        Phase::Mutating => "MutatingWebhookConfiguration",
        Phase::Validating => "ValidatingWebhookConfiguration",
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": CONFIGURATION, "labels": {MANAGED_BY: MANAGED_BY_TENURE}},
        "webhooks": webhooks
    })
}

fn webhook(
    (place, authorities): (&WebhookPlace, &str),
    surroundings: Surroundings<'_>,
    phase: Phase,
    (topic, audience): (Topic, Audience),
) -> Value {
    let path = match phase {
        Phase::Mutating => MUTATE_PATH,
        Phase::Validating => VALIDATE_PATH,
    };
    let bundle = ByteString(authorities.as_bytes().to_vec());
    let client = match place {
        WebhookPlace::Service => json!({
            "service": {"namespace": PLATFORM_NAMESPACE, "name": SERVICE, "path": path, "port": 443}, "caBundle": bundle
        }),
        WebhookPlace::Address(address) => json!({"url": format!("{address}{path}"), "caBundle": bundle}),
    };
    let (policy, patience) = match audience {
        Audience::Others if surroundings.has_policies && topic.is_a_policys() => ("Ignore", PATIENCE.1),
        Audience::Others => ("Fail", PATIENCE.0),
        Audience::Repairers | Audience::All => ("Ignore", PATIENCE.1),
    };
    let name = match audience {
        Audience::Others | Audience::All => format!("{}.admission.tenure.dev", topic.name()),
        Audience::Repairers => format!("{}.repair.admission.tenure.dev", topic.name()),
    };
    let mut webhook = json!({
        "name": name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": client,
        "failurePolicy": policy,
        "matchConditions": topic.conditions(audience),
        "matchPolicy": "Equivalent",
        "namespaceSelector": topic.namespaces(&surroundings.list_never_stopped()),
        "objectSelector": topic.objects(),
        "rules": topic.rules(),
        "sideEffects": topic.side_effects(phase),
        "timeoutSeconds": patience
    });
    if let Some(webhook) = webhook.as_object_mut().filter(|_| phase == Phase::Mutating) {
        webhook.insert("reinvocationPolicy".to_owned(), json!("IfNeeded"));
    }
    webhook
}

impl Topic {
    fn name(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Tenants => "tenants",
            Self::Accounts => "accounts",
            Self::Flux => "flux",
            Self::Objects => "objects",
            Self::Unbounded => "unbounded",
            Self::Isolation => "isolation",
            Self::Volumes => "volumes",
            Self::LeftPods => "left-pods",
            Self::LeftClaims => "left-claims",
            Self::LeftIngresses => "left-ingresses",
            Self::Cordoned => "cordoned",
            Self::ManagedObjects => "managed-objects",
            Self::NewNamespaces => "new-namespaces",
            Self::Quotas => "quotas",
            Self::Writes => "writes",
            Self::Managed => "managed",
            Self::Packages => "packages",
            Self::Asked => "access-asked",
            Self::Access => "access",
            Self::Spoken => "spoken-for",
            Self::SpokenExclusive => "spoken-for-exclusive",
            Self::Minting => "minting",
        }
    }

    /// Returns the side effects of the topic. An admitted namespace, an object that quotas count, and hosts of Ingresses get reservations, which other requests
    /// see. All other answers leave nothing behind, however often they are requested.
    fn side_effects(self, phase: Phase) -> &'static str {
        match (self, phase) {
            (
                Self::Tenants
                | Self::Volumes
                | Self::Managed
                | Self::Packages
                | Self::Asked
                | Self::Access
                | Self::Minting
                | Self::ManagedObjects,
                _,
            )
            | (_, Phase::Mutating) => "None",
            (_, Phase::Validating) => "NoneOnDryRun",
        }
    }

    /// Checks whether policies enforce the whole topic, so that nothing more is allowed while no webhook answers. For namespaces, Tenants and quotas
    /// they leave a part, and for objects the part of the topics `left-*`.
    fn is_a_policys(self) -> bool {
        matches!(
            self,
            Self::Accounts
                | Self::Flux
                | Self::Asked
                | Self::Access
                | Self::Objects
                | Self::Isolation
                | Self::Cordoned
                | Self::ManagedObjects
                | Self::SpokenExclusive
        )
    }

    /// Returns the label of the namespaces in which policies leave a part of the topic.
    fn left_label(self) -> Option<&'static str> {
        match self {
            Self::LeftPods => Some(LEFT_PODS_LABEL),
            Self::LeftClaims => Some(LEFT_CLAIMS_LABEL),
            Self::LeftIngresses => Some(LEFT_INGRESSES_LABEL),
            _ => None,
        }
    }

    fn rules(self) -> Value {
        let rule = |groups: &[&str], resources: &[&str], operations: &[&str], scope: &str| json!({"apiGroups": groups, "apiVersions": ["*"], "resources": resources, "operations": operations, "scope": scope});
        let write = ["CREATE", "UPDATE"];
        let all = ["CREATE", "UPDATE", "DELETE"];
        match self {
            Self::Namespaces => json!([
                rule(&[""], &["namespaces"], &all, "Cluster"),
                rule(
                    &[""],
                    &["namespaces/status", "namespaces/finalize"],
                    &["UPDATE"],
                    "Cluster"
                )
            ]),
            Self::NewNamespaces => json!([rule(&[""], &["namespaces"], &["CREATE"], "Cluster")]),
            Self::Tenants => json!([
                rule(&["capsule.clastix.io"], &["tenants"], &all, "Cluster"),
                rule(&["capsule.clastix.io"], &["tenants/status"], &["UPDATE"], "Cluster")
            ]),
            Self::Accounts => json!([
                rule(&[""], &["pods", "serviceaccounts/token"], &["CREATE"], "Namespaced"),
                rule(&[""], &["secrets"], &write, "Namespaced")
            ]),
            Self::Flux => json!([rule(&FLUX_GROUPS, &["*"], &write, "Namespaced")]),
            Self::Objects | Self::Unbounded => json!([
                rule(
                    &[""],
                    &[
                        "pods",
                        "pods/ephemeralcontainers",
                        "pods/resize",
                        "persistentvolumeclaims",
                        "persistentvolumeclaims/status",
                        "services",
                        "services/status"
                    ],
                    &write,
                    "Namespaced"
                ),
                rule(
                    &["networking.k8s.io"],
                    &["ingresses", "ingresses/status"],
                    &write,
                    "Namespaced"
                )
            ]),
            Self::Isolation => json!([
                rule(&[""], &["persistentvolumeclaims"], &write, "Namespaced"),
                rule(&["networking.k8s.io"], &["ingresses"], &write, "Namespaced")
            ]),
            Self::Volumes => json!([rule(&[""], &["persistentvolumes"], &write, "Cluster")]),
            Self::LeftPods => json!([rule(&[""], &["pods"], &["CREATE"], "Namespaced")]),
            Self::LeftClaims => json!([rule(
                &[""],
                &["persistentvolumeclaims", "persistentvolumeclaims/status"],
                &write,
                "Namespaced"
            )]),
            Self::LeftIngresses => json!([rule(
                &["networking.k8s.io"],
                &["ingresses", "ingresses/status"],
                &write,
                "Namespaced"
            )]),
            Self::Cordoned => json!([rule(&["*"], &["*"], &all, "Namespaced")]),
            Self::ManagedObjects => json!([rule(&["*"], &["*", "*/status"], &write, "Namespaced")]),
            Self::Quotas => json!([
                rule(&["*"], &["*"], &["CREATE"], "Namespaced"),
                rule(
                    &[""],
                    &["pods", "pods/resize", "persistentvolumeclaims", "services"],
                    &["UPDATE"],
                    "Namespaced"
                )
            ]),
            Self::Writes => json!([rule(&["*"], &["*"], &all, "Namespaced")]),
            Self::Managed => json!([rule(&["*"], &["*"], &["UPDATE"], "*")]),
            Self::Packages => json!([
                rule(&["cozystack.io"], &["packages", "packages/status"], &write, "Cluster"),
                rule(
                    &["cozystack.io"],
                    &["packagesources", "packagesources/status"],
                    &all,
                    "Cluster"
                ),
                rule(&["source.toolkit.fluxcd.io"], &["*", "*/status"], &all, "Namespaced")
            ]),
            Self::Asked => json!([rule(&[access::GROUP], &["fluxaccesses"], &write, "Namespaced")]),
            Self::Access => json!([
                rule(
                    &[access::GROUP],
                    &[
                        "fluxaccessgrants",
                        "fluxaccessrequests",
                        "fluxaccessstandinggrants",
                        "accessproviders/status",
                        "fluxaccesses/status",
                        "fluxaccessgrants/status",
                        "fluxaccessrequests/status",
                        "fluxaccessstandinggrants/status"
                    ],
                    &write,
                    "Namespaced"
                ),
                rule(
                    &[access::GROUP],
                    &["fluxaccesstargets", "fluxaccesstargets/status"],
                    &write,
                    "Cluster"
                )
            ]),
            Self::Minting => json!([rule(&[""], &["serviceaccounts/token"], &["CREATE"], "Namespaced")]),
            Self::Spoken | Self::SpokenExclusive => {
                json!([rule(&["*"], &["*/*"], &["CONNECT", "CREATE", "DELETE", "UPDATE"], "*")])
            }
        }
    }

    /// Returns the selector of objects: the API server calls the webhook if the old or the new
    /// object matches.
    fn objects(self) -> Value {
        match self {
            Self::ManagedObjects => json!({"matchLabels": {MANAGED_BY: MANAGED_BY_TENURE}}),
            _ => json!({}),
        }
    }

    /// Returns the selector of namespaces. It has no effect on Namespaces themselves and on
    /// cluster-scoped objects.
    fn namespaces(self, never: &[&str]) -> Value {
        let never = json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": never});
        match self {
            Self::Objects | Self::Unbounded => {
                let is_bounded = if self == Self::Objects {
                    "Exists"
                } else {
                    "DoesNotExist"
                };
                json!({"matchExpressions": [
                    {"key": TENANT_LABEL, "operator": "Exists"}, {"key": BOUNDED_LABEL, "operator": is_bounded}, never
                ]})
            }
            Self::Quotas => json!({"matchExpressions": [
                {"key": TENANT_LABEL, "operator": "Exists"}, {"key": COUNTED_LABEL, "operator": "Exists"}, never
            ]}),
            Self::Accounts | Self::Flux | Self::Writes | Self::Isolation | Self::ManagedObjects => {
                json!({"matchExpressions": [{"key": TENANT_LABEL, "operator": "Exists"}, never]})
            }
            Self::Cordoned => json!({"matchExpressions": [
                {"key": TENANT_LABEL, "operator": "Exists"}, {"key": CORDONED_LABEL, "operator": "Exists"}, never
            ]}),
            Self::LeftPods | Self::LeftClaims | Self::LeftIngresses => json!({"matchExpressions": [
                {"key": TENANT_LABEL, "operator": "Exists"},
                {"key": self.left_label(), "operator": "Exists"},
                never
            ]}),
            // The Leases of nodes are renewed very often.
            Self::Managed => json!({"matchExpressions": [
                {"key": TENANT_LABEL, "operator": "DoesNotExist"},
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-node-lease"]}
            ]}),
            // Of namespaced objects, only the source of the platform's charts.
            Self::Packages => json!({"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [SUPPLY_NAMESPACE]}
            ]}),
            Self::Namespaces
            | Self::NewNamespaces
            | Self::Volumes
            | Self::Tenants
            | Self::Asked
            | Self::Access
            | Self::Spoken
            | Self::SpokenExclusive
            | Self::Minting => json!({}),
        }
    }
}

#[cfg(test)]
mod tests;
