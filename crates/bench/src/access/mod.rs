//! Access to a Git host: credentials of many projects in many namespaces are created, checked again, and replaced. The host is `forge-server` in this process, which
//! counts its requests and has no rate limit. One owner approves everything, with grants as a person writes them. A credential counts only after it was seen in use.

mod objects;
mod place;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use http::Method;
use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_forge_server::{ForgeServer, Kind, Owner};
use tenure_git_server::{GitServer, Options, Repository};

use tenure_git_access::configuration::{File, Reading, read_file};

use self::objects::{
    GRANTS, PLATFORM, PROJECTS, REQUESTS, SOURCES, age_request, configure, configure_most, describe_grant,
    describe_host, describe_namespace, describe_order, describe_source, name_of, project_path,
};
use self::place::Place;
use crate::report::{Report, format_megabytes, format_time};

/// Clients that send at the same time.
const CLIENTS: usize = 8;
/// The longest time of any step.
const PATIENCE: Duration = Duration::from_secs(1_800);
/// How long the pass without change is observed.
const REST: Duration = Duration::from_secs(60);
/// How often a condition is polled where the poll is no part of the measurement.
const LOOK: Duration = Duration::from_millis(500);

/// How often the configuration is read.
const READINGS: usize = 21;
/// The most projects of a configuration, and the most groups.
const MOST_PROJECTS: usize = 500;

/// The size of a measurement.
pub(crate) struct Extent {
    /// Projects, each with one entry.
    pub(crate) projects: usize,
    /// Namespaces. Each project has a credential in each of them.
    pub(crate) namespaces: usize,
    /// Whether the controllers run and are measured in a process of their own.
    pub(crate) is_apart: bool,
}

/// The running parts of the measurement: the control plane with the controllers, the Git host, and the agent's repository.
struct AccessBench {
    place: Place,
    forge: ForgeServer,
    agents: Repository,
    ids: Vec<u64>,
    _git: GitServer,
    _folder: tempfile::TempDir,
}

/// Measures this many projects in this many namespaces.
pub(crate) async fn measure(program: &Path, extent: &Extent, report: &mut Report) -> anyhow::Result<()> {
    anyhow::ensure!(
        extent.projects < MOST_PROJECTS,
        "a configuration has at most {MOST_PROJECTS} projects, and in the end one more is asked for: --projects {} is the most",
        MOST_PROJECTS - 1
    );
    measure_reading(report)?;
    let mut bed = AccessBench::set(program, extent).await?;
    let all = extent.projects.saturating_mul(extent.namespaces);
    let many = format!("{} projects in {} namespaces", extent.projects, extent.namespaces);
    let before = bed.place.memory()?;
    let whose = bed.place.name();

    // The first figure: all credentials are created.
    let asked = bed.count();
    let cpu = bed.place.cpu()?;
    let started = Instant::now();
    let entries = configure(extent.projects, extent.namespaces);
    bed.agents
        .commit([(objects::CONFIGURATION, entries)], "all ask")
        .await?;
    bed.ask_for_agents().await?;
    let requests = bed.wait_for_requests(extent.projects, |_| true).await?;
    let known = started.elapsed();
    for_all(&requests, async |request| bed.approve(request).await).await?;
    let is_delivered = |request: &Value| is_in_use(request, extent.namespaces, 0);
    bed.wait_for_requests(extent.projects, is_delivered).await?;
    let spent = bed.place.cpu()?.saturating_sub(cpu);
    report.add(
        format!("{many}: from the commit until all are asked for"),
        format_time(known),
        None,
        "",
    );
    report.add(
        format!("{many}: until {all} credentials are made, delivered and seen in use"),
        format_time(started.elapsed()),
        None,
        "",
    );
    report.add(format!("{many}: CPU of {whose} for that"), format_time(spent), None, "");
    bed.report_requests(&many, all, &asked, report);
    let after = bed.place.memory()?;
    report.add(
        format!("{many}: memory of {whose} more than before; of that its own, without pages of files"),
        format!(
            "{}; {}",
            format_megabytes(after.0.saturating_sub(before.0)),
            format_megabytes(after.1.saturating_sub(before.1))
        ),
        None,
        "40 MB",
    );

    // A pass without change: controllers that start check everything, and list the host's objects.
    let asked = bed.count();
    let written = if extent.is_apart { bed.count_writes().await? } else { 0 };
    bed.place.restart().await?;
    bed.wait_for_requests(extent.projects, is_delivered).await?;
    tokio::time::sleep(REST).await;
    let now = bed.count();
    report.add(
        format!(
            "{many}, begun anew, {} s: questions to the host; orders; writes to the cluster",
            REST.as_secs()
        ),
        format!(
            "{}; {}; {}",
            now.questions.saturating_sub(asked.questions),
            now.orders.saturating_sub(asked.orders),
            // A restarted control plane counts from zero.
            bed.count_writes().await?.saturating_sub(written)
        ),
        None,
        "list pages; 0; 0",
    );
    report.add(
        format!("{many}, begun anew: CPU of {whose}, its start included"),
        format_time(bed.place.cpu()?),
        None,
        "1 s, without a start",
    );

    // All credentials are replaced.
    let requests = bed.list().await?;
    let (asked, cpu, started) = (bed.count(), bed.place.cpu()?, Instant::now());
    for_all(&requests, async |request| bed.replace(request).await).await?;
    let is_replaced = |request: &Value| is_in_use(request, extent.namespaces, 1);
    bed.wait_for_requests(extent.projects, is_replaced).await?;
    let spent = bed.place.cpu()?.saturating_sub(cpu);
    report.add(
        format!("{many}: until all are replaced, seen in use"),
        format_time(started.elapsed()),
        None,
        "",
    );
    report.add(format!("{many}: CPU of {whose} for that"), format_time(spent), None, "");
    bed.report_requests(&format!("{many}, replaced"), all, &asked, report);

    bed.measure_first_clone(extent, report).await
}

