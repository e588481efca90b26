//! Providers: the refused fields, the requests in each form, the meaning of answers, and the absence of a Secret's content in every message.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_api::{ConditionStatus, Provider};
use tenure_planner::alert::combine_metadata;
use tenure_planner::alert_event::AlertEvent;
use tenure_planner::expression::EvaluationBudget;
use tenure_planner::provider::{
    Answer, NotificationRequest, ObservedReceiver, PreparedNotification, RequiredObjects, SecretData, Secrets,
    Snapshot, Verdict, find_pause, find_timeout, plan, write_sending,
};
use tenure_planner::{EventKind, invariants};

use crate::alert::{make_alert, make_event, make_metadata};
use crate::receiver::{make_tenancy, start};

pub(crate) const SHA1: &str = "5394cb7f48332b2de7c17dd8b8384bbc84b7e738";

pub(crate) fn make_provider(fields: &Value) -> Provider {
    let mut spec = json!({ "type": "generic", "address": "https://hooks.example/a/b" });
    for (key, value) in fields.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    serde_json::from_value(json!({
        "apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Provider",
        "metadata": { "name": "chat", "namespace": "blue", "generation": 1, "uid": "0c9c2e41-d2f9-4f9b-9c41-bebc1984d67a" },
        "spec": spec,
    }))
    .unwrap()
}

pub(crate) fn make_secret(entries: &[(&str, &str)]) -> SecretData {
    entries
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
        .collect()
}

/// Makes the news of a Kustomization about a commit.
pub(crate) fn make_news(kind: EventKind, reason: &str, message: &str) -> AlertEvent {
    let revision = format!("main@sha1:{SHA1}");
    let annotations = [("kustomize.toolkit.fluxcd.io/revision", revision.as_str())];
    let of = (
        "kustomize.toolkit.fluxcd.io/v1",
        "Kustomization",
        "kustomize-controller",
    );
    let at: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
    AlertEvent::new(
        of,
        &make_metadata("blue", "app"),
        &make_event(kind, reason, message, &annotations),
        at,
    )
    .unwrap()
}

pub(crate) fn sent_with(
    fields: &Value,
    data: Option<&[(&str, &str)]>,
    news: &AlertEvent,
) -> Result<PreparedNotification, String> {
    let (provider, alert) = (
        make_provider(fields),
        make_alert("blue", &json!({ "eventMetadata": { "cluster": "one" } })),
    );
    let metadata = combine_metadata(news, &alert.spec).metadata;
    let secrets = Secrets {
        secret: data.map(make_secret),
        ..Secrets::default()
    };
    let mut budget = EvaluationBudget::default();
    write_sending((&provider, &alert), (news, &metadata), secrets, (&mut budget, start()))
}

pub(crate) fn write_notification(fields: &Value, data: &[(&str, &str)], news: &AlertEvent) -> NotificationRequest {
    let mut fields = fields.clone();
    fields["secretRef"] = json!({ "name": "secret" });
    sent_with(&fields, Some(data), news).unwrap().request
}

pub(crate) fn read_body(request: &NotificationRequest) -> Value {
    serde_json::from_slice(&request.body).unwrap()
}

pub(crate) fn find_header<'a>(request: &'a NotificationRequest, name: &str) -> Option<&'a str> {
    let found: Vec<&str> = request
        .headers
        .iter()
        .filter(|(known, _)| known == name)
        .map(|(_, value)| value.as_str())
        .collect();
    assert!(found.len() < 2, "{name}");
    found.first().copied()
}

pub(crate) fn make_failure() -> AlertEvent {
    make_news(EventKind::Warning, "BuildFailed", "kustomization.yaml:3\nno such file")
}

pub(crate) fn make_success() -> AlertEvent {
    make_news(
        EventKind::Normal,
        "ReconciliationSucceeded",
        "Reconciliation finished in 1s, next run in 10m",
    )
}

#[track_caller]
fn check(fields: Value, status: ConditionStatus, reason: &str, part: &str) {
    let plan = plan(
        &Snapshot {
            provider: make_provider(&fields),
            placement: make_tenancy().find_placement("blue"),
            receiver: ObservedReceiver::NoProblem,
        },
        start(),
    );
    assert_eq!(invariants::check_plan(&plan), Vec::<String>::new(), "{plan}");
    let status_of_it = plan.status.unwrap();
    let ready = status_of_it
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Ready")
        .unwrap();
    assert!(
        ready.status == status && ready.reason == reason && ready.message.contains(part),
        "{}: {}",
        ready.reason,
        ready.message
    );
    assert_eq!(plan.events.len(), usize::from(status == ConditionStatus::False));
}

