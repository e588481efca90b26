//! Validation of certificate signing requests: the request, its signer, and its conditions.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::error::X509Error;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::schema::validation::names::NameRule;
use crate::schema::validation::{get_text, list_items, metadata};
use crate::schema::{FieldError, FieldErrorKind, FieldPath};

/// The signer whose certificates the API server accepts from clients.
pub(super) const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// A signer that only older versions of the API know.
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";
/// The usages of a certificate.
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];
/// The shortest validity that a request may ask for, in seconds.
const SHORTEST: i64 = 600;
const LONGEST_DOMAIN: usize = 253;
const LONGEST_SIGNER: usize = LONGEST_DOMAIN + 253 + 63 + 1 + 1;

/// Checks a request that is about to be created.
pub(super) fn create(value: &Value, errors: &mut Vec<FieldError>) {
    validate_request(value, None, errors);
}

/// Checks a request that is about to replace another, through this subresource.
pub(super) fn update(value: &Value, old: &Value, subresource: Option<&str>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // Any name is valid here. The other metadata is compared with the old metadata below.
    validate_request(value, Some(old), &mut errors);
    metadata::object_meta_update(value, old, &FieldPath::new("metadata"), &mut errors);
    let at = FieldPath::new("status").child("conditions");
    for kind in [APPROVED, DENIED, FAILED] {
        if of_type(value, kind).len() < of_type(old, kind).len() {
            let why = format!("updates may not remove a condition of type {kind:?}");
            errors.push(FieldError::forbidden(&at, why));
        }
    }
    if subresource != Some("approval") {
        for kind in [APPROVED, DENIED] {
            let (now, before) = (of_type(value, kind), of_type(old, kind));
            let what = match now.len().cmp(&before.len()) {
                std::cmp::Ordering::Less => continue,
                std::cmp::Ordering::Greater => "add",
                std::cmp::Ordering::Equal if now != before => "modify",
                std::cmp::Ordering::Equal => continue,
            };
            let why = format!("updates may not {what} a condition of type {kind:?}");
            errors.push(FieldError::forbidden(&at, why));
        }
    }
    if issued_certificate(value) != issued_certificate(old) {
        let at = FieldPath::new("status").child("certificate");
        if subresource != Some("status") {
            errors.push(FieldError::forbidden(at, "updates may not set certificate content"));
        } else if !issued_certificate(old).is_empty() {
            let why = "updates may not modify existing certificate content";
            errors.push(FieldError::forbidden(at, why));
        }
    }
    errors
}

fn list_conditions(value: &Value) -> &[Value] {
    let list = value.pointer("/status/conditions").and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

fn of_type<'a>(value: &'a Value, kind: &str) -> Vec<&'a Value> {
    let all = list_conditions(value).iter();
    all.filter(|condition| get_text(condition, "type") == kind).collect()
}

fn issued_certificate(value: &Value) -> &str {
    let found = value.pointer("/status/certificate").and_then(Value::as_str);
    found.unwrap_or_default()
}

