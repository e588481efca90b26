//! Metrics of `tenure run`: their readers, their content about reconciled objects, and that the dashboard and the alerts in `deploy` name only existing metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};

use serde_json::{Value, json};
use tenure_git_server::{GitServer, Options};
use tenure_test_ports::reserve_port;

use crate::world::{Admin, Cluster, Controllers, PATIENCE, prepare_shop, wait_for_greeting};

/// Returns the status and the text of a scrape with this token.
fn scrape(port: u16, token: Option<&str>) -> (u16, String) {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connect");
    let shown = token
        .map(|token| format!("authorization: Bearer {token}\r\n"))
        .unwrap_or_default();
    let request = format!("GET /metrics HTTP/1.1\r\nhost: prometheus\r\n{shown}\r\n");
    stream.write_all(request.as_bytes()).expect("ask");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (
        head.split(' ').nth(1).expect("a status").parse().expect("a number"),
        body.to_owned(),
    )
}

/// Waits until the metrics contain the expected lines, and returns them.
async fn wait_for_figures(port: u16, token: &str, expected: &[&str]) -> String {
    let started = std::time::Instant::now();
    loop {
        let (status, text) = scrape(port, Some(token));
        let missing = expected.iter().find(|expected| !text.contains(**expected));
        if status == 200 && missing.is_none() {
            return text;
        }
        assert!(
            started.elapsed() < PATIENCE,
            "{status}: {missing:?} is missing in\n{text}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// Creates two accounts, Prometheus with the right to read metrics and a tenant's without it, and the rights for the controllers to check them.
async fn prepare_readers(admin: &Admin) {
    let account = |name: &str| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": "shop", "name": name}});
    let rbac = "rbac.authorization.k8s.io/v1";
    let bind = |name: &str, role: &str, (namespace, account): (&str, &str)| {
        json!({"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": name},
               "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
               "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": account}]})
    };
    for object in [
        account("prometheus"),
        account("tenant"),
        json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": "tenure-test-reads-metrics"},
               "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]}),
        bind(
            "tenure-test-prometheus",
            "tenure-test-reads-metrics",
            ("shop", "prometheus"),
        ),
    ] {
        admin.apply(object).await;
    }
}

#[tokio::test]
async fn metrics_require_right_and_dashboards_name_existing_metrics() {
    let cluster = Cluster::start_installed().await;
    let admin = &cluster.admin;
    let git_folder = tempfile::tempdir().unwrap();
    let git = GitServer::start(git_folder.path(), Options::default()).await.unwrap();
    let _repository = prepare_shop(admin, &git).await;
    prepare_readers(admin).await;
    let port = reserve_port();
    let (address, allowed) = (format!("127.0.0.1:{port}"), format!("http://{}", git.http_address()));
    // Lanes that are processes report their metrics over their lines.
    let lanes = if cfg!(target_os = "linux") { "process" } else { "task" };
    let more = [
        "--lanes",
        lanes,
        "--metrics-address",
        &address,
        "--allow-source",
        &allowed,
    ];
    let controllers = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), &more);
    admin.wait_for_leader(&controllers.candidate).await;
    wait_for_greeting(admin, 1).await;

    let prometheus = cluster.make_token("shop", "prometheus").await;
    let reviews = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "tenure-metrics-reviews"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "tenure-system", "name": "tenure-controller"}]});
    if admin.find(&reviews).await.is_none() {
        // Without the right for reviews, no client gets metrics, and the log names the missing right.
        assert_eq!(scrape(port, Some(&prometheus)).0, 503);
        controllers.expect("system:auth-delegator");
    }
    admin.apply(reviews).await;

    let expected = [
        "gotk_resource_info{customresource_group=\"kustomize.toolkit.fluxcd.io\",customresource_kind=\"Kustomization\",customresource_version=\"v1\",exported_namespace=\"shop\",",
        "gotk_reconcile_duration_seconds_count{kind=\"Kustomization\",name=\"shop\",namespace=\"shop\"} ",
        "gotk_reconcile_duration_seconds_count{kind=\"GitRepository\",name=\"shop\",namespace=\"shop\"} ",
        "tenure_resources{lane=\"pool\",kind=\"Kustomization\",ready=\"True\",suspended=\"false\"} 1\n",
        "controller_runtime_reconcile_total{controller=\"kustomization\",result=\"requeue_after\"} ",
        "rest_client_requests_total{code=\"200\",method=\"GET\"} ",
        "workqueue_work_duration_seconds_count{controller=\"gitrepository\",name=\"gitrepository\"} ",
        "workqueue_work_duration_seconds_count{controller=\"gitrepository\",name=\"gitrepository\"} ",
        "tenure_leading 1\n",
        "process_resident_memory_bytes ",
    ];
    let figures = wait_for_figures(port, &prometheus, &expected).await;
    for token in [
        None,
        Some("no-token"),
        Some(cluster.make_token("shop", "tenant").await.as_str()),
    ] {
        let (status, text) = scrape(port, token);
        assert!(matches!(status, 401 | 403), "{status}: {text}");
        assert!(!text.contains("gotk_"), "{text}");
    }
    check_deployed(&Exported::read(&figures));
}

