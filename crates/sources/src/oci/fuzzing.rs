//! Checks of the readers of what a registry sends, see [`crate::fuzzing`].

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    reason = "a check fails by a panic"
)]

use serde::de::IgnoredAny;
use serde_json::Value;

use super::bundle;
use super::challenge::{Challenge, Realm, read_challenge};
use super::credentials::Keychain;
use super::reference::Digest;
use super::tags;
use crate::policy::{Endpoint, Scheme};
use crate::secret::SecretData;

fn registry() -> Endpoint {
    Endpoint {
        scheme: Scheme::Https,
        host: "registry.example.com".to_owned(),
        port: 443,
    }
}

pub(crate) fn check_challenge(text: &str) {
    let Some(Challenge::Bearer { realm, .. }) = read_challenge(text.lines()) else {
        return;
    };
    assert!(realm.len() <= text.len());
    let registry = registry();
    let Ok(realm) = Realm::read(&realm, &registry) else {
        return;
    };
    assert_eq!(
        realm.endpoint.scheme,
        Scheme::Https,
        "credentials would go over plain HTTP"
    );
    let host = realm.endpoint.host.as_str();
    let is_ours = host == "example.com" || host.ends_with(".example.com");
    assert_eq!(realm.is_of_site(&registry), is_ours, "{host}");
}

pub(crate) fn check_credentials(bytes: &[u8]) {
    let secret = SecretData::from([(".dockerconfigjson".to_owned(), bytes.to_vec())]);
    let Ok(keychain) = Keychain::read(&[secret]) else {
        return;
    };
    // Skipped parts may be nested deeper than a value may be.
    let Ok(config) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    let names = config.get("auths").and_then(Value::as_object).into_iter().flatten();
    if names.into_iter().any(|(name, _)| name.contains("sesame")) {
        // Names of entries are no secret.
        return;
    }
    for (host, path) in [
        ("registry.example.com", "team/app"),
        ("index.docker.io", "library/a"),
        ("10.0.0.7", "a"),
    ] {
        let endpoint = Endpoint {
            host: host.to_owned(),
            ..registry()
        };
        // No problem quotes a password.
        if let Err(problem) = keychain.find(&endpoint, path) {
            assert!(!problem.to_string().contains("sesame"), "{problem}");
        }
    }
}

pub(crate) fn check_tags(bytes: &[u8]) {
    let mut shown = Vec::new();
    let read = tags::read_page(bytes, &mut |tag| {
        shown.push(tag.to_owned());
        shown.len() < 100
    });
    let value: Result<Value, _> = serde_json::from_slice(bytes);
    // Parts that are skipped may have bytes that are no text.
    if let (Ok(()), Ok(value)) = (read, value) {
        assert!(shown.len() < 100);
        // The tags are those of another reader of JSON. A key that is there twice has none that is right, and an escaped one is not searched for.
        let text = String::from_utf8_lossy(bytes);
        if let Some(Value::Array(tags)) = value.get("tags")
            && text.matches("tags").count() == 1
            && !text.contains("\\u")
        {
            let tags: Vec<&str> = tags.iter().filter_map(Value::as_str).collect();
            assert_eq!(tags, shown);
        }
    }
}

pub(crate) fn check_bundle(bytes: &[u8]) {
    let digest = Digest::parse(&format!("sha256:{}", "a".repeat(64))).unwrap();
    assert!(
        !bundle::is_signature_of(&digest, bytes, |_, _| false),
        "a bundle without a trusted signature"
    );
    let accepted = bundle::is_signature_of(&digest, bytes, |signed, _| {
        assert!(signed.starts_with(b"DSSEv1 28 application/vnd.in-toto+json "));
        true
    });
    if accepted {
        serde_json::from_slice::<IgnoredAny>(bytes).unwrap();
    }
}