/// Measures how long reading a configuration with the most entries takes.
fn measure_reading(report: &mut Report) -> anyhow::Result<()> {
    let text = configure_most();
    let file = File {
        path: objects::CONFIGURATION,
        is_own: false,
    };
    let mut turns = Vec::new();
    for _ in 0..READINGS {
        let started = Instant::now();
        let reading = read_file(file, text.as_bytes(), "shops");
        turns.push(started.elapsed());
        let Reading::Read(configuration) = reading else {
            anyhow::bail!("the configuration with the most entries can't be read");
        };
        anyhow::ensure!(configuration.problems.is_empty() && configuration.entries.len() == 2 * MOST_PROJECTS);
    }
    turns.sort();
    let median = turns.get(READINGS / 2).copied().unwrap_or_default();
    report.add(
        format!(
            "a configuration of {} entries read, median of {READINGS}",
            2 * MOST_PROJECTS
        ),
        format_time(median),
        None,
        "50 ms",
    );
    Ok(())
}

/// The number of requests to the host so far, by kind.
struct HostRequestCounts {
    /// Requests that change nothing.
    questions: usize,
    /// Requests that create a credential.
    orders: usize,
    /// Requests that show an access request at its project.
    issues: usize,
    /// Requests that revoke a credential.
    revocations: usize,
}

