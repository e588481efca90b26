//! The theme of a story besides its objects: a user with few rights writes roles, or a policy checks the writes. A real server learns both from its own watches, so the
//! story waits until the server knows them.

use serde_json::{Value, json};

use super::{Faults, Story};
use crate::kind::Kind;

/// The theme of a story, which adds steps at its begin and end, and sometimes another user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plot {
    /// No theme.
    None,
    /// More than half of the requests come from a user that may write roles, but holds few of the rights in them.
    Weak,
    /// A policy checks ConfigMaps and Gadgets.
    Policy,
}

/// The kinds of a story with a weak user, and of one with a policy.
const ROLES: [&str; 3] = ["Role", "RoleBinding", "ServiceAccount"];
const JUDGED: [&str; 2] = ["ConfigMap", "Gadget"];

/// The time in seconds that a real server needs to learn of a role, with a reserve.
const HEARSAY: f64 = 0.1;

impl Plot {
    /// Checks whether a story with this theme uses this kind.
    pub(super) fn uses_kind(self, kind: &Kind) -> bool {
        match self {
            Self::None => true,
            Self::Weak => ROLES.contains(&kind.kind.as_str()),
            Self::Policy => JUDGED.contains(&kind.kind.as_str()),
        }
    }
}

impl Story<'_> {
    /// Adds the first steps of a story.
    pub(super) fn begin_plot(&mut self, plot: Plot) {
        match plot {
            Plot::None => {}
            Plot::Weak => self.begin_weak(),
            Plot::Policy => self.begin_policy(),
        }
    }

    /// Adds the last steps, so that other stories find nothing of it.
    pub(super) fn end_plot(&mut self, plot: Plot) {
        if plot == Plot::Policy {
            for plural in ["validatingadmissionpolicybindings", "validatingadmissionpolicies"] {
                self.push_request("DELETE", format!("{POLICIES}/{plural}/@NS"), Value::Null);
            }
        }
    }

    fn push_request(&mut self, method: &str, path: String, body: Value) {
        let no_kind = Kind::default();
        self.push(&no_kind, "", method, path, body, "application/json");
    }

    fn begin_weak(&mut self) {
        let group = "rbac.authorization.k8s.io";
        let roles = format!("/apis/{group}/v1/namespaces/@NS");
        let verbs = [
            "get",
            "list",
            "watch",
            "create",
            "update",
            "patch",
            "delete",
            "deletecollection",
        ];
        let mut rules = json!([
            {"apiGroups": [group], "resources": ["roles", "rolebindings"], "verbs": verbs},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
            {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
        ]);
        let more = [
            json!({"apiGroups": [group], "resources": ["roles"], "resourceNames": ["one"], "verbs": ["bind"]}),
            json!({"apiGroups": [group], "resources": ["roles"], "verbs": ["escalate"]}),
            json!({"apiGroups": [group], "resources": ["roles", "clusterroles"], "verbs": ["bind"]}),
            json!({"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["create"]}),
            json!({"apiGroups": ["apps"], "resources": ["*"], "verbs": ["*"]}),
        ];
        if self.random.chance(60)
            && let (Some(rules), Some(rule)) = (rules.as_array_mut(), self.random.pick(&more))
        {
            rules.push(rule.clone());
        }
        self.push_request(
            "POST",
            format!("{roles}/roles"),
            json!({"metadata": {"name": "weak"}, "rules": rules}),
        );
        let binding = json!({
            "metadata": {"name": "weak"}, "roleRef": {"apiGroup": group, "kind": "Role", "name": "weak"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "weak"}],
        });
        self.push_request("POST", format!("{roles}/rolebindings"), binding);
        let wanted = json!({"namespace": "@NS", "verb": "get", "resource": "pods"});
        let review = json!({"spec": {"resourceAttributes": wanted}});
        self.push_request(
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned(),
            review,
        );
        if let Some(step) = self.steps.last_mut() {
            step.until.insert("/body/status/allowed".to_owned(), json!(true));
        }
        self.as_weak(1);
    }

    /// Sends the last steps as the user with few rights.
    fn as_weak(&mut self, last: usize) {
        for step in self.steps.iter_mut().rev().take(last) {
            step.headers.insert("impersonate-user".to_owned(), "weak".to_owned());
        }
    }

    /// Adapts the steps that were just added to the theme.
    pub(super) fn adapt_steps(&mut self, plot: Plot, added: usize) {
        if plot == Plot::Weak && self.random.chance(60) {
            self.as_weak(added);
            if let Some(step) = self.steps.iter_mut().rev().take(added).last() {
                step.pause = Some(HEARSAY);
            }
        }
    }

    fn begin_policy(&mut self) {
        let own = json!({"expression": "!has(object.data) || !('deny' in object.data)", "message": "not that"});
        let data = [
            json!({"expression": "!has(object.data) || size(object.data) < 3"}),
            json!({"expression": "request.operation != 'UPDATE' || object.metadata.name == 'one'", "reason": "Forbidden"}),
            json!({"expression": "oldObject == null || oldObject.metadata.uid == object.metadata.uid"}),
            json!({"expression": "object.?data.a.orValue('1') in ['1', '2']", "messageExpression": "'a is ' + object.data.a"}),
            json!({"expression": "variables.labels.all(key, key != 'c')", "message": "no c", "reason": "Invalid"}),
            json!({"expression": "object.data.b == '1'"}),
            json!({"expression": "namespaceObject.metadata.name == request.namespace && request.userInfo.username != ''"}),
            json!({"expression": "!has(object.metadata.finalizers) || object.metadata.finalizers.exists(one, one.endsWith('/a'))", "messageExpression": "string(size(object.metadata.finalizers)) + ' finalizers'"}),
        ];
        let mut validations = vec![own];
        for _ in 0..self.random.draw_below(3) {
            validations.extend(self.random.pick(&data).cloned());
        }
        let conditions = [
            json!([]),
            json!([]),
            json!([{"name": "not-two", "expression": "object == null || object.metadata.?name.orValue('') != 'two'"}]),
            json!([{"name": "fails", "expression": "!has(object.data) || size(object.data['zzz']) > 0 || true"}]),
        ];
        let conditions = self.random.pick(&conditions).cloned().unwrap_or_default();
        let failure = if self.random.chance(70) { "Fail" } else { "Ignore" };
        let actions = [json!(["Deny"]), json!(["Deny", "Audit"]), json!(["Deny"])];
        let operations = if self.random.chance(30) {
            json!(["CREATE", "UPDATE", "DELETE"])
        } else {
            json!(["CREATE", "UPDATE"])
        };
        let here = json!({"matchLabels": {"kubernetes.io/metadata.name": "@NS"}});
        let policy = json!({"metadata": {"name": "@NS"}, "spec": {
            "failurePolicy": failure,
            "matchConstraints": {"namespaceSelector": here, "resourceRules": [{
                "apiGroups": ["", "differential.tenure.dev"], "apiVersions": ["*"], "operations": operations, "resources": ["configmaps", "gadgets"],
            }]},
            "matchConditions": conditions,
            "variables": [{"name": "labels", "expression": "has(object.metadata.labels) ? object.metadata.labels : {}"}],
            "validations": validations,
        }});
        self.push_request("POST", format!("{POLICIES}/validatingadmissionpolicies"), policy);
        let actions = self.random.pick(&actions).cloned().unwrap_or_default();
        let binding = json!({"metadata": {"name": "@NS"}, "spec": {"policyName": "@NS", "validationActions": actions}});
        self.push_request("POST", format!("{POLICIES}/validatingadmissionpolicybindings"), binding);
        let denied = json!({"metadata": {"name": "denied"}, "data": {"b": "1", "deny": "me", "zzz": "x"}});
        self.push_request(
            "POST",
            "/api/v1/namespaces/@NS/configmaps?dryRun=All".to_owned(),
            denied,
        );
        if let Some(step) = self.steps.last_mut() {
            step.until.insert("/status".to_owned(), json!(422));
        }
    }

    /// Chooses the theme of a story.
    pub(super) fn choose_plot(&mut self) -> Plot {
        // With many faults, there are enough differences without a theme.
        let often = if self.faults == Faults::Few { 4 } else { 2 };
        self.random
            .pick_weighted(&[
                (100 - 2 * often, Plot::None),
                (often, Plot::Weak),
                (often, Plot::Policy),
            ])
            .unwrap_or(Plot::None)
    }
}

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";