/// The existing metrics, and the labels of each.
struct Exported(BTreeMap<String, BTreeSet<String>>);

impl Exported {
    fn read(text: &str) -> Self {
        let mut exported: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for line in text.lines() {
            if let Some(family) = line.strip_prefix("# TYPE ") {
                let (name, kind) = family.split_once(' ').unwrap();
                let parts: &[&str] = if kind == "histogram" {
                    &["_bucket", "_sum", "_count"]
                } else {
                    &[""]
                };
                for part in parts {
                    exported.entry(format!("{name}{part}")).or_default();
                }
            } else if let Some((name, rest)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
                let labels = find_names(rest.rsplit_once('}').unwrap().0, '=');
                exported
                    .get_mut(name)
                    .unwrap_or_else(|| panic!("{name} has no type"))
                    .extend(labels);
            }
        }
        Self(exported)
    }

    /// Returns the names in an expression that don't exist.
    fn find_unknown(&self, expression: &str) -> Vec<String> {
        let asked = Asked::read(expression);
        assert!(!asked.metrics.is_empty(), "{expression} names no metric");
        let unknown = asked.metrics.iter().filter(|name| !self.0.contains_key(*name));
        let mut unknown: Vec<String> = unknown.cloned().collect();
        // The labels that a scrape adds to every series.
        let known: BTreeSet<&str> = ["job", "instance", "namespace", "pod"].into();
        let labels = asked.metrics.iter().filter_map(|name| self.0.get(name)).flatten();
        let labels: BTreeSet<&str> = labels.map(String::as_str).chain(known).collect();
        // A family without a series has no labels to compare.
        let has_series = asked
            .metrics
            .iter()
            .any(|name| self.0.get(name).is_some_and(|labels| !labels.is_empty()));
        if has_series {
            unknown.extend(
                asked
                    .labels
                    .into_iter()
                    .filter(|label| !labels.contains(label.as_str())),
            );
        }
        unknown
    }
}

/// Returns the names before a character, outside of quotes.
fn find_names(text: &str, before: char) -> Vec<String> {
    let mut names = Vec::new();
    let (mut name, mut is_quoted, mut is_escaped) = (String::new(), false, false);
    for letter in text.chars() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            letter if letter == before => names.push(std::mem::take(&mut name)),
            letter if letter.is_ascii_alphanumeric() || letter == '_' => name.push(letter),
            _ => name.clear(),
        }
    }
    names
}

/// The metrics and labels of a PromQL expression.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    metrics: BTreeSet<String>,
    labels: BTreeSet<String>,
}

