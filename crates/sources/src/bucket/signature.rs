//! Signatures of requests: Amazon's version 4, as for S3. Pure: the caller has the host, the time and the keys.

use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ring::hmac;
use sha2::{Digest as _, Sha256};

use super::request::AccessKeys;

/// The digest of an empty body.
pub(super) const NO_BODY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Bytes that stay unencoded in a query.
const IN_QUERIES: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Bytes that stay unencoded in a path.
const IN_PATHS: &AsciiSet = &IN_QUERIES.remove(b'/');

/// The parts of a request without a body that its signature covers.
pub(super) struct Signed<'r> {
    pub(super) host: &'r str,
    /// The path as sent.
    pub(super) path: &'r str,
    /// Names and values, not encoded.
    pub(super) query: &'r [(&'r str, &'r str)],
    /// The headers besides the common ones; names in lower case.
    pub(super) headers: &'r [(&'r str, &'r str)],
    pub(super) region: &'r str,
    pub(super) time: Timestamp,
}

/// Encodes a text: any byte except letters, digits and `-._~` becomes `%41`. Slashes stay in a path.
pub(super) fn encode(text: &str, is_path: bool) -> String {
    utf8_percent_encode(text, if is_path { IN_PATHS } else { IN_QUERIES }).to_string()
}

/// Writes a query as sent and signed: encoded, sorted by name.
pub(super) fn write_query(query: &[(&str, &str)]) -> String {
    let encoded = query
        .iter()
        .map(|(name, value)| (encode(name, false), encode(value, false)));
    let mut pairs: Vec<(String, String)> = encoded.collect();
    pairs.sort();
    let pairs: Vec<String> = pairs
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    pairs.join("&")
}

/// Writes a time in the form of requests.
pub(super) fn write_time(time: Timestamp) -> String {
    time.strftime("%Y%m%dT%H%M%SZ").to_string()
}

impl Signed<'_> {
    /// Signs the request, and returns the value of its header `Authorization`.
    pub(super) fn authorize(&self, keys: &AccessKeys) -> String {
        let time = write_time(self.time);
        let mut headers = vec![
            ("host", self.host),
            ("x-amz-content-sha256", NO_BODY),
            ("x-amz-date", &time),
        ];
        headers.extend(self.headers);
        headers.sort_unstable();
        let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let lines: String = headers
            .iter()
            .map(|(name, value)| format!("{name}:{}\n", value.trim()))
            .collect();
        let query = write_query(self.query);
        let canonical = format!("GET\n{}\n{query}\n{lines}\n{names}\n{NO_BODY}", self.path);

        let date = time.get(..8).unwrap_or_default();
        let scope = format!("{date}/{}/s3/aws4_request", self.region);
        let digest = hex::encode(Sha256::digest(canonical.as_bytes()));
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{digest}");

        let first = format!("AWS4{}", keys.secret.reveal());
        let steps = [date, self.region, "s3", "aws4_request", &text];
        let signature = steps.into_iter().fold(first.into_bytes(), |key, step| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
            hmac::sign(&key, step.as_bytes()).as_ref().to_vec()
        });
        format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope},SignedHeaders={names},Signature={}",
            keys.id.reveal(),
            hex::encode(signature)
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::allow_attributes, reason = "tests may panic")]

    use super::*;
    use crate::secret::SecretBytes;

    /// The examples that Amazon publishes for S3.
    #[test]
    fn requests_are_signed_as_amazon_publishes() {
        let keys = AccessKeys {
            id: SecretBytes::new("AKIAIOSFODNN7EXAMPLE"),
            secret: SecretBytes::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
        };
        type Case = (
            &'static str,
            &'static [(&'static str, &'static str)],
            &'static [(&'static str, &'static str)],
            &'static str,
        );
        let cases: [Case; 3] = [
            (
                "/test.txt",
                &[],
                &[("range", "bytes=0-9")],
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
            (
                "/",
                &[("lifecycle", "")],
                &[],
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            ),
            (
                "/",
                &[("prefix", "J"), ("max-keys", "2")],
                &[],
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ];
        for (path, query, headers, signature) in cases {
            let signed = Signed {
                host: "examplebucket.s3.amazonaws.com",
                path,
                query,
                headers,
                region: "us-east-1",
                time: "2013-05-24T00:00:00Z".parse().unwrap(),
            };
            let authorization = signed.authorize(&keys);
            assert!(
                authorization.ends_with(&format!("Signature={signature}")),
                "{path}: {authorization}"
            );
            let scope = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders=host;";
            assert!(authorization.starts_with(scope), "{authorization}");
        }
    }

    #[test]
    fn special_characters_are_percent_encoded() {
        assert_eq!(encode("a/b c+ü~-._", true), "a/b%20c%2B%C3%BC~-._");
        assert_eq!(encode("a/b", false), "a%2Fb");
        assert_eq!(
            write_query(&[("prefix", "a/b"), ("list-type", "2")]),
            "list-type=2&prefix=a%2Fb"
        );
    }
}
