//! Alerts: the refused fields, the wanted events, and the metadata of an event.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_api::{Alert, ObjectMeta, Provider};
use tenure_planner::alert::{
    Candidate, Plan, RECENT, RecentEvents, SAME_FOR, SelectedAlerts, Snapshot, combine_metadata, estimate_glance,
    is_about, may_name, plan, select_alerts,
};
use tenure_planner::alert_event::AlertEvent;
use tenure_planner::list_limits::{ALERTS_SELECTED, EVENT_SOURCES, PATTERNS_TRIED};
use tenure_planner::{Event, EventKind, EventPlace, Next, invariants};

use crate::receiver::{make_tenancy, start};

const KUSTOMIZE: (&str, &str, &str) = (
    "kustomize.toolkit.fluxcd.io/v1",
    "Kustomization",
    "kustomize-controller",
);
const SOURCE: (&str, &str, &str) = ("source.toolkit.fluxcd.io/v1", "GitRepository", "source-controller");

pub(crate) fn make_alert(namespace: &str, fields: &Value) -> Alert {
    let mut spec = json!({
        "providerRef": { "name": "chat" }, "eventSources": [{ "kind": "Kustomization", "name": "*" }],
    });
    for (key, value) in fields.as_object().unwrap() {
        spec[key] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Alert",
        "metadata": { "name": "alert", "namespace": namespace, "generation": 1, "uid": "a" },
        "spec": spec,
    }))
    .unwrap()
}

fn make_provider(fields: &Value) -> Provider {
    let mut spec = json!({ "type": "slack", "address": "https://hooks.example/x" });
    for (key, value) in fields.as_object().unwrap() {
        spec[key] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Provider",
        "metadata": { "name": "chat", "namespace": "blue", "generation": 1, "uid": "p" },
        "spec": spec,
    }))
    .unwrap()
}

pub(crate) fn make_event(kind: EventKind, reason: &str, message: &str, annotations: &[(&str, &str)]) -> Event {
    Event {
        kind,
        reason: reason.to_owned(),
        message: message.to_owned(),
        annotations: annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        place: EventPlace::Beside,
    }
}

pub(crate) fn make_metadata(namespace: &str, name: &str) -> ObjectMeta {
    serde_json::from_value(json!({
        "name": name, "namespace": namespace, "uid": "o", "resourceVersion": "7",
        "labels": { "team": "one" },
    }))
    .unwrap()
}

/// Makes the news that a Kustomization of namespace `blue` could not be built.
fn make_failure(message: &str) -> AlertEvent {
    let revision = [("kustomize.toolkit.fluxcd.io/revision", "main@sha1:1")];
    let event = make_event(EventKind::Warning, "BuildFailed", message, &revision);
    AlertEvent::new(KUSTOMIZE, &make_metadata("blue", "app"), &event, start()).unwrap()
}

fn plan_now(snapshot: &Snapshot) -> Plan {
    let plan = plan(snapshot, start());
    assert_eq!(invariants::check_plan(&plan), Vec::<String>::new(), "{plan}");
    plan
}

#[track_caller]
fn plan_ready(fields: &Value, provider: Option<Provider>) -> (bool, bool, String, String) {
    let plan = plan_now(&Snapshot {
        alert: make_alert("blue", fields),
        placement: make_tenancy().find_placement("blue"),
        provider,
    });
    let status = plan.status.unwrap();
    let find = |type_: &str| status.conditions.iter().find(|condition| condition.type_ == type_);
    let ready = find("Ready").unwrap();
    (
        ready.status == tenure_api::ConditionStatus::True,
        find("Stalled").is_some(),
        ready.reason.clone(),
        ready.message.clone(),
    )
}

