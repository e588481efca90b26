//! The part of a trace about charts: the HelmRelease that installed an object, the chart and its source, and the Package that generated the HelmRelease.

use serde_json::Value;
use tenure_api::package::PACKAGE_LABEL;
use tenure_api::{ObjectId, ObjectView};

use super::{Claim, Role, check_inventory, find_claimed, make_id};
use crate::object_facts::{
    Findings, HELM_GROUP, MissingFacts, PACKAGE_GROUP, SOURCE_GROUP, find_other_cluster, is_helm_release, is_package,
};
use tenure_planner::answer::Live;

/// The group of ArtifactGenerators.
const GENERATOR_GROUP: &str = "source.extensions.fluxcd.io";

/// Lists the claims of an object about a HelmRelease that installed it, or a Package that generated it.
pub(super) fn list_claims(id: &ObjectId, object: &Value, found: &Findings) -> Result<Vec<Claim>, MissingFacts> {
    let view = ObjectView::new(object);
    let mut claims = Vec::new();
    let label = |key: &str| view.find_label(&format!("{HELM_GROUP}/{key}"));
    if let (Some(name), Some(namespace)) = (label("name"), label("namespace")) {
        claims.push(match make_id(namespace, name, HELM_GROUP, "HelmRelease") {
            None => Claim::Refuted(format!(
                "the labels of {} name a HelmRelease that can't be one",
                id.subject()
            )),
            Some(named) => check_installed(id, named, found)?,
        });
    }
    if let Some(name) = view.find_label(PACKAGE_LABEL).filter(|_| is_helm_release(id)) {
        claims.push(match make_id("", name, PACKAGE_GROUP, "Package") {
            None => Claim::Refuted(format!("a label of {} names a Package that can't be one", id.subject())),
            Some(named) => check_generated(id, view, named, found)?,
        });
    }
    Ok(claims)
}

/// Checks whether the HelmRelease that the object's labels name confirms that it installed the object.
fn check_installed(id: &ObjectId, named: ObjectId, found: &Findings) -> Result<Claim, MissingFacts> {
    let says = format!(
        "the labels of {} say that {} installed it",
        id.subject(),
        named.subject()
    );
    let release = match find_claimed(&named, &says, found)? {
        Ok(object) => object,
        Err(claim) => return Ok(claim),
    };
    // Earlier versions of helm-controller write no inventory.
    if !release.has("/status/inventory") && release.list_views("/status/history").next().is_some() {
        return Ok(Claim::Unknown(format!("{says}, whose status has no inventory")));
    }
    check_inventory(id, (named, Role::Installer), release, &says, found)
}

/// Checks whether the Package that a HelmRelease's label names has recorded the HelmRelease by its uid.
fn check_generated(
    id: &ObjectId,
    release: ObjectView<'_>,
    named: ObjectId,
    found: &Findings,
) -> Result<Claim, MissingFacts> {
    let says = format!("a label of {} says that {} generated it", id.subject(), named.subject());
    let package = match find_claimed(&named, &says, found)? {
        Ok(object) => object,
        Err(claim) => return Ok(claim),
    };
    let Some(entry) = find_record(package, id) else {
        return Ok(Claim::Refuted(format!("{says}, whose status doesn't record it")));
    };
    let uid = entry.read_text("/uid");
    if uid.is_empty() || uid != release.read_text("/metadata/uid") {
        return Ok(Claim::Refuted(format!(
            "{says}, whose status records another one of this name"
        )));
    }
    Ok(Claim::Confirmed {
        by: named,
        role: Role::Generator,
        remark: Some(format!(
            "it is the release of component {}",
            entry.read_text("/component")
        )),
    })
}

fn find_record<'a>(package: ObjectView<'a>, release: &ObjectId) -> Option<ObjectView<'a>> {
    let mut records = package.list_views("/status/releases");
    records.find(|record| {
        (record.read_text("/namespace"), record.read_text("/name"))
            == (release.namespace.as_str(), release.name.as_str())
    })
}

/// Returns the component of a Package whose HelmRelease this is, if the status of the Package records its uid.
#[must_use]
pub fn find_component(package: &Value, release: &Value) -> Option<String> {
    let view = ObjectView::new(release);
    let id = ObjectId::from_object(release).ok()?;
    let record = find_record(ObjectView::new(package), &id)?;
    let uid = record.read_text("/uid");
    (!uid.is_empty() && uid == view.read_text("/metadata/uid")).then(|| record.read_text("/component").to_owned())
}

/// Describes the installation of an object by a HelmRelease, in sentences, and where its values are.
#[must_use]
pub fn describe_installation(id: Option<&ObjectId>, release: &Value) -> Vec<String> {
    let view = ObjectView::new(release);
    let Ok(own) = ObjectId::from_object(release) else {
        return Vec::new();
    };
    let (namespace, name) = (&own.namespace, &own.name);
    let mut entries = view.list_views("/status/inventory/entries");
    let is_listed = entries.any(|entry| entry.read_text("/id").parse::<ObjectId>().ok().as_ref() == id);
    if id.is_none() || !is_listed {
        return vec![format!(
            "Its labels name HelmRelease {namespace}/{name}, whose inventory doesn't list it."
        )];
    }
    let text = |path: &str| view.read_text(&format!("/status/history/0{path}")).to_owned();
    let (chart, version) = (text("/chartName"), text("/chartVersion"));
    let account = describe_account(&own, view);
    let values = match view.find_label(PACKAGE_LABEL) {
        Some(package) => {
            format!("Its values: tenure who hr/{name} -n {namespace} .spec.values, and tenure values {package}.")
        }
        None => format!("Its values: tenure who hr/{name} -n {namespace} .spec.values."),
    };
    vec![
        format!("Installed by HelmRelease {namespace}/{name} from chart {chart} {version}, as {account}."),
        values,
    ]
}

