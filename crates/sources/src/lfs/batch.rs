//! The batch API of Git LFS as data: which objects are requested, the bodies of requests, and the meaning of answers. Pure.
//!
//! An answer comes from outside: it says for each object where its content is, and with which headers. It is checked as a whole before any content is requested.

use std::collections::{BTreeMap, HashMap};

use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::git::lfs_pointer::{ObjectId, Pointer};
use crate::policy::{Endpoint, Scheme};
use crate::url::read_host;

/// The media type of requests and answers.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.git-lfs+json";
/// The most objects of one request; GitHub and GitLab accept no more.
pub(crate) const BATCH: usize = 100;
/// The most headers that an answer may name for an object, and the bytes of one.
const HEADERS: usize = 32;
const HEADER_BYTES: usize = 16 << 10;
/// The longest address of an object.
const ADDRESS_BYTES: usize = 16 << 10;
/// Headers about the connection and the form of the message. The client alone writes them: from an answer, they could change where a request ends.
const OWN_HEADERS: [&str; 12] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "proxy-authorization",
    "proxy-connection",
    "range",
];

/// An object to fetch, and the first file that needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WantedObject {
    pub(crate) id: ObjectId,
    pub(crate) size: u64,
    pub(crate) path: String,
}

/// Lists each object once, in the order of its first file. Empty contents are not requested: `git-lfs` stores none. The error has the path of a wrong pointer, and the problem.
pub(crate) fn list_objects<'a>(
    files: impl IntoIterator<Item = (&'a str, Pointer)>,
) -> Result<Vec<WantedObject>, (String, &'static str)> {
    let mut sizes: HashMap<ObjectId, u64> = HashMap::new();
    let mut objects = Vec::new();
    for (path, Pointer { id, size }) in files {
        if size == 0 {
            let is_right = id == ObjectId::EMPTY;
            let wrong = "its size is 0, and its oid is not that of an empty file: commit the file again";
            is_right.then_some(()).ok_or_else(|| (path.to_owned(), wrong))?;
            continue;
        }
        match sizes.insert(id, size) {
            None => objects.push(WantedObject {
                id,
                size,
                path: path.to_owned(),
            }),
            Some(other) if other == size => {}
            Some(_) => {
                let wrong = "another pointer to the same object says another size: commit the file again";
                return Err((path.to_owned(), wrong));
            }
        }
    }
    Ok(objects)
}

#[derive(Serialize)]
struct Request<'a> {
    operation: &'static str,
    transfers: [&'static str; 1],
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    reference: Option<Reference<'a>>,
    objects: Vec<RequestedObject>,
    hash_algo: &'static str,
}

#[derive(Serialize)]
struct Reference<'a> {
    name: &'a str,
}

#[derive(Serialize)]
struct RequestedObject {
    oid: String,
    size: u64,
}

/// Writes the request for these objects. `reference`: the full name of the reference that has them.
pub(crate) fn write_request(objects: &[WantedObject], reference: Option<&str>) -> Vec<u8> {
    let request = Request {
        operation: "download",
        transfers: ["basic"],
        reference: reference.map(|name| Reference { name }),
        objects: objects
            .iter()
            .map(|object| RequestedObject {
                oid: object.id.to_string(),
                size: object.size,
            })
            .collect(),
        hash_algo: "sha256",
    };
    serde_json::to_vec(&request).unwrap_or_default()
}

/// The body of an answer to a batch request.
#[derive(Deserialize)]
struct Answer {
    transfer: Option<String>,
    hash_algo: Option<String>,
    objects: Option<Vec<AnsweredObject>>,
}

#[derive(Deserialize)]
struct AnsweredObject {
    oid: String,
    size: Option<u64>,
    authenticated: Option<bool>,
    actions: Option<ObjectActions>,
    error: Option<ObjectError>,
}

#[derive(Deserialize)]
struct ObjectActions {
    download: Option<Action>,
}

/// The address of an object's content, and the headers for the request to it. An ssh server answers with an action whose address is the API itself.
#[derive(Deserialize)]
pub(crate) struct Action {
    href: Option<String>,
    header: Option<BTreeMap<String, String>>,
    expires_in: Option<i64>,
    expires_at: Option<String>,
}

#[derive(Deserialize)]
struct ObjectError {
    code: Option<u16>,
    message: Option<String>,
}

