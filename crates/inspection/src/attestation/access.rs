//! Attacks on credentials for Git hosts and registries: an owner's binding that would count as an administrator's permission, and an approver that answers its own
//! request.

use serde_json::{Value, json};
use tenure_admission_rules::Rule;
use tenure_api::access::grant::APPROVED;
use tenure_api::access::{GROUP, TARGETS, name_target};
use tenure_api::metadata::SECRET_WRITER;
use tenure_tenancy::make_owner_reference;
use tenure_tenancy::rights::APPROVE;

use super::rights::make_config_map;
use super::{Attack, AttackRequest, ExpectedDefense, ImpersonationRight, Names, Sender, Verb};

const RBAC: &str = "rbac.authorization.k8s.io";
/// The number of the target that the approvers may approve for.
const TARGET: u64 = 1;

impl ImpersonationRight {
    /// The ways to speak as another account.
    pub const ALL: [Self; 4] = [Self::Token, Self::Impersonation, Self::Exec, Self::Pod];

    fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Impersonation => "impersonation",
            Self::Exec => "exec",
            Self::Pod => "pod",
        }
    }

    /// Returns the right in the requester's namespace that this way needs.
    fn write_rule(self) -> Value {
        let (resource, verb) = match self {
            Self::Token => ("serviceaccounts/token", "create"),
            Self::Impersonation => ("serviceaccounts", "impersonate"),
            Self::Exec => ("pods/exec", "create"),
            Self::Pod => ("pods", "create"),
        };
        json!({ "apiGroups": [""], "resources": [resource], "verbs": [verb] })
    }
}

impl Names {
    /// Returns the ServiceAccount of the approver that can speak as the tenant's accounts in one way.
    #[must_use]
    pub fn approver(&self, way: ImpersonationRight) -> String {
        format!("{}-approver-{}", self.tenant(), way.name())
    }

    fn target(&self) -> String {
        name_target(&self.tenant(), TARGET)
    }
}

pub(super) fn list(names: &Names) -> Vec<Attack> {
    let mut attacks = list_bindings(names);
    attacks.extend(list_approvals(names));
    attacks
}

/// Lists attacks with RoleBindings. Tenure takes a RoleBinding to an account of its own as an administrator's permission to write Secrets.
fn list_bindings(names: &Names) -> Vec<Attack> {
    let home = names.tenant();
    let own = json!({ "kind": "ServiceAccount", "namespace": home, "name": "default" });
    let writer = json!({ "kind": "ServiceAccount", "namespace": names.platform, "name": SECRET_WRITER });
    let group = |name: String| json!({ "apiGroup": RBAC, "kind": "Group", "name": name });
    let bind = |who: Sender, role: &str, subject: &Value| {
        let object = json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": { "name": format!("{home}-word") },
            "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": role }, "subjects": [subject],
        });
        let path = format!("/apis/{RBAC}/v1/namespaces/{home}/rolebindings");
        AttackRequest::new(who, Verb::Create, path, object)
    };
    let control = || bind(Sender::Owner, "edit", &own);
    let attack = |name: &'static str, tries: &'static str, subject: &Value| {
        let attempt = bind(Sender::Owner, "edit", subject);
        Attack::new(
            name,
            tries,
            ExpectedDefense::Rule(Rule::SecretWriter),
            attempt,
            control(),
        )
    };
    // The role has a verb that owners lack, so that RBAC refuses it before any rule does.
    let by_account = AttackRequest::new(
        Sender::Account,
        Verb::Create,
        format!("/api/v1/namespaces/{home}/configmaps"),
        make_config_map("own"),
    );
    vec![
        Attack::new(
            "secret-writer-bound",
            "an owner binds the account that writes credentials, as an administrator does",
            ExpectedDefense::Rbac,
            bind(Sender::Owner, SECRET_WRITER, &writer),
            control(),
        ),
        Attack::new(
            "secret-writer-bound-by-account",
            "the account of a tenant's surfaces binds the account that writes credentials",
            ExpectedDefense::Rbac,
            bind(Sender::Account, SECRET_WRITER, &writer),
            by_account,
        ),
        attack(
            "secret-writer-bound-to-another-role",
            "an owner gives the account that writes credentials the same rights by another role",
            &writer,
        ),
        attack(
            "platform-accounts-bound",
            "an owner binds all accounts of the platform's namespace, of which one writes credentials",
            &group(format!("system:serviceaccounts:{}", names.platform)),
        ),
        attack(
            "all-accounts-bound",
            "an owner binds all ServiceAccounts of the cluster, of which one writes credentials",
            &group("system:serviceaccounts".to_owned()),
        ),
    ]
}

