//! GitLab's API. The sources are its documents of deploy tokens, deploy keys, projects, groups, members, issues and personal access tokens (`doc/api/*.md`). Where the
//! documents are silent, the source is GitLab's code (`lib/api/*.rb`).
//!
//! The module keeps these rules. The API shows a value once. Names are not unique. `DELETE` destroys the row, and a revocation in the web pages keeps the row. A key
//! exists once, even if clients send it several times. 404 also means that the client may not see the object.

use http::{Method, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_git_server::Repositories;

use crate::asked::{Answer, ApiRequest, answer_json, no_content, ok, refuse};
use crate::world::{Issue, Owner, Token, World, make_value, strip_comment};

/// Access levels of GitLab.
const GUEST: u8 = 10;
const MAINTAINER: u8 = 40;
const OWNER: u8 = 50;

const SCOPES: [&str; 7] = [
    "read_repository",
    "read_registry",
    "write_registry",
    "read_package_registry",
    "write_package_registry",
    "read_virtual_registry",
    "write_virtual_registry",
];

pub(crate) fn answer(world: &mut World, request: &ApiRequest) -> Answer {
    let parts = request.parts();
    let Some(["api", "v4", parts @ ..]) = parts.get(..) else {
        return refuse(StatusCode::NOT_FOUND, "404 Not Found");
    };
    let Some(authoriser) = world.find_authoriser(request.token.as_deref()) else {
        return if request.token.is_some() {
            let description = "Token is expired. You can either do re-authorization or token refresh.";
            let body = json!({ "error": "invalid_token", "error_description": description });
            answer_json(StatusCode::UNAUTHORIZED, &body)
        } else {
            refuse(StatusCode::UNAUTHORIZED, "401 Unauthorized")
        };
    };
    let person = authoriser.person;
    let is_wide = authoriser.scopes.iter().any(|scope| scope == "api");
    if !is_wide && request.method != Method::GET {
        let body = json!({ "error": "insufficient_scope", "scope": "api",
            "error_description": "The request requires higher privileges than provided by the access token." });
        return answer_json(StatusCode::FORBIDDEN, &body);
    }
    match parts {
        ["personal_access_tokens", "self"] => {
            let end = authoriser.expires_at.map(|end| end.strftime("%Y-%m-%d").to_string());
            ok(
                &json!({ "id": 1, "name": "authoriser", "revoked": false, "active": true,
                "scopes": authoriser.scopes, "user_id": person, "expires_at": end }),
            )
        }
        ["user"] => {
            let name = world.people.get(&person).cloned().unwrap_or_default();
            ok(&json!({ "id": person, "username": name, "state": "active" }))
        }
        ["projects", project, rest @ ..] => {
            let owner = match find_owner(world, request, "projects", project) {
                Ok(owner) => owner,
                Err(answer) => return *answer,
            };
            answer_owner(world, request, person, owner, rest)
        }
        ["groups", group, rest @ ..] => {
            let owner = match find_owner(world, request, "groups", group) {
                Ok(owner) => owner,
                Err(answer) => return *answer,
            };
            answer_owner(world, request, person, owner, rest)
        }
        _ => refuse(StatusCode::NOT_FOUND, "404 Not Found"),
    }
}

/// Finds a project or group by its number or path. A former path redirects (since GitLab 16.7), with every method.
fn find_owner(world: &World, request: &ApiRequest, kind: &str, name: &str) -> Result<Owner, Box<Answer>> {
    let is_project = kind == "projects";
    let missing = || {
        let message = if is_project {
            "404 Project Not Found"
        } else {
            "404 Group Not Found"
        };
        Box::new(refuse(StatusCode::NOT_FOUND, message))
    };
    if let Ok(id) = name.parse::<u64>() {
        let owner = if is_project {
            Owner::Project(id)
        } else {
            Owner::Group(id)
        };
        return world.find_path(owner).map(|_| owner).ok_or_else(missing);
    }
    if let Some(owner) = world.find(is_project, name) {
        return Ok(owner);
    }
    let Some(id) = world.moved.get(name).filter(|_| is_project) else {
        return Err(missing());
    };
    let mut answer = refuse(
        StatusCode::MOVED_PERMANENTLY,
        "This resource has been moved permanently",
    );
    let rest = request.path.splitn(6, '/').nth(5).map(|rest| format!("/{rest}"));
    let location = format!("{}/api/v4/projects/{id}{}", request.base, rest.unwrap_or_default());
    if let Ok(location) = location.parse() {
        answer.headers_mut().insert(http::header::LOCATION, location);
    }
    Err(Box::new(answer))
}

fn answer_owner(world: &mut World, request: &ApiRequest, person: u64, owner: Owner, rest: &[&str]) -> Answer {
    let level = world.level(person, owner);
    let is_project = matches!(owner, Owner::Project(_));
    if level < GUEST {
        let message = if is_project {
            "404 Project Not Found"
        } else {
            "404 Group Not Found"
        };
        return refuse(StatusCode::NOT_FOUND, message);
    }
    let needed = match rest {
        ["deploy_tokens", ..] if !is_project && request.method != Method::GET => OWNER,
        ["deploy_tokens" | "deploy_keys", ..] => MAINTAINER,
        _ => GUEST,
    };
    if level < needed {
        return refuse(StatusCode::FORBIDDEN, "403 Forbidden");
    }
    match (&request.method, rest, owner) {
        (&Method::GET, [], _) => describe_owner(world, request, owner),
        (&Method::GET, ["projects"], Owner::Group(group)) => list_members(world, request, group),
        (&Method::GET, ["members", "all", user], _) => {
            let user = user.parse().unwrap_or_default();
            match world.level(user, owner) {
                0 => refuse(StatusCode::NOT_FOUND, "404 Not found"),
                level => ok(
                    &json!({ "id": user, "username": world.people.get(&user), "state": "active",
                    "access_level": level, "expires_at": null }),
                ),
            }
        }
        (_, ["deploy_tokens", rest @ ..], _) => answer_deploy_tokens(world, request, owner, rest),
        (_, ["deploy_keys", rest @ ..], Owner::Project(project)) => answer_deploy_keys(world, request, project, rest),
        (_, ["issues", rest @ ..], Owner::Project(project)) => answer_issues(world, request, project, rest),
        _ => refuse(StatusCode::NOT_FOUND, "404 Not Found"),
    }
}

fn describe_project(world: &World, id: u64, path: &str) -> Value {
    let name = path.rsplit('/').next().unwrap_or_default();
    let [http, ssh] = world.clone_urls(path);
    let registry = world
        .registry
        .as_ref()
        .map(|host| format!("{host}/{}", path.to_lowercase()));
    json!({ "id": id, "name": name, "path": name, "path_with_namespace": path, "visibility": "private",
        "default_branch": "main", "http_url_to_repo": http, "ssh_url_to_repo": ssh,
        "repository_access_level": "enabled", "container_registry_access_level": "enabled",
        "container_registry_image_prefix": registry })
}

/// Returns the first page of the projects of a group and its subgroups, sorted by number.
fn list_members(world: &World, request: &ApiRequest, group: u64) -> Answer {
    let above = world
        .groups
        .get(&group)
        .map(|path| format!("{path}/"))
        .unwrap_or_default();
    let with_subgroups = request.query("include_subgroups") == Some("true");
    let most = request.query("per_page").and_then(|most| most.parse().ok());
    let is_in = |path: &str| {
        let rest = path.strip_prefix(&above);
        rest.is_some_and(|rest| with_subgroups || !rest.contains('/'))
    };
    let members = world.projects.iter().filter(|(_, path)| is_in(path));
    let members = members.map(|(id, path)| describe_project(world, *id, path));
    let page: Vec<Value> = members.take(most.unwrap_or(20).min(world.page_size)).collect();
    ok(&Value::from(page))
}

fn describe_owner(world: &World, request: &ApiRequest, owner: Owner) -> Answer {
    let Some(path) = world.find_path(owner) else {
        return refuse(StatusCode::NOT_FOUND, "404 Not Found");
    };
    let name = path.rsplit('/').next().unwrap_or_default();
    match owner {
        Owner::Project(id) => ok(&describe_project(world, id, path)),
        Owner::Group(id) => {
            let mut group = json!({ "id": id, "name": name, "path": name, "full_path": path });
            // GitLab sends all projects of the group with the group, unless the client opts out.
            if request.query("with_projects") != Some("false")
                && let Some(fields) = group.as_object_mut()
            {
                let projects = world
                    .projects
                    .iter()
                    .filter(|(_, project)| project.starts_with(path.as_str()));
                let projects = projects.map(|(id, path)| json!({ "id": id, "path_with_namespace": path }));
                fields.insert("projects".to_owned(), projects.collect());
            }
            ok(&group)
        }
    }
}

fn show_token(world: &World, token: &Token) -> Value {
    let is_expired = token.expires_at.is_some_and(|end| end <= world.clock.now());
    json!({ "id": token.id, "name": token.name, "username": token.username, "expires_at": token.expires_at.map(write_time),
        "scopes": token.scopes, "revoked": token.is_revoked, "expired": is_expired })
}

/// Writes a time as Rails does, with milliseconds.
fn write_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string()
}

