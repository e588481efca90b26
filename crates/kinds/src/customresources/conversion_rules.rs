//! Validation of a definition's conversion: the strategy, and the address of its webhook.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::Value;

use super::{get_text, names};
use crate::schema::validation::names as name_rules;
use crate::schema::validation::{webhook_service, webhook_url};
use crate::schema::{FieldError, FieldPath};

/// The versions of reviews that a webhook may accept; it accepts one of them at least.
const REVIEWS: [&str; 2] = ["v1", "v1beta1"];

/// Checks `spec.conversion` of a definition that may replace `old`. The paths are those of the first version of the API,
/// as with the real server.
pub(super) fn check(spec: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let Some(conversion) = spec.get("conversion").filter(|conversion| !conversion.is_null()) else {
        return;
    };
    let path = FieldPath::new("spec").child("conversion");
    let strategy = get_text(conversion, "strategy");
    if strategy != "None" && spec.get("preserveUnknownFields") == Some(&Value::Bool(true)) {
        let detail = "must be None if spec.preserveUnknownFields is true";
        errors.push(FieldError::invalid(path.child("strategy"), strategy, detail));
    }
    match strategy {
        "None" | "Webhook" => {}
        "" => errors.push(FieldError::required(path.child("strategy"), "")),
        other => errors.push(FieldError::not_supported(
            path.child("strategy"),
            other,
            &["None", "Webhook"],
        )),
    }
    let config = client_config(conversion);
    let versions = review_versions(conversion);
    let (config_path, versions_path) = (
        path.child("webhookClientConfig"),
        path.child("conversionReviewVersions"),
    );
    if strategy == "Webhook" {
        match config {
            None => errors.push(FieldError::required(
                &config_path,
                "required when strategy is set to Webhook",
            )),
            Some(config) => self::validate_client_config(config, old, &config_path, errors),
        }
        self::validate_review_versions(&versions, old, &versions_path, errors);
        return;
    }
    let detail = "should not be set when strategy is not set to Webhook";
    if config.is_some() {
        errors.push(FieldError::forbidden(&config_path, detail));
    }
    if !versions.is_empty() {
        errors.push(FieldError::forbidden(&versions_path, detail));
    }
}

fn client_config(conversion: &Value) -> Option<&Value> {
    conversion
        .pointer("/webhook/clientConfig")
        .filter(|config| config.is_object())
}

fn review_versions(conversion: &Value) -> Vec<&str> {
    let versions = conversion.pointer("/webhook/conversionReviewVersions");
    let versions = versions.and_then(Value::as_array).into_iter().flatten();
    versions.map(|version| version.as_str().unwrap_or_default()).collect()
}

fn validate_client_config(config: &Value, old: Option<&Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let url = config.get("url").and_then(Value::as_str);
    let service = config.get("service").filter(|service| service.is_object());
    match (url, service) {
        (Some(url), None) => webhook_url(url, &path.child("url"), errors),
        (None, Some(service)) => {
            // The real server confuses the two.
            let mut swapped = service.clone();
            if let Some(map) = swapped.as_object_mut() {
                for (field, other) in [("name", "namespace"), ("namespace", "name")] {
                    map.insert(field.to_owned(), Value::from(get_text(service, other)));
                }
            }
            webhook_service(&swapped, &path.child("service"), errors);
        }
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
    let bundle = get_text(config, "caBundle");
    // A definition that is not yet established may be completed later, and an old error may stay.
    let lenient = old.is_none_or(|old| {
        let before = old.pointer("/spec/conversion").and_then(client_config);
        !names::is_established(old) || before.is_some_and(|before| bundle_fault(get_text(before, "caBundle")).is_some())
    });
    if let Some(fault) = bundle_fault(bundle).filter(|_| !lenient) {
        errors.push(FieldError::invalid(path.child("caBundle"), bundle, fault));
    }
}

/// Returns the error in a bundle of certificates.
fn bundle_fault(bundle: &str) -> Option<String> {
    let bytes = STANDARD.decode(bundle).unwrap_or_default();
    if bytes.is_empty() {
        return None;
    }
    let readable = CertificateDer::pem_slice_iter(&bytes).any(|certificate| certificate.is_ok());
    (!readable).then(|| "unable to load root certificates: unable to parse bytes as PEM block".to_owned())
}

fn validate_review_versions(versions: &[&str], old: Option<&Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if versions.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    for (index, version) in versions.iter().enumerate() {
        if versions.iter().take(index).any(|earlier| earlier == version) {
            errors.push(FieldError::invalid(path.index(index), *version, "duplicate version"));
            continue;
        }
        for complaint in name_rules::service_label(version) {
            errors.push(FieldError::invalid(path.index(index), *version, complaint));
        }
    }
    let recognized = |versions: &[&str]| versions.iter().any(|version| REVIEWS.contains(version));
    let before = old.and_then(|old| old.pointer("/spec/conversion")).map(review_versions);
    let may_stay = before.is_some_and(|before| !before.is_empty() && !recognized(&before));
    if !may_stay && !recognized(versions) {
        errors.push(FieldError::invalid(
            path,
            versions.to_vec(),
            format!("must include at least one of {}", REVIEWS.join(", ")),
        ));
    }
}