impl Asked {
    fn read(expression: &str) -> Self {
        const WORDS: [&str; 8] = ["and", "or", "unless", "bool", "offset", "by", "without", "on"];
        let mut asked = Self::default();
        // Quoted text contains no names.
        let unquoted: Vec<&str> = expression.split('"').step_by(2).collect();
        let unquoted = unquoted.join("\"\"");
        let mut rest = unquoted.as_str();
        let mut last = String::new();
        while let Some(letter) = rest.chars().next() {
            if letter.is_ascii_alphabetic() || letter == '_' {
                let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_' && letter != ':');
                let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
                let next = after.trim_start();
                let is_function = next.starts_with('(') || next.starts_with("by ") || next.starts_with("without ");
                if !is_function && !WORDS.contains(&word) {
                    asked.metrics.insert(word.to_owned());
                }
                last = word.to_owned();
                rest = after;
                continue;
            }
            let close = match letter {
                '{' => Some('}'),
                '[' => Some(']'),
                '"' => Some('"'),
                '(' if matches!(last.as_str(), "by" | "without" | "on") => Some(')'),
                _ => None,
            };
            let Some(close) = close else {
                let number = rest
                    .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
                    .unwrap_or(rest.len());
                rest = rest.get(number.max(letter.len_utf8())..).unwrap_or_default();
                continue;
            };
            let inside = rest.get(1..).unwrap_or_default();
            let (inside, after) = inside
                .split_once(close)
                .unwrap_or_else(|| panic!("{expression} has no end"));
            match letter {
                '{' => asked
                    .labels
                    .extend(find_names(&inside.replace("!", "=").replace("==", "="), '=')),
                '(' => asked
                    .labels
                    .extend(inside.split(',').map(|label| label.trim().to_owned())),
                _ => {}
            }
            last.clear();
            rest = after;
        }
        asked.labels.retain(|label| !label.is_empty());
        asked
    }
}

/// Compares the files in `deploy` with the existing metrics.
fn check_deployed(exported: &Exported) {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");
    let read = |name: &str| std::fs::read_to_string(format!("{root}/{name}")).unwrap();
    let dashboard: Value = serde_json::from_str(&read("dashboards/tenure.json")).unwrap();
    let mut expressions = Vec::new();
    list_texts(&dashboard, "expr", &mut expressions);
    let mut asked = Vec::new();
    list_texts(&dashboard, "definition", &mut asked);
    for query in asked {
        let (metric, label) = query
            .strip_prefix("label_values(")
            .and_then(|query| query.strip_suffix(')'))
            .unwrap()
            .split_once(", ")
            .unwrap();
        expressions.push(format!("{metric}{{{label}=\"\"}}"));
    }
    let rules = read("monitoring/prometheusrule.yaml");
    let rules = kustomize::read_manifests("prometheusrule.yaml", &rules, &kustomize::Limits::default()).expect("YAML");
    let in_dashboard = expressions.len();
    list_texts(&rules[0].object, "expr", &mut expressions);
    assert!(
        in_dashboard > 20 && expressions.len() > in_dashboard + 4,
        "{expressions:?}"
    );
    for expression in expressions {
        let unknown = exported.find_unknown(&expression);
        assert!(
            unknown.is_empty(),
            "{expression}\nnames {unknown:?}, of which the program exports nothing"
        );
    }
}

fn list_texts(value: &Value, field: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str().filter(|_| name == field) {
                    Some(text) => found.push(text.to_owned()),
                    None => list_texts(value, field, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| list_texts(item, field, found)),
        _ => {}
    }
}

#[test]
fn unknown_metric_in_expression_is_found() {
    let exported = Exported::read(
        "# TYPE up gauge\nup{a=\"x,y=\\\"z\"} 1\n# TYPE seconds histogram\nseconds_bucket{kind=\"a\",le=\"1\"} 3\n",
    );
    for (expression, unknown) in [
        ("sum by (a) (rate(up{a=~\"b{c}\"}[5m])) > 0.5", &[][..]),
        (
            "histogram_quantile(0.99, sum by (le, kind) (rate(seconds_bucket[5m])))",
            &[],
        ),
        ("absent(up == 1) or down", &["down"]),
        ("up{a!=\"\",c=\"\"}", &["c"]),
        ("sum by (lane) (up)", &["lane"]),
        ("rate(seconds[5m])", &["seconds"]),
    ] {
        assert_eq!(exported.find_unknown(expression), unknown, "{expression}");
    }
}
