//! The requests to a Receiver: the trusted senders, the accepted events, and the objects to reconcile.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tenure_api::Receiver;
use tenure_planner::expression::{EXPRESSION, EvaluationBudget, FULL_BUDGET};
use tenure_planner::receiver::{
    Candidate, Delivery, Verdict, find_path, find_token, list_sought, name_path, select_targets, verify_request,
};
use tenure_tenancy::{NamespaceFacts, Placement};

use crate::receiver::{PATH, make_receiver, make_tenancy, start};

const BODY: &str = r#"{"ref":"refs/heads/main"}"#;

fn make_delivery(headers: &[(&str, &str)], body: &str) -> Delivery {
    Delivery {
        path: name_path(PATH).unwrap(),
        headers: headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        body: body.as_bytes().to_vec(),
    }
}

const JSON: (&str, &str) = ("content-type", "application/json");
// As `openssl dgst -sha256 -hmac sesame` and its like have them, of BODY.
const SHA1: &str = "b8814790e8f64e863a8ddc0cf42eb6583a7fb92c";
const SHA256: &str = "8c4fda51a2c194fec01b6177f40f0631177cca73c95e7b9b69c69fd3ae2ac329";
const SHA512: &str = "a574a0017e1b270dc07f8141b47a9b9fa6e1a46991c5919ae562a4c1bea9530e1e60130ea6eb460444fcf9e9bede854c26e55744abf4c23d2a40677a1e5240f3";

