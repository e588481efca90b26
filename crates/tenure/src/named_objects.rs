//! Finds objects of a kind that a user may get without the right to list: the names that RBAC gives the user, by SelfSubjectRulesReview. So owners see their own
//! Tenants. The number of reads is bounded, and only these names are tried.

use serde_json::{Value, json};
use tenure_planner::named_rights::list_names;

use crate::failure::Failure;
use crate::object_watch::read_request;
use crate::output;
use crate::resources::{Resource, write_collection_path};

/// The largest number of objects that are read one by one.
const MOST: usize = 64;
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";

/// Reads the objects that the user may read by name, as a list or a table as `accept` says; `None` without any.
pub(crate) async fn collect_objects(
    client: &kube::Client,
    resource: &Resource,
    accept: &str,
) -> Result<Option<Value>, Failure> {
    // Cluster-wide rights are in the review of every namespace.
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": { "namespace": "default" }
    });
    let request = http::Request::post(REVIEWS)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(review.to_string().into_bytes())
        .map_err(|error| Failure::internal(error.to_string()))?;
    let Ok(review) = client.request::<Value>(request).await else {
        return Ok(None);
    };
    let names = list_names(&review, (&resource.group, &resource.plural), "get");
    let mut found = Vec::new();
    for name in names.iter().take(MOST) {
        let path = write_collection_path(resource, name);
        match client.request::<Value>(read_request(&path, accept)?).await {
            Ok(answer) => found.push(answer),
            // The object is gone, or the right was removed.
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if names.len() > MOST {
        output::print_note(format!(
            "{} of {} {} are shown: name the others",
            MOST,
            names.len(),
            resource.full_name()
        ));
    }
    Ok(merge_answers(found))
}

/// Merges several objects into one list, or several tables into one.
fn merge_answers(answers: Vec<Value>) -> Option<Value> {
    let mut merged: Option<Value> = None;
    let mut items = Vec::new();
    for answer in answers {
        let Some(rows) = answer.get("rows").and_then(Value::as_array).cloned() else {
            items.push(answer);
            continue;
        };
        match merged
            .as_mut()
            .and_then(|table| table.get_mut("rows"))
            .and_then(Value::as_array_mut)
        {
            Some(all) => all.extend(rows),
            None => merged = Some(answer),
        }
    }
    merged.or_else(|| (!items.is_empty()).then(|| json!({ "items": items })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_are_one_table_or_one_list() {
        let table = |name: &str| json!({ "kind": "Table", "columnDefinitions": [{ "name": "Name" }], "rows": [{ "cells": [name] }] });
        let merged = merge_answers(vec![table("blue"), table("red")]);
        assert_eq!(
            merged,
            Some(
                json!({ "kind": "Table", "columnDefinitions": [{ "name": "Name" }], "rows": [{ "cells": ["blue"] }, { "cells": ["red"] }] })
            )
        );
        assert_eq!(
            merge_answers(vec![json!({ "kind": "Tenant" })]),
            Some(json!({ "items": [{ "kind": "Tenant" }] }))
        );
        assert_eq!(merge_answers(Vec::new()), None);
    }
}
