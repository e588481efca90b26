//! The HelmRelease of a component, as an object.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tenure_api::package::{PACKAGE_LABEL, PLATFORM_VALUES, PRIVILEGED_LABEL, SKIP_PLATFORM_VALUES, VALUES_FILES};
use tenure_api::package_source::{ComponentInstall, WAIT_STRATEGIES};
use tenure_api::{Package, PackageSource};

use super::overrides::ReleaseValues;
use super::selection::{Component, HELM_GROUP, HELM_VERSION, ReleaseName, Selection};
use crate::chart_values::HelmReference;
use crate::package_settings::Settings;
use crate::package_source::name_artifact;
use crate::recorded_objects::OwnKeys;

/// The labels and annotations of a HelmRelease that belong to the Package.
pub(super) const OWN_KEYS: OwnKeys = OwnKeys {
    labels: &[PACKAGE_LABEL, PRIVILEGED_LABEL],
    annotations: &[VALUES_FILES],
};

/// Makes the HelmRelease of a component.
pub(super) fn make_release(
    package: &Package,
    selection: &Selection<'_>,
    component: &Component<'_>,
    settings: &Settings,
    awaited: &[ReleaseName],
    values: &ReleaseValues,
) -> Value {
    let install = component.install;
    let mut labels = Map::new();
    labels.insert(PACKAGE_LABEL.to_owned(), json!(package.metadata.name));
    if install.privileged {
        labels.insert(PRIVILEGED_LABEL.to_owned(), json!("true"));
    }
    let mut metadata =
        json!({ "name": component.release.name, "namespace": component.release.namespace, "labels": labels });
    if !component.spec.values_files.is_empty()
        && let Some(metadata) = metadata.as_object_mut()
    {
        let files = component.spec.values_files.join(",");
        metadata.insert("annotations".to_owned(), json!({ VALUES_FILES: files }));
    }
    let mut spec = Map::new();
    let mut set = |key: &str, value: Value| spec.insert(key.to_owned(), value);
    set("chartRef", make_chart_reference(selection, component, settings));
    set("interval", json!(print_duration(settings.interval)));
    set("maxHistory", json!(settings.max_history));
    set("install", make_action(settings.install_timeout, settings));
    let mut upgrade = make_action(settings.upgrade_timeout, settings);
    if let (Some(policy), Some(upgrade)) = (find_text(install.upgrade_crds.as_ref()), upgrade.as_object_mut()) {
        upgrade.insert("crds".to_owned(), json!(policy));
    }
    set("upgrade", upgrade);
    if !install.health_check_exprs.is_empty() {
        set("healthCheckExprs", json!(install.health_check_exprs));
    }
    if let Some(strategy) = choose_wait_strategy(install) {
        set("waitStrategy", json!({ "name": strategy }));
    }
    if let Some(account) = find_text(settings.release_account.as_ref()) {
        set("serviceAccountName", json!(account));
    }
    if !awaited.is_empty() {
        let entry = |release: &ReleaseName| json!({ "name": release.name, "namespace": release.namespace });
        set("dependsOn", awaited.iter().map(entry).collect());
    }
    let mut values_from = Vec::new();
    if !skips_platform_values(selection.source) {
        values_from.push(json!({ "kind": "Secret", "name": PLATFORM_VALUES }));
    }
    values_from.extend(values.references().iter().map(write_reference));
    if !values_from.is_empty() {
        set("valuesFrom", Value::Array(values_from));
    }
    if let Some(values) = values.inline() {
        set("values", Value::Object(values.clone()));
    }
    json!({
        "apiVersion": format!("{HELM_GROUP}/{HELM_VERSION}"),
        "kind": "HelmRelease",
        "metadata": metadata,
        "spec": spec,
    })
}

/// Writes a value that helm-controller reads. Without `literal`, it would read a text such as `a,b` or `1` as `helm --set` does.
fn write_reference(reference: &HelmReference) -> Value {
    json!({
        "kind": reference.kind, "name": reference.name, "valuesKey": reference.key,
        "targetPath": reference.target_path, "literal": true,
    })
}

/// Checks whether the server's definition of HelmReleases is older than `literal`.
pub(super) fn lacks_literal(live: &Value, planned: &Value) -> bool {
    let list = |object: &Value| {
        let entries = object.pointer("/spec/valuesFrom").and_then(Value::as_array);
        let entries = entries.into_iter().flatten();
        entries.filter(|entry| entry.get("literal").is_some()).count()
    };
    list(live) < list(planned)
}

fn make_chart_reference(selection: &Selection<'_>, component: &Component<'_>, settings: &Settings) -> Value {
    let source = selection.source.metadata.name.as_deref().unwrap_or_default();
    json!({
        "kind": "ExternalArtifact",
        "name": name_artifact(source, &selection.variant.name, &component.spec.name),
        "namespace": settings.artifact_namespace,
    })
}

/// Makes the settings of an installation or upgrade. A failed one is tried again, and nothing is rolled back.
fn make_action(timeout: Duration, settings: &Settings) -> Value {
    json!({
        "timeout": print_duration(timeout),
        "strategy": { "name": "RetryOnFailure", "retryInterval": print_duration(settings.retry_interval) },
    })
}

/// Chooses the wait strategy. Helm evaluates expressions only with `poller`, so they imply it.
pub(super) fn choose_wait_strategy(install: &ComponentInstall) -> Option<&str> {
    let poller = WAIT_STRATEGIES.first().copied();
    let named = find_text(install.wait_strategy.as_ref());
    named.or_else(|| poller.filter(|_| !install.health_check_exprs.is_empty()))
}

fn find_text(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

fn skips_platform_values(source: &PackageSource) -> bool {
    let annotations = source.metadata.annotations.as_ref();
    annotations
        .and_then(|annotations| annotations.get(SKIP_PLATFORM_VALUES))
        .map(String::as_str)
        == Some("true")
}

/// Prints a duration as Go does: `5m0s`.
fn print_duration(duration: Duration) -> String {
    go_words::duration::print(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}