#[test]
fn each_receiver_type_accepts_only_its_own_proof() {
    let (sha1, sha256, sha512) = (
        format!("sha1={SHA1}"),
        format!("sha256={SHA256}"),
        format!("sha512={SHA512}"),
    );
    let upper = format!("sha256={}", SHA256.to_uppercase());
    let cut = format!("sha256={}", &SHA256[..62]);
    let (sha1, sha256, sha512) = (sha1.as_str(), sha256.as_str(), sha512.as_str());
    let (good, unknown, refused) = (Ok(()), Err(Verdict::Unknown), Err(Verdict::Refused));
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str, Result<(), Verdict>);
    let cases: [Case<'_>; 42] = [
        ("generic", &[], "", good),
        ("generic-hmac", &[("x-signature", sha1)], BODY, good),
        ("generic-hmac", &[("x-signature", sha256)], BODY, good),
        ("generic-hmac", &[("x-signature", sha512)], BODY, good),
        ("generic-hmac", &[("x-signature", &upper)], BODY, good),
        ("generic-hmac", &[("x-signature", &cut)], BODY, unknown),
        ("generic-hmac", &[("x-signature", SHA256)], BODY, unknown),
        ("generic-hmac", &[("x-signature", "sha256=")], BODY, unknown),
        ("generic-hmac", &[("x-signature", "md5=00")], BODY, unknown),
        ("generic-hmac", &[("x-signature", "sha256=zz")], BODY, unknown),
        ("generic-hmac", &[("x-hub-signature-256", sha256)], BODY, unknown),
        ("generic-hmac", &[], BODY, unknown),
        ("generic-hmac", &[("x-signature", sha256)], "{}", unknown),
        (
            "github",
            &[JSON, ("x-hub-signature-256", sha256), ("x-github-event", "push")],
            BODY,
            good,
        ),
        (
            "github",
            &[JSON, ("x-hub-signature-256", sha256), ("x-github-event", "PUSH")],
            BODY,
            good,
        ),
        (
            "github",
            &[JSON, ("x-hub-signature", sha1), ("x-github-event", "ping")],
            BODY,
            good,
        ),
        (
            "github",
            &[JSON, ("x-hub-signature-256", sha256), ("x-github-event", "issues")],
            BODY,
            refused,
        ),
        ("github", &[JSON, ("x-hub-signature-256", sha256)], BODY, refused),
        // A new signature that is wrong is not made good by an old one.
        (
            "github",
            &[JSON, ("x-hub-signature-256", "sha256=00"), ("x-hub-signature", sha1)],
            BODY,
            unknown,
        ),
        ("github", &[JSON, ("x-github-event", "push")], BODY, unknown),
        (
            "github",
            &[("x-hub-signature-256", sha256), ("x-github-event", "push")],
            BODY,
            refused,
        ),
        (
            "github",
            &[
                ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
                ("x-hub-signature-256", sha256),
                ("x-github-event", "push"),
            ],
            BODY,
            good,
        ),
        (
            "gitlab",
            &[("x-gitlab-token", "sesame"), ("x-gitlab-event", "push")],
            BODY,
            good,
        ),
        (
            "gitlab",
            &[("x-gitlab-token", "sesam"), ("x-gitlab-event", "push")],
            BODY,
            unknown,
        ),
        (
            "gitlab",
            &[("x-gitlab-token", "sesame "), ("x-gitlab-event", "push")],
            BODY,
            unknown,
        ),
        (
            "gitlab",
            &[("x-gitlab-token", ""), ("x-gitlab-event", "push")],
            BODY,
            unknown,
        ),
        ("gitlab", &[("x-gitlab-event", "push")], BODY, unknown),
        (
            "gitlab",
            &[("x-gitlab-token", "sesame"), ("x-gitlab-event", "Note Hook")],
            BODY,
            refused,
        ),
        (
            "bitbucket",
            &[JSON, ("x-hub-signature", sha256), ("x-event-key", "push")],
            BODY,
            good,
        ),
        (
            "bitbucket",
            &[JSON, ("x-hub-signature", sha256), ("x-event-key", "pr:opened")],
            BODY,
            refused,
        ),
        ("bitbucket", &[JSON, ("x-event-key", "push")], BODY, unknown),
        ("harbor", &[("authorization", "sesame")], BODY, good),
        ("harbor", &[("authorization", "Bearer sesame")], BODY, unknown),
        (
            "dockerhub",
            &[],
            r#"{"push_data":{"tag":"1"},"repository":{"repo_url":"https://x"},"more":[]}"#,
            good,
        ),
        ("dockerhub", &[], "tag=1", refused),
        ("dockerhub", &[], r#"{"push_data":{"tag":1}}"#, refused),
        ("quay", &[], r#"{"docker_url":"quay.io/x","updated_tags":["1"]}"#, good),
        ("quay", &[], r#"{"updated_tags":"1"}"#, refused),
        ("nexus", &[("x-nexus-webhook-signature", SHA1)], BODY, good),
        ("nexus", &[("x-nexus-webhook-signature", SHA256)], BODY, unknown),
        ("nexus", &[("x-nexus-webhook-signature", sha1)], BODY, unknown),
        ("gcr", &[("authorization", "Bearer x")], BODY, unknown),
    ];
    for (sender, headers, body, expected) in cases {
        let receiver = make_receiver(&json!({ "type": sender, "events": ["push", "ping"] }));
        let verdict = verify_request(&receiver, &make_delivery(headers, body), b"sesame");
        assert_eq!(verdict, expected, "{sender} {headers:?} {body}");
    }
}

/// The example of GitHub's own documentation.
#[test]
fn githubs_own_example_is_believed() {
    let secret = b"It's a Secret to Everybody";
    let receiver = make_receiver(&json!({}));
    let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let mut delivery = make_delivery(&[JSON, ("x-hub-signature-256", signature)], "Hello, World!");
    delivery.path = find_path(secret, &receiver);
    assert_eq!(verify_request(&receiver, &delivery, secret), Ok(()));
}

#[test]
fn revoked_or_empty_token_verifies_no_request() {
    let generic = make_receiver(&json!({ "type": "generic" }));
    let request = make_delivery(&[], "");
    assert_eq!(verify_request(&generic, &request, b"sesame"), Ok(()));
    assert_eq!(verify_request(&generic, &request, b"other"), Err(Verdict::Unknown));
    let empty = Delivery {
        path: find_path(b"", &generic),
        ..request.clone()
    };
    assert_eq!(verify_request(&generic, &empty, b""), Err(Verdict::Unknown));
    let data = |token: Option<&str>| {
        token
            .map(|token| ("token".to_owned(), token.as_bytes().to_vec()))
            .into_iter()
            .collect()
    };
    let secret = ("blue", "token");
    assert_eq!(find_token(&data(Some("sesame")), secret), Ok(&b"sesame"[..]));
    for (token, part) in [(None, "required fields 'token'"), (Some(""), "is empty")] {
        let data = data(token);
        let failure = find_token(&data, secret).unwrap_err();
        assert!(
            failure.is_known && failure.message.contains(part),
            "{}",
            failure.message
        );
    }
    let suspended = make_receiver(&json!({ "type": "generic", "suspend": true }));
    assert_eq!(verify_request(&suspended, &request, b"sesame"), Err(Verdict::Suspended));
    // A client that can't prove knowledge of the token doesn't learn of the suspension.
    let suspended = make_receiver(&json!({ "type": "generic-hmac", "suspend": true }));
    assert_eq!(verify_request(&suspended, &request, b"sesame"), Err(Verdict::Unknown));
}

#[test]
fn only_exact_webhook_path_is_read() {
    assert_eq!(name_path(PATH).unwrap().as_str(), PATH);
    for path in [
        "",
        "/",
        "/hook/",
        "/hook/abc",
        &PATH.to_uppercase(),
        &format!("{PATH}0"),
        &format!("{PATH}/"),
        &PATH.replace("/hook/", "/hook/../hook/"),
        &PATH[..69],
    ] {
        assert!(name_path(path).is_none(), "{path}");
    }
}

#[test]
fn a_request_is_not_printed() {
    let request = make_delivery(&[("x-gitlab-token", "sesame")], "sesame");
    assert!(!format!("{request:?}").contains("sesame"));
    let written = serde_json::to_string(&request).unwrap();
    assert_eq!(serde_json::from_str::<Delivery>(&written).unwrap(), request);
}

fn make_candidate(entry: usize, name: &str) -> Candidate {
    Candidate {
        entry,
        kind: "GitRepository".to_owned(),
        metadata: json!({ "name": name, "namespace": "blue", "uid": format!("uid-{name}"), "labels": { "of": name } }),
    }
}

fn choose_candidates(
    receiver: &Receiver,
    request: &Delivery,
    candidates: &[Candidate],
    budget: &mut EvaluationBudget,
) -> (Vec<String>, Vec<String>) {
    let chosen = select_targets(receiver, request, candidates, (budget, start()));
    let names = chosen.targets.into_iter().map(|target| target.name).collect();
    (names, chosen.problems.into_iter().collect())
}

#[test]
fn filters_see_the_object_and_the_request() {
    let candidates = [
        make_candidate(0, "app"),
        make_candidate(1, "app"),
        make_candidate(1, "other"),
    ];
    let names = |fields: Value, headers: &[(&str, &str)], body: &str| {
        choose_candidates(
            &make_receiver(&fields),
            &make_delivery(headers, body),
            &candidates,
            &mut EvaluationBudget::default(),
        )
    };
    let both = |filter: &str| json!({ "resourceFilter": filter });
    let none = Vec::<String>::new;
    let all = || vec!["app".to_owned(), "other".to_owned()];
    let app = || vec!["app".to_owned()];
    // Each is asked once, by however many entries it is named.
    assert_eq!(names(json!({}), &[JSON], BODY), (all(), none()));
    assert_eq!(
        names(both("req.ref == 'refs/heads/main'"), &[JSON], BODY),
        (all(), none())
    );
    assert_eq!(
        names(both("req.ref == 'refs/heads/dev'"), &[JSON], BODY),
        (none(), none())
    );
    assert_eq!(
        names(both("res.metadata.labels.of == 'app'"), &[JSON], BODY),
        (app(), none())
    );
    assert_eq!(
        names(
            both("res.kind == 'GitRepository' && res.apiVersion.endsWith('/v1')"),
            &[JSON],
            BODY
        ),
        (all(), none())
    );
    assert_eq!(names(both("size(req) == 0"), &[], BODY), (all(), none()));
    assert_eq!(
        names(both("size(req) == 0"), &[("content-type", "text/plain")], BODY),
        (all(), none())
    );
    let parameters = ("content-type", "Application/JSON; charset=utf-8");
    assert_eq!(names(both("size(req) == 1"), &[parameters], BODY), (all(), none()));
    // Both have to let it through.
    let resources = json!([
        { "kind": "GitRepository", "name": "app", "filter": "false" },
        { "kind": "GitRepository", "name": "*", "matchLabels": { "a": "b" }, "filter": "res.metadata.name != 'other'" },
    ]);
    assert_eq!(names(json!({ "resources": resources }), &[JSON], BODY), (app(), none()));
    assert_eq!(
        names(
            json!({ "resources": resources, "resourceFilter": "false" }),
            &[JSON],
            BODY
        ),
        (none(), none())
    );
    // An expression that can't be evaluated is a problem, reported without the request's words.
    let (found, problems) = names(
        both("req.token.sesame == 'x'"),
        &[JSON],
        r#"{"token":"sesame-of-somebody"}"#,
    );
    assert_eq!((found, problems.len()), (none(), 1));
    assert!(
        problems[0].starts_with("spec.resourceFilter") && !problems[0].contains("somebody"),
        "{problems:?}"
    );
}

#[test]
fn a_body_that_filters_can_not_read_is_refused() {
    let filtered = make_receiver(&json!({ "type": "generic", "resourceFilter": "true" }));
    for (body, expected) in [
        (BODY, Ok(())),
        ("null", Ok(())),
        ("[]", Err(Verdict::Refused)),
        ("{", Err(Verdict::Refused)),
        ("{} {}", Err(Verdict::Refused)),
        (&"[".repeat(100_000), Err(Verdict::Refused)),
    ] {
        assert_eq!(
            verify_request(&filtered, &make_delivery(&[JSON], body), b"sesame"),
            expected,
            "{body:.20}"
        );
    }
    let unfiltered = make_receiver(&json!({ "type": "generic" }));
    assert_eq!(
        verify_request(&unfiltered, &make_delivery(&[JSON], "{"), b"sesame"),
        Ok(())
    );
}

#[test]
fn expensive_filter_spends_only_its_own_budget() {
    let burner = "req.a.all(x, req.a.all(y, req.a.all(z, x + y + z >= 0)))";
    let numbers: Vec<u32> = (0..1000).collect();
    let body = json!({ "a": numbers }).to_string();
    let burning = make_receiver(&json!({ "resourceFilter": burner }));
    // Two of them, and a little.
    let mut budget = EvaluationBudget {
        generation: Some(1),
        since: Some(start()),
        cost: FULL_BUDGET.cost - EXPRESSION.cost * 5 / 2,
        effort: 0,
    };
    let many: Vec<Candidate> = (0..4)
        .map(|number| make_candidate(0, &format!("app-{number}")))
        .collect();
    let (found, problems) = choose_candidates(&burning, &make_delivery(&[JSON], &body), &many, &mut budget);
    assert!(found.is_empty());
    assert!(
        problems
            .iter()
            .any(|problem| problem.contains("costs more than an expression may")),
        "{problems:?}"
    );
    assert!(
        problems
            .iter()
            .any(|problem| problem.contains("is not evaluated until")),
        "{problems:?}"
    );
    // The next one finds it empty.
    let (_, problems) = choose_candidates(&burning, &make_delivery(&[JSON], &body), &many[..1], &mut budget);
    assert!(problems[0].contains("is not evaluated until"), "{problems:?}");
}

#[test]
fn candidates_per_receiver_request_are_bounded() {
    let many: Vec<Candidate> = (0..1001)
        .map(|number| make_candidate(0, &format!("app-{number}")))
        .collect();
    let (found, problems) = choose_candidates(
        &make_receiver(&json!({})),
        &make_delivery(&[JSON], BODY),
        &many,
        &mut EvaluationBudget::default(),
    );
    assert_eq!((found.len(), problems.len()), (1000, 1));
}

#[test]
fn only_currently_permitted_resources_are_requested() {
    let named = make_receiver(&json!({ "resources": [
        { "kind": "GitRepository", "name": "app" },
        { "kind": "GitRepository", "name": "*", "matchLabels": { "a": "b", "c": "d" }, "namespace": "blue-dev" },
        { "kind": "GitRepository", "name": "app", "namespace": "red" },
    ] }));
    let look = |placement: &Placement| {
        let sought = list_sought(&named, placement);
        sought
            .map(|sought| sought.map(|sought| sought.namespace.to_owned()).map_err(drop))
            .collect::<Vec<_>>()
    };
    let of = |names: [Option<&str>; 3]| names.map(|name| name.map(str::to_owned).ok_or(())).to_vec();
    assert_eq!(
        look(&make_tenancy().find_placement("blue")),
        of([Some("blue"), Some("blue-dev"), None])
    );
    // The other namespace is the tenant's no longer.
    let mut smaller = make_tenancy();
    smaller
        .namespaces
        .retain(|namespace: &NamespaceFacts| namespace.name != "blue-dev");
    assert_eq!(look(&smaller.find_placement("blue")), of([Some("blue"), None, None]));
    let placement = make_tenancy().find_placement("blue");
    let sought: Vec<_> = list_sought(&named, &placement).filter_map(Result::ok).collect();
    let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    };
    assert!(sought[0].is_meant("app", None) && !sought[0].is_meant("apps", None));
    let meant: BTreeSet<bool> = [
        sought[1].is_meant("any", Some(&labels(&[("a", "b"), ("c", "d"), ("e", "f")]))),
        !sought[1].is_meant("any", Some(&labels(&[("a", "b")]))),
        !sought[1].is_meant("any", Some(&labels(&[("a", "b"), ("c", "x")]))),
        !sought[1].is_meant("*", None),
    ]
    .into();
    assert_eq!(meant, BTreeSet::from([true]));
}
