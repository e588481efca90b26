//! The customizer, as data: one Surface of the platform by which administrators tune components from a repository, its ServiceAccount, and the
//! rights of this account.
//!
//! The granted rights follow Cozystack's page "Field Ownership, RBAC, Limitations". The mistakes of its prototype are not repeated
//! (`docs/howto/customize-the-platform.md`). A customizer needs a repository and a folder, and can't own namespaces of the system or the platform.
//! An object that only has the same name does not count as the customizer's ([`is_own`]).

use serde_json::{Value, json};

use crate::metadata::{MANAGED_BY, MANAGED_BY_TENURE, PLATFORM_NAMESPACE, PRUNE, SSA, TENANT_GITOPS_CLUSTER_ROLE};
use crate::names::is_dns_label;
use crate::view::ObjectView;

/// The name of its namespaced objects.
pub const NAME: &str = "customizer";
/// The name of its cluster-scoped objects.
pub const CLUSTER_NAME: &str = "tenure-customizer";
/// The namespace in which it has all rights, if no other one is named.
pub const OWNED_NAMESPACE: &str = "cozy-customizer";
/// The label of namespaces in which it has all rights.
pub const OWNED_LABEL: &str = "cozystack.io/customizer-owned";
/// The API group of Cozystack's Packages.
const PACKAGE_GROUP: &str = "cozystack.io";
/// The prefixes of addresses, as in Surfaces.
const SCHEMES: [&str; 3] = ["https://", "http://", "ssh://"];
/// The greatest number of namespaces.
const MOST_NAMESPACES: usize = 64;

/// The rights of its account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Every writer of the repository is in effect an administrator. Denials only prevent accidents.
    Admin,
    /// Packages are read, and PackageValues written, so no user of the repository can get the rights of a chart. In its namespaces the
    /// account writes the objects of applications. It writes no HelmReleases: Flux's controllers install those with their own rights if
    /// they name no account.
    Restricted,
}

/// The settings of a customizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Customizer {
    /// The rights of its account.
    pub profile: Profile,
    /// The address of the repository.
    pub url: String,
    /// The branch.
    pub branch: String,
    /// The folder.
    pub path: String,
    /// The interval between two fetches.
    pub interval: String,
    /// The Secret of the platform namespace with the credentials.
    pub secret: Option<String>,
    /// The namespaces in which it may write everything that the profile allows.
    pub owned_namespaces: Vec<String>,
}

/// The reason why no customizer can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CustomizerError {
    /// The repository is missing.
    #[error("the customizer needs the address of a repository")]
    NoUrl,
    /// A Surface doesn't accept the address.
    #[error("the address of the customizer's repository must begin with https://, http:// or ssh://")]
    Url,
    /// The folder is missing.
    #[error("the customizer needs the folder of the repository that is applied, such as ./clusters/production")]
    NoPath,
    /// The customizer may not own this namespace, for this reason.
    #[error("{0:?} can't be a namespace of the customizer: {1}")]
    Namespace(String, &'static str),
    /// Too many namespaces are named.
    #[error("the customizer has at most {MOST_NAMESPACES} namespaces")]
    TooMany,
}

/// Returns all objects of a customizer, in the order in which they are applied.
///
/// # Errors
/// [`CustomizerError`].
pub fn list_objects(customizer: &Customizer) -> Result<Vec<Value>, CustomizerError> {
    if customizer.url.is_empty() {
        return Err(CustomizerError::NoUrl);
    }
    if !SCHEMES.iter().any(|scheme| customizer.url.starts_with(scheme)) {
        return Err(CustomizerError::Url);
    }
    if customizer.path.is_empty() {
        return Err(CustomizerError::NoPath);
    }
    if customizer.owned_namespaces.len() > MOST_NAMESPACES {
        return Err(CustomizerError::TooMany);
    }
    let mut objects = vec![
        make_account(),
        make_cluster_role(customizer.profile),
        make_cluster_role_binding(),
    ];
    for namespace in &customizer.owned_namespaces {
        check_namespace(namespace)?;
        objects.push(make_namespace(namespace));
        objects.push(make_role_binding(namespace, customizer.profile));
    }
    objects.push(make_surface(customizer));
    Ok(objects)
}