/// The address of an object's content. It may contain a signature, and is never part of a message: `endpoint` is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) endpoint: Endpoint,
    /// The path, and the query if there is one.
    pub(crate) target: String,
}

/// The address and the headers with which the content of an object is downloaded.
#[derive(Clone)]
pub(crate) struct Download {
    pub(crate) object: WantedObject,
    pub(crate) address: Address,
    pub(crate) headers: HeaderMap,
    /// The answer says that the address needs no other credentials.
    pub(crate) is_authenticated: bool,
    pub(crate) expires_at: Option<Timestamp>,
}

/// Why the answer to a batch request can't be used for a download.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AnswerProblem {
    /// The server refuses one object.
    Refused { path: String, code: u16, words: String },
    /// The answer about one object, or the whole answer, is unusable.
    Unusable { path: Option<String>, problem: String },
}

/// Reads the answer to a request for these objects, in the order of the objects.
pub(crate) fn read_answer(
    bytes: &[u8],
    objects: &[WantedObject],
    received_at: Timestamp,
) -> Result<Vec<Download>, AnswerProblem> {
    let unusable = |path: Option<&str>, problem: &str| AnswerProblem::Unusable {
        path: path.map(str::to_owned),
        problem: problem.to_owned(),
    };
    // The parser's error could quote the answer, which has signatures.
    let answer: Answer =
        serde_json::from_slice(bytes).map_err(|_| unusable(None, "its answer is not the JSON of the batch API"))?;
    if answer
        .transfer
        .is_some_and(|transfer| !matches!(transfer.as_str(), "" | "basic"))
    {
        return Err(unusable(
            None,
            "it transfers in another way than basic, which was requested",
        ));
    }
    if answer
        .hash_algo
        .is_some_and(|algorithm| !matches!(algorithm.as_str(), "" | "sha256"))
    {
        return Err(unusable(
            None,
            "it names objects by another hash than sha256, which was requested",
        ));
    }
    let mut answers: HashMap<String, AnsweredObject> = HashMap::new();
    for object in answer.objects.unwrap_or_default() {
        answers.insert(object.oid.clone(), object);
    }
    let read = objects.iter().map(|object| {
        let path = Some(object.path.as_str());
        let answered = answers.remove(&object.id.to_string());
        let answered =
            answered.ok_or_else(|| unusable(path, "its answer leaves the object out: it may not have it"))?;
        if let Some(error) = answered.error {
            return Err(AnswerProblem::Refused {
                path: object.path.clone(),
                code: error.code.unwrap_or_default(),
                words: error.message.unwrap_or_default(),
            });
        }
        let action = answered.actions.and_then(|actions| actions.download);
        let action = action.ok_or_else(|| unusable(path, "it offers no download of the object: it may not have it"))?;
        // Some servers repeat the size, others send none.
        if answered.size.is_some_and(|size| size != object.size) {
            return Err(unusable(
                path,
                &format!(
                    "its object has {} bytes, and the pointer says {}",
                    answered.size.unwrap_or_default(),
                    object.size
                ),
            ));
        }
        let (address, headers) = action.read().map_err(|problem| unusable(path, problem))?;
        Ok(Download {
            object: object.clone(),
            address,
            headers,
            is_authenticated: answered.authenticated.unwrap_or_default(),
            expires_at: action.find_expiry(received_at),
        })
    });
    read.collect()
}

impl Action {
    /// Reads the address and the headers.
    pub(crate) fn read(&self) -> Result<(Address, HeaderMap), &'static str> {
        let href = self.href.as_deref().unwrap_or_default();
        let url = Url::parse(href).ok().filter(|_| href.len() <= ADDRESS_BYTES);
        let address = url.as_ref().and_then(Address::read);
        let address = address.ok_or("it gives an address that is no http or https URL")?;
        let mut headers = HeaderMap::new();
        for (name, value) in self.header.iter().flatten() {
            let unreadable = "it names a header that can't be sent";
            if name.len() + value.len() > HEADER_BYTES || headers.len() >= HEADERS {
                return Err("it names too many or too long headers");
            }
            let name = HeaderName::try_from(name.as_str()).map_err(|_| unreadable)?;
            if OWN_HEADERS.contains(&name.as_str()) {
                continue;
            }
            let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| unreadable)?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok((address, headers))
    }

    /// Finds when the address expires. As in `git-lfs`, `expires_in` comes first, and zero is no time; Go writes the year 1 for none.
    fn find_expiry(&self, received_at: Timestamp) -> Option<Timestamp> {
        if let Some(seconds) = self.expires_in.filter(|seconds| *seconds != 0) {
            return received_at.checked_add(SignedDuration::from_secs(seconds)).ok();
        }
        let at: Timestamp = self.expires_at.as_deref()?.parse().ok()?;
        (at > Timestamp::UNIX_EPOCH).then_some(at)
    }
}

