//! Health by a Kustomization's own expressions, for the kinds that it names, as in Flux. The entry of a kind takes precedence over the entry of its whole group. A
//! generation that is not observed yet is InProgress. Then inProgress, failed and current are evaluated, and the first true one is the result. Without one, the
//! object is InProgress. An expression that can't be evaluated makes the object Unknown, and the plan waits. Jobs follow Flux's own rule.

use std::collections::BTreeMap;

use kubernetes_cel::{Environment, Value as CelValue, Variables};
use serde_json::{Map, Value};
use tenure_api::inventory::split_api_version;
use tenure_api::selector::CustomHealthCheck;
use tenure_api::{KustomizationSpec, ObjectId, ObjectView};

use super::expression_memory::{self, ExpressionMemory, HealthVerdict};
use crate::answer::Live;
use crate::expression::{EvaluationBudget, EvaluationError, Expression};
use crate::health::{self, Health};

/// The `healthCheckExprs` of a Kustomization. Each is compiled when a plan first needs it.
pub(super) struct CustomHealth<'a> {
    checks: &'a [CustomHealthCheck],
    /// Indexes in `checks` by group and kind; the kind is empty for the whole group.
    places: BTreeMap<(&'a str, &'a str), usize>,
    environment: Environment,
    compiled: BTreeMap<usize, Result<Vec<(Outcome, Expression)>, String>>,
    /// True if an expression was not evaluated because the evaluation budget is spent.
    pub(super) is_spent: bool,
}

/// The health of an object for which an expression is true.
#[derive(Clone, Copy)]
enum Outcome {
    InProgress,
    Failed,
    Current,
}

impl<'a> CustomHealth<'a> {
    pub(super) fn from_spec(spec: &'a KustomizationSpec) -> Self {
        let place = |(index, check): (usize, &'a CustomHealthCheck)| {
            let (group, _) = split_api_version(&check.api_version);
            ((group, check.kind.as_deref().unwrap_or_default()), index)
        };
        Self {
            checks: &spec.health_check_exprs,
            places: spec.health_check_exprs.iter().enumerate().map(place).collect(),
            environment: expression_memory::declare_health(),
            compiled: BTreeMap::new(),
            is_spent: false,
        }
    }

    /// Returns the health of a read object: by the check of its kind, if there is one, else by [`assess_live`](crate::health::assess_live).
    pub(super) fn assess_object(
        &mut self,
        memory: &mut ExpressionMemory,
        id: &ObjectId,
        live: &Live,
        confidential: bool,
    ) -> Health {
        let (Some(index), Live::Present(object)) = (self.find(id), live) else {
            return health::assess_live(live);
        };
        let version = expression_memory::read_state(&object.0);
        if let Some(verdict) = memory.health.get(id)
            && version.as_ref() == Some(&verdict.of)
        {
            return verdict.health.clone();
        }
        let health = match self.evaluate(index, &object.0, &mut memory.budget) {
            Ok(health) => health,
            Err(refused) => {
                let message = if confidential {
                    refused.message_without_contents()
                } else {
                    refused.message()
                };
                if matches!(refused, EvaluationError::Spent(_)) {
                    self.is_spent = true;
                    return Health::Unknown(message);
                }
                Health::Unknown(message)
            }
        };
        if let Some(of) = version {
            let verdict = HealthVerdict {
                of,
                health: health.clone(),
            };
            memory.health.insert(id.clone(), verdict);
        }
        health
    }

    fn find(&self, id: &ObjectId) -> Option<usize> {
        if id.group == "batch" && id.kind == "Job" {
            return None;
        }
        let place = |kind| self.places.get(&(id.group.as_str(), kind)).copied();
        place(&id.kind).or_else(|| place(""))
    }

