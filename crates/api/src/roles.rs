//! The ClusterRoles of Tenure, as data: the rights of a tenant's identities in its namespaces.

use serde_json::{Value, json};

use crate::access::{GROUP, PROVIDERS, WRITE_CREDENTIALS};
use crate::installation::ControllerChoice;
use crate::metadata::{
    AUTHOR_CLUSTER_ROLE, HELM_AUTHOR_CLUSTER_ROLE, HOME_OWNER_CLUSTER_ROLE, HOME_WITNESS_CLUSTER_ROLE,
    LANE_BOOKS_CLUSTER_ROLE, LANE_CLUSTER_ROLE, MANAGED_BY, MANAGED_BY_TENURE, NAMESPACE_DELETER_CLUSTER_ROLE,
    NAMESPACE_EDITOR_CLUSTER_ROLE, SECRET_WRITER, TENANT_GITOPS_CLUSTER_ROLE, TENANT_GITOPS_COZYSTACK_CLUSTER_ROLE,
    TENANT_GITOPS_HOME_CLUSTER_ROLE, VIEW_CLUSTER_ROLE, VIEWER_CLUSTER_ROLE,
};

/// Returns the rights of a tenant's GitOps account in the tenant's namespaces: the kinds of applications.
///
/// Left out on purpose: Flux's and Tenure's own kinds (a repository must not be able to add another identity's work), `exec` and
/// `attach`, ResourceQuota and LimitRange (they bound the tenant), tokens, and everything cluster-scoped. Roles and RoleBindings
/// are included: Kubernetes' own escalation check keeps them within the rights of the ServiceAccount.
#[must_use]
pub fn tenant_gitops_cluster_role() -> Value {
    let all = json!(["get", "list", "watch", "create", "update", "patch", "delete"]);
    cluster_role(TENANT_GITOPS_CLUSTER_ROLE, &list_application_rules(&all))
}

/// Returns the rights in the home namespace: the same, except that it reads only Secrets whose names it knows.
///
/// The home namespace has the keys of its sources, each with a Role of its own, and other Secrets that sources, decryption and variables name. Each is
/// read by name, and so are objects that Git applies, so no reader needs a list. The role can't contain these names, as all tenants share it. The
/// answer to each write is the whole Secret. So `get` stays, or Git could apply no Secret there.
#[must_use]
pub fn tenant_gitops_home_cluster_role() -> Value {
    let by_name = json!(["get", "create", "update", "patch", "delete"]);
    cluster_role(TENANT_GITOPS_HOME_CLUSTER_ROLE, &list_application_rules(&by_name))
}

fn list_application_rules(secrets: &Value) -> Vec<Value> {
    let all = json!(["get", "list", "watch", "create", "update", "patch", "delete"]);
    vec![
        json!({
            "apiGroups": [""],
            "resources": ["configmaps", "persistentvolumeclaims", "pods", "podtemplates", "replicationcontrollers", "serviceaccounts", "services"],
            "verbs": all
        }),
        json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": secrets }),
        json!({ "apiGroups": [""], "resources": ["events"], "verbs": ["get", "list", "watch", "create", "patch"] }),
        json!({ "apiGroups": [""], "resources": ["endpoints", "limitranges", "resourcequotas"], "verbs": ["get", "list", "watch"] }),
        json!({ "apiGroups": ["apps"], "resources": ["daemonsets", "deployments", "replicasets", "statefulsets"], "verbs": all }),
        json!({ "apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": all }),
        json!({ "apiGroups": ["batch"], "resources": ["cronjobs", "jobs"], "verbs": all }),
        json!({ "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"] }),
        json!({ "apiGroups": ["networking.k8s.io"], "resources": ["ingresses", "networkpolicies"], "verbs": all }),
        json!({ "apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": all }),
        json!({ "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings", "roles"], "verbs": all }),
    ]
}

/// Cozystack's applications that its own role `cozy:tenant:admin` writes. Never `tenants`: a writer of one makes a tenant below its own, with rights
/// that no administrator chose for it.
const COZYSTACK_APPLICATIONS: [&str; 17] = [
    "buckets",
    "clickhouses",
    "httpcaches",
    "infos",
    "kafkas",
    "kuberneteses",
    "mysqls",
    "natses",
    "postgreses",
    "rabbitmqs",
    "redises",
    "seaweedfses",
    "tcpbalancers",
    "virtualmachines",
    "virtualprivateclouds",
    "vmdisks",
    "vminstances",
];

