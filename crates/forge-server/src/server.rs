//! The server: its listener, its record of requests, and its controls for tests.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::header::{DATE, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use ring::signature::{KeyPair as _, RsaKeyPair};
use tenure_git_server::{Access, GitServer, NewToken, Options, Repositories, SshOptions};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::asked::{Answer, ApiRequest, refuse};
use crate::clock::Clock;
use crate::fault::{Fault, Misbehaviour};
use crate::oauth::{self, Decision};
use crate::registry_token::{self, Signer};
use crate::world::{Issue, LiveCredential, Owner, World, hash_value};
use crate::{gitea, github, gitlab};

/// The largest size of a request's body.
const BODY_BYTES: usize = 1 << 20;
/// The number of requests that are stored with their content, and the number of paths that are counted.
const REMEMBERED: usize = 10_000;

/// The kind of Git host whose API the server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The API of GitLab, with its device flow and its tokens for a container registry.
    Gitlab,
    /// The API of GitHub.
    Github,
    /// The API of Gitea and Forgejo.
    Gitea,
}

/// A received request, without the credential that it had.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// The method.
    pub method: Method,
    /// The path and the query.
    pub target: String,
    /// The body.
    pub body: String,
    /// Whether the request had a credential, valid or not.
    pub shows_credential: bool,
    /// The status of the answer; `None` if the connection was cut.
    pub status: Option<StatusCode>,
}

/// The state that all connections of a host share.
struct Shared {
    world: Mutex<World>,
    signer: Signer,
    traffic: Mutex<Traffic>,
    base: String,
}

/// The faults and the rate limit for requests, and the recorded requests.
#[derive(Default)]
struct Traffic {
    faults: Vec<Fault>,
    limit: Option<Limit>,
    counts: BTreeMap<(String, String), usize>,
    requests: VecDeque<RecordedRequest>,
}

/// A rate limit: the allowed requests in a period, and the number of requests since the period began.
struct Limit {
    requests: u64,
    per: SignedDuration,
    since: Timestamp,
    used: u64,
}

/// A running Git host for tests, with the server of its repositories. Both stop when the value is dropped.
pub struct ForgeServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    git: GitServer,
    task: AbortHandle,
}

impl Drop for ForgeServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The error with which the server cuts a connection.
#[derive(Debug)]
struct CutOff;

impl std::fmt::Display for CutOff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cut off")
    }
}

impl std::error::Error for CutOff {}

