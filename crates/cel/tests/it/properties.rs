//! Properties of every expression: no panic, no cost above the limit, and a bounded depth.

use std::collections::BTreeMap;

use kubernetes_cel::{EXPRESSION_BUDGET, Environment, Shape, Type, Value};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

fn object() -> Json {
    json!({"name": "abc", "number": 3, "list": [1, 2, 3], "texts": ["a", "bb"], "map": {"k": "v"}, "none": null})
}

/// Compiles and evaluates; the answer does not matter.
fn run(expression: &str) {
    let object = object();
    let environment = Environment::new().with_variable("object", Type::Dyn);
    let Ok(program) = environment.compile(expression) else {
        return;
    };
    let _ = program.estimate(None);
    let variables = BTreeMap::from([("object".to_owned(), Value::json(&object))]);
    for limit in [0, 10, 1000, EXPRESSION_BUDGET] {
        let evaluation = program.evaluate(&variables, limit);
        if evaluation.result.is_ok() {
            assert!(
                evaluation.cost <= limit,
                "{expression} cost {} of {limit}",
                evaluation.cost
            );
        }
    }
}

fn generate_atom() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("object".to_owned()),
        Just("x".to_owned()),
        Just("object.name".to_owned()),
        Just("object.list".to_owned()),
        Just("object.texts".to_owned()),
        Just("object.map".to_owned()),
        Just("object.?none".to_owned()),
        Just("null".to_owned()),
        Just("optional.none()".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<u32>().prop_map(|number| format!("{number}u")),
        any::<f32>()
            .prop_filter("finite", |number| number.is_finite())
            .prop_map(|number| format!("{number:?}")),
        "[a-c%é]{0,4}".prop_map(|text| format!("'{text}'")),
        "[a-z]{0,3}".prop_map(|text| format!("quantity('{text}')")),
        Just("timestamp('9999-12-31T23:59:59Z')".to_owned()),
        Just("duration('1h')".to_owned()),
        Just("ip('::1')".to_owned()),
        Just("cidr('10.0.0.0/8')".to_owned()),
    ]
}

