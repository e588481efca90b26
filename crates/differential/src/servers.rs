//! The two servers: the embedded one in this process behind its own TLS port, and a real one, started here or running already. Neither has controllers that write by
//! themselves, so only requests change stored objects.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use kube::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_apiserver::{Config, Server};
use tenure_testkit::exchange::{Saved, Step};
use tenure_testkit::{Kubernetes, KubernetesBinaries, SOON, Webhook, client_of, eventually};

/// The source of the real server.
#[derive(Debug, Clone)]
pub enum Real {
    /// The binaries to start it from.
    Binaries(KubernetesBinaries),
    /// The administrator's kubeconfig of a running server.
    Kubeconfig(PathBuf),
}

/// The embedded server, with the kinds that stories need.
pub struct Embedded {
    pub(crate) client: Client,
    server: Server,
    _data: TempDir,
    _webhook: Webhook,
}

impl Embedded {
    /// Starts the server.
    ///
    /// # Errors
    /// Any error before its first answer.
    pub async fn start() -> anyhow::Result<Self> {
        // Fails if a provider is installed already, which is then the same one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let data = tempfile::tempdir()?;
        let config = Config {
            controllers: false,
            ..Config::new(data.path().join("data"))
        };
        let server = Server::open(config).await?;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let kubeconfig = data.path().join("kubeconfig");
        server.write_admin_kubeconfig(&kubeconfig, listener.local_addr()?)?;
        let serving = server.clone();
        tokio::spawn(async move { serving.serve(listener).await });
        let client = client_of(&kubeconfig).await?;
        let webhook = define_kinds(&client).await?;
        Ok(Self {
            client,
            server,
            _data: data,
            _webhook: webhook,
        })
    }

    /// Stops the server.
    pub async fn close(&self) {
        self.server.close().await;
    }
}

/// Both servers, with the kinds that stories need.
pub struct Servers {
    pub(crate) real: Client,
    pub(crate) embedded: Embedded,
    _kubernetes: Option<Kubernetes>,
    _webhook: Webhook,
}

impl Servers {
    /// Starts the servers that don't run yet.
    ///
    /// # Errors
    /// Any error before their first answers.
    pub async fn start(real: &Real) -> anyhow::Result<Self> {
        let embedded = Embedded::start().await?;
        let (kubernetes, real) = match real {
            Real::Kubeconfig(path) => (None, client_of(path).await?),
            Real::Binaries(binaries) => {
                // The plugin's finalizer would stay, because no volume is mounted here.
                let plugins = "--disable-admission-plugins=StorageObjectInUseProtection";
                let kubernetes = Kubernetes::start_with(binaries, false, &[plugins]).await?;
                let client = kubernetes.client().await?;
                (Some(kubernetes), client)
            }
        };
        let webhook = define_kinds(&real).await?;
        Ok(Self {
            real,
            embedded,
            _kubernetes: kubernetes,
            _webhook: webhook,
        })
    }

    /// Checks whether the real server still answers.
    pub(crate) async fn real_is_ready(&self) -> bool {
        let answer = send_request(&self.real, "GET", "/readyz", Value::Null).await;
        answer.is_ok_and(|(status, _)| status == 200)
    }

    /// Stops the embedded server; the real one stops when this value is dropped.
    pub async fn close(&self) {
        self.embedded.close().await;
    }
}

fn make_request(method: &str, path: &str, body: Value) -> anyhow::Result<Step> {
    Ok(serde_json::from_value(json!({
        "method": method, "path": path, "body": body, "headers": {"content-type": "application/json"},
    }))?)
}

async fn send_request(client: &Client, method: &str, path: &str, body: Value) -> anyhow::Result<(u64, Value)> {
    let answer = make_request(method, path, body)?
        .ask(client, &[], &Saved::new())
        .await?;
    let status = answer.pointer("/status").and_then(Value::as_u64).unwrap_or_default();
    Ok((status, answer))
}

/// Creates the custom kinds, and waits until they are served. Kinds with a conversion webhook need the returned webhook as long as they exist.
async fn define_kinds(client: &Client) -> anyhow::Result<Webhook> {
    let webhook = Webhook::start(json!({"/convert": {"convert": {}}})).await?;
    for mut definition in crate::kind::read_definitions()? {
        if let Some(config) = definition.pointer_mut("/spec/conversion/webhook/clientConfig") {
            *config = webhook.client_config("/convert");
        }
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let (mut status, mut answer) = send_request(client, "POST", path, definition.clone()).await?;
        if status == 409 {
            // A previous run created it, and its webhook is gone.
            let name = definition.pointer("/metadata/name").and_then(Value::as_str);
            let one = format!("{path}/{}", name.context("a definition has no name")?);
            let found = send_request(client, "GET", &one, Value::Null).await?.1;
            if let Some(version) = found.pointer("/body/metadata/resourceVersion").cloned()
                && let Some(metadata) = definition.get_mut("metadata").and_then(Value::as_object_mut)
            {
                metadata.insert("resourceVersion".to_owned(), version);
            }
            (status, answer) = send_request(client, "PUT", &one, definition.clone()).await?;
        }
        if !matches!(status, 200 | 201) {
            bail!("a definition of this suite is refused: {answer}");
        }
        let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
        for version in versions.into_iter().flatten() {
            let version = version
                .get("name")
                .and_then(Value::as_str)
                .context("a version has no name")?;
            let path = format!("/apis/{}/{version}/{}", text("/spec/group"), text("/spec/names/plural"));
            eventually(SOON, || async {
                let (status, answer) = send_request(client, "GET", &path, Value::Null).await?;
                if status == 200 {
                    Ok(())
                } else {
                    bail!("{path}: {answer}")
                }
            })
            .await?;
            // A definition exists before its schema is available for server-side apply.
            let path = format!("/openapi/v3/apis/{}/{version}", text("/spec/group"));
            eventually(SOON, || async {
                let (_, answer) = send_request(client, "GET", &path, Value::Null).await?;
                let kind = text("/spec/names/kind");
                if answer.to_string().contains(&format!(".{kind}\"")) {
                    Ok(())
                } else {
                    bail!("{path} does not describe {kind}")
                }
            })
            .await?;
        }
    }
    Ok(webhook)
}

/// Creates a namespace.
pub(crate) async fn make_namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    match send_request(client, "POST", "/api/v1/namespaces", body).await? {
        (201, _) => Ok(()),
        (_, answer) => bail!("the namespace of a story is refused: {answer}"),
    }
}
