//! Attacks with expressions, patterns and rules of a tenant: to read other namespaces, to use other tenants' processors, to learn a Secret's content,
//! or to act as another account.

use serde_json::{Value, json};

use super::{Scene, attack, own_folders};
use crate::stage::{CONFIG_MAP, KUSTOMIZATION, condition, config_map};
use crate::tenants::{surface, surface_ready};

/// An expression reveals neither the existence nor the state of an object in another namespace: one bit would be enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expression_tells_nothing_of_another_tenant() {
    let scene = Scene::set("attacks-oracle").await;
    let there = json!({
        "apiVersion": KUSTOMIZATION.0, "kind": KUSTOMIZATION.1,
        "metadata": { "name": "there", "namespace": scene.alpha },
        "spec": { "interval": "1m", "prune": true, "suspend": true, "sourceRef": { "kind": "GitRepository", "name": "x" } }
    });
    scene.stage.admin.apply(there).await.unwrap();
    let mut messages = Vec::new();
    for (name, expression) in [
        ("there", "dep.spec.suspend == true"),
        ("there", "false"),
        ("absent", "true"),
    ] {
        let spec = json!({ "dependsOn": [{ "name": name, "namespace": "ALPHA", "readyExpr": expression }] });
        scene.mallory.apply(scene.kustomization("oracle", &spec)).await.unwrap();
        let expected = scene.fill(&format!("can't depend on 'Kustomization/ALPHA/{name}'"));
        let object = scene
            .stage
            .wait_for(KUSTOMIZATION, (&scene.evil, "oracle"), |object| {
                let ready = object.and_then(|object| condition(object, "Ready"));
                ready.is_some_and(|ready| ready["message"].as_str().unwrap().starts_with(&expected))
            })
            .await
            .unwrap();
        let ready = condition(&object, "Ready").unwrap();
        assert_eq!(ready["reason"], "AccessDenied");
        messages.push(ready["message"].as_str().unwrap().replace(name, "NAME"));
    }
    assert!(messages.windows(2).all(|pair| pair[0] == pair[1]), "{messages:#?}");
    scene.shut_down().await;
}

