//! Kinds with a conversion webhook: objects that are written in one version are read, owned and watched in another.
//! Requests without a conversion succeed while the webhook is down.

use serde_json::{Value, json};
use tenure_testkit::{SOON, Webhook, eventually};

use crate::place::{Place, owners};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A kind that is stored as v1 and served as v1 and v2.
struct Links {
    place: Place,
    group: String,
    webhook: Webhook,
}

impl Links {
    /// Returns `None` if the API server could not call the webhook.
    async fn set(namespace: &str) -> Option<Self> {
        let place = Place::set(namespace).await;
        if !place.can_be_called_back() {
            return None;
        }
        let failed = json!({"result": {"status": "Failed", "message": "out of order"}});
        let answers = json!({"/convert": {"convert": {}}, "/failed": {"convert": {"review": {"response": failed}}}});
        let links = Self {
            group: format!("{namespace}.example.com"),
            webhook: Webhook::start(answers).await.unwrap(),
            place,
        };
        links.remove().await;
        let mut definition = links.definition("/convert");
        definition["metadata"] = json!({"name": links.name()});
        links.place.create(DEFINITIONS, &definition).await.unwrap();
        for version in ["v1", "v2"] {
            let path = links.path(version, "");
            eventually(SOON, || links.place.get(&path)).await.unwrap();
        }
        Some(links)
    }

    fn name(&self) -> String {
        format!("links.{}", self.group)
    }

    fn path(&self, version: &str, name: &str) -> String {
        let path = self.place.path(&format!("apis/{}/{version}", self.group), "links");
        if name.is_empty() {
            path
        } else {
            format!("{path}/{name}")
        }
    }

    fn definition(&self, path: &str) -> Value {
        let text = json!({"type": "string"});
        let version = |name: &str, fields: Value| {
            json!({
                "name": name, "served": true, "storage": name == "v1",
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}},
            })
        };
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "spec": {
                "group": self.group, "scope": "Namespaced",
                "names": {"plural": "links", "singular": "link", "kind": "Link", "listKind": "LinkList"},
                "versions": [
                    version("v1", json!({"hostPort": text, "note": text})),
                    version("v2", json!({"host": text, "port": text, "note": text})),
                ],
                "conversion": {"strategy": "Webhook", "webhook": {
                    "conversionReviewVersions": ["v1"], "clientConfig": self.webhook.client_config(path),
                }},
            },
        })
    }

    fn link(&self, version: &str, name: &str, spec: Value) -> Value {
        json!({"apiVersion": format!("{}/{version}", self.group), "kind": "Link", "metadata": {"name": name}, "spec": spec})
    }

    /// Points the definition to another path of the webhook, and waits until this takes effect on a served object.
    async fn convert_by(&self, path: &str, works: bool) {
        let definition = format!("{DEFINITIONS}/{}", self.name());
        self.place.merge(&definition, &self.definition(path)).await.unwrap();
        let one = self.path("v2", "a");
        let looked = eventually(SOON, || async {
            match self.place.get(&one).await {
                Ok(_) if works => Ok(()),
                Err(_) if !works => Ok(()),
                other => Err(other),
            }
        });
        looked.await.unwrap();
    }

    async fn remove(&self) {
        let definition = format!("{DEFINITIONS}/{}", self.name());
        if self.place.delete(&definition, &Value::Null).await.is_ok() {
            self.place.wait_until(&definition, |found| found.is_none()).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_converted_between_versions() {
    let Some(links) = Links::set("conversion-a").await else {
        return;
    };
    let first = links.link("v1", "a", json!({"hostPort": "one:1"}));
    links.place.create(&links.path("v1", ""), &first).await.unwrap();
    let second = links.link("v2", "b", json!({"host": "two", "port": "2"}));
    let answer = links.place.create(&links.path("v2", ""), &second).await.unwrap();
    assert_eq!(answer["spec"], json!({"host": "two", "port": "2"}));
    let read = links.place.get(&links.path("v2", "a")).await.unwrap();
    assert_eq!(read["spec"], json!({"host": "one", "port": "1"}));
    let read = links.place.get(&links.path("v1", "b")).await.unwrap();
    assert_eq!(read["spec"], json!({"hostPort": "two:2"}));
    let changes = json!({"spec": {"port": "11"}});
    links.place.merge(&links.path("v2", "a"), &changes).await.unwrap();
    let list = links.place.get(&links.path("v1", "")).await.unwrap();
    let specs: Vec<&Value> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["spec"]["hostPort"])
        .collect();
    assert_eq!(specs, ["one:11", "two:2"]);
    links.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_field_has_its_owner_in_every_version() {
    let Some(links) = Links::set("conversion-b").await else {
        return;
    };
    let (v1, v2) = (links.path("v1", "a"), links.path("v2", "a"));
    let applied = links.link("v1", "a", json!({"hostPort": "one:1"}));
    links.place.apply(&v1, "first", false, &applied).await.unwrap();
    let other = links.link("v2", "a", json!({"host": "two", "note": "mine"}));
    let refused = links.place.apply(&v2, "second", false, &other).await.unwrap_err();
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (
            409,
            "Apply failed with 1 conflict: conflict with \"first\": .spec.hostPort"
        )
    );
    let note = links.link("v2", "a", json!({"note": "mine"}));
    links.place.apply(&v2, "second", false, &note).await.unwrap();
    links.place.apply(&v2, "second", true, &other).await.unwrap();
    let object = links.place.get(&v1).await.unwrap();
    assert_eq!(object["spec"], json!({"hostPort": "two:1", "note": "mine"}));
    assert_eq!(owners(&object, &["f:spec", "f:host"]), ["second"]);
    assert!(
        owners(&object, &["f:spec", "f:hostPort"]).is_empty(),
        "it was taken away in the other version"
    );
    // Fields that the owner gives up are removed, in the owner's own version; the webhook defines the other version's
    // fields.
    let object = links.place.apply(&v2, "second", false, &note).await.unwrap();
    assert_eq!(object["spec"], json!({"host": "", "port": "1", "note": "mine"}));
    links.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_without_conversion_succeed_without_webhook() {
    let Some(links) = Links::set("conversion-c").await else {
        return;
    };
    let (v1, v2) = (links.path("v1", "a"), links.path("v2", "a"));
    let first = links.link("v1", "a", json!({"hostPort": "one:1"}));
    links.place.create(&links.path("v1", ""), &first).await.unwrap();
    links.convert_by("/failed", false).await;
    let refused = links.place.get(&v2).await.unwrap_err();
    let message = format!(
        "conversion webhook for {}/v1, Kind=Link failed: out of order",
        links.group
    );
    assert_eq!((refused.code, refused.message.as_str()), (500, message.as_str()));
    let changes = json!({"spec": {"hostPort": "two:2"}});
    assert_eq!(links.place.merge(&v2, &changes).await.unwrap_err().code, 500);
    assert_eq!(links.place.delete(&v2, &Value::Null).await.unwrap_err().code, 500);
    links.place.merge(&v1, &changes).await.unwrap();
    links.convert_by("/convert", true).await;
    assert_eq!(links.place.get(&v2).await.unwrap()["spec"]["host"], "two");
    links.convert_by("/failed", false).await;
    links.place.delete(&v1, &Value::Null).await.unwrap();
    let last = links.link("v1", "b", json!({"hostPort": "one:1"}));
    links.place.create(&links.path("v1", ""), &last).await.unwrap();
    // The definition is deleted, and its objects with it.
    links.remove().await;
}
