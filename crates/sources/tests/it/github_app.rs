//! GitHub Apps: a server that imitates GitHub's API, and one with the repository that its tokens open.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use rustls::pki_types::PrivatePkcs1KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tenure_git_server::{HttpAuthentication, Options};
use tenure_remote_requests::fetch::FetchReason;
use tenure_remote_requests::git::Provider;
use tenure_sources::{AppTokens, FetchError, GitRequest, GitSecrets, SecretData, SourceKey};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::bed::{Bed, endpoint, source};

const KEY: &str = include_str!("../data/github-app.pem");

/// The next answer of the API.
#[derive(Clone)]
enum Says {
    /// A token as usual.
    Token { seconds: i64 },
    /// A head and a body, unchanged.
    Raw(String),
    /// More bytes than the client reads.
    Flood,
}

struct Api {
    url: String,
    says: Arc<Mutex<Says>>,
    /// The method and path of each request.
    asked: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Api {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Api {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/api/v3", listener.local_addr().unwrap());
        let says = Arc::new(Mutex::new(Says::Token { seconds: 3600 }));
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (behaviour, noted) = (Arc::clone(&says), Arc::clone(&asked));
        let task = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (behaviour, noted) = (Arc::clone(&behaviour), Arc::clone(&noted));
                tokio::spawn(async move {
                    loop {
                        let mut head = Vec::new();
                        while !head.ends_with(b"\r\n\r\n") {
                            let Ok(byte) = client.read_u8().await else { return };
                            head.push(byte);
                        }
                        let head = String::from_utf8(head).unwrap();
                        let asked = head
                            .rsplit_once(" HTTP/1.1\r\n")
                            .map_or(head.as_str(), |_| head.split(" HTTP/1.1").next().unwrap());
                        noted.lock().unwrap().push(asked.to_owned());
                        let says = behaviour.lock().unwrap().clone();
                        let answer = match says {
                            Says::Token { seconds } => make_answer(asked, &head, seconds),
                            Says::Raw(answer) => answer,
                            Says::Flood => {
                                let _ = client.write_all(b"HTTP/1.1 201 Created\r\n\r\n").await;
                                while client.write_all(&[b' '; 4096]).await.is_ok() {}
                                return;
                            }
                        };
                        if client.write_all(answer.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { url, says, asked, task }
    }

    fn set_answer(&self, says: Says) {
        *self.says.lock().unwrap() = says;
    }

    fn take_asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

/// Answers as GitHub does to a request that is signed with the App's key.
fn make_answer(asked: &str, head: &str, seconds: i64) -> String {
    let json = |status: &str, body: Value| {
        let body = body.to_string();
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    if !is_signed(head) {
        return json("401 Unauthorized", json!({ "message": "quoted" }));
    }
    match asked {
        "POST /api/v3/app/installations/7/access_tokens" => {
            let expires = Timestamp::now() + SignedDuration::from_secs(seconds);
            let expires = Timestamp::from_second(expires.as_second()).unwrap();
            json(
                "201 Created",
                json!({ "token": "ghs_hush", "expires_at": expires.to_string() }),
            )
        }
        "GET /api/v3/users/somebody/installation" => json("200 OK", json!({ "id": 7 })),
        _ => json("404 Not Found", json!({ "message": "quoted" })),
    }
}

fn is_signed(head: &str) -> bool {
    let der = PrivatePkcs1KeyDer::from_pem_slice(KEY.as_bytes()).unwrap();
    let key = RsaKeyPair::from_der(der.secret_pkcs1_der()).unwrap();
    let claim = head
        .lines()
        .find_map(|line| line.strip_prefix("authorization: Bearer "))
        .unwrap();
    let (message, signature) = claim.rsplit_once('.').unwrap();
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key().as_ref());
    let (header, claims) = message.split_once('.').unwrap();
    let read = |part: &str| serde_json::from_slice::<Value>(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
    let (header, claims) = (read(header), read(claims));
    let (from, until) = (claims["iat"].as_i64().unwrap(), claims["exp"].as_i64().unwrap());
    let now = Timestamp::now().as_second();
    assert_eq!(header, json!({ "alg": "RS256", "typ": "JWT" }));
    // GitHub refuses claims that are valid for more than ten minutes.
    assert!(from <= now && now < until && until - from <= 600, "{claims}");
    claims["iss"] == "42" && public.verify(message.as_bytes(), &signature).is_ok()
}

/// Makes a repository that only a token of the App opens.
async fn start_bed() -> (Bed, Api) {
    let api = Api::start().await;
    let mut bed = Bed::with(Options {
        authentication: Some(HttpAuthentication::Basic {
            username: "x-access-token".to_owned(),
            password: "ghs_hush".to_owned(),
        }),
        ..Options::default()
    })
    .await;
    bed.policy.allow.push(endpoint(&api.url));
    bed.repository.commit([("a", "x")], "first").await.unwrap();
    (bed, api)
}

fn app_secret(api: &Api, entries: &[(&str, &str)]) -> SecretData {
    let usual = [
        ("githubAppID", "42"),
        ("githubAppPrivateKey", KEY),
        ("githubAppBaseURL", api.url.as_str()),
    ];
    let all = usual.iter().chain(entries);
    all.map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
        .collect()
}

fn read(bed: &Bed, source: SourceKey, secret: SecretData) -> Result<GitRequest, FetchError> {
    let mut asked = bed.request(json!({"branch": "main"})).asked;
    asked.provider = Provider::GitHub;
    let secrets = GitSecrets {
        credentials: Some(secret),
        ..GitSecrets::default()
    };
    GitRequest::read(source, asked, &secrets)
}

#[tokio::test]
async fn each_source_fetches_its_own_token_once() {
    let (bed, api) = start_bed().await;
    let tokens = AppTokens::default();
    let by_id = [("githubAppInstallationID", "7\n")];
    let request = |source: SourceKey, entries: &[(&str, &str)]| {
        let mut request = read(&bed, source, app_secret(&api, entries)).unwrap();
        request.tokens = tokens.clone();
        request
    };
    let first = request(source(), &by_id);
    assert!(!format!("{first:?}").contains("hush") && !format!("{first:?}").contains("PRIVATE"));
    bed.get_request(&first).await;
    bed.get_request(&first).await;
    let asks = "POST /api/v3/app/installations/7/access_tokens";
    assert_eq!(api.take_asked(), [asks]);
    // Another source with the same Secret has another token, and so has another Secret of the same source.
    let other = SourceKey::new("GitRepository", "team", "other", "2").unwrap();
    bed.get_request(&request(other, &by_id)).await;
    assert_eq!(api.take_asked(), [asks]);
    let by_owner = request(source(), &[("githubAppInstallationOwner", "somebody")]);
    bed.get_request(&by_owner).await;
    let finds = [
        "GET /api/v3/orgs/somebody/installation",
        "GET /api/v3/users/somebody/installation",
        asks,
    ];
    assert_eq!(api.take_asked(), finds);
    // A token that ends soon is not used again.
    tokens.forget(&source());
    api.set_answer(Says::Token { seconds: 240 });
    bed.get_request(&first).await;
    bed.get_request(&first).await;
    assert_eq!(api.take_asked(), [asks, asks]);
    bed.assert_tidy();
}

#[tokio::test]
async fn a_token_that_is_not_accepted_is_not_kept() {
    let (bed, api) = start_bed().await;
    let other = bed.server.create("other").await.unwrap();
    other.commit([("a", "x")], "first").await.unwrap();
    let mut request = read(&bed, source(), app_secret(&api, &[("githubAppInstallationID", "7")])).unwrap();
    request.tokens = AppTokens::default();
    let body = json!({ "token": "ghs_wrong", "expires_at": "2099-01-01T00:00:00Z" }).to_string();
    api.set_answer(Says::Raw(format!(
        "HTTP/1.1 201 Created\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )));
    let (error, message) = bed.refuse_request(&request).await;
    assert_eq!(error.reason(), FetchReason::AuthenticationFailed);
    assert!(!message.contains("ghs_wrong"), "{message}");
    // After GitHub has issued a good token, it is used.
    api.set_answer(Says::Token { seconds: 3600 });
    bed.get_request(&request).await;
    assert_eq!(api.take_asked().len(), 2);
}

#[tokio::test]
async fn api_failures_are_reported_without_quoting_the_answer() {
    let (bed, api) = start_bed().await;
    let request = read(&bed, source(), app_secret(&api, &[("githubAppInstallationID", "7")])).unwrap();
    let raw = |status: &str, body: &str| {
        Says::Raw(format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    };
    for (says, reason, expected) in [
        (
            raw("401 No", "quoted"),
            FetchReason::AuthenticationFailed,
            "the App is not known",
        ),
        (
            raw("403 No", "quoted"),
            FetchReason::AuthenticationFailed,
            "or has asked too often",
        ),
        (
            raw("404 No", "quoted"),
            FetchReason::AuthenticationFailed,
            "the App has no installation 7",
        ),
        (
            raw("503 No", "quoted"),
            FetchReason::GitOperationFailed,
            "answered HTTP 503",
        ),
        (
            raw("302 Found\r\nLocation: http://169.254.169.254/", ""),
            FetchReason::GitOperationFailed,
            "answered HTTP 302",
        ),
        (
            raw("201 Created", "<html>quoted"),
            FetchReason::GitOperationFailed,
            "not one of GitHub's API",
        ),
        (
            raw("201 Created", "{}"),
            FetchReason::GitOperationFailed,
            "not one of GitHub's API",
        ),
        (
            raw("201 Created", r#"{"token":"quoted","expires_at":"soon"}"#),
            FetchReason::GitOperationFailed,
            "no token with an end",
        ),
        (
            raw(
                "201 Created",
                r#"{"token":"quo\nted","expires_at":"2099-01-01T00:00:00Z"}"#,
            ),
            FetchReason::GitOperationFailed,
            "no token with an end",
        ),
        (Says::Flood, FetchReason::GitOperationFailed, "longer than 256 KiB"),
    ] {
        api.set_answer(says);
        let (error, message) = bed.refuse_request(&request).await;
        assert_eq!(error.reason(), reason, "{message}");
        assert!(
            message.contains(expected) && message.contains(&api.url),
            "{expected}: {message}"
        );
        assert!(!message.contains("quo") && !message.contains("PRIVATE"), "{message}");
        assert!(!error.is_stalled());
    }
    api.set_answer(Says::Token { seconds: 3600 });
    let unknown_owner = read(
        &bed,
        source(),
        app_secret(&api, &[("githubAppInstallationOwner", "nobody")]),
    )
    .unwrap();
    let (_, message) = bed.refuse_request(&unknown_owner).await;
    assert!(
        message.contains("not installed for the organization or user"),
        "{message}"
    );
    let foreign = read(
        &bed,
        source(),
        app_secret(&api, &[("githubAppID", "43"), ("githubAppInstallationID", "7")]),
    )
    .unwrap();
    let (_, message) = bed.refuse_request(&foreign).await;
    assert!(message.contains("the App is not known"), "{message}");
    // The policy applies to the API like to any other address.
    for base in [
        "http://169.254.169.254/latest",
        "https://localhost/api/v3",
        "http://[::1]:80",
    ] {
        let secret = app_secret(&api, &[("githubAppInstallationID", "7"), ("githubAppBaseURL", base)]);
        let (error, message) = bed.refuse_request(&read(&bed, source(), secret).unwrap()).await;
        assert!(matches!(error, FetchError::AddressDenied(_)), "{message}");
    }
    bed.assert_tidy();
}

#[tokio::test]
async fn mistakes_in_the_secret_are_named_without_its_values() {
    let (bed, api) = start_bed().await;
    let id = ("githubAppInstallationID", "7");
    for (entries, expected) in [
        (
            vec![],
            "githubAppInstallationID or githubAppInstallationOwner is missing",
        ),
        (
            vec![id, ("githubAppInstallationOwner", "hush")],
            "can't be used together",
        ),
        (
            vec![("githubAppInstallationOwner", "hush/../x")],
            "not the name of an organization",
        ),
        (
            vec![("githubAppInstallationID", "hush")],
            "githubAppInstallationID is not a number",
        ),
        (vec![id, ("githubAppID", "-1")], "githubAppID is not a number"),
        (
            vec![id, ("githubAppPrivateKey", "hush")],
            "githubAppPrivateKey is no private key of RSA",
        ),
        (vec![id, ("githubAppPrivateKey", "")], "githubAppPrivateKey is missing"),
        (
            vec![id, ("githubAppBaseURL", "file:///hush")],
            "githubAppBaseURL is no http or https URL",
        ),
        (
            vec![id, ("githubAppBaseURL", "https://me:hush@x/")],
            "githubAppBaseURL is no http or https URL",
        ),
    ] {
        let error = read(&bed, source(), app_secret(&api, &entries)).unwrap_err();
        assert_eq!(error.reason(), FetchReason::AuthenticationFailed, "{error}");
        assert!(
            error.to_string().contains(expected) && !error.to_string().contains("hush"),
            "{error}"
        );
    }
    let error = read(
        &bed,
        source(),
        SecretData::from([("username".to_owned(), b"x".to_vec())]),
    )
    .unwrap_err();
    assert_eq!(error.reason(), FetchReason::InvalidProviderConfiguration);
    // The Secret of an App without the provider is refused: the fetch would run without credentials.
    let secrets = GitSecrets {
        credentials: Some(app_secret(&api, &[id])),
        ..GitSecrets::default()
    };
    let error = GitRequest::read(source(), bed.request(json!({"branch": "main"})).asked, &secrets).unwrap_err();
    assert_eq!(error.reason(), FetchReason::InvalidProviderConfiguration);
    assert!(error.to_string().contains("provider is not set to github"), "{error}");
    assert_eq!(api.take_asked(), Vec::<String>::new());
}
