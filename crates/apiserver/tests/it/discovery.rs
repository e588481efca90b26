//! Discovery compared with a real server: the same groups, versions, resources and subresources in the same order,
//! except for the list below.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use tenure_apiserver::{Config, Server};

/// Resources that only the real server has. This server has no further ones, and there is no other difference.
const LACKING: [&str; 26] = [
    "admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
    "admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
    "apiregistration.k8s.io",
    "apiregistration.k8s.io/v1",
    "apiregistration.k8s.io/v1/apiservices",
    "apiregistration.k8s.io/v1/apiservices/status",
    "flowcontrol.apiserver.k8s.io",
    "flowcontrol.apiserver.k8s.io/v1",
    "flowcontrol.apiserver.k8s.io/v1/flowschemas",
    "flowcontrol.apiserver.k8s.io/v1/flowschemas/status",
    "flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
    "flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations/status",
    "networking.k8s.io/v1/ipaddresses",
    "networking.k8s.io/v1/servicecidrs",
    "networking.k8s.io/v1/servicecidrs/status",
    "resource.k8s.io",
    "resource.k8s.io/v1",
    "resource.k8s.io/v1/deviceclasses",
    "resource.k8s.io/v1/resourceclaims",
    "resource.k8s.io/v1/resourceclaims/status",
    "resource.k8s.io/v1/resourceclaimtemplates",
    "resource.k8s.io/v1/resourceslices",
    "v1/componentstatuses",
    "v1/nodes/proxy",
    "v1/pods/proxy",
    "v1/services/proxy",
];

/// Returns the parts of a discovery document, each under its own name, in order.
fn parts(document: &Value) -> Vec<(String, Value)> {
    let list = |value: &Value, field: &str| value[field].as_array().cloned().unwrap_or_default();
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let without = |value: &Value, field: &str| {
        let mut value = value.clone();
        value.as_object_mut().unwrap().remove(field);
        value
    };
    let mut found = Vec::new();
    for group in list(document, "groups") {
        found.push((text(&group, "name"), group));
    }
    for resource in list(document, "resources") {
        let name = format!("{}/{}", text(document, "groupVersion"), text(&resource, "name"));
        found.push((name, resource));
    }
    for group in list(document, "items") {
        let name = text(&group["metadata"], "name");
        found.push((name.clone(), group["metadata"].clone()));
        for version in list(&group, "versions") {
            let name = format!("{name}/{}", text(&version, "version"));
            found.push((name.clone(), without(&version, "resources")));
            for resource in list(&version, "resources") {
                let name = format!("{name}/{}", text(&resource, "resource"));
                found.push((name.clone(), without(&resource, "subresources")));
                for subresource in list(&resource, "subresources") {
                    found.push((format!("{name}/{}", text(&subresource, "subresource")), subresource));
                }
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_is_the_real_servers() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::open(Config::new(directory.path())).await.unwrap();
    let service = server.admin_service();
    let recorded = include_str!("../recorded/discovery.jsonl");
    let mut wrong = Vec::new();
    let mut lacking = std::collections::BTreeSet::new();
    for line in recorded.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let path = case["path"].as_str().unwrap();
        let request = Request::builder()
            .uri(path)
            .header("accept", case["accept"].as_str().unwrap())
            .body(Full::new(Bytes::new()))
            .unwrap();
        let response = service.handle(request).await;
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let got: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let mut want = parts(&case["answer"]);
        let got = parts(&got);
        want.retain(|(name, _)| {
            let found = got.iter().any(|(other, _)| other == name);
            if !found {
                lacking.insert(name.trim_start_matches('/').to_owned());
            }
            found
        });
        for (index, (want, got)) in want.iter().zip(&got).enumerate() {
            if want != got {
                wrong.push(format!(
                    "{path} {index}\n  want {} {}\n  got  {} {}",
                    want.0, want.1, got.0, got.1
                ));
            }
        }
        for (name, _) in got.iter().skip(want.len()) {
            wrong.push(format!("{path}: {name} is more than there is"));
        }
    }
    server.close().await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let lacking: Vec<&str> = lacking.iter().map(String::as_str).collect();
    assert_eq!(lacking, LACKING, "what is lacking has changed: {lacking:#?}");
}
