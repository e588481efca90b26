//! The rules for Flux's kinds in a tenant's namespaces: their account, their shard, and their references.
//!
//! Each reconciliation decides all of this again. The check at the write lets its writer read the reason, and gives other controllers of
//! these kinds nothing that leads out of the tenant. An existing object stays as it is until its spec is changed.

use serde_json::Value;
use tenure_api::metadata::SHARDING_KEY;
use tenure_api::names::ServiceAccountName;

use super::{Case, Change, Findings, Question, Refusal, Rule};
use tenure_tenancy::denial::Denial;
use tenure_tenancy::flux_account::{ActingKind, name_account};
use tenure_tenancy::placement::{Placement, TenantFacts, TenantPlacement};
use tenure_tenancy::reference::{self, Referrer};
use tenure_tenancy::rights::ADOPT;
use tenure_tenancy::{identity, write_scope};

/// The field for the account of an object.
pub(super) const ACCOUNT: &str = "/spec/serviceAccountName";

/// The fields that a reference has, and the kind of object that it leads to.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReferenceForm {
    /// A reference to a source: kind, name and namespace.
    Source,
    /// A reference to several sources.
    Sources,
    /// A reference to a dependency: name and namespace.
    Dependency,
    /// A reference to an object whose events an Alert sends.
    Event,
    /// A reference to an object that a Receiver reconciles.
    Request,
    /// A reference to an object in the same namespace. It has no namespace, since other controllers might obey one. The reference is in this
    /// field of each entry, or is the entry itself.
    Local(&'static str),
}

/// The fields of one kind that admission checks: its account, references and target namespaces.
pub(super) struct CheckedFields {
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
    /// The kind in [`ActingKind`], if `spec.serviceAccountName` names the account with which objects act.
    pub(super) acts: Option<ActingKind>,
    /// The paths of references or lists of references, the kind of a reference that names none, and the form.
    pub(super) references: &'static [(&'static str, &'static str, ReferenceForm)],
    /// The paths of namespaces that it writes to.
    pub(super) targets: &'static [&'static str],
}

pub(super) const KINDS: [CheckedFields; 13] = [
    CheckedFields {
        group: "kustomize.toolkit.fluxcd.io",
        resource: "kustomizations",
        acts: Some(ActingKind::Kustomization),
        references: &[
            ("/spec/sourceRef", "", ReferenceForm::Source),
            ("/spec/dependsOn", "", ReferenceForm::Dependency),
            ("/spec/postBuild/substituteFrom", "", ReferenceForm::Local("")),
            ("/spec/decryption/secretRef", "", ReferenceForm::Local("")),
            ("/spec/kubeConfig/secretRef", "", ReferenceForm::Local("")),
            ("/spec/kubeConfig/configMapRef", "", ReferenceForm::Local("")),
        ],
        targets: &["/spec/targetNamespace"],
    },
    CheckedFields {
        group: "helm.toolkit.fluxcd.io",
        resource: "helmreleases",
        acts: Some(ActingKind::HelmRelease),
        references: &[
            ("/spec/chart/spec/sourceRef", "HelmRepository", ReferenceForm::Source),
            ("/spec/chartRef", "", ReferenceForm::Source),
            ("/spec/dependsOn", "", ReferenceForm::Dependency),
            ("/spec/valuesFrom", "", ReferenceForm::Local("")),
            ("/spec/chart/spec/verify/secretRef", "", ReferenceForm::Local("")),
            ("/spec/kubeConfig/secretRef", "", ReferenceForm::Local("")),
            ("/spec/kubeConfig/configMapRef", "", ReferenceForm::Local("")),
        ],
        targets: &["/spec/targetNamespace", "/spec/storageNamespace"],
    },
    CheckedFields {
        group: "notification.toolkit.fluxcd.io",
        resource: "receivers",
        acts: None,
        references: &[("/spec/resources", "", ReferenceForm::Request)],
        targets: &[],
    },
    CheckedFields {
        group: "notification.toolkit.fluxcd.io",
        resource: "alerts",
        acts: None,
        references: &[("/spec/eventSources", "", ReferenceForm::Event)],
        targets: &[],
    },
    CheckedFields {
        group: "source.extensions.fluxcd.io",
        resource: "artifactgenerators",
        acts: None,
        references: &[("/spec/sources", "", ReferenceForm::Sources)],
        targets: &[],
    },
    CheckedFields {
        group: "image.toolkit.fluxcd.io",
        resource: "imageupdateautomations",
        acts: None,
        references: &[("/spec/sourceRef", "GitRepository", ReferenceForm::Source)],
        targets: &[],
    },
    CheckedFields {
        group: "image.toolkit.fluxcd.io",
        resource: "imagepolicies",
        acts: None,
        references: &[("/spec/imageRepositoryRef", "ImageRepository", ReferenceForm::Source)],
        targets: &[],
    },
    source(
        SOURCES,
        "gitrepositories",
        &[VERIFY, ("/spec/include", "", ReferenceForm::Local("repository"))],
    ),
    source(SOURCES, "ocirepositories", &[VERIFY]),
    source(SOURCES, "buckets", &[]),
    source(SOURCES, "helmcharts", &[VERIFY]),
    source(SOURCES, "helmrepositories", &[]),
    source("image.toolkit.fluxcd.io", "imagerepositories", &[]),
];

