//! The origin of an object: its owner, the Kustomization that applied it and its identity, the source and revision, the Surface that generated that Kustomization, and
//! the owner of them all. Of an object of a chart: the HelmRelease that installed it, the chart, and the Package that generated the HelmRelease (`helm`).
//!
//! A claim needs a proof, because any editor of an object writes its labels. A Kustomization or HelmRelease counts if the inventory in its status lists the object, and
//! if objects of its namespace may apply there. An object counts as the owner if it has the uid in the ownerReference. An unconfirmed claim is reported as a doubt, and
//! never taken for an answer.

mod helm;

use serde::{Serialize, Serializer};
use serde_json::Value;
use tenure_api::metadata::SURFACE_LABEL;
use tenure_api::{ObjectId, ObjectView, Surface};
use tenure_tenancy::{Placement, inventory, owner};

pub use helm::{describe_installation, find_component};

use crate::object_facts::{
    DescribedState, Findings, KUSTOMIZE_GROUP, MissingFacts, RelatedNamespaces, TENURE_GROUP, describe_identity,
    find_other_cluster, find_source, is_helm_release, is_kustomization, is_source, is_surface, show_url,
};
use tenure_planner::answer::Live;
use tenure_planner::cycle::describe_cycle;
use tenure_planner::surface::{name_kustomizations, name_repository};

/// The number of steps upwards.
const MOST_STEPS: usize = 16;

/// The origin of an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    /// The answer in a word.
    pub verdict: Verdict,
    /// The answer in a sentence.
    pub summary: String,
    /// Claims of an object that nothing confirms.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
    /// The object, and the objects behind it.
    pub links: Vec<Link>,
    /// The owner of the object.
    pub owner: String,
}

/// Whether anything here manages an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// An object manages it, and its own data confirm that.
    Managed,
    /// The object names a manager, and the named object doesn't confirm that.
    Unconfirmed,
    /// The object names a manager, and the user may not read the named object.
    Unknown,
    /// Nothing manages the object.
    Unmanaged,
}

/// One step of the path.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// The relation of this step to the previous one.
    pub role: Role,
    /// `Kind/namespace/name`.
    pub object: String,
    /// The id of the object.
    #[serde(skip)]
    pub id: ObjectId,
    /// The state of the object.
    #[serde(flatten)]
    pub object_state: DescribedState,
    /// Further details, by names in camel case.
    #[serde(serialize_with = "write_details", skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<(&'static str, String)>,
}

/// The relation of a step of the path to the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Role {
    /// The object of the question.
    Object,
    /// Owner of the previous object, as a Deployment owns its Pods.
    Owner,
    /// The object that applied the previous one.
    Applier,
    /// The HelmRelease that installed the previous object.
    Installer,
    /// The chart of the previous object.
    Chart,
    /// The source of the previous object.
    Source,
    /// The object that generated the previous one.
    Generator,
    /// The PackageValues that change the previous Package.
    Values,
}

impl Role {
    /// Whether the step is beside the path: it supplies content, and manages nothing.
    #[must_use]
    pub fn is_supply(self) -> bool {
        matches!(self, Self::Chart | Self::Source | Self::Values)
    }
}

