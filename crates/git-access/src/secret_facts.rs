//! The public facts of a Secret: its form, the time of its last change, and the public parts of its data. Some keys reveal the form. Values are wiped from memory.
//! Neither a value nor its length is printed or stored. An unreadable text is only reported as unreadable.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tenure_api::ObjectView;
use tenure_api::metadata::{CREDENTIAL_LABEL, KNOWN_HOSTS_ENTRY, PRIVATE_HALF_ENTRY, PUBLIC_HALF_ENTRY};
use zeroize::Zeroizing;

/// Keys whose value contains something public.
const TELLING: [&str; 7] = [
    DOCKER_CONFIG,
    DOCKER_CONFIG_BEFORE,
    PRIVATE_HALF_ENTRY,
    "tls.crt",
    "certFile",
    "ca.crt",
    "caFile",
];
const DOCKER_CONFIG: &str = ".dockerconfigjson";
const DOCKER_CONFIG_BEFORE: &str = ".dockercfg";
/// The maximum of registries that are reported for one Secret.
const MOST: usize = 20;
/// The maximum of keys that are checked. One placeholder stands for all other keys.
const MOST_KEYS: usize = 200;
const OTHERS: &str = "…";
/// The maximum length of a registry name in the report.
const LONGEST_HOST: usize = 253;

/// The form of a credential in a Secret, as its keys show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// A user name and a password.
    Basic,
    /// A bearer token.
    Bearer,
    /// A private key for ssh.
    SshKey,
    /// Logins at registries.
    DockerConfig,
    /// The private key of a GitHub App.
    GithubApp,
    /// A certificate and its private key.
    Tls,
    /// Keys of an object store.
    BucketKeys,
    /// A kubeconfig.
    Kubeconfig,
    /// A token or an address, as in Providers and Receivers.
    Token,
    /// Private keys of SOPS.
    DecryptionKeys,
    /// Certificates of certificate authorities, which are public.
    Authorities,
    /// Public keys.
    PublicKeys,
    /// Another form.
    Unknown,
}

impl Form {
    /// Returns the form in a few words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::Bearer => "bearer",
            Self::SshKey => "ssh key",
            Self::DockerConfig => "dockerconfigjson",
            Self::GithubApp => "GitHub App",
            Self::Tls => "TLS",
            Self::BucketKeys => "bucket keys",
            Self::Kubeconfig => "kubeconfig",
            Self::Token => "token",
            Self::DecryptionKeys => "decryption keys",
            Self::Authorities => "certificates of authorities",
            Self::PublicKeys => "public keys",
            Self::Unknown => "unknown",
        }
    }
}

/// The public facts of a Secret: its age, its keys, and the public parts of its data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The latest possible time of the last change of the data.
    pub written_at: Option<Timestamp>,
    /// The purpose for which Tenure made the Secret, from its label.
    pub made_as: Option<String>,
    /// The keys of the data, if known.
    keys: Option<BTreeSet<String>>,
    /// Registries in the Secret's logins.
    pub registries: BTreeSet<String>,
    /// The fingerprint of the public key, as `ssh-keygen -l` writes it.
    pub fingerprint: Option<String>,
    /// The end of the certificate.
    pub ends_at: Option<Timestamp>,
}

impl Facts {
    /// Reads the facts that the metadata of a Secret show. The writer of a Secret may have forged its managedFields. So times before the creation and in the future are
    /// ignored.
    #[must_use]
    pub fn of_metadata(object: &Value, now: Timestamp) -> Self {
        let view = ObjectView::new(object);
        let time = |text: Option<&str>| text.and_then(|text| text.parse::<Timestamp>().ok());
        let made_at = time(view.find_text("/metadata/creationTimestamp"));
        let mut keys = BTreeSet::new();
        let mut written_at = made_at;
        for entry in view.list_views("/metadata/managedFields") {
            let Some(fields) = entry.find_map("/fieldsV1/f:data") else {
                continue;
            };
            let names = fields.keys().filter_map(|field| field.strip_prefix("f:"));
            names.for_each(|name| record_key(&mut keys, name));
            let at = time(entry.find_text("/time")).filter(|at| *at <= now);
            written_at = written_at.max(at);
        }
        Self {
            written_at,
            made_as: view.find_label(CREDENTIAL_LABEL).map(str::to_owned),
            keys: Some(keys).filter(|keys| !keys.is_empty()),
            ..Self::default()
        }
    }

    /// Checks whether the data must be read: if the keys are unknown, or if one of the keys can have public parts.
    #[must_use]
    pub fn wants_contents(&self) -> bool {
        match &self.keys {
            None => true,
            Some(keys) => keys.iter().any(|key| TELLING.contains(&key.as_str())),
        }
    }

    /// Adds the public facts of the data, and the end of the certificate.
    pub fn take_contents(&mut self, contents: &Contents, ends_at: Option<Timestamp>) {
        let mut keys = BTreeSet::new();
        contents.0.keys().for_each(|key| record_key(&mut keys, key));
        self.keys = Some(keys);
        self.registries = contents.list_registries();
        self.fingerprint = contents.find_fingerprint();
        self.ends_at = ends_at;
    }

