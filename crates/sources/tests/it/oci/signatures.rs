//! Signatures of cosign.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use tenure_registry_server::{Answer, Artifact, RegistryServer, compute_digest, pack_files};
use tenure_remote_requests::fetch::{FetchReason, Fetched};
use tenure_remote_requests::oci::FetchRequest;
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

/// Writes a bundle as cosign does since version 3, with a key: the subject of the statement, and the key that signs it.
fn write_bundle(about: &str, predicate: &str, pair: &EcdsaKeyPair) -> Value {
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{ "digest": { "sha256": about.trim_start_matches("sha256:") }, "annotations": {} }],
        "predicateType": predicate, "predicate": {},
    })
    .to_string();
    let payload_type = "application/vnd.in-toto+json";
    let signed = format!(
        "DSSEv1 {} {payload_type} {} {statement}",
        payload_type.len(),
        statement.len()
    );
    let signature = pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
    json!({
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": { "publicKey": { "hint": "a hint" }, "tlogEntries": [] },
        "dsseEnvelope": {
            "payload": STANDARD.encode(statement), "payloadType": payload_type,
            "signatures": [{ "sig": STANDARD.encode(signature) }]
        }
    })
}

const SIGNATURE: &str = "https://sigstore.dev/cosign/sign/v1";

/// A referrer is found through the registry, and under the tag that stands for the list. It counts as a signature if its type says so, it names this artifact, and a
/// trusted key made it.
#[tokio::test]
async fn referring_bundle_counts_as_signature() {
    for keeps_referrers in [true, false] {
        let mut stand = Stand::new().await;
        if !keeps_referrers {
            stand.server.keep_no_referrers();
        }
        let (own, own_key) = make_pair();
        let (other, _) = make_pair();
        stand.secrets.keys = Some(SecretData::from([("own.pub".to_owned(), own_key)]));
        let wanted = stand.push("latest", &[("a.yaml", "a")]);
        let elsewhere = stand.push("other", &[("a.yaml", "b")]);
        let asked = || FetchRequest {
            keys: Some("keys".to_owned()),
            ..stand.make_request(json!({}))
        };
        let push = |bundle: &Value| stand.server.push_bundle("team/app", &wanted, bundle);
        let refuse = async |problem: &str| {
            let (error, message) = stand.refuse(asked()).await;
            assert_eq!(error.reason(), FetchReason::VerificationError, "{message}");
            assert!(message.contains(problem), "{message}");
        };
        refuse("no signatures found").await;
        push(&write_bundle(&wanted, SIGNATURE, &other));
        push(&write_bundle(&elsewhere, SIGNATURE, &own));
        // Other statements of a trusted key about the artifact, for instance its SBOM, don't count as a signature.
        push(&write_bundle(&wanted, "https://cyclonedx.org/bom", &own));
        let mut changed = write_bundle(&wanted, SIGNATURE, &own);
        changed["dsseEnvelope"]["payload"] =
            write_bundle(&wanted, SIGNATURE, &other)["dsseEnvelope"]["payload"].clone();
        changed["dsseEnvelope"]["signatures"] =
            write_bundle(&elsewhere, SIGNATURE, &own)["dsseEnvelope"]["signatures"].clone();
        push(&changed);
        refuse("no matching signatures").await;
        push(&write_bundle(&wanted, SIGNATURE, &own));
        assert!(
            matches!(stand.fetch(asked()).await, Ok(Fetched::Stored { .. })),
            "{keeps_referrers}"
        );
    }
}

/// Signatures of cosign 2 with `--registry-referrers-mode=oci-1-1`: the same text as under the tag.
#[tokio::test]
async fn referring_simple_signing_text_counts_as_signature() {
    let mut stand = Stand::new().await;
    let (own, own_key) = make_pair();
    stand.secrets.keys = Some(SecretData::from([("own.pub".to_owned(), own_key)]));
    let wanted = stand.push("latest", &[("a.yaml", "a")]);
    let payload = json!({ "critical": {
        "identity": { "docker-reference": "" }, "image": { "docker-manifest-digest": wanted }, "type": "cosign container image signature"
    }, "optional": null })
    .to_string();
    let signature = own.sign(&SystemRandom::new(), payload.as_bytes()).unwrap();
    let annotations = json!({ "dev.cosignproject.cosign/signature": STANDARD.encode(signature) });
    let layer = (
        "application/vnd.dev.cosign.simplesigning.v1+json",
        payload.into_bytes(),
        annotations,
    );
    let kind = "application/vnd.dev.cosign.artifact.sig.v1+json";
    stand.server.push_referrer("team/app", &wanted, kind, layer);
    let asked = FetchRequest {
        keys: Some("keys".to_owned()),
        ..stand.make_request(json!({}))
    };
    assert!(matches!(stand.fetch(asked).await, Ok(Fetched::Stored { .. })));
}

