//! Signatures of cosign.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::json;
use tenure_planner::oci_repository::FetchRequest;
use tenure_planner::source::{FetchReason, Fetched};
use tenure_registry_server::{Artifact, RegistryServer, digest, pack};
use tenure_sources::SecretData;

use super::Stand;

fn make_pair() -> (EcdsaKeyPair, Vec<u8>) {
    let random = SystemRandom::new();
    let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref(), &random).unwrap();
    let prefix = "3059301306072a8648ce3d020106082a8648ce3d030107034200";
    let der = [hex::decode(prefix).unwrap(), pair.public_key().as_ref().to_vec()].concat();
    let pem = format!(
        "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
        STANDARD.encode(der)
    );
    (pair, pem.into_bytes())
}

fn sign(server: &RegistryServer, of: &str, about: &str, pair: &EcdsaKeyPair) {
    let payload = json!({
        "critical": { "identity": { "docker-reference": "" }, "image": { "docker-manifest-digest": about }, "type": "cosign container image signature" },
        "optional": null,
    });
    let signature = pair.sign(&SystemRandom::new(), payload.to_string().as_bytes()).unwrap();
    server.push_signature("team/app", of, &payload, signature.as_ref());
}

#[tokio::test]
async fn only_what_a_trusted_key_has_signed_is_stored() {
    let mut stand = Stand::new().await;
    let (own, own_key) = make_pair();
    let (other, other_key) = make_pair();
    stand.secrets.keys = Some(SecretData::from([("own.pub".to_owned(), own_key.clone())]));
    let wanted = stand.push("latest", &[("a.yaml", "a")]);
    let elsewhere = stand.push("other", &[("a.yaml", "b")]);
    let asked = || FetchRequest {
        keys: Some("keys".to_owned()),
        ..stand.ask(json!({}))
    };
    let refuse = async |problem: &str| {
        let (error, message) = stand.refuse(asked()).await;
        assert_eq!(error.reason(), FetchReason::VerificationError, "{message}");
        assert!(message.contains(problem), "{message}");
        let heard = stand.server.heard();
        let layer = digest(&pack(&[("a.yaml", "a")]));
        assert!(
            !heard.iter().any(|heard| heard.target.ends_with(&layer)),
            "nothing is received before it is verified"
        );
    };
    refuse("no signatures found").await;
    sign(&stand.server, &wanted, &wanted, &other);
    refuse("no matching signatures").await;
    // A good signature, of another artifact.
    sign(&stand.server, &wanted, &elsewhere, &own);
    refuse("no matching signatures").await;
    stand.server.push(
        "team/app",
        &format!("{}.sig", wanted.replacen(':', "-", 1)),
        &Artifact::of(&[]),
    );
    refuse("no matching signatures").await;

    sign(&stand.server, &wanted, &wanted, &own);
    let artifact = stand.get(asked()).await;
    // Of other keys that are trusted, this one is none: what is stored is not passed off as verified.
    let known = FetchRequest {
        known: Some(artifact),
        ..asked()
    };
    assert!(matches!(
        stand.fetch(known.clone()).await,
        Ok(Fetched::Unchanged { .. })
    ));
    stand.secrets.keys = Some(SecretData::from([("other.pub".to_owned(), other_key.clone())]));
    let (error, message) = stand.refuse(known.clone()).await;
    assert_eq!(error.reason(), FetchReason::VerificationError, "{message}");
    // Any of them suffices.
    stand.secrets.keys = Some(SecretData::from([
        ("a.pub".to_owned(), other_key),
        ("b.pub".to_owned(), own_key),
    ]));
    assert!(matches!(stand.fetch(known).await, Ok(Fetched::Stored { .. })));
}
