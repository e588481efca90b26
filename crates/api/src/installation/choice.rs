//! Which controllers run, and what of the rights goes with them: what nobody uses isn't granted. Owns which kind is looked at for which
//! other one. It refuses to leave an empty list of names, which Kubernetes takes for all names.

use serde_json::{Value, json};

/// The kinds that others look at: a Surface at what it generates, a Kustomization at what it applies from, a Receiver at what it asks to reconcile, an Alert
/// at whom it tells.
const LOOKED_AT: [(&str, &str); 16] = [
    ("GitRepository", SURFACE),
    ("Kustomization", SURFACE),
    ("GitRepository", "Kustomization"),
    ("OCIRepository", "Kustomization"),
    ("Bucket", "Kustomization"),
    ("ExternalArtifact", "Kustomization"),
    ("GitRepository", GENERATOR),
    ("OCIRepository", GENERATOR),
    ("Bucket", GENERATOR),
    ("ExternalArtifact", GENERATOR),
    (GENERATOR, "ExternalArtifact"),
    ("Bucket", RECEIVER),
    ("GitRepository", RECEIVER),
    ("OCIRepository", RECEIVER),
    ("Kustomization", RECEIVER),
    ("Provider", ALERT),
];
/// The kinds that another one generates, and which: a Surface's, and an ArtifactGenerator's.
const GENERATED: [(&str, &str); 3] = [
    ("GitRepository", SURFACE),
    ("Kustomization", SURFACE),
    ("ExternalArtifact", GENERATOR),
];
const GENERATOR: &str = "ArtifactGenerator";
/// Tells whose a namespace is, also when another controller keeps them.
const TENANT: &str = "Tenant";
/// Tells a Provider, which may be left to another controller's looking after.
const ALERT: &str = "Alert";
const SURFACE: &str = "Surface";
/// What all kinds of access follow from.
const ACCESS_PROVIDER: &str = "AccessProvider";
/// Asks objects to reconcile, also those that another controller reconciles.
const RECEIVER: &str = "Receiver";

/// Whether objects of a kind are watched: those of a kind that is reconciled, and those that one which is reconciled looks at. `is_on` says
/// of a kind whether it is reconciled.
#[must_use]
pub fn is_watched(kind: &str, is_on: &dyn Fn(&str) -> bool) -> bool {
    let is_looked_at = || LOOKED_AT.iter().any(|(seen, by)| *seen == kind && is_on(by));
    kind == TENANT || is_on(kind) || is_looked_at()
}

/// The kinds that are reconciled, by what RBAC knows of them.
pub(crate) struct ControllerChoice {
    kinds: Vec<ChosenKind>,
}

struct ChosenKind {
    group: String,
    plural: String,
    name: String,
    is_on: bool,
    is_watched: bool,
}

impl ControllerChoice {
    /// Of the kinds that are defined, those of which `is_on` says so.
    pub(crate) fn of(definitions: &[Value], is_on: &dyn Fn(&str) -> bool) -> Self {
        let choose = |crd: &Value| {
            let text = |path: &str| crd.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
            let name = text("/spec/names/kind");
            ChosenKind {
                group: text("/spec/group"),
                plural: text("/spec/names/plural"),
                is_on: is_on(&name),
                is_watched: is_watched(&name, is_on),
                name,
            }
        };
        Self {
            kinds: definitions.iter().map(choose).collect(),
        }
    }

    fn is_on(&self, kind: &str) -> bool {
        self.kinds.iter().any(|known| known.name == kind && known.is_on)
    }

    /// Whether Tenants are reconciled.
    pub(crate) fn has_tenants(&self) -> bool {
        self.is_on(TENANT)
    }

    /// Whether Surfaces are reconciled, for whose sources keys are made.
    pub(crate) fn has_surfaces(&self) -> bool {
        self.is_on(SURFACE)
    }

