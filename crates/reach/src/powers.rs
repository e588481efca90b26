//! The powers that the rules of a role give its holder: one table from verbs on resources to
//! powers.

use crate::kinds::{ADMISSION, ControllerAction, DEPUTIES, LANE_GROUPS, RBAC};
use crate::rules::{Names, Rule};

/// A power that leads further than the right that gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Power {
    Everything,
    CreatePods,
    ChangePods,
    EnterPods,
    ProxyPods,
    ReadSecrets,
    CreateSecrets,
    CreateTokens,
    CreateAccounts,
    ImpersonateUsers,
    ImpersonateGroups,
    ImpersonateAccounts,
    BindClusterRoles,
    BindRoles,
    EscalateClusterRoles,
    EscalateRoles,
    WriteClusterRoles,
    WriteRoles,
    WriteClusterBindings,
    WriteBindings,
    WriteMutation,
    WriteValidation,
    WriteCustomKinds,
    WriteApiServices,
    CreateCertificateRequests,
    ApproveCertificateRequests,
    ApproveSigners,
    CreateNamespaces,
    ChangeNamespaces,
    ProxyNodes,
    CreateVolumes,
    RequestAccess,
    ApproveAccess,
    /// Writes objects that a lane reconciles.
    FeedLane,
    /// Writes a deputy, by its place in the table.
    Deputy(usize),
}

impl Power {
    /// Checks whether the power leads further only together with another right of the same
    /// identity.
    pub(crate) fn needs_another(self) -> bool {
        matches!(
            self,
            Self::BindClusterRoles
                | Self::BindRoles
                | Self::EscalateClusterRoles
                | Self::EscalateRoles
                | Self::WriteClusterRoles
                | Self::WriteRoles
                | Self::WriteClusterBindings
                | Self::WriteBindings
                | Self::ApproveCertificateRequests
                | Self::ApproveSigners
        )
    }
}

/// A row of the table of powers: the power, the verbs of which any is enough, the API group and the
/// resource.
struct Row(Power, &'static [&'static str], &'static str, &'static str);

const WRITE: &[&str] = &["create", "update", "patch"];
const CHANGE: &[&str] = &["update", "patch"];
const READ: &[&str] = &["get", "list", "watch"];
const AUTHENTICATION: &str = "authentication.k8s.io";
const CERTIFICATES: &str = "certificates.k8s.io";

