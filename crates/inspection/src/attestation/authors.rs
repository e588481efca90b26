//! Attacks of an author: a user with ClusterRole `tenure-author` in the tenant's home namespace, who writes what repositories are applied by, and may read no Secret.
//! Each attack leads to a Secret by another field.
//!
//! An author gets the Secrets of its own namespace by a detour, since its repositories are applied as the account of that namespace. That is documented, and no attack.

use serde_json::{Value, json};
use tenure_admission_rules::Rule;
use tenure_api::metadata::AUTHOR_CLUSTER_ROLE;
use tenure_tenancy::make_owner_reference;

use super::flux::make_kustomization_request;
use super::rights::set;
use super::{Attack, AttackRequest, ExpectedDefense, Names, Sender, Verb};

const RBAC: &str = "rbac.authorization.k8s.io";
const NOTIFICATION: &str = "notification.toolkit.fluxcd.io";
const SOURCE: &str = "source.toolkit.fluxcd.io";

/// Lists the author's account and its binding, path by path.
pub(super) fn list_fixtures(names: &Names) -> [(String, Value); 2] {
    let (tenant, author) = (names.tenant(), names.author());
    let metadata = json!({ "name": author, "ownerReferences": [make_owner_reference(&tenant, &names.tenant_uid)] });
    [
        (
            format!("/api/v1/namespaces/{}/serviceaccounts", names.platform),
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata }),
        ),
        (
            format!("/apis/{RBAC}/v1/namespaces/{tenant}/rolebindings"),
            json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": metadata,
                "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": AUTHOR_CLUSTER_ROLE },
                "subjects": [{ "kind": "ServiceAccount", "namespace": names.platform, "name": author }],
            }),
        ),
    ]
}

pub(super) fn list(names: &Names) -> Vec<Attack> {
    let mut attacks = list_by_rights(names);
    attacks.extend(list_by_kustomization(names));
    attacks.extend(list_by_others(names));
    attacks
}

/// Returns an author's valid Kustomization, apart from `change`.
fn write_kustomization(names: &Names, change: &dyn Fn(&mut Value)) -> AttackRequest {
    AttackRequest {
        who: Sender::Author,
        ..make_kustomization_request(names, change)
    }
}

/// Returns an author's request for a new object.
fn make_create_request(namespace: &str, (group, version, plural): (&str, &str, &str), object: Value) -> AttackRequest {
    let path = format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}");
    AttackRequest::new(Sender::Author, Verb::Create, path, object)
}

fn write_surface(namespace: &str, source: Value) -> AttackRequest {
    let mut sources = json!([{ "name": "a", "url": "https://git.attest.invalid/a.git" }]);
    if let (Some(only), Value::Object(more)) = (sources.pointer_mut("/0").and_then(Value::as_object_mut), source) {
        only.extend(more);
    }
    let object = json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "metadata": { "name": "attest" },
        "spec": { "suspend": true, "sources": sources },
    });
    make_create_request(namespace, ("tenure.dev", "v1alpha1", "surfaces"), object)
}

fn list_by_rights(names: &Names) -> Vec<Attack> {
    let (home, other) = (names.tenant(), names.neighbour());
    let read = |path: String| AttackRequest::new(Sender::Author, Verb::Read, path, Value::Null);
    let see = || {
        read(format!(
            "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/{home}/kustomizations"
        ))
    };
    let token = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
    let path = format!("/api/v1/namespaces/{home}/serviceaccounts/{}/token", names.account());
    let secrets = |namespace: &str| read(format!("/api/v1/namespaces/{namespace}/secrets"));
    vec![
        Attack::new(
            "author-reads-secrets",
            "an author reads the Secrets of the home namespace",
            ExpectedDefense::Rbac,
            secrets(&home),
            see(),
        ),
        Attack::new(
            "author-reads-secrets-of-the-platform",
            "an author reads the platform's Secrets",
            ExpectedDefense::Rbac,
            secrets(&names.platform),
            see(),
        ),
        Attack::new(
            "author-takes-a-token",
            "an author asks for a token of the account that applies, and would read Secrets with it",
            ExpectedDefense::Rbac,
            AttackRequest::new(Sender::Author, Verb::Create, path, token),
            write_kustomization(names, &|_| ()),
        ),
        Attack::new(
            "author-writes-to-a-neighbour",
            "an author creates a Surface in another tenant's home namespace, whose account would read Secrets there",
            ExpectedDefense::Rbac,
            write_surface(&other, json!({})),
            write_surface(&home, json!({})),
        ),
    ]
}