fn generate_expression() -> impl Strategy<Value = String> {
    let functions = prop::sample::select(vec![
        "size()",
        "sum()",
        "sort()",
        "reverse()",
        "distinct()",
        "flatten()",
        "isSorted()",
        "join('-')",
        "split('')",
        "upperAscii()",
        "charAt(1)",
        "substring(1)",
        "replace('', 'xx')",
        "matches('a+')",
        "findAll('.')",
        "value()",
        "hasValue()",
        "getFullYear()",
        "getHours('Europe/Berlin')",
        "masked()",
        "format([1, 'a'])",
        "min()",
        "lastIndexOf('a', 1)",
        "slice(0, 1)",
        "first()",
        "asInteger()",
        "toString()",
        "name",
        "?name",
        "list[0]",
    ]);
    let macros = prop::sample::select(vec![
        "all(x, ",
        "exists(x, ",
        "map(x, ",
        "filter(x, ",
        "exists_one(x, ",
        "optMap(x, ",
        "sortBy(x, ",
        "transformList(i, x, ",
        "transformMap(i, x, ",
        "transformMapEntry(i, x, ",
        "all(i, x, ",
    ]);
    let operators = prop::sample::select(vec![
        "+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in",
    ]);
    let conversions = prop::sample::select(vec![
        "int",
        "uint",
        "double",
        "string",
        "bytes",
        "dyn",
        "type",
        "size",
        "has",
        "duration",
        "timestamp",
        "lists.range",
        "!",
        "-",
    ]);
    generate_atom().prop_recursive(5, 40, 3, move |inner| {
        prop_oneof![
            (inner.clone(), operators.clone(), inner.clone()).prop_map(|(l, o, r)| format!("({l} {o} {r})")),
            (inner.clone(), functions.clone()).prop_map(|(value, function)| format!("{value}.{function}")),
            (inner.clone(), macros.clone(), inner.clone()).prop_map(|(v, name, e)| format!("{v}.{name}{e})")),
            (conversions.clone(), inner.clone()).prop_map(|(name, value)| format!("{name}({value})")),
            (inner.clone(), inner.clone()).prop_map(|(value, index)| format!("{value}[{index}]")),
            (inner.clone(), inner.clone()).prop_map(|(value, index)| format!("{value}[?{index}]")),
            prop::collection::vec(inner.clone(), 0..3).prop_map(|items| format!("[{}]", items.join(", "))),
            (inner.clone(), inner.clone()).prop_map(|(key, value)| format!("{{{key}: {value}}}")),
            (inner.clone(), inner.clone(), inner).prop_map(|(c, yes, no)| format!("({c} ? {yes} : {no})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_expression_ends(expression in generate_expression()) {
        run(&expression);
        // With everything taken for anything, more of them get past the checker.
        run(&expression.replace("'", "\"").replace("object", "dyn(object)"));
    }

    #[test]
    fn any_text_is_answered(text in "\\PC{0,60}") {
        run(&text);
    }

    #[test]
    fn any_soup_of_tokens_is_answered(tokens in prop::collection::vec(prop::sample::select(vec![
        "object", ".", "?", "[", "]", "(", ")", "{", "}", ",", ":", "'a'", "1", "-", "!", "==", "&&", "in", "has", "map",
        "x", "//", "\n", "'''", "r'", "b\"", "\\", "0x", "1e", "u", "%", "`",
    ]), 0..25)) {
        run(&tokens.join(""));
        run(&tokens.join(" "));
    }

    #[test]
    fn any_schema_and_object_are_answered(kind in prop::sample::select(vec!["string", "integer", "object", "array", ""]),
                                          text in "\\PC{0,10}") {
        let schema = json!({"type": "object", "properties": {text.clone(): {"type": kind, "items": {"type": "string"}}}});
        let shape = Shape::of_resource(&schema, "selfType");
        let value = json!({text.clone(): text});
        let view = Value::with_shape(&value, &shape).unwrap();
        let environment = shape.declare(Environment::new()).with_variable("self", shape.declared_type().unwrap().clone());
        let program = environment.compile("dyn(self).all(k, v, v == v) && self == self").unwrap();
        let _ = program.evaluate(&[("self", view)], EXPRESSION_BUDGET);
    }
}

#[test]
fn depth_has_a_bound() {
    let nested = |open: &str, close: &str| format!("{}1{}", open.repeat(5000), close.repeat(5000));
    for expression in [
        nested("(", ")"),
        nested("[", "]"),
        nested("{1:", "}"),
        nested("dyn(", ")"),
        format!("1{}", "+1".repeat(5000)),
        format!("1{}", "==1".repeat(5000)),
        format!("object{}", ".a".repeat(5000)),
        format!("object{}", "[0]".repeat(5000)),
        format!("1{}", " ? 1 : 1".repeat(5000)),
        format!("object{}", ".map(x, x)".repeat(5000)),
    ] {
        let problem = Environment::new()
            .with_variable("object", Type::Dyn)
            .compile(&expression)
            .unwrap_err();
        assert!(
            problem.to_string().contains("recursion limit exceeded: 250"),
            "{problem}"
        );
    }
    let long = format!("'{}'", "a".repeat(100_001));
    let problem = Environment::new().compile(&long).unwrap_err();
    assert!(
        problem.to_string().contains("expression code point size exceeds limit"),
        "{problem}"
    );
}

/// The deepest valid expression works on a small stack.
#[test]
fn the_deepest_fit_on_a_small_stack() {
    let deep = "dyn(".repeat(120) + "object" + &")".repeat(120);
    let maps = "[1]".to_owned() + &".map(x, x)".repeat(120);
    let inner = (0..110).fold("1".to_owned(), |inner, _| format!("[1].map(x, {inner})"));
    let run_all = move || [deep, maps, inner].iter().for_each(|expression| run(expression));
    std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(run_all)
        .unwrap()
        .join()
        .unwrap();
}

/// The effort limits stop expressions that would occupy a processor or memory for long without a cost.
#[test]
fn hostile_expressions_are_stopped() {
    let long = "a".repeat(1_000_000);
    let object = json!({"long": long, "list": (0..1000).collect::<Vec<_>>()});
    let environment = Environment::new().with_variable("object", Type::Dyn);
    let variables = BTreeMap::from([("object".to_owned(), Value::json(&object))]);
    for expression in [
        "lists.range(50000000).size() > 0",
        "object.list.all(x, object.list.all(y, object.list.all(z, true)))",
        "object.list.all(x, object.list.all(y, object.long.size() > 0))",
        "object.list.map(x, object.list.map(y, object.list.map(z, z))).size() > 0",
        "object.list.all(x, object.list.all(y, (object.list + object.list).size() > 0))",
        "object.long.replace('', object.long).size() > 0",
        "object.list.all(x, object.list.all(y, !'a'.matches(string(x) + '-' + string(y))))",
        "object.list.all(x, object.list.all(y, object == object))",
        "object.list.all(x, object.list.all(y, object.long.startsWith('b') || true))",
        "object.list.map(x, object.long + object.long).size() > 0",
    ] {
        let program = environment.compile(expression).unwrap();
        let failure = program
            .evaluate(&variables, EXPRESSION_BUDGET)
            .result
            .expect_err(expression);
        assert!(failure.is_too_costly(), "{expression}: {failure}");
    }
}
