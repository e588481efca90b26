//! Facts that change one at a time. They equal the facts of a whole tenancy, and each change reports the Tenants and
//! namespaces that it concerns.

use std::collections::{BTreeMap, BTreeSet};

use tenure_tenancy::placement::TenantOwnerReference;
use tenure_tenancy::termination::Termination;
use tenure_tenancy::{FactIndex, NamespaceFacts, Placement, Settings, TenancyFacts, TenantFacts};

const TENANTS: [&str; 4] = ["red", "blue", "green", "grey"];
const NAMESPACES: [&str; 8] = [
    "red",
    "blue",
    "green",
    "shared",
    "kube-system",
    "default",
    "tenure-system",
    "lost",
];
const CHANGES: usize = 20_000;

/// Random numbers, the same in each run (xorshift).
struct Dice(u64);

impl Dice {
    fn pick_below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }

    fn one<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.pick_below(all.len())]
    }

    fn tenant(&mut self, name: &str) -> TenantFacts {
        TenantFacts {
            name: name.to_owned(),
            uid: format!("{name}-{}", self.pick_below(2)),
            home_namespace: (self.pick_below(2) == 0).then(|| self.one(&NAMESPACES).to_owned()),
            cordoned: self.pick_below(4) == 0,
            recorded: self.record(),
            deleting: self.pick_below(4) == 0,
            ..TenantFacts::default()
        }
    }

    /// Returns some namespaces with possible uids.
    fn record(&mut self) -> BTreeMap<String, String> {
        let mut recorded = BTreeMap::new();
        for name in NAMESPACES {
            if self.pick_below(2) == 0 {
                recorded.insert(name.to_owned(), format!("u{}", self.pick_below(2)));
            }
        }
        recorded
    }

    fn namespace(&mut self, name: &str) -> NamespaceFacts {
        let label = (self.pick_below(4) > 0).then(|| self.one(&TENANTS).to_owned());
        let owner = |dice: &mut Self| {
            let named = dice.one(&TENANTS);
            let name = label
                .clone()
                .filter(|_| dice.pick_below(4) > 0)
                .unwrap_or_else(|| named.to_owned());
            let uid = format!("{name}-{}", dice.pick_below(2));
            TenantOwnerReference { name, uid }
        };
        let owners = [0, 1, 1, 1, 2][self.pick_below(5)];
        let tenant_owners = (0..owners).map(|_| owner(self)).collect();
        NamespaceFacts {
            name: name.to_owned(),
            uid: format!("u{}", self.pick_below(2)),
            tenant_label: label,
            tenant_owners,
            shard: None,
            mintable: BTreeSet::new(),
            creation_proof: None,
            deleting: self.pick_below(6) == 0,
        }
    }
}

/// The answers to every question about facts.
#[derive(PartialEq)]
struct Answers {
    namespaces: BTreeMap<&'static str, (Placement, Option<Termination>)>,
    tenants: BTreeMap<&'static str, Option<TenancyFacts>>,
}

impl Answers {
    fn collect(facts: &FactIndex) -> Self {
        Self {
            namespaces: NAMESPACES
                .map(|name| (name, (facts.find_placement(name), facts.find_termination(name))))
                .into(),
            tenants: TENANTS
                .map(|name| (name, facts.find_tenant(name).map(|tenant| facts.extract(tenant))))
                .into(),
        }
    }
}

#[test]
fn change_affects_only_reported_tenants_and_namespaces() {
    let mut dice = Dice(0x5eed);
    let mut facts = FactIndex::new(Settings::default());
    let mut before = Answers::collect(&facts);
    let (mut concerned_tenants, mut changed_tenants) = (0, 0);
    for _ in 0..CHANGES {
        let is_there = dice.pick_below(5) > 0;
        let concerned = if dice.pick_below(3) == 0 {
            let name = dice.one(&TENANTS);
            let new = is_there.then(|| dice.tenant(name));
            facts.change_tenant(name, new)
        } else {
            let name = dice.one(&NAMESPACES);
            let new = is_there.then(|| dice.namespace(name));
            facts.change_namespace(name, new)
        };
        let after = Answers::collect(&facts);
        for name in NAMESPACES {
            let is_same = before.namespaces[name] == after.namespaces[name];
            assert!(is_same || concerned.namespaces.contains(name), "{name}: {concerned:?}");
        }
        for name in TENANTS {
            let is_same = before.tenants[name] == after.tenants[name];
            assert!(is_same || concerned.tenants.contains(name), "{name}: {concerned:?}");
            concerned_tenants += usize::from(concerned.tenants.contains(name));
            changed_tenants += usize::from(!is_same);
        }
        assert!(!concerned.is_empty() || before == after);
        before = after;
    }
    // An answer that always concerns everything would pass, too.
    assert!(
        changed_tenants > CHANGES / 4 && concerned_tenants < changed_tenants * 5 / 4,
        "{concerned_tenants} were concerned, {changed_tenants} changed"
    );
}