/// Returns the objects that grant rights, and the account. They are deleted with the customizer, after its Surface. Its namespaces stay, with
/// all their objects.
#[must_use]
pub fn list_rights(owned_namespaces: &[String]) -> Vec<Value> {
    let bindings = owned_namespaces
        .iter()
        .map(|namespace| make_role_binding(namespace, Profile::Restricted));
    let mut rights: Vec<Value> = bindings.collect();
    rights.extend([
        make_cluster_role_binding(),
        make_cluster_role(Profile::Restricted),
        make_account(),
    ]);
    rights
}

/// Returns the RoleBinding that gives the customizer's account the rights of a profile in a namespace.
#[must_use]
pub fn make_rights_in(namespace: &str, profile: Profile) -> Value {
    make_role_binding(namespace, profile)
}

/// Checks whether an existing object was made for the customizer. An object that only has the same name is never changed or
/// deleted.
#[must_use]
pub fn is_own(found: &Value) -> bool {
    let is_ours = ObjectView::new(found).find_label(MANAGED_BY) == Some(MANAGED_BY_TENURE);
    is_ours && found.get("subjects").is_none_or(names_account)
}

fn names_account(bound: &Value) -> bool {
    let wanted = subjects();
    let [Some(bound), Some(wanted)] = [bound, &wanted].map(|list| list.as_array().filter(|list| list.len() == 1))
    else {
        return false;
    };
    let text = |subject: &Value, key: &str| subject.get(key).and_then(Value::as_str).map(str::to_owned);
    let mut pairs = bound.iter().zip(wanted);
    pairs.all(|(bound, wanted)| {
        ["kind", "name", "namespace"]
            .iter()
            .all(|key| text(bound, key) == text(wanted, key))
    })
}

fn check_namespace(namespace: &str) -> Result<(), CustomizerError> {
    let refuse = |why| Err(CustomizerError::Namespace(namespace.to_owned(), why));
    if !is_dns_label(namespace) {
        return refuse("a namespace's name has lower-case letters, digits and '-'");
    }
    if namespace == PLATFORM_NAMESPACE || namespace == "default" || namespace.starts_with("kube-") {
        return refuse("it belongs to Kubernetes or to the platform");
    }
    if namespace.starts_with("cozy-") && namespace != OWNED_NAMESPACE {
        return refuse("it belongs to Cozystack, and every right there leads to cluster-admin");
    }
    Ok(())
}

fn labels() -> Value {
    json!({ MANAGED_BY: MANAGED_BY_TENURE })
}

fn make_account() -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": NAME, "namespace": PLATFORM_NAMESPACE, "labels": labels()}})
}

fn make_cluster_role(profile: Profile) -> Value {
    let all = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let read = ["get", "list", "watch"];
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let mut rules = vec![
        rule("cozystack.io", &["packagevalues"], &all),
        rule("helm.toolkit.fluxcd.io", &["helmreleases"], &read),
        // Two groups: the page names the first, and the platform's own operator serves the second.
        rule(
            "k8s.keycloak.org",
            &["keycloakrealmimports", "keycloaks", "keycloakusers"],
            &all,
        ),
        rule(
            "v1.edp.epam.com",
            &[
                "keycloakclients",
                "keycloakrealmgroups",
                "keycloakrealms",
                "keycloakrealmusers",
            ],
            &all,
        ),
    ];
    match profile {
        // An apply of a new Package needs `create`. No Package is deleted: `bundles.disabledPackages` of the
        // platform's Package serves that purpose.
        Profile::Admin => rules.extend([
            rule(
                "cozystack.io",
                &["packages"],
                // Fields of a chart can be overridden, with a warning.
                &["get", "list", "watch", "create", "update", "patch", "override"],
            ),
            rule("cozystack.io", &["packagesources"], &all),
            rule(
                "source.toolkit.fluxcd.io",
                &[
                    "buckets",
                    "externalartifacts",
                    "gitrepositories",
                    "helmcharts",
                    "helmrepositories",
                    "ocirepositories",
                ],
                &all,
            ),
        ]),
        Profile::Restricted => rules.push(rule("cozystack.io", &["packages", "packagesources"], &read)),
    }
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": CLUSTER_NAME, "labels": labels()}, "rules": rules})
}