/// Returns the rights of a tenant's GitOps account if its Tenant names this role: it manages Cozystack's applications, from which the platform makes
/// everything else (Cozystack's "GitOps Configuration Surfaces", the tenant's surface). They are listed by kind: a role of an administrator's own grants
/// a kind of a later Cozystack.
///
/// The account reads the ConfigMaps for the substitution of variables, and no Secret. A deploy key has a Role of its own. For another Secret that a
/// source names, an administrator makes a Role.
#[must_use]
pub fn tenant_gitops_cozystack_cluster_role() -> Value {
    let keep = json!(["get", "list", "watch", "create", "update", "patch", "delete"]);
    cluster_role(
        TENANT_GITOPS_COZYSTACK_CLUSTER_ROLE,
        &[
            json!({ "apiGroups": ["apps.cozystack.io"], "resources": COZYSTACK_APPLICATIONS, "verbs": keep }),
            json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"] }),
        ],
    )
}

/// Returns the rights of a writer of HelmReleases, if a Tenant names this role in `additionalRoleBindings`.
///
/// No account has the role by default: where admission checks no writes, helm-controller reconciles a HelmRelease without an account with its own rights, which are
/// an administrator's.
#[must_use]
pub fn helm_author_cluster_role() -> Value {
    let all = json!(["get", "list", "watch", "create", "update", "patch", "delete"]);
    cluster_role(
        HELM_AUTHOR_CLUSTER_ROLE,
        &[json!({ "apiGroups": ["helm.toolkit.fluxcd.io"], "resources": ["helmreleases"], "verbs": all })],
    )
}

/// Returns every ClusterRole of Tenure. Those of lanes have the rights that the enabled controllers need.
pub(crate) fn cluster_roles(choice: &ControllerChoice) -> Vec<Value> {
    vec![
        lane_cluster_role(choice),
        lane_books_cluster_role(choice),
        namespace_deleter_cluster_role(),
        namespace_editor_cluster_role(),
        home_owner_cluster_role(),
        author_cluster_role(choice),
        viewer_cluster_role(),
        home_witness_cluster_role(choice),
        tenant_gitops_cluster_role(),
        tenant_gitops_home_cluster_role(),
        tenant_gitops_cozystack_cluster_role(),
        helm_author_cluster_role(),
        view_cluster_role(),
        secret_writer_cluster_role(choice),
    ]
}