/// One tenant uses up its budget, and the others' work continues meanwhile. The planner's tests measure the cost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn costly_expressions_use_only_their_tenants_budget() {
    let scene = Scene::set("attacks-burner").await;
    let (evil, alpha) = (scene.evil.clone(), scene.alpha.clone());
    let files: Vec<(String, String)> = (0..40)
        .map(|at| {
            (
                format!("maps/{at}.yaml"),
                config_map(&format!("m{at}"), &"x".repeat(10_000)),
            )
        })
        .collect();
    scene.serve(&files).await;
    let list = "[1,2,3,4,5,6,7,8,9,10]";
    let burner = format!(
        "{list}.all(a, {list}.all(b, {list}.all(c, {list}.all(d, {list}.all(e, data.value.contains('y') == false)))))"
    );
    let spec = json!({
        "path": "./maps", "wait": true, "timeout": "10m", "interval": "1s",
        "healthCheckExprs": [{ "apiVersion": "v1", "kind": "ConfigMap", "current": burner }],
    });
    scene.mallory.apply(scene.kustomization("burner", &spec)).await.unwrap();
    let is_waiting = |object: Option<&Value>| {
        let healthy = object.and_then(|object| condition(object, "Healthy"));
        healthy.is_some_and(|healthy| healthy["status"] == "Unknown")
    };
    scene.stage.wait_for(KUSTOMIZATION, (&evil, "burner"), is_waiting).await;
    // Each write wakes this tenant.
    let woken = async {
        for round in 0..20 {
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m0", "namespace": evil },
                "data": { "round": round.to_string() }
            });
            scene.stage.admin.apply_as("mallory", map).await.unwrap();
        }
    };
    let others = async {
        let files = [("a.yaml", config_map("a", "1"))];
        let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
        let spec = json!({});
        surface(&scene.stage, &alpha, "apps", &files, spec).await;
        surface_ready(&scene.stage, (&alpha, "apps")).await;
    };
    tokio::join!(woken, others);
    assert!(scene.stage.get(CONFIG_MAP, (&alpha, "a")).await.is_some());

    // The cost is reported, at the end of the time limit.
    let spec = json!({
        "path": "./maps", "wait": true, "timeout": "30s", "interval": "1s",
        "healthCheckExprs": [{ "apiVersion": "v1", "kind": "ConfigMap", "current": "true" }],
    });
    scene.mallory.apply(scene.kustomization("burner", &spec)).await.unwrap();
    scene
        .stage
        .ready(KUSTOMIZATION, (&evil, "burner"), "True", "ReconciliationSucceeded")
        .await;
    scene.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expression_bombs_and_forbidden_ignores_are_refused() {
    let scene = Scene::set("attacks-masks").await;
    let health = |current: &str| json!({ "wait": true, "healthCheckExprs": [{ "apiVersion": "v1", "kind": "ConfigMap", "current": current }] });
    let ignore = |path: &str, target: Value| json!({ "ignore": [{ "paths": [path], "target": target }] });
    let patterns = vec!["data.value.matches('(a{100}){100}')"; 17].join(" || ");
    let attacks = [
        attack(
            "long-expression",
            health(&format!("true || {}", "data.value == '1' || ".repeat(300) + "true")),
            "is the most of an expression",
            health("data.value == '1'"),
        ),
        attack(
            "many-patterns",
            health(&patterns),
            "call matches, find or findAll 17 times",
            health("data.value.matches('^1$')"),
        ),
        attack(
            "deep-expression",
            health(&format!("{}true{}", "(".repeat(1000), ")".repeat(1000))),
            "spec.healthCheckExprs[0].current",
            health("((data.value == '1'))"),
        ),
        attack(
            "pattern-bomb",
            ignore("/data/x", json!({ "name": "((a{1000}){1000}){1000}" })),
            "spec.ignore[0].target",
            ignore("/data/x", json!({ "name": "pattern-.*" })),
        ),
        attack(
            "selector-bomb",
            ignore("/data/x", json!({ "labelSelector": "(".repeat(1000) })),
            "spec.ignore[0].target",
            ignore("/data/x", json!({ "labelSelector": "a notin (b)" })),
        ),
        attack(
            "other-owner",
            ignore("/metadata/labels/kustomize.toolkit.fluxcd.io~1namespace", Value::Null),
            "tells who applied the object",
            ignore("/metadata/labels", Value::Null),
        ),
        attack(
            "other-object",
            ignore("/metadata/namespace", Value::Null),
            "tells which object it is",
            ignore("/metadata/annotations", Value::Null),
        ),
    ];
    scene.serve(&own_folders(&attacks)).await;
    scene
        .check(&attacks, |attack, name, spec| {
            let mut laid = spec.clone();
            laid["path"] = json!(format!("./own/{}", attack.name));
            // A target without any field selects nothing.
            if let Some(rule) = laid.pointer_mut("/ignore/0").and_then(Value::as_object_mut) {
                rule.retain(|_, value| !value.is_null());
            }
            scene.kustomization(name, &laid)
        })
        .await;
    scene.shut_down().await;
}

/// An expression's error about a Secret is not reported, whatever it quotes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_quotes_no_secret() {
    let scene = Scene::set("attacks-quotes").await;
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: hunter2}\n";
    scene.serve(&[("s.yaml".to_owned(), secret.to_owned())]).await;
    let spec = json!({
        "wait": true, "timeout": "1s",
        "healthCheckExprs": [{ "apiVersion": "v1", "kind": "Secret", "current": "{'a': true}[string(data.password)]" }],
    });
    scene.mallory.apply(scene.kustomization("quotes", &spec)).await.unwrap();
    scene
        .stage
        .wait_for(KUSTOMIZATION, (&scene.evil, "quotes"), |object| {
            object.is_some_and(|object| condition(object, "Healthy").is_some())
        })
        .await;
    let seen = scene.stage.get(KUSTOMIZATION, (&scene.evil, "quotes")).await.unwrap();
    assert!(!seen.to_string().contains("aHVudGVyMg"), "{seen:#}");
    let mut control = spec;
    control["healthCheckExprs"][0]["current"] = json!("size(data.password) > 0");
    scene
        .mallory
        .apply(scene.kustomization("quotes", &control))
        .await
        .unwrap();
    scene
        .stage
        .ready(
            KUSTOMIZATION,
            (&scene.evil, "quotes"),
            "True",
            "ReconciliationSucceeded",
        )
        .await;
    scene.shut_down().await;
}