    fn evaluate(
        &mut self,
        index: usize,
        object: &Value,
        budget: &mut EvaluationBudget,
    ) -> Result<Health, EvaluationError> {
        let view = ObjectView::new(object);
        let (observed, generation) = (
            view.find_number("/status/observedGeneration"),
            view.find_number("/metadata/generation"),
        );
        if let (Some(observed), Some(generation)) = (observed, generation)
            && observed != generation
        {
            return Ok(Health::InProgress(String::new()));
        }
        let (checks, environment) = (self.checks, &self.environment);
        let compiled = self
            .compiled
            .entry(index)
            .or_insert_with(|| compile(checks, index, environment));
        let expressions = compiled
            .as_ref()
            .map_err(|why| EvaluationError::TooCostly(why.clone()))?;
        let variables = Fields(object.as_object());
        for (outcome, expression) in expressions {
            if expression.evaluate(&variables, budget)? {
                return Ok(match outcome {
                    Outcome::InProgress => Health::InProgress(String::new()),
                    Outcome::Failed => Health::Failed(String::new()),
                    Outcome::Current => Health::Current,
                });
            }
        }
        Ok(Health::InProgress(String::new()))
    }
}

/// Compiles the expressions of a check, in the order in which they are asked.
fn compile(
    checks: &[CustomHealthCheck],
    index: usize,
    environment: &Environment,
) -> Result<Vec<(Outcome, Expression)>, String> {
    let Some(check) = checks.get(index) else {
        return Ok(Vec::new());
    };
    let named = [
        (Outcome::InProgress, "inProgress", check.in_progress.as_deref()),
        (Outcome::Failed, "failed", check.failed.as_deref()),
        (Outcome::Current, "current", Some(check.current.as_str())),
    ];
    let set = named
        .into_iter()
        .filter_map(|(outcome, name, text)| Some((outcome, name, text.filter(|text| !text.is_empty())?)));
    set.map(|(outcome, name, text)| {
        let field = format!("spec.healthCheckExprs[{index}].{name}");
        Ok((outcome, Expression::compile(environment, field, text)?))
    })
    .collect()
}

/// The fields of an object as variables.
struct Fields<'a>(Option<&'a Map<String, Value>>);

