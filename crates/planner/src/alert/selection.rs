//! The choice of Alerts for an event. Cheap checks come first, so that of many Alerts only those that name the object get the closer ones. The work for one event is
//! bounded, however many Alerts exist.

use std::collections::BTreeSet;

use tenure_api::Alert;
use tenure_api::alert::EventSource;
use tenure_tenancy::{Placement, reference};

use super::check::list_patterns;
use super::metadata::{CombinedMetadata, combine_metadata};
use super::pattern;
use crate::alert_event::{AlertEvent, Severity};
use crate::list_limits::{ALERTS_SELECTED, EVENT_SOURCES, PATTERNS_BYTES, PATTERNS_TRIED};

/// The kind whose events helm-controller writes.
const HELM_RELEASE: &str = "HelmRelease";
/// The text size that is counted for an Alert, for one of its entries, and for a label of an entry, in bytes.
const COMPARED: usize = 128;

/// An Alert that may want an event, and the owner of the Alert's namespace.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The Alert.
    pub alert: &'a Alert,
    /// The owner of the Alert's namespace.
    pub placement: &'a Placement,
}

/// The Alerts that get an event, and the Alerts that were left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectedAlerts {
    /// The chosen Alerts, as indexes into the candidates, with their metadata.
    pub chosen: Vec<(usize, CombinedMetadata)>,
    /// The Alerts that are left out because of a mistake in their spec. Their own status reports the mistake.
    pub mistaken: Vec<usize>,
    /// The first Alert that was left out because too many were chosen.
    pub too_many: Option<usize>,
}

/// Checks whether an Alert isn't suspended, wants the event's severity, and names the event's object. This check evaluates no regular expression.
#[must_use]
pub fn is_about(alert: &Alert, news: &AlertEvent) -> bool {
    let namespace = alert.metadata.namespace.as_deref().unwrap_or_default();
    let spec = &alert.spec;
    let wants_errors = spec.event_severity.as_deref() == Some("error");
    let is_severe = !wants_errors || news.severity == Severity::Error;
    !spec.suspend && is_severe && list_sources(alert).any(|source| names_object(source, namespace, news))
}

/// Lists the namespaces whose HelmReleases the Alerts of a namespace name, as far as tenancy lets them. helm-controller writes these events, so they are watched there.
#[must_use]
pub fn list_release_namespaces<A: AsRef<Alert>>(alerts: &[A], placement: &Placement) -> BTreeSet<String> {
    let mut namespaces = BTreeSet::new();
    for alert in alerts.iter().map(AsRef::as_ref).filter(|alert| !alert.spec.suspend) {
        let own = alert.metadata.namespace.as_deref().unwrap_or_default();
        for source in list_sources(alert).filter(|source| source.kind == HELM_RELEASE) {
            let (other, named) = (source.namespace.as_deref(), (HELM_RELEASE, source.name.as_str()));
            if reference::check_event_source(placement, own, other, named).is_ok() {
                namespaces.insert(other.unwrap_or(own).to_owned());
            }
        }
    }
    namespaces
}

/// Checks whether an Alert selects HelmReleases by labels.
#[must_use]
pub fn needs_release_labels(alert: &Alert) -> bool {
    list_sources(alert).any(|source| source.kind == HELM_RELEASE && !source.match_labels.is_empty())
}

/// Lists the entries of an Alert that are compared with an event. An Alert with more has a mistake in its spec.
fn list_sources(alert: &Alert) -> impl Iterator<Item = &EventSource> {
    alert.spec.event_sources.iter().take(EVENT_SOURCES)
}

/// Estimates the cost of [`is_about`] in bytes of text, since it compares each entry and each of the entry's labels.
#[must_use]
pub fn estimate_glance(alert: &Alert, news: &AlertEvent) -> usize {
    let compared = |source: &EventSource| 1 + source.match_labels.len().min(news.labels.len());
    let terms: usize = list_sources(alert).map(compared).sum();
    (1 + terms).saturating_mul(COMPARED)
}

/// Checks whether tenancy lets an Alert name the object of an event. The caller checks this before it counts the candidate: in a lane that several namespaces share,
/// foreign Alerts would otherwise use up the places of the event's own namespace.
#[must_use]
pub fn may_name(candidate: &Candidate<'_>, news: &AlertEvent) -> bool {
    let namespace = candidate.alert.metadata.namespace.as_deref().unwrap_or_default();
    let object = &news.object;
    let (kind, name) = (object.kind.as_str(), object.name.as_str());
    reference::check_event_source(candidate.placement, namespace, Some(&object.namespace), (kind, name)).is_ok()
}

