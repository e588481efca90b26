//! The objects that the flags describe, as data: each has the fields of its kind's type, and passes the schema of its kind.

use clap::Parser;
use serde_json::{Value, json};
use tenure_kinds::customresources::CustomSchema;
use tenure_kinds::schema::ObjectSchema as _;

use super::Create;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    create: Create,
}

fn read(arguments: &str) -> Result<Value, String> {
    let words = std::iter::once("create").chain(arguments.split_whitespace());
    let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
    let (_, new) = line.create.kind.write().map_err(|failure| failure.message)?;
    Ok(new.object)
}

/// Checks an object against the definition of its kind, as an API server does.
fn check_schema(object: &Value) {
    let definitions = tenure_api::crds::crds().expect("definitions");
    let definition = definitions
        .iter()
        .find(|definition| definition["spec"]["names"]["kind"] == object["kind"]);
    let (_, version) = object["apiVersion"]
        .as_str()
        .and_then(|text| text.split_once('/'))
        .expect("a version");
    let schema = CustomSchema::new(definition.expect("a definition"), version).expect("a schema");
    assert_eq!(schema.unknown_fields(object), Vec::<String>::new(), "{object}");
    let errors = schema.validate(object);
    assert!(errors.is_empty(), "{object}: {errors:?}");
}

#[test]
fn flags_become_the_fields_of_the_kind() {
    let source = "source.toolkit.fluxcd.io/v1";
    let check = |arguments: &str, version: &str, kind: &str, metadata: Value, spec: Value| {
        let object = read(arguments).expect(arguments);
        check_schema(&object);
        let expected = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
        assert_eq!(object, expected, "{arguments}");
    };
    check(
        "source git app --url https://git.example.org/app --branch main",
        source,
        "GitRepository",
        json!({"name": "app"}),
        json!({"url": "https://git.example.org/app", "interval": "1m", "ref": {"branch": "main"}}),
    );
    check(
        "source git app -n team-a --label a=b,c=d --url ssh://git@git.example.org/app --tag-semver >=1.0 --interval 10m \
         --secret-ref key --proxy-secret-ref proxy --provider github --recurse-submodules --ignore-paths *.md,/docs \
         --sparse-checkout-paths deploy",
        source,
        "GitRepository",
        json!({"name": "app", "namespace": "team-a", "labels": {"a": "b", "c": "d"}}),
        json!({
            "url": "ssh://git@git.example.org/app", "interval": "10m", "ref": {"semver": ">=1.0"}, "secretRef": {"name": "key"},
            "proxySecretRef": {"name": "proxy"}, "provider": "github", "recurseSubmodules": true, "ignore": "*.md\n/docs",
            "sparseCheckout": ["deploy"]
        }),
    );
    check(
        "source oci app --url oci://ghcr.io/org/app --tag latest --insecure --cert-ref tls --service-account puller \
         --verify-provider cosign --verify-secret-ref keys",
        source,
        "OCIRepository",
        json!({"name": "app"}),
        json!({
            "url": "oci://ghcr.io/org/app", "interval": "1m", "ref": {"tag": "latest"}, "insecure": true, "certSecretRef": {"name": "tls"},
            "serviceAccountName": "puller", "verify": {"provider": "cosign", "secretRef": {"name": "keys"}}
        }),
    );
    check(
        "source bucket app --bucket-name app --endpoint minio:9000 --region eu --prefix web/ --provider aws --secret-ref key",
        source,
        "Bucket",
        json!({"name": "app"}),
        json!({
            "bucketName": "app", "endpoint": "minio:9000", "region": "eu", "prefix": "web/", "provider": "aws", "interval": "1m",
            "secretRef": {"name": "key"}
        }),
    );
    check(
        "kustomization app --source app",
        "kustomize.toolkit.fluxcd.io/v1",
        "Kustomization",
        json!({"name": "app"}),
        json!({
            "sourceRef": {"kind": "GitRepository", "name": "app"}, "path": "./", "prune": false, "interval": "1m"
        }),
    );
    check(
        "ks app --source OCIRepository/app.team-b --path ./deploy --prune --interval 5m --retry-interval 1m --wait \
         --health-check Deployment/web.team-a --depends-on base,team-b/crds --service-account deployer --target-namespace team-a \
         --decryption-provider sops --decryption-secret age --kubeconfig-secret-ref other",
        "kustomize.toolkit.fluxcd.io/v1",
        "Kustomization",
        json!({"name": "app"}),
        json!({
            "sourceRef": {"kind": "OCIRepository", "name": "app", "namespace": "team-b"}, "path": "./deploy", "prune": true,
            "interval": "5m", "retryInterval": "1m", "wait": true, "timeout": "2m",
            "healthChecks": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "team-a"}],
            "dependsOn": [{"name": "base"}, {"name": "crds", "namespace": "team-b"}], "serviceAccountName": "deployer",
            "targetNamespace": "team-a", "decryption": {"provider": "sops", "secretRef": {"name": "age"}},
            "kubeConfig": {"secretRef": {"name": "other"}}
        }),
    );
    check(
        "surface app -n team-a --url https://git.example.org/app --branch main --path deploy",
        "tenure.dev/v1alpha1",
        "Surface",
        json!({"name": "app", "namespace": "team-a"}),
        json!({"sources": [{"name": "app", "url": "https://git.example.org/app", "ref": {"branch": "main"}, "path": "deploy"}]}),
    );
    check(
        "surface app --url https://git.example.org/app --source-name code --path web=deploy/web --path api=deploy/api --prune=false \
         --deletion-policy Orphan --service-account platform --decryption-provider sops --decryption-secret age",
        "tenure.dev/v1alpha1",
        "Surface",
        json!({"name": "app"}),
        json!({"serviceAccountName": "platform", "sources": [{
            "name": "code", "url": "https://git.example.org/app", "prune": false, "deletionPolicy": "Orphan",
            "paths": [{"name": "web", "path": "deploy/web"}, {"name": "api", "path": "deploy/api"}],
            "decryption": {"provider": "sops", "secretRef": {"name": "age"}}
        }]}),
    );
    check(
        "tenant team-a --user alice,bob --group devs --serviceaccount ci:deployer --namespace-quota 3",
        "capsule.clastix.io/v1beta2",
        "Tenant",
        json!({"name": "team-a"}),
        json!({
            "owners": [
                {"kind": "User", "name": "alice"}, {"kind": "User", "name": "bob"}, {"kind": "Group", "name": "devs"},
                {"kind": "ServiceAccount", "name": "system:serviceaccount:ci:deployer"}
            ],
            "namespaceOptions": {"quota": 3}
        }),
    );
    check(
        "tenant team-a --user alice --cluster-role view",
        "capsule.clastix.io/v1beta2",
        "Tenant",
        json!({"name": "team-a"}),
        json!({"owners": [{"kind": "User", "name": "alice", "clusterRoles": ["view"]}]}),
    );
    check(
        "receiver github --type github --event ping,push --secret-ref token --resource GitRepository/app,kustomization/app.team-b",
        "notification.toolkit.fluxcd.io/v1",
        "Receiver",
        json!({"name": "github"}),
        json!({
            "type": "github", "events": ["ping", "push"], "secretRef": {"name": "token"},
            "resources": [{"kind": "GitRepository", "name": "app"}, {"kind": "Kustomization", "name": "app", "namespace": "team-b"}]
        }),
    );
    check(
        "alert chat --provider-ref slack --event-severity error --event-source Kustomization/*",
        "notification.toolkit.fluxcd.io/v1beta3",
        "Alert",
        json!({"name": "chat"}),
        json!({
            "providerRef": {"name": "slack"}, "eventSeverity": "error", "eventSources": [{"kind": "Kustomization", "name": "*"}]
        }),
    );
}