#[test]
fn unsupported_provider_fields_are_refused_by_name() {
    let no = ConditionStatus::False;
    check(json!({}), ConditionStatus::True, "Succeeded", "Provider is Ready");
    for name in [
        "telegram",
        "rocket",
        "pagerduty",
        "bitbucket",
        "githubdispatch",
        "nats",
        "incident.io",
    ] {
        let list = "use one of generic, generic-hmac, slack, msteams, discord, alertmanager, github, gitlab, gitea";
        check(
            json!({ "type": name }),
            no,
            "UnsupportedField",
            &format!("spec.type: {name} is not supported yet: {list}"),
        );
    }
    check(json!({ "type": "pigeon" }), no, "InvalidSpec", "spec.type: \"pigeon\"");
    check(
        json!({ "serviceAccountName": "x" }),
        no,
        "UnsupportedField",
        "spec.serviceAccountName",
    );
    check(
        json!({ "address": null }),
        no,
        "ValidationFailed",
        "spec.address is missing",
    );
    check(
        json!({ "type": "generic-hmac" }),
        no,
        "ValidationFailed",
        "spec.secretRef is missing",
    );
    check(
        json!({ "type": "github", "address": "https://github.com/a/b" }),
        no,
        "ValidationFailed",
        "spec.secretRef is missing",
    );
    let github = |fields: Value| {
        let mut all = json!({ "type": "github", "address": "https://github.com/a/b", "secretRef": { "name": "t" } });
        for (key, value) in fields.as_object().unwrap() {
            all[key] = value.clone();
        }
        all
    };
    check(github(json!({})), ConditionStatus::True, "Succeeded", "");
    check(
        github(json!({ "address": "https://github.com/a" })),
        no,
        "InvalidSpec",
        "spec.address: its path must be",
    );
    check(
        github(json!({ "commitStatusExpr": "event.reason +" })),
        no,
        "InvalidCELExpression",
        "spec.commitStatusExpr",
    );
    check(
        github(json!({ "commitStatusExpr": "1 + 1" })),
        no,
        "InvalidCELExpression",
        "must yield string, and yields int",
    );
    check(
        github(json!({ "commitStatusExpr": "object.x" })),
        no,
        "InvalidCELExpression",
        "spec.commitStatusExpr",
    );
    check(
        github(json!({ "commitStatusExpr": "'a'".repeat(2000) })),
        no,
        "InvalidSpec",
        "spec.commitStatusExpr has",
    );
    check(
        json!({ "commitStatusExpr": "event.reason" }),
        no,
        "InvalidSpec",
        "is allowed only with the types github, gitlab and gitea",
    );
    check(json!({ "timeout": "3m" }), no, "InvalidSpec", "spec.timeout");
    check(json!({ "timeout": "0s" }), no, "InvalidSpec", "spec.timeout");
    check(
        json!({ "secretRef": { "name": "../x" } }),
        no,
        "InvalidSpec",
        "spec.secretRef.name",
    );
    check(
        json!({ "proxy": "http://p", "proxySecretRef": { "name": "p" } }),
        no,
        "InvalidSpec",
        "can't be used together",
    );
    for address in [
        "ftp://x/",
        "hooks.example/x",
        "https://",
        "https://-x/",
        "https://x:0/",
        "https://x:99999/",
        "https://x y/",
        "https://x/\r\nhost: y",
        "https://x/é",
        "https://[::1/",
        "https://x\\@y/",
        "https://a:b:c@x/%00\u{0}",
    ] {
        check(json!({ "address": address }), no, "InvalidSpec", "spec.address: ");
    }
}

