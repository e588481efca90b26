//! Writes of quota charges, which admission computes. Invariant: the charge of a failed write is refunded.

use std::future::Future;
use std::pin::Pin;

use serde_json::Value;
use tenure_auth::identity::{ObjectLookup as _, UserInfo};
use tenure_kinds::schema::resources::Resources;

use super::{OWN_MANAGER, Operation, Registry};
use crate::admission::Attributes;
use crate::admission::quota::QuotaCharge;
use crate::http::ApiError;

/// How often the write of a charge is retried if the quota changed meanwhile.
const ATTEMPTS: usize = 8;

/// The charge of a request. It holds the namespace's lock until it is dropped after the write.
#[derive(Debug)]
#[must_use]
pub(super) struct Charge(Option<QuotaCharge>);

impl Charge {
    /// Refunds the charge of a write that did not happen.
    pub(super) async fn refund(self, registry: &Registry) {
        let Some(charged) = self.0 else { return };
        for (quota, amount) in &charged.amounts {
            let namespace = &charged.namespace;
            let written = registry
                .write_used(namespace, quota, |used| used.subtract(amount))
                .await;
            if let Err(error) = written {
                tracing::warn!(quota, namespace, %error, "a quota charge could not be refunded");
            }
        }
    }
}

/// The boxed write of a quota.
type Writing<'a> = Pin<Box<dyn Future<Output = Result<(), ApiError>> + Send + 'a>>;

impl Registry {
    /// Admits an object as it would be stored, and charges it. Without `waits`, this waits for no other request or
    /// program.
    pub(super) async fn admit(
        &self,
        attributes: &Attributes<'_>,
        object: &Value,
        waits: bool,
    ) -> Result<Charge, ApiError> {
        match self.admission().validate(attributes, Some(object), waits).await? {
            Some(owed) => self.charge(owed).await,
            None => Ok(Charge(None)),
        }
    }

    async fn charge(&self, mut owed: QuotaCharge) -> Result<Charge, ApiError> {
        let mut charged = Vec::new();
        let mut failed = None;
        for (quota, amount) in std::mem::take(&mut owed.amounts) {
            let written = self.write_used(&owed.namespace, &quota, |used| {
                let mut used = used.clone();
                used.add(&amount);
                used
            });
            match written.await {
                Ok(()) => charged.push((quota, amount)),
                // The quota was deleted, so there is nothing to refund.
                Err(error) if error.code == 404 => {}
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        owed.amounts = charged;
        let charge = Charge(Some(owed));
        match failed {
            None => Ok(charge),
            Some(error) => {
                charge.refund(self).await;
                Err(error)
            }
        }
    }

    /// Writes the used amounts of a quota. Boxed, because this write is itself admitted; it is never charged.
    fn write_used<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
        change: impl Fn(&Resources) -> Resources + Send + Sync + 'a,
    ) -> Writing<'a> {
        Box::pin(async move {
            let catalog = self.catalog();
            let resource = catalog
                .find("", "v1", "resourcequotas")
                .ok_or_else(ApiError::no_such_resource)?;
            let user = UserInfo::loopback();
            let op = Operation::new(resource.clone(), Some(namespace.to_owned()), user, OWN_MANAGER);
            let op = op.subresource("status");
            let mut outcome = Ok(());
            for _ in 0..ATTEMPTS {
                let found = self.view().get("", "resourcequotas", Some(namespace), name);
                let found = found.ok_or_else(|| ApiError::not_found(resource, name))?;
                let mut quota = Value::clone(&found);
                let used = change(&Resources::read(quota.pointer("/status/used")));
                if let Some(status) = quota.get_mut("status").and_then(Value::as_object_mut) {
                    status.insert("used".to_owned(), used.to_value());
                }
                outcome = match self.update(&op, name, quota).await {
                    Ok(_) => return Ok(()),
                    Err(error) if error.code == 409 => Err(error),
                    Err(error) => return Err(error),
                };
            }
            outcome
        })
    }
}