/// Lists the objects that supply a HelmRelease or Package: the chart, the sources, and the PackageValues.
pub(super) fn list_supplies(
    id: &ObjectId,
    object: &Value,
    found: &Findings,
) -> Result<Vec<(Role, ObjectId)>, MissingFacts> {
    let view = ObjectView::new(object);
    let mut supplies = Vec::new();
    if is_helm_release(id) {
        let Some(chart) = find_chart(id, view) else {
            return Ok(supplies);
        };
        if let Some(chart_object) = found.find_object(&chart)?.object() {
            supplies
                .extend(find_chart_source(&chart, ObjectView::new(chart_object)).map(|source| (Role::Source, source)));
        }
        supplies.insert(0, (Role::Chart, chart));
    } else if is_package(id) {
        let beside = |kind: &str| make_id("", &id.name, PACKAGE_GROUP, kind);
        if let Some(source) = beside("PackageSource") {
            if let Some(source_object) = found.find_object(&source)?.object() {
                let view = ObjectView::new(source_object);
                supplies.extend(find_reference(view, "/spec/sourceRef", "").map(|source| (Role::Source, source)));
            }
            supplies.insert(0, (Role::Source, source));
        }
        if let Some(values) = beside("PackageValues")
            && !matches!(found.find_object(&values)?, Live::Absent | Live::Unserved)
        {
            supplies.push((Role::Values, values));
        }
    }
    Ok(supplies)
}

/// Returns the object with the chart of a HelmRelease: of `spec.chartRef`, or the HelmChart that helm-controller made for `spec.chart`.
fn find_chart(id: &ObjectId, release: ObjectView<'_>) -> Option<ObjectId> {
    if release.has("/spec/chartRef") {
        return find_reference(release, "/spec/chartRef", &id.namespace);
    }
    let (namespace, name) = release.find_text("/status/helmChart")?.split_once('/')?;
    make_id(namespace, name, SOURCE_GROUP, "HelmChart")
}

/// Returns the source of a HelmChart, or the ArtifactGenerator of an ExternalArtifact.
fn find_chart_source(id: &ObjectId, chart: ObjectView<'_>) -> Option<ObjectId> {
    match id.kind.as_str() {
        "HelmChart" => find_reference(chart, "/spec/sourceRef", &id.namespace),
        "ExternalArtifact" => {
            let kind = chart
                .find_text("/spec/sourceRef/kind")
                .filter(|kind| *kind == "ArtifactGenerator")?;
            make_id(
                &id.namespace,
                chart.read_text("/spec/sourceRef/name"),
                GENERATOR_GROUP,
                kind,
            )
        }
        _ => None,
    }
}

/// Reads a reference to a source. A name that no object can have is not looked up.
fn find_reference(view: ObjectView<'_>, path: &str, own: &str) -> Option<ObjectId> {
    let text = |key: &str| view.find_text(&format!("{path}/{key}")).filter(|text| !text.is_empty());
    let namespace = text("namespace").unwrap_or(own);
    make_id(namespace, text("name")?, SOURCE_GROUP, text("kind")?)
}

/// Adds the details of a HelmRelease, a HelmChart, a Package or a PackageSource.
pub(super) fn list_details(id: &ObjectId, view: ObjectView<'_>, add: &mut dyn FnMut(&'static str, Option<String>)) {
    let text = |path: &str| view.find_text(path).map(str::to_owned);
    if is_helm_release(id) {
        add("installedAs", Some(describe_account(id, view)));
        add("cluster", find_other_cluster(view));
        if let Some(release) = view.list_views("/status/history").next() {
            let part = |path: &str| release.read_text(path).to_owned();
            add(
                "chart",
                Some(format!("{} {}", part("/chartName"), part("/chartVersion"))),
            );
            let version = release.find_number("/version").unwrap_or_default();
            let (namespace, name, status) = (part("/namespace"), part("/name"), part("/status"));
            add(
                "release",
                Some(format!("{namespace}/{name}, version {version}, {status}")),
            );
            add("ociDigest", Some(part("/ociDigest")));
            let installed = part("/chartVersion");
            add(
                "attemptedRevision",
                text("/status/lastAttemptedRevision").filter(|attempted| *attempted != installed),
            );
        } else {
            add("attemptedRevision", text("/status/lastAttemptedRevision"));
        }
    } else if id.group == SOURCE_GROUP && id.kind == "HelmChart" {
        add("chart", text("/spec/chart"));
        add("version", text("/spec/version"));
    } else if is_package(id) {
        add("variant", text("/spec/variant"));
    } else if (id.group.as_str(), id.kind.as_str()) == (PACKAGE_GROUP, "PackageSource") {
        add("path", text("/spec/sourceRef/path"));
    }
}

/// Describes the account with which helm-controller installs a release.
pub(super) fn describe_account(id: &ObjectId, release: ObjectView<'_>) -> String {
    match release
        .find_text("/spec/serviceAccountName")
        .filter(|name| !name.is_empty())
    {
        Some(name) => format!("system:serviceaccount:{}:{name}", id.namespace),
        None => {
            "the account of helm-controller, unless its flag --default-service-account names another one".to_owned()
        }
    }
}
