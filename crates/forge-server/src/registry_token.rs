//! `/jwt/auth`: tokens with which clients pull from a container registry that trusts this host.
//!
//! The protocol is that of `docker/distribution` (`docs/spec/auth/token.md`). GitLab's side is in `doc/administration/packages/container_registry.md`. A registry
//! trusts tokens that are signed with a certificate in its configuration. The host makes such a certificate when it starts.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::StatusCode;
use http::header::{HeaderValue, WWW_AUTHENTICATE};
use jiff::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};
use subtle::ConstantTimeEq as _;

use crate::asked::{Answer, ApiRequest, answer_json, ok};
use crate::world::{Owner, World, hash_value, make_value};

/// Developers may push with a token of their own, and Reporters may pull.
const DEVELOPER: u8 = 30;
const REPORTER: u8 = 20;

/// The key that signs tokens for the registry.
pub(crate) struct Signer {
    key: EcdsaKeyPair,
    der: String,
    /// The certificate that the registry is configured to trust.
    pub(crate) pem: String,
}

impl Signer {
    pub(crate) fn new() -> io::Result<Self> {
        let pair = rcgen::KeyPair::generate().map_err(io::Error::other)?;
        let parameters = rcgen::CertificateParams::new(vec!["tokens.invalid".to_owned()]);
        let certificate = parameters.and_then(|parameters| parameters.self_signed(&pair));
        let certificate = certificate.map_err(io::Error::other)?;
        let key = EcdsaKeyPair::from_pkcs8(
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            &pair.serialize_der(),
            &SystemRandom::new(),
        );
        Ok(Self {
            key: key.map_err(|error| io::Error::other(error.to_string()))?,
            der: STANDARD.encode(certificate.der()),
            pem: certificate.pem(),
        })
    }

    fn sign(&self, claims: &Value) -> Option<String> {
        let header = json!({ "typ": "JWT", "alg": "ES256", "x5c": [self.der] });
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", encode(&header), encode(claims));
        let signature = self.key.sign(&SystemRandom::new(), message.as_bytes()).ok()?;
        Some(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

/// The owner of the user name and the password with which a client requests a token.
enum Identity {
    /// A token with `read_registry`, and the project or group that it opens.
    Token(Owner),
    Person(u64),
}

pub(crate) fn answer(world: &World, request: &ApiRequest, signer: &Signer) -> Answer {
    let Some(shown) = request
        .basic
        .as_ref()
        .and_then(|(name, password)| find_identity(world, name, password))
    else {
        let mut answer = refuse(StatusCode::UNAUTHORIZED, "HTTP Basic: Access denied");
        let challenge = HeaderValue::from_static("Basic realm=\"GitLab\"");
        answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        return answer;
    };
    let scopes = request.query.iter().filter(|(name, _)| name == "scope");
    let access: Vec<Value> = scopes
        .filter_map(|(_, scope)| grant_scope(world, &shown, scope))
        .collect();
    let asks = request.query.iter().any(|(name, _)| name == "scope");
    if asks && access.is_empty() {
        return refuse(StatusCode::FORBIDDEN, "access forbidden");
    }
    // The registry uses the real time, even if this host's clock differs.
    let now = Timestamp::now().as_second();
    let claims = json!({ "iss": "forge", "aud": request.query("service").unwrap_or_default(), "sub": "", "jti": make_value(""),
        "iat": now, "nbf": now - 5, "exp": now + 300, "access": access });
    match signer.sign(&claims) {
        Some(token) => ok(&json!({ "token": token })),
        None => refuse(StatusCode::INTERNAL_SERVER_ERROR, "no signature"),
    }
}

fn find_identity(world: &World, name: &str, password: &str) -> Option<Identity> {
    if let Some(authoriser) = world.find_authoriser(Some(password)) {
        return Some(Identity::Person(authoriser.person));
    }
    let (now, shown) = (world.clock.now(), hash_value(password));
    let mut all = world.tokens.iter();
    let token = all.find(|token| {
        let is_over = token.is_revoked || token.expires_at.is_some_and(|end| end <= now);
        !is_over && token.username == name && bool::from(token.sha256.ct_eq(&shown))
    })?;
    let reads = token.scopes.iter().any(|scope| scope == "read_registry");
    reads.then_some(Identity::Token(token.owner))
}

/// Returns the granted part of `repository:<path>:<actions>`.
fn grant_scope(world: &World, shown: &Identity, scope: &str) -> Option<Value> {
    let (name, actions) = scope.strip_prefix("repository:")?.rsplit_once(':')?;
    // A project can also have images below its path.
    let project = world.projects.iter().find(|(_, path)| {
        let rest = name.strip_prefix(path.to_lowercase().as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    let (id, path) = project?;
    let (may_pull, may_push) = match shown {
        Identity::Token(Owner::Project(project)) => (project == id, false),
        Identity::Token(Owner::Group(group)) => {
            let group = world.groups.get(group)?;
            let is_below = path
                .strip_prefix(group.as_str())
                .is_some_and(|rest| rest.starts_with('/'));
            (is_below, false)
        }
        Identity::Person(person) => {
            let level = world.level(*person, Owner::Project(*id));
            (level >= REPORTER, level >= DEVELOPER)
        }
    };
    let actions = actions.split(',').filter(|action| match *action {
        "pull" => may_pull,
        "push" => may_push,
        _ => false,
    });
    let actions: Vec<&str> = actions.collect();
    (!actions.is_empty()).then(|| json!({ "type": "repository", "name": name, "actions": actions }))
}

fn refuse(status: StatusCode, message: &str) -> Answer {
    let code = if status == StatusCode::FORBIDDEN {
        "DENIED"
    } else {
        "UNAUTHORIZED"
    };
    answer_json(status, &json!({ "errors": [{ "code": code, "message": message }] }))
}
