//! Hostile registries and artifacts.

use std::io::{Read as _, Write as _};

use serde_json::json;
use tenure_registry_server::{Answer, compute_digest, pack_entries, pack_files};
use tenure_remote_requests::fetch::FetchReason;
use tenure_remote_requests::oci::{FetchRequest, LayerOperation};
use tenure_sources::{BudgetLimits, ByteBudget, OciError};

use super::{Stand, source_key};
use crate::bed::noise;

#[tokio::test]
async fn content_with_wrong_digest_or_size_is_refused() {
    let stand = Stand::new().await;
    let good = pack_files(&[("a.yaml", "good")]);
    let mut evil = good.clone();
    evil[20] ^= 1;
    stand.push_layer(good.clone());
    stand.server.replace_blob(&compute_digest(&good), evil);
    let (error, message) = stand.refuse(stand.make_request(json!({}))).await;
    assert!(matches!(error, OciError::DigestMismatch { .. }), "{message}");
    stand
        .server
        .replace_blob(&compute_digest(&good), [good.clone(), vec![0; 10]].concat());
    let (_, message) = stand.refuse(stand.make_request(json!({}))).await;
    assert!(message.contains("not as long as its manifest says"), "{message}");
    stand.server.replace_blob(&compute_digest(&good), good[..10].to_vec());
    let (_, message) = stand.refuse(stand.make_request(json!({}))).await;
    assert!(message.contains("not as long as its manifest says"), "{message}");

    // A manifest under another manifest's digest.
    let other = stand.push("other", &[("a.yaml", "other")]);
    let body = json!({ "schemaVersion": 2, "layers": [] }).to_string();
    stand
        .server
        .answer_with(move |request| request.target.ends_with(&other).then(|| Answer::new(200, body.clone())));
    let (error, message) = stand.refuse(stand.make_request(json!({ "tag": "other" }))).await;
    assert!(matches!(error, OciError::DigestMismatch { .. }), "{message}");

    // The control.
    stand.server.replace_blob(&compute_digest(&good), good);
    stand.get(stand.make_request(json!({}))).await;
}

#[tokio::test]
async fn endless_answers_are_cut_off() {
    let mut stand = Stand::new().await;
    stand.push("latest", &[("a.yaml", "a")]);
    // Endless tags, on empty pages and on full pages.
    for full in [false, true] {
        let tags: Vec<String> = if full {
            (0..2000).map(|number| format!("0.0.{number}")).collect()
        } else {
            Vec::new()
        };
        stand.server.answer_with(move |request| {
            let (_, number) = request.target.split_once("tags/list?n=")?;
            let next = number.parse::<u64>().unwrap_or_default() + 1;
            let answer = Answer::new(200, json!({ "tags": tags }).to_string());
            Some(answer.with("Link", format!("</v2/team/app/tags/list?n={next}>; rel=\"next\"")))
        });
        let (error, message) = stand.refuse(stand.make_request(json!({ "semver": "*" }))).await;
        assert!(matches!(error, OciError::TooLarge { .. }), "{message}");
        let expected = if full {
            "tags of the repository exceed 100000"
        } else {
            "pages of tags exceed 1000"
        };
        assert!(message.contains(expected), "{message}");
    }
    // A next page of another repository.
    stand.server.answer_with(|request| {
        let is_list = request.target.contains("tags/list");
        is_list.then(|| Answer::new(200, "{\"tags\":[]}").with("Link", "</v2/other/app/tags/list?n=1>; rel=\"next\""))
    });
    let (_, message) = stand.refuse(stand.make_request(json!({ "semver": "*" }))).await;
    assert!(message.contains("belongs to another repository"), "{message}");
    // An endless manifest.
    stand.server.answer_with(|request| {
        let is_manifest = request.method == "GET" && request.target.contains("/manifests/");
        is_manifest.then(|| Answer::new(200, vec![b' '; 5 << 20]))
    });
    let (_, message) = stand.refuse(stand.make_request(json!({}))).await;
    assert!(message.contains("bytes of a manifest exceed 4 MiB"), "{message}");
    // An endless redirect.
    stand
        .server
        .answer_with(|request| Some(Answer::new(307, "").with("Location", request.target.clone())));
    let (_, message) = stand.refuse(stand.make_request(json!({}))).await;
    assert!(message.contains("too many in a row"), "{message}");
    // A manifest that exceeds the tenant's memory budget.
    stand.server.answer_with(|request| {
        let is_manifest = request.method == "GET" && request.target.contains("/manifests/");
        is_manifest.then(|| Answer::new(200, vec![b' '; 3 << 20]))
    });
    stand.account.memory = ByteBudget::new(BudgetLimits {
        what: "bytes of fetches in memory",
        lane: 4 << 20,
        all: 8 << 20,
        lane_setting: "--lane",
        all_setting: "--all",
        is_half: false,
    });
    let (error, message) = stand.refuse(stand.make_request(json!({}))).await;
    assert!(matches!(error, OciError::OverBudget(_)), "{message}");
    assert_eq!(stand.account.memory.held(), 0);
    // The control: the same artifact on a correct registry.
    stand.server.answer_with(|_| None);
    stand.get(stand.make_request(json!({}))).await;
    assert_eq!(stand.account.memory.held(), 0);
}