    /// Returns the forms of the Secret, or none if it is empty. `is_shown` is false for a Secret that is used only for verification: its keys are then public keys.
    #[must_use]
    pub fn list_forms(&self, is_shown: bool) -> BTreeSet<Form> {
        let Some(keys) = &self.keys else {
            return BTreeSet::from([Form::Unknown]);
        };
        if keys.is_empty() {
            return BTreeSet::new();
        }
        let has = |key: &str| keys.contains(key);
        let ends = |ends: &str| keys.iter().any(|key| key.ends_with(ends));
        let candidates = [
            (has("username") && has("password"), Form::Basic),
            (has("bearerToken"), Form::Bearer),
            (has(PRIVATE_HALF_ENTRY), Form::SshKey),
            (has(DOCKER_CONFIG) || has(DOCKER_CONFIG_BEFORE), Form::DockerConfig),
            (has("githubAppID"), Form::GithubApp),
            (has("tls.key") || has("keyFile"), Form::Tls),
            (has("accesskey") && has("secretkey"), Form::BucketKeys),
            (has("value") || has("value.yaml"), Form::Kubeconfig),
            (has("token") || has("address"), Form::Token),
            (is_shown && (ends(".agekey") || ends(".asc")), Form::DecryptionKeys),
        ];
        let mut forms: BTreeSet<Form> = candidates
            .into_iter()
            .filter_map(|(is_one, form)| is_one.then_some(form))
            .collect();
        if forms.is_empty() {
            let is_authority = |key: &String| ["ca.crt", "caFile"].contains(&key.as_str());
            let is_public =
                |key: &String| [KNOWN_HOSTS_ENTRY, PUBLIC_HALF_ENTRY].contains(&key.as_str()) || key.ends_with(".pub");
            forms.insert(if keys.iter().all(is_authority) {
                Form::Authorities
            } else if !is_shown || keys.iter().all(|key| is_public(key) || is_authority(key)) {
                Form::PublicKeys
            } else {
                Form::Unknown
            });
        }
        forms
    }
}

/// Adds a key to a bounded set: beyond the bound, one placeholder stands for all keys that don't reveal a form.
fn record_key(keys: &mut BTreeSet<String>, key: &str) {
    let is_full = keys.len() >= MOST_KEYS && !TELLING.contains(&key);
    keys.insert(if is_full { OTHERS } else { key }.to_owned());
}

/// The data of a Secret while they are checked. They are never printed, and are wiped from memory.
pub struct Contents(BTreeMap<String, Hidden>);

/// A base64 value, which is never printed and is wiped from memory on drop.
struct Hidden(Zeroizing<String>);

impl<'de> Deserialize<'de> for Hidden {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(Zeroizing::new(text)))
    }
}

impl std::fmt::Debug for Contents {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Contents(hidden)")
    }
}

/// The error for an API server's answer that is no Secret. It doesn't quote the answer, because a parser's text may contain a part of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the API server's answer is not a Secret")]
pub struct NoSecret;

impl Contents {
    /// Reads a Secret from the API server's answer.
    ///
    /// # Errors
    /// [`NoSecret`].
    pub fn read(text: &[u8]) -> Result<Self, NoSecret> {
        #[derive(Deserialize)]
        struct Secret {
            data: Option<BTreeMap<String, Hidden>>,
        }
        let secret: Secret = serde_json::from_slice(text).map_err(|_| NoSecret)?;
        Ok(Self(secret.data.unwrap_or_default()))
    }

    /// Returns the certificate in PEM: the client's certificate, else that of an authority.
    #[must_use]
    pub fn find_certificate(&self) -> Option<Zeroizing<Vec<u8>>> {
        let mut keys = ["tls.crt", "certFile", "ca.crt", "caFile"].into_iter();
        keys.find_map(|key| self.decode(key))
    }

    fn decode(&self, key: &str) -> Option<Zeroizing<Vec<u8>>> {
        let value = self.0.get(key)?;
        STANDARD.decode(value.0.as_bytes()).ok().map(Zeroizing::new)
    }

    fn list_registries(&self) -> BTreeSet<String> {
        type Logins = BTreeMap<String, IgnoredAny>;
        #[derive(Deserialize)]
        struct Config {
            auths: Logins,
        }
        let config = self.decode(DOCKER_CONFIG);
        let config = config.and_then(|text| serde_json::from_slice::<Config>(&text).ok());
        let before = self.decode(DOCKER_CONFIG_BEFORE);
        let before = before.and_then(|text| serde_json::from_slice::<Logins>(&text).ok());
        let logins = config.map(|config| config.auths).or(before).unwrap_or_default();
        // A name with other characters than a host and a path may contain a password.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:/[]*".contains(&byte);
        let names = logins.into_keys().take(MOST);
        names
            .map(|name| match name.len() <= LONGEST_HOST && name.bytes().all(is_plain) {
                true => name,
                false => "(a registry that can't be shown)".to_owned(),
            })
            .collect()
    }

    fn find_fingerprint(&self) -> Option<String> {
        let line = self.decode(PUBLIC_HALF_ENTRY)?;
        let line = std::str::from_utf8(&line).ok()?;
        let mut words = line.split_whitespace();
        let (kind, key) = (words.next()?, STANDARD.decode(words.next()?).ok()?);
        // RFC 4253, 6.6: the key begins with the length of its kind, and its kind. Other data are no public key.
        let length = u32::try_from(kind.len()).ok()?.to_be_bytes();
        let rest = key.strip_prefix(&length)?;
        rest.starts_with(kind.as_bytes())
            .then(|| format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(&key))))
    }
}