impl Address {
    /// Reads a URL; a user, a password and a fragment are left out.
    pub(crate) fn read(url: &Url) -> Option<Self> {
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return None,
        };
        let host = read_host(url).filter(|host| !host.is_empty() && !host.starts_with('-'))?;
        let port = url.port().unwrap_or(scheme.default_port());
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        (port != 0).then(|| Self {
            endpoint: Endpoint { scheme, host, port },
            target: format!("{}{query}", url.path()),
        })
    }
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Address({})", self.endpoint)
    }
}

/// Explains a status, or the code of one object, and says what to do.
pub(crate) fn explain_status(code: u16) -> &'static str {
    match StatusCode::from_u16(code).unwrap_or(StatusCode::OK) {
        StatusCode::NOT_FOUND => {
            "it doesn't have the object, or LFS for this repository, or it needs (other) credentials; push it with git lfs push --all"
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "it refuses access to the object",
        StatusCode::GONE => "its owner has removed the object; commit the file again",
        StatusCode::NOT_ACCEPTABLE | StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            "it doesn't speak this version of the LFS API"
        }
        StatusCode::PAYLOAD_TOO_LARGE => "the request is too large for it",
        StatusCode::UNPROCESSABLE_ENTITY => "it takes the pointer for wrong; commit the file again",
        StatusCode::TOO_MANY_REQUESTS => "it wants fewer requests",
        StatusCode::NOT_IMPLEMENTED => {
            "LFS is not enabled there; ask its administrator, or commit the file without LFS"
        }
        StatusCode::INSUFFICIENT_STORAGE => "its storage is full; ask its administrator",
        _ if code == 509 => "the repository's bandwidth for LFS is used up; ask its owner",
        status if status.is_server_error() => "the server has a problem",
        _ => "that is no answer of a server of Git LFS",
    }
}

/// Finds the words of a server's answer other than 200: `message` of its JSON.
pub(crate) fn read_words(bytes: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Message {
        message: Option<String>,
    }
    let read: Option<Message> = serde_json::from_slice(bytes).ok();
    read.and_then(|read| read.message).unwrap_or_default()
}