fn write_details<S: Serializer>(details: &[(&'static str, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(details.iter().map(|(name, value)| (name, value)))
}

/// The result of checking an object's claim about its manager, such as a label or an ownerReference.
enum Claim {
    Confirmed {
        by: ObjectId,
        role: Role,
        remark: Option<String>,
    },
    Refuted(String),
    Unknown(String),
}

/// Traces the origin of an object, or returns the fact that has to be read first.
///
/// # Errors
/// The objects or facts to look at next.
pub fn trace_origin(start: &ObjectId, found: &Findings) -> Result<Trace, MissingFacts> {
    let mut trace = Trace {
        verdict: Verdict::Unmanaged,
        summary: String::new(),
        doubts: Vec::new(),
        links: Vec::new(),
        owner: String::new(),
    };
    let mut way = vec![start.clone()];
    let mut role = Role::Object;
    let mut remark = None;
    let (mut is_refuted, mut is_unknown) = (false, false);
    while let Some(current) = way.last().cloned() {
        let live = found.find_object(&current)?;
        trace.links.push(found.describe(&current, live, role, remark.take())?);
        let Some(object) = live.object() else { break };
        if is_kustomization(&current)
            && let Some(source) = find_source(object)
        {
            let live = found.find_object(&source)?;
            trace.links.push(found.describe(&source, live, Role::Source, None)?);
        }
        for (role, supply) in helm::list_supplies(&current, object, found)? {
            let live = found.find_object(&supply)?;
            trace.links.push(found.describe(&supply, live, role, None)?);
        }
        let mut next = None;
        for claim in list_claims(&current, object, found)? {
            match claim {
                Claim::Confirmed { by, role, remark } if next.is_none() => next = Some((by, role, remark)),
                Claim::Confirmed { .. } => {}
                Claim::Refuted(doubt) => {
                    is_refuted = true;
                    trace.doubts.push(doubt);
                }
                Claim::Unknown(doubt) => {
                    is_unknown = true;
                    trace.doubts.push(doubt);
                }
            }
        }
        let Some((by, new_role, new_remark)) = next else { break };
        if new_role != Role::Owner && trace.verdict != Verdict::Managed {
            trace.verdict = Verdict::Managed;
            trace.summary = format!("{} is managed by {}.", start.subject(), by.subject());
        }
        let is_ring = way.contains(&by);
        way.push(by);
        if is_ring {
            let names: Vec<String> = way.iter().map(ObjectId::subject).collect();
            trace
                .doubts
                .push(format!("it is part of a cycle: {}", describe_cycle(&names)));
            break;
        }
        if way.len() > MOST_STEPS {
            trace
                .doubts
                .push(format!("only the first {MOST_STEPS} steps were read"));
            break;
        }
        (role, remark) = (new_role, new_remark);
    }
    if trace.verdict != Verdict::Managed {
        let (verdict, rest) = if is_unknown {
            (Verdict::Unknown, "it is unknown whether anything here manages it")
        } else if is_refuted {
            (
                Verdict::Unconfirmed,
                "nothing here manages it, although its labels name a manager",
            )
        } else {
            (Verdict::Unmanaged, "nothing here manages it")
        };
        trace.verdict = verdict;
        trace.summary = format!("{}: {rest}.", start.subject());
    }
    trace.owner = found.describe_owner(&way)?;
    Ok(trace)
}

impl Findings {
    fn find_object(&self, id: &ObjectId) -> Result<&Live, MissingFacts> {
        self.objects.get(id).ok_or_else(|| MissingFacts::Object(id.clone()))
    }

    fn find_placement(&self, namespace: &str, other: &str) -> Result<Result<&Placement, &str>, MissingFacts> {
        let neighbours = RelatedNamespaces {
            namespace: namespace.to_owned(),
            other: if other == namespace {
                String::new()
            } else {
                other.to_owned()
            },
        };
        match self.placements.get(&neighbours) {
            Some(placement) => Ok(placement.as_ref().map_err(String::as_str)),
            None => Err(MissingFacts::Placement(neighbours)),
        }
    }

    fn describe(&self, id: &ObjectId, live: &Live, role: Role, remark: Option<String>) -> Result<Link, MissingFacts> {
        let mut details = Vec::new();
        if let Some(object) = live.object() {
            let view = ObjectView::new(object);
            let mut add = |name: &'static str, value: Option<String>| {
                details.extend(value.filter(|value| !value.is_empty()).map(|value| (name, value)));
            };
            let text = |path: &str| view.find_text(path).map(str::to_owned);
            if is_kustomization(id) {
                let placement = self.find_placement(&id.namespace, "")?;
                add("appliedAs", Some(describe_identity(placement, object, &id.namespace)));
                add("path", text("/spec/path"));
                add("cluster", find_other_cluster(view));
                add("appliedRevision", text("/status/lastAppliedRevision"));
                add("originRevision", text("/status/lastAppliedOriginRevision"));
                let attempted = text("/status/lastAttemptedRevision");
                add(
                    "attemptedRevision",
                    attempted
                        .filter(|attempted| Some(attempted.as_str()) != view.find_text("/status/lastAppliedRevision")),
                );
            } else if is_source(id) {
                add("url", show_url(view));
                add("bucket", text("/spec/bucketName"));
                for (name, path) in [
                    ("commit", "/spec/ref/commit"),
                    ("reference", "/spec/ref/name"),
                    ("semver", "/spec/ref/semver"),
                    ("digest", "/spec/ref/digest"),
                    ("tag", "/spec/ref/tag"),
                    ("branch", "/spec/ref/branch"),
                ] {
                    add(name, text(path));
                }
                add("revision", text("/status/artifact/revision"));
                add(
                    "originRevision",
                    text("/status/artifact/metadata/org.opencontainers.image.revision"),
                );
                if role == Role::Chart {
                    add("digest", text("/status/artifact/digest"));
                }
            } else if is_surface(id) {
                add("tier", text("/status/tier"));
                add("identity", text("/status/identity"));
            }
            helm::list_details(id, view, &mut add);
            let ready = view.find_condition(tenure_api::condition::READY);
            add("since", ready.map(|ready| ready.last_transition_time.to_owned()));
        }
        details.extend(remark.map(|remark| ("remark", remark)));
        Ok(Link {
            role,
            object: id.subject(),
            id: id.clone(),
            object_state: DescribedState::describe(live),
            details,
        })
    }

    /// Describes the owner of the path: by the namespace of the first reconciled object on it, or else of the object itself.
    fn describe_owner(&self, way: &[ObjectId]) -> Result<String, MissingFacts> {
        let is_reconciled =
            |id: &&ObjectId| is_kustomization(id) || is_surface(id) || is_source(id) || is_helm_release(id);
        let first = way.iter().find(is_reconciled).or(way.first());
        let Some(namespace) = first.map(|id| id.namespace.as_str()).filter(|name| !name.is_empty()) else {
            return Ok("it is in no namespace, and so no tenant's".to_owned());
        };
        Ok(match self.find_placement(namespace, "")? {
            Ok(Placement::Platform { .. }) => format!("namespace {namespace} is the platform's"),
            Ok(Placement::Tenant(tenant)) => format!("namespace {namespace} belongs to Tenant {}", tenant.tenant),
            Ok(Placement::Unclaimed { .. }) => format!("namespace {namespace} belongs to no Tenant"),
            Ok(Placement::Disputed { message }) => {
                format!("the tenant of namespace {namespace} is in dispute: {message}")
            }
            Err(why) => format!("the tenant of namespace {namespace} is unknown: {why}"),
        })
    }
}

/// Lists an object's claims about its manager, each with the result of its check.
fn list_claims(id: &ObjectId, object: &Value, found: &Findings) -> Result<Vec<Claim>, MissingFacts> {
    let mut claims = Vec::new();
    if let Some((namespace, name)) = owner::read_owner_labels(object) {
        let named = make_id(namespace, name, KUSTOMIZE_GROUP, "Kustomization");
        claims.push(match named {
            None => Claim::Refuted(format!(
                "the labels of {} name a Kustomization that can't be one",
                id.subject()
            )),
            Some(named) => check_applied(id, named, found)?,
        });
    }
    claims.extend(helm::list_claims(id, object, found)?);
    claims.extend(check_owners(id, object, found)?);
    Ok(claims)
}

fn make_id(namespace: &str, name: &str, group: &str, kind: &str) -> Option<ObjectId> {
    let id = ObjectId {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        group: group.to_owned(),
        kind: kind.to_owned(),
    };
    // Any user can write these words: a name that no object can have is not looked up.
    id.to_string().parse().ok()
}

/// Checks whether the Kustomization that the object's labels name confirms that it applied the object.
fn check_applied(id: &ObjectId, named: ObjectId, found: &Findings) -> Result<Claim, MissingFacts> {
    let says = format!("the labels of {} say that {} applied it", id.subject(), named.subject());
    let kustomization = match find_claimed(&named, &says, found)? {
        Ok(object) => object,
        Err(claim) => return Ok(claim),
    };
    check_inventory(id, (named, Role::Applier), kustomization, &says, found)
}

/// Finds the object that another object names as its manager, or the result of the claim without it.
fn find_claimed<'a>(
    named: &ObjectId,
    says: &str,
    found: &'a Findings,
) -> Result<Result<ObjectView<'a>, Claim>, MissingFacts> {
    Ok(match found.find_object(named)? {
        Live::Present(object) => Ok(object.view()),
        Live::Absent => Err(Claim::Refuted(format!("{says}, which does not exist"))),
        Live::Unserved => Err(Claim::Refuted(format!(
            "{says}, and the cluster does not serve {}s",
            named.kind
        ))),
        Live::Failed(failure) => Err(Claim::Unknown(format!(
            "{says}, which can't be read: {}",
            failure.message
        ))),
    })
}

