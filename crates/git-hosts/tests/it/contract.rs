//! The contract of every host: the same suite for each fake, and for a real host whose address is in the environment.
//!
//! `TENURE_GITLAB` or `TENURE_GITEA` is the address. `…_TOKEN` is a token that may manage credentials, and `…_PROJECT` is the path of a project for this test. The
//! suite revokes everything that it makes. It leaves objects with other names alone.

use git_hosts::{Host, RemoteHost, StaticHost, fingerprint_key, fingerprint_value};
use jiff::{SignedDuration, Timestamp};
use tenure_remote_requests::git_host::{
    CredentialKind, HostError, HostKind, HostQuery, HostReply, MintRequest, Scope, Target,
};
use tenure_sources::SecretBytes;

use crate::bed::{Bed, PROJECT, ask, connect, find, list, make_order, mint, revoke};

const KINDS: [CredentialKind; 2] = [CredentialKind::DeployToken, CredentialKind::DeployKey];

#[tokio::test]
async fn gitlab_as_documented_keeps_the_contract() {
    let bed = Bed::new(HostKind::Gitlab).await;
    keep_contract(&bed.host, PROJECT).await;
    assert_eq!(bed.forge.live(), []);
}

#[tokio::test]
async fn github_as_documented_keeps_the_contract() {
    let bed = Bed::new(HostKind::Github).await;
    keep_contract(&bed.host, PROJECT).await;
    assert_eq!(bed.forge.live(), []);
}

#[tokio::test]
async fn gitea_as_documented_keeps_the_contract() {
    let bed = Bed::new(HostKind::Gitea).await;
    keep_contract(&bed.host, PROJECT).await;
    assert_eq!(bed.forge.live(), []);
}

#[tokio::test]
async fn a_real_host_keeps_the_contract() {
    for (kind, name) in [(HostKind::Gitlab, "TENURE_GITLAB"), (HostKind::Gitea, "TENURE_GITEA")] {
        let read = |rest: &str| std::env::var(format!("{name}{rest}")).ok();
        let (Some(url), Some(token), Some(project)) = (read(""), read("_TOKEN"), read("_PROJECT")) else {
            println!("skipped: {name}, {name}_TOKEN and {name}_PROJECT name no host, token and project to test on");
            continue;
        };
        let host: RemoteHost = connect(kind, &url, &token);
        keep_contract(&host, &project).await;
    }
}

/// Checks all behaviour on which the rotation of credentials relies.
async fn keep_contract(host: &dyn Host, path: &str) {
    let own = ask(host, HostQuery::ReadOwnCredential).await.unwrap();
    assert!(matches!(own.reply, HostReply::OwnCredential(_)));
    let date = own.date.expect("a host says how late it is");
    assert!(date.duration_since(Timestamp::now()).abs() < SignedDuration::from_hours(24));

    let scope = Scope::Project;
    let by_path = |path: &str| HostQuery::FindByPath {
        scope,
        path: path.to_owned(),
    };
    let found = find(host, by_path(path)).await.expect("the project of the suite");
    assert!(found.http_url.is_some());
    let by_id = |id| HostQuery::FindById { scope, id };
    assert_eq!(find(host, by_id(found.target.id)).await.as_ref(), Some(&found));
    let (space, _) = path.split_once('/').unwrap();
    assert_eq!(
        find(host, by_path(&format!("{space}/there-is-none-of-this-name"))).await,
        None
    );

    let mut kinds = 0;
    for kind in KINDS {
        if host.capabilities(kind).is_some() {
            kinds += 1;
            credentials_come_and_go(host, &found.target, kind).await;
        }
    }
    assert!(kinds > 0, "there is something to be had");
}

