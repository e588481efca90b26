//! The rights of an identity on single objects by name, from a SelfSubjectRulesReview: an access review without a name denies such rights.
//!
//! The review lists the rules of the bindings of one namespace and of the cluster. A listed name is not yet a right: the caller must send an access review for this
//! name.
//!
//! Source: SelfSubjectRulesReview in
//! [authorization.k8s.io/v1](https://kubernetes.io/docs/reference/kubernetes-api/authorization-resources/self-subject-rules-review-v1/).
//! An authorizer that can't list its rules (a webhook) reports no names.

use std::collections::BTreeSet;

use serde_json::Value;
use tenure_api::ObjectView;

/// Lists the names for which a review has this verb on a kind, by its group and plural name.
#[must_use]
pub fn list_names(review: &Value, (group, plural): (&str, &str), verb: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for rule in ObjectView::new(review).list_views("/status/resourceRules") {
        let has = |path: &str, wanted: &str| rule.list_texts(path).any(|text| text == wanted || text == "*");
        if has("/apiGroups", group) && has("/resources", plural) && has("/verbs", verb) {
            let given = rule.list_texts("/resourceNames").filter(|name| !name.is_empty());
            names.extend(given.map(str::to_owned));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_with_verb_on_kind_are_listed() {
        let rule = |group: &str, resource: &str, verbs: &[&str], names: &[&str]| json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs, "resourceNames": names });
        let review = json!({ "status": { "resourceRules": [
            rule("capsule.clastix.io", "tenants", &["get"], &["blue", "red"]),
            rule("capsule.clastix.io", "tenants", &["own"], &["green"]),
            rule("capsule.clastix.io", "tenants/status", &["get"], &["grey"]),
            rule("", "tenants", &["get"], &["core"]),
            rule("*", "*", &["*"], &["blue", "all", ""]),
            { "verbs": ["get"], "apiGroups": ["capsule.clastix.io"], "resources": ["tenants"] },
            "broken",
        ] } });
        let tenants = ("capsule.clastix.io", "tenants");
        let names: Vec<String> = list_names(&review, tenants, "get").into_iter().collect();
        assert_eq!(names, ["all", "blue", "red"]);
        assert_eq!(list_names(&review, tenants, "own").len(), 3);
        assert!(list_names(&Value::Null, tenants, "get").is_empty());
    }
}