impl<'a> Variables<'a> for Fields<'a> {
    fn get(&self, name: &str) -> Option<CelValue<'a>> {
        self.0?.get(name).map(CelValue::json)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::Object;

    /// Recorded by `e2e/flux-expressions`.
    const RECORDED: &str = include_str!("../../tests/data/health-expressions.json");

    /// Flux only parses expressions. Here they are also checked, so these are refused before any object is looked at. Names of types stay names of types, even if an
    /// object has fields of these names.
    const REFUSED_AT_ONCE: [&str; 6] = [
        "'yes'",
        "noSuchFunction(status)",
        "'a' == 1",
        "base64.decode(data.a) == b'a'",
        "[1, 'a'].size() == 2",
        "type == 'Opaque'",
    ];

    fn spec(check: &Value) -> KustomizationSpec {
        serde_json::from_value(json!({
            "interval": "1m", "prune": true, "wait": true, "sourceRef": { "kind": "GitRepository", "name": "app" },
            "healthCheckExprs": [check],
        }))
        .unwrap()
    }

    fn id() -> ObjectId {
        "team_a_example.com_Widget".parse().unwrap()
    }

    fn judge(check: &Value, object: &Value) -> Health {
        let mut memory = ExpressionMemory::default();
        let live = Live::Present(Object(object.clone()));
        CustomHealth::from_spec(&spec(check)).assess_object(&mut memory, &id(), &live, false)
    }

    fn check(case: &Value) -> Value {
        let mut check = case.clone();
        check["apiVersion"] = json!("example.com/v1");
        check["kind"] = json!("Widget");
        check.as_object_mut().unwrap().remove("answers");
        check
    }

    #[test]
    fn expressions_say_what_they_say_in_flux() {
        let recorded: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
        assert_eq!(recorded.len(), 45);
        for case in &recorded {
            let check = check(case);
            let current = case["current"].as_str().unwrap();
            let problem = expression_memory::find_expression_problem(&spec(&check));
            let refused = case.get("invalid").is_some() || REFUSED_AT_ONCE.contains(&current);
            assert_eq!(problem.is_some(), refused, "{current}: {problem:?}");
            for answer in case["answers"].as_array().into_iter().flatten().filter(|_| !refused) {
                let health = judge(&check, &answer["object"]);
                let flux = answer["status"].as_str().unwrap_or("Unknown");
                assert_eq!(health.as_str(), flux, "{current} of {}", answer["object"]);
            }
        }
    }

    /// An entry of a group doesn't apply to Jobs, which have their own rule.
    #[test]
    fn kind_entry_precedes_group_entry() {
        let spec: KustomizationSpec = serde_json::from_value(json!({
            "interval": "1m", "prune": true, "sourceRef": { "kind": "GitRepository", "name": "app" },
            "healthCheckExprs": [
                { "apiVersion": "example.com/v1", "current": "false", "failed": "true" },
                { "apiVersion": "example.com/v1beta1", "kind": "Widget", "current": "true" },
                { "apiVersion": "v1", "current": "true" },
                { "apiVersion": "batch/v1", "current": "true" },
            ],
        }))
        .unwrap();
        let health = |id: &str, object: Value| {
            let live = Live::Present(Object(object));
            let mut memory = ExpressionMemory::default();
            CustomHealth::from_spec(&spec).assess_object(&mut memory, &id.parse().unwrap(), &live, false)
        };
        assert_eq!(health("team_a_example.com_Widget", json!({})), Health::Current);
        assert_eq!(
            health("team_a_example.com_Gear", json!({})),
            Health::Failed(String::new())
        );
        let pending = json!({ "apiVersion": "v1", "kind": "Pod", "status": { "phase": "Pending" } });
        assert_eq!(health("team_a__Pod", pending), Health::Current);
        let job = json!({ "apiVersion": "batch/v1", "kind": "Job" });
        assert!(matches!(health("team_a_batch_Job", job), Health::InProgress(_)));
        let absent =
            CustomHealth::from_spec(&spec).assess_object(&mut ExpressionMemory::default(), &id(), &Live::Absent, false);
        assert_eq!(absent, Health::NotFound);
    }

    #[test]
    fn health_state_is_evaluated_once_and_cost_remembered() {
        let check = json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "current": "status.list.all(x, status.list.all(y, x == y))",
        });
        let widget = |version: u32| {
            Live::Present(Object(json!({
                "metadata": { "uid": "u", "resourceVersion": version.to_string() },
                "status": { "list": vec![1; 2000] },
            })))
        };
        let spec = spec(&check);
        let mut memory = ExpressionMemory::default();
        let mut judge =
            |version| CustomHealth::from_spec(&spec).assess_object(&mut memory, &id(), &widget(version), false);
        let refused = judge(1);
        assert_eq!(judge(1), refused);
        let message = refused.message().to_owned();
        assert!(
            message.contains("spec.healthCheckExprs[0].current costs more than an expression may"),
            "{message}"
        );
        for version in 2..200 {
            judge(version);
        }
        let spent = judge(200).message().to_owned();
        assert!(spent.contains("is not evaluated"), "{spent}");
        // A hundred states were paid for; the others cost nothing.
        assert_eq!(memory.budget.cost, crate::expression::FULL_BUDGET.cost);
        assert_eq!(memory.health.len(), 1);
    }

    #[test]
    fn messages_contain_nothing_of_a_secret() {
        let check = json!({ "apiVersion": "v1", "kind": "Secret", "current": "{'a': true}[data.password]" });
        let live = Live::Present(Object(json!({ "data": { "password": "aHVudGVyMg==" } })));
        let id: ObjectId = "team_a__Secret".parse().unwrap();
        let judge = |confidential| {
            let mut memory = ExpressionMemory::default();
            CustomHealth::from_spec(&spec(&check)).assess_object(&mut memory, &id, &live, confidential)
        };
        assert!(judge(false).message().contains("aHVudGVyMg=="), "{:?}", judge(false));
        assert!(!judge(true).message().contains("aHVudGVyMg=="));
        assert!(judge(true).message().contains("can't be evaluated"));
    }
}
