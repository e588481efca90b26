//! What was let through in a Tenant's namespaces and may not have been counted yet.
//!
//! A status says how much is used, and not by which objects. So nobody can tell whether one that was let through has been counted: added to what
//! was counted it may count twice, left out it may count not at all. But there can be no more than there could be when the last one was let through,
//! and this one. That is kept for each namespace (`most`), beside what was let through within half a minute (`objects`), and so there is
//! at least what was counted, and at most the lesser of `most` and of what was counted with all that is kept.
//!
//! What was let through counts from then until it has been kept long enough, however often it is asked about. What was deleted meanwhile may count
//! for as long. Owns what counts, and how many bytes one tenant makes others store. Refuses to know the time.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use go_words::quantity::Quantity;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{QuotaAmount, QuotaClaim, Sums, coarse};
use crate::admission::Refusal;
use crate::admission::ledger::{KEPT, count_milliseconds};

/// How many objects may be kept in one Tenant at the same time, and how many bytes.
const MOST: usize = 512;
const LARGEST: usize = 96 << 10;

/// What was let through in one Tenant, by namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QuotaLedger(BTreeMap<String, Page>);

/// In one namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Page {
    /// How much there can be, at most, of each resource of which something is kept.
    most: BTreeMap<String, Amount>,
    objects: BTreeMap<String, Kept>,
}

/// An object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Kept {
    /// In milliseconds since 1970.
    until: u64,
    grows: BTreeMap<String, Growth>,
}

/// From how much to how much it may have grown.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Growth(Amount, Amount);