fn subjects() -> Value {
    json!([{"kind": "ServiceAccount", "name": NAME, "namespace": PLATFORM_NAMESPACE}])
}

fn make_cluster_role_binding() -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": CLUSTER_NAME, "labels": labels()},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": CLUSTER_NAME}, "subjects": subjects()})
}

/// Returns a namespace that stays after the customizer is removed, also if a chart made it before. It may exist already, so the object names no
/// other owner.
fn make_namespace(namespace: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace,
        "labels": { OWNED_LABEL: "true" }, "annotations": {"helm.sh/resource-policy": "keep"}}})
}

fn make_role_binding(namespace: &str, profile: Profile) -> Value {
    let role = match profile {
        Profile::Admin => "cluster-admin",
        Profile::Restricted => TENANT_GITOPS_CLUSTER_ROLE,
    };
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": NAME, "namespace": namespace, "labels": labels()},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}, "subjects": subjects()})
}

fn make_surface(customizer: &Customizer) -> Value {
    let mut source = json!({"name": "config", "url": customizer.url, "ref": {"branch": customizer.branch}, "path": customizer.path,
        "interval": customizer.interval, "wait": true, "prune": true, "deletionPolicy": "Orphan", "patches": [make_package_patch()]});
    if let (Some(secret), Some(source)) = (&customizer.secret, source.as_object_mut()) {
        source.insert("secretRef".to_owned(), json!({ "name": secret }));
    }
    json!({"apiVersion": "tenure.dev/v1alpha1", "kind": "Surface",
        "metadata": {"name": NAME, "namespace": PLATFORM_NAMESPACE, "labels": labels()},
        "spec": {"serviceAccountName": NAME, "sources": [source]}})
}