/// Checks whether an entry of `spec.eventSources` selects the object of an event, by namespace, kind, name and labels.
fn names_object(source: &EventSource, own_namespace: &str, news: &AlertEvent) -> bool {
    let object = &news.object;
    let namespace = source.namespace.as_deref().unwrap_or(own_namespace);
    namespace == object.namespace
        && source.kind == object.kind
        && (source.name == "*" || source.name == object.name)
        && source.match_labels.len() <= news.labels.len()
        && source
            .match_labels
            .iter()
            .all(|(key, value)| news.labels.get(key) == Some(value))
}

/// The remaining budget for regular expressions on one event: the number of expressions to compile, and the bytes of the message that they may read.
struct PatternBudget {
    patterns: usize,
    bytes: usize,
}

impl PatternBudget {
    fn full() -> Self {
        Self {
            patterns: PATTERNS_TRIED,
            bytes: PATTERNS_BYTES,
        }
    }

    /// Takes the cost of one expression on this message from the budget. Returns false if too little is left.
    fn spend_try(&mut self, message: &str) -> bool {
        let left = (self.patterns.checked_sub(1), self.bytes.checked_sub(message.len()));
        let (Some(patterns), Some(bytes)) = left else {
            return false;
        };
        *self = Self { patterns, bytes };
        true
    }
}

/// The reason why the expressions of an Alert gave no answer about an event.
enum SkipReason {
    /// `spec.inclusionList` or `spec.exclusionList` is invalid.
    Mistake,
    /// The [`PatternBudget`] of the event is spent.
    Spent,
}

/// Estimates the cost of [`select_alerts`] in bytes of text, including the compilation of expressions.
#[must_use]
pub fn estimate_work(candidates: &[Candidate<'_>], news: &AlertEvent) -> usize {
    let patterns = |candidate: &Candidate<'_>| list_patterns(&candidate.alert.spec).count();
    let tried: usize = candidates.iter().map(patterns).sum();
    let each = news.message.len().saturating_add(pattern::COMPILED);
    tried.min(PATTERNS_TRIED).saturating_mul(each)
}

/// Chooses the Alerts that get an event. Each candidate is of the lane of the object, and may name the object.
#[must_use]
pub fn select_alerts(candidates: &[Candidate<'_>], news: &AlertEvent) -> SelectedAlerts {
    let (mut chosen, mut budget) = (SelectedAlerts::default(), PatternBudget::full());
    for (index, candidate) in candidates.iter().enumerate() {
        let alert = candidate.alert;
        if !is_about(alert, news) || !may_name(candidate, news) {
            continue;
        }
        match is_included(alert, news, &mut budget) {
            Ok(false) => {}
            Ok(true) if chosen.chosen.len() < ALERTS_SELECTED => {
                chosen.chosen.push((index, combine_metadata(news, &alert.spec)))
            }
            Ok(true) | Err(SkipReason::Spent) => {
                chosen.too_many.get_or_insert(index);
                break;
            }
            Err(SkipReason::Mistake) => chosen.mistaken.push(index),
        }
    }
    chosen
}

/// Checks whether `spec.inclusionList` and `spec.exclusionList` of an Alert let an event through. An exclusion wins over an inclusion. An invalid list lets no event
/// through.
fn is_included(alert: &Alert, news: &AlertEvent, budget: &mut PatternBudget) -> Result<bool, SkipReason> {
    let spec = &alert.spec;
    if crate::list_limits::check_alert(spec).is_err() {
        return Err(SkipReason::Mistake);
    }
    let mut matches = |list: &[String]| -> Result<bool, SkipReason> {
        for text in list {
            if !budget.spend_try(&news.message) {
                return Err(SkipReason::Spent);
            }
            let pattern = pattern::compile(text).map_err(|_| SkipReason::Mistake)?;
            if pattern.is_match(&news.message) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let is_included = spec.inclusion_list.is_empty() || matches(&spec.inclusion_list)?;
    Ok(is_included && !matches(&spec.exclusion_list)?)
}