/// Lists attacks with approvals. An approver that can speak as the requester counts as the requester. Each of the approvers has one right for this.
fn list_approvals(names: &Names) -> Vec<Attack> {
    let stop = ExpectedDefense::Rule(Rule::Access);
    let (home, other) = (names.tenant(), names.neighbour());
    let user = |way: ImpersonationRight| names.user(&names.platform, &names.approver(way));
    let path = |plural: &str| format!("/apis/{GROUP}/v1alpha1/namespaces/{}/{plural}", names.platform);
    let answer = |way: ImpersonationRight, asked_by: &str, by: &str| {
        let object = json!({
            "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "FluxAccessGrant",
            "metadata": { "name": format!("{home}-approval") },
            "spec": {
                "requestRef": { "name": home, "uid": "attest" }, "target": names.target(), "specHash": format!("sha256:{}", "0".repeat(64)),
                "requestedBy": asked_by, "decision": APPROVED, "approvedBy": by,
            },
        });
        AttackRequest::new(Sender::Approver(way), Verb::Create, path("fluxaccessgrants"), object)
    };
    let (own, strange) = (names.user(&home, "default"), names.user(&other, "default"));
    let control = |way: ImpersonationRight| answer(way, &strange, &user(way));
    let by = |name: &'static str, tries: &'static str, way: ImpersonationRight| {
        Attack::new(name, tries, stop, answer(way, &own, &user(way)), control(way))
    };
    let mut attacks = vec![
        by(
            "approval-by-token",
            "a user approves the request of a ServiceAccount whose token it may create",
            ImpersonationRight::Token,
        ),
        by(
            "approval-by-impersonation",
            "a user approves the request of a ServiceAccount that it may impersonate",
            ImpersonationRight::Impersonation,
        ),
        by(
            "approval-by-exec",
            "a user approves the request of a ServiceAccount whose Pods it may enter",
            ImpersonationRight::Exec,
        ),
        by(
            "approval-by-pod",
            "a user approves the request of a ServiceAccount as which it may start Pods",
            ImpersonationRight::Pod,
        ),
    ];
    let way = ImpersonationRight::Token;
    let mut more = |name: &'static str, tries: &'static str, attempt: AttackRequest| {
        attacks.push(Attack::new(name, tries, stop, attempt, control(way)));
    };
    more(
        "approval-of-its-own-request",
        "a user approves its own request",
        answer(way, &user(way), &user(way)),
    );
    more(
        "approval-within-a-namespace",
        "a ServiceAccount approves the request of another one of its namespace",
        answer(way, &user(ImpersonationRight::Pod), &user(way)),
    );
    more(
        "approval-in-anothers-name",
        "a user approves in another user's name",
        answer(way, &strange, &user(ImpersonationRight::Pod)),
    );
    let standing_grant = |tenant: &str| {
        let object = json!({
            "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "FluxAccessStandingGrant",
            "metadata": { "name": format!("{home}-approval") },
            "spec": {
                "tenant": tenant, "targets": [names.target()], "roles": ["read_registry"], "namespaces": [format!("{tenant}-*")],
                "maxRotate": "90d", "approvedBy": names.user(&names.platform, &names.other_owner()),
            },
        });
        AttackRequest::new(
            Sender::Neighbour,
            Verb::Create,
            path("fluxaccessstandinggrants"),
            object,
        )
    };
    attacks.push(Attack::new(
        "standing-grant-for-an-own-tenant",
        "an owner that may approve approves all requests of its own tenant in advance",
        stop,
        standing_grant(&other),
        standing_grant(&home),
    ));
    attacks
}