/// Checks a request. An error that the old object already had is ignored.
fn validate_request(value: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let none = Value::Null;
    let spec = value.get("spec").unwrap_or(&none);
    let at = FieldPath::new("spec");
    let sent = spec.get("request").unwrap_or(&none);
    if let Err(why) = verify_signature(sent.as_str().unwrap_or_default()) {
        errors.push(FieldError::invalid(at.child("request"), sent.clone(), why));
    }
    let usages: Vec<(&Value, FieldPath)> = list_items(spec, "usages", &at).collect();
    if usages.is_empty() {
        errors.push(FieldError::required(at.child("usages"), ""));
    }
    let word = |usage: &Value| usage.as_str().unwrap_or_default().to_owned();
    for (usage, at) in &usages {
        if !USAGES.contains(&word(usage).as_str()) {
            errors.push(FieldError::not_supported(at, (*usage).clone(), &USAGES));
        }
    }
    let mut seen = Vec::new();
    for (usage, at) in &usages {
        if seen.contains(usage) {
            errors.push(FieldError::duplicate(at, (*usage).clone()));
        }
        seen.push(*usage);
    }
    let signer = get_text(spec, "signerName");
    let at_signer = at.child("signerName");
    if signer == LEGACY_SIGNER {
        let why = "the legacy signerName is not allowed via this API version";
        errors.push(FieldError::invalid(at_signer, signer, why));
    } else {
        signer_name(signer, &at_signer, errors);
    }
    let seconds = spec.get("expirationSeconds").and_then(Value::as_i64);
    if let Some(seconds) = seconds.filter(|seconds| *seconds < SHORTEST) {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(FieldError::invalid(at.child("expirationSeconds"), seconds, why));
    }
    validate_conditions(value, errors);
    let unchanged = old.is_some_and(|old| issued_certificate(old) == issued_certificate(value));
    if !unchanged && let Err(why) = check_certificates(issued_certificate(value)) {
        let at = FieldPath::new("status").child("certificate");
        errors.push(FieldError::invalid(at, "<certificate data>", why));
    }
}

/// Checks the conditions of a request.
fn validate_conditions(value: &Value, errors: &mut Vec<FieldError>) {
    let at = FieldPath::new("status").child("conditions");
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (index, condition) in list_conditions(value).iter().enumerate() {
        let place = at.index(index);
        let (kind, status) = (get_text(condition, "type"), get_text(condition, "status"));
        if kind.is_empty() {
            errors.push(FieldError::required(place.child("type"), ""));
        }
        let allowed: &[&str] = if [APPROVED, DENIED, FAILED].contains(&kind) {
            &["True"]
        } else {
            &["False", "True", "Unknown"]
        };
        if status.is_empty() {
            errors.push(FieldError::required(place.child("status"), ""));
        } else if !allowed.contains(&status) {
            errors.push(FieldError::not_supported(place.child("status"), status, allowed));
        }
        let opposite = match kind {
            APPROVED => DENIED,
            DENIED => APPROVED,
            _ => "",
        };
        if seen.contains(opposite) && !opposite.is_empty() {
            let why = "Approved and Denied conditions are mutually exclusive";
            errors.push(FieldError::invalid(&at, kind, why));
        }
        if seen.contains(kind) {
            errors.push(FieldError::duplicate(place.child("type"), kind));
        }
        seen.insert(kind);
    }
}

/// Checks the name of a signer: a domain, a slash, and a name in it.
fn signer_name(name: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(FieldError::required(at, ""));
        return;
    }
    let mut segments = name.split('/');
    let (Some(domain), Some(path), None) = (segments.next(), segments.next(), segments.next()) else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.push(FieldError::invalid(at, name, why));
        return;
    };
    let too_long = |most: usize| {
        FieldError::new(
            FieldErrorKind::TooLong,
            at,
            "",
            format!("may not be more than {most} bytes"),
        )
    };
    if domain.len() > LONGEST_DOMAIN {
        errors.push(too_long(LONGEST_DOMAIN));
    }
    for (segment, rule) in [(domain, NameRule::Label), (path, NameRule::Subdomain)] {
        let first = segment
            .split('.')
            .map(|part| (part, rule.check(part, false)))
            .find(|(_, why)| !why.is_empty());
        for (part, why) in first
            .into_iter()
            .flat_map(|(part, all)| all.into_iter().map(move |why| (part, why)))
        {
            let why = format!("validating label {part:?}: {why}");
            errors.push(FieldError::invalid(at, segment, why));
        }
        if segment == domain && !domain.contains('.') {
            let why = "should be a domain with at least two segments separated by dots";
            errors.push(FieldError::invalid(at, domain, why));
        }
    }
    if name.len() > LONGEST_SIGNER {
        errors.push(too_long(LONGEST_SIGNER));
    }
}