    /// Whether access to hosts of repositories is seen to.
    pub(crate) fn has_access(&self) -> bool {
        self.is_on(ACCESS_PROVIDER)
    }

    /// Whether something is reconciled for which a lane needs a token of a ServiceAccount: a source, or what is applied.
    pub(crate) fn has_accounts(&self) -> bool {
        let mut on = self.kinds.iter().filter(|kind| kind.is_on);
        on.any(|kind| kind.group.ends_with(".fluxcd.io"))
    }

    /// Of these, the ones with whose kind a controller is on.
    pub(crate) fn select<'n>(&self, named: &[(&'n str, &[&str])]) -> Vec<&'n str> {
        let selected = named
            .iter()
            .filter(|(_, kinds)| kinds.iter().any(|kind| self.is_on(kind)));
        selected.map(|(name, _)| *name).collect()
    }

    /// Of the hub's rules, what it uses: it sees what is watched, and writes what it reconciles itself.
    pub(crate) fn limit_hub(&self, rules: Vec<Value>) -> Vec<Value> {
        self.limit(rules, |kind, is_part, verb| {
            kind.is_on || (kind.is_watched && !is_part && ["get", "list", "watch"].contains(&verb))
        })
    }

    /// Of the rules of lanes, what they use: who generates objects makes, changes and deletes them; nobody else makes or deletes.
    pub(crate) fn limit_lanes(&self, rules: Vec<Value>) -> Vec<Value> {
        let is_generated = |kind: &str| GENERATED.iter().any(|(made, by)| *made == kind && self.is_on(by));
        self.limit(rules, |kind, is_part, verb| {
            if is_generated(&kind.name) {
                return kind.is_on || !is_part;
            }
            let is_asked = self.is_on(RECEIVER) && LOOKED_AT.contains(&(kind.name.as_str(), RECEIVER));
            (kind.is_on || (is_asked && !is_part)) && !["create", "delete"].contains(&verb)
        })
    }

    /// Leaves of rules about these kinds what is kept: of which kind, whether it is a part of one (its status), and which verb. Other rules
    /// stay as they are.
    fn limit(&self, rules: Vec<Value>, keep: impl Fn(&ChosenKind, bool, &str) -> bool) -> Vec<Value> {
        rules
            .into_iter()
            .flat_map(|rule| self.limit_rule(&rule, &keep))
            .collect()
    }

    fn limit_rule(&self, rule: &Value, keep: &impl Fn(&ChosenKind, bool, &str) -> bool) -> Vec<Value> {
        let texts = |field: &str| -> Vec<&str> {
            let texts = rule.get(field).and_then(Value::as_array).into_iter().flatten();
            texts.filter_map(Value::as_str).collect()
        };
        let (groups, verbs) = (texts("apiGroups"), texts("verbs"));
        let find = |plural: &str| {
            let mut kinds = self.kinds.iter();
            kinds.find(|kind| kind.plural == plural && groups.contains(&kind.group.as_str()))
        };
        let mut kept: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
        for resource in texts("resources") {
            let (plural, part) = resource.split_once('/').unwrap_or((resource, ""));
            let left: Vec<&str> = match find(plural) {
                None => verbs.clone(),
                Some(kind) => verbs
                    .iter()
                    .copied()
                    .filter(|verb| keep(kind, !part.is_empty(), verb))
                    .collect(),
            };
            if left.is_empty() {
                continue;
            }
            match kept.iter_mut().find(|(_, verbs)| *verbs == left) {
                Some((resources, _)) => resources.push(resource),
                None => kept.push((vec![resource], left)),
            }
        }
        let write = |(resources, verbs)| {
            let mut rule = rule.clone();
            if let Some(fields) = rule.as_object_mut() {
                fields.insert("resources".to_owned(), json!(resources));
                fields.insert("verbs".to_owned(), json!(verbs));
            }
            rule
        };
        kept.into_iter().map(write).collect()
    }
}
