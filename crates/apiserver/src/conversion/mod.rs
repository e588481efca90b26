//! How the versions of a custom kind become each other: by a new `apiVersion` alone, or by a webhook.
//!
//! Owns the calls of conversion webhooks, what of their answers is accepted, and what several requests share of them.
//! Refuses to hold a lock while it waits for an answer: a slow webhook holds up who needs its answer, and nobody else.

mod owners;
mod review;
mod shared;

use serde_json::Value;
use tenure_kinds::kind::rename;

pub(crate) use owners::{Needed, Owners};
pub(crate) use shared::{Duty, Shared};

use crate::http::ApiError;
use crate::view::View;
use crate::webhook_client::{self, Bounds, ClientConfig, Endpoint};

/// How long a webhook has, as with Kubernetes, and how much of an answer is read: a batch is four times smaller.
const BOUNDS: Bounds = Bounds {
    seconds: 30,
    out_of_time: "context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
    bytes: 16 * 1024 * 1024,
};

/// How much is sent at once, as objects and as bytes; one object is sent whatever its size.
pub(crate) const BATCH: (usize, usize) = (500, 4 * 1024 * 1024);

/// Why there is no converted object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed(pub(crate) String);

impl From<Failed> for ApiError {
    fn from(failed: Failed) -> Self {
        // To the real server that is an error like any other: it has no reason.
        Self::new(500, "", failed.0)
    }
}

/// A webhook that converts the objects of one kind, as one version of its definition has it.
#[derive(Debug)]
pub(crate) struct Webhook {
    endpoint: Endpoint,
    /// The first of its review versions that this server speaks.
    review_version: Option<&'static str>,
    /// What was converted for lists and watches.
    pub(crate) shared: Shared,
}

impl Webhook {
    /// What a definition says; nothing where versions differ in `apiVersion` only.
    pub(crate) fn of(definition: &Value) -> Option<Self> {
        let conversion = definition.pointer("/spec/conversion").unwrap_or(&Value::Null);
        if conversion.get("strategy").and_then(Value::as_str) != Some("Webhook") {
            return None;
        }
        let webhook = conversion.get("webhook").unwrap_or(&Value::Null);
        let config = webhook.get("clientConfig").cloned().unwrap_or_default();
        let config: ClientConfig = serde_json::from_value(config).unwrap_or_default();
        let accepted = webhook.get("conversionReviewVersions").and_then(Value::as_array);
        Some(Self {
            endpoint: Endpoint::of(&config.without_blank_bundle()),
            review_version: accepted
                .into_iter()
                .flatten()
                .find_map(|version| review::VERSIONS.into_iter().find(|known| version == *known)),
            shared: Shared::default(),
        })
    }

    /// Objects in another version, each of which is in some other one. The webhook is found by what is there now.
    ///
    /// # Errors
    /// What the webhook, or the connection to it, did wrong, in the real server's words.
    pub(crate) async fn convert(&self, view: View, objects: Vec<Value>, wanted: &str) -> Result<Vec<Value>, Failed> {
        let Some(first) = objects.first() else {
            return Ok(objects);
        };
        if objects.len() == 1 && is_empty(first) {
            return Ok(objects
                .into_iter()
                .map(|mut object| {
                    rename(&mut object, wanted);
                    object
                })
                .collect());
        }
        let version = self
            .review_version
            .ok_or_else(|| Failed("no supported conversion review versions".to_owned()))?;
        let webhook = format!("conversion webhook for {}", review::kind_of(first));
        let failed = |why: String| Failed(format!("{webhook} failed: {why}"));
        let uid = uuid::Uuid::new_v4().to_string();
        let asked = review::request(version, &uid, wanted, &objects);
        let answer = webhook_client::post(view, &self.endpoint, BOUNDS, &asked)
            .await
            .map_err(failed)?;
        let converted = review::read(version, &uid, &answer).map_err(failed)?;
        if converted.len() != objects.len() {
            return Err(Failed(format!(
                "{webhook} returned {} objects, expected {}",
                converted.len(),
                objects.len()
            )));
        }
        let alone = objects.len() == 1;
        let pairs = objects.iter().zip(converted).enumerate();
        pairs
            .map(|(index, (original, converted))| {
                review::accept(original, converted, wanted)
                    .map_err(|fault| Failed(fault.told(&webhook, (!alone).then_some(index))))
            })
            .collect()
    }
}

/// Whether there is nothing in an object but its kind. Nobody is asked about that.
fn is_empty(object: &Value) -> bool {
    object.as_object().is_some_and(|map| {
        map.iter().all(|(key, value)| match key.as_str() {
            "apiVersion" | "kind" => true,
            "metadata" => value.as_object().is_some_and(serde_json::Map::is_empty),
            _ => false,
        })
    })
}
