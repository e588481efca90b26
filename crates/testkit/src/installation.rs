//! Installs Tenure's objects in an existing cluster that many tests of a process use one after another. Objects that
//! are as an earlier test applied them are not applied again: definitions and policies are large, and a real API
//! server computes for seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use kube::api::ListParams;
use serde_json::Value;

use crate::admin::{Admin, AdminError};

/// An object's `apiVersion`, kind, namespace and name.
type Name = [String; 4];

/// An object's uid and version.
type State = (Option<String>, Option<String>);

/// The state of each object after this process applied it.
static APPLIED: Mutex<BTreeMap<Name, State>> = Mutex::new(BTreeMap::new());

/// Applies the objects that are missing, or that changed since this process applied them.
///
/// # Errors
/// [`AdminError`].
pub(crate) async fn install_objects(admin: &Admin, objects: Vec<Value>) -> Result<(), AdminError> {
    let applied = || APPLIED.lock().unwrap_or_else(PoisonError::into_inner);
    let known = applied().clone();
    let names = objects.iter().map(name_of_object);
    let kinds: BTreeSet<[String; 2]> = names.map(|[version, kind, ..]| [version, kind]).collect();
    let mut found = BTreeMap::new();
    if !known.is_empty() {
        for [api_version, kind] in &kinds {
            found.extend(list_states(admin, api_version, kind).await?);
        }
    }
    for object in objects {
        let name = name_of_object(&object);
        if known.contains_key(&name) && known.get(&name) == found.get(&name) {
            continue;
        }
        let object = admin.apply(object).await?;
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let state = (text("/metadata/uid"), text("/metadata/resourceVersion"));
        applied().insert(name, state);
    }
    Ok(())
}

fn name_of_object(object: &Value) -> Name {
    ["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name"].map(|pointer| {
        let text = object.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    })
}

/// Reads the state of all objects of a kind, of which the cluster may have none.
async fn list_states(admin: &Admin, api_version: &str, kind: &str) -> Result<Vec<(Name, State)>, AdminError> {
    let listed = match admin.api(api_version, kind, "").await {
        Ok(api) => api.list_metadata(&ListParams::default()).await,
        Err(error) if error.is_unserved() => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let states = listed?.items.into_iter().map(|item| {
        let metadata = item.metadata;
        let name = [
            api_version.to_owned(),
            kind.to_owned(),
            metadata.namespace.unwrap_or_default(),
            metadata.name.unwrap_or_default(),
        ];
        (name, (metadata.uid, metadata.resource_version))
    });
    Ok(states.collect())
}