#[test]
fn alert_is_ready_when_its_provider_is_usable() {
    let find_problem = |fields: Value, provider: Option<Provider>| {
        let (is_ready, is_stalled, reason, message) = plan_ready(&fields, provider);
        format!("{is_ready} {is_stalled} {reason}: {message}")
    };
    let fine = || Some(make_provider(&json!({})));
    assert_eq!(find_problem(json!({}), fine()), "true false Succeeded: Alert is Ready");
    assert_eq!(
        find_problem(json!({}), None),
        "false false ProviderNotReady: Provider blue/chat does not exist: create it, or name another one in spec.providerRef"
    );
    let rocket = Some(make_provider(&json!({ "type": "rocket" })));
    assert_eq!(
        find_problem(json!({}), rocket),
        "false false ProviderNotReady: Provider blue/chat: spec.type: rocket is not supported yet: use one of generic, generic-hmac, slack, \
         msteams, discord, alertmanager, github, gitlab, gitea"
    );
    let mut denied = make_provider(&json!({}));
    denied.status = serde_json::from_value(json!({ "conditions": [{
        "type": "Ready", "status": "False", "reason": "AddressDenied", "message": "spec.address: denied",
        "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z",
    }] }))
    .unwrap();
    assert_eq!(
        find_problem(json!({}), Some(denied)),
        "false false ProviderNotReady: Provider blue/chat: spec.address: denied"
    );
    // No kind is ignored silently: a kind that Tenure doesn't reconcile sends no events.
    let helm = json!({ "eventSources": [
        { "kind": "HelmRelease", "name": "*" }, { "kind": "Kustomization", "name": "*" }, { "kind": "ImagePolicy", "name": "*" },
    ] });
    assert_eq!(
        find_problem(helm, fine()),
        "true false Succeeded: Alert is Ready; no controller here reconciles ImagePolicy, so no events about it are sent"
    );
}

#[test]
fn forbidden_alert_fields_are_refused_by_name() {
    let check = |fields: Value, reason: &str, part: &str| {
        let (is_ready, is_stalled, found, message) = plan_ready(&fields, Some(make_provider(&json!({}))));
        assert!(
            !is_ready && is_stalled && found == reason && message.contains(part),
            "{found}: {message}"
        );
    };
    let source = |source: Value| json!({ "eventSources": [source] });
    let blocked = "cross-namespace references have been blocked";
    check(
        source(json!({ "kind": "Kustomization", "name": "*", "namespace": "red" })),
        "AccessDenied",
        blocked,
    );
    check(
        source(json!({ "kind": "Kustomization", "name": "x", "namespace": "nowhere" })),
        "AccessDenied",
        blocked,
    );
    check(
        source(json!({ "kind": "Secret", "name": "*" })),
        "InvalidSpec",
        "spec.eventSources[0].kind",
    );
    check(
        source(json!({ "kind": "Kustomization", "name": "../x" })),
        "InvalidSpec",
        "spec.eventSources[0].name",
    );
    check(
        source(json!({ "kind": "Kustomization", "name": "x", "apiVersion": "source.toolkit.fluxcd.io/v1" })),
        "InvalidSpec",
        "spec.eventSources[0].apiVersion",
    );
    check(json!({ "eventSeverity": "trace" }), "InvalidSpec", "spec.eventSeverity");
    check(
        json!({ "providerRef": { "name": "../x" } }),
        "InvalidSpec",
        "spec.providerRef.name",
    );
    check(
        json!({ "inclusionList": ["("] }),
        "InvalidSpec",
        "spec.inclusionList[0]: failed to compile regex",
    );
    check(
        json!({ "exclusionList": ["a", "(?=a)"] }),
        "InvalidSpec",
        "spec.exclusionList[1]",
    );
    check(
        json!({ "inclusionList": ["(((a{100}){100}){100})"] }),
        "InvalidSpec",
        "spec.inclusionList[0]",
    );
    check(
        json!({ "inclusionList": ["a".repeat(2000)] }),
        "InvalidSpec",
        "spec.inclusionList[0] is longer",
    );
    check(
        json!({ "exclusionList": vec!["a"; 21] }),
        "InvalidSpec",
        "spec.exclusionList has 21 entries",
    );
    check(
        json!({ "eventMetadata": { "a": "b".repeat(20_000) } }),
        "InvalidSpec",
        "spec.eventMetadata",
    );
    // The control: another namespace of the same tenant.
    let own = source(json!({ "kind": "Kustomization", "name": "*", "namespace": "blue-dev" }));
    assert!(plan_ready(&own, Some(make_provider(&json!({})))).0);
}