fn answer_deploy_tokens(world: &mut World, request: &ApiRequest, owner: Owner, rest: &[&str]) -> Answer {
    let find = |world: &World, id: &str| {
        let id = id.parse::<u64>().ok()?;
        let mut all = world.tokens.iter();
        all.find(|token| token.id == id && token.owner == owner)
            .map(|token| show_token(world, token))
    };
    let missing = || refuse(StatusCode::NOT_FOUND, "404 Not found");
    match (&request.method, rest) {
        (&Method::GET, []) => {
            let only_active = request.query("active") == Some("true");
            let all = world.tokens.iter().filter(|token| token.owner == owner);
            let mut all: Vec<Value> = all.map(|token| show_token(world, token)).collect();
            all.retain(|token| {
                let is = |name: &str| token.get(name) == Some(&Value::Bool(true));
                !only_active || !(is("revoked") || is("expired"))
            });
            request.page(&all, world.page_size, "per_page")
        }
        (&Method::GET, [id]) => find(world, id).map_or_else(missing, |token| ok(&token)),
        (&Method::POST, []) => make_token(world, request, owner),
        (&Method::DELETE, [id]) => {
            let is_ended = id.parse().is_ok_and(|id| world.end_token(owner, id, false));
            if is_ended { no_content() } else { missing() }
        }
        _ => refuse(StatusCode::METHOD_NOT_ALLOWED, "405 Method Not Allowed"),
    }
}

