//! Features that only GitHub has: an App, and tokens of its installation.

use git_hosts::{AuthoriserCredential, Host as _, RemoteHost};
use jiff::{SignedDuration, Timestamp};
use tenure_remote_requests::git_host::{CredentialKind, HostError, HostKind, HostQuery, HostReply, MintRequest, Role};
use tenure_sources::{GitHubApp, SecretData, TlsOptions, probe_git};

use crate::bed::{Bed, PROJECT, allow_addresses, ask, connect, list, make_order, mint, revoke};

const KEY: &str = include_str!("../../../sources/tests/data/github-app.pem");

fn make_app(bed: &Bed, installation: u64) -> RemoteHost {
    let pairs = [
        ("githubAppID", "42".to_owned()),
        ("githubAppInstallationID", installation.to_string()),
        ("githubAppPrivateKey", KEY.to_owned()),
        ("githubAppBaseURL", bed.forge.url().to_owned()),
    ];
    let secret: SecretData = pairs.map(|(key, value)| (key.to_owned(), value.into_bytes())).into();
    let app = GitHubApp::read(Some(&secret)).unwrap();
    let authoriser = AuthoriserCredential::App(Box::new(app));
    RemoteHost::new(
        HostKind::Github,
        bed.forge.url(),
        authoriser,
        TlsOptions::default(),
        allow_addresses(&[bed.forge.url()]),
    )
    .unwrap()
}

fn token_order(bed: &Bed) -> MintRequest {
    let (request, _) = make_order(&bed.target(), CredentialKind::InstallationToken, "fa/1");
    request
}

#[tokio::test]
async fn installation_token_covers_one_repository_for_one_hour() {
    let bed = Bed::new(HostKind::Github).await;
    bed.forge.add_app(42, KEY).unwrap();
    let installation = bed.forge.add_installation("group-1");
    let other = bed.forge.add_project("group-1/other").await.unwrap();
    let host = make_app(&bed, installation);
    assert!(matches!(
        ask(&host, HostQuery::ReadOwnCredential).await.unwrap().reply,
        HostReply::OwnCredential(None)
    ));

    let answered = ask(&host, HostQuery::Mint(token_order(&bed))).await.unwrap();
    let HostReply::Minted(minted) = answered.reply else {
        panic!()
    };
    assert_eq!((minted.id, minted.username.as_deref()), (None, Some("x-access-token")));
    let end = minted.expires_at.unwrap();
    assert!(end > Timestamp::now() && end <= Timestamp::now() + SignedDuration::from_hours(1));
    let value = answered.value.unwrap();
    let secret: SecretData = [("username", "x-access-token"), ("password", value.reveal())]
        .map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()))
        .into();
    let probe = async |name: &str| {
        let url = bed.forge.git().http_url(name);
        probe_git(&url, &secret, &allow_addresses(&[&url])).await
    };
    use tenure_remote_requests::git_host::ProbeResult;
    assert_eq!(probe(PROJECT).await, ProbeResult::Accepted);
    assert!(matches!(probe("group-1/other").await, ProbeResult::Refused(_)));
    bed.forge.advance(SignedDuration::from_hours(1));
    assert!(matches!(probe(PROJECT).await, ProbeResult::Refused(_)));
    assert_ne!(other, bed.project);

    let can = host.capabilities(CredentialKind::InstallationToken).unwrap();
    assert!(!can.listed);
    let revoked = revoke(&host, &bed.target(), CredentialKind::InstallationToken, 1).await;
    assert!(matches!(revoked, Err(HostError::Refused { status: 0, .. })));
}

#[tokio::test]
async fn a_persons_token_says_when_it_ends() {
    let bed = Bed::new(HostKind::Github).await;
    let end: Timestamp = "2035-01-02T03:04:05Z".parse().unwrap();
    for end in [Some(end), None] {
        let host = connect(
            HostKind::Github,
            bed.forge.url(),
            &bed.forge.authorise(bed.owner, &["repo"], end),
        );
        let own = ask(&host, HostQuery::ReadOwnCredential).await.unwrap().reply;
        assert_eq!(own, HostReply::OwnCredential(end));
    }
}

#[tokio::test]
async fn app_manages_keys_with_one_own_token() {
    let bed = Bed::new(HostKind::Github).await;
    bed.forge.add_app(42, KEY).unwrap();
    let installation = bed.forge.add_installation("group-1");
    let host = make_app(&bed, installation);
    let (request, _) = make_order(&bed.target(), CredentialKind::DeployKey, "fa/1");
    let (id, _) = mint(&host, &request).await;
    assert_eq!(list(&host, &bed.target(), CredentialKind::DeployKey).await.len(), 1);
    revoke(&host, &bed.target(), CredentialKind::DeployKey, id)
        .await
        .unwrap();
    assert_eq!(bed.forge.count(&http::Method::POST, "/access_tokens"), 1);
}

#[tokio::test]
async fn an_unknown_app_is_reported_as_unauthenticated() {
    let bed = Bed::new(HostKind::Github).await;
    let unknown = make_app(&bed, 7);
    let (key, _) = make_order(&bed.target(), CredentialKind::DeployKey, "fa/1");
    for request in [token_order(&bed), key] {
        assert_eq!(
            ask(&unknown, HostQuery::Mint(request)).await.unwrap_err(),
            HostError::Unauthenticated
        );
    }
    bed.forge.add_app(42, KEY).unwrap();
    let trouble = ask(&unknown, HostQuery::Mint(token_order(&bed))).await.unwrap_err();
    assert!(matches!(trouble, HostError::Refused { status: 404, .. }), "{trouble}");
    let installation = bed.forge.add_installation("somebody-else");
    let trouble = ask(&make_app(&bed, installation), HostQuery::Mint(token_order(&bed)))
        .await
        .unwrap_err();
    assert!(matches!(trouble, HostError::Refused { status: 422, .. }), "{trouble}");
    let registry = MintRequest {
        role: Role::ReadRegistry,
        ..token_order(&bed)
    };
    let trouble = ask(&make_app(&bed, installation), HostQuery::Mint(registry))
        .await
        .unwrap_err();
    assert!(matches!(trouble, HostError::Refused { status: 0, .. }), "{trouble}");
    // A token of a person can't order a token of an App.
    assert!(matches!(
        ask(&bed.host, HostQuery::Mint(token_order(&bed))).await,
        Err(HostError::Refused { status: 0, .. })
    ));
}
