//! Admission webhooks: their requests and the effects of their answers match a real kube-apiserver.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};
use tenure_apiserver::{Config, Server};
use tenure_testkit::Webhook;

use crate::exchanges::list_scenario_differences;

/// Replays a recording that was made with a webhook, which answers by this file.
pub(crate) async fn check(scenario: &str, answers: &str) {
    let directory = tempfile::tempdir().unwrap();
    // The recording had no controller manager, whose writes the webhooks would also see.
    let config = Config {
        controllers: false,
        ..Config::new(directory.path())
    };
    let server = Server::open(config).await.unwrap();
    let path = format!("{}/tests/exchanges/{answers}.json", env!("CARGO_MANIFEST_DIR"));
    let webhook = Webhook::start(serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
        .await
        .unwrap();
    let address = format!("127.0.0.1:{}", webhook.port);
    let names = [
        ("@NS", "x123456789"),
        ("127.0.0.1:@PORT", address.as_str()),
        ("@CA", webhook.ca.as_str()),
    ];
    let out = list_scenario_differences(&server, scenario, &names, || webhook.take_requests()).await;
    server.close().await;
    assert!(out.is_empty(), "{scenario}:\n{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_are_asked_as_by_a_real_server() {
    check("webhooks", "webhook_answers").await;
}

/// The match conditions select a webhook's requests, and their errors refuse requests, as on a real server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn match_conditions_hold_as_on_a_real_server() {
    check("match_conditions", "webhook_answers").await;
}

/// A tenant can't register a webhook: it would choose an address for the server, and see the writes of others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_registers_no_webhook() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::open(Config::new(directory.path())).await.unwrap();
    let service = server.admin_service();
    let ask = async |method: &str, path: &str, body: &Value, user: Option<&str>| {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(user) = user {
            request = request.header("impersonate-user", user);
        }
        let body = Full::new(Bytes::from(body.to_string()));
        service.handle(request.body(body).unwrap()).await.status().as_u16()
    };
    let binding = json!({
        "metadata": {"name": "admins"}, "subjects": [{"kind": "User", "name": "tenant", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": "admin", "apiGroup": "rbac.authorization.k8s.io"},
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    assert_eq!(ask("POST", bindings, &binding, None).await, 201);
    let config_maps = "/api/v1/namespaces/default/configmaps";
    let config_map = json!({"metadata": {"name": "mine"}});
    assert_eq!(ask("POST", config_maps, &config_map, Some("tenant")).await, 201);
    for kind in ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{}s", kind.to_lowercase());
        let configuration =
            json!({"kind": kind, "apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "w"}});
        assert_eq!(ask("POST", &path, &configuration, Some("tenant")).await, 403, "{kind}");
        assert_eq!(ask("POST", &path, &configuration, None).await, 201, "{kind}");
        let one = format!("{path}/w");
        assert_eq!(ask("PUT", &one, &configuration, Some("tenant")).await, 403, "{kind}");
        assert_eq!(ask("DELETE", &one, &json!({}), Some("tenant")).await, 403, "{kind}");
    }
    // A tenant can't write a definition either, as a conversion webhook is a webhook, too.
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = json!({"metadata": {"name": "links.example.com"}});
    assert_eq!(ask("POST", definitions, &definition, Some("tenant")).await, 403);
    server.close().await;
}
