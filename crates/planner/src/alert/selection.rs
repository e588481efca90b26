//! The choice of Alerts for an event. Cheap checks come first, so that of many Alerts only those that name the object get the closer ones. The work for one event is
//! bounded, however many Alerts exist.

use tenure_api::Alert;
use tenure_api::alert::EventSource;
use tenure_tenancy::{Placement, reference};

use super::check::list_patterns;
use super::metadata::{Combined, combine_metadata};
use super::pattern;
use crate::alert_event::{AlertEvent, Severity};
use crate::list_limits::{ALERTS_SELECTED, EVENT_SOURCES, PATTERNS_BYTES, PATTERNS_TRIED};

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

/// The result for the candidates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectedAlerts {
    /// The chosen Alerts, as indexes into the candidates, with their metadata.
    pub chosen: Vec<(usize, Combined)>,
    /// The Alerts that are left out because of a mistake in their spec. Their own status reports the mistake.
    pub mistaken: Vec<usize>,
    /// The first Alert that was left out because too many were chosen.
    pub too_many: Option<usize>,
}

/// Checks whether an Alert names the object of an event, by the cheap criteria.
#[must_use]
pub fn is_about(alert: &Alert, news: &AlertEvent) -> bool {
    let namespace = alert.metadata.namespace.as_deref().unwrap_or_default();
    let spec = &alert.spec;
    let wants_errors = spec.event_severity.as_deref() == Some("error");
    let is_severe = !wants_errors || news.severity == Severity::Error;
    !spec.suspend && is_severe && list_sources(alert).any(|source| names_object(source, namespace, news))
}

/// Lists the entries of an Alert that are compared with an event. An Alert with more has a mistake in its spec.
fn list_sources(alert: &Alert) -> impl Iterator<Item = &EventSource> {
    alert.spec.event_sources.iter().take(EVENT_SOURCES)
}

/// Estimates the weight of [`is_about`] in bytes of text: each entry, and each label of it, is compared.
#[must_use]
pub fn estimate_glance(alert: &Alert, news: &AlertEvent) -> usize {
    let compared = |source: &EventSource| 1 + source.match_labels.len().min(news.labels.len());
    let terms: usize = list_sources(alert).map(compared).sum();
    (1 + terms).saturating_mul(COMPARED)
}

/// Checks whether an Alert may name the object of an event. The caller checks this before it counts the candidate: in the pool, which several namespaces share, foreign
/// Alerts would otherwise use up the places of the event's own namespace.
#[must_use]
pub fn may_name(candidate: &Candidate<'_>, news: &AlertEvent) -> bool {
    let namespace = candidate.alert.metadata.namespace.as_deref().unwrap_or_default();
    let object = &news.object;
    let (kind, name) = (object.kind.as_str(), object.name.as_str());
    reference::check_event_source(candidate.placement, namespace, Some(&object.namespace), (kind, name)).is_ok()
}

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

/// The bounds on all expressions for one event: the number of compiled ones, and the bytes of the message on which they run.
struct Budget {
    patterns: usize,
    bytes: usize,
}

impl Budget {
    fn full() -> Self {
        Self {
            patterns: PATTERNS_TRIED,
            bytes: PATTERNS_BYTES,
        }
    }

    /// Takes one try of one expression from the budget, if one is left.
    fn spend_try(&mut self, message: &str) -> bool {
        let left = (self.patterns.checked_sub(1), self.bytes.checked_sub(message.len()));
        let (Some(patterns), Some(bytes)) = left else {
            return false;
        };
        *self = Self { patterns, bytes };
        true
    }
}

/// The reason for which an Alert is left out.
enum Stop {
    /// The lists of the Alert have a mistake.
    Mistake,
    /// The budget is spent.
    Spent,
}

/// Estimates the weight of [`select_alerts`] in bytes of text: an expression has to be compiled, too.
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
    let (mut chosen, mut budget) = (SelectedAlerts::default(), Budget::full());
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
            Ok(true) | Err(Stop::Spent) => {
                chosen.too_many.get_or_insert(index);
                break;
            }
            Err(Stop::Mistake) => chosen.mistaken.push(index),
        }
    }
    chosen
}

/// Checks whether the lists of an Alert let an event through: exclusion is stronger. A mistake in either lets nothing through.
fn is_included(alert: &Alert, news: &AlertEvent, budget: &mut Budget) -> Result<bool, Stop> {
    let spec = &alert.spec;
    if crate::list_limits::check_alert(spec).is_err() {
        return Err(Stop::Mistake);
    }
    let mut matches = |list: &[String]| -> Result<bool, Stop> {
        for text in list {
            if !budget.spend_try(&news.message) {
                return Err(Stop::Spent);
            }
            let pattern = pattern::compile(text).map_err(|_| Stop::Mistake)?;
            if pattern.is_match(&news.message) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let is_included = spec.inclusion_list.is_empty() || matches(&spec.inclusion_list)?;
    Ok(is_included && !matches(&spec.exclusion_list)?)
}
