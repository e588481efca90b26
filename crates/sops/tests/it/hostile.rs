//! Hostile input: expensive files, files with any byte changed, wrong kinds of keys, and searches for secrets in messages. No input causes a panic, and no message
//! contains a secret.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use sops::{Error, Format, Keys, Limits, decrypt};

fn read_data(path: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)).unwrap()
}

fn read_age_keys() -> Keys {
    let mut keys = Keys::new();
    keys.add_age(&read_data("keys/first.agekey")).unwrap();
    keys
}

fn decrypt_error(file: &[u8], format: Format, keys: &Keys) -> Error {
    decrypt(file, (format, format), keys, None, &Limits::default()).unwrap_err()
}

#[test]
fn services_are_refused_by_name() {
    let error = decrypt_error(&read_data("encrypted/changed-kms.yaml"), Format::Yaml, &read_age_keys());
    assert_eq!(error, Error::ServicesOnly("AWS KMS".to_owned()));
    assert!(error.to_string().contains("add an age or OpenPGP recipient"));
}

#[test]
fn another_ones_key_opens_nothing() {
    let mut stranger = Keys::new();
    stranger.add_age(&read_data("keys/stranger.agekey")).unwrap();
    let error = decrypt_error(&read_data("encrypted/secret.yaml"), Format::Yaml, &stranger);
    assert_eq!(error, Error::NoKey("one recipient of age".to_owned()));
    assert!(matches!(
        decrypt_error(
            &read_data("encrypted/groups-too-few.yaml"),
            Format::Yaml,
            &read_age_keys()
        ),
        Error::Threshold { .. }
    ));
}

#[test]
fn keys_of_wrong_kinds_are_refused_and_not_repeated() {
    let age = String::from_utf8(read_data("keys/first.agekey")).unwrap();
    let secret = age.lines().find(|line| line.starts_with("AGE-SECRET-KEY-")).unwrap();
    let mistyped = format!("# comment\n{}Q\n", &secret[..secret.len() - 1]);
    let plugin = "AGE-PLUGIN-YUBIKEY-1QQPQQQQ\n".to_owned();
    let quantum = "AGE-SECRET-KEY-PQ-1QQPQQQQ\n".to_owned();
    for text in [
        mistyped,
        plugin,
        quantum,
        String::new(),
        "ssh-ed25519 AAAA".to_owned(),
        secret.repeat(2),
        format!("{secret}\n").repeat(65),
    ] {
        let error = Keys::new().add_age(text.as_bytes()).unwrap_err().to_string();
        assert!(!error.contains(&secret[20..40]), "{error}");
    }
    assert!(Keys::new().add_age(&[0xff, 0xfe]).is_err());
    for (name, words) in [("locked", "passphrase"), ("public", "public key")] {
        let error = Keys::new()
            .add_pgp(&read_data(&format!("keys/{name}.asc")))
            .unwrap_err()
            .to_string();
        assert!(error.contains(words), "{error}");
    }
    assert!(
        Keys::new()
            .add_pgp(b"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nAAAA\n-----END PGP PRIVATE KEY BLOCK-----")
            .is_err()
    );
}

#[test]
fn nothing_secret_is_printed() {
    let keys = read_age_keys();
    let file = read_data("encrypted/secret.yaml");
    let decrypted = decrypt(&file, (Format::Yaml, Format::Yaml), &keys, None, &Limits::default()).unwrap();
    let printed = format!("{keys:?} {decrypted:?}");
    assert_eq!(
        printed,
        format!(
            "Keys(1 of age, 0 of OpenPGP) Decrypted({} bytes, Right)",
            decrypted.bytes.len()
        )
    );
    // The value should be encrypted and isn't. It is readable in the file, and still not repeated in the error.
    let error = decrypt_error(&read_data("encrypted/changed-plain-value.yaml"), Format::Yaml, &keys).to_string();
    assert_eq!(error, "the value at stringData:password should be encrypted and isn't");
}

#[test]
fn a_document_that_is_to_stay_encrypted_stays() {
    let file = read_data("encrypted/documents.yaml");
    let text = String::from_utf8(file.clone()).unwrap();
    let kept = sops::EncryptedDocumentSelector {
        path: &["metadata", "name"],
        text: "TWO",
    };
    let clear = decrypt(
        &file,
        (Format::Yaml, Format::Yaml),
        &read_age_keys(),
        Some(kept),
        &Limits::default(),
    )
    .unwrap();
    let clear = String::from_utf8(clear.bytes.to_vec()).unwrap();
    let second = |text: &str| text.split("\n---\n").nth(1).unwrap().to_owned();
    assert_eq!(second(&clear), second(&text));
    assert!(!clear.split("\n---\n").next().unwrap().contains("ENC["));
    // If all documents stay encrypted, no key is needed.
    let kept = sops::EncryptedDocumentSelector {
        path: &["kind"],
        text: "secret",
    };
    let one = text.split("\n---\n").next().unwrap();
    let same = decrypt(
        one.as_bytes(),
        (Format::Yaml, Format::Yaml),
        &Keys::new(),
        Some(kept),
        &Limits::default(),
    )
    .unwrap();
    assert_eq!(same.bytes.as_slice(), one.as_bytes());
}