async fn credentials_come_and_go(host: &dyn Host, target: &Target, kind: CredentialKind) {
    let can = host.capabilities(kind).unwrap();
    let prefix = format!("fa/contract/{}", Timestamp::now().as_microsecond());
    let (one, other) = (format!("{prefix}/1"), format!("{prefix}/2"));
    let (mut first, _) = make_order(target, kind, &one);
    if can.expiry {
        let end = Timestamp::now() + SignedDuration::from_hours(24 * 30);
        first.expires_at = Timestamp::from_second(end.as_second()).ok();
    }
    let answered = ask(host, HostQuery::Mint(first.clone())).await.unwrap();
    let HostReply::Minted(minted) = answered.reply else {
        panic!("{:?}", answered.reply);
    };
    let id = minted.id.expect("a number to revoke it by");
    let expected = match (&answered.value, &first.public_key) {
        (Some(value), None) => fingerprint_value(value),
        (None, Some(public)) => fingerprint_key(public),
        _ => panic!("a token has a value, and a key a public half"),
    };
    assert_eq!(minted.fingerprint, expected);
    assert_eq!(minted.username.is_some(), kind == CredentialKind::DeployToken);

    let names = async || {
        let mut listed = list(host, target, kind).await;
        listed.retain(|known| known.name.starts_with(&prefix) && !known.is_revoked);
        listed.into_iter().map(|known| known.name).collect::<Vec<_>>()
    };
    let listed = list(host, target, kind).await;
    let known = listed.iter().find(|known| known.id == id).expect("it is in the list");
    assert_eq!(
        (known.name.as_str(), known.may_write, known.is_revoked, known.is_expired),
        (one.as_str(), false, false, false)
    );
    assert_eq!(known.expires_at, minted.expires_at);
    if can.expiry {
        let end = known.expires_at.expect("an end");
        assert!(end <= first.expires_at.unwrap() && end > Timestamp::now());
    }
    if kind == CredentialKind::DeployKey {
        what_was_sent_twice_is_there_once(host, &first, id, can.idempotent_create).await;
    }
    assert!(can.overlap);
    let (second, _) = make_order(target, kind, &other);
    let (second_id, _) = mint(host, &second).await;
    assert_ne!(id, second_id);
    assert_eq!(names().await, [one, other.clone()]);
    for _ in 0..2 {
        assert!(matches!(
            revoke(host, target, kind, id).await.unwrap().reply,
            HostReply::Revoked
        ));
        assert_eq!(names().await, [other.as_str()]);
    }
    revoke(host, target, kind, second_id).await.unwrap();
    assert_eq!(names().await, Vec::<String>::new());
}

