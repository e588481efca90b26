//! Any bytes as a request to a Receiver: for a target in `fuzz/`, and as a test over its first inputs. The module exists only for tests and under `cfg(fuzzing)`, which
//! cargo-fuzz sets.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    reason = "a check fails by a panic"
)]

use hmac::digest::KeyInit;
use hmac::{Hmac, Mac as _};
use jiff::Timestamp;
use serde_json::json;
use tenure_api::Receiver;

use super::{Candidate, Delivery, HEADERS, Verdict, find_path, select_targets, verify_request};
use crate::expression::{EvaluationBudget, FULL_BUDGET};

const TYPES: [&str; 9] = [
    "generic",
    "generic-hmac",
    "github",
    "gitlab",
    "bitbucket",
    "harbor",
    "dockerhub",
    "quay",
    "nexus",
];
const TOKEN: &[u8] = b"sesame";
/// Expressions that reach into the body.
const FILTERS: [&str; 4] = [
    "has(req.ref) && req.ref == 'refs/heads/main'",
    "req.commits.exists(c, c.modified.exists(m, m.startsWith('deploy/')))",
    "string(req.number) + req.text == res.metadata.name || req.list.map(x, x + 1).size() > 3",
    "req.text.matches('(a+)+b') || req.all(k, req[k] == k)",
];

