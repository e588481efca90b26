//! The API of Gitea and Forgejo: repositories, their deploy keys, organizations (`/api/swagger`).
//!
//! The module follows `routers/api/v1/repo/key.go`. A repository has a key and a title only once, and answers 422 the second time. The deletion of a missing key
//! succeeds. A list has `X-Total-Count`, and no link to its next page.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::asked::{Answer, ApiRequest, answer_json, no_content, ok, refuse};
use crate::world::{Owner, World, strip_comment};

/// The permission of a repository's administrator.
const ADMIN: u8 = 40;

pub(crate) fn answer(world: &mut World, request: &ApiRequest) -> Answer {
    let parts = request.parts();
    let missing = || refuse(StatusCode::NOT_FOUND, "The target couldn't be found.");
    let Some(["api", "v1", parts @ ..]) = parts.get(..) else {
        return missing();
    };
    let Some(authoriser) = world.find_authoriser(request.token.as_deref()) else {
        return refuse(StatusCode::UNAUTHORIZED, "invalid username, password or token");
    };
    let person = authoriser.person;
    let (owner, rest) = match parts {
        ["user"] => return ok(&json!({ "id": person, "login": world.people.get(&person) })),
        ["repos", owner, name, rest @ ..] => {
            let path = format!("{owner}/{name}");
            match world.find(true, &path) {
                Some(found) => (found, rest),
                None => return redirect_moved(world, request, &path).unwrap_or_else(missing),
            }
        }
        ["repositories", id] => (Owner::Project(id.parse().unwrap_or_default()), &[][..]),
        ["orgs", name] => match world.find(false, name) {
            Some(found) => (found, &[][..]),
            None => return missing(),
        },
        _ => return missing(),
    };
    let level = world.level(person, owner);
    let Some(path) = world.find_path(owner).filter(|_| level > 0).cloned() else {
        return missing();
    };
    match (&request.method, rest, owner) {
        (&Method::GET, [], Owner::Group(id)) => ok(&json!({ "id": id, "name": path, "username": path })),
        (&Method::GET, [], Owner::Project(id)) => {
            let [http, ssh] = world.clone_urls(&path);
            ok(&json!({ "id": id, "full_name": path, "private": true, "clone_url": http, "ssh_url": ssh }))
        }
        (_, ["keys", ..], _) if level < ADMIN => refuse(
            StatusCode::FORBIDDEN,
            "user should be an owner or a collaborator with admin write of a repository",
        ),
        (_, ["keys", rest @ ..], Owner::Project(project)) => answer_keys(world, request, project, rest),
        _ => missing(),
    }
}

/// Redirects a former path to the project's new path.
fn redirect_moved(world: &World, request: &ApiRequest, path: &str) -> Option<Answer> {
    let new = world.projects.get(world.moved.get(path)?)?;
    let to = request.path.replacen(path, new, 1);
    let mut answer = refuse(StatusCode::TEMPORARY_REDIRECT, "moved");
    let to = format!("{}{to}", request.base).parse().ok()?;
    answer.headers_mut().insert(http::header::LOCATION, to);
    Some(answer)
}

fn answer_keys(world: &mut World, request: &ApiRequest, project: u64, rest: &[&str]) -> Answer {
    let shown = |world: &World| -> Vec<Value> {
        let all = world.keys.iter().filter(|key| key.project == project);
        all.map(|key| {
            json!({ "id": key.id, "key_id": key.id, "key": key.key, "title": key.title, "read_only": !key.may_write,
                "created_at": key.created_at.to_string() })
        })
        .collect()
    };
    let one = |world: &World, id: u64| {
        let mut all = shown(world).into_iter();
        all.find(|key| key.get("id").and_then(Value::as_u64) == Some(id))
    };
    let missing = || refuse(StatusCode::NOT_FOUND, "The target couldn't be found.");
    match (&request.method, rest) {
        (&Method::GET, []) => {
            let all = shown(world);
            let mut answer = request.page(&all, world.page_size, "limit");
            answer.headers_mut().remove(http::header::LINK);
            answer.headers_mut().insert("x-total-count", all.len().into());
            answer
        }
        (&Method::POST, []) => {
            let (title, key) = (request.field_text("title"), request.field_text("key"));
            let same = strip_comment(key);
            let invalid = |message: &str| refuse(StatusCode::UNPROCESSABLE_ENTITY, message);
            if world
                .keys
                .iter()
                .any(|known| known.project == project && known.key == same)
            {
                return invalid("This key has already been added to this repository");
            }
            if world
                .keys
                .iter()
                .any(|known| known.project == project && known.title == title)
            {
                return invalid("A key with the same name already exists");
            }
            let may_write = request.body.get("read_only") != Some(&Value::Bool(true));
            match world.add_key(project, title, key, may_write, None) {
                Some(id) => one(world, id).map_or_else(missing, |key| answer_json(StatusCode::CREATED, &key)),
                None => invalid("Invalid key content"),
            }
        }
        (&Method::DELETE, [id]) => {
            world.end_key(project, id.parse().unwrap_or_default());
            no_content()
        }
        _ => missing(),
    }
}
