//! Rights from roles and bindings, and malformed authorization questions. `tests/trials` compares with the decisions
//! of a real kube-apiserver.

use std::collections::HashMap;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tenure_auth::authorization::{
    Attributes, Authorizer as _, Rbac, RbacKind, Refusal, Write, check_escalation, local_subject_access_review,
    self_subject_access_review, self_subject_rules_review, subject_access_review,
};
use tenure_auth::identity::UserInfo;
use tenure_auth::impersonation::Impersonator;

use crate::access_recorded::read_recorded_steps;

#[test]
fn an_object_that_is_gone_grants_nothing() {
    let (mut rbac, _) = read_recorded_steps("reviews");
    let user = |name: &str| UserInfo {
        name: name.to_owned(),
        ..UserInfo::default()
    };
    let get = Attributes::resource("get", "", "v1", "configmaps").in_namespace("auth-one");
    assert!(rbac.authorize(&user("reader"), &get).allowed);
    assert!(rbac.authorize(&user("local-reader"), &get).allowed);
    rbac.remove(RbacKind::ClusterRoleBinding, "", "auth-reader");
    rbac.remove(RbacKind::RoleBinding, "auth-one", "auth-local-cluster");
    assert!(!rbac.authorize(&user("reader"), &get).allowed);
    assert!(!rbac.authorize(&user("local-reader"), &get).allowed);
}