#[test]
fn notified_providers_follow_flux() {
    let wants = |type_: &str, news: &AlertEvent| {
        let address = if type_.starts_with("git") {
            "https://git.example/a/b"
        } else {
            "https://hooks.example/x"
        };
        let provider = make_provider(&json!({ "type": type_, "address": address, "secretRef": { "name": "s" } }));
        let metadata = combine_metadata(news, &make_alert("blue", &json!({})).spec).metadata;
        let needs =
            RequiredObjects::of_event(&provider, &make_tenancy().find_placement("blue"), (news, &metadata)).unwrap();
        let account = needs.as_ref().map(|needs| needs.account.to_string());
        assert!(account.is_none_or(|account| account == "system:serviceaccount:blue:blue-gitops"));
        needs.is_some()
    };
    let changes = make_news(EventKind::Normal, "Progressing", "ConfigMap/blue/a created");
    for type_ in [
        "generic",
        "generic-hmac",
        "slack",
        "msteams",
        "discord",
        "alertmanager",
        "github",
        "gitlab",
        "gitea",
    ] {
        let is_host = type_.starts_with("git");
        assert_eq!(wants(type_, &changes), !is_host, "{type_}: what was changed");
        assert!(wants(type_, &make_failure()), "{type_}: a failure");
        assert_eq!(
            wants(type_, &make_success()),
            is_host || type_.starts_with("generic"),
            "{type_}: a success"
        );
    }
    // A warning about a successful apply is no failure, and without a revision no commit exists.
    let remark = make_news(EventKind::Warning, "ReconciliationSucceeded", "x");
    assert!(!wants("github", &remark) && wants("slack", &remark));
    let of = ("source.toolkit.fluxcd.io/v1", "GitRepository", "source-controller");
    let source = make_event(EventKind::Warning, "GitOperationFailed", "x", &[]);
    let source = AlertEvent::new(of, &make_metadata("blue", "app"), &source, start()).unwrap();
    assert!(!wants("github", &source) && wants("slack", &source));
    // The owner of the event is checked again when the event is sent.
    let slack = make_provider(&json!({ "type": "slack" }));
    let refused = RequiredObjects::of_event(
        &slack,
        &make_tenancy().find_placement("red"),
        (&make_failure(), &BTreeMap::new()),
    );
    assert!(refused.is_ok(), "the namespace of the Provider is the event's own");
    let mut moved = slack.clone();
    moved.metadata.namespace = Some("red".to_owned());
    let refused = RequiredObjects::of_event(
        &moved,
        &make_tenancy().find_placement("red"),
        (&make_failure(), &BTreeMap::new()),
    )
    .unwrap_err();
    assert!(
        refused.contains("cross-namespace references have been blocked"),
        "{refused}"
    );
}

#[test]
fn invalid_headers_of_secret_are_refused_without_values() {
    let problem = |headers: &str| {
        let fields = json!({ "secretRef": { "name": "secret" } });
        sent_with(&fields, Some(&[("headers", headers)]), &make_failure()).unwrap_err()
    };
    for (headers, part) in [
        ("x: \"a\\r\\nhost: inside\"", "the value of x holds what no header can"),
        ("\"x\\r\\ny\": z", "a name is not valid for a header"),
        ("Host: inside", "host can't be set"),
        ("Transfer-Encoding: chunked", "transfer-encoding can't be set"),
        ("content-length: '0'", "content-length can't be set"),
        ("x: 1", "a value is not a string"),
        ("[a, b]", "it is not a map"),
        ("a: b: c", "can't be read as YAML"),
    ] {
        let found = problem(headers);
        assert!(
            found.starts_with("invalid 'blue/secret' secret data: headers: ") && found.contains(part),
            "{found}"
        );
        assert!(!found.contains("inside"), "{found}");
    }
    // The control.
    assert_eq!(
        find_header(
            &write_notification(&json!({}), &[("headers", "X: a b")], &make_failure()),
            "x"
        ),
        Some("a b")
    );
}

#[test]
fn nothing_of_a_secret_is_in_a_message() {
    let fields = json!({ "type": "slack", "secretRef": { "name": "secret" } });
    let wrong = [
        &[("address", "https://hooks.example/T0/sesame x")][..],
        &[("address", "sesame://hooks.example")],
        &[("address", "https://sesame:sesame:sesame@x:sesame/")],
        &[("headers", "sesame: [sesame")],
        &[("username", "sesame")],
        &[("githubAppID", "sesame")],
    ];
    for data in wrong {
        let problem = sent_with(&fields, Some(data), &make_failure()).unwrap_err();
        assert!(
            problem.starts_with("invalid 'blue/secret' secret data: ") && !problem.contains("sesame"),
            "{problem}"
        );
    }
    let sending = sent_with(
        &fields,
        Some(&[("address", "https://hooks.example/T0/sesame"), ("token", "sesame")]),
        &make_failure(),
    )
    .unwrap();
    assert_eq!(sending.shown, "the address in Secret blue/secret");
    assert!(!format!("{sending:?}").contains("sesame"), "{sending:?}");
    // An address that every user may read is shown by its server.
    let open = sent_with(
        &json!({ "address": "https://u:p@hooks.example:8443/T0/x?y=z" }),
        None,
        &make_failure(),
    )
    .unwrap();
    assert_eq!(open.shown, "https://hooks.example:8443");
    assert_eq!(open.request.user, Some(("u".to_owned(), "p".to_owned())));
    assert_eq!(open.request.address.target(), "/T0/x?y=z");
}