/// Returns the Tenant that a namespace names in both places, by reading all Tenants.
fn look_for_tenant<'a>(tenancy: &'a TenancyFacts, name: &str) -> Option<&'a TenantFacts> {
    let namespace = tenancy.namespaces.iter().find(|namespace| namespace.name == name)?;
    let owner = match namespace.tenant_owners.as_slice() {
        [owner] => owner,
        // The label alone is a claim, too.
        [] => {
            let label = namespace.tenant_label.as_ref()?;
            let tenant = tenancy.tenants.iter().find(|tenant| tenant.name == *label)?;
            let is_takeable = !tenant.uid.is_empty() && !tenancy.settings.is_protected(name);
            return is_takeable.then_some(tenant);
        }
        _ => return None,
    };
    let is_named = namespace.tenant_label.as_ref() == Some(&owner.name) && !owner.uid.is_empty();
    let mut tenants = tenancy.tenants.iter();
    let tenant = tenants.find(|tenant| tenant.name == owner.name && tenant.uid == owner.uid)?;
    (is_named && !tenancy.settings.is_protected(name)).then_some(tenant)
}

#[test]
fn incremental_changes_equal_full_rebuild() {
    let mut dice = Dice(0xfac7);
    let mut facts = FactIndex::new(Settings::default());
    for round in 0..CHANGES / 10 {
        match round % 3 {
            0 => {
                let name = dice.one(&TENANTS);
                let new = (dice.pick_below(5) > 0).then(|| dice.tenant(name));
                facts.change_tenant(name, new);
            }
            _ => {
                let name = dice.one(&NAMESPACES);
                let new = (dice.pick_below(5) > 0).then(|| dice.namespace(name));
                facts.change_namespace(name, new);
            }
        }
        let tenancy = facts.to_tenancy_facts();
        let again = FactIndex::from_facts(&tenancy);
        assert!(Answers::collect(&facts) == Answers::collect(&again));
        for name in NAMESPACES {
            assert_eq!(tenancy.find_placement(name), facts.find_placement(name));
            assert_eq!(tenancy.find_termination(name), facts.find_termination(name));
            assert_eq!(facts.tenant_of(name), look_for_tenant(&tenancy, name), "{name}");
        }
        // The extract for a Tenant is enough for all decisions about it.
        for tenant in TENANTS.iter().filter_map(|name| facts.find_tenant(name)) {
            let part = facts.extract(tenant);
            assert_eq!(part.namespaces_of(tenant), tenancy.namespaces_of(tenant));
            assert_eq!(part.claims_of(tenant), tenancy.claims_of(tenant));
            let candidates = part
                .namespaces
                .iter()
                .filter(|namespace| namespace.tenant_label.as_ref() == Some(&tenant.name));
            for name in candidates
                .map(|namespace| namespace.name.as_str())
                .chain([tenant.home()])
            {
                let judge = |tenancy: &TenancyFacts| tenure_tenancy::check_takeable(tenancy, tenant, name);
                assert_eq!(judge(&part), judge(&tenancy), "{name} of {}", tenant.name);
            }
        }
    }
}

/// Three things must agree, and each has another writer.
#[test]
fn namespace_belongs_to_tenant_only_by_recorded_uid() {
    let mut dice = Dice(0xdeed);
    let mut facts = FactIndex::new(Settings::default());
    let (mut placed, mut only_claimed) = (0, 0);
    for round in 0..CHANGES {
        if round % 3 == 0 {
            let name = dice.one(&TENANTS);
            let new = (dice.pick_below(5) > 0).then(|| dice.tenant(name));
            facts.change_tenant(name, new);
        } else {
            let name = dice.one(&NAMESPACES);
            let new = (dice.pick_below(5) > 0).then(|| dice.namespace(name));
            facts.change_namespace(name, new);
        }
        for name in NAMESPACES {
            let claimed = facts.tenant_of(name);
            let known = facts.find_namespace(name);
            let is_recorded = claimed
                .zip(known)
                .is_some_and(|(tenant, known)| tenant.recorded.get(name) == Some(&known.uid));
            match facts.find_placement(name) {
                Placement::Tenant(placement) => {
                    placed += 1;
                    let tenant = claimed.unwrap();
                    assert!(is_recorded && !tenant.deleting, "{name}: {placement:?}");
                    assert_eq!(placement.tenant.as_str(), tenant.name);
                    for other in &placement.namespaces {
                        let other = facts.find_namespace(other.as_str()).unwrap();
                        assert!(tenant.has_recorded(other));
                        assert_eq!(facts.tenant_of(&other.name), Some(tenant));
                    }
                }
                Placement::Disputed { .. } => only_claimed += usize::from(claimed.is_some() && !is_recorded),
                _ => assert!(claimed.is_none(), "{name}"),
            }
            let is_protected = ["kube-system", "default", "tenure-system"].contains(&name);
            assert!(!is_protected || claimed.is_none(), "{name}");
        }
    }
    assert!(
        placed > CHANGES / 10 && only_claimed > CHANGES / 10,
        "{placed}, {only_claimed}"
    );
}
