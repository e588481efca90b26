//! Attacks on charts that helm-controller installs with its own rights: Packages with their sources and values, and HelmReleases that seem to be of a Package.

use serde_json::{Value, json};
use tenure_admission_rules::Rule;
use tenure_api::package::{PACKAGE_LABEL, PLATFORM_VALUES, SUPPLY_NAME, SUPPLY_NAMESPACE};

use super::rights::{make_config_map, set};
use super::{Attack, AttackRequest, ExpectedDefense, Names, Sender, Verb};

/// The API of Packages.
const PACKAGES: &str = "/apis/cozystack.io/v1alpha1";

/// The objects of the platform, with the names of the attacks on them by an owner and by the account of a tenant's surfaces.
const PLATFORM: [(&str, &str, &str, [&str; 2]); 3] = [
    (
        "packages",
        "Package",
        "makes a Package, whose charts helm-controller installs",
        ["package-created", "package-created-by-account"],
    ),
    (
        "packagesources",
        "PackageSource",
        "makes a PackageSource, which names the charts of a Package",
        ["package-source-created", "package-source-created-by-account"],
    ),
    (
        "packagevalues",
        "PackageValues",
        "makes PackageValues, which change the values of the platform's charts",
        ["package-values-created", "package-values-created-by-account"],
    ),
];

pub(super) fn list(names: &Names) -> Vec<Attack> {
    let mut attacks = list_platform(names);
    attacks.extend(list_releases(names));
    attacks
}

/// Lists the attacks with objects of the platform, which RBAC has to stop.
fn list_platform(names: &Names) -> Vec<Attack> {
    let own = |who: Sender| {
        let path = format!("/api/v1/namespaces/{}/configmaps", names.tenant());
        AttackRequest::new(who, Verb::Create, path, make_config_map("own"))
    };
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": PLATFORM_VALUES }, "stringData": { "values.yaml": "{}" },
    });
    let source = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository", "metadata": { "name": SUPPLY_NAME },
        "spec": { "interval": "1h", "url": "oci://registry.attest.invalid/a" },
    });
    let sources = format!("/apis/source.toolkit.fluxcd.io/v1/namespaces/{SUPPLY_NAMESPACE}/ocirepositories");
    let status =
        json!({ "status": { "releases": [{ "component": "a", "name": "attest", "namespace": names.tenant() }] } });
    let mut attacks = Vec::new();
    for (index, who) in [Sender::Owner, Sender::Account].into_iter().enumerate() {
        let mut add = |names: [&'static str; 2], tries: [&'static str; 2], verb: Verb, path: &str, body: Value| {
            let (Some(name), Some(tries)) = (names.get(index), tries.get(index)) else {
                return;
            };
            let attempt = AttackRequest::new(who, verb, path, body);
            attacks.push(Attack::new(name, tries, ExpectedDefense::Rbac, attempt, own(who)));
        };
        for (plural, kind, tries, attacked) in PLATFORM {
            let object = json!({
                "apiVersion": "cozystack.io/v1alpha1", "kind": kind, "metadata": { "name": "attest" }, "spec": {},
            });
            let path = format!("{PACKAGES}/{plural}");
            add(attacked, [tries, tries], Verb::Create, &path, object);
        }
        let tries = "forges the record of a Package, so that a HelmRelease counts as the Package's";
        add(
            ["package-record-forged", "package-record-forged-by-account"],
            [tries, tries],
            Verb::Change,
            &format!("{PACKAGES}/packages/cozystack.attest/status"),
            status.clone(),
        );
        let tries =
            "writes the Secret cozystack-values outside the tenant, from which all charts of the platform take values";
        add(
            ["platform-values-written", "platform-values-written-by-account"],
            [tries, tries],
            Verb::Create,
            &format!("/api/v1/namespaces/{SUPPLY_NAMESPACE}/secrets"),
            secret.clone(),
        );
        let tries = "replaces the source of the platform's charts";
        add(
            ["chart-source-replaced", "chart-source-replaced-by-account"],
            [tries, tries],
            Verb::Create,
            &sources,
            source.clone(),
        );
    }
    attacks
}

/// Lists the attacks with an owner's HelmRelease, which admission has to stop. By RBAC the owner may write it.
fn list_releases(names: &Names) -> Vec<Attack> {
    let release = |change: &dyn Fn(&mut Value)| {
        let mut object = json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": { "name": "attest" },
            "spec": {
                "interval": "1h", "serviceAccountName": names.account(),
                "chartRef": { "kind": "OCIRepository", "name": "none" },
            },
        });
        change(&mut object);
        let path = format!(
            "/apis/helm.toolkit.fluxcd.io/v2/namespaces/{}/helmreleases",
            names.tenant()
        );
        AttackRequest::new(Sender::Owner, Verb::Create, path, object)
    };
    let forge = |object: &mut Value| {
        set(
            object,
            "/metadata",
            "labels",
            json!({ PACKAGE_LABEL: "cozystack.attest" }),
        )
    };
    let plain = || release(&|_| ());
    let (account, references) = (
        ExpectedDefense::Rule(Rule::FluxAccount),
        ExpectedDefense::Rule(Rule::FluxReferences),
    );
    vec![
        // Admission adds the account, or refuses the object.
        Attack::new(
            "release-with-a-forged-package",
            "an owner's HelmRelease says that a Package generated it, and names no account",
            account,
            release(&|object| {
                forge(object);
                if let Some(spec) = object.pointer_mut("/spec").and_then(Value::as_object_mut) {
                    spec.remove("serviceAccountName");
                }
            }),
            plain(),
        )
        .seen_by("/spec/serviceAccountName", Value::Null),
        Attack::new(
            "release-as-another-account",
            "an owner's HelmRelease says that a Package generated it, and names another account than the tenant's",
            account,
            release(&|object| {
                forge(object);
                set(object, "/spec", "serviceAccountName", json!("default"));
            }),
            plain(),
        ),
        Attack::new(
            "release-into-a-neighbour",
            "an owner's HelmRelease installs its chart in another tenant's namespace",
            references,
            release(&|object| set(object, "/spec", "targetNamespace", json!(names.neighbour()))),
            plain(),
        ),
        Attack::new(
            "release-records-of-the-platform",
            "an owner's HelmRelease keeps Helm's records in a namespace of the platform",
            references,
            release(&|object| set(object, "/spec", "storageNamespace", json!(SUPPLY_NAMESPACE))),
            plain(),
        ),
        Attack::new(
            "chart-of-the-platform",
            "an owner's HelmRelease takes a chart of the platform's Packages",
            references,
            release(&|object| {
                let chart = json!({ "kind": "ExternalArtifact", "name": "none", "namespace": SUPPLY_NAMESPACE });
                set(object, "/spec", "chartRef", chart);
            }),
            plain(),
        ),
    ]
}
