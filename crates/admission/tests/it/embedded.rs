//! The admission point of the embedded control plane.

use tenure_testkit::{SOON, eventually};

use crate::stage::{Answer, Stage};
use crate::table::{Case, Object};

/// Compares an answer with the table. The server puts `prefix` before the rule's message.
pub(crate) fn compare(case: &Case, answer: &Answer, prefix: &str) -> Result<(), String> {
    match (answer, &case.allow, &case.deny) {
        (Answer::Allowed(object, warnings), Some(allowed), None) => {
            let label = object
                .pointer("/metadata/labels/capsule.clastix.io~1tenant")
                .and_then(|label| label.as_str());
            let account = object
                .pointer("/spec/serviceAccountName")
                .and_then(|account| account.as_str());
            let shard = object
                .pointer("/metadata/labels/sharding.fluxcd.io~1key")
                .and_then(|shard| shard.as_str());
            let wants_flux = allowed.account.as_deref().is_none_or(|wanted| account == Some(wanted))
                && allowed.shard.as_deref().is_none_or(|wanted| shard == Some(wanted));
            let has_field = |(key, wanted): (&String, &serde_json::Value)| object["spec"].get(key) == Some(wanted);
            let has_mark = |mark: &String| {
                let expected = mark
                    .split_once(' ')
                    .and_then(|(part, pair)| Some((part, pair.split_once('=')?)));
                expected.is_some_and(|(part, (key, value))| object["metadata"][part][key] == value)
            };
            let wants_flux = wants_flux && allowed.fields.iter().all(has_field) && allowed.marks.iter().all(has_mark);
            let wants_label = allowed.label.as_deref().is_none_or(|wanted| label == Some(wanted));
            let warns = match &allowed.warning {
                None => warnings.iter().all(|warning| {
                    let rules = ["(gitops-account)", "(git-managed)", "(field-ownership)"];
                    !rules.iter().any(|rule| warning.contains(rule))
                }),
                Some(part) => warnings.iter().any(|warning| warning.contains(part.as_str())),
            };
            if wants_label && wants_flux && warns {
                return Ok(());
            }
        }
        (Answer::Refused(403, reason, message), None, Some(rule)) => {
            let is_explained = message.contains(&case.saying) && message.ends_with(&format!("({rule})"));
            if reason == "Forbidden" && is_explained && message.contains(prefix) {
                return Ok(());
            }
        }
        _ => {}
    }
    Err(format!("{}\n    gives {answer:?}", case.name(0)))
}

/// Sends a request and compares the answer. The checks learn of new counts and hosts a moment later, so the request is
/// repeated.
pub(crate) async fn ask_and_compare(stage: &Stage, case: &Case, prefix: &str) -> Result<Answer, String> {
    if !case.claimed {
        let answer = stage.ask(case).await;
        return compare(case, &answer, prefix).map(|()| answer);
    }
    let asked = eventually(SOON, || async {
        let answer = stage.ask(case).await;
        compare(case, &answer, prefix).map(|()| answer)
    });
    asked.await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_control_plane_answers_as_the_table_says() {
    let stage = Stage::set().await;
    let (mut asked, mut wrong) = (0, Vec::new());
    for (index, case) in stage.cases() {
        if !case.pure_only.is_empty() {
            continue;
        }
        asked += 1;
        if let Err(why) = ask_and_compare(&stage, case, " is forbidden: ").await {
            wrong.push(format!("case {}: {why}", index + 1));
        }
    }
    assert!(wrong.is_empty(), "{} of {asked}:\n{}", wrong.len(), wrong.join("\n"));
    // The table only grows.
    assert!(asked >= 500, "only {asked} cases were asked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn created_namespaces_count_at_once() {
    let stage = Stage::set().await;
    let by = |namespace: &str| {
        let mut case: Case = serde_saphyr::from_str("{ by: dev, create: { namespace: x }, allow: {} }").unwrap();
        case.create = Some(Object {
            own: Some(namespace.to_owned()),
            ..Object::default()
        });
        case
    };
    // Two of four namespaces exist. Each created namespace counts at once.
    for (name, is_allowed) in [("blue-a", true), ("blue-b", true), ("blue-c", false)] {
        let answer = stage.make(&by(name)).await;
        assert_eq!(matches!(answer, Answer::Allowed(..)), is_allowed, "{name}: {answer:?}");
    }
}