/// A user with the right to push can't make verification arbitrarily expensive with bundles, endless pages, or deleted manifests.
#[tokio::test]
async fn referrers_of_an_artifact_are_bounded() {
    let mut stand = Stand::new().await;
    let (own, own_key) = make_pair();
    let (other, _) = make_pair();
    stand.secrets.keys = Some(SecretData::from([("own.pub".to_owned(), own_key)]));
    let wanted = stand.push("latest", &[("a.yaml", "a")]);
    let asked = || FetchRequest {
        keys: Some("keys".to_owned()),
        ..stand.make_request(json!({}))
    };
    let push = |pair: &EcdsaKeyPair| {
        stand
            .server
            .push_bundle("team/app", &wanted, &write_bundle(&wanted, SIGNATURE, pair))
    };
    for _ in 0..64 {
        push(&other);
    }
    push(&own);
    let (_, message) = stand.refuse(asked()).await;
    assert!(message.contains("no matching signatures"), "{message}");
    let of = |what: &str| {
        stand
            .server
            .requests()
            .iter()
            .filter(|request| request.target.contains(what))
            .count()
    };
    // The requests for the tag's signatures and for the artifact count, too.
    assert!(of("/blobs/") <= 64 && of("/manifests/") <= 70 && of("/referrers/") <= 8);
    let path = format!("/v2/team/app/referrers/{wanted}");
    stand.server.answer_with(move |request| {
        let is_asked = request.target.starts_with(&path);
        let page = json!({ "schemaVersion": 2, "manifests": [] }).to_string();
        is_asked.then(|| Answer::new(200, page).with("Link", format!("<{path}?again>; rel=\"next\"")))
    });
    let before = of("/referrers/");
    let (_, message) = stand.refuse(asked()).await;
    assert!(message.contains("no signatures found"), "{message}");
    assert_eq!(of("/referrers/") - before, 8);
    for (body, problem) in [("[]", "referrers"), ("{\"schemaVersion\": 2}", "no manifests")] {
        stand
            .server
            .answer_with(move |request| request.target.contains("/referrers/").then(|| Answer::new(200, body)));
        let (_, message) = stand.refuse(asked()).await;
        assert!(message.contains(problem), "{message}");
    }
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
        ..stand.make_request(json!({}))
    };
    let refuse = async |problem: &str| {
        let (error, message) = stand.refuse(asked()).await;
        assert_eq!(error.reason(), FetchReason::VerificationError, "{message}");
        assert!(message.contains(problem), "{message}");
        let requests = stand.server.requests();
        let layer = compute_digest(&pack_files(&[("a.yaml", "a")]));
        assert!(
            !requests.iter().any(|request| request.target.ends_with(&layer)),
            "nothing is received before it is verified"
        );
    };
    refuse("no signatures found").await;
    sign(&stand.server, &wanted, &wanted, &other);
    refuse("no matching signatures").await;
    // A good signature of another artifact.
    sign(&stand.server, &wanted, &elsewhere, &own);
    refuse("no matching signatures").await;
    stand.server.push(
        "team/app",
        &format!("{}.sig", wanted.replacen(':', "-", 1)),
        &Artifact::from_files(&[]),
    );
    refuse("no matching signatures").await;

    sign(&stand.server, &wanted, &wanted, &own);
    let artifact = stand.get(asked()).await;
    // Under another set of trusted keys, the stored artifact does not count as verified.
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
    // Any of the keys suffices.
    stand.secrets.keys = Some(SecretData::from([
        ("a.pub".to_owned(), other_key),
        ("b.pub".to_owned(), own_key),
    ]));
    assert!(matches!(stand.fetch(known).await, Ok(Fetched::Stored { .. })));
}