#[test]
fn suspended_or_deleted_alert_is_left_unchanged() {
    let mut snapshot = Snapshot {
        alert: make_alert("blue", &json!({ "suspend": true, "eventSeverity": "trace" })),
        placement: make_tenancy().find_placement("blue"),
        provider: None,
    };
    let plan = plan_now(&snapshot);
    assert!(plan.status.is_none() && plan.events.is_empty());
    snapshot.alert.metadata = serde_json::from_value(json!({
        "name": "alert", "namespace": "blue", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["finalizers.fluxcd.io"],
    }))
    .unwrap();
    let plan = plan_now(&snapshot);
    assert_eq!(plan.next, Next::Forget);
    assert!(plan.finalizer.is_some(), "one that Flux put there");
}

#[test]
fn an_event_is_wanted_by_what_the_alert_names() {
    let news = make_failure("kustomization.yaml:3: no such file");
    let blue = make_tenancy().find_placement("blue");
    let wants = |namespace: &str, fields: Value| {
        let alert = make_alert(namespace, &fields);
        let placement = make_tenancy().find_placement(namespace);
        let chosen = select_alerts(
            &[Candidate {
                alert: &alert,
                placement: &placement,
            }],
            &news,
        );
        assert!(chosen.chosen.is_empty() || is_about(&alert, &news));
        !chosen.chosen.is_empty()
    };
    let source = |source: Value| json!({ "eventSources": [source] });
    let yes = [
        json!({}),
        source(json!({ "kind": "Kustomization", "name": "app" })),
        source(json!({ "kind": "Kustomization", "name": "*", "namespace": "blue", "matchLabels": { "team": "one" } })),
        json!({ "eventSeverity": "error" }),
        json!({ "inclusionList": ["^nothing", "no such"] }),
        json!({ "exclusionList": ["waiting.*socket"] }),
    ];
    for fields in yes {
        assert!(wants("blue", fields.clone()), "{fields}");
    }
    let no = [
        source(json!({ "kind": "GitRepository", "name": "app" })),
        source(json!({ "kind": "Kustomization", "name": "ap" })),
        source(json!({ "kind": "Kustomization", "name": "*", "matchLabels": { "team": "two" } })),
        source(json!({ "kind": "Kustomization", "name": "*", "namespace": "blue-dev" })),
        json!({ "inclusionList": ["^nothing"] }),
        json!({ "inclusionList": ["no such"], "exclusionList": ["file$"] }),
        json!({ "suspend": true }),
        // A list with a mistake lets no event through, as its meaning is unknown.
        json!({ "exclusionList": ["("] }),
    ];
    for fields in no {
        assert!(!wants("blue", fields.clone()), "{fields}");
    }
    // The Alert is in another namespace: of the same tenant, and then of another.
    let of_blue = source(json!({ "kind": "Kustomization", "name": "*", "namespace": "blue" }));
    assert!(wants("blue-dev", of_blue.clone()));
    assert!(!wants("red", of_blue.clone()));
    // Alerts that may not name the object are not counted among the candidates, however many they are.
    let may_name_from = |namespace: &str| {
        let alert = make_alert(namespace, &of_blue);
        let placement = make_tenancy().find_placement(namespace);
        let candidate = Candidate {
            alert: &alert,
            placement: &placement,
        };
        (is_about(&alert, &news), may_name(&candidate, &news))
    };
    assert_eq!(may_name_from("blue-dev"), (true, true));
    assert_eq!(may_name_from("red"), (true, false));
    assert_eq!(may_name_from("of-nobody"), (true, false));
    // An Alert for errors gets no good news.
    let good = make_event(EventKind::Normal, "Progressing", "ConfigMap/a created", &[]);
    let good = AlertEvent::new(KUSTOMIZE, &make_metadata("blue", "app"), &good, start()).unwrap();
    let errors = make_alert("blue", &json!({ "eventSeverity": "error" }));
    assert!(
        select_alerts(
            &[Candidate {
                alert: &errors,
                placement: &blue
            }],
            &good
        )
        .chosen
        .is_empty()
    );
}