/// Returns the rights of a lane in a namespace in which it is bound: its bookkeeping, and token requests for the ServiceAccounts there,
/// without which it could apply nothing with their identities.
///
/// The role can't limit these accounts by name: `resourceNames` are part of the role, which all namespaces share, and only an account
/// with the right in all namespaces could write a role for each.
pub(crate) fn lane_cluster_role(choice: &ControllerChoice) -> Value {
    let mut rules = choice.limit_lanes(list_book_rules());
    if choice.has_alerts() {
        // Alerts report what helm-controller writes about HelmReleases, and can select these by labels.
        rules.push(json!({ "apiGroups": [""], "resources": ["events"], "verbs": ["list", "watch"] }));
        rules.push(json!({ "apiGroups": ["helm.toolkit.fluxcd.io"], "resources": ["helmreleases"], "verbs": ["get"] }));
    }
    if choice.has_accounts() {
        rules.push(json!({ "apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"] }));
        // Kubernetes knows no such verb: admission asks for it, if a tenant keeps its account exclusive.
        rules.push(json!({ "apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["mint"] }));
    }
    cluster_role(LANE_CLUSTER_ROLE, &rules)
}

/// Returns the rights of a lane in Kubernetes' own namespaces: only its bookkeeping. There, a token of any ServiceAccount would open
/// the whole cluster, so an administrator has to bind the lane to more.
pub(crate) fn lane_books_cluster_role(choice: &ControllerChoice) -> Value {
    cluster_role(LANE_BOOKS_CLUSTER_ROLE, &choice.limit_lanes(list_book_rules()))
}

/// Returns the rights of the account that writes credentials where an administrator has bound it: the Secrets, and for each the Role and the RoleBinding that
/// let one account read it.
///
/// Their names follow from Surfaces and requests, so the role can have no `resourceNames`. An account can't create a Role with a right that it doesn't hold, so
/// it needs `get` on a Secret to grant it. The policy above it bounds these writes. It lists and watches nothing.
///
/// An owner's `admin` covers all of that. The last verb is the one that it lacks: RBAC refuses an owner's binding of this role, and approved credentials are
/// written only where the account holds the verb.
fn secret_writer_cluster_role(choice: &ControllerChoice) -> Value {
    let mut rules = Vec::new();
    if choice.has_surfaces() || choice.has_access() {
        let kept = json!(["get", "create", "patch", "delete"]);
        rules.push(json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": kept }));
        rules.push(
            json!({ "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": kept }),
        );
        rules.push(json!({ "apiGroups": [GROUP], "resources": [PROVIDERS], "verbs": [WRITE_CREDENTIALS] }));
    }
    cluster_role(SECRET_WRITER, &rules)
}

/// The kinds that lanes reconcile: API groups and their resources. Of other kinds a lane writes only events and TokenRequests.
pub const LANE_KINDS: [(&str, &[&str]); 5] = [
    ("kustomize.toolkit.fluxcd.io", &["kustomizations"]),
    ("notification.toolkit.fluxcd.io", &["alerts", "providers", "receivers"]),
    ("source.extensions.fluxcd.io", &["artifactgenerators"]),
    (
        "source.toolkit.fluxcd.io",
        &[
            "buckets",
            "externalartifacts",
            "gitrepositories",
            "helmcharts",
            "helmrepositories",
            "ocirepositories",
        ],
    ),
    ("tenure.dev", &["surfaces"]),
];

/// Returns the rules for writes to objects of the kinds that lanes reconcile, and about them, and for the objects that
/// a Surface generates.
fn list_book_rules() -> Vec<Value> {
    let generated = json!(["get", "create", "patch", "delete"]);
    let status_verbs = json!(["get", "update", "patch"]);
    vec![
        json!({ "apiGroups": ["tenure.dev"], "resources": ["surfaces"], "verbs": ["get", "patch"] }),
        json!({ "apiGroups": ["source.toolkit.fluxcd.io"], "resources": ["externalartifacts", "gitrepositories"], "verbs": generated }),
        json!({ "apiGroups": ["source.extensions.fluxcd.io"], "resources": ["artifactgenerators"], "verbs": ["get", "patch"] }),
        json!({ "apiGroups": ["source.extensions.fluxcd.io"], "resources": ["artifactgenerators/status", "artifactgenerators/finalizers"], "verbs": status_verbs }),
        json!({ "apiGroups": ["source.toolkit.fluxcd.io"], "resources": ["externalartifacts/status", "externalartifacts/finalizers"], "verbs": status_verbs }),
        // Only users and repositories create these: no create, no delete.
        json!({ "apiGroups": ["source.toolkit.fluxcd.io"], "resources": ["buckets", "helmcharts", "helmrepositories", "ocirepositories"], "verbs": ["get", "patch"] }),
        json!({ "apiGroups": ["kustomize.toolkit.fluxcd.io"], "resources": ["kustomizations"], "verbs": generated }),
        json!({ "apiGroups": ["notification.toolkit.fluxcd.io"], "resources": ["alerts", "providers", "receivers"], "verbs": ["get", "patch"] }),
        json!({ "apiGroups": ["notification.toolkit.fluxcd.io"], "resources": ["receivers/status", "receivers/finalizers"], "verbs": status_verbs }),
        json!({ "apiGroups": ["notification.toolkit.fluxcd.io"], "resources": ["alerts/status", "alerts/finalizers", "providers/status", "providers/finalizers"], "verbs": status_verbs }),
        json!({ "apiGroups": ["tenure.dev"], "resources": ["surfaces/status", "surfaces/finalizers"], "verbs": status_verbs }),
        json!({ "apiGroups": ["source.toolkit.fluxcd.io"], "resources": ["gitrepositories/status", "gitrepositories/finalizers"], "verbs": status_verbs }),
        json!({ "apiGroups": ["source.toolkit.fluxcd.io"], "resources": ["ocirepositories/status", "ocirepositories/finalizers"], "verbs": status_verbs }),
        json!({ "apiGroups": ["source.toolkit.fluxcd.io"], "resources": ["buckets/status", "buckets/finalizers"], "verbs": status_verbs }),
        json!({ "apiGroups": ["source.toolkit.fluxcd.io"], "resources": ["helmcharts/status", "helmcharts/finalizers", "helmrepositories/status", "helmrepositories/finalizers"], "verbs": status_verbs }),
        json!({ "apiGroups": ["kustomize.toolkit.fluxcd.io"], "resources": ["kustomizations/status", "kustomizations/finalizers"], "verbs": status_verbs }),
        json!({ "apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"] }),
    ]
}

fn cluster_role(name: &str, rules: &[Value]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": name, "labels": { MANAGED_BY: MANAGED_BY_TENURE } },
        "rules": rules
    })
}

