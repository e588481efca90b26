//! The grammar of requests that `evil` sends. A story is a shuffled deck of cards, so that each plays every production at least once.

use serde_json::{Value, json};
use tenure_testkit::Chance;

use crate::cast::Scene;
use crate::productions::{PRODUCTIONS, RBAC, reference, user};

/// One card of the deck, the next request of `evil`. A production is given by its index in [`PRODUCTIONS`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Card {
    /// An object that `evil` may certainly write.
    Plain(usize),
    /// An object of a production with one change towards others.
    Near(usize),
    /// A request about an object that was admitted before.
    FollowUp(FollowUp),
    /// The next step in the life of a namespace that is created, held by a finalizer during its deletion, and re-created.
    Cycle,
    /// A namespace by a drawn name, or a change of one.
    Namespace(Change),
    /// A cluster-scoped object, which no owner may write.
    ClusterObject,
    /// A token of an account that isn't the owner's to use.
    ForeignToken,
    /// A commit to the tenant's repository.
    Commit,
    /// An answer to an access request that the tenant may not answer.
    ForeignAnswer,
}

/// A request about an admitted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowUp {
    /// Adds a label.
    Label,
    /// Applies the object by another field manager.
    Apply,
    /// Changes one field of the object towards others.
    NearChange,
    /// Adds a finalizer, deletes the object, changes it during its deletion, and removes the finalizer.
    Hold,
    /// Deletes the object.
    Delete,
    /// Writes with the token of an account that `evil` made.
    Token,
    /// Lists the objects of a kind in a namespace of `evil`, and changes one that Tenure or Kubernetes wrote.
    Found,
}

/// A request about a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Creates a namespace by a name that begins as the Tenant's.
    Create,
    /// Creates a namespace with one field changed towards others.
    CreateNear,
    /// Adds a label to a namespace of `evil`.
    Label,
    /// Changes one field of a namespace towards others, also through its status.
    Near,
    /// Deletes a namespace, mostly of another tenant.
    DeleteNear,
}

/// The number of cards of each sort in a story, in addition to one of each plain production.
const NEAR: usize = 26;
const FOLLOW_UPS: [(FollowUp, usize); 7] = [
    (FollowUp::Label, 3),
    (FollowUp::Apply, 3),
    (FollowUp::NearChange, 8),
    (FollowUp::Hold, 2),
    (FollowUp::Delete, 2),
    (FollowUp::Token, 3),
    (FollowUp::Found, 5),
];
const NAMESPACES: [(Change, usize); 5] = [
    (Change::Create, 1),
    (Change::CreateNear, 4),
    (Change::Label, 1),
    (Change::Near, 4),
    (Change::DeleteNear, 1),
];
const CYCLES: usize = 6;
const COMMITS: usize = 4;
const FOREIGN_ANSWERS: usize = 4;

/// Draws the deck of a story. A follow-up needs an earlier object, so the first cards are plain.
pub(crate) fn draw_deck(chance: &mut Chance) -> Vec<Card> {
    let count = PRODUCTIONS.len();
    let mut deck: Vec<Card> = (0..count).map(Card::Plain).collect();
    shuffle(chance, &mut deck);
    let mut rest = deck.split_off(6);
    let near = |chance: &mut Chance| {
        let place = usize::try_from(chance.draw_below(count as u64)).unwrap();
        Card::Near(place)
    };
    rest.extend((0..NEAR).map(|_| near(chance)));
    for (follow_up, times) in FOLLOW_UPS {
        rest.extend(std::iter::repeat_n(Card::FollowUp(follow_up), times));
    }
    for (change, times) in NAMESPACES {
        rest.extend(std::iter::repeat_n(Card::Namespace(change), times));
    }
    rest.extend(std::iter::repeat_n(Card::Cycle, CYCLES));
    rest.extend(std::iter::repeat_n(Card::Commit, COMMITS));
    rest.extend([Card::ClusterObject, Card::ForeignToken, Card::ForeignToken]);
    rest.extend(std::iter::repeat_n(Card::ForeignAnswer, FOREIGN_ANSWERS));
    shuffle(chance, &mut rest);
    deck.extend(rest);
    deck
}

pub(crate) fn shuffle<T>(chance: &mut Chance, items: &mut [T]) {
    for place in (1..items.len()).rev() {
        let other = usize::try_from(chance.draw_below(place as u64 + 1)).unwrap();
        items.swap(place, other);
    }
}

/// Returns the names of all productions with a plain form. Each must be admitted at least once.
pub(crate) fn list_names() -> Vec<String> {
    let mut names: Vec<String> = PRODUCTIONS.iter().map(|one| one.name.to_owned()).collect();
    let follow_ups = [
        FollowUp::Label,
        FollowUp::Apply,
        FollowUp::Hold,
        FollowUp::Delete,
        FollowUp::Token,
        FollowUp::Found,
    ];
    names.extend(follow_ups.map(|follow_up| format!("follow-up {follow_up:?}")));
    names.extend([Change::Create, Change::Label].map(|change| format!("namespace {change:?}")));
    names.push("namespace cycle".to_owned());
    names
}

/// Draws a cluster-scoped object. Its name differs from Tenure's own records about `evil`, so a stored object is a difference.
pub(crate) fn draw_cluster_object(chance: &mut Chance, scene: &Scene) -> Value {
    let subject = user(&scene.of_evil("owner"));
    let rules = json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }]);
    let object = |version: &str, kind: &str, name: &str, rest: Value| {
        let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name } });
        for (key, value) in rest.as_object().unwrap() {
            object[key] = value.clone();
        }
        object
    };
    match chance.draw_below(5) {
        0 => object(
            RBAC,
            "ClusterRoleBinding",
            "more-rights",
            json!({ "roleRef": reference("ClusterRole", "cluster-admin"), "subjects": [subject] }),
        ),
        1 => object(
            "v1",
            "PersistentVolume",
            "root-of-the-node",
            json!({ "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "hostPath": { "path": "/" } } }),
        ),
        2 => object(
            "capsule.clastix.io/v1beta2",
            "Tenant",
            &scene.of_alpha("third"),
            json!({ "spec": { "owners": [{ "kind": "User", "name": scene.of_evil("owner") }] } }),
        ),
        3 => object(RBAC, "ClusterRole", "tenure-lane", json!({ "rules": rules })),
        _ => object(RBAC, "ClusterRole", "more-rights", json!({ "rules": rules })),
    }
}
