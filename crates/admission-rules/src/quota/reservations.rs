//! Reservations of objects in a Tenant's namespaces that were admitted and may not have been counted yet.
//!
//! A status says how much is used, and not by which objects. So whether an admitted object has been counted is unknown. If it is added to the count,
//! it may count twice. If it is left out, it may not count at all. But the use can't exceed its possible maximum at the last admission plus this
//! object. This maximum is stored for each namespace (`most`), beside the objects of the last half minute (`objects`). So the real use is at least
//! the count. It is at most the lesser of `most` and the count with all reservations.
//!
//! A reservation counts until it expires, however often the object is checked. A deleted object may count for as long. This module bounds the bytes
//! that one tenant makes others store. The caller supplies the time.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use go_words::quantity::Quantity;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{QuotaAmount, QuotaClaim, Sums, coarse};
use crate::Refusal;
use crate::ledger::{KEPT, count_milliseconds};

/// The greatest number of reserved objects of one Tenant at the same time, and of their bytes.
const MOST: usize = 512;
const LARGEST: usize = 96 << 10;

/// The reservations of one Tenant, by namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QuotaLedger(BTreeMap<String, NamespaceReservations>);

/// The reservations in one namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct NamespaceReservations {
    /// The greatest possible use of each resource with a reservation.
    most: BTreeMap<String, Amount>,
    objects: BTreeMap<String, ReservedObject>,
}

/// The reservation of one object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct ReservedObject {
    /// The end, in milliseconds since 1970.
    until: u64,
    grows: BTreeMap<String, Growth>,
}

/// The amount of an object in one resource: at its first admission, and the greatest one since.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Growth(Amount, Amount);

impl Growth {
    /// Returns the difference between both amounts.
    fn by(self) -> Quantity {
        self.1.0.minus(self.0.0)
    }
}

/// A quantity that is serialised in its canonical form.
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

/// The use of one resource in a namespace.
struct NamespaceUse {
    /// The greatest possible use, without the object in question.
    most: Quantity,
    /// The counted use.
    counted: Quantity,
}

impl QuotaLedger {
    /// Reads the text of [`Display`](fmt::Display). An unreadable text reserves nothing: at most the reservations of
    /// half a minute are lost.
    #[must_use]
    pub fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// Checks whether the quotas have capacity for the claim. `now` is in milliseconds since 1970.
    ///
    /// # Errors
    /// No capacity is left.
    pub fn check(&mut self, claim: &QuotaClaim, sums: &Sums, now: u64) -> Result<(), Refusal> {
        self.find_room(claim, sums, now).map(drop)
    }

    /// Makes a reservation for an object. For an object without a name the capacity is only checked: it is checked again with its name.
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
        let is_as_before = |known: &ReservedObject| {
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

    /// Returns each growing amount of the claim: its key, the growth, and the greatest possible use of the namespace
    /// with this growth.
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
            // Namespaces with reservations that this process has not counted yet.
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

    /// Returns the growth from the amount at the first admission to the greatest new amount.
    fn find_growth(&self, claim: &QuotaClaim, amount: &QuotaAmount, key: &str) -> Growth {
        let page = self.0.get(&claim.namespace);
        let known = page.and_then(|page| page.objects.get(&claim.object));
        match known.and_then(|known| known.grows.get(key)) {
            Some(known) if amount.after > known.1.0 => Growth(known.0, Amount(amount.after)),
            Some(known) => *known,
            None => Growth(Amount(amount.before), Amount(amount.after)),
        }
    }

    /// Returns the use of a namespace, without the growth of the object.
    fn find_use(&self, namespace: &str, object: Option<&str>, key: &str, counted: Option<Quantity>) -> NamespaceUse {
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
            return NamespaceUse { most: counted, counted };
        };
        let (most, all) = (most.minus(own), counted.plus(others));
        let most = if most < all { most } else { all };
        // Objects that bypassed admission have been counted, too.
        let least = counted.minus(own);
        NamespaceUse {
            most: if least > most { least } else { most },
            counted,
        }
    }

    /// Checks whether nothing is reserved.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes expired reservations. Returns true if others remain.
    pub fn forget_old(&mut self, now: u64) -> bool {
        // Another process's clock may be ahead. No reservation lasts longer than it would by this
        // clock.
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