/// Returns Capsule's own second default role of an owner: deleting the namespace itself.
#[must_use]
pub fn namespace_deleter_cluster_role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": NAMESPACE_DELETER_CLUSTER_ROLE, "labels": { MANAGED_BY: MANAGED_BY_TENURE } },
        "rules": [{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["delete"] }]
    })
}

/// Returns the right to read and change a namespace, for owners in the namespaces of their tenant. Admission checks which labels and annotations they change.
#[must_use]
pub fn namespace_editor_cluster_role() -> Value {
    let rule = json!({ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "update", "patch"] });
    cluster_role(NAMESPACE_EDITOR_CLUSTER_ROLE, &[rule])
}

/// Returns the rights in the home namespace of an owner whose Tenant names no ClusterRoles, in place of Kubernetes' `admin`: see the objects there,
/// and manage ConfigMaps.
///
/// The tenant's GitOps account is in this namespace, and reads meet no admission. A user that may request its token, impersonate it, start a Pod as
/// it or read Secrets has its rights or its keys. So these rights are left out, and with Pods all kinds that create them. With Secrets, RoleBindings
/// are left out, since they could give the rights back. Pods are shown, with their logs: their specs contain what the visible Deployments contain.
#[must_use]
pub fn home_owner_cluster_role() -> Value {
    let keep = json!(["get", "list", "watch", "create", "update", "patch", "delete"]);
    let mut rules = vec![json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": keep })];
    rules.extend(list_applied_rules());
    rules.extend(list_reconciled_rules());
    cluster_role(HOME_OWNER_CLUSTER_ROLE, &rules)
}

/// Returns the rights of a user that writes the objects that Tenure reconciles. The account that applies bounds the content, and tenancy's rules bound these
/// objects. With these rights a user requests, suspends and resumes reconciliations, too.
///
/// Left out on purpose: statuses and finalizers as subresources, objects that only a controller writes (ExternalArtifacts), and requests for access to hosts. Kinds
/// that are left to another controller are left out, too, since that controller may follow other rules. Owners that are ServiceAccounts don't get the role by
/// default: a repository that is applied as an owner must not be able to add another identity's work.
fn author_cluster_role(choice: &ControllerChoice) -> Value {
    let write = json!(["create", "update", "patch", "delete"]);
    let written = vec![
        json!({ "apiGroups": ["tenure.dev"], "resources": ["surfaces"], "verbs": write }),
        json!({ "apiGroups": ["source.toolkit.fluxcd.io"], "resources": ["buckets", "gitrepositories", "helmcharts", "helmrepositories", "ocirepositories"], "verbs": write }),
        json!({ "apiGroups": ["source.extensions.fluxcd.io"], "resources": ["artifactgenerators"], "verbs": write }),
        json!({ "apiGroups": ["kustomize.toolkit.fluxcd.io"], "resources": ["kustomizations"], "verbs": write }),
        json!({ "apiGroups": ["notification.toolkit.fluxcd.io"], "resources": ["alerts", "providers", "receivers"], "verbs": write }),
    ];
    let mut rules = choice.limit_authors(written);
    rules.extend(list_reconciled_rules());
    cluster_role(AUTHOR_CLUSTER_ROLE, &rules)
}

/// Returns the rights of a user that only looks: the reconciled objects, the objects that these apply, and the logs of Pods. No Secret is among them, and no
/// right that leads to an account.
fn viewer_cluster_role() -> Value {
    let mut rules = vec![json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"] })];
    rules.extend(list_applied_rules());
    rules.extend(list_reconciled_rules());
    cluster_role(VIEWER_CLUSTER_ROLE, &rules)
}

/// Returns the rules for reading objects that repositories apply, except ConfigMaps and Secrets.
fn list_applied_rules() -> Vec<Value> {
    let see = json!(["get", "list", "watch"]);
    vec![
        json!({ "apiGroups": [""], "resources": ["events", "limitranges", "namespaces", "persistentvolumeclaims", "pods", "resourcequotas", "serviceaccounts", "services"], "verbs": see }),
        json!({ "apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"] }),
        json!({ "apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": see }),
        json!({ "apiGroups": ["apps"], "resources": ["daemonsets", "deployments", "replicasets", "statefulsets"], "verbs": see }),
        json!({ "apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": see }),
        json!({ "apiGroups": ["batch"], "resources": ["cronjobs", "jobs"], "verbs": see }),
        json!({ "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": see }),
        json!({ "apiGroups": ["networking.k8s.io"], "resources": ["ingresses", "networkpolicies"], "verbs": see }),
        json!({ "apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": see }),
        json!({ "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings", "roles"], "verbs": see }),
    ]
}