#[test]
fn wrong_flags_are_refused_before_any_request() {
    for (arguments, words) in [
        ("source git app --branch main", "--url"),
        ("source git app --url https://git.example.org/app", "no revision"),
        (
            "source git app --url git@git.example.org:app --branch main",
            "no address",
        ),
        (
            "source git app --url https://a/b --branch main --interval soon",
            "duration",
        ),
        (
            "source oci app --url https://ghcr.io/org/app --tag latest",
            "no address",
        ),
        ("source oci app --url oci://ghcr.io/org/app", "--tag"),
        ("kustomization app", "--source"),
        (
            "kustomization app --source HelmRepository/app",
            "is not one of the kinds",
        ),
        ("surface app --url https://a/b --path web=a --path b", "has a name"),
        ("tenant team-a", "--user"),
        ("tenant team-a --serviceaccount deployer", "NAMESPACE:NAME"),
        (
            "receiver github --type github --secret-ref token --resource GitRepository/*",
            "matchLabels",
        ),
        (
            "receiver github --type gcr --secret-ref token --resource GitRepository/a",
            "gcr",
        ),
        ("alert chat --event-source Kustomization/*", "--provider-ref"),
    ] {
        let refused = read(arguments).expect_err(arguments);
        assert!(refused.contains(words), "{arguments}: {refused}");
    }
}

#[test]
fn only_kinds_in_namespaces_get_one() {
    let place = |arguments: &str| {
        let words = std::iter::once("create").chain(arguments.split_whitespace());
        let line = Line::try_parse_from(words).expect("flags");
        let (_, mut new) = line.create.kind.write().expect("an object");
        let namespace = super::place_object(&mut new, "team-a");
        (namespace, new.object["metadata"]["namespace"].clone())
    };
    assert_eq!(
        place("kustomization app --source app"),
        (Some("team-a".to_owned()), json!("team-a"))
    );
    assert_eq!(
        place("kustomization app --source app -n team-b"),
        (Some("team-b".to_owned()), json!("team-b"))
    );
    assert_eq!(place("tenant team-a --user alice"), (None, Value::Null));
}