fn list_by_kustomization(names: &Names) -> Vec<Attack> {
    let other = names.neighbour();
    let references = ExpectedDefense::Rule(Rule::FluxReferences);
    let with = |field: &'static str, value: Value| {
        write_kustomization(names, &move |object| set(object, "/spec", field, value.clone()))
    };
    // If a kind's schema has no such field, the server drops the field before any check.
    let named = |namespace: Option<&str>| match namespace {
        Some(namespace) => json!({ "name": "x", "namespace": namespace }),
        None => json!({ "name": "x" }),
    };
    let from = |namespace: Option<&str>| {
        let mut source = named(namespace);
        set(&mut source, "", "kind", json!("Secret"));
        json!({ "substituteFrom": [source] })
    };
    let key = |namespace: Option<&str>| json!({ "provider": "sops", "secretRef": named(namespace) });
    let kubeconfig = |namespace: Option<&str>| json!({ "secretRef": named(namespace) });
    let neighbour = Some(other.as_str());
    vec![
        Attack::new(
            "author-chooses-an-account",
            "an author's Kustomization acts as another account, which may read other Secrets",
            ExpectedDefense::Rule(Rule::FluxAccount),
            with("serviceAccountName", json!("default")),
            with("serviceAccountName", json!(names.account())),
        ),
        Attack::new(
            "author-takes-variables",
            "an author's Kustomization takes variables from another tenant's Secret",
            references,
            with("postBuild", from(neighbour)),
            with("postBuild", from(None)),
        )
        .seen_by("/spec/postBuild/substituteFrom/0/namespace", json!(other)),
        Attack::new(
            "author-takes-a-key",
            "an author's Kustomization decrypts with a key in another tenant's Secret",
            references,
            with("decryption", key(neighbour)),
            with("decryption", key(None)),
        )
        .seen_by("/spec/decryption/secretRef/namespace", json!(other)),
        Attack::new(
            "author-takes-a-kubeconfig",
            "an author's Kustomization uses a kubeconfig in another tenant's Secret",
            references,
            with("kubeConfig", kubeconfig(neighbour)),
            with("kubeConfig", kubeconfig(None)),
        )
        .seen_by("/spec/kubeConfig/secretRef/namespace", json!(other)),
    ]
}

fn list_by_others(names: &Names) -> Vec<Attack> {
    let (home, other) = (names.tenant(), names.neighbour());
    let references = ExpectedDefense::Rule(Rule::FluxReferences);
    let secret = |namespace: Option<&str>| match namespace {
        Some(namespace) => json!({ "name": "x", "namespace": namespace }),
        None => json!({ "name": "x" }),
    };
    let repository = |namespace: Option<&str>| {
        let object = json!({
            "apiVersion": format!("{SOURCE}/v1"), "kind": "GitRepository", "metadata": { "name": "attest" },
            "spec": { "interval": "1h", "url": "https://git.attest.invalid/a.git", "secretRef": secret(namespace) },
        });
        make_create_request(&home, (SOURCE, "v1", "gitrepositories"), object)
    };
    let provider = |namespace: Option<&str>| {
        let object = json!({
            "apiVersion": format!("{NOTIFICATION}/v1beta3"), "kind": "Provider", "metadata": { "name": "attest" },
            "spec": { "type": "slack", "address": "https://own.attest.invalid/", "secretRef": secret(namespace) },
        });
        make_create_request(&home, (NOTIFICATION, "v1beta3", "providers"), object)
    };
    let receiver = |namespace: Option<&str>| {
        let object = json!({
            "apiVersion": format!("{NOTIFICATION}/v1"), "kind": "Receiver", "metadata": { "name": "attest" },
            "spec": {
                "type": "generic", "secretRef": secret(namespace), "resources": [{ "kind": "GitRepository", "name": "none" }],
            },
        });
        make_create_request(&home, (NOTIFICATION, "v1", "receivers"), object)
    };
    let surface = |namespace: Option<&str>| write_surface(&home, json!({ "secretRef": secret(namespace) }));
    let neighbour = Some(other.as_str());
    let tried = |name, tries, make: &dyn Fn(Option<&str>) -> AttackRequest, pointer| {
        Attack::new(name, tries, references, make(neighbour), make(None)).seen_by(pointer, json!(other))
    };
    vec![
        tried(
            "author-fetches-with-a-credential",
            "an author's GitRepository shows another tenant's credential to a server of the author",
            &repository,
            "/spec/secretRef/namespace",
        ),
        tried(
            "author-notifies-with-a-credential",
            "an author's Provider shows another tenant's credential to an address of the author",
            &provider,
            "/spec/secretRef/namespace",
        ),
        tried(
            "author-receives-with-a-token",
            "an author's Receiver has a path that follows from another tenant's token",
            &receiver,
            "/spec/secretRef/namespace",
        ),
        tried(
            "author-surface-with-a-credential",
            "an author's Surface shows another tenant's credential to a server of the author",
            &surface,
            "/spec/sources/0/secretRef/namespace",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::names;
    use super::*;

    /// The author has the rights of its ClusterRole in the home namespace, and no others: each attack shows what this role reaches.
    #[test]
    fn every_author_attack_is_sent_with_author_rights() {
        let names = names();
        for attack in list(&names) {
            for request in [&attack.attempt, &attack.control] {
                assert_eq!(request.who, Sender::Author, "{}", attack.name);
                assert!(request.verb == Verb::Read || request.dry_run, "{}", attack.name);
            }
            assert!(attack.name.starts_with("author-"), "{}", attack.name);
        }
        let [(_, account), (path, binding)] = list_fixtures(&names);
        assert_eq!(binding["roleRef"]["name"], AUTHOR_CLUSTER_ROLE);
        assert_eq!(binding["subjects"][0]["name"], account["metadata"]["name"]);
        assert!(path.contains(&names.tenant()), "{path}");
    }
}
