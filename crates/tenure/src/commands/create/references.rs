//! Flux's forms of references on the command line: `KIND/NAME.NAMESPACE`, `NAMESPACE/NAME`, `KEY=VALUE`.

use tenure_api::alert::EventSource;
use tenure_api::duration::DurationText;
use tenure_api::receiver::ReceiverResource;
use tenure_api::reference::{CrossNamespaceSourceReference, DependencyReference, NamespacedObjectKindReference};

/// The kinds of sources.
const SOURCES: [&str; 4] = ["GitRepository", "OCIRepository", "Bucket", "ExternalArtifact"];

/// The kinds that Receivers and Alerts may name.
const NOTIFIED: [&str; 12] = [
    "Bucket",
    "GitRepository",
    "Kustomization",
    "HelmRelease",
    "HelmChart",
    "HelmRepository",
    "ImageRepository",
    "ImagePolicy",
    "ImageUpdateAutomation",
    "OCIRepository",
    "ArtifactGenerator",
    "ExternalArtifact",
];

/// The kinds of workloads with the API versions that Flux writes for a health check.
const WORKLOADS: [(&str, &str); 4] = [
    ("Deployment", "apps/v1"),
    ("DaemonSet", "apps/v1"),
    ("StatefulSet", "apps/v1"),
    ("HelmRelease", "helm.toolkit.fluxcd.io/v2"),
];

/// Reads a duration as Flux's kinds have it.
pub(crate) fn parse_duration(text: &str) -> Result<DurationText, String> {
    let duration = DurationText::new(text);
    match duration.parse() {
        Ok(_) => Ok(duration),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads `KEY=VALUE`.
pub(super) fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?}: write KEY=VALUE")),
    }
}

/// Reads `[KIND/]NAME[.NAMESPACE]`. Without a kind, it is a GitRepository.
pub(super) fn parse_source(text: &str) -> Result<CrossNamespaceSourceReference, String> {
    let (kind, name) = text.split_once('/').unwrap_or(("GitRepository", text));
    let (name, namespace) = split_namespace(text, name)?;
    Ok(CrossNamespaceSourceReference {
        api_version: None,
        kind: find_kind(kind, SOURCES)?,
        name,
        namespace,
    })
}

/// Reads `NAME` or `NAMESPACE/NAME`.
pub(super) fn parse_dependency(text: &str) -> Result<DependencyReference, String> {
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, text),
    };
    if name.is_empty() || name.contains('/') || namespace.is_some_and(str::is_empty) {
        return Err(format!("{text:?}: write NAME or NAMESPACE/NAME"));
    }
    Ok(DependencyReference {
        name: name.to_owned(),
        namespace: namespace.map(str::to_owned),
        ready_expr: None,
    })
}

/// Reads `KIND/NAME.NAMESPACE` of a workload.
pub(super) fn parse_workload(text: &str) -> Result<NamespacedObjectKindReference, String> {
    let (kind, name) = split_kind(text)?;
    let kind = find_kind(kind, WORKLOADS.map(|(kind, _)| kind))?;
    let (name, namespace) = split_namespace(text, name)?;
    let api_version = WORKLOADS.iter().find(|(known, _)| *known == kind);
    Ok(NamespacedObjectKindReference {
        api_version: api_version.map(|(_, version)| (*version).to_owned()),
        kind,
        name,
        namespace: Some(namespace.ok_or_else(|| format!("{text:?}: write KIND/NAME.NAMESPACE"))?),
    })
}

/// Reads `KIND/NAME[.NAMESPACE]` of an object that a Receiver reconciles. Names of a Receiver's objects need labels in place of `*`, which no flag has.
pub(super) fn parse_resource(text: &str) -> Result<ReceiverResource, String> {
    let (kind, name) = split_kind(text)?;
    let (name, namespace) = split_namespace(text, name)?;
    if name == "*" {
        return Err(format!(
            "{text:?}: `*` needs matchLabels, which no flag sets; add them to the output of --export"
        ));
    }
    Ok(ReceiverResource {
        kind: find_kind(kind, NOTIFIED)?,
        name,
        namespace,
        ..ReceiverResource::default()
    })
}

/// Reads `KIND/NAME[.NAMESPACE]` of an object whose events an Alert sends; the name may be `*`.
pub(super) fn parse_event_source(text: &str) -> Result<EventSource, String> {
    let (kind, name) = split_kind(text)?;
    let (name, namespace) = split_namespace(text, name)?;
    Ok(EventSource {
        kind: find_kind(kind, NOTIFIED)?,
        name,
        namespace,
        ..EventSource::default()
    })
}

fn split_kind(text: &str) -> Result<(&str, &str), String> {
    text.split_once('/')
        .filter(|(kind, name)| !kind.is_empty() && !name.is_empty())
        .ok_or_else(|| format!("{text:?}: write KIND/NAME or KIND/NAME.NAMESPACE"))
}

/// Splits a name at its last dot, as Flux does: what follows is the namespace.
fn split_namespace(whole: &str, name: &str) -> Result<(String, Option<String>), String> {
    let (name, namespace) = match name.rsplit_once('.') {
        Some((name, namespace)) => (name, Some(namespace)),
        None => (name, None),
    };
    if name.is_empty() || name.contains('/') || namespace.is_some_and(str::is_empty) {
        return Err(format!("{whole:?}: write KIND/NAME or KIND/NAME.NAMESPACE"));
    }
    Ok((name.to_owned(), namespace.map(str::to_owned)))
}

/// Finds a kind, and ignores the case of letters.
fn find_kind<const COUNT: usize>(kind: &str, known: [&str; COUNT]) -> Result<String, String> {
    known
        .iter()
        .find(|known| known.eq_ignore_ascii_case(kind))
        .map(|known| (*known).to_owned())
        .ok_or_else(|| format!("{kind:?} is not one of the kinds {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_as_flux_reads_them() {
        let source = |text| parse_source(text).map(|found| (found.kind, found.name, found.namespace));
        let found = |kind: &str, name: &str, namespace: Option<&str>| {
            Ok((kind.to_owned(), name.to_owned(), namespace.map(str::to_owned)))
        };
        assert_eq!(source("app"), found("GitRepository", "app", None));
        assert_eq!(
            source("ocirepository/app.team-a"),
            found("OCIRepository", "app", Some("team-a"))
        );
        assert_eq!(source("Bucket/a.b.team-a"), found("Bucket", "a.b", Some("team-a")));
        for wrong in ["", "/app", "HelmRepository/app", "Bucket/", "Bucket/a/b", "app."] {
            assert!(parse_source(wrong).is_err(), "{wrong}");
        }
        let dependency = parse_dependency("team-a/base").expect("a dependency");
        assert_eq!(
            (dependency.name.as_str(), dependency.namespace.as_deref()),
            ("base", Some("team-a"))
        );
        for wrong in ["", "/a", "a/", "a/b/c"] {
            assert!(parse_dependency(wrong).is_err(), "{wrong}");
        }
        let workload = parse_workload("deployment/web.team-a").expect("a workload");
        assert_eq!(workload.api_version.as_deref(), Some("apps/v1"));
        for wrong in ["Deployment/web", "Pod/web.team-a", "web.team-a"] {
            assert!(parse_workload(wrong).is_err(), "{wrong}");
        }
        assert!(parse_resource("GitRepository/*").is_err_and(|why| why.contains("matchLabels")));
        assert_eq!(
            parse_event_source("kustomization/*").map(|found| found.kind),
            Ok("Kustomization".to_owned())
        );
        for wrong in ["a", "=b"] {
            assert!(parse_label(wrong).is_err(), "{wrong}");
        }
    }
}
