//! The names of Tenure's credentials at a host: `fa/<cluster>/<request>/<generation>/<unix time>/<nonce>`.
//!
//! A name identifies the owner, so that a credential can be found again after any interruption. It also has the start time, so that an unrecorded credential is
//! recognised as leftover. A name that doesn't match the format exactly belongs to another owner.

use jiff::Timestamp;

/// The maximum length of a name at GitLab.
pub const LONGEST: usize = 255;
/// The length of the part of a uid in a name.
const UID: usize = 8;
/// The maximum length of a nonce.
const NONCE: usize = 32;

/// The parts of a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CredentialName {
    /// The beginning of the cluster's uid.
    pub cluster: String,
    /// The beginning of the request's uid.
    pub request: String,
    /// The number of the credential.
    pub generation: u64,
    /// The start time, in seconds.
    pub begun: i64,
    /// The random part that makes the name unique.
    pub nonce: String,
}

/// Returns the beginning of a uid, in the form for names.
#[must_use]
pub fn shorten_uid(uid: &str) -> String {
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric();
    uid.chars()
        .filter(is_plain)
        .take(UID)
        .map(|letter| letter.to_ascii_lowercase())
        .collect()
}

impl CredentialName {
    /// Returns the name of a new credential. Characters that names can't have are removed from the nonce.
    #[must_use]
    pub fn new(cluster_uid: &str, request_uid: &str, generation: u64, begun: Timestamp, nonce: &str) -> Self {
        Self {
            cluster: shorten_uid(cluster_uid),
            request: shorten_uid(request_uid),
            generation,
            begun: begun.as_second(),
            nonce: nonce.chars().filter(char::is_ascii_alphanumeric).take(NONCE).collect(),
        }
    }

    /// Reads a name of Tenure.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let mut parts = text.split('/');
        let mut next = || parts.next();
        let prefix = next()?;
        let (cluster, request, generation, begun, nonce) = (next()?, next()?, next()?, next()?, next()?);
        let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let is_form = prefix == "fa"
            && next().is_none()
            && [cluster, request]
                .into_iter()
                .all(|uid| uid.len() == UID && is_plain(uid))
            && is_number(generation)
            && is_number(begun)
            && is_plain(nonce)
            && nonce.len() <= NONCE;
        if !is_form {
            return None;
        }
        Some(Self {
            cluster: cluster.to_owned(),
            request: request.to_owned(),
            generation: generation.parse().ok()?,
            begun: begun.parse().ok()?,
            nonce: nonce.to_owned(),
        })
    }
}

impl std::fmt::Display for CredentialName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            cluster,
            request,
            generation,
            begun,
            nonce,
        } = self;
        write!(formatter, "fa/{cluster}/{request}/{generation}/{begun}/{nonce}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credential_name_reads_only_its_written_form() {
        let begun = Timestamp::from_second(1_790_000_000).unwrap();
        let name = CredentialName::new("C0FFEE00-1234-5678", "0badcafe-1", u64::MAX, begun, &"n".repeat(100));
        let text = name.to_string();
        assert!(text.starts_with("fa/c0ffee00/0badcafe/18446744073709551615/1790000000/nnn") && text.len() <= LONGEST);
        assert_eq!(CredentialName::read(&text), Some(name));
        for text in [
            "",
            "gitlab-deploy-token",
            "fa/c0ffee00/0badcafe/1/1790000000",
            "fa/c0ffee00/0badcafe/1/1790000000/",
            "fa/c0ffee00/0badcafe/1/1790000000/a/b",
            "FA/c0ffee00/0badcafe/1/1790000000/a",
            "fa/c0ffee0/0badcafe/1/1790000000/a",
            "fa/c0ffee00/0badcafe/+1/1790000000/a",
            "fa/c0ffee00/0badcafe/1/-5/a",
            "fa/c0ffee00/0badcafe/1/99999999999999999999/a",
            "fa/c0ffee00/0badcafe/1/1790000000/a b",
            "fa/c0ffee00/0badcafe/1/1790000000/aä",
        ] {
            assert_eq!(CredentialName::read(text), None, "{text}");
        }
        assert_eq!(CredentialName::read(&"fa/".repeat(1_000_000)), None);
    }
}