#[test]
fn alerts_get_only_events_of_the_object_itself() {
    let at = start();
    let warning = make_event(EventKind::Warning, "InvalidSpec", "x", &[]);
    // Events about Alerts and Providers are not reported: an Alert would report about itself.
    for kind in ["Alert", "Provider", "Receiver"] {
        let of = (
            "notification.toolkit.fluxcd.io/v1beta3",
            kind,
            "notification-controller",
        );
        assert_eq!(AlertEvent::new(of, &make_metadata("blue", "a"), &warning, at), None);
    }
    assert_eq!(
        AlertEvent::new(("v1", "Kustomization", "x"), &make_metadata("blue", "a"), &warning, at),
        None
    );
    // An event for the platform, or about another object, is not the object's own.
    let mut elsewhere = warning.clone();
    elsewhere.place = EventPlace::Platform;
    assert_eq!(
        AlertEvent::new(KUSTOMIZE, &make_metadata("blue", "a"), &elsewhere, at),
        None
    );
    // An event without news is not reported.
    let old = make_event(EventKind::Normal, "ArtifactUpToDate", "x", &[]);
    assert_eq!(AlertEvent::new(SOURCE, &make_metadata("blue", "a"), &old, at), None);
    // Neither is a Kustomization's wait for its source, which reports its own problem.
    let waits = make_event(EventKind::Warning, "ArtifactFailed", "x", &[]);
    assert_eq!(
        AlertEvent::new(KUSTOMIZE, &make_metadata("blue", "a"), &waits, at),
        None
    );
    assert!(
        AlertEvent::new(SOURCE, &make_metadata("blue", "a"), &warning, at).is_some(),
        "the control"
    );
    let of = (
        "source.extensions.fluxcd.io/v1beta1",
        "ArtifactGenerator",
        "source-watcher",
    );
    let made = make_event(EventKind::Warning, "ArtifactFailed", "x", &[]);
    assert!(
        AlertEvent::new(of, &make_metadata("blue", "a"), &made, at).is_some(),
        "its own events are sent"
    );
    // A Kustomization that waits for others has not failed.
    let waits = make_event(EventKind::Warning, "DependencyNotReady", "x", &[]);
    let waits = AlertEvent::new(KUSTOMIZE, &make_metadata("blue", "a"), &waits, at).unwrap();
    assert_eq!(waits.severity.as_str(), "info");
}

#[test]
fn metadata_of_an_event_follows_fluxs_order() {
    let mut metadata = make_metadata("blue", "app");
    metadata.annotations = Some(BTreeMap::from([
        ("event.toolkit.fluxcd.io/summary".to_owned(), "of the object".to_owned()),
        ("event.toolkit.fluxcd.io/deploymentID".to_owned(), "7".to_owned()),
        ("event.toolkit.fluxcd.io/revision".to_owned(), "forged".to_owned()),
        ("example.com/secret".to_owned(), "not sent".to_owned()),
        ("kustomize.toolkit.fluxcd.io/revision".to_owned(), "forged".to_owned()),
    ]));
    let annotations = [
        ("kustomize.toolkit.fluxcd.io/revision", "main@sha1:1"),
        ("kustomize.toolkit.fluxcd.io/checksum", "1"),
        ("kustomize.toolkit.fluxcd.io/Digest", "2"),
        ("kustomize.toolkit.fluxcd.io/token", "3"),
        ("source.toolkit.fluxcd.io/revision", "of another group"),
    ];
    let event = make_event(EventKind::Normal, "Progressing", "x", &annotations);
    let news = AlertEvent::new(KUSTOMIZE, &metadata, &event, start()).unwrap();
    let alert = make_alert(
        "blue",
        &json!({ "summary": "of the alert", "eventMetadata": { "cluster": "one", "deploymentID": "8" } }),
    );
    let combined = combine_metadata(&news, &alert.spec);
    let expected = [
        ("cluster", "one"),
        ("deploymentID", "8"),
        ("revision", "main@sha1:1"),
        ("summary", "of the alert"),
    ];
    let pairs: Vec<(&str, &str)> = combined
        .metadata
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    assert_eq!(pairs, expected);
    let conflicts: Vec<(&str, &str)> = combined
        .conflicts
        .iter()
        .map(|(key, who)| (key.as_str(), who.as_str()))
        .collect();
    assert_eq!(
        conflicts,
        [
            (
                "deploymentID",
                "involved object annotations, Alert object .spec.eventMetadata"
            ),
            (
                "revision",
                "involved object annotations, involved object controller metadata"
            ),
            ("summary", "involved object annotations, Alert object .spec.summary"),
        ]
    );
}