/// Lists the approvers' accounts and rights, path by path. The other tenant's owner may approve, too: the first tenant's owner reaches nothing by any of it.
pub(super) fn list_approvers(names: &Names) -> Vec<(String, Value)> {
    let (tenant, platform) = (names.tenant(), names.platform.as_str());
    let metadata =
        |name: &str| json!({ "name": name, "ownerReferences": [make_owner_reference(&tenant, &names.tenant_uid)] });
    let account = |name: String| json!({ "kind": "ServiceAccount", "namespace": platform, "name": name });
    let write_path = |namespace: Option<&str>, plural: &str| match namespace {
        Some(namespace) => format!("/apis/{RBAC}/v1/namespaces/{namespace}/{plural}"),
        None => format!("/apis/{RBAC}/v1/{plural}"),
    };
    let give = |namespace: Option<&str>, name: &str, rule: Value, subjects: Vec<Value>| {
        let (kind, plural) = match namespace {
            Some(_) => ("Role", "roles"),
            None => ("ClusterRole", "clusterroles"),
        };
        let role =
            json!({ "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": metadata(name), "rules": [rule] });
        let binding = json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": format!("{kind}Binding"), "metadata": metadata(name),
            "roleRef": { "apiGroup": RBAC, "kind": kind, "name": name }, "subjects": subjects,
        });
        let bindings = plural.replace("roles", "rolebindings");
        [
            (write_path(namespace, plural), role),
            (write_path(namespace, &bindings), binding),
        ]
    };
    let mut all = Vec::new();
    for way in ImpersonationRight::ALL {
        let name = names.approver(way);
        all.push((
            format!("/api/v1/namespaces/{platform}/serviceaccounts"),
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(&name) }),
        ));
        all.extend(give(
            Some(&tenant),
            &name,
            way.write_rule(),
            vec![account(name.clone())],
        ));
    }
    let mut approvers: Vec<Value> = ImpersonationRight::ALL
        .into_iter()
        .map(|way| account(names.approver(way)))
        .collect();
    approvers.push(account(names.other_owner()));
    let name = format!("{tenant}-approvers");
    let grants = ["fluxaccessgrants", "fluxaccessstandinggrants"];
    all.extend(give(
        Some(platform),
        &name,
        json!({ "apiGroups": [GROUP], "resources": grants, "verbs": ["create"] }),
        approvers.clone(),
    ));
    all.extend(give(
        None,
        &name,
        json!({ "apiGroups": [GROUP], "resources": [TARGETS], "resourceNames": [names.target()], "verbs": [APPROVE] }),
        approvers,
    ));
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::tests::names;
    use super::*;

    /// Each approver has one right: otherwise a refusal doesn't show which of them was seen.
    #[test]
    fn each_approver_has_one_impersonation_right() {
        let names = names();
        let all = list_approvers(&names);
        let at_home = format!("/apis/{RBAC}/v1/namespaces/{}/roles", names.tenant());
        let roles: Vec<&Value> = all
            .iter()
            .filter(|(path, _)| *path == at_home)
            .map(|(_, role)| role)
            .collect();
        let rules: BTreeSet<String> = roles.iter().map(|role| role["rules"].to_string()).collect();
        assert_eq!(
            (roles.len(), rules.len()),
            (ImpersonationRight::ALL.len(), ImpersonationRight::ALL.len()),
            "{roles:#?}"
        );
        // No object belongs to the first tenant, so its reach stays unchanged.
        let owner = names.owner();
        assert!(
            all.iter()
                .all(|(_, object)| !object["subjects"].to_string().contains(&format!("{owner}\"")))
        );
    }
}
