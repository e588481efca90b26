//! Conversion between the versions of a custom kind: by a new `apiVersion` alone, or by a webhook.
//!
//! This module calls conversion webhooks, checks their answers, and shares results between requests. No lock is held
//! during a call: a slow webhook delays only requests that need its answer.

mod field_owners;
mod review;
mod shared_conversions;

use serde_json::Value;
use tenure_kinds::kind::set_api_version;

pub(crate) use field_owners::{NeededConversions, WebhookVersions};
pub(crate) use shared_conversions::{ConversionDuty, SharedConversions};

use crate::http::ApiError;
use crate::view::View;
use crate::webhook_client::{self, Bounds, ClientConfig, Endpoint};

/// Limits for the time of a webhook, as in Kubernetes, and the size of its answer. A batch is four times smaller than
/// that size.
const BOUNDS: Bounds = Bounds {
    seconds: 30,
    out_of_time: "context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
    bytes: 16 * 1024 * 1024,
};

/// Limits of one batch, in objects and bytes. A single object is sent whatever its size.
pub(crate) const BATCH: (usize, usize) = (500, 4 * 1024 * 1024);

/// The message of a failed conversion, in kube-apiserver's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConversionFailure(pub(crate) String);

impl From<ConversionFailure> for ApiError {
    fn from(failed: ConversionFailure) -> Self {
        // For kube-apiserver this is a generic error without a reason.
        Self::new(500, "", failed.0)
    }
}

/// The conversion webhook of a custom kind. A change of the kind's definition creates a new value.
#[derive(Debug)]
pub(crate) struct Webhook {
    endpoint: Endpoint,
    /// The first of the definition's review versions that this server supports.
    review_version: Option<&'static str>,
    /// Conversions for lists and watches.
    pub(crate) shared: SharedConversions,
}

impl Webhook {
    /// Reads a definition's webhook; `None` if its versions differ in `apiVersion` only.
    pub(crate) fn from_definition(definition: &Value) -> Option<Self> {
        let conversion = definition.pointer("/spec/conversion").unwrap_or(&Value::Null);
        if conversion.get("strategy").and_then(Value::as_str) != Some("Webhook") {
            return None;
        }
        let webhook = conversion.get("webhook").unwrap_or(&Value::Null);
        let config = webhook.get("clientConfig").cloned().unwrap_or_default();
        let config: ClientConfig = serde_json::from_value(config).unwrap_or_default();
        let accepted = webhook.get("conversionReviewVersions").and_then(Value::as_array);
        Some(Self {
            endpoint: Endpoint::from_config(&config.without_blank_bundle()),
            review_version: accepted
                .into_iter()
                .flatten()
                .find_map(|version| review::VERSIONS.into_iter().find(|known| version == *known)),
            shared: SharedConversions::default(),
        })
    }

    /// Converts objects, each of which has another version, to the wanted version. `view` serves to find the webhook.
    ///
    /// # Errors
    /// The fault of the webhook or the connection, in kube-apiserver's words.
    pub(crate) async fn convert(
        &self,
        view: View,
        objects: Vec<Value>,
        wanted: &str,
    ) -> Result<Vec<Value>, ConversionFailure> {
        let Some(first) = objects.first() else {
            return Ok(objects);
        };
        if objects.len() == 1 && is_empty(first) {
            return Ok(objects
                .into_iter()
                .map(|mut object| {
                    set_api_version(&mut object, wanted);
                    object
                })
                .collect());
        }
        let version = self
            .review_version
            .ok_or_else(|| ConversionFailure("no supported conversion review versions".to_owned()))?;
        let webhook = format!("conversion webhook for {}", review::kind_of(first));
        let failed = |why: String| ConversionFailure(format!("{webhook} failed: {why}"));
        let uid = uuid::Uuid::new_v4().to_string();
        let asked = review::make_review(version, &uid, wanted, &objects);
        let answer = webhook_client::post_review(view, &self.endpoint, BOUNDS, &asked)
            .await
            .map_err(failed)?;
        let converted = review::read(version, &uid, &answer).map_err(failed)?;
        if converted.len() != objects.len() {
            return Err(ConversionFailure(format!(
                "{webhook} returned {} objects, expected {}",
                converted.len(),
                objects.len()
            )));
        }
        let alone = objects.len() == 1;
        let pairs = objects.iter().zip(converted).enumerate();
        pairs
            .map(|(index, (original, converted))| {
                review::accept_conversion(original, converted, wanted)
                    .map_err(|fault| ConversionFailure(fault.describe(&webhook, (!alone).then_some(index))))
            })
            .collect()
    }
}

/// Checks whether an object has only its kind and version. Such an object needs no webhook.
fn is_empty(object: &Value) -> bool {
    object.as_object().is_some_and(|map| {
        map.iter().all(|(key, value)| match key.as_str() {
            "apiVersion" | "kind" => true,
            "metadata" => value.as_object().is_some_and(serde_json::Map::is_empty),
            _ => false,
        })
    })
}
