//! GitHub's API, by its documents of repositories, deploy keys and Apps (`rest/repos`, `rest/deploy-keys`, `rest/apps`).
//!
//! The module keeps these rules. A key belongs to one repository only. The token of an installation lives for an hour and has only the requested rights. Former paths
//! redirect to the address by number.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Method, StatusCode};
use jiff::{SignedDuration, Timestamp};
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde_json::{Value, json};
use tenure_git_server::Repositories;

use crate::asked::{Answer, ApiRequest, answer_json, no_content, ok, refuse};
use crate::world::{Owner, Token, World, strip_comment};

/// The user name that git sends with the token of an installation.
const USERNAME: &str = "x-access-token";

pub(crate) fn answer(world: &mut World, request: &ApiRequest) -> Answer {
    let parts = request.parts();
    if let ["app", "installations", id, "access_tokens"] = parts[..] {
        return give_token(world, request, id);
    }
    if let ["orgs" | "users", owner, "installation"] = parts[..] {
        if !is_app(world, request) {
            return refuse(StatusCode::UNAUTHORIZED, "A JSON web token could not be decoded");
        }
        let mut all = world.installations.iter();
        return match all.find(|(_, known)| known == owner) {
            Some((id, _)) => ok(&json!({ "id": id })),
            None => refuse(StatusCode::NOT_FOUND, "Not Found"),
        };
    }
    if parts == ["app"] {
        return match is_app(world, request) {
            true => ok(&json!({ "id": world.app.as_ref().map(|(id, _)| *id), "slug": "tenure" })),
            false => refuse(StatusCode::UNAUTHORIZED, "A JSON web token could not be decoded"),
        };
    }
    let Some(authoriser) = world.find_authoriser(request.token.as_deref()) else {
        return refuse(StatusCode::UNAUTHORIZED, "Bad credentials");
    };
    let (person, scopes, end) = (authoriser.person, authoriser.scopes.clone(), authoriser.expires_at);
    let missing = || refuse(StatusCode::NOT_FOUND, "Not Found");
    let (owner, rest) = match &parts[..] {
        ["repos", owner, name, rest @ ..] => {
            let path = format!("{owner}/{name}");
            match world.find(true, &path) {
                Some(found) => (found, rest),
                None => return redirect_moved(world, request, &path, rest).unwrap_or_else(missing),
            }
        }
        ["repositories", id, rest @ ..] => (Owner::Project(id.parse().unwrap_or_default()), rest),
        ["orgs", name] => match world.find(false, name) {
            Some(found) => (found, &[][..]),
            None => return missing(),
        },
        ["organizations", id] => (Owner::Group(id.parse().unwrap_or_default()), &[][..]),
        ["user"] => {
            let mut answer = ok(&json!({ "id": person, "login": world.people.get(&person) }));
            let end = end.and_then(|end| end.strftime("%Y-%m-%d %H:%M:%S UTC").to_string().parse().ok());
            if let Some(end) = end {
                answer
                    .headers_mut()
                    .insert("github-authentication-token-expiration", end);
            }
            return answer;
        }
        _ => return missing(),
    };
    let may_administer = scopes.iter().any(|scope| scope == "administration") || world.level(person, owner) >= 40;
    if world.find_path(owner).is_none() || (scopes.is_empty() && world.level(person, owner) == 0) {
        return missing();
    }
    match (&request.method, rest, owner) {
        (&Method::GET, [], _) => describe_owner(world, owner),
        (_, ["keys", ..], _) if !may_administer => {
            refuse(StatusCode::FORBIDDEN, "Resource not accessible by integration")
        }
        (_, ["keys", rest @ ..], Owner::Project(project)) => answer_keys(world, request, project, rest),
        _ => missing(),
    }
}

/// Redirects a former path to the address by number.
fn redirect_moved(world: &World, request: &ApiRequest, path: &str, rest: &[&str]) -> Option<Answer> {
    let id = world.moved.get(path)?;
    let below: String = rest.iter().map(|part| format!("/{part}")).collect();
    let to = format!("{}/repositories/{id}{below}", request.base);
    let body = json!({ "message": "Moved Permanently", "url": to });
    let mut answer = answer_json(StatusCode::MOVED_PERMANENTLY, &body);
    answer.headers_mut().insert(http::header::LOCATION, to.parse().ok()?);
    Some(answer)
}

fn describe_owner(world: &World, owner: Owner) -> Answer {
    let path = world.find_path(owner).cloned().unwrap_or_default();
    match owner {
        Owner::Project(id) => {
            let [http, ssh] = world.clone_urls(&path);
            ok(&json!({ "id": id, "full_name": path, "private": true, "clone_url": http, "ssh_url": ssh }))
        }
        Owner::Group(id) => ok(&json!({ "id": id, "login": path })),
    }
}