/// Returns a patch of the Packages in the repository. They may be partial: fields that others have set in a Package stay. They are never deleted, which
/// the account may not do.
fn make_package_patch() -> Value {
    let patch = format!(
        "apiVersion: {PACKAGE_GROUP}/v1alpha1\nkind: Package\nmetadata:\n  name: any\n  annotations:\n    {SSA}: Merge\n    {PRUNE}: disabled\n"
    );
    json!({"target": {"group": PACKAGE_GROUP, "kind": "Package"}, "patch": patch})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn customizer(profile: Profile) -> Customizer {
        Customizer {
            profile,
            url: "https://git.example/platform.git".to_owned(),
            branch: "main".to_owned(),
            path: "./clusters/production".to_owned(),
            interval: "1m".to_owned(),
            secret: None,
            owned_namespaces: vec![OWNED_NAMESPACE.to_owned()],
        }
    }

    /// Returns the verbs on a resource of a group.
    fn verbs(profile: Profile, group: &str, resource: &str) -> Vec<String> {
        let role = make_cluster_role(profile);
        let rules = role["rules"].as_array().expect("rules");
        let has = |rule: &&Value, field: &str, word: &str| {
            rule[field]
                .as_array()
                .is_some_and(|words| words.iter().any(|one| one == word))
        };
        rules
            .iter()
            .filter(|rule| has(rule, "apiGroups", group) && has(rule, "resources", resource))
            .flat_map(|rule| rule["verbs"].as_array().expect("verbs"))
            .map(|verb| verb.as_str().expect("a word").to_owned())
            .collect()
    }

    #[test]
    fn customizer_profiles_grant_documented_verbs() {
        let all = ["get", "list", "watch", "create", "update", "patch", "delete"];
        let read = ["get", "list", "watch"];
        let admin = |group, resource| verbs(Profile::Admin, group, resource);
        assert_eq!(
            admin("cozystack.io", "packages"),
            ["get", "list", "watch", "create", "update", "patch", "override"]
        );
        assert_eq!(admin("cozystack.io", "packagesources"), all);
        assert_eq!(admin("helm.toolkit.fluxcd.io", "helmreleases"), read);
        assert_eq!(admin("k8s.keycloak.org", "keycloakusers"), all);
        assert_eq!(admin("source.toolkit.fluxcd.io", "gitrepositories"), all);
        let restricted = |group, resource| verbs(Profile::Restricted, group, resource);
        assert_eq!(restricted("cozystack.io", "packages"), read);
        assert_eq!(restricted("cozystack.io", "packagesources"), read);
        assert_eq!(restricted("cozystack.io", "packagevalues"), all);
        assert_eq!(restricted("source.toolkit.fluxcd.io", "ocirepositories"), [""; 0]);
    }

    #[test]
    fn packages_of_the_repository_are_merged_and_never_pruned() {
        for profile in [Profile::Admin, Profile::Restricted] {
            let patch = &make_surface(&customizer(profile))["spec"]["sources"][0]["patches"][0];
            assert_eq!(patch["target"], json!({"group": "cozystack.io", "kind": "Package"}));
            let text = patch["patch"].as_str().expect("a text");
            assert!(
                text.contains("/ssa: Merge\n") && text.contains("/prune: disabled\n"),
                "{text}"
            );
        }
    }

    #[test]
    fn customizer_roles_exclude_wildcards_workloads_and_package_deletion() {
        for profile in [Profile::Admin, Profile::Restricted] {
            assert!(!verbs(profile, "cozystack.io", "packages").contains(&"delete".to_owned()));
            let role = make_cluster_role(profile).to_string();
            for word in [
                "*",
                "customresourcedefinitions",
                "webhookconfigurations",
                "deployments",
                "\"\"",
            ] {
                assert!(!role.contains(word), "{word}");
            }
        }
        let objects = list_objects(&customizer(Profile::Admin)).expect("objects");
        let bindings = objects.iter().filter(|object| object["kind"] == "RoleBinding");
        let namespaces: Vec<&Value> = bindings.map(|binding| &binding["metadata"]["namespace"]).collect();
        assert_eq!(namespaces, [OWNED_NAMESPACE]);
        let role = |profile| make_role_binding("a", profile)["roleRef"]["name"].clone();
        assert_eq!(role(Profile::Admin), "cluster-admin");
        assert_eq!(role(Profile::Restricted), TENANT_GITOPS_CLUSTER_ROLE);
    }

    #[test]
    fn customizer_without_url_or_path_is_refused() {
        let without = |change: fn(&mut Customizer)| {
            let mut customizer = customizer(Profile::Admin);
            change(&mut customizer);
            list_objects(&customizer)
        };
        assert_eq!(
            without(|customizer| customizer.url.clear()),
            Err(CustomizerError::NoUrl)
        );
        assert_eq!(
            without(|customizer| customizer.path.clear()),
            Err(CustomizerError::NoPath)
        );
        let many = without(|customizer| customizer.owned_namespaces = vec!["a".to_owned(); 65]);
        assert_eq!(many, Err(CustomizerError::TooMany));
    }

    #[test]
    fn binding_is_own_only_with_its_label_and_subject() {
        for object in list_objects(&customizer(Profile::Admin)).expect("objects") {
            assert_eq!(is_own(&object), object["kind"] != "Namespace", "{object}");
        }
        let binding = make_role_binding("team", Profile::Admin);
        let with = |change: fn(&mut Value)| {
            let mut binding = binding.clone();
            change(&mut binding);
            is_own(&binding)
        };
        // In the form that the API server stores.
        assert!(with(|binding| binding["subjects"][0]["apiGroup"] = json!("")));
        assert!(!with(|binding| binding["metadata"]["labels"] = json!({})));
        assert!(!with(|binding| binding["subjects"][0]["namespace"] = json!("team")));
        assert!(!with(|binding| binding["subjects"] = json!([])));
        assert!(!with(|binding| {
            let more = binding["subjects"][0].clone();
            binding["subjects"] = json!([more, more]);
        }));
    }

    #[test]
    fn namespaces_of_the_system_and_the_platform_are_refused() {
        for namespace in [
            "kube-system",
            "kube-anything",
            "cozy-system",
            "cozy-fluxcd",
            "default",
            PLATFORM_NAMESPACE,
            "Not-A-Name",
            "",
        ] {
            let mut customizer = customizer(Profile::Restricted);
            customizer.owned_namespaces.push(namespace.to_owned());
            let refused = list_objects(&customizer);
            assert!(matches!(refused, Err(CustomizerError::Namespace(name, _)) if name == namespace));
        }
    }
}