/// Makes a layer of zeros that unpacks to a thousand times its size.
fn make_bomb(files: usize, bytes: usize) -> Vec<u8> {
    let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best()));
    for number in 0..files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(bytes as u64);
        archive
            .append_data(&mut header, format!("f{number}"), std::io::repeat(0).take(bytes as u64))
            .unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

#[tokio::test]
async fn bombs_and_strange_layers_are_refused() {
    let mut stand = Stand::new().await;
    stand.limits.unpacked_bytes = 1 << 20;
    stand.limits.file_bytes = 512 << 10;
    stand.limits.files = 1000;
    let entry = |kind: tar::EntryType, path: &str| {
        let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        let mut header = tar::Header::new_gnu();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.set_size(0);
        header.set_link_name("/etc/passwd").unwrap();
        header.set_cksum();
        archive.append(&header, std::io::empty()).unwrap();
        archive.into_inner().unwrap().finish().unwrap()
    };
    let mut gzipped_noise = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzipped_noise.write_all(&noise(1, 10_000)).unwrap();
    let through_a_link = pack_entries(&[(b'2', "out", "/etc"), (b'0', "out/passwd", "")]);
    for (layer, problem) in [
        (make_bomb(10, 300 << 10), "unpacked bytes exceed 1 MiB"),
        (make_bomb(1, 600 << 10), "bytes of one file exceed 512 KiB"),
        (make_bomb(2000, 0), "files exceed 1000"),
        (entry(tar::EntryType::Regular, "../../etc/passwd"), "\"..\" part"),
        (entry(tar::EntryType::Regular, "/etc/passwd"), "an empty"),
        (entry(tar::EntryType::Link, "a"), "neither a file nor a link"),
        (entry(tar::EntryType::Block, "a"), "neither a file nor a link"),
        (pack_files(&[("a", "1"), ("./a", "2")]), "is in its layer twice"),
        (
            pack_files(&[("a", "1"), ("a-b", "2"), ("a/b", "3")]),
            "is both a file and a folder",
        ),
        (through_a_link, "is both a file and a folder"),
        (
            pack_files(&[(".sourceignore", &"x".repeat(70_000))]),
            "is larger than 64 KiB",
        ),
        (entry(tar::EntryType::Symlink, ".sourceignore"), "is a symbolic link"),
        (b"no archive".to_vec(), "compressed with gzip"),
        (gzipped_noise.finish().unwrap(), "it is no tar archive"),
    ] {
        stand.push_layer(layer);
        let (error, message) = stand.refuse(stand.make_request(json!({}))).await;
        assert_eq!(
            error.reason(),
            FetchReason::OciArtifactLayerOperationFailed,
            "{message}"
        );
        assert!(message.contains(problem), "{problem}: {message}");
    }
    // A layer that exceeds the tenant's limit for trees is refused before it is stored.
    stand.account.trees = BudgetLimits {
        lane: 100 << 10,
        all: 1 << 20,
        lane_setting: "--trees",
        ..BudgetLimits::unlimited("files")
    };
    stand.push_layer(make_bomb(2, 100 << 10));
    let (error, message) = stand.refuse(stand.make_request(json!({}))).await;
    assert!(matches!(error, OciError::OverBudget(_)), "{message}");
    // The controls: a small layer, and a link, which is stored unchanged and never followed here.
    stand.push_layer(pack_files(&[("./a", "1")]));
    let artifact = stand.get(stand.make_request(json!({}))).await;
    assert_eq!(stand.list(&artifact), ["a"]);
    stand.push_layer(entry(tar::EntryType::Symlink, "link"));
    let artifact = stand.get(stand.make_request(json!({}))).await;
    assert_eq!(stand.list(&artifact), ["link"]);
    // An excluded file may be anything.
    let strange = [
        ("legacy/.sourceignore", "x".repeat(70_000)),
        ("legacy/big", "x".repeat(600 << 10)),
    ];
    for (path, content) in strange {
        stand.push_layer(pack_files(&[("a", "1"), (path, &content)]));
        stand.refuse(stand.make_request(json!({}))).await;
        let artifact = stand
            .get(FetchRequest {
                ignore: Some("/legacy/".to_owned()),
                ..stand.make_request(json!({}))
            })
            .await;
        assert_eq!(stand.list(&artifact), ["a"]);
    }
    // A copied bomb takes only its own size; unpacking refuses it.
    let layer = make_bomb(10, 300 << 10);
    stand.push_layer(layer);
    let copied = stand
        .get(FetchRequest {
            operation: LayerOperation::Copy,
            ..stand.make_request(json!({}))
        })
        .await;
    assert!(
        stand
            .store
            .load(&source_key(), &copied.facts.digest, &stand.limits)
            .is_err()
    );
    // A copied layer that is no archive is reported as such; its last bytes are not read as a size.
    stand.push_layer(b"kind: ConfigMap # and a long line at the end".to_vec());
    let copied = stand
        .get(FetchRequest {
            operation: LayerOperation::Copy,
            ..stand.make_request(json!({}))
        })
        .await;
    let size = stand.store.loaded_size(&source_key(), &copied.facts.digest);
    let message = size.unwrap_err().to_string();
    assert!(
        message.contains("no tar archive that is compressed with gzip"),
        "{message}"
    );
}
