//! The verdict of one policy on one request with one set of parameters. This module is pure: the caller passes all
//! inputs.

use kubernetes_cel::{OBJECT_BUDGET, Value};
use serde_json::Value as Json;
use tenure_kinds::expressions::{Activation, Inputs, Match, OUT_OF_BUDGET};

use super::policy::{Policy, Validation};

/// Longest computed message.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// The message and the reason with which a policy denies a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Denial {
    pub(super) message: String,
    pub(super) reason: String,
}

impl Denial {
    /// Returns a denial with the default reason.
    pub(super) fn invalid(message: String) -> Self {
        Self {
            message,
            reason: "Invalid".to_owned(),
        }
    }
}

/// The result of one policy for one request and one set of parameters.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// The failed validations by index, or the errors that prevented their evaluation.
    pub(super) denials: Vec<(usize, Denial)>,
    /// Annotations for the audit log.
    pub(super) notes: Vec<(String, String)>,
    /// Errors of audit annotations that have to end the request.
    pub(super) failed_notes: Vec<String>,
}

impl Verdict {
    /// Returns the verdict for a policy that could not be evaluated, by its failure policy.
    fn with_failure(policy: &Policy, why: String) -> Self {
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

/// Returns the same inputs with these parameters.
pub(super) fn with_params<'a>(inputs: Inputs<'a>, params: Option<&'a Json>) -> Inputs<'a> {
    Inputs { params, ..inputs }
}

/// Returns a namespace as expressions see it.
fn show_namespace(namespace: &Json) -> Json {
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
    /// Checks whether the match conditions select a request.
    pub(super) fn matches(&self, inputs: Inputs<'_>) -> Match {
        if self.conditions.is_empty() {
            return Match::Yes;
        }
        self.conditions.check(inputs, &self.variables, self.ignores_failures)
    }

    /// Evaluates the policy for a request that its match conditions select, with its namespace.
    pub(super) fn judge(&self, matches: Match, inputs: Inputs<'_>, namespace: Option<&Json>) -> Verdict {
        match matches {
            Match::Yes => {}
            Match::No => return Verdict::default(),
            Match::Failed(why) => return Verdict::with_failure(self, why),
        }
        let namespace = namespace.map(show_namespace);
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
                Err(_) => return Verdict::with_failure(self, OUT_OF_BUDGET.to_owned()),
            }
        }
        // Messages and annotations may not query permissions.
        let inputs = Inputs {
            authorizer: None,
            ..inputs
        };
        let messages = self.compute_messages(inputs, &mut budget);
        let mut verdict = Verdict::default();
        for (index, (validation, result)) in self.validations.iter().zip(results).enumerate() {
            let failure = match (result, &messages) {
                (Err(failure), _) => failure,
                // The messages cost more than the limit. That fails the validation, even if it succeeded and needs no
                // message.
                (Ok(_), None) => format!("failed messageExpression: {OUT_OF_BUDGET}"),
                (Ok(Value::Bool(true)), Some(_)) => continue,
                (Ok(_), Some(messages)) => {
                    let computed = messages.get(index).cloned().flatten();
                    verdict.denials.push((index, validation.make_denial(computed)));
                    continue;
                }
            };
            if !self.ignores_failures {
                verdict.denials.push((index, Denial::invalid(failure)));
            }
        }
        self.add_audit_annotations(inputs, verdict)
    }

    /// Returns the messages that expressions compute; `None` if they cost too much.
    fn compute_messages(&self, inputs: Inputs<'_>, budget: &mut u64) -> Option<Vec<Option<String>>> {
        let activation = Activation::composing(inputs, &self.variables);
        let messages = self.validations.iter().map(|validation| {
            let Some(expression) = &validation.message_expression else {
                return Some(None);
            };
            Some(match activation.evaluate(expression, budget).ok()? {
                Ok(Value::String(text)) => trim_message(&text),
                _ => None,
            })
        });
        messages.collect()
    }

