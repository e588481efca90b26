//! Policies for the account that writes credentials: the objects it may write, whatever RBAC grants it, and the users that may request its tokens.
//!
//! Both are a part of every installation, like the one above the controllers. Where an administrator binds that account, RBAC lets it write all
//! Secrets, Roles and RoleBindings of a namespace, since a ClusterRole can't contain names that follow from Surfaces. The policies deny:
//!
//! - an object that is no credential of Tenure's, or was none before,
//! - a Secret that Kubernetes would fill with an account's token,
//! - more access than `get` of one Secret for one account in the same namespace,
//! - a change of a ServiceAccount, where the account may change those, except of its own entries among the `imagePullSecrets`.

use tenure_api::access::{PULL_PREFIX, REQUEST_LABEL};
use tenure_api::metadata::{
    CONTROLLER_SERVICE_ACCOUNT, CREDENTIAL_ACCESS, CREDENTIAL_DEPLOY_KEY, CREDENTIAL_LABEL, MANAGED_BY,
    MANAGED_BY_TENURE, SECRET_WRITER, TENURE_CONTROLLER,
};

use super::{Action, Policy, PolicyScope, ResourceRule, USER, Validation, phrase, quote, variable};
use crate::Rule;

/// The greatest number of accounts that read one Secret: those of an entry, and the account with
/// which sources read there.
const MOST_READERS: usize = 65;
/// The names of the policies, without the common prefix.
pub(super) const NAMES: [&str; 2] = ["secret-writer", "secret-writer-token"];

/// Returns the user name of a ServiceAccount in the platform namespace.
fn account(platform: &str, name: &str) -> String {
    quote(&format!("system:serviceaccount:{platform}:{name}"))
}

/// Returns the policy for the account's writes.
pub(super) fn make_write_policy(platform: &str) -> Policy {
    let refuse = |holds: String, what: &str| Validation {
        holds,
        rule: Rule::SecretWriter,
        why: phrase(
            &format!("{{}} may not write {{}} {{}}: {what}"),
            &[USER, "variables.kind", "variables.name"],
        ),
        remedy: quote("ask an administrator to do it, if it is intended"),
    };
    let sort = |object: &str| format!("{object}.?metadata.?labels[?{}].orValue('')", quote(CREDENTIAL_LABEL));
    // A key belongs to its Surface in the same namespace. An object for a request, which is in the platform namespace, has the name of
    // the request.
    let marked = |object: &str| {
        format!(
            "({object}.?metadata.?labels[?{managed}].orValue('') == {tenure} && ({sort} == {key} && \
             {object}.?metadata.?ownerReferences.orValue([]).exists(owner, owner.apiVersion.startsWith('tenure.dev/')) || {sort} == {access} && \
             {object}.?metadata.?labels[?{request}].orValue('') != ''))",
            sort = sort(object),
            key = quote(CREDENTIAL_DEPLOY_KEY),
            access = quote(CREDENTIAL_ACCESS),
            request = quote(REQUEST_LABEL),
            managed = quote(MANAGED_BY),
            tenure = quote(MANAGED_BY_TENURE),
        )
    };
    // Another user may have removed the labels. The field manager shows that the controllers wrote the object. A tenant that takes this name for its own Secret
    // allows this account to write that Secret.
    let written = |object: &str| {
        format!(
            "{object}.?metadata.?managedFields.orValue([]).exists(entry, entry.?manager.orValue('') == {})",
            quote(TENURE_CONTROLLER)
        )
    };
    Policy {
        name: NAMES[0].to_owned(),
        action: Action::Deny,
        place: PolicyScope::InNamespaces,
        about: vec![
            ResourceRule {
                groups: vec![""],
                resources: vec!["secrets"],
                operations: vec!["CREATE", "UPDATE", "DELETE"],
            },
            ResourceRule {
                groups: vec!["rbac.authorization.k8s.io"],
                resources: vec!["roles", "rolebindings"],
                operations: vec!["CREATE", "UPDATE", "DELETE"],
            },
            ResourceRule {
                groups: vec![""],
                resources: vec!["serviceaccounts"],
                operations: vec!["CREATE", "UPDATE", "DELETE"],
            },
        ],
        conditions: vec![("by-secret-writer", format!("{USER} == {}", account(platform, SECRET_WRITER)))],
        variables: vec![
            variable("kind", "request.resource.resource"),
            variable("object", "object == null ? oldObject : object"),
            variable("name", "variables.object.?metadata.?name.orValue('')"),
        ],
        validations: vec![
            refuse(
                "!request.namespace.startsWith('kube-')".to_owned(),
                "it writes no credentials in kube-* namespaces",
            ),
            refuse(
                format!(
                    "variables.kind == 'serviceaccounts' || (object == null || {}) && (oldObject == null || {} || {})",
                    marked("object"),
                    marked("oldObject"),
                    written("oldObject")
                ),
                "the object must be marked as a credential of Tenure, before and after the write",
            ),
            refuse(
                format!(
                    "variables.kind != 'secrets' || variables.object.?type.orValue('Opaque') == 'Opaque' || {} == {} && variables.object.type == \
                     'kubernetes.io/dockerconfigjson'",
                    sort("variables.object"),
                    quote(CREDENTIAL_ACCESS)
                ),
                "Kubernetes or Pods use Secrets of other types for more than a credential",
            ),
            refuse(
                "variables.kind != 'roles' || request.operation == 'DELETE' || size(object.?rules.orValue([])) == 1 && \
                 object.rules.all(rule, rule.?apiGroups.orValue([]) == [''] && rule.?resources.orValue([]) == ['secrets'] && \
                 rule.?verbs.orValue([]) == ['get'] && rule.?resourceNames.orValue([]) == [variables.name])"
                    .to_owned(),
                "its only rule is to get the Secret of the same name",
            ),
            refuse(
                format!(
                    "variables.kind != 'rolebindings' || request.operation == 'DELETE' || object.roleRef.kind == 'Role' && \
                     object.roleRef.name == variables.name && size(object.?subjects.orValue([])) >= 1 && (size(object.subjects) == 1 || {} == {} && \
                     size(object.subjects) <= {MOST_READERS}) && object.subjects.all(subject, subject.kind == 'ServiceAccount' && \
                     subject.?namespace.orValue('') == request.namespace)",
                    sort("object"),
                    quote(CREDENTIAL_ACCESS)
                ),
                "its subjects are only ServiceAccounts in the Secret's namespace: one for a key, those of the entry for other credentials",
            ),
            refuse(
                format!("variables.kind != 'serviceaccounts' || request.operation == 'UPDATE' && {}", keeps_account()),
                "on ServiceAccounts it changes only the imagePullSecrets that an annotation marks as its own",
            ),
        ],
    }
}