fn answer_keys(world: &mut World, request: &ApiRequest, project: u64, rest: &[&str]) -> Answer {
    let shown = |world: &World| -> Vec<Value> {
        let all = world.keys.iter().filter(|key| key.project == project);
        all.map(|key| {
            json!({ "id": key.id, "key": key.key, "title": key.title, "verified": true, "read_only": !key.may_write,
                "created_at": key.created_at.to_string(),
                "last_used": world.last_used_at(key.let_in).map(|time| time.to_string()) })
        })
        .collect()
    };
    let one = |world: &World, id: u64| {
        let mut all = shown(world).into_iter();
        all.find(|key| key.get("id").and_then(Value::as_u64) == Some(id))
    };
    let missing = || refuse(StatusCode::NOT_FOUND, "Not Found");
    match (&request.method, rest) {
        (&Method::GET, []) => {
            // GitHub's links to pages name repositories by their numbers.
            let path = format!("/repositories/{project}/keys");
            request.page_at(&path, &shown(world), (world.page_size, "per_page"))
        }
        (&Method::POST, []) => {
            let key = request.field_text("key");
            let same = strip_comment(key);
            let invalid = |problem: &str| {
                let errors = json!([{ "resource": "PublicKey", "code": "custom", "field": "key", "message": problem }]);
                let body = json!({ "message": "Validation Failed", "errors": errors });
                answer_json(StatusCode::UNPROCESSABLE_ENTITY, &body)
            };
            if world.keys.iter().any(|known| known.key == same) {
                return invalid("key is already in use");
            }
            let may_write = request.body.get("read_only") != Some(&Value::Bool(true));
            match world.add_key(project, request.field_text("title"), key, may_write, None) {
                Some(id) => one(world, id).map_or_else(missing, |key| answer_json(StatusCode::CREATED, &key)),
                None => invalid("key is invalid. You must supply a key in OpenSSH public key format"),
            }
        }
        (&Method::DELETE, [id]) => {
            let is_ended = id.parse().is_ok_and(|id| world.end_key(project, id));
            if is_ended { no_content() } else { missing() }
        }
        _ => missing(),
    }
}

/// Checks whether the App has signed the token, and whether the token is valid now.
fn is_app(world: &World, request: &ApiRequest) -> bool {
    let check = || {
        let (id, key) = world.app.as_ref()?;
        let (message, signature) = request.token.as_deref()?.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key);
        key.verify(message.as_bytes(), &signature).ok()?;
        let claims = URL_SAFE_NO_PAD.decode(message.split_once('.')?.1).ok()?;
        let claims: Value = serde_json::from_slice(&claims).ok()?;
        let now = world.clock.now().as_second();
        let is_now = claims.get("exp")?.as_i64()? > now && claims.get("iat")?.as_i64()? <= now + 60;
        (is_now && claims.get("iss")?.as_str()? == id.to_string()).then_some(())
    };
    check().is_some()
}

/// Makes a token for some repositories of an installation, with the requested rights only.
fn give_token(world: &mut World, request: &ApiRequest, installation: &str) -> Answer {
    if !is_app(world, request) {
        return refuse(StatusCode::UNAUTHORIZED, "A JSON web token could not be decoded");
    }
    let number = installation.parse::<u64>().unwrap_or_default();
    let mut all = world.installations.iter();
    let Some((_, owner)) = all.find(|(id, _)| *id == number).cloned() else {
        return refuse(StatusCode::NOT_FOUND, "Not Found");
    };
    let is_there = |path: &str| {
        path.strip_prefix(owner.as_str())
            .is_some_and(|rest| rest.starts_with('/'))
    };
    let wanted = request.body.get("repository_ids").and_then(Value::as_array);
    let wanted: Option<Vec<u64>> = wanted.map(|ids| ids.iter().filter_map(Value::as_u64).collect());
    let mut repositories = Vec::new();
    for (id, path) in world.projects.iter().filter(|(_, path)| is_there(path)) {
        if wanted.as_ref().is_none_or(|wanted| wanted.contains(id)) {
            repositories.push((*id, path.clone()));
        }
    }
    if wanted.as_ref().is_some_and(|wanted| wanted.len() != repositories.len()) {
        let message =
            "There is at least one repository that does not exist or is not accessible to the parent installation.";
        return refuse(StatusCode::UNPROCESSABLE_ENTITY, message);
    }
    let permissions = request
        .body
        .get("permissions")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    let end = world
        .clock
        .now()
        .saturating_add(SignedDuration::from_hours(1))
        .unwrap_or(Timestamp::MAX);
    let names: Vec<&str> = permissions.keys().map(String::as_str).collect();
    let value = world.authorise(0, &names, "ghs_", Some(end));
    let id = world.next();
    let owner = match repositories.first() {
        Some((project, _)) if repositories.len() == 1 => Owner::Project(*project),
        _ => Owner::Group(number),
    };
    let reads = permissions.contains_key("contents");
    let token = Token {
        id,
        owner,
        name: format!("installation {number}"),
        username: USERNAME.to_owned(),
        sha256: [0; 32],
        scopes: if reads {
            vec!["read_repository".to_owned()]
        } else {
            Vec::new()
        },
        expires_at: Some(end),
        is_revoked: false,
        let_in: Vec::new(),
    };
    let reached = repositories.into_iter().map(|(_, path)| Repositories::One(path));
    world.add_token(token, &value, reached.collect());
    let body = json!({ "token": value, "expires_at": end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "permissions": permissions, "repository_selection": "selected" });
    answer_json(StatusCode::CREATED, &body)
}
