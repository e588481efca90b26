//! `spec.postBuild`: the substituted text, the account that reads the variables, and the changes of variables that start an attempt.

use serde_json::{Value, json};

use crate::stage::{CONFIG_MAP, KUSTOMIZATION, Stage, config_map};

const SECRET: (&str, &str) = ("v1", "Secret");
/// The value that must not appear in any status or event.
const VALUE: &str = "731731";

fn variables(kind: &str, namespace: &str, name: &str, data: &Value, labels: &Value) -> Value {
    let field = if kind == "Secret" { "stringData" } else { "data" };
    json!({
        "apiVersion": "v1", "kind": kind, "metadata": { "name": name, "namespace": namespace, "labels": labels }, field: data,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn variables_are_substituted_in_what_was_built() {
    let namespace = "post-build-a";
    let stage = Stage::set(namespace).await;
    for object in [
        variables(
            "ConfigMap",
            namespace,
            "vars",
            &json!({ "colour": "red", "size": "lar\nge" }),
            &json!({}),
        ),
        variables("Secret", namespace, "vars", &json!({ "password": VALUE }), &json!({})),
    ] {
        stage.admin.apply(object).await.unwrap();
    }
    let object = |name: &str, rest: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n{rest}");
    let substituted = object(
        "${size}-one",
        "data: {colour: \"${colour}\", size: \"${size^}\", shape: \"${shape:=round}\", plain: \"$${colour} $colour\"}\nimmutable: ${fixed}\n",
    );
    let left_alone = object(
        "two",
        "  annotations: {kustomize.toolkit.fluxcd.io/substitute: disabled}\ndata: {colour: \"${colour}\"}\n",
    );
    let secret = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: three\nstringData: {password: \"x${password}\"}\n";
    let files = [("a.yaml", &*substituted), ("b.yaml", &*left_alone), ("c.yaml", secret)];
    stage.repository(namespace, "app", &files).await;
    let spec = json!({
        "postBuild": {
            "substitute": { "colour": "teal", "fixed": "false" },
            "substituteFrom": [
                { "kind": "ConfigMap", "name": "vars" },
                { "kind": "Secret", "name": "vars" },
                { "kind": "Secret", "name": "none", "optional": true },
            ],
        },
        "commonMetadata": { "annotations": { "example.com/raw": "${colour}" } },
    });
    stage.kustomization(namespace, "app", "app", spec).await;
    stage
        .ready(KUSTOMIZATION, (namespace, "app"), "True", "ReconciliationSucceeded")
        .await;
    let one = stage.get(CONFIG_MAP, (namespace, "large-one")).await.unwrap();
    assert_eq!(
        one["data"],
        json!({ "colour": "teal", "size": "Large", "shape": "round", "plain": "${colour} $colour" })
    );
    assert_eq!(one["immutable"], false, "a text became what it says");
    assert_eq!(
        one["metadata"]["annotations"]["example.com/raw"], "${colour}",
        "laid over it afterwards"
    );
    let two = stage.get(CONFIG_MAP, (namespace, "two")).await.unwrap();
    assert_eq!(two["data"]["colour"], "${colour}");
    let three = stage.get(SECRET, (namespace, "three")).await.unwrap();
    assert_eq!(three["data"]["password"], "eDczMTczMQ==");
    is_nowhere(&stage, namespace).await;

    // A change of an object without the label is seen at the next rendering, here after a request.
    let changed = variables(
        "ConfigMap",
        namespace,
        "vars",
        &json!({ "colour": "red", "size": "huge" }),
        &json!({}),
    );
    stage.admin.apply(changed).await.unwrap();
    let asked = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": "now" } } });
    stage
        .admin
        .patch(KUSTOMIZATION, (namespace, "app"), asked)
        .await
        .unwrap();
    let is_there = |object: Option<&Value>| object.is_some();
    stage.wait_for(CONFIG_MAP, (namespace, "huge-one"), is_there).await;
    let is_gone = |object: Option<&Value>| object.is_none();
    stage.wait_for(CONFIG_MAP, (namespace, "large-one"), is_gone).await;
    stage.shut_down().await;
}

async fn is_nowhere(stage: &Stage, namespace: &str) {
    let status = stage.get(KUSTOMIZATION, (namespace, "app")).await.unwrap()["status"].to_string();
    assert!(!status.contains(VALUE), "{status}");
    for event in stage.admin.list(("v1", "Event"), namespace).await.unwrap() {
        assert!(!event.to_string().contains(VALUE), "{event:#}");
    }
}

/// Returns where an object was written, as `tenure who` reports it.
async fn find_origin(stage: &Stage, namespace: &str, kustomization: &str, id: &str) -> Result<String, String> {
    let origin = stage.get(KUSTOMIZATION, (namespace, kustomization)).await.unwrap();
    let source = stage
        .get(crate::stage::GIT_REPOSITORY, (namespace, kustomization))
        .await
        .unwrap();
    let origin = serde_json::from_value(origin).unwrap();
    let metadata = serde_json::from_value(source["metadata"].clone()).unwrap();
    let id = format!("{namespace}_{id}").parse().unwrap();
    let built = tenure_controllers::build_object(&stage.artifacts(), (&origin, &metadata), &id);
    built
        .map(|built| built.origin.location.to_string())
        .map_err(|error| error.to_string())
}

/// The search reads no ConfigMap and no Secret, and reports that where it matters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_of_object_is_found_with_inline_variables() {
    let namespace = "post-build-e";
    let stage = Stage::set(namespace).await;
    let vars = variables("ConfigMap", namespace, "vars", &json!({ "size": "large" }), &json!({}));
    stage.admin.apply(vars).await.unwrap();
    let (one, two) = (config_map("${size:=no}-one", "1"), config_map("two", "${size:=no}"));
    let files = [("a.yaml", &*one), ("b.yaml", &*two)];
    for (name, post_build) in [
        ("inline", json!({ "substitute": { "size": "small" } })),
        (
            "from",
            json!({ "substituteFrom": [{ "kind": "ConfigMap", "name": "vars" }] }),
        ),
    ] {
        stage.repository(namespace, name, &files).await;
        let spec = json!({ "postBuild": post_build, "nameSuffix": format!("-{name}") });
        stage.kustomization(namespace, name, name, spec).await;
        stage
            .ready(KUSTOMIZATION, (namespace, name), "True", "ReconciliationSucceeded")
            .await;
    }
    let found = find_origin(&stage, namespace, "inline", "small-one-inline__ConfigMap").await;
    assert_eq!(found.unwrap(), "a.yaml:1");
    let found = find_origin(&stage, namespace, "from", "two-from__ConfigMap").await;
    assert_eq!(found.unwrap(), "b.yaml:1");
    let unknown = find_origin(&stage, namespace, "from", "large-one-from__ConfigMap")
        .await
        .unwrap_err();
    assert!(
        unknown.contains("the variables of ConfigMap/vars (spec.postBuild.substituteFrom) are unknown"),
        "{unknown}"
    );
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_labelled_variable_sources_apply_immediately() {
    let namespace = "post-build-b";
    let stage = Stage::set(namespace).await;
    let labels = json!({ "reconcile.fluxcd.io/watch": "Enabled" });
    let of =
        |kind: &str, value: &str| variables(kind, namespace, "vars", &json!({ kind.to_lowercase(): value }), &labels);
    for object in [of("ConfigMap", "one"), of("Secret", "two")] {
        stage.admin.apply(object).await.unwrap();
    }
    let map = config_map("m", "${configmap} ${secret}");
    stage.repository(namespace, "app", &[("a.yaml", &map)]).await;
    let from = |kind: &str| json!({ "kind": kind, "name": "vars" });
    let spec = json!({ "postBuild": { "substituteFrom": [from("ConfigMap"), from("Secret")] } });
    stage.kustomization(namespace, "app", "app", spec).await;
    let is = async |expected: &str| {
        let holds = |object: Option<&Value>| object.is_some_and(|object| object["data"].to_string().contains(expected));
        stage.wait_for(CONFIG_MAP, (namespace, "m"), holds).await;
    };
    is("one two").await;
    // Not by the interval, which is ten minutes.
    stage.admin.apply(of("ConfigMap", "three")).await.unwrap();
    is("three two").await;
    stage.admin.apply(of("Secret", "four")).await.unwrap();
    is("three four").await;
    stage.shut_down().await;
}

/// A Kustomization that applies its own variables, and makes them longer each time, is applied once for each reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_changes_of_variables_start_no_attempt() {
    let namespace = "post-build-f";
    let stage = Stage::set(namespace).await;
    let vars = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: vars\n  labels: {reconcile.fluxcd.io/watch: Enabled}\ndata:\n  v: ${v:=a}a\n";
    stage.repository(namespace, "app", &[("a.yaml", vars)]).await;
    let spec = json!({ "postBuild": {
        "substituteFrom": [{ "kind": "ConfigMap", "name": "vars", "optional": true }], "substituteStrategy": "Always",
    } });
    stage.kustomization(namespace, "app", "app", spec).await;
    stage
        .ready(KUSTOMIZATION, (namespace, "app"), "True", "ReconciliationSucceeded")
        .await;
    for (round, expected) in ["aa", "aaa", "aaaa", "aaaaa"].into_iter().enumerate() {
        if round > 0 {
            let asked = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": expected } } });
            stage
                .admin
                .patch(KUSTOMIZATION, (namespace, "app"), asked)
                .await
                .unwrap();
            let is_handled = |object: Option<&Value>| {
                object.is_some_and(|object| object["status"]["lastHandledReconcileAt"] == expected)
            };
            stage.wait_for(KUSTOMIZATION, (namespace, "app"), is_handled).await;
        }
        let vars = stage.get(CONFIG_MAP, (namespace, "vars")).await.unwrap();
        assert_eq!(vars["data"]["v"], expected);
    }
    stage.shut_down().await;
}

/// Flux reads the objects of `substituteFrom` as its own controller: a user that may write a Kustomization can read every Secret beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn variable_secrets_are_read_only_as_applying_account() {
    let namespace = "post-build-c";
    let stage = Stage::set(namespace).await;
    let role = |rules: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": { "name": "limited", "namespace": namespace }, "rules": rules,
        })
    };
    let maps = json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"] });
    for object in [
        variables(
            "Secret",
            namespace,
            "vars",
            &json!({ "password": format!("x{VALUE}") }),
            &json!({}),
        ),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "limited", "namespace": namespace } }),
        role(json!([maps])),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": "limited", "namespace": namespace },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "limited" },
            "subjects": [{ "kind": "ServiceAccount", "name": "limited", "namespace": namespace }],
        }),
    ] {
        stage.admin.apply(object).await.unwrap();
    }
    let map = config_map("m", "${password}");
    stage.repository(namespace, "app", &[("a.yaml", &map)]).await;
    let spec = json!({
        "serviceAccountName": "limited",
        "postBuild": { "substituteFrom": [{ "kind": "Secret", "name": "vars", "optional": true }] },
    });
    stage.kustomization(namespace, "app", "app", spec).await;
    let message = stage
        .ready(KUSTOMIZATION, (namespace, "app"), "False", "BuildFailed")
        .await;
    let expected = format!(
        "substitute from 'Secret/vars' error: system:serviceaccount:{namespace}:limited may not get this Secret"
    );
    assert!(message.contains(&expected), "{message}");
    assert!(stage.get(CONFIG_MAP, (namespace, "m")).await.is_none());
    // Only that Secret, without list and watch on its kind.
    let one = json!({ "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["vars"], "verbs": ["get"] });
    stage.admin.apply(role(json!([maps, one]))).await.unwrap();
    let value = |object: Option<&Value>| object.is_some_and(|object| object["data"].to_string().contains(VALUE));
    stage.wait_for(CONFIG_MAP, (namespace, "m"), value).await;
    stage
        .ready(KUSTOMIZATION, (namespace, "app"), "True", "ReconciliationSucceeded")
        .await;
    is_nowhere(&stage, namespace).await;
    stage.shut_down().await;
}

/// The API server quotes refused objects, and a build error names objects by their substituted names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secret_values_are_in_no_status_or_event() {
    let namespace = "post-build-d";
    let stage = Stage::set(namespace).await;
    let value = format!("{VALUE} is no label");
    let secret = variables(
        "Secret",
        namespace,
        "vars",
        &json!({ "password": value, "name": VALUE, "list": format!("[{VALUE}") }),
        &json!({}),
    );
    stage.admin.apply(secret).await.unwrap();
    let labelled = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\n  labels:\n    p: ${password}\n";
    let repository = stage.repository(namespace, "app", &[("a.yaml", labelled)]).await;
    let spec = json!({ "postBuild": { "substituteFrom": [{ "kind": "Secret", "name": "vars" }] } });
    stage.kustomization(namespace, "app", "app", spec).await;
    let failed = async |reason: &str, part: &str| {
        let is_reported = |object: Option<&Value>| {
            let ready = object.and_then(|object| crate::stage::condition(object, "Ready"));
            ready.is_some_and(|ready| ready["reason"] == reason && ready["message"].to_string().contains(part))
        };
        stage.wait_for(KUSTOMIZATION, (namespace, "app"), is_reported).await;
        is_nowhere(&stage, namespace).await;
    };
    failed("ReconciliationFailed", "metadata.labels: is not valid").await;
    let named = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x${name}\n";
    crate::stage::commit(&repository, &[("a.yaml", named)]).await;
    failed("BuildFailed", "take the variable from a ConfigMap").await;
    // A text that looks like a number becomes a number if it has no quotes.
    let number = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n  a: ${name}\n";
    crate::stage::commit(&repository, &[("a.yaml", number)]).await;
    failed("ReconciliationFailed", "data.a must be a string and is a number").await;
    let missing = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n  a: ${password}\n  b: ${nobody}\n";
    crate::stage::commit(&repository, &[("a.yaml", missing)]).await;
    failed("BuildFailed", "a.yaml:7: ").await;
    let unreadable = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n  b: ${list}\n";
    crate::stage::commit(&repository, &[("a.yaml", unreadable)]).await;
    failed("BuildFailed", "it is not said why").await;
    stage.shut_down().await;
}
