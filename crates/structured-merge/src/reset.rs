//! The fields that an endpoint resets before it stores an object, so that no manager owns them by a write there. The endpoint itself resets
//! them, after the owners are computed.

use crate::path::FieldPath;
use crate::set::FieldSet;

/// The fields that an endpoint resets before it stores an object, such as `.status` on a main resource with a status subresource. A writer
/// through that endpoint gets no ownership of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ResetFields {
    /// The endpoint stores every field as written.
    #[default]
    None,
    /// The endpoint resets these fields and everything below them.
    Excluding(FieldSet),
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

    /// Returns the fields that the endpoints of a custom resource with a status subresource reset. The main endpoint resets the status, and
    /// the status endpoint resets metadata and spec.
    ///
    /// Like Kubernetes, set the fields of the status endpoint for every served version
    /// ([`FieldManager::with_reset_fields_of`](crate::FieldManager::with_reset_fields_of)), and the fields of the main endpoint only for
    /// its own version.
    #[must_use]
    pub fn of_custom_resource(subresource: Option<&str>) -> Self {
        match subresource {
            None => Self::fields(&[&["status"]]),
            Some("status") => Self::fields(&[&["metadata"], &["spec"]]),
            Some(_) => Self::None,
        }
    }

    /// Returns the fields that the endpoints of a built-in kind with a status subresource reset in kube-apiserver 1.36. All versions of a
    /// kind have the same fields.
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
            // The other endpoints of a Pod (resize, debugging containers) also restore fields, but the writer owns these fields
            // nevertheless.
            Some(_) => Self::None,
        }
    }

    /// Returns the part of `set` that can be owned through the endpoint.
    pub(crate) fn filter(&self, set: FieldSet) -> FieldSet {
        match self {
            Self::None => set,
            Self::Excluding(reset) => set.recursive_difference(reset),
        }
    }
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
}