impl ForgeServer {
    /// Starts a host on the loopback address. The folder holds the repositories.
    ///
    /// # Errors
    /// When no port is free, or the folder can't be used.
    pub async fn start(folder: impl AsRef<Path>, kind: Kind) -> io::Result<Self> {
        let clock = Clock::new();
        let access = Access::with_clock(clock.for_git());
        let options = Options {
            access: Some(access.clone()),
            ssh: Some(SshOptions::loopback(Vec::new())),
            ..Options::default()
        };
        let git = GitServer::start(folder, options).await.map_err(io::Error::other)?;
        let split = |url: String| {
            let (before, after) = url.split_once("PATH").unwrap_or((&url, ""));
            (before.to_owned(), after.to_owned())
        };
        let urls = [git.http_url("PATH"), git.ssh_url("PATH").unwrap_or_default()].map(split);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            world: Mutex::new(World::new(kind, clock, access, urls)),
            signer: Signer::new()?,
            traffic: Mutex::default(),
            base: format!("http://{address}"),
        });
        let serving = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&serving);
                let service = service_fn(move |request| {
                    let shared = Arc::clone(&shared);
                    async move { serve(&shared, request).await.map(|answer| answer.map(Full::new)) }
                });
                // The host ignores clients that disconnect.
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Ok(Self {
            shared,
            address,
            git,
            task: task.abort_handle(),
        })
    }

    fn lock_world(&self) -> MutexGuard<'_, World> {
        self.shared.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_traffic(&self) -> MutexGuard<'_, Traffic> {
        self.shared.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the address of the listener.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address as a URL, `http://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.shared.base
    }

    /// Returns the server of the repositories.
    #[must_use]
    pub fn git(&self) -> &GitServer {
        &self.git
    }

    /// Adds a project with an empty repository, and returns its number.
    ///
    /// # Errors
    /// When a repository of that name exists.
    pub async fn add_project(&self, path: &str) -> io::Result<u64> {
        self.git.create(path).await.map_err(io::Error::other)?;
        let mut world = self.lock_world();
        let id = world.next();
        world.projects.insert(id, path.to_owned());
        // The path now belongs to the new project, so the redirect from an earlier project ends.
        world.moved.remove(path);
        Ok(id)
    }

    /// Sets the address that the host reports for clones by HTTP. At the host's own address there is no repository, but a [`crate::Fault`] can answer there.
    pub fn set_clone_address(&self, address: &str) {
        let [http, _] = &mut self.lock_world().clone_urls;
        http.0 = format!("{address}/");
    }

    /// Adds a group and returns its number.
    pub fn add_group(&self, path: &str) -> u64 {
        let mut world = self.lock_world();
        let id = world.next();
        world.groups.insert(id, path.to_owned());
        id
    }

    /// Renames a project and its repository. The old path redirects to the project until another project has that path.
    ///
    /// # Errors
    /// When the project is missing, or the path is taken.
    pub fn move_project(&self, id: u64, path: &str) -> io::Result<()> {
        let mut world = self.lock_world();
        let old = world.projects.get(&id).cloned().ok_or(io::ErrorKind::NotFound)?;
        self.git.rename(&old, path).map_err(io::Error::other)?;
        world.projects.insert(id, path.to_owned());
        world.moved.insert(old, id);
        Ok(())
    }

    /// Removes a project with its credentials and the folder of its repository.
    ///
    /// # Errors
    /// When the folder can't be removed.
    pub fn remove_project(&self, id: u64) -> io::Result<()> {
        let mut world = self.lock_world();
        if let Some(path) = world.projects.get(&id)
            && let Ok(repository) = self.git.repository(path)
        {
            std::fs::remove_dir_all(repository.folder())?;
        }
        world.remove_project(id);
        Ok(())
    }

    /// Adds a person and returns their number.
    pub fn add_person(&self, name: &str) -> u64 {
        let mut world = self.lock_world();
        let id = world.next();
        world.people.insert(id, name.to_owned());
        id
    }

    /// Sets the level of a person in a project or group, in GitLab's levels: 40 is a Maintainer, 50 an Owner, 0 no member.
    pub fn set_level(&self, person: u64, owner: Owner, level: u8) {
        self.lock_world().members.insert((person, owner), level);
    }

    /// Makes a token of a person for the API, with GitLab's scopes (`api`, `read_api`).
    #[must_use]
    pub fn authorise(&self, person: u64, scopes: &[&str], expires_at: Option<Timestamp>) -> String {
        self.lock_world().authorise(person, scopes, "glpat-", expires_at)
    }

    /// Lets a token that [`ForgeServer::authorise`] has made push to a repository, with any user name.
    pub fn let_push(&self, value: &str, repository: &str) {
        self.lock_world().access.add_token(NewToken {
            username: None,
            value,
            repositories: Repositories::One(repository.to_owned()),
            may_write: true,
            expires_at: None,
        });
    }

    /// Revokes a token that [`ForgeServer::authorise`] has made.
    pub fn revoke_authoriser(&self, value: &str) {
        let shown = hash_value(value);
        for known in &mut self.lock_world().authorisers {
            known.is_revoked |= known.sha256 == shown;
        }
    }

    /// Adds a GitHub App with its private key (PKCS#1, PEM). The host stores the public half.
    ///
    /// # Errors
    /// When the text is not such a key.
    pub fn add_app(&self, id: u64, private_key: &str) -> io::Result<()> {
        use base64::Engine as _;
        let lines: String = private_key.lines().filter(|line| !line.starts_with('-')).collect();
        let der = base64::engine::general_purpose::STANDARD.decode(lines);
        let pair = RsaKeyPair::from_der(&der.map_err(io::Error::other)?);
        let pair = pair.map_err(|error| io::Error::other(error.to_string()))?;
        self.lock_world().app = Some((id, pair.public_key().as_ref().to_vec()));
        Ok(())
    }

    /// Adds an installation of the App for all repositories of an owner, and returns its number.
    pub fn add_installation(&self, owner: &str) -> u64 {
        let mut world = self.lock_world();
        let id = world.next();
        world.installations.push((id, owner.to_owned()));
        id
    }

    /// Revokes a deploy token as in the web pages, so its row stays. Returns whether the token existed.
    pub fn revoke_in_web_pages(&self, owner: Owner, id: u64) -> bool {
        self.lock_world().end_token(owner, id, true)
    }

    /// Enters a code in the browser as a person, and allows or denies the request. Returns whether the code exists.
    pub fn enter_code(&self, code: &str, person: u64, is_allowed: bool) -> bool {
        let mut world = self.lock_world();
        let mut all = world.devices.iter_mut();
        let Some(device) = all.find(|device| device.user_code == code) else {
            return false;
        };
        device.decision = Some(if is_allowed {
            Decision::Allowed(person)
        } else {
            Decision::Denied
        });
        true
    }

    /// Sets the host with which the names of images begin.
    pub fn set_registry(&self, host: &str) {
        self.lock_world().registry = Some(host.to_owned());
    }

    /// Returns the configuration with which a container registry trusts this host: the realm of the tokens, their issuer (`forge`), and the certificate in PEM that
    /// signs them.
    #[must_use]
    pub fn registry_authority(&self) -> (String, &'static str, &str) {
        (
            format!("{}/jwt/auth", self.shared.base),
            "forge",
            &self.shared.signer.pem,
        )
    }

    /// Sets the address that the host writes into its later answers, such as GitLab's `external_url`.
    pub fn set_known_as(&self, url: &str) {
        self.lock_world().known_as = Some(url.to_owned());
    }

    /// Sets the largest number of entries on a page of a list.
    pub fn set_page_size(&self, size: usize) {
        self.lock_world().page_size = size;
    }

    /// Sets whether deploy tokens end at 00:00 UTC of their date (the default), or exactly at the requested time.
    pub fn set_midnight(&self, ends_at_midnight: bool) {
        self.lock_world().ends_at_midnight = ends_at_midnight;
    }

    /// Stops the clock at a time.
    pub fn set_time(&self, time: Timestamp) {
        self.lock_world().clock.set(time);
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: SignedDuration) {
        self.lock_world().clock.advance(by);
    }

    /// Returns the time of the host.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.lock_world().clock.now()
    }

    /// Adds a fault, with which the host misbehaves for the requests that fit it.
    pub fn misbehave(&self, fault: Fault) {
        self.lock_traffic().faults.push(fault);
    }

    /// Removes all faults.
    pub fn behave(&self) {
        self.lock_traffic().faults.clear();
    }

    /// Sets a rate limit: the requests that the host accepts in a period. Headers report the limit.
    pub fn set_rate_limit(&self, requests: u64, per: SignedDuration) {
        let since = self.now();
        self.lock_traffic().limit = Some(Limit {
            requests,
            per,
            since,
            used: 0,
        });
    }

    /// Returns the number of received requests with this method and this text in their path.
    #[must_use]
    pub fn count(&self, method: &Method, path: &str) -> usize {
        let traffic = self.lock_traffic();
        let all = traffic.counts.iter();
        all.filter(|((known, at), _)| known == method.as_str() && at.contains(path))
            .map(|(_, count)| count)
            .sum()
    }

    /// Returns the last requests, at most ten thousand.
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.lock_traffic().requests.iter().cloned().collect()
    }

    /// Returns the credentials that are valid now.
    #[must_use]
    pub fn live(&self) -> Vec<LiveCredential> {
        self.lock_world().live()
    }

    /// Returns all issues.
    #[must_use]
    pub fn issues(&self) -> Vec<Issue> {
        self.lock_world().issues.clone()
    }
}

async fn serve(shared: &Shared, request: Request<Incoming>) -> Result<Answer, CutOff> {
    let (parts, body) = request.into_parts();
    let Ok(body) = Limited::new(body, BODY_BYTES).collect().await else {
        return Ok(refuse(StatusCode::PAYLOAD_TOO_LARGE, "too large"));
    };
    let request = Request::from_parts(parts, body.to_bytes());
    let answer = answer_request(shared, &request);
    let mut traffic = shared.traffic.lock().unwrap_or_else(PoisonError::into_inner);
    let path = request.uri().path().to_owned();
    let key = (request.method().to_string(), path);
    if traffic.counts.len() < REMEMBERED || traffic.counts.contains_key(&key) {
        *traffic.counts.entry(key).or_default() += 1;
    }
    if traffic.requests.len() >= REMEMBERED {
        traffic.requests.pop_front();
    }
    traffic.requests.push_back(RecordedRequest {
        method: request.method().clone(),
        target: request.uri().to_string(),
        body: String::from_utf8_lossy(request.body()).into_owned(),
        shows_credential: ["authorization", "private-token"]
            .iter()
            .any(|name| request.headers().contains_key(*name)),
        status: answer.as_ref().ok().map(Response::status),
    });
    answer
}

fn answer_request(shared: &Shared, request: &Request<Bytes>) -> Result<Answer, CutOff> {
    let mut world = shared.world.lock().unwrap_or_else(PoisonError::into_inner);
    let now = world.clock.now();
    let (fault, limited) = {
        let mut traffic = shared.traffic.lock().unwrap_or_else(PoisonError::into_inner);
        let path = request.uri().path();
        let mut faults = traffic.faults.iter_mut();
        let fault = faults.find_map(|fault| fault.strikes(request.method(), path).then(|| fault.what.clone()));
        let limited = traffic.limit.as_mut().map(|limit| limit.take_request(now));
        (fault, limited)
    };
    let mut route = || route_request(shared, &mut world, request);
    let mut answer = match (fault, limited) {
        (Some(Misbehaviour::Cut), _) => return Err(CutOff),
        (Some(Misbehaviour::Answer(answer)), _) => answer,
        (Some(Misbehaviour::EffectThenCut), _) => {
            route();
            return Err(CutOff);
        }
        (Some(Misbehaviour::EffectThenAnswer(answer)), _) => {
            route();
            answer
        }
        (None, Some((false, headers))) => {
            let Misbehaviour::Answer(mut answer) = Misbehaviour::rate_limit(headers.1) else {
                return Err(CutOff);
            };
            headers.write(&mut answer);
            answer
        }
        (None, Some((true, headers))) => {
            let mut answer = route();
            headers.write(&mut answer);
            answer
        }
        (None, None) => route(),
    };
    if let Ok(date) = HeaderValue::from_str(&now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()) {
        answer.headers_mut().entry(DATE).or_insert(date);
    }
    Ok(answer)
}

fn route_request(shared: &Shared, world: &mut World, request: &Request<Bytes>) -> Answer {
    let base = world.known_as.as_deref().unwrap_or(&shared.base);
    let api_request = ApiRequest::read(request, base);
    match (world.kind, api_request.path.as_str()) {
        (Kind::Gitlab, "/jwt/auth") => registry_token::answer(world, &api_request, &shared.signer),
        (Kind::Gitlab, path) if path.starts_with("/oauth/") => oauth::answer(world, &api_request),
        (Kind::Gitlab, _) => gitlab::answer(world, &api_request),
        (Kind::Github, _) => github::answer(world, &api_request),
        (Kind::Gitea, _) => gitea::answer(world, &api_request),
    }
}

/// The state of a rate limit for headers: remaining requests, seconds until the reset, time of the reset, and allowed requests.
struct RemainingRequests(u64, u64, Timestamp, u64);

impl Limit {
    /// Takes one request from the limit. Returns whether one was left, and the values for the headers.
    fn take_request(&mut self, now: Timestamp) -> (bool, RemainingRequests) {
        let end = |since: Timestamp| since.saturating_add(self.per).unwrap_or(Timestamp::MAX);
        if end(self.since) <= now {
            (self.since, self.used) = (now, 0);
        }
        let reset = self.since.saturating_add(self.per).unwrap_or(Timestamp::MAX);
        let has_room = self.used < self.requests;
        self.used = self.used.saturating_add(1);
        let seconds = u64::try_from(reset.duration_since(now).as_secs()).unwrap_or(0).max(1);
        (
            has_room,
            RemainingRequests(self.requests.saturating_sub(self.used), seconds, reset, self.requests),
        )
    }
}

impl RemainingRequests {
    fn write(&self, answer: &mut Answer) {
        let reset = u64::try_from(self.2.as_second()).unwrap_or(0);
        for (name, value) in [
            ("ratelimit-limit", self.3),
            ("ratelimit-remaining", self.0),
            ("ratelimit-reset", reset),
        ] {
            answer.headers_mut().insert(HeaderName::from_static(name), value.into());
        }
    }
}