#[test]
fn long_event_metadata_and_message_are_cut() {
    let mut metadata = make_metadata("blue", "app");
    let annotations = (0..100).map(|number| (format!("event.toolkit.fluxcd.io/{number:03}"), "x".repeat(1000)));
    metadata.annotations = Some(annotations.collect());
    let revision = [("kustomize.toolkit.fluxcd.io/revision", "main@sha1:1")];
    let event = make_event(EventKind::Normal, "Progressing", &"é".repeat(40_000), &revision);
    let news = AlertEvent::new(KUSTOMIZE, &metadata, &event, start()).unwrap();
    let bytes: usize = news.metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
    assert!(
        bytes <= 16 << 10 && news.metadata.contains_key(revision[0].0),
        "{bytes}"
    );
    assert!(
        news.message.len() < 39_020 && news.message.ends_with(" [...]"),
        "{}",
        news.message.len()
    );
}

#[test]
fn a_success_is_a_commits_status() {
    let find_news = |kind, reason: &str, annotations: &[(&str, &str)]| {
        let news = AlertEvent::new(
            KUSTOMIZE,
            &make_metadata("blue", "app"),
            &make_event(kind, reason, "x", annotations),
            start(),
        );
        news.unwrap()
            .metadata
            .get("kustomize.toolkit.fluxcd.io/commit_status")
            .cloned()
    };
    let revision = [("kustomize.toolkit.fluxcd.io/revision", "main@sha1:1")];
    let update = Some("update".to_owned());
    assert_eq!(
        find_news(EventKind::Normal, "ReconciliationSucceeded", &revision),
        update
    );
    assert_eq!(find_news(EventKind::Normal, "Progressing", &revision), None);
    assert_eq!(
        find_news(EventKind::Normal, "ReconciliationSucceeded", &[]),
        None,
        "of what was deleted"
    );
}

#[test]
fn equal_events_are_sent_once_in_a_while() {
    let mut recent = RecentEvents::default();
    let at = Duration::from_secs;
    assert!(recent.record_if_new(&make_failure("one"), at(0)));
    assert!(!recent.record_if_new(&make_failure("one"), at(299)));
    assert!(recent.record_if_new(&make_failure("two"), at(299)));
    assert!(recent.record_if_new(&make_failure("one"), SAME_FOR));
    // Another revision is something else.
    let other = make_event(
        EventKind::Warning,
        "BuildFailed",
        "one",
        &[("kustomize.toolkit.fluxcd.io/revision", "main@sha1:2")],
    );
    let other = AlertEvent::new(KUSTOMIZE, &make_metadata("blue", "app"), &other, start()).unwrap();
    assert!(recent.record_if_new(&other, at(301)));
    // For any number of events, the memory is bounded.
    for number in 0..2 * RECENT {
        assert!(recent.record_if_new(&make_failure(&number.to_string()), at(302)));
    }
    assert!(!format!("{recent:?}").is_empty());
    assert!(recent.record_if_new(&make_failure("0"), at(303)), "it was forgotten");
    assert!(
        !recent.record_if_new(&make_failure(&(2 * RECENT - 1).to_string()), at(303)),
        "the last was not"
    );
}

fn make_alerts(count: usize, fields: &Value) -> Vec<Alert> {
    (0..count)
        .map(|number| {
            let mut alert = make_alert("blue", fields);
            alert.metadata.name = Some(format!("alert-{number}"));
            alert
        })
        .collect()
}

fn choose_of(alerts: &[Alert], news: &AlertEvent) -> SelectedAlerts {
    let placement = make_tenancy().find_placement("blue");
    let candidates: Vec<Candidate<'_>> = alerts
        .iter()
        .map(|alert| Candidate {
            alert,
            placement: &placement,
        })
        .collect();
    select_alerts(&candidates, news)
}