#[test]
fn answers_are_judged_without_their_words() {
    let slack = sent_with(&json!({ "type": "slack" }), None, &make_failure()).unwrap();
    let judge = |sending: &PreparedNotification, status: u16, body: &str| {
        sending.interpret_answer(&Answer {
            status,
            retry_after: Some(Duration::from_secs(7)),
            body: body.as_bytes().to_vec(),
        })
    };
    for status in [200, 201, 204] {
        assert_eq!(judge(&slack, status, "no_service"), Verdict::Done);
    }
    let seven = Some(Duration::from_secs(7));
    for (status, after) in [(429, seven), (503, seven), (500, None), (502, None)] {
        assert!(
            matches!(judge(&slack, status, "sesame"), Verdict::Again { after: found, why } if found == after && !why.contains("sesame"))
        );
    }
    for status in [301, 307, 400, 401, 403, 404, 501] {
        assert!(
            matches!(judge(&slack, status, "sesame"), Verdict::Failed(why) if !why.contains("sesame") && why.contains(&status.to_string()))
        );
    }
    // Slack's API answers 200 to every request; only known words of its answer are repeated.
    let api = json!({ "type": "slack", "address": "https://slack.com/api/chat.postMessage" });
    let api = sent_with(&api, None, &make_failure()).unwrap();
    assert!(api.request.answer_bytes > 0 && slack.request.answer_bytes == 0);
    assert_eq!(judge(&api, 200, r#"{"ok":true}"#), Verdict::Done);
    let interpret = |body: &str| judge(&api, 200, body);
    assert_eq!(
        interpret(r#"{"ok":false,"error":"channel_not_found"}"#),
        Verdict::Failed("Slack responded with error: channel_not_found".to_owned())
    );
    assert_eq!(
        interpret(r#"{"ok":false,"error":"sesame"}"#),
        Verdict::Failed("Slack responded with an error".to_owned())
    );
    assert!(
        matches!(interpret(r#"{"ok":false,"error":"ratelimited"}"#), Verdict::Again { after, .. } if after == seven)
    );
    assert!(matches!(interpret("<html>"), Verdict::Failed(_)));
}

#[test]
fn pauses_grow_and_end() {
    let seconds = |attempts, asked: Option<u64>| {
        find_pause(attempts, asked.map(Duration::from_secs)).map(|pause| pause.as_secs())
    };
    let pauses: Vec<Option<u64>> = (1..=5).map(|attempts| seconds(attempts, None)).collect();
    assert_eq!(pauses, [Some(2), Some(4), Some(8), Some(16), None]);
    // A receiver that requests a pause of a day doesn't get it.
    assert_eq!(seconds(1, Some(86_400)), Some(30));
    assert_eq!(seconds(1, Some(1)), Some(1));
    assert_eq!(find_timeout(&make_provider(&json!({})).spec), Duration::from_secs(15));
    assert_eq!(
        find_timeout(&make_provider(&json!({ "timeout": "1500ms" })).spec),
        Duration::from_millis(1500)
    );
}

#[test]
fn proxies_and_certificates_are_read_as_in_flux() {
    let through = |fields: Value, data: &[(&str, &str)], proxy: Option<&[(&str, &str)]>| {
        let (provider, alert) = (make_provider(&fields), make_alert("blue", &json!({})));
        let secrets = Secrets {
            secret: Some(make_secret(data)),
            certificates: None,
            proxy: proxy.map(make_secret),
        };
        let mut budget = EvaluationBudget::default();
        let news = make_failure();
        let metadata = combine_metadata(&news, &alert.spec).metadata;
        write_sending((&provider, &alert), (&news, &metadata), secrets, (&mut budget, start())).unwrap()
    };
    let with = |fields: Value| {
        let mut all = fields;
        all["secretRef"] = json!({ "name": "secret" });
        all
    };
    let of = |sending: &PreparedNotification| {
        sending
            .connection
            .proxy
            .as_ref()
            .map(|data| String::from_utf8(data["address"].clone()).unwrap())
    };
    let spec = with(json!({ "proxy": "http://spec:1" }));
    assert_eq!(of(&through(with(json!({})), &[], None)), None);
    assert_eq!(of(&through(spec.clone(), &[], None)).as_deref(), Some("http://spec:1"));
    assert_eq!(
        of(&through(spec, &[("proxy", "http://secret:2\n")], None)).as_deref(),
        Some("http://secret:2")
    );
    let both = through(
        with(json!({})),
        &[("proxy", "http://secret:2")],
        Some(&[("address", "http://ref:3")]),
    );
    assert_eq!(of(&both).as_deref(), Some("http://ref:3"));
    // The certificates of a Git host may be in the Secret with its token; those of a chat may not.
    let data = [("token", "sesame"), ("ca.crt", "x")];
    let host = with(json!({ "type": "gitea", "address": "https://git.example/a/b" }));
    assert!(through(host, &data, None).connection.tls.is_some());
    assert!(
        through(with(json!({ "type": "slack" })), &data, None)
            .connection
            .tls
            .is_none()
    );
}
