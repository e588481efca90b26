//! Who may write what: `tests/admission.yaml`, a trial for each case.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use tenure_tenancy::admission::{self, Change, Decision, Question, Request};
use tenure_tenancy::{Facts, Realm};
use tenure_trials::name_of_line;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    realm: Realm,
    actors: BTreeMap<String, Actor>,
    pub(crate) cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Actor {
    user: String,
    groups: Vec<String>,
    /// "VERB RESOURCE[/NAME]", or "VERB *".
    #[serde(default)]
    rights: Vec<String>,
    /// Whether a token was shown.
    #[serde(default)]
    token: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Object {
    #[serde(default, rename = "in")]
    namespace: Option<String>,
    #[serde(rename = "namespace")]
    own: Option<String>,
    tenant: Option<String>,
    pod: Option<String>,
    secret: Option<String>,
    configmap: Option<String>,
    account: Option<String>,
    token_secret_for: Option<String>,
    runs_as: Option<String>,
    runs_as_old: Option<String>,
    label: Option<String>,
    #[serde(default)]
    owners: Vec<(String, String)>,
    annotation: Option<String>,
    home: Option<String>,
    prevent_deletion: Option<bool>,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Allowed {
    label: Option<String>,
    owner: Option<(String, String)>,
    warning: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Case {
    by: String,
    #[serde(default)]
    part: String,
    create: Option<Object>,
    update: Option<Object>,
    delete: Option<Object>,
    token: Option<Object>,
    #[serde(default)]
    from: Object,
    #[serde(default)]
    dry_run: bool,
    /// Whether nobody has to be asked about it.
    #[serde(default)]
    outside: bool,
    allow: Option<Allowed>,
    deny: Option<String>,
    #[serde(default)]
    saying: String,
}

impl Object {
    /// Group, resource and name.
    fn what(&self) -> (&'static str, &'static str, &str) {
        let kinds = [
            ("", "namespaces", &self.own),
            ("capsule.clastix.io", "tenants", &self.tenant),
            ("", "pods", &self.pod),
            ("", "secrets", &self.secret),
            ("", "configmaps", &self.configmap),
            ("", "serviceaccounts", &self.account),
            ("", "secrets", &self.token_secret_for),
        ];
        let found = kinds.into_iter().find_map(|(group, resource, name)| {
            let name = name.as_deref()?;
            Some((group, resource, name))
        });
        found.expect("a case says what it is about")
    }

    fn to_value(&self, name: &str) -> Value {
        let mut object = json!({ "metadata": { "name": name } });
        if let Some(label) = &self.label {
            object["metadata"]["labels"] = json!({ "capsule.clastix.io/tenant": label });
        }
        if !self.owners.is_empty() {
            let owners = self.owners.iter();
            let owners = owners.map(|(name, uid)| admission::make_owner_reference(name, uid));
            object["metadata"]["ownerReferences"] = owners.collect();
        }
        let mut annotations = serde_json::Map::new();
        if let Some((key, value)) = self.annotation.as_deref().and_then(|text| text.split_once('=')) {
            annotations.insert(key.to_owned(), json!(value));
        }
        if let Some(home) = &self.home {
            annotations.insert("tenure.dev/home-namespace".to_owned(), json!(home));
        }
        if let Some(account) = &self.token_secret_for {
            annotations.insert("kubernetes.io/service-account.name".to_owned(), json!(account));
            object["type"] = json!("kubernetes.io/service-account-token");
        }
        object["metadata"]["annotations"] = Value::Object(annotations);
        if let Some(account) = &self.runs_as {
            object["spec"] = json!({ "serviceAccountName": account });
        }
        if let Some(account) = &self.runs_as_old {
            object["spec"] = json!({ "serviceAccount": account });
        }
        if let Some(prevent) = self.prevent_deletion {
            object["spec"] = json!({ "preventDeletion": prevent });
        }
        object
    }
}

pub(crate) fn collect_facts(realm: &Realm) -> Facts {
    let mut facts = Facts::new(realm.settings.clone());
    // What was otherwise before leaves nothing behind.
    for tenant in &realm.tenants {
        let mut before = tenant.clone();
        before.home_namespace = Some("blue-dev".to_owned());
        facts.set_tenant(before);
        facts.set_tenant(tenant.clone());
    }
    for namespace in &realm.namespaces {
        let mut before = namespace.clone();
        before.tenant_owners.clear();
        facts.set_namespace(before);
        facts.set_namespace(namespace.clone());
    }
    facts
}

/// Whether an actor's rights say yes.
fn may(actor: &Actor, question: &Question<'_>) -> bool {
    actor.rights.iter().any(|right| {
        let (verb, what) = right.split_once(' ').unwrap();
        let (resource, name) = what.split_once('/').unwrap_or((what, "*"));
        verb == question.verb
            && (resource == "*" || resource == question.resource)
            && (name == "*" || name == question.name)
    })
}

impl Case {
    /// What it asks, as a name.
    pub(crate) fn name(&self, index: usize) -> String {
        let steps = [
            ("create", &self.create),
            ("update", &self.update),
            ("delete", &self.delete),
            ("token", &self.token),
        ];
        let done = steps.iter().find_map(|(verb, object)| Some((*verb, object.as_ref()?)));
        let (verb, object) = done.expect("a case does something");
        let (_, resource, name) = object.what();
        let label = object.label.as_deref().unwrap_or_default();
        name_of_line(
            index + 1,
            &format!("{} {verb} {resource} {name} {label} {}", self.by, self.part),
        )
    }
}

impl Table {
    pub(crate) fn check(&self, case: &Case) -> Result<(), String> {
        let facts = collect_facts(&self.realm);
        let actor = self.actors.get(&case.by).ok_or("no such actor")?;
        let (operation, object) = match (&case.create, &case.update, &case.delete, &case.token) {
            (Some(object), None, None, None) => ("CREATE", object),
            (None, Some(object), None, None) => ("UPDATE", object),
            (None, None, Some(object), None) => ("DELETE", object),
            (None, None, None, Some(object)) => ("CREATE", object),
            _ => return Err("a case does one thing".to_owned()),
        };
        let (group, resource, name) = object.what();
        let part = if case.token.is_some() { "token" } else { &case.part };
        let namespace = if resource == "namespaces" {
            name
        } else {
            object.namespace.as_deref().unwrap_or_default()
        };
        let new = object.to_value(name);
        let old = if operation == "UPDATE" {
            case.from.to_value(name)
        } else {
            new.clone()
        };
        let extra = if actor.token {
            json!({ "authentication.kubernetes.io/credential-id": ["JTI=x"] })
        } else {
            json!({})
        };
        let review = json!({
            "operation": operation,
            "resource": { "group": group, "version": "v1", "resource": resource },
            "subResource": part,
            "namespace": namespace,
            "name": name,
            "userInfo": { "username": actor.user, "groups": actor.groups, "extra": extra },
            "dryRun": case.dry_run,
            "object": (operation != "DELETE").then_some(&new),
            "oldObject": (operation != "CREATE").then_some(&old),
        });
        let request = Request::read(&review).map_err(|error| error.to_string())?;
        let concerns = admission::concerns(&facts, request.actor.user, request.resource, namespace);
        if concerns == case.outside {
            return Err(format!("{case:?}\n    is asked about: {concerns}"));
        }
        let decision = admission::decide(&facts, &request, &|question| may(actor, question));
        let is_right = match (&decision, &case.allow, &case.deny) {
            (Decision::Allow { changes, warnings }, Some(allowed), None) => {
                is_as_told(changes, allowed) && check_warnings(warnings, allowed)
            }
            (Decision::Deny(refusal), None, Some(rule)) => {
                refusal.rule.as_str() == rule && refusal.to_string().contains(&case.saying)
            }
            _ => false,
        };
        if is_right && settles(&facts, &review, &decision, actor) {
            Ok(())
        } else {
            Err(format!("{case:?}\n    gives {decision:?}"))
        }
    }
}

fn is_as_told(changes: &[Change], allowed: &Allowed) -> bool {
    let label = allowed.label.iter().map(|label| Change::LabelForTenant(label.clone()));
    let owner = allowed.owner.iter().map(|(name, uid)| Change::AddTenantOwner {
        name: name.clone(),
        uid: uid.clone(),
    });
    label.chain(owner).eq(changes.iter().cloned())
}

fn check_warnings(warnings: &[String], allowed: &Allowed) -> bool {
    match (warnings, &allowed.warning) {
        ([], None) => true,
        ([one], Some(part)) => one.contains(part),
        _ => false,
    }
}

/// Whether the object, once changed as the decision says, is allowed without another change.
fn settles(facts: &Facts, review: &Value, decision: &Decision, actor: &Actor) -> bool {
    let Decision::Allow { changes, .. } = decision else {
        return true;
    };
    let mut again = review.clone();
    for change in changes {
        change.make(&mut again["object"]);
    }
    let request = Request::read(&again).unwrap();
    let next = admission::decide(facts, &request, &|question| may(actor, question));
    matches!(next, Decision::Allow { changes, .. } if changes.is_empty())
}