impl Growth {
    fn by(self) -> Quantity {
        self.1.0.minus(self.0.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Amount(Quantity);

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.canonical())
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Quantity::parse(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

/// What a namespace uses of one resource.
struct Use {
    /// At most, but for the object that is asked about.
    most: Quantity,
    /// What was counted.
    counted: Quantity,
}

impl QuotaLedger {
    /// Reads what [`Display`](fmt::Display) wrote. What can't be read keeps nothing: half a minute's, at most, is lost.
    #[must_use]
    pub fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// Whether there is room. `now` is in milliseconds since 1970.
    ///
    /// # Errors
    /// There is none.
    pub fn check(&mut self, claim: &QuotaClaim, sums: &Sums, now: u64) -> Result<(), Refusal> {
        self.find_room(claim, sums, now).map(drop)
    }

    /// Lets an object through. Of one whose name is still to be made it is only said whether there is room: it is asked about again with its name.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn claim(&mut self, claim: &QuotaClaim, sums: &Sums, now: u64, kept: Duration) -> Result<(), Refusal> {
        let found = self.find_room(claim, sums, now)?;
        if claim.object.is_empty() || found.is_empty() {
            return Ok(());
        }
        let until = now.saturating_add(count_milliseconds(kept));
        let enough = until.saturating_sub(count_milliseconds(coarse(kept)));
        let page = self.0.get(&claim.namespace);
        let known = page.and_then(|page| page.objects.get(&claim.object));
        let is_as_before = |known: &Kept| {
            let mut all = found.iter();
            known.until >= enough && all.all(|(key, growth, _)| known.grows.get(key) == Some(growth))
        };
        if known.is_some_and(is_as_before) {
            return Ok(());
        }
        let is_new = known.is_none();
        if is_new && self.0.values().map(|page| page.objects.len()).sum::<usize>() >= MOST {
            return Err(claim.refuse_crowd());
        }
        let before = is_new.then(|| self.clone());
        let page = self.0.entry(claim.namespace.clone()).or_default();
        let object = page.objects.entry(claim.object.clone()).or_default();
        object.until = until.max(object.until);
        for (key, growth, most) in found {
            object.grows.insert(key.clone(), growth);
            page.most.insert(key, Amount(most));
        }
        if let Some(before) = before
            && self.to_string().len() > LARGEST
        {
            *self = before;
            return Err(claim.refuse_crowd());
        }
        Ok(())
    }

    /// What the object grows by, and how much there can be in its namespace then.
    fn find_room(
        &mut self,
        claim: &QuotaClaim,
        sums: &Sums,
        now: u64,
    ) -> Result<Vec<(String, Growth, Quantity)>, Refusal> {
        self.forget_old(now);
        let mut found = Vec::new();
        for (amount, counted) in claim.amounts.iter().zip(&sums.0) {
            let key = amount.key();
            let growth = self.find_growth(claim, amount, &key);
            if growth.by().is_zero() || growth.by().is_negative() {
                continue;
            }
            let (mut used, mut seen) = (Quantity::zero(), Quantity::zero());
            let mut own = Quantity::zero();
            let mut names: Vec<&String> = counted.keys().collect();
            // Of a namespace that nobody here has seen yet.
            names.extend(self.0.keys().filter(|name| !counted.contains_key(*name)));
            for name in names {
                let object = (*name == claim.namespace).then_some(claim.object.as_str());
                let here = self.find_use(name, object, &key, counted.get(name).copied());
                used = used.plus(here.most);
                seen = seen.plus(here.counted);
                if object.is_some() {
                    own = here.most;
                }
            }
            if used.plus(growth.by()) > amount.quota.limit(&amount.resource) {
                return Err(claim.refuse_excess(amount, used, used.minus(seen)));
            }
            let most = own.plus(growth.by());
            found.push((key, growth, most));
        }
        Ok(found)
    }

    /// From what it was when it was let through first to what it is to be most.
    fn find_growth(&self, claim: &QuotaClaim, amount: &QuotaAmount, key: &str) -> Growth {
        let page = self.0.get(&claim.namespace);
        let known = page.and_then(|page| page.objects.get(&claim.object));
        match known.and_then(|known| known.grows.get(key)) {
            Some(known) if amount.after > known.1.0 => Growth(known.0, Amount(amount.after)),
            Some(known) => *known,
            None => Growth(Amount(amount.before), Amount(amount.after)),
        }
    }

    /// What a namespace uses, but for what the object grows by.
    fn find_use(&self, namespace: &str, object: Option<&str>, key: &str, counted: Option<Quantity>) -> Use {
        let counted = counted.unwrap_or_else(Quantity::zero);
        let (mut others, mut own, mut is_kept) = (Quantity::zero(), Quantity::zero(), false);
        let page = self.0.get(namespace);
        for (name, kept) in page.into_iter().flat_map(|page| &page.objects) {
            let Some(growth) = kept.grows.get(key) else { continue };
            is_kept = true;
            if object == Some(name.as_str()) {
                own = growth.by();
            } else {
                others = others.plus(growth.by());
            }
        }
        let most = page.and_then(|page| page.most.get(key)).filter(|_| is_kept);
        let Some(Amount(most)) = most else {
            return Use { most: counted, counted };
        };
        let (most, all) = (most.minus(own), counted.plus(others));
        let most = if most < all { most } else { all };
        // What came past whoever judges has been counted, too.
        let least = counted.minus(own);
        Use {
            most: if least > most { least } else { most },
            counted,
        }
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets what was kept long enough. Returns whether anything else is kept.
    pub fn forget_old(&mut self, now: u64) -> bool {
        // Of somebody whose clock is ahead: nothing is kept for longer than it would be by this one.
        let latest = now.saturating_add(count_milliseconds(KEPT));
        self.0.retain(|_, page| {
            page.objects.retain(|_, kept| kept.until > now);
            for kept in page.objects.values_mut() {
                kept.until = latest.min(kept.until);
            }
            let objects = &page.objects;
            page.most
                .retain(|key, _| objects.values().any(|kept| kept.grows.contains_key(key)));
            !page.objects.is_empty()
        });
        !self.0.is_empty()
    }
}

impl fmt::Display for QuotaLedger {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&serde_json::to_string(self).unwrap_or_default())
    }
}