#[test]
fn changed_binding_revokes_its_old_subjects() {
    let mut rbac = Rbac::default();
    let binding = |subject: &str| {
        json!({
            "metadata": { "name": "b" },
            "roleRef": { "kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": "all" },
            "subjects": [{ "kind": "User", "name": subject }],
        })
    };
    let role =
        json!({ "metadata": { "name": "all" }, "rules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }] });
    rbac.apply(RbacKind::ClusterRole, &role);
    rbac.apply(RbacKind::ClusterRoleBinding, &binding("old"));
    rbac.apply(RbacKind::ClusterRoleBinding, &binding("new"));
    let allowed: HashMap<&str, bool> = ["old", "new"]
        .into_iter()
        .map(|name| {
            let user = UserInfo {
                name: name.to_owned(),
                ..UserInfo::default()
            };
            let decision = rbac.authorize(&user, &Attributes::resource("get", "", "v1", "pods"));
            (name, decision.allowed)
        })
        .collect();
    assert_eq!(allowed, HashMap::from([("old", false), ("new", true)]));
}

#[test]
fn role_with_too_many_rights_is_refused() {
    let many: Vec<String> = (0..2000).map(|index| format!("r{index}")).collect();
    let user = UserInfo {
        name: "author".to_owned(),
        ..UserInfo::default()
    };
    let object = json!({
        "metadata": { "name": "big", "namespace": "n" },
        "rules": [{ "verbs": many, "apiGroups": many, "resources": many, "resourceNames": many }],
    });
    let write = Write {
        user: &user,
        kind: RbacKind::Role,
        namespace: "n",
        path_name: "",
        object: &object,
        old: None,
    };
    let refusal = check_escalation(write, &Rbac::default()).unwrap_err();
    assert_eq!(refusal.code, 403);
    assert!(refusal.message.ends_with("split the role"), "{}", refusal.message);
}

#[test]
fn hostile_headers_are_refused_without_a_panic() {
    let caller = UserInfo::loopback();
    let request = Attributes::resource("get", "", "v1", "pods");
    let rbac = Rbac::default();
    for (name, value) in [
        ("impersonate-user", &b"\xff\xfe"[..]),
        ("impersonate-group", b"\x80"),
        ("impersonate-extra-%ff", b"x"),
        ("impersonate-extra-a", b"\xc3\x28"),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert("impersonate-user", HeaderValue::from_static("alice"));
        headers.insert(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_bytes(value).unwrap(),
        );
        let refusal = Impersonator::default()
            .impersonate(&caller, &request, &headers, &rbac)
            .unwrap_err();
        assert_eq!(refusal.code, 400, "{name}");
    }
}

#[test]
fn invalid_reviews_are_refused_as_by_real_server() {
    let (rbac, _) = read_recorded_steps("reviews");
    let user = UserInfo::loopback();
    let check = |got: Result<Value, Refusal>, code: u16, want: &str| {
        let refusal = got.unwrap_err();
        assert_eq!((refusal.code, refusal.message.as_str()), (code, want));
    };
    check(
        subject_access_review(&json!({ "spec": {} }), &rbac),
        422,
        ".authorization.k8s.io \"\" is invalid: [spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified, spec.user: Invalid value: \"\": at least one of user or group must be specified]",
    );
    check(
        subject_access_review(
            &json!({ "spec": { "user": "x", "nonResourceAttributes": { "path": "/x" }, "resourceAttributes": {} } }),
            &rbac,
        ),
        422,
        ".authorization.k8s.io \"\" is invalid: spec.nonResourceAttributes: Invalid value: {\"Path\":\"/x\",\"Verb\":\"\"}: cannot be specified in combination with resourceAttributes",
    );
    check(
        subject_access_review(
            &json!({ "metadata": { "labels": { "a": "b" }, "name": "a" }, "spec": { "user": "x", "resourceAttributes": {} } }),
            &rbac,
        ),
        422,
        ".authorization.k8s.io \"\" is invalid: metadata: Invalid value: {\"name\":\"a\",\"labels\":{\"a\":\"b\"}}: must be empty",
    );
    check(
        self_subject_access_review(&user, &json!({ "spec": {} }), &rbac),
        422,
        ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
    );
    check(
        self_subject_access_review(
            &user,
            &json!({ "spec": { "resourceAttributes": { "verb": "get", "resource": "pods", "fieldSelector": {} } } }),
            &rbac,
        ),
        422,
        ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes.fieldSelector.requirements: Required value: when spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is required",
    );
    let local = |metadata: &str, spec: Value| {
        local_subject_access_review(
            "a",
            &json!({ "metadata": { "namespace": metadata }, "spec": spec }),
            &rbac,
        )
    };
    let asked = |namespace: &str| json!({ "user": "x", "resourceAttributes": { "verb": "get", "resource": "pods", "namespace": namespace } });
    check(
        local("a", asked("b")),
        422,
        ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes.namespace: Invalid value: \"b\": must match metadata.namespace",
    );
    check(
        local("b", asked("b")),
        400,
        "the namespace of the provided object does not match the namespace sent on the request",
    );
    check(
        local(
            "a",
            json!({ "user": "x", "nonResourceAttributes": { "path": "/version", "verb": "get" } }),
        ),
        422,
        ".authorization.k8s.io \"\" is invalid: spec.nonResourceAttributes: Invalid value: {\"Path\":\"/version\",\"Verb\":\"get\"}: disallowed on this kind of request",
    );
    check(
        self_subject_rules_review(&user, &json!({ "spec": {} }), &rbac),
        400,
        "no namespace on request",
    );
    check(
        local_subject_access_review("", &json!({ "spec": {} }), &rbac),
        404,
        "the server could not find the requested resource",
    );
    let answer = local("a", asked("a")).unwrap();
    assert_eq!(answer["status"], json!({ "allowed": false }));
}

#[test]
fn a_rules_review_lists_what_holds() {
    let (rbac, _) = read_recorded_steps("reviews");
    let user = UserInfo {
        name: "namer".to_owned(),
        ..UserInfo::default()
    };
    let answer = self_subject_rules_review(&user, &json!({ "spec": { "namespace": "auth-one" } }), &rbac).unwrap();
    assert_eq!(
        answer,
        json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "metadata": {},
            "spec": {},
            "status": {
                "resourceRules": [{
                    "verbs": ["get", "update"],
                    "apiGroups": [""],
                    "resources": ["configmaps"],
                    "resourceNames": ["settings", "other"],
                }],
                "nonResourceRules": [],
                "incomplete": false,
            },
        })
    );
}

#[test]
fn headers_with_any_bytes_get_an_answer() {
    let caller = UserInfo::service_account("auth-one", "c-anything", "");
    let request = Attributes::resource("get", "", "v1", "pods");
    let (rbac, _) = read_recorded_steps("reviews");
    let impersonator = Impersonator::default();
    // A fixed sequence: the same bytes in every run.
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut answered = 0;
    for _ in 0..5000 {
        let mut headers = HeaderMap::new();
        for name in [
            "impersonate-user",
            "impersonate-group",
            "impersonate-uid",
            "impersonate-extra-%",
        ] {
            let name = if name.ends_with('%') {
                format!("impersonate-extra-{}%{:02x}", next() % 7, next() % 256)
            } else {
                name.to_owned()
            };
            let value: Vec<u8> = (0..next() % 24).map(|_| (next() >> 32).to_le_bytes()[0]).collect();
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(&value)) {
                headers.append(name, value);
            }
        }
        match impersonator.impersonate(&caller, &request, &headers, &rbac) {
            Ok(_) => answered += 1,
            Err(refusal) => assert!(matches!(refusal.code, 400 | 403), "{refusal:?}"),
        }
    }
    assert!(answered > 0);
}