/// The table of powers.
const ROWS: &[Row] = &[
    Row(Power::CreatePods, &["create"], "", "pods"),
    Row(Power::ChangePods, CHANGE, "", "pods"),
    Row(Power::EnterPods, &["create", "get"], "", "pods/exec"),
    Row(Power::EnterPods, &["create", "get"], "", "pods/attach"),
    Row(Power::EnterPods, CHANGE, "", "pods/ephemeralcontainers"),
    Row(Power::ProxyPods, &["create", "get"], "", "pods/portforward"),
    Row(
        Power::ProxyPods,
        &["create", "get", "update", "patch", "delete"],
        "",
        "pods/proxy",
    ),
    Row(
        Power::ProxyPods,
        &["create", "get", "update", "patch", "delete"],
        "",
        "services/proxy",
    ),
    Row(Power::ReadSecrets, READ, "", "secrets"),
    Row(Power::CreateSecrets, WRITE, "", "secrets"),
    Row(Power::CreateTokens, &["create"], "", "serviceaccounts/token"),
    Row(Power::CreateAccounts, &["create"], "", "serviceaccounts"),
    Row(Power::ImpersonateUsers, &["impersonate"], "", "users"),
    Row(Power::ImpersonateGroups, &["impersonate"], "", "groups"),
    Row(Power::ImpersonateAccounts, &["impersonate"], "", "serviceaccounts"),
    Row(
        Power::ImpersonateUsers,
        &["impersonate:user-info"],
        AUTHENTICATION,
        "users",
    ),
    Row(
        Power::ImpersonateGroups,
        &["impersonate:user-info"],
        AUTHENTICATION,
        "groups",
    ),
    Row(
        Power::ImpersonateAccounts,
        &["impersonate:serviceaccount"],
        AUTHENTICATION,
        "serviceaccounts",
    ),
    Row(Power::BindClusterRoles, &["bind"], RBAC, "clusterroles"),
    Row(Power::BindRoles, &["bind"], RBAC, "roles"),
    Row(Power::EscalateClusterRoles, &["escalate"], RBAC, "clusterroles"),
    Row(Power::EscalateRoles, &["escalate"], RBAC, "roles"),
    Row(Power::WriteClusterRoles, WRITE, RBAC, "clusterroles"),
    Row(Power::WriteRoles, WRITE, RBAC, "roles"),
    Row(Power::WriteClusterBindings, WRITE, RBAC, "clusterrolebindings"),
    Row(Power::WriteBindings, WRITE, RBAC, "rolebindings"),
    Row(Power::WriteMutation, WRITE, ADMISSION, "mutatingwebhookconfigurations"),
    Row(Power::WriteMutation, WRITE, ADMISSION, "mutatingadmissionpolicies"),
    Row(
        Power::WriteValidation,
        &["update", "patch", "delete", "deletecollection"],
        ADMISSION,
        "validatingwebhookconfigurations",
    ),
    Row(
        Power::WriteValidation,
        &["update", "patch", "delete", "deletecollection"],
        ADMISSION,
        "validatingadmissionpolicies",
    ),
    Row(
        Power::WriteValidation,
        &["update", "patch", "delete", "deletecollection"],
        ADMISSION,
        "validatingadmissionpolicybindings",
    ),
    Row(
        Power::WriteCustomKinds,
        WRITE,
        "apiextensions.k8s.io",
        "customresourcedefinitions",
    ),
    Row(Power::WriteApiServices, WRITE, "apiregistration.k8s.io", "apiservices"),
    Row(
        Power::CreateCertificateRequests,
        &["create"],
        CERTIFICATES,
        "certificatesigningrequests",
    ),
    Row(
        Power::ApproveCertificateRequests,
        CHANGE,
        CERTIFICATES,
        "certificatesigningrequests/approval",
    ),
    Row(Power::ApproveSigners, &["approve"], CERTIFICATES, "signers"),
    Row(Power::CreateNamespaces, &["create"], "", "namespaces"),
    Row(Power::ChangeNamespaces, CHANGE, "", "namespaces"),
    Row(Power::ProxyNodes, &["create", "get"], "", "nodes/proxy"),
    Row(Power::CreateVolumes, WRITE, "", "persistentvolumes"),
    Row(Power::RequestAccess, WRITE, "tenure.dev", "fluxaccesses"),
    Row(Power::ApproveAccess, &["approve"], "tenure.dev", "fluxaccesstargets"),
];

/// A power, the names that limit it, and the right that gives it.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    pub(crate) power: Power,
    pub(crate) names: Names,
    pub(crate) right: String,
}

/// Lists the powers of rules, each once.
pub(crate) fn list_powers(rules: &[Rule]) -> Vec<Granted> {
    let mut granted: Vec<Granted> = Vec::new();
    for rule in rules {
        if rule.verbs.is_empty() || rule.resources.is_empty() {
            continue;
        }
        let mut add =
            |power: Power, right: &dyn Fn() -> String| match granted.iter_mut().find(|known| known.power == power) {
                Some(known) => known.names.add(rule),
                None => granted.push(Granted {
                    power,
                    names: Names::read(rule),
                    right: right(),
                }),
            };
        if rule.covers("*", "*", "*") && rule.resource_names.is_empty() {
            add(Power::Everything, &|| "* *.*".to_owned());
        }
        for Row(power, verbs, group, resource) in ROWS {
            if let Some(verb) = verbs.iter().find(|verb| rule.covers(verb, group, resource)) {
                add(*power, &|| describe_right(verb, group, resource));
            }
        }
        for (index, deputy) in DEPUTIES.iter().enumerate() {
            let Some(verb) = WRITE
                .iter()
                .find(|verb| rule.covers(verb, deputy.group, deputy.resource))
            else {
                continue;
            };
            let power = match deputy.does {
                ControllerAction::MakesPods => Power::CreatePods,
                _ => Power::Deputy(index),
            };
            add(power, &|| describe_right(verb, deputy.group, deputy.resource));
        }
        for (group, resource) in LANE_GROUPS {
            if let Some(verb) = WRITE.iter().find(|verb| rule.covers(verb, group, resource)) {
                add(Power::FeedLane, &|| describe_right(verb, group, resource));
            }
        }
    }
    granted
}

/// Returns a right in the words of kubectl: `create pods`, `create deployments.apps`.
fn describe_right(verb: &str, group: &str, resource: &str) -> String {
    if group.is_empty() {
        format!("{verb} {resource}")
    } else {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let slash = if subresource.is_empty() { "" } else { "/" };
        format!("{verb} {resource}.{group}{slash}{subresource}")
    }
}
