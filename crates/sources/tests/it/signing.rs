//! Signs objects of a repository as git does with ssh-keygen.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA512, digest};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use tenure_sources::SecretData;

/// An author with an SSH key.
pub(crate) struct Author(Ed25519KeyPair);

impl Author {
    /// Creates an author; another seed gives another author.
    pub(crate) fn new(seed: u8) -> Self {
        Self(Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap())
    }

    fn public(&self) -> Vec<u8> {
        [write_string(b"ssh-ed25519"), write_string(self.0.public_key().as_ref())].concat()
    }

    /// Returns a Secret that trusts this author.
    pub(crate) fn secret(&self) -> SecretData {
        let line = format!("ssh-ed25519 {} author\n", STANDARD.encode(self.public()));
        SecretData::from([("author.sshpub".to_owned(), line.into_bytes())])
    }

    fn sign(&self, payload: &[u8]) -> String {
        let hash = digest(&SHA512, payload);
        let about = [write_string(b"git"), write_string(b""), write_string(b"sha512")].concat();
        let message = [b"SSHSIG".as_slice(), &about, &write_string(hash.as_ref())].concat();
        let signature = [
            write_string(b"ssh-ed25519"),
            write_string(self.0.sign(&message).as_ref()),
        ]
        .concat();
        let all = [
            b"SSHSIG\0\0\0\x01".as_slice(),
            &write_string(&self.public()),
            &about,
            &write_string(&signature),
        ]
        .concat();
        format!(
            "-----BEGIN SSH SIGNATURE-----\n{}\n-----END SSH SIGNATURE-----\n",
            STANDARD.encode(all)
        )
    }

    /// Writes a signed copy of a commit and returns its id.
    pub(crate) fn sign_commit(&self, folder: &Path, commit: &str) -> String {
        let content = run_git(folder, &["cat-file", "commit", commit], b"");
        let signature = self.sign(&content).trim_end().replace('\n', "\n ");
        let text = String::from_utf8(content).unwrap();
        let (headers, message) = text.split_once("\n\n").unwrap();
        write(folder, "commit", &format!("{headers}\ngpgsig {signature}\n\n{message}"))
    }

    /// Writes a signed tag object with this name and returns its id.
    pub(crate) fn sign_tag(&self, folder: &Path, name: &str, commit: &str) -> String {
        let payload = format!("object {commit}\ntype commit\ntag {name}\ntagger A <a@b.c> 1700000000 +0000\n\nwords\n");
        let signature = self.sign(payload.as_bytes());
        write(folder, "tag", &format!("{payload}{signature}"))
    }
}

/// Writes an object into a repository and returns its id.
pub(crate) fn write(folder: &Path, kind: &str, content: &str) -> String {
    let id = run_git(
        folder,
        &["hash-object", "-t", kind, "-w", "--stdin"],
        content.as_bytes(),
    );
    String::from_utf8(id).unwrap().trim().to_owned()
}

/// Runs git in a repository.
pub(crate) fn run_git(folder: &Path, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("git")
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{arguments:?}");
    output.stdout
}

fn write_string(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
}
