//! Limits of evaluations, and names without a declaration.

use std::collections::BTreeMap;

use kubernetes_cel::{Allowance, Environment, Type, Value};
use serde_json::json;

#[test]
fn evaluation_ends_at_its_allowed_cost_and_effort() {
    let object = json!({ "list": vec![1; 1000], "text": "x".repeat(1 << 20) });
    let variables = BTreeMap::from([("object".to_owned(), Value::json(&object))]);
    let environment = Environment::new().with_variable("object", Type::Dyn);
    for (expression, allowed, is_enough) in [
        ("object.list.all(x, x == 1)", (1_000, 1 << 20), false),
        ("object.list.all(x, x == 1)", (100_000, 1 << 20), true),
        ("size(object.text) > 0", (1_000, 1 << 19), false),
        ("size(object.text) > 0", (1_000, 1 << 21), true),
    ] {
        let program = environment.compile(expression).unwrap();
        let (cost, effort) = allowed;
        let evaluation = program.evaluate_within(&variables, Allowance { cost, effort });
        assert_eq!(evaluation.result.is_ok(), is_enough, "{expression}");
        if let Err(failure) = &evaluation.result {
            assert!(failure.is_too_costly(), "{expression}: {failure}");
        } else {
            assert!(evaluation.cost <= cost && evaluation.effort <= effort, "{expression}");
        }
    }
}

#[test]
fn any_name_is_a_variable_where_that_is_said() {
    let object = json!({ "status": { "phase": "Running" } });
    let variables = BTreeMap::from([("status".to_owned(), Value::json(&object["status"]))]);
    let environment = Environment::new().with_any_variable();
    let says = |expression: &str| {
        let program = environment.compile(expression).map_err(|error| error.to_string())?;
        let result = program.evaluate(&variables, 1_000).result;
        result
            .map(|value| matches!(value, Value::Bool(true)))
            .map_err(|failure| failure.to_string())
    };
    assert_eq!(says("status.phase == 'Running'"), Ok(true));
    assert_eq!(says("spec.replicas == 1"), Err("no such attribute(s): spec".to_owned()));
    assert_eq!(says("spec.replicas == 1 || status.phase == 'Running'"), Ok(true));
    assert_eq!(says("[1].all(status, status == 1)"), Ok(true));
    assert_eq!(says("type(status.phase) == string"), Ok(true));
    assert!(
        says("none(status)")
            .unwrap_err()
            .contains("undeclared reference to 'none'")
    );
    assert!(Environment::new().compile("status").is_err());
}