/// The group of sources.
const SOURCES: &str = "source.toolkit.fluxcd.io";
/// The keys with which a source is verified.
const VERIFY: (&str, &str, ReferenceForm) = ("/spec/verify/secretRef", "", ReferenceForm::Local(""));

/// Returns the checked fields of a source: its references stay in its namespace.
const fn source(
    group: &'static str,
    resource: &'static str,
    references: &'static [(&'static str, &'static str, ReferenceForm)],
) -> CheckedFields {
    CheckedFields {
        group,
        resource,
        acts: None,
        references,
        targets: &[],
    }
}

/// Checks whether objects of this resource have checked fields.
pub(super) fn is_judged(group: &str, resource: &str) -> bool {
    is_surface(group, resource) || find(group, resource).is_some()
}

fn find(group: &str, resource: &str) -> Option<&'static CheckedFields> {
    KINDS
        .iter()
        .find(|kind| kind.group == group && kind.resource == resource)
}

fn is_surface(group: &str, resource: &str) -> bool {
    group == "tenure.dev" && resource == "surfaces"
}

pub(super) fn check(case: Case<'_>, findings: &mut Findings) -> Result<(), Refusal> {
    let request = case.request;
    let resource = request.resource;
    if !resource.subresource.is_empty() || !request.writes() || !is_judged(resource.group, resource.name) {
        return Ok(());
    }
    let Some(tenant) = case.tenant else {
        return Ok(());
    };
    let Some(object) = request.object else { return Ok(()) };
    // Objects in deletion, and updates that change no checked field, are allowed: the removal of a finalizer must
    // succeed.
    let judged = find(resource.group, resource.name);
    let is_unchanged = request
        .old_object
        .is_some_and(|old| judged_parts(judged, old) == judged_parts(judged, object));
    if is_unchanged || object.pointer("/metadata/deletionTimestamp").is_some() {
        return Ok(());
    }
    if case.is_allowed(&Question::about_tenant(ADOPT, &tenant.name)) {
        return Ok(());
    }
    let Placement::Tenant(placement) = case.facts.find_placement(request.namespace) else {
        return Ok(());
    };
    let whole = Placement::Tenant(placement.clone());
    if is_surface(resource.group, resource.name) {
        let named = object.pointer(ACCOUNT).and_then(Value::as_str);
        return identity::decide_for_surface(&whole, request.namespace, named)
            .map(drop)
            .map_err(|denial| refuse(Rule::FluxAccount, denial, "make it as the message says"));
    }
    let Some(judged) = judged else { return Ok(()) };
    judge_shard(tenant, object, findings)?;
    if let Some(kind) = judged.acts {
        judge_account(case, (&placement, kind), object, findings)?;
    }
    judge_references(case, &whole, judged, object)?;
    for path in judged.targets {
        let target = object
            .pointer(path)
            .and_then(Value::as_str)
            .filter(|target| !target.is_empty());
        if let Some(target) = target {
            let checked = write_scope::check_target_namespace(&whole, target);
            checked
                .map_err(|denial| refuse(Rule::FluxReferences, denial, "name one of the tenant's own namespaces"))?;
        }
    }
    Ok(())
}

/// Returns the checked fields of an object. A suspension or another interval changes none of them.
fn judged_parts<'a>(judged: Option<&CheckedFields>, object: &'a Value) -> (Vec<Option<&'a Value>>, Option<&'a str>) {
    let references = judged
        .map_or(&[][..], |judged| judged.references)
        .iter()
        .map(|(path, _, _)| *path);
    let targets = judged.map_or(&[][..], |judged| judged.targets).iter().copied();
    let paths = std::iter::once(ACCOUNT).chain(references).chain(targets);
    (paths.map(|path| object.pointer(path)).collect(), shard_of(object))
}

/// Returns the value of the shard label.
fn shard_of(object: &Value) -> Option<&str> {
    object.pointer("/metadata/labels")?.get(SHARDING_KEY)?.as_str()
}

fn refuse(rule: Rule, denial: Denial, remedy: &str) -> Refusal {
    Refusal {
        rule,
        why: denial.message,
        remedy: remedy.to_owned(),
    }
}

