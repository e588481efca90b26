//! Recorded answers of a real kube-apiserver to access reviews, attempts to escalate and attempts to impersonate
//! (`tests/access/`).

use serde_json::Value;
use tenure_auth::authorization::{Rbac, RbacKind, bootstrap_objects};

pub(crate) const CASES: &str = include_str!("../access/cases.json");
pub(crate) const ANSWERS: &str = include_str!("../access/answers.json");

/// Returns the recorded questions of one kind with their answers, and the roles and bindings of the recording.
pub(crate) fn read_recorded_steps(kind: &str) -> (Rbac, Steps) {
    let cases: Value = serde_json::from_str(CASES).unwrap();
    let answers: Value = serde_json::from_str(ANSWERS).unwrap();
    let mut rbac = Rbac::default();
    for bootstrap in bootstrap_objects() {
        rbac.apply(bootstrap.kind, &bootstrap.object);
    }
    for object in cases["objects"].as_array().unwrap() {
        if let Some(kind) = rbac_kind(object) {
            rbac.apply(kind, object);
        }
    }
    let questions = cases[kind].as_array().unwrap();
    let answers = answers[kind].as_array().unwrap();
    assert_eq!(questions.len(), answers.len());
    (rbac, questions.iter().cloned().zip(answers.iter().cloned()).collect())
}

pub(crate) fn rbac_kind(object: &Value) -> Option<RbacKind> {
    let plural = format!("{}s", object["kind"].as_str().unwrap().to_lowercase());
    RbacKind::of_resource(&plural)
}

/// The steps of a story: question and answer.
pub(crate) type Steps = Vec<(Value, Value)>;