/// Checks whether the inventory of a Kustomization or HelmRelease confirms the claim of an object, and whether its namespace may apply there.
fn check_inventory(
    id: &ObjectId,
    (named, role): (ObjectId, Role),
    manager: ObjectView<'_>,
    says: &str,
    found: &Findings,
) -> Result<Claim, MissingFacts> {
    if find_other_cluster(manager).is_some() {
        return Ok(Claim::Refuted(format!("{says}, which applies to another cluster")));
    }
    let mut entries = manager.list_views("/status/inventory/entries");
    if !entries.any(|entry| {
        entry
            .read_text("/id")
            .parse::<ObjectId>()
            .is_ok_and(|entry| entry == *id)
    }) {
        return Ok(Claim::Refuted(format!("{says}, whose inventory doesn't list it")));
    }
    let mut remark = None;
    match found.find_placement(&named.namespace, &id.namespace)? {
        Ok(placement) => {
            if !owner::is_believed(placement, id)
                && let Err(denial) = inventory::check_entry(placement, id)
            {
                return Ok(Claim::Refuted(format!(
                    "{says}, and its inventory lists it, but this entry doesn't count: {denial}"
                )));
            }
        }
        Err(why) => {
            remark = Some(format!(
                "its inventory lists the object; its right to apply there is unknown, as the tenant of {} can't be read: {why}",
                named.namespace
            ));
        }
    }
    Ok(Claim::Confirmed {
        by: named,
        role,
        remark,
    })
}

