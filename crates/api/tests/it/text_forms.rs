//! Durations, names and inventory ids: accepted and refused texts.

use std::time::Duration;

use serde_json::json;
use tenure_api::kustomization::DeletionPolicy;
use tenure_api::{DurationText, KustomizationSpec, ObjectId, condition, names};

#[test]
fn durations_follow_gos_grammar() {
    for (text, milliseconds) in [
        ("10m", 600_000),
        ("1h30m", 5_400_000),
        ("1.5s", 1_500),
        ("500ms", 500),
        ("0", 0),
        ("0s", 0),
    ] {
        assert_eq!(
            DurationText::from(text).parse().unwrap(),
            Duration::from_millis(milliseconds),
            "{text}"
        );
    }
    for text in [
        "",
        "10",
        "-1s",
        "1d",
        "m",
        ".s",
        "1 s",
        "９s",
        "99999999999999999999h",
        "2562048h",
        "1h\n",
    ] {
        assert!(DurationText::from(text).parse().is_err(), "{text:?} must be refused");
    }
}

/// Flux's defaults for fields that a spec leaves out.
#[test]
fn kustomization_defaults_follow_from_interval() {
    let spec = |more: serde_json::Value| -> KustomizationSpec {
        let mut spec = json!({ "prune": true, "sourceRef": { "kind": "GitRepository", "name": "a" } });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    };
    let times = |more| {
        let spec = spec(more);
        let seconds = |duration: Duration| duration.as_secs();
        (
            spec.effective_timeout().map(seconds).unwrap(),
            spec.effective_retry_interval().map(seconds).unwrap(),
        )
    };
    assert_eq!(times(json!({ "interval": "10m" })), (570, 600));
    assert_eq!(times(json!({ "interval": "40s" })), (30, 40));
    assert_eq!(times(json!({ "interval": "5s" })), (30, 5));
    assert_eq!(
        times(json!({ "interval": "10m", "timeout": "2m", "retryInterval": "1m" })),
        (120, 60)
    );
    assert_eq!(times(json!({ "interval": "10m", "timeout": "1s" })), (30, 600));
    assert!(spec(json!({ "interval": "1d" })).effective_timeout().is_err());
    let policy = |more| spec(more).deletion_policy();
    assert_eq!(policy(json!({ "interval": "1m" })), Some(DeletionPolicy::MirrorPrune));
    assert_eq!(
        policy(json!({ "interval": "1m", "deletionPolicy": "Orphan" })),
        Some(DeletionPolicy::Orphan)
    );
    assert_eq!(policy(json!({ "interval": "1m", "deletionPolicy": "orphan" })), None);
}

#[test]
fn names_that_could_lead_elsewhere_are_refused() {
    for name in [
        "", ".", "..", "../x", "a/b", "a:b", "a\nb", "A", "-a", "a-", " a", "a b", "a\u{0}",
    ] {
        assert!(names::ServiceAccountName::new(name).is_err(), "{name:?}");
        assert!(names::NamespaceName::new(name).is_err(), "{name:?}");
        assert!(names::TenantName::new(name).is_err(), "{name:?}");
    }
    assert!(names::ServiceAccountName::new("a.b").is_ok());
    assert!(names::NamespaceName::new("a.b").is_err());
}

#[test]
fn inventory_ids_round_trip() {
    for (id, subject) in [
        ("team_web_apps_Deployment", "Deployment/team/web"),
        ("_team__Namespace", "Namespace/team"),
        (
            "_system__controller__x_rbac.authorization.k8s.io_ClusterRole",
            "ClusterRole/system:controller:x",
        ),
        ("_a_b_rbac.authorization.k8s.io_ClusterRole", "ClusterRole/a_b"),
    ] {
        let parsed: ObjectId = id.parse().unwrap();
        assert_eq!(parsed.subject(), subject);
        assert_eq!(parsed.to_string(), id);
    }
    for id in [
        "",
        "a",
        "a_b",
        "a_b_c",
        "../x_b__Kind",
        "a_.._v1_Kind",
        "a_x/y__Kind",
        "a_b_G!_Kind",
        "a_b__",
        "a___Kind",
    ] {
        assert!(id.parse::<ObjectId>().is_err(), "{id:?} must be refused");
    }
    let object =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "../secrets/x", "namespace": "team" } });
    assert!(ObjectId::from_object(&object).is_err());
}

#[test]
fn condition_keeps_transition_time_while_status_stays() {
    let make = |status, message: &str, second: i8| condition::Condition {
        type_: condition::READY.to_owned(),
        status,
        reason: "Because".to_owned(),
        message: message.to_owned(),
        observed_generation: None,
        last_transition_time: serde_json::from_value(json!(format!("2026-01-01T00:00:0{second}Z"))).unwrap(),
    };
    let mut conditions = vec![make(condition::ConditionStatus::False, "one", 1)];
    condition::set(&mut conditions, make(condition::ConditionStatus::False, "two", 2));
    assert_eq!(conditions, [make(condition::ConditionStatus::False, "two", 1)]);
    condition::set(&mut conditions, make(condition::ConditionStatus::True, "three", 3));
    assert_eq!(conditions, [make(condition::ConditionStatus::True, "three", 3)]);
    condition::set(
        &mut conditions,
        make(
            condition::ConditionStatus::True,
            &"ä".repeat(condition::MAX_MESSAGE_LENGTH),
            4,
        ),
    );
    assert!(conditions[0].message.len() <= condition::MAX_MESSAGE_LENGTH);
}