/// A block of a PEM text.
struct Block {
    label: String,
    has_headers: bool,
    content: Vec<u8>,
}

/// Returns the blocks of a PEM text in base64. Text between blocks, and malformed blocks, are skipped.
fn decode_pem_blocks(encoded: &str) -> Vec<Block> {
    let Ok(bytes) = STANDARD.decode(encoded) else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines().map(str::trim_end);
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let label = line
            .strip_prefix("-----BEGIN ")
            .and_then(|rest| rest.strip_suffix("-----"));
        let Some(label) = label else { continue };
        let end = format!("-----END {label}-----");
        let body: Vec<&str> = lines.clone().take_while(|line| *line != end).collect();
        if lines.clone().nth(body.len()).is_none() {
            continue;
        }
        let headers = body.iter().take_while(|line| line.contains(':')).count();
        let content: String = body
            .iter()
            .skip(headers)
            .flat_map(|line| line.split_whitespace())
            .collect();
        let Ok(content) = STANDARD.decode(content) else {
            continue;
        };
        found.push(Block {
            label: label.to_owned(),
            has_headers: headers > 0,
            content,
        });
        lines.nth(body.len());
    }
    found
}

/// Returns the request in a PEM text, as DER.
fn decode_pem_request(encoded: &str) -> Result<Vec<u8>, String> {
    match decode_pem_blocks(encoded).into_iter().next() {
        Some(block) if block.label == "CERTIFICATE REQUEST" => Ok(block.content),
        _ => Err("PEM block type must be CERTIFICATE REQUEST".to_owned()),
    }
}

fn parse_request(der: &[u8]) -> Result<X509CertificationRequest<'_>, String> {
    match X509CertificationRequest::from_der(der) {
        Ok(([], request)) => Ok(request),
        Ok(_) => Err("asn1: syntax error: trailing data".to_owned()),
        Err(error) => Err(format!("asn1: structure error: {error}")),
    }
}

/// Checks whether a request is signed with its own key.
fn verify_signature(encoded: &str) -> Result<(), String> {
    let der = decode_pem_request(encoded)?;
    let request = parse_request(&der)?;
    request.verify_signature().map_err(|error| match error {
        X509Error::SignatureVerificationError => {
            let algorithm = request.signature_algorithm.algorithm.to_id_string();
            let how = match algorithm.as_str() {
                // The arcs of ECDSA, and of Ed25519.
                ecdsa if ecdsa.starts_with("1.2.840.10045.") => "x509: ECDSA verification failure",
                "1.3.101.112" => "x509: Ed25519 verification failure",
                _ => "crypto/rsa: verification error",
            };
            how.to_owned()
        }
        _ => "x509: cannot verify signature: algorithm unimplemented".to_owned(),
    })
}

/// Returns the organizations in a request's subject, which become groups.
///
/// # Errors
/// If the text is not a request.
pub(super) fn list_organizations(encoded: &str) -> Result<Vec<String>, String> {
    let der = decode_pem_request(encoded)?;
    let request = parse_request(&der)?;
    let subject = &request.certification_request_info.subject;
    let all = subject.iter_organization();
    Ok(all.filter_map(|one| one.as_str().ok().map(str::to_owned)).collect())
}

/// Checks whether a text contains only certificates, or is empty.
fn check_certificates(encoded: &str) -> Result<(), String> {
    if encoded.is_empty() {
        return Ok(());
    }
    let blocks = decode_pem_blocks(encoded);
    for block in &blocks {
        if block.label != "CERTIFICATE" {
            return Err(format!(
                "only CERTIFICATE PEM blocks are allowed, found {:?}",
                block.label
            ));
        }
        if block.has_headers {
            return Err("no PEM block headers are permitted".to_owned());
        }
        X509Certificate::from_der(&block.content).map_err(|error| format!("x509: malformed certificate: {error}"))?;
    }
    if blocks.is_empty() {
        return Err("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    Ok(())
}
