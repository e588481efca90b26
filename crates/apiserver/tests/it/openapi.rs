//! The OpenAPI v2 document: it covers all served resources, has both formats, and changes with the served resources.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use serde_json::Value;
use tenure_apiserver::{ApiService, Body};

use crate::cluster::{Cluster, definition};

const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

async fn ask(service: &ApiService, accept: &str, known: &str) -> Response<Body> {
    let request = Request::get("/openapi/v2")
        .header("accept", accept)
        .header("if-none-match", known);
    service.handle(request.body(Full::new(Bytes::new())).unwrap()).await
}

async fn body(response: Response<Body>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

/// Returns the fields of a message that are messages or texts, with their numbers.
fn fields(mut message: &[u8]) -> Vec<(u32, &[u8])> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let (number, wire) = decode_key(&mut message).unwrap();
        if wire == WireType::LengthDelimited {
            let length = usize::try_from(decode_varint(&mut message).unwrap()).unwrap();
            let (value, rest) = message.split_at(length);
            found.push((number, value));
            message = rest;
        } else {
            skip_field(wire, number, &mut message, DecodeContext::default()).unwrap();
        }
    }
    found
}

/// Returns the names in a list of named values.
fn names(document: &[u8], field: u32, list: u32) -> BTreeSet<String> {
    let (_, whole) = fields(document)
        .into_iter()
        .find(|(number, _)| *number == field)
        .unwrap();
    fields(whole)
        .into_iter()
        .filter(|(number, _)| *number == list)
        .map(|(_, named)| {
            let (_, name) = fields(named).into_iter().find(|(number, _)| *number == 1).unwrap();
            String::from_utf8(name.to_vec()).unwrap()
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn version_2_is_made_of_everything_that_is_served() {
    let cluster = Cluster::open(false).await;
    let service = cluster.server.admin_service();
    let first = ask(&service, "application/json", "").await;
    assert_eq!(first.status(), StatusCode::OK);
    let tag = first.headers()["etag"].to_str().unwrap().to_owned();
    let document: Value = serde_json::from_slice(&body(first).await).unwrap();
    assert_eq!(document["swagger"], "2.0");
    let deployment = &document["definitions"]["io.k8s.api.apps.v1.Deployment"];
    assert_eq!(
        deployment["properties"]["spec"]["$ref"],
        "#/definitions/io.k8s.api.apps.v1.DeploymentSpec"
    );
    let kinds = &document["definitions"]["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"];
    assert!(kinds["x-kubernetes-group-version-kind"].as_array().unwrap().len() > 10);
    let operation = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(operation["parameters"][0]["in"], "body");
    assert!(!document.to_string().contains("#/components/"));
    assert_eq!(
        ask(&service, "application/json", &tag).await.status(),
        StatusCode::NOT_MODIFIED
    );
    assert_eq!(
        ask(&service, "text/html", "").await.status(),
        StatusCode::NOT_ACCEPTABLE
    );

    let binary = ask(&service, PROTOBUF, "").await;
    assert_eq!(
        binary.headers()["content-type"],
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    );
    let binary = body(binary).await;
    let keys = |key: &str| -> BTreeSet<String> { document[key].as_object().unwrap().keys().cloned().collect() };
    assert_eq!(names(&binary, 8, 2), keys("paths"));
    assert_eq!(names(&binary, 9, 1), keys("definitions"));

    let widgets = definition("widgets", "Widget");
    let group = widgets["spec"]["group"].as_str().unwrap().to_owned();
    cluster
        .create("apiextensions.k8s.io", "customresourcedefinitions", None, widgets)
        .await;
    let second = ask(&service, "application/json", &tag).await;
    assert_eq!(second.status(), StatusCode::OK);
    let document: Value = serde_json::from_slice(&body(second).await).unwrap();
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.keys().any(|path| path.starts_with(&format!("/apis/{group}/"))));
    cluster.server.close().await;
}
