//! The plot of a story, drawn from a seed: commits to a small repository, and what changes around it. Equal seeds draw equal plots.

use std::collections::{BTreeMap, BTreeSet};

use tenure_testkit::Chance;

/// A place in the repository. It has one object, or a few that come and go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Slot {
    /// An immutable ConfigMap.
    Config,
    Settings,
    Secret,
    Claim,
    Web,
    Store,
    Once,
    Reader,
    Readers,
    /// A custom object of a protected kind.
    Database,
    /// A custom object of another kind, to which an operator gives a claim.
    Keeper,
    Space,
    /// A Kustomization with the account that it acts as.
    Child,
    /// The account that applies everything, and its binding.
    Own,
}

pub(super) const SLOTS: [Slot; 14] = [
    Slot::Config,
    Slot::Settings,
    Slot::Secret,
    Slot::Claim,
    Slot::Web,
    Slot::Store,
    Slot::Once,
    Slot::Reader,
    Slot::Readers,
    Slot::Database,
    Slot::Keeper,
    Slot::Space,
    Slot::Child,
    Slot::Own,
];

impl Slot {
    /// Checks whether the kind has a field that can't be changed.
    pub(super) fn has_fixed_field(self) -> bool {
        matches!(
            self,
            Self::Config
                | Self::Claim
                | Self::Web
                | Self::Store
                | Self::Once
                | Self::Readers
                | Self::Database
                | Self::Keeper
        )
    }

    /// Checks whether objects of this kind may exist before the Kustomization applies them.
    fn can_be_adopted(self) -> bool {
        !matches!(self, Self::Child | Self::Own | Self::Keeper | Self::Once)
    }

    fn can_be_broken(self) -> bool {
        matches!(self, Self::Web | Self::Once)
    }
}

/// The content of a slot in a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Version {
    /// The value of the field that can't be changed.
    pub(super) fixed: u64,
    /// The value of a field that can be changed.
    pub(super) free: u64,
    /// The form of a field: the keys of a Secret, the source of an environment variable.
    pub(super) form: u64,
    /// Whether the API server refuses the object in any case.
    pub(super) is_broken: bool,
}

pub(super) type Content = BTreeMap<Slot, Version>;

/// A verb, and the resource on which the account lacks it.
pub(super) type Lack = (&'static str, &'static str);

#[derive(Clone, Debug)]
pub(super) enum Action {
    Commit(Content),
    /// The account has all rights but this.
    SetRights(Option<Lack>),
    SetForce(bool),
    SetPrune(bool),
    /// A finalizer of another program holds the objects of a slot.
    Hold(Slot),
    Release,
}

/// A turn of a story. After each the Kustomization comes to rest, and everything is checked.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) action: Action,
    /// Whether an administrator allows the deletions that a guard stops.
    pub(super) allows: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Plot {
    /// Whether objects are applied for which others of the stage are refused.
    pub(super) is_partial: bool,
    pub(super) force: bool,
    /// The slots whose objects `kubectl` created before the first commit.
    pub(super) adopted: BTreeSet<Slot>,
    pub(super) turns: Vec<Turn>,
}

