//! Advice for an identity that lacks a right, beside the API server's refusal.
//!
//! RBAC and admission refuse with one reason, Forbidden. The authorizer's own sentence tells them apart (`NewForbidden` of Kubernetes' apiserver, with the words of its
//! `responsewriters`). The sentence is read only for a message to people, and decides nothing. Advice is given only about the object itself and only for the identity.
//! Such a sentence from another author is repeated without advice.

use tenure_api::ObjectId;
use tenure_tenancy::ServiceAccount;

use crate::refusal::{Failure, Reason};

/// Returns the advice for a refused request. Returns nothing if the refusal isn't the authorizer's about this object and this identity.
pub(super) fn write_advice(failure: &Failure, identity: &ServiceAccount, id: &ObjectId) -> Option<String> {
    if failure.reason != Reason::Forbidden {
        return None;
    }
    let (subject, sentence) = failure.message.split_once(" is forbidden: User ")?;
    let (_, name) = subject.split_once(' ')?;
    let sentence = sentence.strip_prefix(&format!("\"{identity}\" cannot "))?;
    let (verb, sentence) = sentence.split_once(" resource ")?;
    let (resource, sentence) = take_quoted(sentence)?;
    let (group, place) = take_quoted(sentence.strip_prefix(" in API group ")?)?;
    if name != format!("\"{}\"", id.name) || group != id.group || !is_word(verb) || !is_word(resource) {
        return None;
    }
    let resource = match group {
        "" => resource.to_owned(),
        group => format!("{resource}.{group}"),
    };
    // For RBAC, a request about a Namespace object is a request in this namespace.
    let namespace = match (&*id.group, &*id.kind) {
        ("", "Namespace") if !place.starts_with(" at the cluster scope") => &id.name,
        _ => &id.namespace,
    };
    let scope = if namespace.is_empty() {
        place
            .starts_with(" at the cluster scope")
            .then(|| "a ClusterRole and a ClusterRoleBinding".to_owned())
    } else {
        let there = format!(" in the namespace \"{namespace}\"");
        place
            .starts_with(&there)
            .then(|| format!("a Role and a RoleBinding in namespace {namespace}"))
    }?;
    // The advice adds `create` to `patch`, because an apply also creates objects that don't exist yet.
    let verbs = if verb == "patch" { "patch and create" } else { verb };
    Some(format!(
        "if it is to be allowed, an administrator gives ServiceAccount {}/{} the right to {verbs} {resource}, by {scope}",
        identity.namespace(),
        identity.name()
    ))
}

fn take_quoted(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('"')?.split_once('"')
}

/// Checks whether a text has only the characters of RBAC verbs and resources.
fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'/'))
}

#[cfg(test)]
mod tests {
    use tenure_tenancy::{Placement, identity};

    use super::*;

    fn advice(id: &str, message: &str) -> Option<String> {
        let failure = Failure {
            code: 403,
            reason: Reason::Forbidden,
            message: message.to_owned(),
            ..Failure::default()
        };
        let placement = Placement::Unclaimed {
            default_service_account: "default".to_owned(),
            is_protected: false,
        };
        let identity = identity::decide_for_kustomization(&placement, "team", None).expect("an identity");
        write_advice(&failure, &identity, &id.parse().expect("an id"))
    }

    const USER: &str = "User \"system:serviceaccount:team:default\" cannot";

    #[test]
    fn the_right_that_is_missing_is_named() {
        let message = format!(
            "deployments.apps \"web\" is forbidden: {USER} patch resource \"deployments\" in API group \"apps\" in the namespace \"team\""
        );
        let want = "if it is to be allowed, an administrator gives ServiceAccount team/default the right to patch and create deployments.apps, \
                    by a Role and a RoleBinding in namespace team";
        assert_eq!(advice("team_web_apps_Deployment", &message).as_deref(), Some(want));
        let message = format!(
            "namespaces \"new\" is forbidden: {USER} create resource \"namespaces\" in API group \"\" at the cluster scope"
        );
        let want = "if it is to be allowed, an administrator gives ServiceAccount team/default the right to create namespaces, by a ClusterRole \
                    and a ClusterRoleBinding";
        assert_eq!(advice("_new__Namespace", &message).as_deref(), Some(want));
    }

    #[test]
    fn only_authorizer_message_about_object_gets_advice() {
        let namespace = "in the namespace \"team\"";
        for message in [
            // Admission.
            "deployments.apps \"web\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no".to_owned(),
            // The sentence is about another object, another user, another group, or another place.
            format!(
                "deployments.apps \"other\" is forbidden: {USER} patch resource \"deployments\" in API group \"apps\" {namespace}"
            ),
            format!(
                "deployments.apps \"web\" is forbidden: User \"admin\" cannot patch resource \"deployments\" in API group \"apps\" {namespace}"
            ),
            format!(
                "deployments.apps \"web\" is forbidden: {USER} patch resource \"secrets\" in API group \"\" {namespace}"
            ),
            format!(
                "deployments.apps \"web\" is forbidden: {USER} patch resource \"deployments\" in API group \"apps\" in the namespace \"kube-system\""
            ),
            format!(
                "deployments.apps \"web\" is forbidden: {USER} patch resource \"deployments\" in API group \"apps\" at the cluster scope"
            ),
            // A text that is no verb.
            format!(
                "deployments.apps \"web\" is forbidden: {USER} do all with resource \"deployments\" in API group \"apps\" {namespace}"
            ),
            format!(
                "deployments.apps \"web\" is forbidden: {USER} patch resource \"deployments in API group \"apps\" {namespace}"
            ),
            String::new(),
        ] {
            assert_eq!(advice("team_web_apps_Deployment", &message), None, "{message}");
        }
    }
}
