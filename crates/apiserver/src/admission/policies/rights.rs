//! Who makes the server read parameters must be allowed to read them: a policy's author all objects of its kind, a
//! binding's author those that it refers to.

use serde_json::Value;
use tenure_access::authorization::{Attributes, Authorizer as _};
use tenure_access::identity::{Lookup, MASTERS, UserInfo};

use super::super::matching::GROUP;
use crate::contents::Contents;
use crate::http::FieldError;
use crate::operation::Operation;

/// What is wrong with a policy or a binding that is about to be stored by who asks for it. It must be valid otherwise.
pub(crate) fn check(contents: &Contents, op: &Operation, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let resource = &op.resource;
    if resource.group != GROUP || op.subresource.is_some() || op.user.in_group(MASTERS) {
        return Vec::new();
    }
    let (field, refusal) = match resource.plural.as_str() {
        "validatingadmissionpolicies" => {
            let kind = |object: &Value| object.pointer("/spec/paramKind").cloned();
            let same = old.is_some_and(|old| kind(old) == kind(object));
            let refusal = kind(object)
                .filter(|_| !same)
                .map(|kind| of_policy(contents, &op.user, &kind));
            ("spec.paramKind", refusal)
        }
        "validatingadmissionpolicybindings" => {
            let reference = object.pointer("/spec/paramRef");
            let refusal = reference.map(|reference| of_binding(contents, &op.user, object, reference));
            ("spec.paramRef", refusal)
        }
        _ => return Vec::new(),
    };
    refusal
        .flatten()
        .map(|why| FieldError::forbidden(field, why))
        .into_iter()
        .collect()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Group, version and resource of the parameters, as far as they are known.
struct Wanted {
    group: String,
    version: String,
    resource: String,
    resolved: bool,
}

impl Wanted {
    fn of(contents: &Contents, kind: &Value) -> Self {
        let api_version = text(kind, "apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let catalog = contents.catalog();
        let found = catalog.find_kind(group, version, text(kind, "kind"));
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: found.map_or_else(|| "*".to_owned(), |found| found.plural.clone()),
            resolved: found.is_some(),
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

    fn allows(&self, contents: &Contents, user: &UserInfo, verb: &str, namespace: &str, name: &str) -> bool {
        let attributes = Attributes::resource(verb, &self.group, &self.version, &self.resource)
            .in_namespace(namespace)
            .named(name);
        contents.rights().authorize(user, &attributes).allowed
    }
}

fn of_policy(contents: &Contents, user: &UserInfo, kind: &Value) -> Option<String> {
    if Wanted::of(contents, kind).allows(contents, user, "get", "*", "*") {
        return None;
    }
    Some(format!(
        "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
        shown(user),
        text(kind, "kind"),
        text(kind, "apiVersion"),
    ))
}

fn of_binding(contents: &Contents, user: &UserInfo, binding: &Value, reference: &Value) -> Option<String> {
    let policy_name = binding
        .pointer("/spec/policyName")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let policy = contents
        .view()
        .get(GROUP, "validatingadmissionpolicies", None, policy_name);
    let kind = policy.as_ref().and_then(|policy| policy.pointer("/spec/paramKind"));
    let wanted = kind.map_or_else(Wanted::anything, |kind| Wanted::of(contents, kind));
    let name = text(reference, "name");
    let verb = if name.is_empty() { "list" } else { "get" };
    if wanted.allows(contents, user, verb, text(reference, "namespace"), name) {
        return None;
    }
    let user = shown(user);
    let everything = format!(
        "to determine minimum required permissions and user {user} does not have \"{verb}\" permission for all groups, \
         versions and resources"
    );
    Some(match (policy.is_some(), kind.filter(|_| !wanted.resolved)) {
        (false, _) => format!("unable to get policy {policy_name} {everything}"),
        (true, Some(kind)) => format!(
            "unable to resolve paramKind &{{{} {}}} {everything}",
            text(kind, "apiVersion"),
            text(kind, "kind"),
        ),
        (true, None) => {
            format!("user {user} does not have \"{verb}\" permission on the object referenced by paramRef")
        }
    })
}

/// A user as Go prints one.
fn shown(user: &UserInfo) -> String {
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
