//! Checks of settings and answers of Git LFS, see [`crate::fuzzing::texts`].

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::allow_attributes,
    reason = "a check fails by a panic"
)]

use http::header::{HeaderMap, HeaderValue};
use jiff::Timestamp;

use super::batch::{Action, Address, AnswerProblem, WantedObject, clean_words, read_answer, read_words};
use super::server::{LfsConfig, LfsServer};
use crate::git::lfs_pointer::ObjectId;
use crate::policy::Scheme;
use crate::url::RemoteUrl;

/// The text of a credential, which no message quotes.
const SECRET: &str = "sesame";

fn make_objects() -> [WantedObject; 2] {
    [1, 2].map(|number| WantedObject {
        id: ObjectId([number; 32]),
        size: u64::from(number),
        path: format!("file-{number}"),
    })
}

/// A committer chooses a path on the server of the repository, and no other server.
pub(crate) fn check_config(text: &str) {
    let Ok(config) = LfsConfig::read(text) else { return };
    let answer = config.leaves_out("a/b.bin");
    let again = config.leaves_out("a/b.bin");
    assert!(again.is_none() || again == answer);
    for remote in [
        "https://example.com/team/app.git",
        "ssh://git@example.com:2222/team/app",
    ] {
        let remote = RemoteUrl::parse(remote).unwrap();
        match config.find_server(&remote) {
            Ok(LfsServer::Http(base)) => assert_eq!(base.endpoint(), remote.endpoint()),
            Ok(LfsServer::Ssh(url)) => assert_eq!(url.endpoint(), remote.endpoint()),
            Err(_) => {}
        }
    }
}

/// Any bytes as the answer of the batch API, as words of a refusal, and as the answer of an ssh server.
pub(crate) fn check_answer(bytes: &[u8]) {
    let objects = make_objects();
    match read_answer(bytes, &objects, Timestamp::UNIX_EPOCH) {
        Ok(downloads) => {
            assert_eq!(downloads.len(), objects.len());
            for (download, object) in downloads.iter().zip(&objects) {
                assert_eq!(download.object, *object, "an answer is about another object");
                check_target(&download.address, &download.headers);
            }
        }
        Err(AnswerProblem::Refused { words, .. }) => check_words(&words),
        Err(AnswerProblem::Unusable { problem, .. }) => {
            assert!(!problem.contains(SECRET), "a problem quotes the answer");
        }
    }
    check_words(&read_words(bytes));
    if let Ok(action) = serde_json::from_slice::<Action>(bytes)
        && let Ok((address, headers)) = action.read()
    {
        check_target(&address, &headers);
    }
}

fn check_target(address: &Address, headers: &HeaderMap) {
    let endpoint = &address.endpoint;
    assert!(matches!(endpoint.scheme, Scheme::Http | Scheme::Https));
    assert!(!endpoint.host.is_empty() && endpoint.port != 0);
    // A target is one word of the first line of a request.
    let is_plain = |letter: char| letter.is_ascii_graphic();
    assert!(address.target.starts_with('/') && address.target.chars().all(is_plain));
    assert!(headers.len() <= 32);
    for own in ["host", "content-length", "transfer-encoding", "connection"] {
        assert!(!headers.contains_key(own), "an answer sets {own}");
    }
    // The names of headers are no secret.
    let values: Vec<&HeaderValue> = headers.values().collect();
    assert!(
        !format!("{values:?}").contains(SECRET),
        "a header of an answer is printed"
    );
}

fn check_words(words: &str) {
    let shown = clean_words(words, [SECRET]);
    assert!(!shown.contains(SECRET) && !shown.contains("://"));
    assert!(!shown.contains(char::is_control) && shown.chars().count() <= 300);
}

/// Returns the first inputs for [`crate::fuzzing::texts`], with their numbers.
pub(crate) fn text_seeds() -> Vec<(u8, String)> {
    let id = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393";
    let [one, two] = make_objects().map(|object| object.id.to_string());
    vec![
        (
            7,
            format!("version https://git-lfs.github.com/spec/v1\noid sha256:{id}\nsize 12345\n"),
        ),
        (
            7,
            format!("version http://git-media.io/v/2\r\next-0-case sha256:{id}\r\noid sha256:{id}\r\nsize 0\r\n"),
        ),
        (
            8,
            "[lfs]\n\turl = https://example.com/team/lfs\n\tfetchexclude = \"*.bin, /big\"\n\tfetchinclude = a/**\n"
                .to_owned(),
        ),
        (8, "[LFS]\nURL = ssh://git@example.com:2222/x\n".to_owned()),
        (
            9,
            format!(
                r#"{{"transfer":"basic","hash_algo":"sha256","objects":[{{"oid":"{one}","size":1,"authenticated":true,"actions":{{"download":{{"href":"https://s.example/x?a=b","header":{{"Authorization":"Basic sesame","Host":"h"}},"expires_in":3600}}}}}},{{"oid":"{two}","actions":{{"download":{{"href":"http://s.example:81/y","expires_at":"2016-11-10T15:29:07Z"}}}}}}]}}"#
            ),
        ),
        (
            9,
            format!(
                r#"{{"objects":[{{"oid":"{one}","size":1,"error":{{"code":404,"message":"sesame is not here"}}}}]}}"#
            ),
        ),
        (9, r#"{"message":"no https://s.example/?signature=sesame"}"#.to_owned()),
        (
            9,
            r#"{"href":"https://s.example/info/lfs","header":{"Authorization":"Basic sesame"},"expires_in":-1}"#
                .to_owned(),
        ),
    ]
}
