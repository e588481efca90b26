//! Verifies signatures of cosign that are made with a key.
//!
//! A signature is a manifest of its own. Its tag follows from the artifact's digest, or, since version 3, it refers to the artifact. Each layer is either a text that
//! names a digest, with the signature of this text as an annotation, or a [`bundle`] of both. A good signature of another artifact does not count. Certificates, logs and
//! identities are not supported, since they need trust in others.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;

use super::bundle::{self, BUNDLE_TYPE, PREDICATE_TYPE};
use super::error::OciError;
use super::manifest::{Image as ImageManifest, Manifest, Referrer, read_manifest};
use super::reference::Digest;
use super::registry::Registry;
use crate::fetch_budgets::GrowingCharge;
use crate::secret::SecretData;

/// The media type of the signed text.
const PAYLOAD_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// The annotation with the signature of the text.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
/// The required type in the text.
const PAYLOAD_KIND: &str = "cosign container image signature";
/// The most signatures of an artifact that are checked, and the most manifests that refer to it.
const SIGNATURES: usize = 64;
const REFERRERS: usize = 64;
/// The artifact types of signatures that registries report: a bundle, a manifest as under the tag (`cosign sign` of version 2 with referrers), or the replacement for
/// either where the registry does not know `artifactType`.
const REFERRER_TYPES: [&str; 5] = [
    BUNDLE_TYPE,
    "application/vnd.dev.cosign.artifact.sig.v1+json",
    "application/vnd.oci.empty.v1+json",
    "application/vnd.oci.image.config.v1+json",
    "",
];
/// The largest signed text in bytes.
const PAYLOAD_BYTES: u64 = 64 << 10;
/// The largest bundle in bytes, with the parts beside the signature.
const BUNDLE_BYTES: u64 = 128 << 10;
/// The most keys that may be trusted.
const KEYS: usize = 32;
/// The bytes before the point in the encoding of a P-256 public key.
const P256_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// A public key of ECDSA with P-256, the kind that cosign makes.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PublicKey {
    point: Vec<u8>,
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", hex::encode(self.point.get(..4).unwrap_or_default()))
    }
}

/// The signed text: names the artifact that the signature is for.
#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

impl PublicKey {
    /// Reads the keys of a Secret: every entry whose name ends in `.pub`.
    pub(crate) fn read_all(secret: &SecretData) -> Result<Vec<Self>, OciError> {
        let invalid = |problem: String| OciError::InvalidSecret {
            field: "spec.verify.secretRef",
            problem,
        };
        let named: Vec<_> = secret.iter().filter(|(name, _)| name.ends_with(".pub")).collect();
        if named.is_empty() {
            return Err(invalid(
                "it has no public key: none of its names ends in .pub".to_owned(),
            ));
        }
        if named.len() > KEYS {
            return Err(invalid(format!("it has more than {KEYS} public keys")));
        }
        let keys = named.into_iter().map(|(name, text)| {
            Self::read(text).ok_or_else(|| {
                let form = "a public key of ECDSA with P-256 in PEM, as cosign generate-key-pair writes it";
                invalid(format!("{name} is not {form}"))
            })
        });
        keys.collect()
    }

    fn read(text: &[u8]) -> Option<Self> {
        let der = SubjectPublicKeyInfoDer::from_pem_slice(text).ok()?;
        let point = der.as_ref().strip_prefix(&P256_PREFIX)?;
        (point.len() == 65 && point.first() == Some(&4)).then(|| Self { point: point.to_vec() })
    }

    /// Checks whether this key has signed the bytes.
    fn has_signed(&self, signed: &[u8], signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.point);
        key.verify(signed, signature).is_ok()
    }

    /// Returns the bytes that identify the key.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.point
    }
}

/// Checks whether one of the keys has signed the text, and whether the text names this artifact.
fn is_signature_of(digest: &Digest, payload: &[u8], signature: &str, keys: &[PublicKey]) -> bool {
    let Ok(signature) = STANDARD.decode(signature.trim()) else {
        return false;
    };
    let is_signed = keys.iter().any(|key| key.has_signed(payload, &signature));
    // The text is parsed only after its signature was verified.
    is_signed
        && serde_json::from_slice::<Payload>(payload).is_ok_and(|payload| {
            payload.critical.kind == PAYLOAD_KIND && payload.critical.image.digest == digest.as_str()
        })
}

/// Verifies that one of the keys has signed the artifact of this digest. The signatures are under the tag of the artifact, or in manifests that refer to it.
pub(super) async fn verify(
    registry: &mut Registry<'_>,
    digest: &Digest,
    keys: &[PublicKey],
    memory: &mut GrowingCharge,
) -> Result<(), OciError> {
    let tag = digest.signature_tag();
    let mut looked = 0;
    let before = memory.mark();
    let mut problem = match registry.get_manifest(&tag, memory).await {
        Ok((bytes, _)) => match read_manifest(&bytes) {
            Ok(Manifest::Image(signatures)) => {
                if has_signature(registry, (digest, &signatures), keys, (memory, &mut looked)).await? {
                    return Ok(());
                }
                format!("no matching signatures were found for {digest}")
            }
            _ => format!("the content of the tag {tag} is not a signature"),
        },
        Err(OciError::NotFound { .. }) => {
            format!("no signatures found for {digest} (there is no tag {tag}, and no bundle of cosign's refers to it)")
        }
        Err(error) => return Err(error),
    };
    memory.return_to(before);
    let mut referrers = Vec::new();
    let look = |referrer: Referrer| {
        if may_be_signature(&referrer) {
            referrers.push(referrer.digest);
        }
        referrers.len() < REFERRERS
    };
    registry.list_referrers(digest, memory, look).await?;
    for referrer in referrers {
        let before = memory.mark();
        let bytes = match registry.get_manifest(referrer.as_str(), memory).await {
            Ok((bytes, _)) => bytes,
            // The manifest was deleted, but the list under a tag still names it.
            Err(OciError::NotFound { .. }) => continue,
            Err(error) => return Err(error),
        };
        if let Ok(Manifest::Image(signatures)) = read_manifest(&bytes) {
            if has_signature(registry, (digest, &signatures), keys, (memory, &mut looked)).await? {
                return Ok(());
            }
            problem = format!("no matching signatures were found for {digest}");
        }
        drop(bytes);
        memory.return_to(before);
    }
    Err(OciError::Unverified { problem })
}