    fn add_audit_annotations(&self, inputs: Inputs<'_>, mut verdict: Verdict) -> Verdict {
        let activation = Activation::composing(inputs, &self.variables);
        let mut budget = OBJECT_BUDGET;
        for (key, expression) in &self.notes {
            let result = match activation.evaluate(expression, &mut budget) {
                Ok(result) => result,
                Err(_) => return Verdict::with_failure(self, OUT_OF_BUDGET.to_owned()),
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
    fn make_denial(&self, computed: Option<String>) -> Denial {
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

/// Returns the trimmed message; `None` if it is empty, has several lines or is longer than [`LONGEST_MESSAGE`].
fn trim_message(message: &str) -> Option<String> {
    let message = message.trim();
    let fits = !message.is_empty() && message.len() <= LONGEST_MESSAGE && !message.contains('\n');
    fits.then(|| message.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the verdict of a policy with this spec on the creation of a ConfigMap with these parameters.
    fn verdict(spec: &Json, params: Option<&Json>) -> Verdict {
        let policy = Policy::read(&json!({"metadata": {"name": "p"}, "spec": spec}));
        let object = json!({"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"size": "4"}});
        let request = json!({"operation": "CREATE", "name": "a"});
        let inputs = Inputs {
            object: Some(&object),
            request: Some(&request),
            params,
            ..Inputs::default()
        };
        let namespace = json!({"kind": "Namespace", "metadata": {"name": "shop", "managedFields": []}, "spec": {}});
        policy.judge(policy.matches(inputs), inputs, Some(&namespace))
    }

    #[test]
    fn a_policy_says_which_validations_fail_and_why() {
        let nothing: [(usize, &str, &str); 0] = [];
        for (spec, wanted) in [
            (
                json!({"validations": [{"expression": "object.data.size == '4'"}]}),
                nothing.to_vec(),
            ),
            (
                json!({"validations": [{"expression": "true"}, {"expression": " false "}, {"expression": "false", "message": " no ", "reason": "Forbidden"}]}),
                vec![(1, "failed expression: false", "Invalid"), (2, "no", "Forbidden")],
            ),
            (
                json!({"validations": [{"expression": "false", "message": "plain", "messageExpression": "'size ' + object.data.size"}]}),
                vec![(0, "size 4", "Invalid")],
            ),
            (
                json!({"validations": [{"expression": "false", "message": "plain", "messageExpression": "object.data.nope + ''"}]}),
                vec![(0, "plain", "Invalid")],
            ),
            (
                json!({"validations": [{"expression": "false", "message": "plain", "messageExpression": "'a\\nb'"}]}),
                vec![(0, "plain", "Invalid")],
            ),
            (
                json!({"validations": [{"expression": "object.data.nope == ''"}, {"expression": "false"}]}),
                vec![
                    (
                        0,
                        "expression 'object.data.nope == ''' resulted in error: no such key: nope",
                        "Invalid",
                    ),
                    (1, "failed expression: false", "Invalid"),
                ],
            ),
            (
                json!({"failurePolicy": "Ignore", "validations": [{"expression": "object.data.nope == ''"}, {"expression": "false"}]}),
                vec![(1, "failed expression: false", "Invalid")],
            ),
            // A stored expression that no longer compiles fails when it is evaluated.
            (
                json!({"validations": [{"expression": "1"}]}),
                vec![(0, "compilation error: must evaluate to bool but got int", "Invalid")],
            ),
            (
                json!({"validations": [{"expression": "false"}], "matchConditions": [{"expression": "false"}]}),
                nothing.to_vec(),
            ),
            (
                json!({"validations": [{"expression": "true"}], "matchConditions": [{"expression": "object.nope"}, {"expression": "object.nope == 1"}]}),
                vec![(
                    0,
                    "[compilation error: must evaluate to bool but got dyn, expression 'object.nope == 1' resulted in error: no such key: nope]",
                    "Invalid",
                )],
            ),
            (
                json!({"failurePolicy": "Ignore", "validations": [{"expression": "false"}], "matchConditions": [{"expression": "object.nope == 1"}]}),
                nothing.to_vec(),
            ),
            (
                json!({"paramKind": {}, "validations": [{"expression": "params.most == '3'"}, {"expression": "params == null"}]}),
                vec![(1, "failed expression: params == null", "Invalid")],
            ),
            (
                json!({"validations": [{"expression": "namespaceObject.metadata.name == 'shop' && !('managedFields' in dyn(namespaceObject).metadata)"}]}),
                nothing.to_vec(),
            ),
        ] {
            let denials: Vec<_> = verdict(&spec, Some(&json!({"most": "3"}))).denials;
            let found: Vec<(usize, &str, &str)> = denials
                .iter()
                .map(|(index, denial)| (*index, denial.message.as_str(), denial.reason.as_str()))
                .collect();
            assert_eq!(found, wanted, "{spec}");
        }
    }

    #[test]
    fn variables_are_computed_when_they_are_named() {
        let spec = |expression: &str| {
            json!({"validations": [{"expression": expression}], "variables": [
                {"name": "size", "expression": "int(object.data.size)"},
                {"name": "twice", "expression": "variables.size * 2"},
                {"name": "never", "expression": "object.nope"},
                {"name": "round", "expression": "1"},
                {"name": "round", "expression": "variables.round + 1"},
            ]})
        };
        for (expression, wanted) in [
            (
                "variables.twice == 8 && has(variables.twice) && variables.?twice.orValue(0) == 8",
                "",
            ),
            ("variables.size == 4 || variables.never == 1", ""),
            (
                "variables.never == 1",
                "expression 'variables.never == 1' resulted in error: composited variable \"never\" fails to evaluate: no such key: nope",
            ),
            (
                "variables.round == 2",
                "expression 'variables.round == 2' resulted in error: composited variable \"round\" fails to evaluate: composited variable \
                 \"round\" refers to itself",
            ),
        ] {
            let denials = verdict(&spec(expression), None).denials;
            let found = denials.first().map_or("", |(_, denial)| denial.message.as_str());
            assert_eq!(found, wanted, "{expression}");
        }
    }

    /// Variables that refer to each other without end fail, and don't stop the server.
    #[test]
    fn variables_nest_as_deep_as_the_stack_allows() {
        let brackets = 10;
        for around in [0, brackets, 100] {
            let nested = |inner: String| format!("{}{inner}{}", "[".repeat(around), "][0]".repeat(around));
            let mut variables = vec![json!({"name": "v0", "expression": "1"})];
            variables.extend((1..400).map(|number| {
                json!({"name": format!("v{number}"), "expression": nested(format!("variables.v{}", number - 1))})
            }));
            let spec = |last: usize| json!({"variables": variables, "validations": [{"expression": format!("variables.v{last} == 1")}]});
            if around <= brackets {
                assert_eq!(verdict(&spec(5), None).denials, []);
            }
            let denials = verdict(&spec(399), None).denials;
            let message = denials.first().map_or("", |(_, denial)| denial.message.as_str());
            assert!(message.ends_with(" nests too deep"), "{message:.300}");
        }
    }

    #[test]
    fn notes_are_kept_unless_they_are_empty() {
        let spec = |failure: &str| {
            json!({"failurePolicy": failure, "auditAnnotations": [
                {"key": "size", "valueExpression": "' ' + object.data.size + ' '"},
                {"key": "blank", "valueExpression": "' '"},
                {"key": "nothing", "valueExpression": "null"},
                {"key": "failing", "valueExpression": "string(object.nope)"},
            ]})
        };
        let noted = [("size".to_owned(), "4".to_owned())];
        let verdict_of = |failure| verdict(&spec(failure), None);
        assert_eq!(verdict_of("Ignore").notes, noted);
        assert!(verdict_of("Ignore").failed_notes.is_empty());
        assert_eq!(verdict_of("Fail").notes, noted);
        assert_eq!(
            verdict_of("Fail").failed_notes,
            ["expression 'string(object.nope)' resulted in error: no such key: nope"]
        );
    }

    #[test]
    fn validations_over_the_shared_budget_give_one_denial() {
        // A search through this text costs 400,000.
        let params = json!({"long": "x".repeat(4_000_000)});
        let dear = "!params.long.contains('y')";
        let verdict = |spec: Json| verdict(&spec, Some(&params));
        let validations = |count: usize| vec![json!({"expression": dear}); count];
        assert_eq!(
            verdict(json!({"paramKind": {}, "validations": validations(2)})),
            Verdict::default()
        );
        let many = json!({"paramKind": {}, "validations": validations(40)});
        assert_eq!(verdict(many).denials, [(0, Denial::invalid(OUT_OF_BUDGET.to_owned()))]);
        // Messages share the budget, and count even if nothing fails.
        let mut with_message = json!({"paramKind": {}, "validations": validations(15)});
        for validation in with_message["validations"].as_array_mut().into_iter().flatten() {
            validation["messageExpression"] = json!(format!("string({dear})"));
        }
        let denials: Vec<Denial> = verdict(with_message)
            .denials
            .into_iter()
            .map(|(_, denial)| denial)
            .collect();
        let wanted = Denial::invalid(format!("failed messageExpression: {OUT_OF_BUDGET}"));
        assert_eq!(denials, vec![wanted; 15]);
    }
}
