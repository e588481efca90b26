//! Which Alerts want an event. What is cheap to say is said first, so that of many Alerts only those are looked at more closely that name the
//! object; what one event may take is bounded, whoever has how many Alerts.

use tenure_api::Alert;
use tenure_api::alert::EventSource;
use tenure_tenancy::{Placement, reference};

use super::check::list_patterns;
use super::metadata::{Combined, combine};
use super::pattern;
use crate::maxima::{ALERTS_TOLD, PATTERNS_BYTES, PATTERNS_TRIED};
use crate::news::{News, Severity};

/// An Alert that may want an event, and whose its namespace is.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The Alert.
    pub alert: &'a Alert,
    /// Whose its namespace is.
    pub placement: &'a Placement,
}

/// What comes of the candidates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Who is told, by the places in the list of candidates, and what is told beside it.
    pub told: Vec<(usize, Combined)>,
    /// Who is not, for a mistake in the Alert: it says so itself.
    pub mistaken: Vec<usize>,
    /// The first of those that would have been told, if they were not so many.
    pub too_many: Option<usize>,
}

/// Whether an Alert names the object of an event, by what is cheap to say.
#[must_use]
pub fn is_about(alert: &Alert, news: &News) -> bool {
    let namespace = alert.metadata.namespace.as_deref().unwrap_or_default();
    let spec = &alert.spec;
    let wants_errors = spec.event_severity.as_deref() == Some("error");
    let is_severe = !wants_errors || news.severity == Severity::Error;
    !spec.suspend && is_severe && spec.event_sources.iter().any(|source| names(source, namespace, news))
}

/// Whether an Alert may name the object of an event. To be asked before it is counted among those that are looked at: of the lane that namespaces
/// of nobody share, others would be counted in the place of those whose event it is.
#[must_use]
pub fn may_name(candidate: &Candidate<'_>, news: &News) -> bool {
    let namespace = candidate.alert.metadata.namespace.as_deref().unwrap_or_default();
    let object = &news.object;
    let (kind, name) = (object.kind.as_str(), object.name.as_str());
    reference::check_event_source(candidate.placement, namespace, Some(&object.namespace), (kind, name)).is_ok()
}

fn names(source: &EventSource, own_namespace: &str, news: &News) -> bool {
    let object = &news.object;
    let namespace = source.namespace.as_deref().unwrap_or(own_namespace);
    namespace == object.namespace
        && source.kind == object.kind
        && (source.name == "*" || source.name == object.name)
        && source
            .match_labels
            .iter()
            .all(|(key, value)| news.labels.get(key) == Some(value))
}

/// What all expressions together may do for one event: how many are compiled, and on how many bytes of its message they are tried.
struct Budget {
    patterns: usize,
    bytes: usize,
}

impl Budget {
    fn whole() -> Self {
        Self {
            patterns: PATTERNS_TRIED,
            bytes: PATTERNS_BYTES,
        }
    }

    /// Takes one try of one expression, if there is one left.
    fn take(&mut self, message: &str) -> bool {
        let left = (self.patterns.checked_sub(1), self.bytes.checked_sub(message.len()));
        let (Some(patterns), Some(bytes)) = left else {
            return false;
        };
        *self = Self { patterns, bytes };
        true
    }
}

/// Why an Alert is not told.
enum Stop {
    /// Its lists hold a mistake.
    Mistake,
    /// The budget is spent.
    Spent,
}

/// As much text as [`choose`] is to be counted for, in bytes: an expression has to be compiled, too.
#[must_use]
pub fn estimate_work(candidates: &[Candidate<'_>], news: &News) -> usize {
    let patterns = |candidate: &Candidate<'_>| list_patterns(&candidate.alert.spec).count();
    let tried: usize = candidates.iter().map(patterns).sum();
    let each = news.message.len().saturating_add(pattern::COMPILED);
    tried.min(PATTERNS_TRIED).saturating_mul(each)
}

/// Which of the Alerts are told of an event. Each is of the lane that the object is in, and may name it.
#[must_use]
pub fn choose(candidates: &[Candidate<'_>], news: &News) -> Chosen {
    let (mut chosen, mut budget) = (Chosen::default(), Budget::whole());
    for (index, candidate) in candidates.iter().enumerate() {
        let alert = candidate.alert;
        if !is_about(alert, news) || !may_name(candidate, news) {
            continue;
        }
        match lets_through(alert, news, &mut budget) {
            Ok(false) => {}
            Ok(true) if chosen.told.len() < ALERTS_TOLD => chosen.told.push((index, combine(news, &alert.spec))),
            Ok(true) | Err(Stop::Spent) => {
                chosen.too_many.get_or_insert(index);
                break;
            }
            Err(Stop::Mistake) => chosen.mistaken.push(index),
        }
    }
    chosen
}

/// Whether the lists of an Alert let an event through: exclusion is stronger. A mistake in either lets nothing through.
fn lets_through(alert: &Alert, news: &News, budget: &mut Budget) -> Result<bool, Stop> {
    let spec = &alert.spec;
    if crate::maxima::check_alert(spec).is_err() {
        return Err(Stop::Mistake);
    }
    let mut matches = |list: &[String]| -> Result<bool, Stop> {
        for text in list {
            if !budget.take(&news.message) {
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
