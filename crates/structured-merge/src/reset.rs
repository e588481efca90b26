//! What an endpoint resets before it stores an object, so that nobody comes to own it there.
//!
//! Refuses to reset anything: the endpoint does, after owners are settled.

use crate::path::{FieldPath, PathElement};
use crate::set::{FieldSet, Node};

/// The fields that an endpoint resets before it stores an object, such as `.status` on a main
/// resource that has a status subresource: nobody who writes there comes to own them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ResetFields {
    /// The endpoint keeps whatever is written.
    #[default]
    None,
    /// These, and everything below them, are reset.
    Excluding(FieldSet),
    /// Only what lies at or below a match of one of these is kept; `None` in a pattern matches any
    /// step (`spec.containers[*].resources` of a Pod's resize).
    Only(Vec<Vec<Option<PathElement>>>),
}

impl ResetFields {
    /// Resets the fields at these paths of plain names, and everything below them.
    ///
    /// ```
    /// # use structured_merge::ResetFields;
    /// let main_resource = ResetFields::fields(&[&["status"]]);
    /// ```
    #[must_use]
    pub fn fields(paths: &[&[&str]]) -> Self {
        let paths: Vec<FieldPath> = paths.iter().map(|path| FieldPath::of_fields(path)).collect();
        Self::Excluding(FieldSet::from_paths(&paths))
    }

    /// What the endpoints of a custom resource that has a status subresource reset: the main resource its
    /// status, the status endpoint all else. Say the status endpoint's for every version that is served
    /// ([`FieldManager::with_reset_fields_of`](crate::FieldManager::with_reset_fields_of)), the main
    /// resource's for its own version only: Kubernetes does so.
    #[must_use]
    pub fn of_custom_resource(subresource: Option<&str>) -> Self {
        match subresource {
            None => Self::fields(&[&["status"]]),
            Some("status") => Self::fields(&[&["metadata"], &["spec"]]),
            Some(_) => Self::None,
        }
    }

    /// What the endpoints of a built-in kind that has a status subresource reset in kube-apiserver 1.36;
    /// the same in all of a kind's versions.
    #[must_use]
    pub fn of_builtin(group: &str, kind: &str, subresource: Option<&str>) -> Self {
        let signing_request = group == "certificates.k8s.io" && kind == "CertificateSigningRequest";
        match subresource {
            None if signing_request => Self::fields(&[&["spec"], &["status"]]),
            None => Self::fields(&[&["status"]]),
            Some("status") if signing_request => Self::fields(&[&["spec"], &["status", "conditions"]]),
            Some("approval") if signing_request => Self::fields(&[&["spec"], &["status", "certificate"]]),
            Some("status") => match (group, kind) {
                ("apps", "Deployment") => Self::fields(&[&["spec"], &["metadata", "labels"]]),
                ("", "Pod") => Self::fields(&[
                    &["spec"],
                    &["metadata", "deletionTimestamp"],
                    &["metadata", "ownerReferences"],
                ]),
                ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy")
                | ("apiregistration.k8s.io", "APIService")
                | ("flowcontrol.apiserver.k8s.io", "FlowSchema" | "PriorityLevelConfiguration")
                | ("networking.k8s.io", "ServiceCIDR")
                | ("resource.k8s.io", "ResourceClaim")
                | ("storage.k8s.io", "VolumeAttachment") => Self::fields(&[&["metadata"], &["spec"]]),
                _ => Self::fields(&[&["spec"]]),
            },
            Some("finalize") if (group, kind) == ("", "Namespace") => Self::fields(&[&["status"]]),
            Some("ephemeralcontainers") => Self::only(&[&["spec", "ephemeralContainers"]]),
            Some("resize") => Self::only(&[
                &["spec", "containers", "*", "resources"],
                &["spec", "containers", "*", "resizePolicy"],
                &["spec", "initContainers", "*", "resources"],
                &["spec", "initContainers", "*", "resizePolicy"],
            ]),
            Some(_) => Self::None,
        }
    }

    /// Keeps what matches one of these paths of names, in which `*` is any step.
    fn only(paths: &[&[&str]]) -> Self {
        let step = |name: &&str| (*name != "*").then(|| PathElement::field(name));
        Self::Only(paths.iter().map(|path| path.iter().map(step).collect()).collect())
    }

    /// The part of `set` that can be owned through the endpoint.
    pub(crate) fn filter(&self, set: FieldSet) -> FieldSet {
        match self {
            Self::None => set,
            Self::Excluding(reset) => set.recursive_difference(reset),
            Self::Only(patterns) => {
                let patterns: Vec<&[Option<PathElement>]> = patterns.iter().map(Vec::as_slice).collect();
                keep_matches(&set, &patterns)
            }
        }
    }
}

fn keep_matches(set: &FieldSet, patterns: &[&[Option<PathElement>]]) -> FieldSet {
    if patterns.iter().any(|pattern| pattern.is_empty()) {
        return set.clone();
    }
    let mut nodes = Vec::new();
    for node in &set.nodes {
        let below: Vec<&[Option<PathElement>]> = patterns
            .iter()
            .filter_map(|pattern| pattern.split_first())
            .filter(|(first, _)| first.as_ref().is_none_or(|element| *element == node.element))
            .map(|(_, rest)| rest)
            .collect();
        if !below.is_empty() {
            let kept = Node {
                element: node.element.clone(),
                member: node.member,
                children: keep_matches(&node.children, &below),
            };
            if !kept.is_vacant() {
                nodes.push(kept);
            }
        }
    }
    FieldSet { nodes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(reset: &ResetFields, fields: &str, left: &str) {
        let set: FieldSet = serde_json::from_str(fields).unwrap();
        assert_eq!(reset.filter(set).to_fields_v1_text(), left);
    }

    #[test]
    fn keeps_what_is_not_reset() {
        let fields = r#"{"f:metadata":{"f:annotations":{"f:b":{}},"f:labels":{"f:a":{}}},"f:spec":{".":{},"f:x":{}},"f:status":{"f:y":{}}}"#;
        let status_only = r#"{"f:status":{"f:y":{}}}"#;
        check(&ResetFields::None, fields, fields);
        check(
            &ResetFields::of_builtin("apps", "Deployment", Some("status")),
            fields,
            r#"{"f:metadata":{"f:annotations":{"f:b":{}}},"f:status":{"f:y":{}}}"#,
        );
        check(&ResetFields::of_custom_resource(Some("status")), fields, status_only);
    }

    #[test]
    fn keeps_only_what_matches() {
        check(
            &ResetFields::of_builtin("", "Pod", Some("resize")),
            r#"{"f:metadata":{"f:labels":{}},"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:image":{},"f:resources":{".":{},"f:limits":{}}}}}}"#,
            r#"{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:resources":{".":{},"f:limits":{}}}}}}"#,
        );
    }
}
