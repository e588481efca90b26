//! Checks the signature of a request: Amazon's version 4, computed from the request as received.
//!
//! The check shares no code with the client; its tests are the examples that Amazon publishes.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

/// The access keys and the region that signatures of requests must have.
#[derive(Debug, Clone)]
pub struct Keys {
    /// The id of the keys.
    pub id: String,
    /// The secret key.
    pub secret: String,
    /// The region of the bucket.
    pub region: String,
}

/// Why a request's signature is refused: the error codes of S3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureError {
    /// The request has no signature.
    AccessDenied,
    /// The keys are unknown.
    InvalidAccessKeyId,
    /// The signature is for another region.
    AuthorizationHeaderMalformed,
    /// The signature is wrong.
    SignatureDoesNotMatch,
}

/// Checks the signature of a request: its method, its path and query as they arrived, and its headers.
///
/// # Errors
/// A [`SignatureError`].
pub fn check_signature(
    method: &str,
    target: &str,
    headers: &[(String, String)],
    keys: &Keys,
) -> Result<(), SignatureError> {
    let find = |name: &str| {
        headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    };
    let authorization = find("authorization").ok_or(SignatureError::AccessDenied)?;
    let mismatch = SignatureError::SignatureDoesNotMatch;
    let rest = authorization.strip_prefix("AWS4-HMAC-SHA256 ").ok_or(mismatch)?;
    let part = |name: &str| {
        let mut parts = rest.split(',').filter_map(|part| part.trim().split_once('='));
        parts.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let (credential, names, signature) = (part("Credential"), part("SignedHeaders"), part("Signature"));
    let (Some(credential), Some(names), Some(signature)) = (credential, names, signature) else {
        return Err(mismatch);
    };
    let [id, date, region, service, end] = credential.split('/').collect::<Vec<_>>()[..] else {
        return Err(mismatch);
    };
    if id != keys.id {
        return Err(SignatureError::InvalidAccessKeyId);
    }
    if region != keys.region {
        return Err(SignatureError::AuthorizationHeaderMalformed);
    }
    let (Some(time), Some(digest)) = (find("x-amz-date"), find("x-amz-content-sha256")) else {
        return Err(mismatch);
    };
    // The host has to be signed, and so have all of Amazon's headers.
    let is_signed = |name: &str| names.split(';').any(|signed| signed == name);
    let must_be = |name: &str| name == "host" || name.starts_with("x-amz-");
    let mut all = headers.iter().map(|(name, _)| name.to_ascii_lowercase());
    if !all.all(|name| !must_be(&name) || is_signed(&name)) || !time.starts_with(date) {
        return Err(mismatch);
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut query: Vec<String> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| match pair.contains('=') {
            true => pair.to_owned(),
            false => format!("{pair}="),
        })
        .collect();
    query.sort();
    let mut canonical = format!("{method}\n{path}\n{}\n", query.join("&"));
    for name in names.split(';') {
        canonical.push_str(&format!("{name}:{}\n", find(name).unwrap_or_default().trim()));
    }
    canonical.push_str(&format!("\n{names}\n{digest}"));
    let text = format!(
        "AWS4-HMAC-SHA256\n{time}\n{date}/{region}/{service}/{end}\n{}",
        hex::encode(Sha256::digest(canonical))
    );
    let mut key = format!("AWS4{}", keys.secret).into_bytes();
    for step in [date, region, service, end, &text] {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&key) else {
            return Err(mismatch);
        };
        mac.update(step.as_bytes());
        key = mac.finalize().into_bytes().to_vec();
    }
    if hex::encode(key) == signature {
        Ok(())
    } else {
        Err(mismatch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples that Amazon publishes for S3.
    #[test]
    fn examples_of_amazon_are_verified() {
        let keys = Keys {
            id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            region: "us-east-1".to_owned(),
        };
        let cases = [
            (
                "/test.txt",
                Some("bytes=0-9"),
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
            (
                "/?lifecycle",
                None,
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            ),
            (
                "/?max-keys=2&prefix=J",
                None,
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ];
        for (target, range, signature) in cases {
            let names = if range.is_some() { "host;range;" } else { "host;" };
            let mut headers: Vec<(String, String)> = [
                ("Host", "examplebucket.s3.amazonaws.com"),
                (
                    "x-amz-content-sha256",
                    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                ),
                ("x-amz-date", "20130524T000000Z"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec();
            headers.extend(range.map(|range| ("Range".to_owned(), range.to_owned())));
            let authorization = |signature: &str| {
                format!(
                    "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, SignedHeaders={names}x-amz-content-sha256;x-amz-date, Signature={signature}"
                )
            };
            headers.push(("Authorization".to_owned(), authorization(signature)));
            assert_eq!(check_signature("GET", target, &headers, &keys), Ok(()), "{target}");
            assert_eq!(
                check_signature("PUT", target, &headers, &keys),
                Err(SignatureError::SignatureDoesNotMatch)
            );
            let other = Keys {
                region: "eu-west-1".to_owned(),
                ..keys.clone()
            };
            assert_eq!(
                check_signature("GET", target, &headers, &other),
                Err(SignatureError::AuthorizationHeaderMalformed)
            );
            let other = Keys {
                secret: "x".to_owned(),
                ..keys.clone()
            };
            assert_eq!(
                check_signature("GET", target, &headers, &other),
                Err(SignatureError::SignatureDoesNotMatch)
            );
            headers.pop();
            assert_eq!(
                check_signature("GET", target, &headers, &keys),
                Err(SignatureError::AccessDenied)
            );
        }
    }
}