/// Returns the words of a server for a message; none if they contain an address, which may be signed, or one of these secrets.
pub(crate) fn clean_words<'a>(words: &str, secrets: impl IntoIterator<Item = &'a str>) -> String {
    let words = crate::git::wire::clean_words(words.as_bytes());
    let mut secrets = secrets.into_iter().filter(|secret| !secret.is_empty());
    let hides = words.contains("://") || words.contains('?') || secrets.any(|secret| words.contains(secret));
    if hides { String::new() } else { words }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn make_id(byte: u8) -> ObjectId {
        ObjectId([byte; 32])
    }

    fn make_object(byte: u8, size: u64) -> WantedObject {
        WantedObject {
            id: make_id(byte),
            size,
            path: format!("file-{byte}"),
        }
    }

    fn make_pointer(byte: u8, size: u64) -> Pointer {
        Pointer {
            id: make_id(byte),
            size,
        }
    }

    fn read_answer_of(objects: Value) -> Result<Vec<Download>, AnswerProblem> {
        let bytes = json!({ "objects": objects }).to_string();
        read_answer(bytes.as_bytes(), &[make_object(1, 5)], Timestamp::UNIX_EPOCH)
    }

    /// The answer about object 1 with this download.
    fn make_download(download: Value) -> Value {
        json!([{ "oid": make_id(1).to_string(), "size": 5, "actions": { "download": download } }])
    }

    fn describe_problem(problem: AnswerProblem) -> String {
        match problem {
            AnswerProblem::Refused { path, code, words } => format!("{path}: {code}: {words}"),
            AnswerProblem::Unusable { path, problem } => format!("{}: {problem}", path.unwrap_or_default()),
        }
    }

    #[test]
    fn each_object_is_requested_once() {
        let files = [
            ("b", make_pointer(2, 7)),
            ("a", make_pointer(1, 5)),
            ("c", make_pointer(2, 7)),
        ];
        let empty = Pointer {
            id: ObjectId::EMPTY,
            size: 0,
        };
        let objects = list_objects(files.into_iter().chain([("empty", empty)])).unwrap();
        let listed: Vec<_> = objects
            .iter()
            .map(|object| (object.path.as_str(), object.size))
            .collect();
        assert_eq!(listed, [("b", 7), ("a", 5)]);
        assert_eq!(
            ObjectId::EMPTY.0,
            <[u8; 32]>::from(<sha2::Sha256 as sha2::Digest>::digest(b""))
        );
        for (files, path, expected) in [
            (
                [("a", make_pointer(1, 5)), ("b", make_pointer(1, 6))],
                "b",
                "another size",
            ),
            (
                [("a", make_pointer(1, 5)), ("b", make_pointer(2, 0))],
                "b",
                "not that of an empty file",
            ),
        ] {
            let (wrong, problem) = list_objects(files).unwrap_err();
            assert!(wrong == path && problem.contains(expected), "{wrong}: {problem}");
        }
        let request: Value = serde_json::from_slice(&write_request(&objects, Some("refs/heads/main"))).unwrap();
        let expected = json!({
            "operation": "download",
            "transfers": ["basic"],
            "ref": { "name": "refs/heads/main" },
            "objects": [{ "oid": make_id(2).to_string(), "size": 7 }, { "oid": make_id(1).to_string(), "size": 5 }],
            "hash_algo": "sha256",
        });
        assert_eq!(request, expected);
        let request: Value = serde_json::from_slice(&write_request(&objects, None)).unwrap();
        assert_eq!(request.get("ref"), None);
    }

    #[test]
    fn answers_of_the_hosts_are_read() {
        let at = |seconds| Timestamp::from_second(seconds).ok();
        // GitHub, GitLab, Gitea, and one that sends null for what it lacks.
        for (action, headers, expires_at) in [
            (
                json!({"href": "https://s.example/x?X-Amz-Signature=a&b=c%20d", "expires_in": 3600, "expires_at": "2016-11-10T15:29:07Z"}),
                0,
                at(3600),
            ),
            (
                json!({"href": "https://s.example/x?X-Amz-Signature=a&b=c%20d", "expires_at": "2016-11-10T15:29:07Z"}),
                0,
                at(1_478_791_747),
            ),
            (
                json!({"href": "https://s.example/x?X-Amz-Signature=a&b=c%20d", "header": {"Authorization": "Basic x"}}),
                1,
                None,
            ),
            (
                json!({"href": "https://s.example/x?X-Amz-Signature=a&b=c%20d", "header": {"Authorization": "Authorization: Basic dummy"}, "expires_at": "0001-01-01T00:00:00Z", "expires_in": 0}),
                1,
                None,
            ),
            (
                json!({"href": "https://s.example/x?X-Amz-Signature=a&b=c%20d", "header": null, "expires_in": null, "expires_at": null}),
                0,
                None,
            ),
            (
                json!({"href": "https://u:p@S.example:443/x?X-Amz-Signature=a&b=c%20d#f", "header": {"Host": "h", "Transfer-Encoding": "chunked", "Content-Length": "7", "Accept": "a"}, "expires_in": -5}),
                1,
                at(-5),
            ),
        ] {
            let read = read_answer_of(make_download(action.clone()))
                .map_err(describe_problem)
                .unwrap();
            let [read] = read.as_slice() else { panic!("{action}") };
            assert_eq!(read.address.endpoint.to_string(), "https://s.example:443");
            assert_eq!(read.address.target, "/x?X-Amz-Signature=a&b=c%20d");
            assert_eq!((read.headers.len(), read.expires_at), (headers, expires_at), "{action}");
            assert!(!format!("{:?}", read.address).contains("Signature"));
        }
        // The result has the order of the request, and the answer may have another. Sizes may be missing.
        let href = |name: &str| json!({ "download": { "href": format!("https://s.example/{name}") } });
        let bytes = json!({"transfer": "basic", "hash_algo": "sha256", "objects": [
            {"oid": make_id(2).to_string(), "actions": href("2")},
            {"oid": make_id(9).to_string(), "actions": href("9")},
            {"oid": make_id(1).to_string(), "size": 5, "authenticated": true, "actions": href("1")},
        ]});
        let objects = [make_object(1, 5), make_object(2, 6)];
        let read = read_answer(bytes.to_string().as_bytes(), &objects, Timestamp::UNIX_EPOCH);
        let read = read.map_err(describe_problem).unwrap();
        let targets: Vec<_> = read
            .iter()
            .map(|read| (read.address.target.as_str(), read.is_authenticated))
            .collect();
        assert_eq!(targets, [("/1", true), ("/2", false)]);
    }

    #[test]
    fn an_answer_without_a_content_says_why() {
        let error = |error: Value| json!([{ "oid": make_id(1).to_string(), "size": 5, "error": error }]);
        let long = "x".repeat(HEADER_BYTES + 1);
        for (objects, expected) in [
            (
                error(json!({"code": 404, "message": "Object does not exist"})),
                "file-1: 404: Object does not exist",
            ),
            (error(json!({})), "file-1: 0: "),
            (json!([]), "leaves the object out"),
            (Value::Null, "leaves the object out"),
            (
                json!([{ "oid": make_id(1).to_string(), "size": 5, "actions": {} }]),
                "offers no download",
            ),
            (
                json!([{ "oid": make_id(1).to_string(), "size": 5, "actions": null }]),
                "offers no download",
            ),
            (
                json!([{ "oid": make_id(1).to_string(), "size": 6, "actions": {"download": {"href": "https://s.example"}} }]),
                "has 6 bytes, and the pointer says 5",
            ),
            (json!([{ "oid": make_id(1).to_string(), "size": -1 }]), "not the JSON"),
            (json!([{ "size": 5 }]), "not the JSON"),
            (json!({}), "not the JSON"),
            (make_download(json!({})), "no http or https URL"),
            (make_download(json!({"href": "/x"})), "no http or https URL"),
            (
                make_download(json!({"href": "file:///etc/passwd"})),
                "no http or https URL",
            ),
            (
                make_download(json!({"href": "ssh://s.example/x"})),
                "no http or https URL",
            ),
            (
                make_download(json!({"href": format!("https://s.example/{long}")})),
                "no http or https URL",
            ),
            (
                make_download(json!({"href": "https://s.example/x", "header": {"a b": "c"}})),
                "a header that can't be sent",
            ),
            (
                make_download(json!({"href": "https://s.example/x", "header": {"a": "b\r\nc: d"}})),
                "a header that can't be sent",
            ),
            (
                make_download(json!({"href": "https://s.example/x", "header": {"a": long}})),
                "too many or too long headers",
            ),
        ] {
            let message = describe_problem(read_answer_of(objects.clone()).err().unwrap());
            assert!(message.contains(expected), "{objects}: {message}");
        }
        for (other, expected) in [
            (json!({"transfer": "ssh"}), "another way than basic"),
            (json!({"hash_algo": "sha512"}), "another hash than sha256"),
            (json!("text"), "not the JSON"),
        ] {
            let problem = read_answer(
                other.to_string().as_bytes(),
                &[make_object(1, 5)],
                Timestamp::UNIX_EPOCH,
            );
            let message = describe_problem(problem.err().unwrap());
            assert!(message.contains(expected), "{other}: {message}");
        }
    }

    #[test]
    fn words_of_a_server_carry_no_secret() {
        let read_message = |body: Value| clean_words(&read_words(body.to_string().as_bytes()), ["hush", ""]);
        assert_eq!(
            read_message(json!({"message": "over its\n data quota"})),
            "over its data quota"
        );
        for body in [
            json!({"message": "you sent hush"}),
            json!({"message": "see https://s.example/x"}),
            json!({"message": "GET /x?X-Amz-Signature=a"}),
            json!({}),
            json!("x"),
        ] {
            assert_eq!(read_message(body.clone()), "", "{body}");
        }
        for code in 0..=u16::MAX {
            assert!(!explain_status(code).is_empty());
        }
    }
}
