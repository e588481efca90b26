//! The cases that rules deny and no policy does, with the reason why no expression can decide them.
//!
//! docs/reference/admission.md has this list as a column, and the tests of policies read it, so that no other case is left.

use std::collections::BTreeSet;

use tenure_api::ObjectId;
use tenure_api::tenant::{IngressOptions, TenantBounds};

use super::super::classes::USES;
use super::super::package::is_hidden_from_policies;
use super::super::{Refusal, Request, Rule};
use super::hand_edit_denials::find_place;

/// A case that a rule denies and no policy does, since an expression can't decide it.
#[derive(Clone, Copy, Debug)]
pub struct PolicyGap {
    /// The rule.
    pub rule: Rule,
    /// The reason why no policy decides it.
    pub why: &'static str,
    is_it: fn(&Request<'_>, &Refusal) -> bool,
}

const LABELS: &str = "no namespace has the labels of a class";
const SUM: &str = "a sum";
const COLLISION: &str = "a collision";
const MENTION: &str = "no namespace has the list of objects that name it";

/// All such cases, in the order of the rules.
pub const LEFT: [PolicyGap; 19] = [
    PolicyGap {
        rule: Rule::NamespaceMembership,
        why: "no namespace has the uid of a Tenant",
        is_it: |_, refusal| refusal.why.contains("the uid in an ownerReference"),
    },
    PolicyGap {
        rule: Rule::NamespaceMembership,
        why: COLLISION,
        is_it: |_, refusal| refusal.why.contains("is the home namespace of another Tenant"),
    },
    PolicyGap {
        rule: Rule::NamespaceMembership,
        why: "no namespace has the fact that a Tenant is being deleted",
        is_it: |_, refusal| refusal.why.ends_with("is being deleted"),
    },
    PolicyGap {
        rule: Rule::NamespaceMembership,
        why: MENTION,
        is_it: |_, refusal| refusal.why.contains(" names namespace "),
    },
    PolicyGap {
        rule: Rule::NamespaceOptions,
        why: SUM,
        is_it: |_, refusal| refusal.why.contains("of at most"),
    },
    PolicyGap {
        rule: Rule::NamespaceOptions,
        why: "no namespace has the rule how names begin",
        is_it: |_, refusal| refusal.why.contains("begin with") || refusal.why.contains("the beginning of the name"),
    },
    PolicyGap {
        rule: Rule::NamespaceOptions,
        why: "a new namespace has no facts yet",
        is_it: |request, refusal| request.old_object.is_none() && refusal.why.contains("on its namespaces"),
    },
    PolicyGap {
        rule: Rule::GitManaged,
        why: "an object without a namespace has no facts",
        is_it: |request, _| find_object(request).is_some_and(|id| id.namespace.is_empty() && find_place(&id).is_none()),
    },
    PolicyGap {
        rule: Rule::GitManaged,
        why: "kube-* namespaces have no facts",
        is_it: |request, _| {
            find_object(request).is_some_and(|id| !id.namespace.is_empty() && find_place(&id).is_none())
        },
    },
    PolicyGap {
        rule: Rule::PriorityClasses,
        why: LABELS,
        is_it: is_of_labels,
    },
    PolicyGap {
        rule: Rule::RuntimeClasses,
        why: LABELS,
        is_it: is_of_labels,
    },
    PolicyGap {
        rule: Rule::StorageClasses,
        why: LABELS,
        is_it: is_of_labels,
    },
    PolicyGap {
        rule: Rule::PersistentVolumes,
        why: "a namespace that does not exist is no parameter of a policy",
        is_it: |_, refusal| refusal.why.starts_with("spec.claimRef"),
    },
    PolicyGap {
        rule: Rule::IngressOptions,
        why: LABELS,
        is_it: is_of_labels,
    },
    PolicyGap {
        rule: Rule::IngressOptions,
        why: COLLISION,
        is_it: |_, refusal| refusal.why.contains("allows no two Ingresses"),
    },
    PolicyGap {
        rule: Rule::ResourceQuotas,
        why: SUM,
        is_it: |_, _| true,
    },
    PolicyGap {
        rule: Rule::Tenant,
        why: COLLISION,
        is_it: |_, refusal| {
            refusal.why.contains("it is that of Tenant") || refusal.why.contains("it is a namespace of")
        },
    },
    PolicyGap {
        rule: Rule::Tenant,
        why: MENTION,
        is_it: |_, refusal| refusal.why.contains(" names namespace "),
    },
    PolicyGap {
        rule: Rule::FieldOwnership,
        why: "an update within the same second, by a client that calls itself as an older release's chart did",
        is_it: |request, refusal| refusal.remedy.contains("PackageValues") && is_hidden_from_policies(request),
    },
];

/// Returns the plural names of resources for which policies leave some of these bounds unchecked: classes by their labels, and hosts that other
/// Ingresses have.
#[must_use]
pub fn list_gap_resources(bounds: &TenantBounds) -> BTreeSet<&'static str> {
    let by_labels = USES.iter().filter(|class_use| {
        let classes = (class_use.find)(bounds);
        classes.is_some_and(|classes| classes.selector().is_some())
    });
    let mut left: BTreeSet<&'static str> = by_labels.map(|class_use| class_use.resource).collect();
    let ingress = bounds.ingress_options.as_ref();
    if ingress.and_then(IngressOptions::collision_scope).is_some() {
        left.insert("ingresses");
    }
    left
}

/// Checks whether a class was denied by its name and its labels.
fn is_of_labels(_: &Request<'_>, refusal: &Refusal) -> bool {
    refusal.why.contains("nor by its labels")
}

fn find_object(request: &Request<'_>) -> Option<ObjectId> {
    ObjectId::from_object(request.old_object.or(request.object)?).ok()
}

/// Returns the reason why policies can't deny a request that a rule denies. Returns none if they
/// must deny it.
#[must_use]
pub fn find_policy_gap(request: &Request<'_>, refusal: &Refusal) -> Option<&'static PolicyGap> {
    let mut of_rule = LEFT.iter().filter(|left| left.rule == refusal.rule);
    of_rule.find(|left| (left.is_it)(request, refusal))
}