/// Checks whether the owner references lead to the owners with their uids.
fn check_owners(id: &ObjectId, object: &Value, found: &Findings) -> Result<Vec<Claim>, MissingFacts> {
    let view = ObjectView::new(object);
    let Some(reference) = view
        .list_views("/metadata/ownerReferences")
        .find(|owner| owner.is_true("/controller"))
    else {
        let surface = view.find_label(SURFACE_LABEL);
        return Ok(surface
            .map(|name| {
                Claim::Refuted(format!(
                    "a label of {} names Surface {name}, which doesn't own it",
                    id.subject()
                ))
            })
            .into_iter()
            .collect());
    };
    let (group, _) = tenure_api::inventory::split_api_version(reference.read_text("/apiVersion"));
    let (kind, name) = (reference.read_text("/kind"), reference.read_text("/name"));
    let says = format!("{} says that {kind} {name} owns it", id.subject());
    // An owner is in the same namespace, or has none. The kind decides, at the lookup.
    let Some(named) = make_id(&id.namespace, name, group, kind) else {
        return Ok(vec![Claim::Refuted(format!("{says}, which can't be an object"))]);
    };
    let claim = match found.find_object(&named)? {
        Live::Absent => Claim::Refuted(format!("{says}, which does not exist")),
        Live::Unserved => Claim::Refuted(format!("{says}, whose kind the cluster does not serve")),
        Live::Failed(failure) => Claim::Unknown(format!("{says}, which can't be read: {}", failure.message)),
        Live::Present(owner) => {
            let uid = reference.read_text("/uid");
            if uid.is_empty() || owner.view().read_text("/metadata/uid") != uid {
                Claim::Refuted(format!("{says}, and means another one of that name, which is gone"))
            } else if (group, kind) == (TENURE_GROUP, "Surface") {
                check_generated(id, named, &owner.0, &says)
            } else {
                Claim::Confirmed {
                    by: named,
                    role: Role::Owner,
                    remark: None,
                }
            }
        }
    };
    Ok(vec![claim])
}

/// Checks whether a Surface generates the object that claims so.
fn check_generated(id: &ObjectId, surface: ObjectId, object: &Value, says: &str) -> Claim {
    let Ok(whole) = serde_json::from_value::<Surface>(object.clone()) else {
        return Claim::Unknown(format!("{says}, which can't be read"));
    };
    let is_named = whole.spec.sources.iter().any(|source| match id.kind.as_str() {
        "GitRepository" => name_repository(&surface.name, &source.name) == id.name,
        "Kustomization" => name_kustomizations(&surface.name, source).contains(&id.name),
        _ => false,
    });
    if !is_named {
        return Claim::Refuted(format!("{says}, which generates nothing of that name"));
    }
    Claim::Confirmed {
        by: surface,
        role: Role::Generator,
        remark: None,
    }
}

#[cfg(test)]
mod tests;