fn make_token(world: &mut World, request: &ApiRequest, owner: Owner) -> Answer {
    let name = request.field_text("name");
    let scopes = request.body.get("scopes").and_then(Value::as_array);
    let scopes: Vec<String> = scopes
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    if name.is_empty() {
        return answer_json(StatusCode::BAD_REQUEST, &json!({ "error": "name is missing" }));
    }
    if name.len() > 255 {
        let problem = json!({ "message": { "name": ["is too long (maximum is 255 characters)"] } });
        return answer_json(StatusCode::BAD_REQUEST, &problem);
    }
    if scopes.is_empty() || scopes.iter().any(|scope| !SCOPES.contains(&scope.as_str())) {
        return answer_json(
            StatusCode::BAD_REQUEST,
            &json!({ "error": "scopes does not have a valid value" }),
        );
    }
    let expires_at = match request.field_text("expires_at") {
        "" => None,
        text => match text.parse::<Timestamp>() {
            Ok(end) => Some(if world.ends_at_midnight { start_of_day(end) } else { end }),
            Err(_) => return answer_json(StatusCode::BAD_REQUEST, &json!({ "error": "expires_at is invalid" })),
        },
    };
    let id = world.next();
    let username = match request.field_text("username") {
        "" => format!("gitlab+deploy-token-{id}"),
        name => name.to_owned(),
    };
    let path = world.find_path(owner).cloned().unwrap_or_default();
    let repositories = match owner {
        Owner::Project(_) => Repositories::One(path),
        Owner::Group(_) => Repositories::Below(path),
    };
    let value = make_value("gldt-");
    let token = Token {
        id,
        owner,
        name: name.to_owned(),
        username,
        sha256: [0; 32],
        scopes,
        expires_at,
        is_revoked: false,
        let_in: Vec::new(),
    };
    let mut shown = show_token(world, &token);
    world.add_token(token, &value, vec![repositories]);
    if let Some(fields) = shown.as_object_mut() {
        fields.insert("token".to_owned(), value.into());
    }
    answer_json(StatusCode::CREATED, &shown)
}

/// Returns 00:00 UTC of the date.
fn start_of_day(time: Timestamp) -> Timestamp {
    let second = time.as_second();
    Timestamp::from_second(second - second.rem_euclid(86_400)).unwrap_or(time)
}

