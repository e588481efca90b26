//! Bundles of Sigstore, the form of cosign's signatures since version 3: an in-toto statement in a DSSE envelope. Pure.
//!
//! A statement counts as a signature of an artifact only with the right predicate type. Other attestations of the same key name the artifact too, for instance its SBOM
//! or its builder, and are no signatures. Only bundles that are made with a key are accepted; certificates and logs in a bundle are ignored. The forms: Sigstore's bundle
//! 0.3 (`sigstore_bundle.proto`), DSSE 1.0.2, in-toto's Statement 1, and cosign's `BUNDLE_SPEC.md`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::reference::Digest;

/// The media type of a bundle.
pub(super) const BUNDLE_TYPE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// The predicate type of a statement that is a signature.
pub(super) const PREDICATE_TYPE: &str = "https://sigstore.dev/cosign/sign/v1";
/// The media type of the payload, and the type of its statement.
const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";

/// The parts of a bundle that are read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    media_type: String,
    dsse_envelope: Envelope,
}

/// A DSSE envelope: a payload and its signatures.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<Signature>,
}

/// A signature in a DSSE envelope.
#[derive(Deserialize)]
struct Signature {
    sig: String,
}

/// An in-toto statement, which is the payload of an envelope.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<Subject>,
    predicate_type: String,
}

/// An artifact that a statement is about.
#[derive(Deserialize)]
struct Subject {
    digest: SubjectDigest,
}

#[derive(Deserialize)]
struct SubjectDigest {
    #[serde(default)]
    sha256: String,
}

/// Checks whether a bundle is a signature of this artifact. `is_trusted` gets the signed bytes and a signature, and returns whether a trusted key made it.
pub(super) fn is_signature_of(digest: &Digest, bundle: &[u8], is_trusted: impl Fn(&[u8], &[u8]) -> bool) -> bool {
    let Ok(bundle) = serde_json::from_slice::<Bundle>(bundle) else {
        return false;
    };
    let Envelope {
        payload,
        payload_type,
        signatures,
    } = bundle.dsse_envelope;
    // A bundle has one signature, and it signs one payload.
    let ([signature], true) = (
        signatures.as_slice(),
        payload_type == PAYLOAD_TYPE && bundle.media_type == BUNDLE_TYPE,
    ) else {
        return false;
    };
    let (Ok(payload), Ok(signature)) = (STANDARD.decode(payload), STANDARD.decode(&signature.sig)) else {
        return false;
    };
    // The payload is parsed only after its signature was verified.
    is_trusted(&encode(PAYLOAD_TYPE, &payload), &signature)
        && serde_json::from_slice::<Statement>(&payload).is_ok_and(|statement| {
            statement.kind == STATEMENT_TYPE
                && statement.predicate_type == PREDICATE_TYPE
                && statement
                    .subject
                    .iter()
                    .any(|subject| subject.digest.sha256 == digest.hex())
        })
}

/// Encodes a payload for its signature: DSSE's pre-authentication encoding.
fn encode(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn statement_signs_only_its_subject() {
        let digest = Digest::parse(&format!("sha256:{}", "a".repeat(64))).unwrap();
        let statement = json!({
            "_type": STATEMENT_TYPE, "subject": [{ "digest": { "sha256": digest.hex() }, "annotations": {} }],
            "predicateType": PREDICATE_TYPE, "predicate": {}
        });
        let usual = json!({
            "mediaType": BUNDLE_TYPE, "verificationMaterial": { "publicKey": { "hint": "x" } },
            "dsseEnvelope": { "payloadType": PAYLOAD_TYPE, "payload": "", "signatures": [{ "sig": STANDARD.encode("signed") }] }
        });
        let is_good = |path: &str, value: serde_json::Value| {
            let (mut statement, mut bundle) = (statement.clone(), usual.clone());
            for object in [&mut statement, &mut bundle] {
                if let Some(field) = object.pointer_mut(path) {
                    *field = value.clone();
                }
            }
            if path != "/dsseEnvelope/payload" {
                bundle["dsseEnvelope"]["payload"] = json!(STANDARD.encode(statement.to_string()));
            }
            // The trusted key has signed every statement here.
            is_signature_of(&digest, bundle.to_string().as_bytes(), |signed, signature| {
                signed.starts_with(b"DSSEv1 28 application/vnd.in-toto+json ") && signature == b"signed"
            })
        };
        assert!(is_good("/none", json!(null)));
        for (path, value) in [
            ("/_type", json!("https://in-toto.io/Statement/v0.1")),
            ("/predicateType", json!("https://slsa.dev/provenance/v1")),
            ("/subject", json!([])),
            ("/subject/0/digest/sha256", json!("b".repeat(64))),
            ("/subject/0/digest", json!({ "sha512": digest.hex() })),
            (
                "/mediaType",
                json!("application/vnd.dev.sigstore.bundle+json;version=0.1"),
            ),
            ("/dsseEnvelope/payloadType", json!("application/json")),
            ("/dsseEnvelope/payload", json!("not base64")),
            ("/dsseEnvelope/payload", json!(STANDARD.encode("{}"))),
            ("/dsseEnvelope/signatures", json!([])),
            (
                "/dsseEnvelope/signatures",
                json!([{ "sig": STANDARD.encode("signed") }, { "sig": STANDARD.encode("signed") }]),
            ),
            ("/dsseEnvelope/signatures/0/sig", json!(STANDARD.encode("by others"))),
        ] {
            assert!(!is_good(path, value.clone()), "{path}: {value}");
        }
        assert!(!is_signature_of(&digest, b"[", |_, _| true));
    }

    /// The example of DSSE's protocol.
    #[test]
    fn payload_is_encoded_with_type_and_lengths() {
        assert_eq!(
            encode("http://example.com/HelloWorld", b"hello world"),
            b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
        );
    }
}
