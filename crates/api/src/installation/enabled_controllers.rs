//! The enabled controllers, and their part of the rights: an unused right isn't granted. This module says which kinds each controller
//! reads. An empty list of names is never left, since Kubernetes takes it for all names.

use serde_json::{Value, json};

/// The kinds that others read: a Surface its generated objects, a Kustomization its sources, a Receiver the objects that it reconciles, an Alert its
/// Providers.
const LOOKED_AT: [(&str, &str); 20] = [
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
    (PACKAGE_SOURCE, PACKAGE),
    (PACKAGE_VALUES, PACKAGE),
    (PACKAGE, PACKAGE_VALUES),
    (PACKAGE_SOURCE, PACKAGE_VALUES),
];
/// The kinds that another one generates: a Surface's, and an ArtifactGenerator's.
const GENERATED: [(&str, &str); 3] = [
    ("GitRepository", SURFACE),
    ("Kustomization", SURFACE),
    ("ExternalArtifact", GENERATOR),
];
const GENERATOR: &str = "ArtifactGenerator";
/// The kind that assigns namespaces, also if another controller manages it.
const TENANT: &str = "Tenant";
/// The kind that uses a Provider, which another controller may reconcile.
const ALERT: &str = "Alert";
const SURFACE: &str = "Surface";
/// The kinds of a platform's packages.
const PACKAGE: &str = "Package";
const PACKAGE_SOURCE: &str = "PackageSource";
const PACKAGE_VALUES: &str = "PackageValues";
/// The kind on which all kinds of access depend.
const ACCESS_PROVIDER: &str = "AccessProvider";
/// The kind that requests reconciliations, also of objects of another controller.
const RECEIVER: &str = "Receiver";

/// Checks whether objects of a kind are watched: those of a reconciled kind, and those that a reconciled kind reads. `is_on` says of a kind
/// whether it is reconciled.
#[must_use]
pub fn is_watched(kind: &str, is_on: &dyn Fn(&str) -> bool) -> bool {
    let is_looked_at = || LOOKED_AT.iter().any(|(seen, by)| *seen == kind && is_on(by));
    kind == TENANT || is_on(kind) || is_looked_at()
}

/// The reconciled kinds, by their names in RBAC.
pub(crate) struct ControllerChoice {
    kinds: Vec<ChosenKind>,
}

/// A kind that Tenure defines, and whether it is reconciled or at least watched.
struct ChosenKind {
    group: String,
    plural: String,
    name: String,
    is_on: bool,
    is_watched: bool,
}

impl ControllerChoice {
    /// Returns the defined kinds for which `is_on` is true.
    pub(crate) fn from_definitions(definitions: &[Value], is_on: &dyn Fn(&str) -> bool) -> Self {
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

    /// Checks whether Tenants are reconciled.
    pub(crate) fn has_tenants(&self) -> bool {
        self.is_on(TENANT)
    }

    /// Checks whether Surfaces are reconciled. Keys are made for their sources.
    pub(crate) fn has_surfaces(&self) -> bool {
        self.is_on(SURFACE)
    }

    /// Checks whether Alerts are reconciled.
    pub(crate) fn has_alerts(&self) -> bool {
        self.is_on(ALERT)
    }

    /// Checks whether access to Git hosts is reconciled.
    pub(crate) fn has_access(&self) -> bool {
        self.is_on(ACCESS_PROVIDER)
    }

    /// Checks whether Packages, PackageSources or PackageValues are reconciled.
    pub(crate) fn has_packages(&self) -> bool {
        [PACKAGE, PACKAGE_SOURCE, PACKAGE_VALUES]
            .iter()
            .any(|kind| self.is_on(kind))
    }

    /// Checks whether a reconciled kind needs a lane's token of a ServiceAccount: a source, or applied objects.
    pub(crate) fn has_accounts(&self) -> bool {
        let mut on = self.kinds.iter().filter(|kind| kind.is_on);
        on.any(|kind| kind.group.ends_with(".fluxcd.io") || [PACKAGE, PACKAGE_SOURCE].contains(&kind.name.as_str()))
    }

    /// Returns the names that belong to an enabled kind.
    pub(crate) fn select<'n>(&self, named: &[(&'n str, &[&str])]) -> Vec<&'n str> {
        let selected = named
            .iter()
            .filter(|(_, kinds)| kinds.iter().any(|kind| self.is_on(kind)));
        selected.map(|(name, _)| *name).collect()
    }

    /// Limits the hub's rules to those in use: it reads watched kinds, and writes kinds that it
    /// reconciles itself.
    pub(crate) fn limit_hub(&self, rules: Vec<Value>) -> Vec<Value> {
        self.limit(rules, |kind, is_part, verb| {
            kind.is_on || (kind.is_watched && !is_part && ["get", "list", "watch"].contains(&verb))
        })
    }

    /// Limits the rules of lanes to those in use: only a kind that generates objects creates, changes and deletes them.
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

    /// Limits the rules of users that write reconciled objects to the kinds that are reconciled.
    pub(crate) fn limit_authors(&self, rules: Vec<Value>) -> Vec<Value> {
        self.limit(rules, |kind, _, _| kind.is_on)
    }

    /// Limits rules about these kinds to what `keep` accepts: a kind, whether it is a part of one (its status), and a verb. Other rules
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
