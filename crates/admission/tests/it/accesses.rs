//! The kinds of access to hosts in the table. A case has only the checked fields of a spec, and a server demands all required fields.

use http::Method;
use serde_json::{Value, json};
use tenure_testkit::{SOON, eventually};

use crate::laying::merge;
use crate::stage::{Answer, Stage};
use crate::table::FLUX;

/// The kinds whose status is written.
pub(crate) const KINDS: [&str; 5] = [
    "FluxAccess",
    "FluxAccessRequest",
    "FluxAccessTarget",
    "FluxAccessGrant",
    "FluxAccessStandingGrant",
];

pub(crate) fn plural_of(kind: &str) -> &'static str {
    let found = FLUX.iter().find(|(known, _, _)| *known == kind);
    found.map_or("", |(_, _, plural)| plural)
}

/// Adds the required fields of a kind to a spec of the table.
pub(crate) fn complete(kind: &str, object: &mut Value) {
    let hash = format!("sha256:{}", "0".repeat(64));
    let base = match kind {
        "FluxAccess" => json!({ "provider": "work" }),
        "FluxAccessRequest" => json!({
            "provider": "work", "target": { "scope": "project", "id": 42, "path": "group-1/a" }, "role": "read_repository", "rotate": "30d",
            "secretName": "git", "namespaces": ["team-a"], "askedIn": { "kind": "Agent", "name": "prod" }, "requestedBy": "agent:work/prod",
            "clusterUid": "c0ffee00-1", "specHash": hash
        }),
        "FluxAccessTarget" => json!({ "provider": "work", "scope": "project", "id": 42 }),
        "FluxAccessGrant" => {
            json!({ "requestRef": { "name": "r", "uid": "u" }, "specHash": hash, "decision": "Approved" })
        }
        "FluxAccessStandingGrant" => {
            json!({ "roles": ["read_repository"], "namespaces": ["team-a"], "maxRotate": "90d" })
        }
        _ => return,
    };
    let mut spec = base;
    merge(&mut spec, &object["spec"]);
    object["spec"] = spec;
}

/// Returns the user that must create the object, so that its field for the author is true.
fn find_author<'a>(kind: &str, object: &'a Value) -> Option<&'a str> {
    let author = match kind {
        "FluxAccessGrant" | "FluxAccessStandingGrant" => &object["spec"]["approvedBy"],
        "FluxAccess" => &object["metadata"]["annotations"]["tenure.dev/requested-by"],
        _ => return None,
    };
    author.as_str()
}

/// Returns the writer of an order on a request.
fn find_orderer(object: &Value) -> Option<&str> {
    let annotations = object["metadata"]["annotations"].as_object()?;
    let mut values = annotations.values().filter_map(Value::as_str);
    values.find_map(|value| value.strip_prefix("leak/by: ")?.lines().next())
}

/// Checks whether an object names the author of itself or of a part.
pub(crate) fn has_author(kind: &str, object: &Value) -> bool {
    find_author(kind, object).is_some() || (kind == "FluxAccessRequest" && find_orderer(object).is_some())
}

impl Stage {
    /// Creates such an object. The named author writes each part.
    pub(crate) async fn make_access(&self, kind: &str, collection: &str, mut object: Value) -> Value {
        object["metadata"].as_object_mut().unwrap().remove("managedFields");
        if let Some(author) = find_author(kind, &object) {
            return self.send_as_user(author, (Method::POST, collection), &object).await;
        }
        let orderer = find_orderer(&object).unwrap().to_owned();
        let orders = object["metadata"]["annotations"].take();
        object["metadata"].as_object_mut().unwrap().remove("annotations");
        let mut made = self.cluster.admin.create(object).await.unwrap();
        made["metadata"]["annotations"] = orders;
        let path = format!("{collection}/{}", made["metadata"]["name"].as_str().unwrap());
        self.send_as_user(&orderer, (Method::PUT, &path), &made).await
    }

    /// Sends a request as a user and retries, since a server that follows policies learns of rights
    /// a moment later.
    async fn send_as_user(&self, user: &str, (method, path): (Method, &str), object: &Value) -> Value {
        let actor = self.table.actors.values().find(|actor| actor.user == user).unwrap();
        let made = eventually(SOON, || async {
            match self.send(actor, method.clone(), path, object).await {
                Answer::Allowed(made, _) => Ok(made),
                refused => Err(refused),
            }
        });
        made.await.unwrap()
    }
}
