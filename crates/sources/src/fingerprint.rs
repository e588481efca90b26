//! The fingerprint of a request: requests that differ in it make different artifacts of the same revision.

use sha2::{Digest as _, Sha256};

use crate::request::GitRequest;

/// Returns the digest of all inputs of an artifact besides the commit, such as patterns and included sources.
pub(crate) fn write_fingerprint(request: &GitRequest) -> String {
    let mut hash = Sha256::new();
    // The number grows when the same request makes other files: since 2, contents of Git LFS are in place of pointers.
    hash.update(b"2\0");
    hash.update(request.url.to_string().as_bytes());
    hash.update(b"\0");
    if let Some(ignore) = &request.asked.ignore {
        hash.update(b"ignore\0");
        hash.update(ignore.as_bytes());
    }
    let mut add = |name: &str, values: &[&str]| {
        hash.update(b"\0");
        hash.update(name.as_bytes());
        for value in values {
            hash.update(value.len().to_be_bytes());
            hash.update(value.as_bytes());
        }
    };
    for folder in &request.asked.sparse {
        add("sparse", &[folder]);
    }
    for include in &request.asked.include {
        let facts = &include.artifact.facts;
        let which = [include.name.as_str(), &include.uid, &facts.revision, &facts.digest];
        add("include", &which);
        add("include at", &[&include.from, &include.to]);
    }
    if request.asked.submodules {
        add("submodules", &[]);
    }
    if let Some(trusted) = &request.trusted {
        add("verified", &[trusted.digest()]);
    }
    format!("sha256:{}", hex::encode(hash.finalize()))
}
