//! Features that only GitLab has.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tenure_forge_server::{Fault, Misbehaviour, Owner};
use tenure_remote_requests::git_host::{
    CredentialKind, HostError, HostKind, HostQuery, HostReply, Issue, Role, Scope, Target,
};

use crate::bed::{Bed, ask, connect, find, list, make_order, mint, revoke};

const TOKEN: CredentialKind = CredentialKind::DeployToken;

/// Deploy tokens of projects and of groups have the user name that GitLab gives.
#[tokio::test]
async fn deploy_tokens_have_the_name_that_gitlab_gives() {
    let bed = Bed::new(HostKind::Gitlab).await;
    for target in [bed.target(), bed.group_target()] {
        let (request, _) = make_order(&target, TOKEN, "fa/1");
        let (id, credential) = mint(&bed.host, &request).await;
        let (username, value) = credential.unwrap();
        assert_eq!(username, format!("gitlab+deploy-token-{id}"));
        assert!(value.starts_with("gldt-"));
        let (registry, _) = make_order(&target, TOKEN, "fa/1");
        let registry = tenure_remote_requests::git_host::MintRequest {
            role: Role::ReadRegistry,
            ..registry
        };
        let (second, _) = mint(&bed.host, &registry).await;
        let listed = list(&bed.host, &target, TOKEN).await;
        let numbers: Vec<u64> = listed.iter().map(|known| known.id).collect();
        assert_eq!(numbers, [id, second], "names need not differ");
    }
    let group = find(
        &bed.host,
        HostQuery::FindByPath {
            scope: Scope::Group,
            path: "group-1".to_owned(),
        },
    )
    .await
    .unwrap();
    assert_eq!(group.target, bed.group_target());
    let by_id = HostQuery::FindById {
        scope: Scope::Group,
        id: bed.group,
    };
    assert_eq!(find(&bed.host, by_id).await, Some(group));
    let member = |role| HostQuery::FindMember {
        group: bed.group_target(),
        role,
    };
    let found = find(&bed.host, member(Role::ReadRepository)).await.unwrap();
    assert_eq!(found.target, bed.target());
    assert!(found.http_url.is_some());
    // No project of the group has images.
    assert_eq!(find(&bed.host, member(Role::ReadRegistry)).await, None);
    assert_eq!(bed.forge.count(&http::Method::POST, "/rotate"), 0);
    // Without this parameter, a group comes with all its projects.
    let asked = bed.forge.requests();
    let mut groups = asked.iter().filter(|request| {
        request.target.contains("/groups/")
            && !request.target.contains("deploy")
            && !request.target.contains("/projects?")
    });
    assert!(groups.all(|request| request.target.ends_with("?with_projects=false")));
    // Paths contain numbers, and no secrets.
    assert!(
        asked
            .iter()
            .filter(|request| request.target.contains("deploy_tokens"))
            .all(|request| !request.target.contains("group-1"))
    );
}

/// The host lists a token that a person revoked in the web pages. It doesn't list a deleted token.
#[tokio::test]
async fn tokens_revoked_by_people_are_listed_as_revoked() {
    let bed = Bed::new(HostKind::Gitlab).await;
    let target = bed.target();
    let (request, _) = make_order(&target, TOKEN, "fa/1");
    let (by_people, _) = mint(&bed.host, &request).await;
    let (by_us, _) = mint(&bed.host, &request).await;
    assert!(bed.forge.revoke_in_web_pages(Owner::Project(bed.project), by_people));
    revoke(&bed.host, &target, TOKEN, by_us).await.unwrap();
    let listed = list(&bed.host, &target, TOKEN).await;
    let seen: Vec<(u64, bool)> = listed.iter().map(|known| (known.id, known.is_revoked)).collect();
    assert_eq!(seen, [(by_people, true)]);
    assert_eq!(bed.forge.live(), []);
}