/// Returns the first inputs for [`crate::fuzzing::texts`], with their numbers.
pub(crate) fn text_seeds() -> Vec<(u8, String)> {
    let texts = [
        (
            3,
            r#"Bearer realm="https://auth.example.com/token?a=b",service="registry.example.com",scope="repository:a:pull""#,
        ),
        (
            3,
            "Basic realm=\"x\\\"y\"\nBearer realm=https://registry.example.com/token, Basic realm=a",
        ),
        (3, r#"bearer realm="https://example.com:8443/t",error="a, b""#),
        (
            4,
            r#"{"auths":{"registry.example.com/team":{"auth":"dXNlcjpzZXNhbWU="},"*.example.com":{"username":"a","password":"sesame"},"https://index.docker.io/v1/":{"identitytoken":"sesame"},"10.0.0.7":{"registrytoken":"sesame"},"bad":{"auth":"!"}}}"#,
        ),
        (5, r#"{"name":"a","tags":["v1","v2","\u0041"]}"#),
        (5, r#"{"tags":null}"#),
        (
            6,
            r#"{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","dsseEnvelope":{"payloadType":"application/vnd.in-toto+json","payload":"eyJfdHlwZSI6Imh0dHBzOi8vaW4tdG90by5pby9TdGF0ZW1lbnQvdjEiLCJzdWJqZWN0IjpbeyJkaWdlc3QiOnsic2hhMjU2IjoiYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWEifX1dLCJwcmVkaWNhdGVUeXBlIjoiaHR0cHM6Ly9zaWdzdG9yZS5kZXYvY29zaWduL3NpZ24vdjEifQ==","signatures":[{"sig":"c2lnbmVk"}]}}"#,
        ),
    ];
    texts.map(|(number, text)| (number, text.to_owned())).to_vec()
}

pub mod manifest {
    //! Any bytes as a manifest, a list of manifests, or a list of referrers, beside a plain reader of JSON.

    use serde_json::Value;

    use crate::oci::manifest::{Manifest, read_manifest, read_referrers};

    pub fn check(bytes: &[u8]) {
        let value: Option<Value> = serde_json::from_slice(bytes).ok();
        if !value.as_ref().is_some_and(Value::is_object) {
            // Serde reads a list as an object whose names are left out.
            let _read = (read_manifest(bytes), read_referrers(bytes));
            return;
        }
        let list = |key: &str| {
            value
                .as_ref()
                .and_then(|value| value.get(key))
                .and_then(Value::as_array)
        };
        match read_manifest(bytes) {
            Ok(Manifest::Image(image)) => {
                let layers = list("layers").unwrap();
                assert!(list("manifests").is_none(), "this can be read in two ways");
                assert_eq!(image.layers.len(), layers.len());
                for (layer, value) in image.layers.iter().zip(layers).filter(|(_, value)| value.is_object()) {
                    assert_eq!(value["digest"].as_str(), Some(layer.digest.as_str()));
                    assert_eq!(value["size"].as_u64(), Some(layer.size));
                    assert_eq!(
                        image.select_layer(Some(&layer.media_type)).unwrap().media_type,
                        layer.media_type
                    );
                }
                assert_eq!(image.select_layer(None).is_ok(), !layers.is_empty());
                let shown = image.list_metadata();
                let bytes: usize = shown.iter().map(|(key, value)| key.len() + value.len()).sum();
                assert!(bytes <= 4 << 10, "{bytes} bytes of annotations in a status");
                for (key, value) in &shown {
                    assert_eq!(image.annotations.get(key), Some(value));
                    assert!(!key.chars().chain(value.chars()).any(char::is_control));
                }
            }
            Ok(Manifest::Index(digest)) => {
                let manifests = list("manifests").unwrap();
                assert!(list("layers").is_none(), "this can be read in two ways");
                let has_digest = |value: &Value| value["digest"].as_str() == Some(digest.as_str());
                assert!(manifests.iter().any(|value| has_digest(value) || value.is_array()));
            }
            Err(problem) => assert!(!problem.is_empty()),
        }
        if let Ok(referrers) = read_referrers(bytes) {
            assert!(referrers.len() <= list("manifests").unwrap().len());
        }
    }

    /// Returns the first inputs.
    pub fn seeds() -> Vec<Vec<u8>> {
        let digest = format!("sha256:{}", "a".repeat(64));
        let layer = format!(
            r#"{{"mediaType":"application/vnd.cncf.flux.content.v1.tar+gzip","digest":"{digest}","size":3,"annotations":{{"a":"b"}}}}"#
        );
        let texts = [
            format!(
                r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{{}},"layers":[{layer},{layer}],"annotations":{{"org.opencontainers.image.revision":"main@sha1:1","x":"\u0007"}}}}"#
            ),
            format!(
                r#"{{"schemaVersion":2,"manifests":[{{"digest":"{digest}","size":1,"platform":{{"os":"linux","architecture":"arm64"}}}},{{"digest":"{digest}","size":1,"platform":{{"os":"linux","architecture":"amd64"}},"artifactType":"application/vnd.dev.sigstore.bundle.v0.3+json","annotations":{{"dev.sigstore.bundle.predicateType":"p"}}}}]}}"#
            ),
            format!(r#"{{"schemaVersion":2,"layers":[{layer}],"manifests":[]}}"#),
            r#"{"schemaVersion":1}"#.to_owned(),
        ];
        texts.map(String::into_bytes).to_vec()
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn manifests_around_the_first_inputs_keep_their_promises() {
            crate::fuzzing::check_around(&super::seeds(), super::check);
        }
    }
}

pub mod layer {
    //! Any bytes as a layer. Its archive holds only safe paths, and files that the crate tar finds in the layer, too.

    use std::collections::BTreeMap;
    use std::fs::File;
    use std::io::{Read as _, Seek as _, Write as _};
    use std::sync::atomic::AtomicBool;

    use flate2::Compression;
    use flate2::read::MultiGzDecoder;
    use flate2::write::GzEncoder;

    use crate::budget::BudgetLimits;
    use crate::fuzzing::pack::check_archive;
    use crate::fuzzing::tar::{has_lines_in_records, make_archives, repair_checksums};
    use crate::fuzzing::{Meter, unlimited_charge};
    use crate::limits::Limits;
    use crate::oci::layer::Layer;
    use crate::tree::Node;

    /// Bytes of the buffers, the compressor and the patterns, which don't grow with the layer.
    const BUFFERS: u64 = 1 << 20;

    fn limits() -> Limits {
        Limits {
            files: 60,
            file_bytes: 128 << 10,
            unpacked_bytes: 512 << 10,
            path_bytes: 200,
            depth: 8,
            ..Limits::default()
        }
    }

    /// The first byte selects: whether the other bytes are compressed already, and whether checksums are repaired.
    pub fn check(bytes: &[u8], file: &mut File, meter: Meter<'_>) {
        let Some((first, bytes)) = bytes.split_first() else {
            return;
        };
        let mut compressed = bytes.to_vec();
        if first & 1 == 0 {
            if first & 2 == 0 {
                repair_checksums(&mut compressed);
            }
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            gzip.write_all(&compressed).unwrap();
            compressed = gzip.finish().unwrap();
        }
        file.set_len(0).unwrap();
        file.rewind().unwrap();
        file.write_all(&compressed).unwrap();
        let limits = limits();
        let layer = Layer {
            file,
            ignore: Some("*.left-out\n"),
            limits: &limits,
            trees: &BudgetLimits::unlimited("files"),
            cancelled: &AtomicBool::new(false),
        };
        let mut written = None;
        // The archive is written into memory here, and into a file elsewhere.
        meter(BUFFERS + 2 * limits.unpacked_bytes, &mut || {
            let (mut out, mut memory) = (Vec::new(), unlimited_charge());
            written = layer
                .write_archive(&mut memory, &mut out)
                .ok()
                .map(|written| (written, out));
        });
        let Some((written, out)) = written else { return };
        assert!(written.unpacked <= limits.unpacked_bytes);
        let mut again = Vec::new();
        let second = layer.write_archive(&mut unlimited_charge(), &mut again).unwrap();
        assert_eq!(
            (&written.digest, &out),
            (&second.digest, &again),
            "the same layer gives two archives"
        );
        let tree = check_archive(&out, (&written.digest, written.size), &limits);
        let mut unpacked = Vec::new();
        MultiGzDecoder::new(compressed.as_slice())
            .read_to_end(&mut unpacked)
            .ok();
        if has_lines_in_records(&unpacked) {
            return;
        }
        let others = read_with_tar(&compressed);
        for (path, node) in tree.iter() {
            let content = match node {
                Node::File(content) => content.to_vec(),
                Node::Link(target) => target.clone().into_bytes(),
            };
            assert_eq!(
                others.get(path),
                Some(&content),
                "{path:?} is another file for another reader"
            );
        }
    }

    /// Reads contents and targets of links by their paths.
    fn read_with_tar(compressed: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(MultiGzDecoder::new(compressed));
        let mut files = BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let path = path.trim_start_matches("./").to_owned();
            let mut content = Vec::new();
            match entry.link_name_bytes() {
                Some(link) if entry.header().entry_type().is_symlink() => content.extend_from_slice(&link),
                _ => drop(entry.read_to_end(&mut content).unwrap()),
            }
            files.insert(path, content);
        }
        files
    }

    /// Returns the first inputs: archives, and a compressed one.
    pub fn seeds() -> Vec<Vec<u8>> {
        let mut seeds: Vec<Vec<u8>> = make_archives()
            .into_iter()
            .map(|archive| [vec![0], archive].concat())
            .collect();
        let mut gzip = GzEncoder::new(vec![1], Compression::best());
        gzip.write_all(&make_archives()[0]).unwrap();
        seeds.push(gzip.finish().unwrap());
        seeds
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn layers_around_the_first_inputs_keep_their_promises() {
            let file = std::cell::RefCell::new(tempfile::tempfile().unwrap());
            crate::fuzzing::check_around(&super::seeds(), |bytes| {
                super::check(bytes, &mut file.borrow_mut(), &crate::fuzzing::run);
            });
        }
    }
}
