//! The check whether an object may be applied, as far as other Kustomizations are concerned, and the message if it may not. `tenancy` decides the owner. This module
//! adds the rules for Kustomizations of one source, between which objects move.

use std::collections::BTreeMap;

use tenure_api::{ObjectId, reason};
use tenure_tenancy::owner::{self, Precedence};

use super::context::{Context, name_subject};
use super::desired::DesiredObject;
use super::references::name_source;
use super::{outcome, remote_cluster};
use crate::outcome::join_names;
use crate::plan::{Event, EventKind, EventPlace, Stage};

/// The result of the ownership check for an object that this Kustomization wants to apply.
pub(super) enum Ownership {
    /// No other Kustomization owns the object, or this one takes precedence, or the owner drops the object.
    Free,
    /// The object may become free: the owner, named here, hasn't reached this revision yet.
    Awaited(String),
    /// Another Kustomization keeps the object.
    Kept(KeptObject),
}

/// An object that this Kustomization wants and another one keeps.
pub(super) struct KeptObject {
    /// The reason, for the status of the Kustomization that wants the object.
    why: String,
    /// The namespace, name and uid of the owner, which gets an event. Unset if the owner may not know the Kustomization that wants the object.
    tell: Option<(String, String, String)>,
}

/// Checks whether an object may be applied, as far as other Kustomizations are concerned.
pub(super) fn find_ownership(context: &Context<'_>, id: &ObjectId) -> Ownership {
    let snapshot = context.snapshot;
    let Some(rival) = snapshot.owners.get(id).and_then(|owner| snapshot.rivals.get(owner)) else {
        return Ownership::Free;
    };
    // In another cluster no namespace has an owner, and the other owner has the object in the same cluster.
    if !remote_cluster::is_elsewhere(snapshot) && !owner::is_believed(&rival.placement, id) {
        return Ownership::Free;
    }
    let asker = (&snapshot.placement, context.namespace);
    match owner::decide_precedence(asker, (&rival.placement, &rival.namespace)) {
        Precedence::Asker => return Ownership::Free,
        Precedence::Owner => {
            let message = "is already managed by another owner: rename it, or ask that owner to remove it".to_owned();
            return Ownership::Kept(KeptObject {
                why: message,
                tell: None,
            });
        }
        // An owner that is being deleted deletes or releases its objects, except an object that this Kustomization has taken over before.
        Precedence::OwnerByName if rival.leaving => return Ownership::Free,
        Precedence::OwnerByName => {}
    }
    let named = format!("Kustomization/{}/{}", rival.namespace, rival.name);
    let one_source =
        rival.namespace == context.namespace && rival.source == name_source(&context.snapshot.kustomization);
    if one_source {
        let revision = context.revision.as_deref().unwrap_or_default();
        let turnover = rival.turnover.as_ref().filter(|turnover| turnover.revision == revision);
        if turnover.is_some_and(|turnover| turnover.drops.contains(id)) {
            return Ownership::Free;
        }
        let reached = turnover.is_some() || rival.applied.as_deref() == Some(revision);
        if !reached && rival.waits_for_us {
            // The owner can't report before this Kustomization is ready. A take-over loses nothing: the owner then finds the object with another owner's labels.
            return Ownership::Free;
        }
        if !reached && !rival.idle && context.now < context.find_deadline() {
            return Ownership::Awaited(named);
        }
    }
    let tell = (rival.namespace.clone(), rival.name.clone(), rival.uid.clone());
    let message = format!(
        "is already managed by Kustomization {}/{}: take it out of one of them",
        rival.namespace, rival.name
    );
    Ownership::Kept(KeptObject {
        why: message,
        tell: Some(tell),
    })
}

/// Handles objects of the stage that belong to others; `others` lists the further problems of the stage, line by line. The condition reports them all. An owner that
/// may know is notified of the Kustomization that wants its objects.
pub(super) fn list_owned_by_others(
    context: &mut Context<'_>,
    stage: Stage,
    kept: &[(&DesiredObject, KeptObject)],
    others: Vec<String>,
) -> Box<super::Plan> {
    let mut lines: Vec<String> = kept
        .iter()
        .map(|(object, kept)| format!("{} {} ({})", object.target.id.describe(), kept.why, object.origin))
        .collect();
    lines.extend(others);
    let message = lines.join("\n");
    context.withhold(
        format!("stage {}", stage.as_str()),
        "other Kustomizations own some of its objects",
    );
    let mut listed: BTreeMap<&(String, String, String), Vec<String>> = BTreeMap::new();
    for (object, kept) in kept {
        if let Some(owner) = &kept.tell {
            listed.entry(owner).or_default().push(object.target.id.subject());
        }
    }
    let subject = name_subject(context.snapshot);
    let mut events = Vec::new();
    for ((namespace, name, uid), objects) in listed {
        events.push(Event {
            kind: EventKind::Warning,
            reason: reason::OWNED_BY_ANOTHER.to_owned(),
            message: format!(
                "{subject} contains objects that this Kustomization manages: {}. Take each of them out of one of the two",
                join_names(&objects, 700)
            ),
            annotations: BTreeMap::new(),
            place: EventPlace::Kustomization {
                namespace: namespace.clone(),
                name: name.clone(),
                uid: uid.clone(),
            },
        });
    }
    let mut plan = outcome::plan_failed(context.fork(), reason::OWNED_BY_ANOTHER, message);
    // The owner gets the event once, as this Kustomization gets its own warning once.
    if !plan.events.is_empty() {
        plan.events.extend(events);
    }
    plan
}
