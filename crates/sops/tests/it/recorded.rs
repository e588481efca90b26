//! Recorded results of the real sops (`e2e/sops/record`). Every file is decrypted and compared with its clear output, byte for byte or, for YAML, as data. Files that
//! sops refuses are refused, and a MAC that sops finds wrong is wrong.

use std::fs;
use std::path::{Path, PathBuf};

use go_yaml::read::{Lines, Source, first_document, split_documents};
use go_yaml::scalar::Dialect;
use serde_json::Value;
use sops::{Format, Keys, Limits, MacVerdict, decrypt};

fn data_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn read_key(name: &str) -> Vec<u8> {
    fs::read(data_folder().join("keys").join(name)).unwrap()
}

/// Returns the recorder's own keys, without the stranger's.
fn read_keys() -> Keys {
    let mut keys = Keys::new();
    keys.add_age(&read_key("first.agekey")).unwrap();
    keys.add_age(&read_key("second.agekey")).unwrap();
    keys.add_pgp(&read_key("rsa.asc")).unwrap();
    keys.add_pgp(&read_key("curve.asc")).unwrap();
    keys
}

fn format_of(name: &str) -> Format {
    match name.rsplit('.').next() {
        Some("bin") => Format::Binary,
        _ => Format::of_name(name),
    }
}

/// Reads the documents of a YAML text as JSON values.
fn parse_values(text: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(text).unwrap();
    let source = Source {
        file: 0,
        lines: Lines::After(0),
        maximum_nodes: 100_000,
        scanner: Dialect::V3,
    };
    let chunks = split_documents(text).unwrap();
    let read = |text| first_document(text, source).unwrap();
    chunks
        .iter()
        .filter_map(|chunk| read(chunk.text))
        .map(|node| go_yaml::json::resource_value(&node).unwrap())
        .collect()
}

fn read_encrypted(name: &str) -> Vec<u8> {
    fs::read(data_folder().join("encrypted").join(name)).unwrap()
}

fn count_lines(file: &[u8]) -> usize {
    String::from_utf8_lossy(file).lines().count()
}

fn read_verdicts() -> Vec<(String, String)> {
    let text = fs::read_to_string(data_folder().join("verdicts")).unwrap();
    text.lines()
        .map(|line| line.split_once('\t').unwrap())
        .map(|(name, verdict)| (name.to_owned(), verdict.to_owned()))
        .collect()
}

#[test]
fn every_file_gets_the_verdict_of_sops() {
    let keys = read_keys();
    let mut wrong = Vec::new();
    for (name, verdict) in read_verdicts() {
        let format = format_of(&name);
        let decrypted = decrypt(
            &read_encrypted(&name),
            (format, format),
            &keys,
            None,
            &Limits::default(),
        );
        let clear = fs::read(data_folder().join("clear").join(&name));
        let is_right = match (verdict.as_str(), &decrypted) {
            ("refused", Err(_)) => true,
            ("right" | "wrong-mac", Ok(decrypted)) => {
                let clear = clear.unwrap();
                let is_same = match format {
                    Format::Yaml => parse_values(&clear) == parse_values(&decrypted.bytes),
                    _ => clear == *decrypted.bytes,
                };
                let text = String::from_utf8_lossy(&decrypted.bytes);
                // Comments are clear, too. A file that editing had damaged would have other lines.
                let are_lines_kept =
                    format != Format::Yaml || text.lines().count() <= count_lines(&read_encrypted(&name));
                is_same
                    && are_lines_kept
                    && !text.contains("ENC[")
                    && (decrypted.mac == MacVerdict::Right) == (verdict == "right")
            }
            _ => false,
        };
        if !is_right {
            let shown = decrypted
                .as_ref()
                .map(|decrypted| String::from_utf8_lossy(&decrypted.bytes).into_owned());
            wrong.push(format!(
                "{name}: sops says {verdict}, and here {decrypted:?}\n{shown:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