#[test]
fn bounded_number_of_alerts_sends_one_event() {
    let alerts = make_alerts(10_000, &json!({}));
    let chosen = choose_of(&alerts, &make_failure("x"));
    assert_eq!(chosen.chosen.len(), ALERTS_SELECTED);
    assert_eq!(chosen.too_many, Some(ALERTS_SELECTED));
    // The control: as many Alerts as are allowed.
    let chosen = choose_of(&alerts[..ALERTS_SELECTED], &make_failure("x"));
    assert_eq!((chosen.chosen.len(), chosen.too_many), (ALERTS_SELECTED, None));
}

#[test]
fn cost_of_alert_expressions_is_bounded() {
    // The slowest expression that compiles, on the longest message.
    let slow = json!({ "inclusionList": vec!["(a?){30}(a|aa){30}(.?a.?){20}b$"; 20] });
    let alerts = make_alerts(1000, &slow);
    let chosen = choose_of(&alerts, &make_failure(&"a".repeat(39_000)));
    assert!(chosen.chosen.is_empty() && chosen.too_many.is_some(), "{chosen:?}");
    // Many that are cheap are tried so often.
    let cheap = make_alerts(1000, &json!({ "inclusionList": ["^nothing$"] }));
    let chosen = choose_of(&cheap, &make_failure("x"));
    assert_eq!(chosen.too_many, Some(PATTERNS_TRIED));
    let chosen = choose_of(&cheap[..PATTERNS_TRIED], &make_failure("x"));
    assert_eq!((chosen.chosen.len(), chosen.too_many), (0, None), "the control");
}

#[test]
fn event_has_the_form_of_flux() {
    let at: Timestamp = "2026-01-02T03:04:05.678Z".parse().unwrap();
    let event = make_event(EventKind::Warning, "BuildFailed", "x", &[]);
    let news = AlertEvent::new(KUSTOMIZE, &make_metadata("blue", "app"), &event, at).unwrap();
    assert_eq!(
        news.write(&BTreeMap::from([("a".to_owned(), "b".to_owned())])),
        json!({
            "involvedObject": {
                "kind": "Kustomization", "namespace": "blue", "name": "app", "uid": "o",
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "resourceVersion": "7",
            },
            "severity": "error", "timestamp": "2026-01-02T03:04:05Z", "message": "x", "reason": "BuildFailed",
            "metadata": { "a": "b" }, "reportingController": "kustomize-controller",
        })
    );
    assert_eq!(news.write(&BTreeMap::new()).get("metadata"), None);
}

/// The work for an event grows with the entries of Alerts and their labels. A longer list than allowed is not read to its end.
#[test]
fn alert_entries_and_labels_count_as_work() {
    let source = |name: &str, labels: usize| {
        let labels: BTreeMap<String, String> = (0..labels)
            .map(|number| (format!("l{number}"), "x".to_owned()))
            .collect();
        json!({ "kind": "Kustomization", "name": name, "matchLabels": labels })
    };
    let of = |sources: Vec<Value>| make_alert("blue", &json!({ "eventSources": sources }));
    let mut news = make_failure("it fails");
    let weight = |alert: &Alert, news: &AlertEvent| estimate_glance(alert, news) / estimate_glance(&of(vec![]), news);
    assert_eq!(weight(&of(vec![source("a", 0); 50]), &news), 51);
    // The object has one label, so an entry with more labels never matches.
    assert_eq!(weight(&of(vec![source("a", 100); 50]), &news), 101);
    news.labels = (0..100).map(|number| (format!("l{number}"), "x".to_owned())).collect();
    assert_eq!(weight(&of(vec![source("a", 100); 50]), &news), 5_051);
    assert!(is_about(&of(vec![source("app", 100)]), &news));

    let mut many = vec![source("a", 0); EVENT_SOURCES];
    many.push(source("app", 0));
    assert_eq!(weight(&of(many.clone()), &news), EVENT_SOURCES + 1);
    assert!(
        !is_about(&of(many.clone()), &news),
        "the Alert is Stalled, and its status says so"
    );
    many.remove(0);
    assert!(is_about(&of(many), &news));
}