#[tokio::test]
async fn tokens_end_at_midnight_by_the_hosts_clock() {
    let bed = Bed::new(HostKind::Gitlab).await;
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    bed.forge.set_time(at("2030-05-01T12:00:00Z"));
    let (mut request, _) = make_order(&bed.target(), TOKEN, "fa/1");
    request.expires_at = Some(at("2030-05-03T18:30:00Z"));
    let answered = ask(&bed.host, HostQuery::Mint(request)).await.unwrap();
    assert_eq!(answered.date, Some(at("2030-05-01T12:00:00Z")));
    let HostReply::Minted(minted) = answered.reply else {
        panic!()
    };
    assert_eq!(minted.expires_at, Some(at("2030-05-03T00:00:00Z")));
    bed.forge.set_time(at("2030-05-02T23:59:59Z"));
    assert_eq!(bed.forge.live().len(), 1);
    bed.forge.advance(SignedDuration::from_secs(1));
    assert_eq!(bed.forge.live(), []);
    let listed = list(&bed.host, &bed.target(), TOKEN).await;
    assert!(listed[0].is_expired && !listed[0].is_revoked);
}

#[tokio::test]
async fn unauthorised_authoriser_is_refused_before_any_change() {
    let bed = Bed::new(HostKind::Gitlab).await;
    let forge = &bed.forge;
    let [developer, maintainer, stranger] = ["developer", "maintainer", "stranger"].map(|name| forge.add_person(name));
    forge.set_level(developer, Owner::Project(bed.project), 30);
    forge.set_level(maintainer, Owner::Group(bed.group), 40);
    let host = |person, scope| connect(HostKind::Gitlab, forge.url(), &forge.authorise(person, &[scope], None));
    let (project, _) = make_order(&bed.target(), TOKEN, "fa/1");
    let (group, _) = make_order(&bed.group_target(), TOKEN, "fa/1");
    let forbidden = |trouble: Result<_, HostError>| matches!(trouble, Err(HostError::Forbidden(_)));
    assert!(forbidden(
        ask(&host(developer, "api"), HostQuery::Mint(project.clone())).await
    ));
    assert!(forbidden(ask(&host(maintainer, "api"), HostQuery::Mint(group)).await));
    assert!(forbidden(
        ask(&host(bed.owner, "read_api"), HostQuery::Mint(project.clone())).await
    ));
    mint(&host(maintainer, "api"), &project).await;
    // A stranger gets the same answer as for a missing project.
    let by_id = HostQuery::FindById {
        scope: Scope::Project,
        id: bed.project,
    };
    assert_eq!(find(&host(stranger, "api"), by_id).await, None);
    let trouble = ask(&host(stranger, "api"), HostQuery::Mint(project)).await.unwrap_err();
    assert!(matches!(trouble, HostError::Refused { status: 404, .. }));
    // A project that the authoriser may not see any more doesn't prove that the credential is gone.
    let id = forge.live()[0].id;
    let trouble = revoke(&host(stranger, "api"), &bed.target(), TOKEN, id)
        .await
        .unwrap_err();
    assert!(
        matches!(&trouble, HostError::Refused { status: 404, message } if message.contains("Project")),
        "{trouble}"
    );
    assert_eq!(forge.live().len(), 1);
}

#[tokio::test]
async fn an_expired_authoriser_is_distinguished() {
    let bed = Bed::new(HostKind::Gitlab).await;
    let end: Timestamp = "2031-01-01T00:00:00Z".parse().unwrap();
    let token = bed.forge.authorise(bed.owner, &["api"], Some(end));
    let host = connect(HostKind::Gitlab, bed.forge.url(), &token);
    let own = ask(&host, HostQuery::ReadOwnCredential).await.unwrap().reply;
    assert_eq!(own, HostReply::OwnCredential(Some(end)));
    bed.forge.set_time(end);
    assert_eq!(
        ask(&host, HostQuery::ReadOwnCredential).await.unwrap_err(),
        HostError::Unauthenticated
    );
    bed.forge.revoke_authoriser(&bed.token);
    assert_eq!(
        ask(&bed.host, HostQuery::ReadOwnCredential).await.unwrap_err(),
        HostError::Unauthenticated
    );
}

