//! What one policy says about one request with one set of parameters. Pure: everything it looks at is handed in.

use kubernetes_cel::{OBJECT_BUDGET, Value};
use serde_json::Value as Json;

use super::policy::{Policy, Validation};
use crate::expressions::{Activation, Inputs, Match, OUT_OF_BUDGET};

/// A message that an expression computes may not be longer.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// Why a request is denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Denial {
    pub(super) message: String,
    pub(super) reason: String,
}

impl Denial {
    /// With the reason that a denial has if none is given.
    pub(super) fn invalid(message: String) -> Self {
        Self {
            message,
            reason: "Invalid".to_owned(),
        }
    }
}

/// What a policy says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// The validations that do not hold, by their places, or what kept them from being evaluated.
    pub(super) denials: Vec<(usize, Denial)>,
    /// What is to be noted in the audit log.
    pub(super) notes: Vec<(String, String)>,
    /// Why something could not be noted, if that is to end the request.
    pub(super) failed_notes: Vec<String>,
}

impl Verdict {
    /// All that is said is that something failed.
    fn failure(policy: &Policy, why: String) -> Self {
        let denials = if policy.ignores_failures {
            Vec::new()
        } else {
            vec![(0, Denial::invalid(why))]
        };
        Self {
            denials,
            ..Self::default()
        }
    }
}

/// The same values with these parameters.
pub(super) fn with_params<'a>(inputs: Inputs<'a>, params: Option<&'a Json>) -> Inputs<'a> {
    Inputs { params, ..inputs }
}

/// What expressions see of a namespace.
fn shown(namespace: &Json) -> Json {
    const FIELDS: [&str; 12] = [
        "name",
        "generateName",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "finalizers",
    ];
    let mut shown = namespace.clone();
    if let Some(map) = shown.as_object_mut() {
        map.retain(|key, _| matches!(key.as_str(), "metadata" | "spec" | "status"));
    }
    if let Some(metadata) = shown.get_mut("metadata").and_then(Json::as_object_mut) {
        metadata.retain(|key, _| FIELDS.contains(&key.as_str()));
    }
    shown
}

impl Policy {
    /// Whether its match conditions let the policy judge a request.
    pub(super) fn matches(&self, inputs: Inputs<'_>) -> Match {
        if self.conditions.is_empty() {
            return Match::Yes;
        }
        self.conditions.check(inputs, &self.variables, self.ignores_failures)
    }

    /// Judges a request in a namespace that its match conditions are about.
    pub(super) fn judge(&self, matches: Match, inputs: Inputs<'_>, namespace: Option<&Json>) -> Verdict {
        match matches {
            Match::Yes => {}
            Match::No => return Verdict::default(),
            Match::Failed(why) => return Verdict::failure(self, why),
        }
        let namespace = namespace.map(shown);
        let inputs = Inputs {
            namespace: namespace.as_ref(),
            ..inputs
        };
        let mut budget = OBJECT_BUDGET;
        let activation = Activation::composing(inputs, &self.variables);
        let mut results = Vec::new();
        for validation in &self.validations {
            match activation.evaluate(&validation.check, &mut budget) {
                Ok(result) => results.push(result),
                Err(_) => return Verdict::failure(self, OUT_OF_BUDGET.to_owned()),
            }
        }
        // Neither messages nor notes may ask for permissions.
        let inputs = Inputs {
            authorizer: None,
            ..inputs
        };
        let messages = self.messages(inputs, &mut budget);
        let mut verdict = Verdict::default();
        for (index, (validation, result)) in self.validations.iter().zip(results).enumerate() {
            let failure = match (result, &messages) {
                (Err(failure), _) => failure,
                // What messages cost counts even where none is needed.
                (Ok(_), None) => format!("failed messageExpression: {OUT_OF_BUDGET}"),
                (Ok(Value::Bool(true)), Some(_)) => continue,
                (Ok(_), Some(messages)) => {
                    let computed = messages.get(index).cloned().flatten();
                    verdict.denials.push((index, validation.denial(computed)));
                    continue;
                }
            };
            if !self.ignores_failures {
                verdict.denials.push((index, Denial::invalid(failure)));
            }
        }
        self.note(inputs, verdict)
    }

    /// The messages that expressions compute; `None` if that costs too much.
    fn messages(&self, inputs: Inputs<'_>, budget: &mut u64) -> Option<Vec<Option<String>>> {
        let activation = Activation::composing(inputs, &self.variables);
        let messages = self.validations.iter().map(|validation| {
            let Some(expression) = &validation.message_expression else {
                return Some(None);
            };
            Some(match activation.evaluate(expression, budget).ok()? {
                Ok(Value::String(text)) => usable(&text),
                _ => None,
            })
        });
        messages.collect()
    }

    fn note(&self, inputs: Inputs<'_>, mut verdict: Verdict) -> Verdict {
        let activation = Activation::composing(inputs, &self.variables);
        let mut budget = OBJECT_BUDGET;
        for (key, expression) in &self.notes {
            let result = match activation.evaluate(expression, &mut budget) {
                Ok(result) => result,
                Err(_) => return Verdict::failure(self, OUT_OF_BUDGET.to_owned()),
            };
            match result {
                Ok(Value::String(text)) => {
                    let text = text.trim();
                    if !text.is_empty() {
                        verdict.notes.push((key.clone(), text.to_owned()));
                    }
                }
                Ok(_) => {}
                Err(_) if self.ignores_failures => {}
                Err(failure) => verdict.failed_notes.push(failure),
            }
        }
        verdict
    }
}

impl Validation {
    fn denial(&self, computed: Option<String>) -> Denial {
        let message = computed.unwrap_or_else(|| match self.message.trim() {
            "" => format!("failed expression: {}", self.source.trim()),
            message => message.to_owned(),
        });
        Denial {
            message,
            reason: match self.reason.as_str() {
                "" => "Invalid".to_owned(),
                reason => reason.to_owned(),
            },
        }
    }
}

/// A message that can be shown: one line, not empty, not too long.
fn usable(message: &str) -> Option<String> {
    let message = message.trim();
    let fits = !message.is_empty() && message.len() <= LONGEST_MESSAGE && !message.contains('\n');
    fits.then(|| message.to_owned())
}