/// Returns the expression that a ServiceAccount is unchanged, except Tenure's own entries. Tenure's annotation names these before or
/// after the change.
fn keeps_account() -> String {
    let prefix = quote(PULL_PREFIX);
    let list = |object: &str| format!("{object}.?imagePullSecrets.orValue([])");
    let annotations = |object: &str| format!("{object}.metadata.?annotations.orValue({{}})");
    let is_kept = |from: &str, to: &str| {
        let (from_images, to_images, from_marks, to_marks) = (list(from), list(to), annotations(from), annotations(to));
        format!(
            "{from_images}.all(image, image in {to_images} || {from_marks}.exists(key, key.startsWith({prefix}) && \
             {from_marks}[key] == image.?name.orValue(''))) && {from_marks}.all(key, key.startsWith({prefix}) || key in {to_marks} && \
             {to_marks}[key] == {from_marks}[key])"
        )
    };
    let is_same =
        |path: &str, empty: &str| format!("object.{path}.orValue({empty}) == oldObject.{path}.orValue({empty})");
    [
        is_same("?secrets", "[]"),
        is_same("?automountServiceAccountToken", "true"),
        is_same("metadata.?labels", "{}"),
        is_same("metadata.?ownerReferences", "[]"),
        is_same("metadata.?finalizers", "[]"),
        is_kept("oldObject", "object"),
        is_kept("object", "oldObject"),
    ]
    .join(" && ")
}

/// Returns the policy for token requests: of all ServiceAccounts, only the controller's may request one. A lane that works in the platform's
/// namespace has the right to request any token there.
pub(super) fn make_token_policy(platform: &str) -> Policy {
    Policy {
        name: NAMES[1].to_owned(),
        action: Action::Deny,
        place: PolicyScope::InNamespaces,
        about: vec![ResourceRule {
            groups: vec![""],
            resources: vec!["serviceaccounts/token"],
            operations: vec!["CREATE"],
        }],
        conditions: vec![(
            "for-secret-writer",
            format!(
                "request.namespace == {} && request.?name.orValue('') == {}",
                quote(platform),
                quote(SECRET_WRITER)
            ),
        )],
        variables: Vec::new(),
        validations: vec![Validation {
            holds: format!(
                "!{USER}.startsWith('system:serviceaccount:') || {USER} == {}",
                account(platform, CONTROLLER_SERVICE_ACCOUNT)
            ),
            rule: Rule::SecretWriter,
            why: phrase(
                &format!(
                    "{{}} may not ask for a token of ServiceAccount {SECRET_WRITER}, which writes credentials in other namespaces"
                ),
                &[USER],
            ),
            remedy: quote("name another ServiceAccount"),
        }],
    }
}
