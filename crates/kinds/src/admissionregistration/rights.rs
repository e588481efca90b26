//! Read access to the parameters of policies, which the server reads for their authors. A policy's author must be allowed to read all
//! objects of the parameter kind. A binding's author must be allowed to read the objects that the binding refers to.

use serde_json::Value;
use tenure_auth::authorization::Attributes;
use tenure_auth::identity::{MASTERS, UserInfo};

use crate::kind::Admitted;
use crate::schema::FieldError;

const GROUP: &str = "admissionregistration.k8s.io";

/// Returns an error if a policy's author may not read the parameters of the policy.
pub(super) fn check_policy(admitted: &Admitted<'_>, policy: &Value) -> Vec<FieldError> {
    if !needs_rights_check(admitted) {
        return Vec::new();
    }
    let kind = |object: &Value| object.pointer("/spec/paramKind").cloned();
    let same = admitted.old.is_some_and(|old| kind(old) == kind(policy));
    let refusal = kind(policy)
        .filter(|_| !same)
        .and_then(|kind| refuse_policy(admitted, &kind));
    to_faults("spec.paramKind", refusal)
}

/// Returns an error if a binding's author may not read the parameters of the binding.
pub(super) fn check_binding(admitted: &Admitted<'_>, binding: &Value) -> Vec<FieldError> {
    if !needs_rights_check(admitted) {
        return Vec::new();
    }
    let reference = binding.pointer("/spec/paramRef");
    let refusal = reference.and_then(|reference| refuse_binding(admitted, binding, reference));
    to_faults("spec.paramRef", refusal)
}

fn needs_rights_check(admitted: &Admitted<'_>) -> bool {
    admitted.is_whole() && !admitted.request.user.in_group(MASTERS)
}

fn to_faults(field: &str, refusal: Option<String>) -> Vec<FieldError> {
    let faults = refusal.map(|why| FieldError::forbidden(field, why));
    faults.into_iter().collect()
}

fn get_text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Group, version and resource of the parameters, as far as they are known.
struct ParamResource {
    group: String,
    version: String,
    resource: String,
    resolved: bool,
}

impl ParamResource {
    fn from_kind(admitted: &Admitted<'_>, kind: &Value) -> Self {
        let api_version = get_text(kind, "apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let found = (admitted.plural_of)(group, version, get_text(kind, "kind"));
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            resolved: found.is_some(),
            resource: found.unwrap_or_else(|| "*".to_owned()),
        }
    }

    fn anything() -> Self {
        Self {
            group: "*".to_owned(),
            version: "*".to_owned(),
            resource: "*".to_owned(),
            resolved: true,
        }
    }

    fn allows(&self, admitted: &Admitted<'_>, verb: &str, namespace: &str, name: &str) -> bool {
        let attributes = Attributes::resource(verb, &self.group, &self.version, &self.resource)
            .in_namespace(namespace)
            .with_name(name);
        admitted.rights.authorize(admitted.request.user, &attributes).allowed
    }
}

fn refuse_policy(admitted: &Admitted<'_>, kind: &Value) -> Option<String> {
    if ParamResource::from_kind(admitted, kind).allows(admitted, "get", "*", "*") {
        return None;
    }
    Some(format!(
        "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
        format_user(admitted.request.user),
        get_text(kind, "kind"),
        get_text(kind, "apiVersion"),
    ))
}

fn refuse_binding(admitted: &Admitted<'_>, binding: &Value, reference: &Value) -> Option<String> {
    let policy_name = binding
        .pointer("/spec/policyName")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let policy = admitted
        .request
        .objects
        .get(GROUP, "validatingadmissionpolicies", None, policy_name);
    let kind = policy.as_ref().and_then(|policy| policy.pointer("/spec/paramKind"));
    let wanted = kind.map_or_else(ParamResource::anything, |kind| ParamResource::from_kind(admitted, kind));
    let name = get_text(reference, "name");
    let verb = if name.is_empty() { "list" } else { "get" };
    if wanted.allows(admitted, verb, get_text(reference, "namespace"), name) {
        return None;
    }
    let user = format_user(admitted.request.user);
    let everything = format!(
        "to determine minimum required permissions and user {user} does not have \"{verb}\" permission for all groups, \
         versions and resources"
    );
    Some(match (policy.is_some(), kind.filter(|_| !wanted.resolved)) {
        (false, _) => format!("unable to get policy {policy_name} {everything}"),
        (true, Some(kind)) => format!(
            "unable to resolve paramKind &{{{} {}}} {everything}",
            get_text(kind, "apiVersion"),
            get_text(kind, "kind"),
        ),
        (true, None) => {
            format!("user {user} does not have \"{verb}\" permission on the object referenced by paramRef")
        }
    })
}

/// Returns a user as Go prints one.
fn format_user(user: &UserInfo) -> String {
    let extra: Vec<String> = user
        .extra
        .iter()
        .map(|(key, values)| format!("{key}:[{}]", values.join(" ")))
        .collect();
    format!(
        "&{{{} {} [{}] map[{}]}}",
        user.name,
        user.uid,
        user.groups.join(" "),
        extra.join(" ")
    )
}