fn make_receiver(kind: &str, filter: Option<&str>) -> Receiver {
    let mut spec = json!({
        "type": kind,
        "events": if kind == "github" { json!(["push"]) } else { json!([]) },
        "secretRef": { "name": "token" },
        "resources": [{ "kind": "GitRepository", "name": "app" }],
    });
    if let Some(filter) = filter {
        spec["resourceFilter"] = json!(filter);
    }
    let object = json!({
        "apiVersion": "notification.toolkit.fluxcd.io/v1",
        "kind": "Receiver",
        "metadata": { "name": "hook", "namespace": "team", "uid": "u", "generation": 1 },
        "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

fn sign_body(body: &[u8]) -> String {
    let mac = <Hmac<sha2::Sha256> as KeyInit>::new_from_slice(TOKEN).unwrap();
    format!("sha256={}", hex::encode(mac.chain_update(body).finalize().into_bytes()))
}

/// Signs as Nexus does.
fn sign_for_nexus(body: &[u8]) -> String {
    let mac = <Hmac<sha1::Sha1> as KeyInit>::new_from_slice(TOKEN).unwrap();
    hex::encode(mac.chain_update(body).finalize().into_bytes())
}

/// The first byte selects the type; the second the expression, and whether the request proves the token. Then there are a number of headers, each with its index, its
/// length and its value. The rest is the body.
pub fn check(bytes: &[u8]) {
    let [first, second, count, rest @ ..] = bytes else {
        return;
    };
    let kind = TYPES[usize::from(*first) % TYPES.len()];
    let filter = FILTERS.get(usize::from(second & 7));
    let receiver = make_receiver(kind, filter.copied());
    let mut delivery = Delivery {
        path: find_path(TOKEN, &receiver),
        headers: std::collections::BTreeMap::new(),
        body: Vec::new(),
    };
    let mut rest = rest;
    for _ in 0..count % 4 {
        let [index, length, after @ ..] = rest else { break };
        let Some((value, after)) = after.split_at_checked(usize::from(*length)) else {
            break;
        };
        let name = HEADERS[usize::from(*index) % HEADERS.len()];
        delivery
            .headers
            .insert(name.to_owned(), String::from_utf8_lossy(value).into_owned());
        rest = after;
    }
    delivery.body = rest.to_vec();
    let is_proven = second & 0x80 != 0;
    let is_signed = matches!(kind, "generic-hmac" | "github" | "bitbucket" | "nexus");
    if is_proven {
        let (name, value) = match kind {
            "generic-hmac" => ("x-signature", sign_body(rest)),
            "github" | "bitbucket" => ("x-hub-signature-256", sign_body(rest)),
            "gitlab" => ("x-gitlab-token", "sesame".to_owned()),
            "harbor" => ("authorization", "sesame".to_owned()),
            "nexus" => ("x-nexus-webhook-signature", sign_for_nexus(rest)),
            _ => ("content-type", "application/json".to_owned()),
        };
        delivery.headers.insert(name.to_owned(), value);
    }
    let verdict = verify_request(&receiver, &delivery, TOKEN);
    if is_proven && is_signed {
        assert_ne!(
            verdict,
            Err(Verdict::Unknown),
            "a request with the right proof is refused"
        );
        // The same proof is none for another body, for another token, or at another path.
        let mut other = delivery.clone();
        other.body.push(b' ');
        assert_eq!(verify_request(&receiver, &other, TOKEN), Err(Verdict::Unknown));
        assert_eq!(verify_request(&receiver, &delivery, b"other"), Err(Verdict::Unknown));
        other.path = find_path(b"other", &receiver);
        assert_eq!(verify_request(&receiver, &other, TOKEN), Err(Verdict::Unknown));
    } else if is_signed && verdict != Err(Verdict::Unknown) {
        // A code of the body, under any hash, in any letters.
        let is_code = |value: &String| {
            let digits = value.split_once('=').map_or(value.as_str(), |(_, digits)| digits);
            digits.len() >= 40 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        assert!(
            delivery.headers.values().any(is_code),
            "a request without a proof is accepted"
        );
    }
    if verdict.is_err() {
        return;
    }
    let candidate = |name: &str| Candidate {
        entry: 0,
        kind: "GitRepository".to_owned(),
        metadata: json!({ "name": name, "namespace": "team", "uid": name }),
    };
    let candidates = [candidate("app"), candidate("7")];
    let mut budget = EvaluationBudget::default();
    let now = Timestamp::from_second(1_700_000_000).unwrap();
    let chosen = select_targets(&receiver, &delivery, &candidates, (&mut budget, now));
    assert!(chosen.targets.len() <= candidates.len());
    if filter.is_none() {
        assert_eq!(chosen.targets.len(), candidates.len());
    }
    // One evaluation may end above the budget, but not far above it.
    assert!(
        budget.cost <= 2 * FULL_BUDGET.cost && budget.effort <= 2 * FULL_BUDGET.effort,
        "{budget:?}"
    );
    // A message quotes nothing of the body.
    let secret = "swordfish";
    assert!(chosen.problems.iter().all(|problem| !problem.contains(secret)));
}

/// Returns the first inputs: a request of each type.
pub fn seeds() -> Vec<Vec<u8>> {
    let header = |name: &str, value: &str| {
        let index = HEADERS.iter().position(|known| *known == name).unwrap();
        [&[index as u8, value.len() as u8], value.as_bytes()].concat()
    };
    let json = header("content-type", "application/json");
    let bodies = [
        r#"{"ref":"refs/heads/main","swordfish":"swordfish"}"#,
        r#"{"commits":[{"modified":["docs/a","deploy/b"]},{"modified":[]}]}"#,
        r#"{"number":7,"text":"aaaaaaaaaaaaaaaaaaaaac","list":[1,2,3,4]}"#,
        r#"{"text":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","a":"a"}"#,
        r#"{"push_data":{"tag":"v1"},"repository":{"name":"a","repo_url":"u"},"docker_url":"d","updated_tags":["v1"]}"#,
    ];
    let mut seeds = Vec::new();
    for (first, _) in TYPES.iter().enumerate() {
        for (filter, body) in bodies.iter().enumerate() {
            let mut seed = vec![first as u8, 0x80 | filter as u8, 3];
            seed.extend(
                json.iter()
                    .chain(&header("x-github-event", "push"))
                    .chain(&header("x-gitlab-event", "Push Hook")),
            );
            seed.extend_from_slice(body.as_bytes());
            seeds.push(seed);
        }
    }
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_of_the_checks_can_be_compiled() {
        for filter in FILTERS {
            let receiver = make_receiver("generic", Some(filter));
            assert_eq!(super::super::filter::find_filter_problem(&receiver.spec), None);
        }
    }

    #[test]
    fn requests_around_the_first_inputs_keep_their_promises() {
        for seed in seeds() {
            check(&seed);
            for at in (0..seed.len()).step_by(7) {
                check(&seed[..at]);
                let mut bytes = seed.clone();
                bytes[at] ^= 0x81;
                check(&bytes);
            }
        }
    }
}
