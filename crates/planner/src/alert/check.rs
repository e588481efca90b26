//! The check whether an Alert can be used: its sources, which must belong to its own tenant, its expressions and its Provider.

use tenure_api::alert::EventSource;
use tenure_api::names::ObjectName;
use tenure_api::{AlertSpec, reason};
use tenure_tenancy::{Placement, reference};

use super::Snapshot;
use super::pattern;
use crate::alert_event::{REPORTED_KINDS, Severity};
use crate::list_limits;
use crate::provider;
use crate::validation_plan::NotReady;

/// The kinds that Flux's CustomResourceDefinition allows in `spec.eventSources`.
const KNOWN: [&str; 12] = [
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

/// Checks an Alert, and returns the message of Ready or the reason for which the Alert can't be used.
pub(super) fn validate(snapshot: &Snapshot) -> Result<String, NotReady> {
    let spec = &snapshot.alert.spec;
    let namespace = snapshot.alert.metadata.namespace.as_deref().unwrap_or_default();
    check_spec(spec)?;
    for (index, source) in spec.event_sources.iter().enumerate() {
        check_source(&snapshot.placement, namespace, index, source)?;
    }
    for (field, pattern) in list_patterns(spec) {
        pattern::compile(pattern).map_err(|problem| NotReady::invalid(format!("{field}: {problem}")))?;
    }
    let name = &spec.provider_ref.name;
    let waits = |problem: String| NotReady::waiting(reason::PROVIDER_NOT_READY, problem);
    match &snapshot.provider {
        None => {
            return Err(waits(format!(
                "Provider {namespace}/{name} does not exist: create it, or name another one in spec.providerRef"
            )));
        }
        Some(found) => {
            let problem = provider::find_problem(found);
            let reported = || provider::find_reported_problem(found).map(str::to_owned);
            if let Some(problem) = problem.or_else(reported) {
                return Err(waits(format!("Provider {namespace}/{name}: {problem}")));
            }
        }
    }
    Ok(describe_ready(spec))
}

/// Lists the regular expressions of an Alert, each with the path of its field.
pub(super) fn list_patterns(spec: &AlertSpec) -> impl Iterator<Item = (String, &str)> {
    let included = spec.inclusion_list.iter().enumerate();
    let excluded = spec.exclusion_list.iter().enumerate();
    let included = included.map(|(index, text)| (format!("spec.inclusionList[{index}]"), text.as_str()));
    let excluded = excluded.map(|(index, text)| (format!("spec.exclusionList[{index}]"), text.as_str()));
    included.chain(excluded)
}

fn check_spec(spec: &AlertSpec) -> Result<(), NotReady> {
    list_limits::check_alert(spec).map_err(NotReady::invalid)?;
    ObjectName::new(spec.provider_ref.name.clone())
        .map_err(|error| NotReady::invalid(format!("spec.providerRef.name: {error}")))?;
    if let Some(text) = spec.event_severity.as_deref().filter(|text| !text.is_empty())
        && Severity::read(text).is_none()
    {
        return Err(NotReady::invalid(format!(
            "spec.eventSeverity: {text:?} is neither info nor error"
        )));
    }
    Ok(())
}

fn check_source(placement: &Placement, namespace: &str, index: usize, source: &EventSource) -> Result<(), NotReady> {
    let field = |name: &str| format!("spec.eventSources[{index}].{name}");
    if !KNOWN.contains(&source.kind.as_str()) {
        let message = format!(
            "{}: {:?} is not a kind that an Alert can name",
            field("kind"),
            source.kind
        );
        return Err(NotReady::invalid(message));
    }
    if let Some(given) = source.api_version.as_deref().filter(|given| !given.is_empty())
        && let Some((_, group)) = REPORTED_KINDS.iter().find(|(kind, _)| *kind == source.kind)
        && given.split('/').next() != Some(group)
    {
        let message = format!("{}: {given:?} has no {}: {group} has", field("apiVersion"), source.kind);
        return Err(NotReady::invalid(message));
    }
    if source.name != "*" {
        ObjectName::new(source.name.clone())
            .map_err(|error| NotReady::invalid(format!("{}: {error}", field("name"))))?;
    }
    reference::check_event_source(
        placement,
        namespace,
        source.namespace.as_deref(),
        (&source.kind, &source.name),
    )?;
    Ok(())
}

/// Writes the message of Ready. It names the kinds in `spec.eventSources` that send no events.
fn describe_ready(spec: &AlertSpec) -> String {
    let is_reported = |kind: &&str| REPORTED_KINDS.iter().any(|(reported, _)| reported == kind);
    let mut silent: Vec<&str> = spec.event_sources.iter().map(|source| source.kind.as_str()).collect();
    silent.retain(|kind| !is_reported(kind));
    silent.sort_unstable();
    silent.dedup();
    if silent.is_empty() {
        return "Alert is Ready".to_owned();
    }
    format!(
        "Alert is Ready; no controller here reconciles {}, so no events about it are sent",
        silent.join(", ")
    )
}
