//! Verifies objects and keys that git, gpg and ssh-keygen have made (`tests/data/record.sh`), unchanged and changed.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests read their files and fail loudly"
)]

use std::collections::BTreeMap;
use std::path::PathBuf;

use git_signatures::{ObjectFormat, Signed, TrustedKeys, read_tag_name, split_commit, split_tag};

fn read(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn read_keys(names: &[&str]) -> TrustedKeys {
    let entries: BTreeMap<String, Vec<u8>> = names.iter().map(|name| ((*name).to_owned(), read(name))).collect();
    TrustedKeys::read(&entries).unwrap()
}

fn read_object(name: &str) -> Signed {
    let content = read(name);
    if name.ends_with(".tag") {
        split_tag(&content).unwrap()
    } else {
        split_commit(&content, ObjectFormat::Sha1).unwrap()
    }
}

/// Returns a time shortly after everything was made.
fn fixed_now() -> i64 {
    let content = String::from_utf8(read("rsa.commit")).unwrap();
    let line = content.lines().find(|line| line.starts_with("committer ")).unwrap();
    line.split(' ').nth_back(1).unwrap().parse::<i64>().unwrap() + 3600
}

/// Returns the signer, or the error.
fn verify_object(object: &Signed, keys: &TrustedKeys, now: i64) -> String {
    keys.verify(object, now).unwrap_or_else(|problem| problem.to_string())
}

fn check(name: &str, with: &[&str], expected: &str) {
    let outcome = verify_object(&read_object(name), &read_keys(with), fixed_now());
    assert!(outcome.contains(expected), "{name} with {with:?}: {outcome}");
}

fn is_key_id(outcome: &str) -> bool {
    outcome.len() == 16 && outcome.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[test]
fn signatures_of_real_tools_are_verified() {
    for (name, key) in [
        ("rsa.commit", "rsa.asc"),
        ("rsa.tag", "rsa.asc"),
        ("p256.commit", "p256.asc"),
        ("p384.commit", "p384.asc"),
        ("subkey.commit", "subkey.asc"),
        ("subkey.tag", "subkey.asc"),
        ("prolonged.commit", "prolonged.asc"),
        ("revoked.commit", "before-revocation.asc"),
        ("old.commit", "old.asc"),
    ] {
        let outcome = verify_object(&read_object(name), &read_keys(&[key]), fixed_now());
        assert!(is_key_id(&outcome), "{name}: {outcome}");
        // The key is also found among others.
        let all = read_keys(&["p256.asc", "rsa.asc", "expired.asc", "ssh-ed25519.sshpub", key]);
        assert_eq!(verify_object(&read_object(name), &all, fixed_now()), outcome, "{name}");
    }
    for (name, key) in [
        ("ssh-ed25519.commit", "ssh-ed25519.sshpub"),
        ("ssh-ed25519.tag", "ssh-ed25519.sshpub"),
        ("ssh-sha256.commit", "ssh-ed25519.sshpub"),
        ("ssh-ecdsa-256.commit", "ssh-ecdsa-256.sshpub"),
        ("ssh-ecdsa-384.commit", "ssh-ecdsa-384.sshpub"),
        ("ssh-rsa-3072.commit", "ssh-rsa-3072.sshpub"),
    ] {
        check(name, &[key], "SHA256:");
        check(
            name,
            &["rsa.asc", "ssh-ecdsa-256.sshpub", "ssh-rsa-3072.sshpub", key],
            "SHA256:",
        );
    }
    assert_eq!(read_tag_name(&read("rsa.tag")), Some("v1"));
}

#[test]
fn invalid_signatures_are_refused_with_a_reason() {
    for (name, with, expected) in [
        (
            "not-signed.commit",
            vec!["rsa.asc"],
            "unsupported signature type: empty",
        ),
        (
            "rsa.commit",
            vec!["p256.asc", "subkey.asc"],
            "no trusted OpenPGP key made the signature",
        ),
        (
            "rsa.commit",
            vec!["ssh-ed25519.sshpub"],
            "PGP signature detected but no PGP public keys",
        ),
        (
            "ssh-ed25519.commit",
            vec!["rsa.asc"],
            "SSH signature detected but no SSH public keys",
        ),
        (
            "ssh-ed25519.commit",
            vec!["ssh-rsa-3072.sshpub"],
            "no trusted SSH key made the signature",
        ),
        (
            "ssh-for-files.commit",
            vec!["ssh-ed25519.sshpub"],
            "was made for \"file\", not for \"git\"",
        ),
        ("expired.commit", vec!["expired.asc"], "has expired"),
        ("revoked.commit", vec!["revoked.asc"], "is revoked"),
        ("subkey-revoked.commit", vec!["subkey.asc"], "the subkey"),
        ("subkey-revoked.commit", vec!["subkey.asc"], "is revoked"),
        (
            "brainpool.commit",
            vec!["brainpool.asc"],
            "of a kind that is not supported",
        ),
        ("weak.commit", vec!["rsa.asc"], "none of SHA-256, SHA-384 and SHA-512"),
    ] {
        check(name, &with, expected);
    }
    // By the key alone, the signature was valid then; but the check is about now.
    let then = 1_590_969_600 + 3600;
    assert!(is_key_id(&verify_object(
        &read_object("expired.commit"),
        &read_keys(&["expired.asc"]),
        then
    )));
    // A signature or a key from tomorrow is not valid today.
    let outcome = verify_object(
        &read_object("rsa.commit"),
        &read_keys(&["rsa.asc"]),
        fixed_now() - 86_400,
    );
    assert!(
        outcome.contains("no signature of its own that is good now"),
        "{outcome}"
    );
    let early = fixed_now() - 3600 - 200;
    assert!(is_key_id(&verify_object(
        &read_object("rsa.commit"),
        &read_keys(&["rsa.asc"]),
        early
    )));
}

#[test]
fn a_signature_is_of_one_object() {
    for (name, key) in [
        ("rsa.commit", "rsa.asc"),
        ("p256.commit", "p256.asc"),
        ("subkey.commit", "subkey.asc"),
        ("ssh-ed25519.commit", "ssh-ed25519.sshpub"),
        ("ssh-rsa-3072.commit", "ssh-rsa-3072.sshpub"),
        ("rsa.tag", "rsa.asc"),
        ("ssh-ed25519.tag", "ssh-ed25519.sshpub"),
    ] {
        let good = read_object(name);
        let keys = read_keys(&[key]);
        // Each signed byte is changed, and a byte is added.
        for at in 0..good.payload.len() {
            let mut changed = good.clone();
            changed.payload[at] ^= 1;
            let outcome = verify_object(&changed, &keys, fixed_now());
            assert!(outcome.contains("not good for"), "{name} {at}: {outcome}");
        }
        let mut longer = good.clone();
        longer.payload.push(b'\n');
        assert!(
            verify_object(&longer, &keys, fixed_now()).contains("not good for"),
            "{name}"
        );
        // The signature of another object.
        let other = read_object("not-signed.commit").payload;
        let moved = Signed { payload: other, ..good };
        assert!(
            verify_object(&moved, &keys, fixed_now()).contains("not good for"),
            "{name}"
        );
    }
}

/// A changed signature or key never makes verification panic, and never verifies as another signer.
#[test]
fn damaged_signatures_and_keys_never_panic_or_change_signer() {
    for (name, key) in [
        ("rsa.commit", "rsa.asc"),
        ("p384.commit", "p384.asc"),
        ("subkey.commit", "subkey.asc"),
        ("ssh-ecdsa-256.commit", "ssh-ecdsa-256.sshpub"),
        ("ssh-rsa-3072.commit", "ssh-rsa-3072.sshpub"),
    ] {
        let good = read_object(name);
        let trusted = read_keys(&[key]);
        let outcome = verify_object(&good, &trusted, fixed_now());
        let text = good.signature.clone().into_bytes();
        for at in (0..text.len()).step_by(7) {
            for new in [b'A', b'/', b'\n'] {
                let mut changed = text.clone();
                changed[at] = new;
                let object = Signed {
                    payload: good.payload.clone(),
                    signature: String::from_utf8(changed).unwrap(),
                };
                // Unsigned parts may change; they don't change the signer.
                let _ = trusted
                    .verify(&object, fixed_now())
                    .map(|name| assert_eq!(name, outcome));
            }
        }
        for cut in (0..text.len()).step_by(7) {
            let signature = String::from_utf8_lossy(&text[..cut]).into_owned();
            let object = Signed {
                signature,
                ..good.clone()
            };
            assert!(trusted.verify(&object, fixed_now()).is_err());
        }
        let key_text = read(key);
        for at in (0..key_text.len()).step_by(7) {
            let mut changed = key_text.clone();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            if let Ok(changed) = TrustedKeys::read(&BTreeMap::from([(key.to_owned(), changed)])) {
                let _ = changed.verify(&good, fixed_now());
            }
        }
    }
}

#[test]
fn entries_without_keys_are_named() {
    let read_outcome = |entries: &[(&str, &[u8])]| {
        let entries = entries
            .iter()
            .map(|(name, content)| ((*name).to_owned(), content.to_vec()));
        TrustedKeys::read(&entries.collect()).map_or_else(|error| error.to_string(), |_| "read".to_owned())
    };
    let (rsa, ssh, strange) = (
        read("rsa.asc"),
        read("ssh-ed25519.sshpub"),
        read("ssh-ecdsa-521.sshpub"),
    );
    // Other entries are ignored, unless they are a key ring, which Flux has always read.
    assert_eq!(
        read_outcome(&[
            ("a.asc", &rsa),
            ("b.sshpub", &ssh),
            ("note", b"words"),
            ("raw", b"\xff")
        ]),
        "read"
    );
    assert_eq!(read_outcome(&[("ring", &rsa)]), "read");
    assert_eq!(
        read_outcome(&[("b.sshpub", &[b"# mine\n\n".as_slice(), &ssh].concat())]),
        "read"
    );
    let options = [b"cert-authority ".as_slice(), &ssh].concat();
    for (entries, expected) in [
        (vec![("note", b"words".as_slice())], "it has no public key"),
        (
            vec![("a.asc", b"words".as_slice())],
            "a.asc holds no armored public key",
        ),
        (vec![("a.asc", ssh.as_slice())], "a.asc holds no armored public key"),
        (vec![("a.asc", b"\xff".as_slice())], "a.asc is not text"),
        (
            vec![("b.sshpub", rsa.as_slice())],
            "b.sshpub is no list of SSH keys: line 1 does not begin with one of",
        ),
        (
            vec![("b.sshpub", strange.as_slice())],
            "line 1 does not begin with one of",
        ),
        (
            vec![("b.sshpub", options.as_slice())],
            "options, certificates and other kinds",
        ),
        (
            vec![("b.sshpub", b"ssh-ed25519 AAAA".as_slice())],
            "line 1 holds no such key",
        ),
        (
            vec![(
                "b.sshpub",
                b"ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIHeGAJOqEMB3rYBtsnOLqzVkVZPgBJWCnwfXRuhvQQkm".as_slice(),
            )],
            "holds no such key",
        ),
    ] {
        let outcome = read_outcome(&entries);
        assert!(outcome.contains(expected), "{outcome}");
    }
}

#[test]
fn keys_with_too_many_signatures_are_refused() {
    use base64::Engine as _;
    let text = String::from_utf8(read("rsa.asc")).unwrap();
    let (bytes, _) = openpgp_packets::armor::find_first(&text, "PGP PUBLIC KEY BLOCK", true).unwrap();
    // The signature is the last packet.
    let mut rest = bytes.as_slice();
    let mut last = rest;
    while !rest.is_empty() {
        last = rest;
        openpgp_packets::packet::take_packet(&mut rest).unwrap();
    }
    let make_keys = |copies: usize| {
        let all = [bytes.as_slice(), &last.repeat(copies)].concat();
        let armored = format!(
            "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n{}\n-----END PGP PUBLIC KEY BLOCK-----\n",
            base64::engine::general_purpose::STANDARD.encode(all)
        );
        TrustedKeys::read(&BTreeMap::from([("a.asc".to_owned(), armored.into_bytes())]))
    };
    let outcome = verify_object(&read_object("rsa.commit"), &make_keys(255).unwrap(), fixed_now());
    assert!(is_key_id(&outcome), "{outcome}");
    let refused = make_keys(256).unwrap_err().to_string();
    assert!(
        refused.contains("a.asc holds a key with more than 256 signatures"),
        "{refused}"
    );
}
