//! Objects in which kustomize-controller's own packages substituted variables (`tests/data/substitution.json`, recorded by
//! `e2e/post-build`), one trial for each. The library must give the same YAML, or refuse the objects that kustomize-controller refuses.

use std::collections::BTreeMap;
use std::sync::Arc;

use kustomize::{MapTree, Options, Substitution, Variable, build};
use serde_json::Value;
use tenure_trials::{Suite, name_of_line};

/// An object that kustomize-controller builds and this library refuses. kustomize-controller uses only the text before the marker of a
/// document, and drops the rest.
const REFUSED: (&str, &str) = ("${docreturn}", "one object would become several");

fn substitute(text: &str, variables: &BTreeMap<String, String>) -> Result<String, String> {
    let mut tree = MapTree::new();
    tree.insert("kustomization.yaml", "resources: [object.yaml]\n");
    tree.insert("object.yaml", text);
    let variable = |(name, value): (&String, &String)| {
        // Flux takes the line breaks out where it reads them.
        let value = value.replace('\n', "").into_bytes();
        (
            name.clone(),
            Variable {
                value,
                is_secret: false,
            },
        )
    };
    let mut substitution = Substitution::new(variables.iter().map(variable).collect());
    let unless = ("kustomize.toolkit.fluxcd.io/substitute", "disabled");
    substitution.unless = Some((unless.0.to_owned(), unless.1.to_owned()));
    let options = Options {
        substitution: Some(substitution),
        ..Options::default()
    };
    let built = build(&tree, "", &options).map_err(|error| error.to_string())?;
    Ok(built.to_yaml())
}

fn check(case: &Value, variables: &BTreeMap<String, String>) -> Result<(), String> {
    let text = case["text"].as_str().unwrap();
    let ours = substitute(text, variables);
    match (case.get("output").and_then(Value::as_str), ours) {
        (Some(real), Ok(ours)) if real == ours => Ok(()),
        (None, Err(_)) => Ok(()),
        (Some(_), Err(error)) if text.contains(REFUSED.0) && error.contains(REFUSED.1) => Ok(()),
        (real, ours) => Err(format!("{text}\n  real: {real:?} {}\n  ours: {ours:?}", case["error"])),
    }
}

pub(crate) fn add(suite: &mut Suite) {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../data/substitution.json")).unwrap();
    let all: Arc<BTreeMap<String, String>> = Arc::new(serde_json::from_value(cases[0]["variables"].clone()).unwrap());
    let numbered = cases.into_iter().enumerate().skip(1);
    let cases = numbered.filter_map(|(index, case)| {
        // The caller decides whether a substitution is necessary.
        let variables = match case.get("always").and_then(Value::as_bool) {
            None => Arc::clone(&all),
            Some(true) => Arc::default(),
            Some(false) => return None,
        };
        let name = name_of_line(index + 2, case["text"].as_str()?.lines().last()?);
        Some((name, move || check(&case, &variables)))
    });
    suite.add("substitution", 400, cases);
}