/// Checks that the shard is the Tenant's. A writer of the label would otherwise choose the
/// controller that acts.
fn judge_shard(tenant: &TenantFacts, object: &Value, findings: &mut Findings) -> Result<(), Refusal> {
    match (shard_of(object), tenant.shard.as_deref()) {
        (None, Some(shard)) => {
            findings.changes.push(Change::Label {
                key: SHARDING_KEY,
                value: shard.to_owned(),
            });
            Ok(())
        }
        (Some(named), shard) if Some(named) != shard => Err(Refusal {
            rule: Rule::FluxShard,
            why: format!(
                "the label {SHARDING_KEY}={named} is not the label of Tenant {}",
                tenant.name
            ),
            remedy: "remove the label: the Tenant decides the shard".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Checks that the object names the account of [`name_account`], and no other.
fn judge_account(
    case: Case<'_>,
    (placement, kind): (&TenantPlacement, ActingKind),
    object: &Value,
    findings: &mut Findings,
) -> Result<(), Refusal> {
    let namespace = case.request.namespace;
    let own = placement.gitops.as_ref().map(ServiceAccountName::as_str);
    let home = (placement.home.as_str(), own.ok());
    let account = match (name_account(case.facts.settings(), kind, namespace, home), own) {
        (None, Err(denial)) => return Err(refuse(Rule::FluxAccount, denial.clone(), "ask an administrator")),
        (account, _) => account.unwrap_or_default().to_owned(),
    };
    let named = object.pointer(ACCOUNT).and_then(Value::as_str);
    match named.filter(|named| !named.is_empty()) {
        None => {
            findings.changes.push(Change::SpecField {
                key: "serviceAccountName",
                value: Value::from(account),
            });
            Ok(())
        }
        Some(named) if named != account => Err(Refusal {
            rule: Rule::FluxAccount,
            why: format!(
                "spec.serviceAccountName: in namespace {namespace} Tenant {} acts as {account}, not as {named}",
                placement.tenant
            ),
            remedy: format!("write {account}, or remove the field; only an administrator sets another one"),
        }),
        Some(_) => Ok(()),
    }
}

fn judge_references(
    case: Case<'_>,
    placement: &Placement,
    judged: &CheckedFields,
    object: &Value,
) -> Result<(), Refusal> {
    let namespace = case.request.namespace;
    let referrer = Referrer {
        namespace,
        placement,
        grants: &case.facts.settings().reference_grants,
    };
    for (path, default_kind, way) in judged.references {
        let found = object.pointer(path);
        let all = match found {
            Some(Value::Array(all)) => all.as_slice(),
            Some(one) => std::slice::from_ref(one),
            None => &[],
        };
        for (index, one) in all.iter().enumerate() {
            if let ReferenceForm::Local(field) = way {
                check_local(namespace, (one, field), &describe_path(path, index, found))?;
                continue;
            }
            let text = |key: &str| one.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
            let (kind, name) = (text("kind").unwrap_or(default_kind), text("name").unwrap_or_default());
            let other = text("namespace");
            let checked = match way {
                ReferenceForm::Source | ReferenceForm::Sources => reference::check_source(referrer, kind, other, name),
                ReferenceForm::Dependency => reference::check_dependency(referrer, other, name),
                ReferenceForm::Event => reference::check_event_source(placement, namespace, other, (kind, name)),
                ReferenceForm::Request => reference::check_receiver_resource(placement, namespace, other, (kind, name)),
                ReferenceForm::Local(_) => Ok(()),
            };
            checked.map_err(|denial| Refusal {
                rule: Rule::FluxReferences,
                why: format!("{}: {}", describe_path(path, index, found), denial.message),
                remedy: "refer to the tenant's own namespaces, or ask an administrator to grant it".to_owned(),
            })?;
        }
    }
    Ok(())
}

/// Checks that a reference within the namespace names no other namespace.
fn check_local(namespace: &str, (one, field): (&Value, &str), path: &str) -> Result<(), Refusal> {
    let target = if field.is_empty() { Some(one) } else { one.get(field) };
    let other = target
        .and_then(|target| target.get("namespace"))
        .and_then(Value::as_str);
    match other.filter(|other| !other.is_empty() && *other != namespace) {
        None => Ok(()),
        Some(other) => Err(Refusal {
            rule: Rule::FluxReferences,
            why: format!("{path}: it names namespace {other}, and references must stay in namespace {namespace}"),
            remedy: "remove the namespace".to_owned(),
        }),
    }
}

/// Returns a path in the notation `spec.dependsOn[1]`.
fn describe_path(path: &str, index: usize, found: Option<&Value>) -> String {
    let path = path.trim_start_matches('/').replace('/', ".");
    match found {
        Some(Value::Array(_)) => format!("{path}[{index}]"),
        _ => path,
    }
}