async fn what_was_sent_twice_is_there_once(host: &dyn Host, request: &MintRequest, id: u64, is_idempotent: bool) {
    let again = ask(host, HostQuery::Mint(request.clone())).await;
    match (again, is_idempotent) {
        (Ok(answered), true) => assert!(matches!(answered.reply, HostReply::Minted(minted) if minted.id == Some(id))),
        (Err(HostError::Refused { .. }), false) => {}
        (other, _) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn all_pages_of_a_list_are_read() {
    for (kind, credential, path) in [
        (HostKind::Gitlab, CredentialKind::DeployToken, "/deploy_tokens"),
        (HostKind::Gitlab, CredentialKind::DeployKey, "/deploy_keys"),
        (HostKind::Github, CredentialKind::DeployKey, "/keys"),
        (HostKind::Gitea, CredentialKind::DeployKey, "/keys"),
    ] {
        let bed = Bed::new(kind).await;
        bed.forge.set_page_size(3);
        let mut expected = Vec::new();
        for number in 0..6 {
            let name = format!("fa/{number}");
            let (request, _) = make_order(&bed.target(), credential, &name);
            mint(&bed.host, &request).await;
            expected.push(name);
            let listed = list(&bed.host, &bed.target(), credential).await;
            let names: Vec<String> = listed.into_iter().map(|known| known.name).collect();
            assert_eq!(names, expected, "{kind:?}");
        }
        // The three reads need one page each, then two pages each.
        assert_eq!(bed.forge.count(&http::Method::GET, path), 9, "{kind:?}");
    }
}

/// A list is read completely at a host that writes another address of its own into its links, as a host behind a proxy does.
#[tokio::test]
async fn page_links_with_another_address_still_list_everything() {
    for (kind, credential) in [
        (HostKind::Gitlab, CredentialKind::DeployToken),
        (HostKind::Gitlab, CredentialKind::DeployKey),
        (HostKind::Github, CredentialKind::DeployKey),
        (HostKind::Gitea, CredentialKind::DeployKey),
    ] {
        let bed = Bed::new(kind).await;
        bed.forge.set_known_as("https://git.outside.example");
        for number in 0..250 {
            let (request, _) = make_order(&bed.target(), credential, &format!("fa/{number}"));
            mint(&bed.host, &request).await;
        }
        let listed = list(&bed.host, &bed.target(), credential).await;
        let names: Vec<String> = listed.into_iter().map(|known| known.name).collect();
        let expected: Vec<String> = (0..250).map(|number| format!("fa/{number}")).collect();
        assert_eq!(names, expected, "{kind:?}");
    }
}

/// Without a host, no question is sent.
#[tokio::test]
async fn static_host_sends_no_question() {
    let host = StaticHost;
    assert!(KINDS.into_iter().all(|kind| host.capabilities(kind).is_none()));
    let trouble = ask(&host, HostQuery::ReadOwnCredential).await.unwrap_err();
    assert!(matches!(trouble, HostError::Refused { status: 0, .. }));
}

#[tokio::test]
async fn refused_credentials_are_reported_without_their_value() {
    for kind in [HostKind::Gitlab, HostKind::Github, HostKind::Gitea] {
        let bed = Bed::new(kind).await;
        let secret = "a-token-that-nobody-knows";
        let host = connect(kind, bed.forge.url(), secret);
        let (request, _) = make_order(&bed.target(), CredentialKind::DeployKey, "x");
        for what in [HostQuery::ReadOwnCredential, HostQuery::Mint(request)] {
            let trouble = ask(&host, what).await.unwrap_err();
            assert_eq!(trouble, HostError::Unauthenticated, "{kind:?}");
        }
        assert!(!format!("{:?}", SecretBytes::new(secret)).contains(secret));
        assert!(
            bed.forge
                .requests()
                .iter()
                .all(|request| !request.target.contains("token-that"))
        );
    }
}

/// A project whose path now belongs to another project is reported as moved. The other project gets no request, neither by number nor in APIs that take only paths.
#[tokio::test]
async fn reused_path_is_reported_as_moved() {
    for kind in [HostKind::Gitlab, HostKind::Github, HostKind::Gitea] {
        let bed = Bed::new(kind).await;
        let (request, _) = make_order(&bed.target(), CredentialKind::DeployKey, "fa/1");
        let (id, _) = mint(&bed.host, &request).await;
        bed.forge.move_project(bed.project, "group-1/renamed").unwrap();
        let by_path = HostQuery::FindByPath {
            scope: Scope::Project,
            path: PROJECT.to_owned(),
        };
        assert_eq!(
            ask(&bed.host, by_path.clone()).await.unwrap_err(),
            HostError::Moved,
            "{kind:?}"
        );
        let by_id = HostQuery::FindById {
            scope: Scope::Project,
            id: bed.project,
        };
        let moved = find(&bed.host, by_id).await.unwrap().target;
        assert_eq!((moved.id, moved.path.as_str()), (bed.project, "group-1/renamed"));
        let orders = async || {
            let (request, _) = make_order(&bed.target(), CredentialKind::DeployKey, "fa/2");
            let minted = ask(&bed.host, HostQuery::Mint(request)).await.map(|_| ());
            let revoked = revoke(&bed.host, &bed.target(), CredentialKind::DeployKey, id)
                .await
                .map(|_| ());
            (minted, revoked)
        };
        let live = |project| {
            bed.forge
                .live()
                .iter()
                .filter(|live| live.owner == tenure_forge_server::Owner::Project(project))
                .count()
        };
        if kind == HostKind::Gitlab {
            assert_eq!(orders().await, (Ok(()), Ok(())));
            assert_eq!(live(bed.project), 1);
        } else {
            assert_eq!(orders().await, (Err(HostError::Moved), Err(HostError::Moved)));
        }
        let another = bed.forge.add_project(PROJECT).await.unwrap();
        let found = find(&bed.host, by_path).await.unwrap();
        assert_eq!(found.target.id, another);
        let (minted, _) = orders().await;
        assert_eq!(minted.is_ok(), kind == HostKind::Gitlab);
        assert_eq!(live(another), 0, "{kind:?}: nothing for whoever took the path");
        assert!(revoke(&bed.host, &moved, CredentialKind::DeployKey, id).await.is_ok());
    }
}
