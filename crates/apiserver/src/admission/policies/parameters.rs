//! The parameters of a policy: their kind, and the objects to which a binding refers.

use std::sync::Arc;

use serde_json::Value;
use tenure_auth::identity::ObjectLookup;

use super::policy::{Binding, Policy};
use crate::catalog::Resource;
use crate::contents::Contents;

/// Returns the resource of a policy's parameters; `None` if the policy has none.
pub(super) fn find_parameter_resource(contents: &Contents, policy: &Policy) -> Result<Option<Arc<Resource>>, String> {
    let Some((api_version, kind)) = &policy.param_kind else {
        return Ok(None);
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    match contents.catalog().find_kind(group, version, kind) {
        Some(resource) => Ok(Some(resource.clone())),
        None => Err(format!(
            "failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'"
        )),
    }
}

/// Returns the parameters for a request in this namespace by a binding. The policy is evaluated once for each, and
/// once without parameters if the policy or the binding has none.
pub(super) async fn collect_parameters(
    contents: &Contents,
    kind: Option<&Resource>,
    binding: &Binding,
    namespace: &str,
) -> Result<Vec<Option<Value>>, String> {
    let (Some(kind), Some(reference)) = (kind, &binding.params) else {
        return Ok(vec![None]);
    };
    let namespace = match (kind.namespaced, reference.namespace.as_str(), namespace) {
        (true, "", "") => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".to_owned(),
            );
        }
        (true, "", own) => Some(own),
        (true, given, _) => Some(given),
        (false, "", _) => None,
        (false, ..) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
    };
    let view = contents.view();
    let (group, plural) = &kind.stored_as;
    let found: Vec<Value> = match &reference.selector {
        None => {
            let found = view.get(group, plural, namespace, &reference.name);
            found.map(|found| Value::clone(&found)).into_iter().collect()
        }
        Some(selector) => {
            let all = view.list(group, plural, namespace).into_iter();
            all.filter(|object| selector.matches(object)).collect()
        }
    };
    if found.is_empty() && reference.denies_if_missing {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    let mut parameters = Vec::with_capacity(found.len());
    for object in found {
        let object = contents.present_object(object, kind).await;
        parameters.push(Some(object.map_err(|error| error.message)?));
    }
    Ok(parameters)
}