fn answer_deploy_keys(world: &mut World, request: &ApiRequest, project: u64, rest: &[&str]) -> Answer {
    let shown = |world: &World| -> Vec<Value> {
        let all = world.keys.iter().filter(|key| key.project == project);
        all.map(|key| {
            json!({ "id": key.id, "title": key.title, "key": key.key, "created_at": write_time(key.created_at),
                "expires_at": key.expires_at.map(write_time), "can_push": key.may_write,
                "last_used_at": world.last_used_at(key.let_in).map(write_time) })
        })
        .collect()
    };
    let one = |world: &World, id: u64| {
        let mut all = shown(world).into_iter();
        all.find(|key| key.get("id").and_then(Value::as_u64) == Some(id))
    };
    let missing = || refuse(StatusCode::NOT_FOUND, "404 Not found");
    match (&request.method, rest) {
        (&Method::GET, []) => request.page(&shown(world), world.page_size, "per_page"),
        (&Method::GET, [id]) => {
            let key = id.parse().ok().and_then(|id| one(world, id));
            key.map_or_else(missing, |key| ok(&key))
        }
        (&Method::POST, []) => {
            let (title, key) = (request.field_text("title"), request.field_text("key"));
            let same = strip_comment(key);
            let known = world
                .keys
                .iter()
                .find(|known| known.project == project && known.key == same);
            // GitLab answers for an existing key as if it had made the key now.
            if let Some(id) = known.map(|known| known.id) {
                return one(world, id).map_or_else(missing, |key| answer_json(StatusCode::CREATED, &key));
            }
            let may_write = request.body.get("can_push") == Some(&Value::Bool(true));
            let expires_at = request.field_text("expires_at").parse().ok();
            match world.add_key(project, title, key, may_write, expires_at) {
                Some(id) => one(world, id).map_or_else(missing, |key| answer_json(StatusCode::CREATED, &key)),
                None => {
                    let problem = json!({ "message": { "key": ["is invalid"] } });
                    answer_json(StatusCode::BAD_REQUEST, &problem)
                }
            }
        }
        (&Method::DELETE, [id]) => {
            let is_ended = id.parse().is_ok_and(|id| world.end_key(project, id));
            if is_ended { no_content() } else { missing() }
        }
        _ => refuse(StatusCode::METHOD_NOT_ALLOWED, "405 Method Not Allowed"),
    }
}

fn answer_issues(world: &mut World, request: &ApiRequest, project: u64, rest: &[&str]) -> Answer {
    let shown = |issue: &Issue, base: &str| {
        json!({ "id": 1_000_000 + issue.number, "iid": issue.number, "project_id": project, "title": issue.title,
            "description": issue.description, "state": if issue.is_open { "opened" } else { "closed" },
            "confidential": issue.is_confidential, "web_url": format!("{base}/-/issues/{}", issue.number) })
    };
    match (&request.method, rest) {
        (&Method::GET, []) => {
            let (wanted, state) = (request.query("search").unwrap_or_default(), request.query("state"));
            let all = world.issues.iter().filter(|issue| issue.project == project);
            let all = all.filter(|issue| issue.title.contains(wanted) && (state != Some("opened") || issue.is_open));
            let all: Vec<Value> = all.map(|issue| shown(issue, &request.base)).collect();
            request.page(&all, world.page_size, "per_page")
        }
        (&Method::POST, []) => {
            if request.field_text("title").is_empty() {
                return answer_json(StatusCode::BAD_REQUEST, &json!({ "error": "title is missing" }));
            }
            let issue = Issue {
                project,
                number: world.issues.iter().filter(|issue| issue.project == project).count() as u64 + 1,
                title: request.field_text("title").to_owned(),
                description: request.field_text("description").to_owned(),
                is_confidential: request.body.get("confidential") == Some(&Value::Bool(true)),
                is_open: true,
            };
            let answer = answer_json(StatusCode::CREATED, &shown(&issue, &request.base));
            world.issues.push(issue);
            answer
        }
        (&Method::PUT, [number]) => {
            let number = number.parse::<u64>().unwrap_or_default();
            let mut all = world.issues.iter_mut();
            let Some(issue) = all.find(|issue| issue.project == project && issue.number == number) else {
                return refuse(StatusCode::NOT_FOUND, "404 Not found");
            };
            match request.field_text("state_event") {
                "close" => issue.is_open = false,
                "reopen" => issue.is_open = true,
                _ => {}
            }
            ok(&shown(issue, &request.base))
        }
        _ => refuse(StatusCode::METHOD_NOT_ALLOWED, "405 Method Not Allowed"),
    }
}