impl AccessBench {
    async fn set(program: &Path, extent: &Extent) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let forge = ForgeServer::start(folder.path().join("host"), Kind::Gitlab).await?;
        let group = forge.add_group("shops");
        let mut ids = Vec::new();
        // One more project, for the first clone.
        for index in 0..=extent.projects {
            let path = project_path(index);
            ids.push(forge.add_project(&path).await?);
        }
        let last = forge.git().repository(&project_path(extent.projects))?;
        last.commit([("a.yaml", "a: b\n")], "the beginning").await?;
        let owner = forge.add_person("owner");
        forge.set_level(owner, Owner::Group(group), 50);
        let authoriser = forge.authorise(owner, &["api"], None);
        let git = GitServer::start(folder.path().join("git"), Options::default()).await?;
        let agents = git.create("agents").await?;
        agents
            .commit([("README.md", "nothing is asked for\n")], "the beginning")
            .await?;
        let git_of_host = format!("http://{}", forge.git().http_address());
        let own_git = format!("http://{}", git.http_address());
        let mut arguments = vec!["--lanes".to_owned(), "task".to_owned()];
        for address in [forge.url(), git_of_host.as_str(), own_git.as_str()] {
            arguments.extend(["--allow-source".to_owned(), address.to_owned()]);
        }
        let place = Place::start(program, arguments, extent.is_apart).await?;
        let bed = Self {
            place,
            forge,
            agents,
            ids,
            _git: git,
            _folder: folder,
        };
        for namespace in 0..extent.namespaces {
            for (path, object) in describe_namespace(namespace) {
                bed.send(Method::POST, &path, &object).await?;
            }
        }
        if extent.is_apart {
            bed.make_accounts(extent.namespaces).await?;
        }
        let url = format!("{own_git}/agents.git");
        for (path, object) in describe_host(bed.forge.url(), &authoriser, &url, extent.namespaces) {
            bed.send(Method::POST, &path, &object).await?;
        }
        bed.until_works().await?;
        Ok(bed)
    }

    /// Creates the ServiceAccount of each namespace, which a controller of Kubernetes usually creates.
    async fn make_accounts(&self, namespaces: usize) -> anyhow::Result<()> {
        let all = (0..namespaces).map(|namespace| format!("n-{namespace}"));
        for namespace in all.chain([PLATFORM.to_owned()]) {
            let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default", "namespace": namespace } });
            let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
            self.send(Method::POST, &path, &account).await?;
        }
        Ok(())
    }

    async fn send(&self, method: Method, path: &str, object: &Value) -> anyhow::Result<Value> {
        send_as(&self.place.plane.client, method, path, object, None).await
    }

    /// Waits until the host gets requests and answers.
    async fn until_works(&self) -> anyhow::Result<()> {
        let path = format!("{PROJECTS}/accessproviders/work");
        let started = Instant::now();
        loop {
            let provider = self.send(Method::GET, &path, &Value::Null).await?;
            if is_true(&provider, "AuthoriserWorks") {
                return Ok(());
            }
            anyhow::ensure!(
                started.elapsed() < PATIENCE,
                "the AccessProvider says {}",
                describe_conditions(&provider)
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Triggers the reconciliation of the agent's source.
    async fn ask_for_agents(&self) -> anyhow::Result<()> {
        let patch = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": "now" } } });
        self.send(Method::PATCH, &format!("{SOURCES}/agents"), &patch)
            .await
            .map(drop)
    }

    async fn list(&self) -> anyhow::Result<Vec<Value>> {
        let list = self.send(Method::GET, REQUESTS, &Value::Null).await?;
        Ok(ObjectView::new(&list).list("/items").to_vec())
    }

    /// Waits until this many requests exist and all satisfy a condition.
    async fn wait_for_requests(&self, count: usize, holds: impl Fn(&Value) -> bool) -> anyhow::Result<Vec<Value>> {
        let started = Instant::now();
        loop {
            let requests = self.list().await?;
            let others: Vec<&Value> = requests.iter().filter(|request| !holds(request)).collect();
            if requests.len() == count && others.is_empty() {
                return Ok(requests);
            }
            let first = others.first().map(|request| describe_conditions(request));
            anyhow::ensure!(
                started.elapsed() < PATIENCE,
                "{} requests, {} of {count} are waited for; the first says {first:?}",
                requests.len(),
                others.len()
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Approves a request, as a person with the right to do so.
    async fn approve(&self, request: &Value) -> anyhow::Result<()> {
        let grant = describe_grant(request);
        send_as(
            &self.place.plane.client,
            Method::POST,
            GRANTS,
            &grant,
            Some(objects::OWNER),
        )
        .await
        .map(drop)
    }

    /// Orders new credentials. Before, the record of the old ones is backdated, because two replacements are ten minutes apart.
    async fn replace(&self, request: &Value) -> anyhow::Result<()> {
        let path = format!("{REQUESTS}/{}", name_of(request));
        let older = age_request(request)?;
        self.send(Method::PATCH, &format!("{path}/status"), &older).await?;
        let order = describe_order();
        send_as(
            &self.place.plane.client,
            Method::PATCH,
            &path,
            &order,
            Some(objects::OWNER),
        )
        .await
        .map(drop)
    }

    fn count(&self) -> HostRequestCounts {
        HostRequestCounts {
            questions: self.forge.count(&Method::GET, ""),
            orders: self.forge.count(&Method::POST, "deploy_tokens"),
            issues: self.forge.count(&Method::POST, "issues"),
            revocations: self.forge.count(&Method::DELETE, "deploy_tokens"),
        }
    }

    fn report_requests(&self, what: &str, all: usize, before: &HostRequestCounts, report: &mut Report) {
        let now = self.count();
        let each = |count: usize| count as f64 / all.max(1) as f64;
        report.add(
            format!("{what}: orders, issues, questions and revocations at the host, for each credential"),
            format!(
                "{:.2}, {:.2}, {:.2}, {:.2}",
                each(now.orders.saturating_sub(before.orders)),
                each(now.issues.saturating_sub(before.issues)),
                each(now.questions.saturating_sub(before.questions)),
                each(now.revocations.saturating_sub(before.revocations))
            ),
            None,
            "1 order, with its issue",
        );
    }

    /// Counts the writes of access objects to the cluster so far.
    async fn count_writes(&self) -> anyhow::Result<u64> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text = self.place.plane.client.request_text(request).await?;
        let is_write = |line: &&str| {
            let verbs = ["POST", "PUT", "PATCH", "APPLY", "DELETE"];
            // Roles and RoleBindings don't count: an installation has some, too, and the start applies them.
            let resources = ["fluxaccess", "accessproviders", "secrets"];
            line.starts_with("apiserver_request_total{")
                && verbs.iter().any(|verb| line.contains(&format!("verb=\"{verb}\"")))
                && resources
                    .iter()
                    .any(|resource| line.contains(&format!("resource=\"{resource}")))
        };
        let counts = text
            .lines()
            .filter(is_write)
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(counts.sum::<f64>() as u64)
    }

    /// Requests access to one more project, and measures the time from its grant until a source has cloned it.
    async fn measure_first_clone(&self, extent: &Extent, report: &mut Report) -> anyhow::Result<()> {
        let index = extent.projects;
        let url = self.forge.git().http_url(&project_path(index));
        self.send(Method::POST, SOURCES_OF_FIRST, &describe_source(index, &url))
            .await?;
        let entries = configure(extent.projects.saturating_add(1), extent.namespaces);
        self.agents
            .commit([(objects::CONFIGURATION, entries)], "one more")
            .await?;
        let patch = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": "again" } } });
        self.send(Method::PATCH, &format!("{SOURCES}/agents"), &patch).await?;
        let target = self.ids.get(index).context("there is no such project")?;
        let target = format!("work-{target}");
        let requests = self.wait_for_requests(index.saturating_add(1), |_| true).await?;
        let asks = |request: &&Value| objects::target_of(request) == target;
        let request = requests
            .iter()
            .find(asks)
            .context("nothing asks for the last project")?;
        let started = Instant::now();
        self.approve(request).await?;
        let path = format!("{SOURCES_OF_FIRST}/app");
        loop {
            let source = self.send(Method::GET, &path, &Value::Null).await?;
            if is_true(&source, "Ready") {
                break;
            }
            anyhow::ensure!(
                started.elapsed() < PATIENCE,
                "the source says {}",
                describe_conditions(&source)
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        report.add(
            "one more beside them: from its grant until a source has cloned",
            format_time(started.elapsed()),
            None,
            "1 s",
        );
        Ok(())
    }
}

/// The path of sources of the first namespace.
const SOURCES_OF_FIRST: &str = "/apis/source.toolkit.fluxcd.io/v1/namespaces/n-0/gitrepositories";

fn is_true(object: &Value, type_: &str) -> bool {
    let condition = ObjectView::new(object).find_condition(type_);
    condition.is_some_and(|condition| condition.status == "True")
}

/// Describes an object's conditions.
fn describe_conditions(object: &Value) -> String {
    let conditions = ObjectView::new(object).list_conditions();
    let described = conditions.map(|condition| format!("{}: {}", condition.reason, condition.message));
    described.collect::<Vec<String>>().join("; ")
}

/// Checks whether a request's credentials are in use in all namespaces, each at least of this generation after the first.
fn is_in_use(request: &Value, namespaces: usize, replaced: i64) -> bool {
    let ledgers = ObjectView::new(request).list("/status/credentials");
    let is_of = |ledger: &Value| {
        let ledger = ObjectView::new(ledger);
        let generation = ledger.find_number("/generation").unwrap_or_default();
        ledger.has("/current") && !ledger.has("/next") && generation > replaced
    };
    is_true(request, "Verified") && ledgers.len() == namespaces && ledgers.iter().all(is_of)
}

/// Runs a function for all requests, some at a time.
async fn for_all(requests: &[Value], ask: impl AsyncFn(&Value) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let asked = futures::stream::iter(requests).map(|request| ask(request));
    asked.buffer_unordered(CLIENTS).try_collect().await
}

/// Sends a request, impersonating a user if one is given.
async fn send_as(
    client: &kube::Client,
    method: Method,
    path: &str,
    object: &Value,
    name: Option<&str>,
) -> anyhow::Result<Value> {
    let kind = if method == Method::PATCH {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let what = format!("{method} {path}");
    let mut request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind);
    if let Some(name) = name {
        request = request.header("impersonate-user", name);
    }
    let body = if object.is_null() {
        Vec::new()
    } else {
        serde_json::to_vec(object)?
    };
    client.request(request.body(body)?).await.context(what)
}
