//! Webhooks beside policies: a write that policies check waits for no webhook, even a dead one, while policies are in force.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_admission::webhook::{WebhookInstance, WebhookSettings};
use tenure_api::admission_webhooks::{Surroundings, WebhookPlace, configurations};
use tenure_api::reason;
use tenure_cluster::report_enforcement;
use tenure_planner::enforcement::{EnforcedPart, PartState};
use tenure_tenancy::Settings;
use tenure_testkit::{Admin, Cluster, Kubernetes, KubernetesBinaries, SOON, eventually};
use tokio::net::TcpListener;

use crate::door::{certify, http_of, reach};

const VALIDATING: (&str, &str) = ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration");

/// Creates a namespace with a Tenant's label, and a user that may write everything there and repair
/// nothing.
async fn prepare(cluster: &Cluster) -> Admin {
    let admin = &cluster.admin;
    let rules = json!([
        { "apiGroups": [""], "resources": ["namespaces", "pods", "serviceaccounts/token"], "verbs": ["create"] },
        { "apiGroups": ["kustomize.toolkit.fluxcd.io"], "resources": ["kustomizations"], "verbs": ["create"] }
    ]);
    let group = "rbac.authorization.k8s.io";
    for object in [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "orchard", "labels": { "capsule.clastix.io/tenant": "orchard" } } }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "own", "namespace": "orchard" } }),
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "writes" }, "rules": rules }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "writes" },
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "writes" },
            "subjects": [{ "apiGroup": group, "kind": "User", "name": "dora" }]
        }),
    ] {
        admin.apply(object).await.unwrap();
    }
    admin.impersonating("dora").unwrap()
}

/// Checks whether each of these is allowed: an object of Flux, a Pod with an account, a token, and a namespace that policies check only
/// in part.
async fn ask(user: &Admin) -> [bool; 4] {
    let kustomization = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": { "name": "a" },
        "spec": { "interval": "1h", "prune": true, "sourceRef": { "kind": "GitRepository", "name": "s" } }
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" },
        "spec": { "serviceAccountName": "own", "containers": [{ "name": "main", "image": "example.org/x" }] }
    });
    let token = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "orchard-two", "labels": { "capsule.clastix.io/tenant": "orchard" } } });
    let asked = [
        (
            "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/orchard/kustomizations",
            kustomization,
        ),
        ("/api/v1/namespaces/orchard/pods", pod),
        ("/api/v1/namespaces/orchard/serviceaccounts/own/token", token),
        ("/api/v1/namespaces", namespace),
    ];
    let mut answers = [false; 4];
    for (answer, (path, body)) in answers.iter_mut().zip(asked) {
        let request = http_of(&format!("{path}?dryRun=All"), &body);
        *answer = user.client().request::<Value>(request).await.is_ok();
    }
    answers
}

/// Sends writes while the configurations lead to no listener.
async fn see_what_goes_on(cluster: &Cluster) {
    let user = prepare(cluster).await;
    let place = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        WebhookPlace::Address(format!("https://{}", listener.local_addr().unwrap()))
    };
    let authority = certify(None).authority;
    for (has_policies, wanted) in [
        (false, [false, false, false, false]),
        (true, [true, true, true, false]),
        (false, [false, false, false, false]),
    ] {
        let surroundings = Surroundings {
            has_policies,
            ..Surroundings::default()
        };
        for configuration in configurations(&place, &authority, surroundings) {
            cluster.admin.apply(configuration).await.unwrap();
        }
        // A server follows configurations a moment later.
        let asked = eventually(SOON, || async {
            let answers = ask(&user).await;
            if answers == wanted { Ok(()) } else { Err(answers) }
        });
        if let Err(last) = asked.await {
            panic!("with policies {has_policies}: {last:?}, not {wanted:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policy_checked_writes_succeed_without_webhook() {
    let cluster = Cluster::start().await.unwrap();
    cluster.send_guard_away();
    see_what_goes_on(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policy_checked_writes_succeed_without_webhook_on_real_server() {
    let Some(binaries) = KubernetesBinaries::find().unwrap() else {
        eprintln!("skipped: TENURE_KUBERNETES_BIN names no real control plane");
        return;
    };
    let kubernetes = Kubernetes::start(&binaries, true).await.unwrap();
    let cluster = Cluster::connect_to(&kubernetes).await.unwrap();
    see_what_goes_on(&cluster).await;
}

/// The number of looks for each change of a configuration.
const NUDGED_EACH: usize = 50;

/// The keeper of the configurations reads whether policies are in force. A change of that is no
/// weakening.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configurations_follow_whether_policies_are_in_force() {
    let cluster = Cluster::start().await.unwrap();
    cluster.send_guard_away();
    let admin = &cluster.admin;
    for object in tenure_api::installation::admission() {
        admin.apply(object).await.unwrap();
    }
    let tenancy = Settings {
        has_policies: true,
        is_guarded: true,
        ..Settings::default()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = WebhookSettings {
        tenancy: tenancy.clone(),
        place: WebhookPlace::Address(format!("https://{}", listener.local_addr().unwrap())),
        gate: None,
    };
    let controller = reach(&cluster).controller();
    let door = Arc::new(WebhookInstance::new(controller.clone(), settings));
    let open = tokio::spawn(async move { door.open(listener).await });
    let report = async |state: PartState| {
        report_enforcement(
            &controller,
            "tenure-controller",
            (EnforcedPart::Policies, &state),
            &tenancy,
        )
        .await
        .unwrap();
    };
    let not_yet = || PartState::not_in_force(reason::NOT_MET_YET, "the API server doesn't evaluate them yet");
    for (state, wanted) in [
        (not_yet(), "Fail"),
        (PartState::in_force("in force"), "Ignore"),
        (not_yet(), "Fail"),
    ] {
        report(state).await;
        // The keeper looks now and then, and at each write of the configurations.
        let mut number = 0;
        let looked = eventually(SOON, || {
            number += 1;
            let nudge = json!({ "metadata": { "annotations": { "nudged": number.to_string() } } });
            async move {
                // Not each time: the keeper's write would always come after the change, and
                // conflict.
                if number % NUDGED_EACH == 1 {
                    let _there_or_not = admin.patch(VALIDATING, ("", "tenure"), nudge).await;
                }
                let found = admin.get(VALIDATING, ("", "tenure")).await.unwrap().unwrap_or_default();
                let webhooks = found["webhooks"].as_array().cloned().unwrap_or_default();
                let accounts = webhooks
                    .iter()
                    .find(|webhook| webhook["name"] == "accounts.admission.tenure.dev");
                let policy = accounts.map(|webhook| webhook["failurePolicy"].clone());
                if policy == Some(json!(wanted)) {
                    Ok(())
                } else {
                    Err(policy)
                }
            }
        });
        looked.await.unwrap();
    }
    let events = admin.list(("v1", "Event"), "default").await.unwrap();
    let put_back: Vec<&Value> = events
        .iter()
        .filter(|event| event["reason"] == "AdmissionPutBack")
        .collect();
    assert!(put_back.is_empty(), "{put_back:#?}");
    open.abort();
}
