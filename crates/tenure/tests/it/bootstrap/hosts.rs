//! Hosts with an API add the deploy key themselves: GitLab, GitHub, and Gitea with Forgejo.

use tenure_forge_server::{Fault, ForgeServer, Kind, Misbehaviour, Owner};

use super::bed::{Bed, SURFACE, get};
use super::{Cluster, expect_nowhere};

async fn check_host(kind: Kind, command: &str, scope: &str) {
    let bed = Bed::start().await;
    let forge = ForgeServer::start(bed.path("forge"), kind).await.unwrap();
    let project = forge.add_project("group/platform").await.unwrap();
    let person = forge.add_person("administrator");
    forge.set_level(person, Owner::Project(project), 40);
    let token = forge.authorise(person, &[scope], None);
    forge.let_push(&token, "group/platform");
    let hosts = bed.write_private("forge_hosts", &forge.git().known_hosts().unwrap());
    let file = bed.write_private("token", &format!("{token}\n"));
    let allowed = format!("ssh://{}", forge.git().ssh_address().unwrap());
    let cluster = Cluster::start(&bed, &["--allow-platform-source", &allowed]);
    let words = [
        command,
        "--hostname",
        forge.url(),
        "--repository",
        "group/platform",
        "--token-file",
        &file,
        "--path",
        "clusters/a",
        "--known-hosts",
        &hosts,
        "--timeout",
        "180",
    ];
    let arguments: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    // The host adds the key, and its answer is lost. The next run finds the key, and adds no second one.
    forge.misbehave(Fault::once(http::Method::POST, "keys", Misbehaviour::EffectThenCut));
    bed.run(&cluster.kubeconfig, &arguments, |key| panic!("it asks for {key}"))
        .expect(3, &["the deploy key can't be added", "run the same command again"]);
    let ended = bed.run(&cluster.kubeconfig, &arguments, |key| panic!("it asks for {key}"));
    ended.expect(0, &["push 2 commits", "the platform reconciles itself"]);
    let keys = forge.live();
    assert!(
        matches!(keys.as_slice(), [key] if !key.may_write && key.name.starts_with("tenure platform ")),
        "{keys:?}"
    );
    let surface = get(&cluster.kubeconfig, SURFACE).await;
    assert_eq!(
        surface["spec"]["sources"][0]["url"].as_str(),
        forge.git().ssh_url("group/platform").as_deref()
    );
    // The next run makes no second key.
    let again = bed.run(&cluster.kubeconfig, &arguments, |key| panic!("it asks for {key}"));
    again.expect(0, &["nothing was to be done"]);
    assert_eq!(forge.live().len(), 1);

    let mut missing = arguments.clone();
    missing[4] = "group/other".to_owned();
    bed.run(&cluster.kubeconfig, &missing, |_| ())
        .expect(1, &["has no repository group/other"]);
    // The token goes to no other host than the named one.
    forge.set_clone_address("https://git.example");
    bed.run(&cluster.kubeconfig, &arguments, |_| ())
        .expect(1, &["which is not on 127.0.0.1", "Your token is not sent there"]);
    forge.revoke_authoriser(&token);
    bed.run(&cluster.kubeconfig, &arguments, |_| ()).expect(3, &["401"]);
    drop(cluster);
    std::fs::remove_file(bed.path("token")).unwrap();
    expect_nowhere(bed.folder.path(), &token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gitlab_gets_the_deploy_key() {
    check_host(Kind::Gitlab, "gitlab", "api").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn github_gets_the_deploy_key() {
    check_host(Kind::Github, "github", "repo").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gitea_gets_the_deploy_key() {
    check_host(Kind::Gitea, "gitea", "write:repository").await;
}