/// The resources on which a right may be missing.
pub(super) const RESOURCES: [(&str, &str); 12] = [
    ("", "configmaps"),
    ("", "secrets"),
    ("", "serviceaccounts"),
    ("", "persistentvolumeclaims"),
    ("apps", "deployments"),
    ("apps", "statefulsets"),
    ("batch", "jobs"),
    ("rbac.authorization.k8s.io", "roles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("postgresql.cnpg.io", "clusters"),
    ("stories.example.org", "keepers"),
    ("kustomize.toolkit.fluxcd.io", "kustomizations"),
];

/// The number of forms of a slot's content.
const FORMS: u64 = 8;

impl Plot {
    pub(super) fn draw(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let has_own_rights = chance.once_in(3);
        let mut content = Content::new();
        for slot in SLOTS {
            let is_in = if slot == Slot::Own {
                has_own_rights
            } else {
                !chance.once_in(3)
            };
            if is_in {
                content.insert(slot, draw_version(&mut chance, 0, 0));
            }
        }
        let adopted: BTreeSet<Slot> = SLOTS
            .into_iter()
            .filter(|slot| slot.can_be_adopted() && chance.once_in(4))
            .collect();
        let mut plot = Self {
            is_partial: chance.once_in(6),
            force: !chance.once_in(3),
            adopted,
            turns: Vec::new(),
        };
        plot.push(Action::Commit(content.clone()), true);
        let commits = 4 + chance.draw_below(4);
        for number in 1..=commits {
            let is_held = plot.draw_circumstance(&mut chance, &content);
            content = draw_commit(&mut chance, &content, number, has_own_rights);
            let allows = chance.once_in(2);
            plot.push(Action::Commit(content.clone()), allows);
            if is_held {
                plot.push(Action::Release, allows);
            }
        }
        plot
    }

    fn push(&mut self, action: Action, allows: bool) {
        self.turns.push(Turn { action, allows });
    }

    /// Changes something around the next commit, or nothing. Returns whether objects are held.
    fn draw_circumstance(&mut self, chance: &mut Chance, content: &Content) -> bool {
        let allows = chance.once_in(3);
        let action = match chance.draw_below(8) {
            0 | 1 => {
                let (_, resource) = chance.pick(&RESOURCES).copied().unwrap();
                let verb = chance.pick(&["create", "patch", "delete"]).copied().unwrap();
                Action::SetRights(Some((verb, resource)))
            }
            2 => Action::SetRights(None),
            3 => Action::SetForce(!chance.once_in(3)),
            4 => Action::SetPrune(!chance.once_in(3)),
            5 => {
                let held = [Slot::Settings, Slot::Web, Slot::Once, Slot::Claim, Slot::Config];
                let held = held.into_iter().filter(|slot| content.contains_key(slot));
                match chance.pick(&held.collect::<Vec<_>>()) {
                    Some(slot) => {
                        self.push(Action::Hold(*slot), allows);
                        return true;
                    }
                    None => return false,
                }
            }
            _ => return false,
        };
        self.push(action, allows);
        false
    }
}

fn draw_version(chance: &mut Chance, fixed: u64, free: u64) -> Version {
    Version {
        fixed,
        free,
        form: chance.draw_below(FORMS),
        is_broken: false,
    }
}

/// Draws the next content of the repository.
fn draw_commit(chance: &mut Chance, before: &Content, number: u64, has_own_rights: bool) -> Content {
    let mut content = before.clone();
    match chance.draw_below(12) {
        0 => return Content::new(),
        1 => content.retain(|slot, _| *slot == Slot::Own || chance.once_in(5)),
        _ => {}
    }
    for version in content.values_mut() {
        if chance.once_in(2) {
            version.free = number;
        }
    }
    for _ in 0..=chance.draw_below(4) {
        let slot = *chance.pick(&SLOTS).unwrap();
        if slot == Slot::Own && !(has_own_rights && chance.once_in(2)) {
            continue;
        }
        let Some(version) = content.get_mut(&slot) else {
            let fixed = if slot.has_fixed_field() {
                chance.draw_below(4) / 2
            } else {
                0
            };
            let mut version = draw_version(chance, fixed, number);
            version.is_broken = slot.can_be_broken() && chance.once_in(6);
            content.insert(slot, version);
            continue;
        };
        match chance.draw_below(5) {
            0 => {
                content.remove(&slot);
            }
            1 | 2 if slot.has_fixed_field() => version.fixed += 1,
            3 if slot.can_be_broken() => version.is_broken = !version.is_broken,
            _ => {
                version.form = chance.draw_below(FORMS);
                version.free = number;
            }
        }
    }
    content
}