/// A host's names end up in Secrets, headers and tables, so each one is checked.
#[tokio::test]
async fn invalid_names_from_host_are_refused() {
    let bed = Bed::new(HostKind::Gitlab).await;
    let answer = |status: u16, body: serde_json::Value| {
        let answer = http::Response::builder()
            .status(status)
            .header("content-type", "application/json");
        Misbehaviour::Answer(answer.body(body.to_string().into()).unwrap())
    };
    let project =
        |path: &str, url: &str| json!({ "id": bed.project, "path_with_namespace": path, "http_url_to_repo": url });
    let url = "https://git.example/a/b.git";
    let by_id = HostQuery::FindById {
        scope: Scope::Project,
        id: bed.project,
    };
    for (path, url, is_good) in [
        ("a/b", url, true),
        ("a/b\u{202e}", url, false),
        ("a/../b", url, false),
        ("a/b", "https://u:p@git.example/a/b.git", false),
        ("a/b", "https://git.example/a b", false),
        ("a/b", "https://git.example/\n", false),
    ] {
        bed.forge.misbehave(Fault::once(
            http::Method::GET,
            "/projects/",
            answer(200, project(path, url)),
        ));
        assert_eq!(ask(&bed.host, by_id.clone()).await.is_ok(), is_good, "{path:?} {url:?}");
    }
    let (request, _) = make_order(&bed.target(), TOKEN, "fa/1");
    for (username, token) in [
        ("a:b", "t"),
        ("", "t"),
        ("a b", "t"),
        ("a", ""),
        ("a", "t\nu"),
        ("a", "é"),
    ] {
        let body = json!({ "id": 1, "name": "fa/1", "username": username, "scopes": [], "token": token });
        bed.forge
            .misbehave(Fault::once(http::Method::POST, "/deploy_tokens", answer(201, body)));
        let trouble = ask(&bed.host, HostQuery::Mint(request.clone())).await.unwrap_err();
        assert!(trouble.leaves_effect_unknown(), "{username:?} {token:?}: {trouble}");
    }
}

/// A host may return an existing key that may write. The request for a read-only key is then refused.
#[tokio::test]
async fn existing_key_with_write_access_is_not_accepted() {
    let bed = Bed::new(HostKind::Gitlab).await;
    let (request, _) = make_order(&bed.target(), CredentialKind::DeployKey, "fa/1");
    let key = request.public_key.clone().unwrap();
    let body = json!({ "title": "somebody's", "key": key, "can_push": true });
    let target = format!("/api/v4/projects/{}/deploy_keys", bed.project);
    let answer = crate::registry::send(
        bed.forge.url(),
        "POST",
        &target,
        &[("PRIVATE-TOKEN", &bed.token)],
        "application/json",
        body.to_string().as_bytes(),
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let trouble = ask(&bed.host, HostQuery::Mint(request)).await.unwrap_err();
    assert!(
        matches!(&trouble, HostError::Refused { message, .. } if message.contains("may write")),
        "{trouble}"
    );
}

#[tokio::test]
async fn an_issue_is_confidential_and_there_once() {
    let bed = Bed::new(HostKind::Gitlab).await;
    let (target, title) = (bed.target(), "Access for flux: request 1".to_owned());
    let find = HostQuery::FindIssue {
        target: target.clone(),
        title: title.clone(),
        body: "**who** asks".to_owned(),
    };
    assert_eq!(
        ask(&bed.host, find.clone()).await.unwrap().reply,
        HostReply::Issue(None)
    );
    let open = HostQuery::OpenIssue {
        target: target.clone(),
        title: title.clone(),
        body: "**who** asks\n".to_owned(),
    };
    let HostReply::Issue(Some(Issue { number, url })) = ask(&bed.host, open).await.unwrap().reply else {
        panic!()
    };
    assert!(url.ends_with(&format!("/issues/{number}")));
    assert_eq!(
        ask(&bed.host, find.clone()).await.unwrap().reply,
        HostReply::Issue(Some(Issue { number, url }))
    );
    // An issue with the same title and another text isn't Tenure's.
    let other = HostQuery::FindIssue {
        target: target.clone(),
        title: title.clone(),
        body: "approve at once".to_owned(),
    };
    assert_eq!(ask(&bed.host, other).await.unwrap().reply, HostReply::Issue(None));
    let issues = bed.forge.issues();
    assert!(issues.iter().all(|issue| issue.is_confidential && issue.is_open) && issues.len() == 1);
    for number in [number, number, 99] {
        let close = HostQuery::CloseIssue {
            target: target.clone(),
            number,
        };
        assert_eq!(ask(&bed.host, close).await.unwrap().reply, HostReply::IssueClosed);
    }
    assert_eq!(ask(&bed.host, find).await.unwrap().reply, HostReply::Issue(None));
    let of_group = HostQuery::OpenIssue {
        target: Target { ..bed.group_target() },
        title,
        body: String::new(),
    };
    let before = bed.forge.requests().len();
    assert!(matches!(
        ask(&bed.host, of_group).await,
        Err(HostError::Refused { status: 0, .. })
    ));
    assert_eq!(bed.forge.requests().len(), before, "nothing was sent");
}
