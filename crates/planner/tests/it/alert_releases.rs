//! Alerts about HelmReleases: the Kubernetes Events of helm-controller that become news, and the namespaces in which they are watched.

use serde_json::{Value, json};
use tenure_api::Alert;
use tenure_planner::alert::{list_release_namespaces, needs_release_labels};
use tenure_planner::alert_event::AlertEvent;

use crate::alert::make_alert;
use crate::receiver::{make_tenancy, start};

/// Returns a Kubernetes Event as helm-controller writes it, with these changes.
fn make_stored(changes: &[(&str, Value)]) -> Value {
    let involved = json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "app", "namespace": "blue", "uid": "r", "resourceVersion": "7"
    });
    let annotations = json!({
        "helm.toolkit.fluxcd.io/revision": "1.0.0", "helm.toolkit.fluxcd.io/token": "t", "kustomize.toolkit.fluxcd.io/revision": "x"
    });
    let mut stored = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "name": "app.1", "namespace": "blue", "annotations": annotations },
        "involvedObject": involved, "type": "Normal", "reason": "InstallSucceeded", "message": "Helm install succeeded",
        "source": { "component": "helm-controller" }
    });
    for (path, value) in changes {
        *stored.pointer_mut(path).unwrap() = value.clone();
    }
    stored
}

#[test]
fn stored_event_of_release_becomes_news() {
    let read = |changes: &[(&str, Value)]| AlertEvent::from_stored(&make_stored(changes), "blue", start());
    let news = read(&[]).unwrap();
    assert_eq!(news.severity.as_str(), "info");
    let written = news.write(&news.metadata);
    let expected = json!({
        "involvedObject": { "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "app", "namespace": "blue", "uid": "r", "resourceVersion": "7" },
        "severity": "info", "timestamp": written["timestamp"], "message": "Helm install succeeded", "reason": "InstallSucceeded",
        "reportingController": "helm-controller", "metadata": { "helm.toolkit.fluxcd.io/revision": "1.0.0" }
    });
    assert_eq!(written, expected);
    let warning = ("/type", json!("Warning"));
    assert_eq!(read(std::slice::from_ref(&warning)).unwrap().severity.as_str(), "error");
    let waits = ("/reason", json!("DependencyNotReady"));
    assert_eq!(read(&[warning, waits]).unwrap().severity.as_str(), "info");
    // An Event about another namespace, of another kind or by another writer is none.
    for change in [
        ("/involvedObject/namespace", json!("red")),
        ("/metadata/namespace", json!("red")),
        ("/involvedObject/kind", json!("Kustomization")),
        ("/involvedObject/apiVersion", json!("helm.example.org/v2")),
        ("/involvedObject/name", json!("../red/app")),
        ("/source/component", json!("kubectl")),
    ] {
        assert_eq!(read(std::slice::from_ref(&change)), None, "{change:?}");
    }
}

#[test]
fn releases_are_watched_only_in_namespaces_of_the_tenant() {
    let source = |namespace: Option<&str>, labels: Value| json!({ "kind": "HelmRelease", "name": "*", "namespace": namespace, "matchLabels": labels });
    let none = json!({});
    let sources = [None, Some("blue-dev"), Some("red")].map(|namespace| source(namespace, none.clone()));
    let alert = make_alert("blue", &json!({ "eventSources": sources }));
    let placement = make_tenancy().find_placement("blue");
    let listed = |alert: Alert| list_release_namespaces(&[std::sync::Arc::new(alert)], &placement);
    let names: Vec<String> = listed(alert.clone()).into_iter().collect();
    assert_eq!(names, ["blue", "blue-dev"]);
    assert!(!needs_release_labels(&alert));
    let mut suspended = alert;
    suspended.spec.suspend = true;
    assert!(listed(suspended).is_empty());
    assert!(listed(make_alert("blue", &json!({}))).is_empty());
    let labelled = make_alert(
        "blue",
        &json!({ "eventSources": [source(None, json!({ "app": "web" }))] }),
    );
    assert!(needs_release_labels(&labelled));
}