#[test]
fn costly_files_are_refused() {
    let keys = read_age_keys();
    let large = vec![b'a'; (5 << 20) + 1];
    assert!(matches!(
        decrypt_error(&large, Format::Yaml, &keys),
        Error::TooLarge { .. }
    ));
    let deep = "{\"a\":".repeat(100_000);
    assert!(matches!(
        decrypt_error(deep.as_bytes(), Format::Json, &keys),
        Error::TooMany { .. }
    ));
    assert!(matches!(
        decrypt_error("[".repeat(100_000).as_bytes(), Format::Yaml, &keys),
        Error::TooMany { .. } | Error::Syntax { .. }
    ));
    // Aliases that multiply the content by ten on each line.
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..12 {
        let before = format!("*a{}", level - 1);
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", [before.as_str(); 10].join(",")));
    }
    assert!(matches!(
        decrypt_error(bomb.as_bytes(), Format::Yaml, &keys),
        Error::TooMany { what: "values", .. }
    ));
    let many = "a: 1\n".to_owned() + &(0..300_000).map(|key| format!("k{key}: 1\n")).collect::<String>();
    assert!(matches!(
        decrypt_error(many.as_bytes(), Format::Yaml, &keys),
        Error::TooMany { what: "values", .. }
    ));
    let recipient = "        - recipient: age1\n          enc: x\n";
    let metadata = "    lastmodified: \"2024-01-02T03:04:05Z\"\n    mac: ENC[x]\n";
    let crowd = format!("a: 1\nsops:\n    age:\n{}{metadata}", recipient.repeat(65));
    assert!(matches!(
        decrypt_error(crowd.as_bytes(), Format::Yaml, &keys),
        Error::TooMany { what: "recipients", .. }
    ));
    let regex = format!("a: 1\nsops:\n    age:\n{recipient}    encrypted_regex: '(\\w{{1000}}){{1000}}'\n{metadata}");
    assert!(matches!(
        decrypt_error(regex.as_bytes(), Format::Yaml, &keys),
        Error::Metadata(_)
    ));
}

#[test]
fn attempts_with_keys_are_bounded() {
    let mut many = Keys::new();
    many.add_age(&read_data("keys/stranger.agekey").repeat(64)).unwrap();
    let file = String::from_utf8(read_data("encrypted/secret.yaml")).unwrap();
    let start = file.find("        - enc: |").unwrap();
    let end = file.find("    encrypted_regex").unwrap();
    let crowd = file.replace(&file[start..end], &file[start..end].repeat(50));
    let error = decrypt_error(crowd.as_bytes(), Format::Yaml, &many);
    assert!(
        matches!(
            error,
            Error::TooMany {
                what: "tries of a key",
                ..
            }
        ),
        "{error}"
    );
    // With a matching key among them, the recipients that name it come first.
    many.add_age(&read_data("keys/first.agekey")).unwrap_err();
}

#[test]
fn the_budget_of_who_reads_is_kept() {
    let _metering = go_yaml::meter::start_metering(
        go_yaml::meter::Allowance {
            bytes: 1 << 30,
            steps: 10_000,
        },
        None,
    );
    assert!(matches!(
        decrypt_error(&read_data("encrypted/secret.yaml"), Format::Yaml, &read_age_keys()),
        Error::Spent(_)
    ));
}

/// Files of every format, and the keys that open them.
fn read_samples() -> Vec<(Format, Vec<u8>)> {
    let names = [
        "values.yaml",
        "rsa.yaml",
        "curve.yaml",
        "groups.yaml",
        "documents.yaml",
        "comments.yaml",
        "config.json",
        "app.env",
        "app.ini",
        "bytes.bin",
    ];
    let format = |name: &str| {
        if name.ends_with(".bin") {
            Format::Binary
        } else {
            Format::of_name(name)
        }
    };
    names
        .iter()
        .map(|name| (format(name), read_data(&format!("encrypted/{name}"))))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn no_change_makes_it_panic(sample in 0_usize..10, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..4), 1..6)) {
        let mut keys = read_age_keys();
        keys.add_pgp(&read_data("keys/rsa.asc")).unwrap();
        keys.add_pgp(&read_data("keys/curve.asc")).unwrap();
        let (format, mut file) = read_samples().swap_remove(sample);
        for (at, byte, how) in changes {
            if file.is_empty() {
                break;
            }
            let at = at.index(file.len());
            match how {
                0 => file[at] = byte,
                1 => drop(file.remove(at)),
                2 => file.insert(at, byte & 0x7f),
                _ => file.truncate(at.max(1)),
            }
        }
        let limits = Limits::default();
        let _same = decrypt(&file, (format, format), &keys, None, &limits);
        for other in [Format::Yaml, Format::Json, Format::Dotenv, Format::Ini, Format::Binary] {
            let _other = decrypt(&file, (format, other), &keys, None, &limits);
        }
    }

    #[test]
    fn no_text_makes_it_panic(file in "\\PC{0,200}", format in 0_usize..5) {
        let format = [Format::Yaml, Format::Json, Format::Dotenv, Format::Ini, Format::Binary][format];
        let _decrypted = decrypt(file.as_bytes(), (format, format), &read_age_keys(), None, &Limits::default());
        let _kept = Keys::new().add_age(file.as_bytes());
        let _kept = Keys::new().add_pgp(file.as_bytes());
    }

    #[test]
    fn no_changed_key_makes_it_panic(name in 0_usize..2, at in any::<prop::sample::Index>(), byte in 0x20_u8..0x7f) {
        let mut key = read_data(["keys/rsa.asc", "keys/curve.asc"][name]);
        let at = at.index(key.len());
        key[at] = byte;
        let _key = Keys::new().add_pgp(&key);
    }
}