/// Returns the rights by which the controllers see other users of the account in a tenant's home namespace: Pods, which name their accounts, and Roles.
/// Secrets with tokens are left out, since an account that may list Secrets can read them.
fn home_witness_cluster_role(choice: &ControllerChoice) -> Value {
    let mut rules = Vec::new();
    if choice.has_tenants() {
        rules.push(json!({ "apiGroups": [""], "resources": ["pods"], "verbs": ["list"] }));
        rules.push(json!({ "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["list"] }));
    }
    cluster_role(HOME_WITNESS_CLUSTER_ROLE, &rules)
}

/// Returns the rights of `view`, and so of `edit` and `admin`, on objects that Tenure reconciles: an owner of a tenant sees why a
/// commit was not applied.
///
/// Writing is left out on purpose, and so are subresources: an owner may be the GitOps account itself, and a repository must not be
/// able to write Kustomizations. `tenure-author` has the rights of writers.
#[must_use]
pub fn view_cluster_role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": VIEW_CLUSTER_ROLE,
            "labels": {
                MANAGED_BY: MANAGED_BY_TENURE,
                "rbac.authorization.k8s.io/aggregate-to-view": "true"
            }
        },
        "rules": list_reconciled_rules()
    })
}

/// Returns the rules for reading reconciled objects.
fn list_reconciled_rules() -> Vec<Value> {
    let see = json!(["get", "list", "watch"]);
    vec![
        json!({ "apiGroups": ["tenure.dev"], "resources": ["fluxaccesses", "surfaces"], "verbs": see }),
        json!({ "apiGroups": ["source.toolkit.fluxcd.io"], "resources": ["buckets", "externalartifacts", "gitrepositories", "helmcharts", "helmrepositories", "ocirepositories"], "verbs": see }),
        json!({ "apiGroups": ["source.extensions.fluxcd.io"], "resources": ["artifactgenerators"], "verbs": see }),
        json!({ "apiGroups": ["kustomize.toolkit.fluxcd.io"], "resources": ["kustomizations"], "verbs": see }),
        // helm-controller's kinds, beside Tenure's: commands show and list them.
        json!({ "apiGroups": ["helm.toolkit.fluxcd.io"], "resources": ["helmreleases"], "verbs": see }),
        json!({ "apiGroups": ["notification.toolkit.fluxcd.io"], "resources": ["alerts", "providers", "receivers"], "verbs": see }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The policy that bounds lanes allows these kinds, so a right on any other kind would be refused.
    #[test]
    fn lanes_have_rights_on_the_kinds_that_they_reconcile() {
        let mut granted = std::collections::BTreeSet::new();
        for rule in list_book_rules() {
            for resource in rule["resources"].as_array().expect("resources") {
                let resource = resource.as_str().expect("a word");
                let main = resource.split_once('/').map_or(resource, |(main, _)| main);
                granted.insert(format!("{}/{main}", rule["apiGroups"][0].as_str().expect("a group")));
            }
        }
        let listed = LANE_KINDS
            .iter()
            .flat_map(|(group, resources)| resources.iter().map(move |resource| format!("{group}/{resource}")));
        let listed: std::collections::BTreeSet<_> = listed.chain(["/events".to_owned()]).collect();
        assert_eq!(granted, listed);
    }

    /// A repository that is applied as an owner must not become able to add another identity's work.
    #[test]
    fn viewers_see_and_change_nothing() {
        let role = view_cluster_role();
        for rule in role["rules"].as_array().expect("rules") {
            assert_eq!(rule["verbs"], json!(["get", "list", "watch"]), "{rule}");
            let resources = rule["resources"].as_array().expect("resources");
            let has_subresource = |resource: &Value| resource.as_str().is_none_or(|text| text.contains(['/', '*']));
            assert!(!resources.iter().any(has_subresource), "{rule}");
        }
    }

    #[test]
    fn cozystack_role_writes_applications_and_nothing_else() {
        let role = tenant_gitops_cozystack_cluster_role();
        for rule in role["rules"].as_array().expect("rules") {
            let is_applications = rule["apiGroups"] == json!(["apps.cozystack.io"]);
            assert!(
                is_applications || rule["verbs"] == json!(["get", "list", "watch"]),
                "{rule}"
            );
            assert!(is_applications || rule["resources"] == json!(["configmaps"]), "{rule}");
            for resource in rule["resources"].as_array().expect("resources") {
                let left_out = ["*", "tenants", "gitops"];
                assert!(!left_out.contains(&resource.as_str().expect("a word")), "{rule}");
            }
        }
    }

    /// The objects that a HelmRelease acts with are not among them: no source, no account, no Secret.
    #[test]
    fn helm_authors_write_releases_and_nothing_else() {
        let role = helm_author_cluster_role();
        let rules = role["rules"].as_array().expect("rules");
        assert_eq!(rules.len(), 1, "{role}");
        assert_eq!(list(&rules[0], "apiGroups"), ["helm.toolkit.fluxcd.io"]);
        assert_eq!(list(&rules[0], "resources"), ["helmreleases"]);
    }

    fn list(rule: &Value, key: &str) -> Vec<String> {
        serde_json::from_value(rule[key].clone()).expect("a list of words")
    }

    /// The rights of owners in the home namespace, and of viewers anywhere, give no access to an account and show no Secret.
    #[test]
    fn home_owners_and_viewers_reach_no_account_or_secret() {
        for (role, written) in [
            (home_owner_cluster_role(), &["configmaps"][..]),
            (viewer_cluster_role(), &[]),
        ] {
            for rule in role["rules"].as_array().expect("rules") {
                let (resources, verbs) = (list(rule, "resources"), list(rule, "verbs"));
                let is_left_out = |resource: &String| {
                    (resource.contains(['/', '*']) && resource != "pods/log")
                        || ["secrets", "podtemplates", "replicationcontrollers"].contains(&resource.as_str())
                };
                assert!(!resources.iter().any(is_left_out), "{rule}");
                assert!(!list(rule, "apiGroups").contains(&"*".to_owned()), "{rule}");
                let is_reading = verbs
                    .iter()
                    .all(|verb| ["get", "list", "watch"].contains(&verb.as_str()));
                assert!(is_reading || resources == written, "{rule}");
            }
        }
    }

    /// Returns the author's writable resources, if these controllers are enabled.
    fn list_written(is_on: &dyn Fn(&str) -> bool) -> Vec<String> {
        let definitions = crate::crds::crds().expect("definitions");
        let role = author_cluster_role(&ControllerChoice::from_definitions(&definitions, is_on));
        let rules = role["rules"].as_array().expect("rules");
        let writes = rules
            .iter()
            .filter(|rule| list(rule, "verbs") != ["get", "list", "watch"]);
        let mut written: Vec<String> = writes
            .inspect(|rule| assert_eq!(list(rule, "verbs"), ["create", "update", "patch", "delete"], "{rule}"))
            .flat_map(|rule| list(rule, "resources"))
            .collect();
        written.sort();
        written
    }

    #[test]
    fn authors_write_what_these_controllers_reconcile_and_nothing_else() {
        let all = [
            "alerts",
            "artifactgenerators",
            "buckets",
            "gitrepositories",
            "helmcharts",
            "helmrepositories",
            "kustomizations",
            "ocirepositories",
            "providers",
            "receivers",
            "surfaces",
        ];
        assert_eq!(list_written(&|_| true), all);
        // Flux's own controller could act as its own account.
        let without = list_written(&|kind| kind != "Kustomization");
        assert_eq!(without.len(), all.len() - 1);
        assert!(!without.contains(&"kustomizations".to_owned()), "{without:?}");
        assert!(list_written(&|_| false).is_empty());
    }
}