/// Checks whether a referrer may be a signature. Its own manifest has the real type: registries that don't know `artifactType` report the type of its config.
fn may_be_signature(referrer: &Referrer) -> bool {
    let is_known = REFERRER_TYPES.contains(&referrer.artifact_type.as_str());
    is_known
        && referrer
            .predicate
            .as_deref()
            .is_none_or(|about| about == PREDICATE_TYPE)
}

/// Checks whether one of the layers is a signature of this artifact: a text with its signature beside it, or a bundle.
async fn has_signature(
    registry: &mut Registry<'_>,
    (digest, signatures): (&Digest, &ImageManifest),
    keys: &[PublicKey],
    (memory, looked): (&mut GrowingCharge, &mut usize),
) -> Result<bool, OciError> {
    for layer in &signatures.layers {
        if *looked >= SIGNATURES {
            break;
        }
        let signature = layer.annotations.get(SIGNATURE);
        let limit = match (layer.media_type.as_str(), signature) {
            (PAYLOAD_TYPE, Some(_)) => PAYLOAD_BYTES,
            (BUNDLE_TYPE, _) => BUNDLE_BYTES,
            _ => continue,
        };
        if layer.size > limit {
            continue;
        }
        *looked = looked.saturating_add(1);
        let before = memory.mark();
        let blob = registry.get_blob(&layer.digest, limit, memory).await?;
        let is_good = match signature {
            Some(signature) if layer.media_type == PAYLOAD_TYPE => is_signature_of(digest, &blob, signature, keys),
            _ => bundle::is_signature_of(digest, &blob, |signed, signature| {
                keys.iter().any(|key| key.has_signed(signed, signature))
            }),
        };
        if is_good {
            return Ok(true);
        }
        drop(blob);
        memory.return_to(before);
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
    use serde_json::json;

    use super::*;

    fn make_pair() -> EcdsaKeyPair {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref(), &random).unwrap()
    }

    fn write_pem(pair: &EcdsaKeyPair) -> Vec<u8> {
        let der = [&P256_PREFIX, pair.public_key().as_ref()].concat();
        format!(
            "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
            STANDARD.encode(der)
        )
        .into_bytes()
    }

    fn digest(letter: &str) -> Digest {
        Digest::parse(&format!("sha256:{}", letter.repeat(64))).unwrap()
    }

    #[test]
    fn signature_counts_for_its_key_and_artifact_alone() {
        let (own, other) = (make_pair(), make_pair());
        let secret = SecretData::from([
            ("a.pub".to_owned(), write_pem(&own)),
            ("notes".to_owned(), b"x".to_vec()),
        ]);
        let keys = PublicKey::read_all(&secret).unwrap();
        let sign =
            |pair: &EcdsaKeyPair, payload: &[u8]| STANDARD.encode(pair.sign(&SystemRandom::new(), payload).unwrap());
        let write = |digest: &Digest, kind: &str| {
            json!({ "critical": { "identity": { "docker-reference": "" }, "image": { "docker-manifest-digest": digest.as_str() }, "type": kind }, "optional": null }).to_string().into_bytes()
        };
        let payload = write(&digest("a"), PAYLOAD_KIND);
        assert!(is_signature_of(&digest("a"), &payload, &sign(&own, &payload), &keys));
        assert!(
            !is_signature_of(&digest("b"), &payload, &sign(&own, &payload), &keys),
            "of another artifact"
        );
        assert!(
            !is_signature_of(&digest("a"), &payload, &sign(&other, &payload), &keys),
            "of another key"
        );
        assert!(!is_signature_of(&digest("a"), &payload, "bm9uZQ==", &keys));
        assert!(!is_signature_of(&digest("a"), &payload, "not base64", &keys));
        let atomic = write(&digest("a"), "atomic container signature");
        assert!(
            !is_signature_of(&digest("a"), &atomic, &sign(&own, &atomic), &keys),
            "of another kind"
        );
        assert!(!is_signature_of(&digest("a"), b"{}", &sign(&own, b"{}"), &keys));
    }

    #[test]
    fn keys_are_read_or_refused_by_name() {
        let refused = |name: &str, text: &[u8]| {
            let secret = SecretData::from([(name.to_owned(), text.to_vec())]);
            PublicKey::read_all(&secret).unwrap_err().to_string()
        };
        assert!(refused("cosign.key", &write_pem(&make_pair())).contains("none of its names ends in .pub"));
        assert!(refused("a.pub", b"sesame").contains("a.pub is not a public key of ECDSA with P-256"));
        assert!(!refused("a.pub", b"sesame").contains("sesame"));
    }
}
