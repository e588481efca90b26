//! Secrets that must not leak: planted in namespaces, and searched for everywhere else.
//!
//! The search covers the log of this process, and every object of every kind except the Secrets of the own namespace
//! (so all statuses, conditions and events). It also covers texts that a test passes (metrics, answers), and files,
//! including compressed ones. A value is also found as base64, whatever precedes it, and in hexadecimal. Each check
//! proves first that the log is captured. A finding names the place and never the value.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, Read as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::ACCEPT;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::admin::{Admin, AdminError};

/// The name of the planted Secrets.
pub const CANARY: &str = "canary";
/// The keys under which each Secret holds the value: those that an attack might read.
const KEYS: [&str; 9] = [
    "word",
    "value",
    "token",
    "username",
    "password",
    "secretkey",
    "accesskey",
    "identity",
    "headers",
];
/// The log filter: everything from Tenure, and messages of other crates except those about single bytes.
pub const LOG_FILTER: &str = "tenure=trace,kube=debug,info";
/// Most bytes of a file that are searched.
const LONGEST_FILE: u64 = 64 << 20;
/// Aggregated discovery, as `tenure_cluster` asks for it.
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The planted Secrets of a test, and the search for their values in all other places.
#[derive(Debug)]
pub struct Canary {
    planted: Vec<Planted>,
}

/// A secret value, in all forms in which the search finds it.
#[derive(Debug)]
struct Planted {
    /// The namespace whose Secrets may hold the value; `None` for any.
    namespace: Option<String>,
    forms: Vec<String>,
}

/// The values of all tests of this process, and the values that were found: a process has one log.
static LOG_SEARCH: Mutex<LogSearch> = Mutex::new(LogSearch {
    forms: Vec::new(),
    found_forms: BTreeSet::new(),
});

/// The search of this process' log for secret values.
struct LogSearch {
    forms: Vec<String>,
    /// Found forms, with the beginnings of their lines.
    found_forms: BTreeSet<(String, String)>,
}

/// The destination of the log: searches each line for the secret values.
#[derive(Clone, Copy)]
struct LogWriter;

impl io::Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let mut log_search = LOG_SEARCH.lock();
        let found_forms: Vec<String> = log_search
            .forms
            .iter()
            .filter(|form| text.contains(form.as_str()))
            .cloned()
            .collect();
        for form in found_forms {
            // The beginning of the line, without the value.
            let place = text.split(&form).next().unwrap_or_default().chars().take(200).collect();
            log_search.found_forms.insert((form, place));
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LogWriter {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }
}

/// Returns a random word that appears nowhere by chance.
fn make_word() -> String {
    let random = || std::hash::RandomState::new().build_hasher().finish();
    format!("canary{:016x}{:016x}", random(), random())
}

/// Returns the possible forms of a value: unchanged, in base64 after 0, 1 or 2 other bytes, in hexadecimal.
fn list_forms(value: &str) -> Vec<String> {
    let mut forms = vec![value.to_owned()];
    for before in 0..3 {
        let text = [b"x".repeat(before).as_slice(), value.as_bytes()].concat();
        let encoded = STANDARD.encode(text);
        // The first and the last letters depend on the neighbouring bytes.
        let first = [0, 2, 3].get(before).copied().unwrap_or_default();
        let last = encoded.trim_end_matches('=').len() - 2;
        forms.extend(encoded.get(first..last).map(str::to_owned));
    }
    forms.push(value.bytes().map(|byte| format!("{byte:02x}")).collect());
    forms
}

impl Canary {
    /// Plants a Secret `canary` in each of these namespaces, and starts to capture the log.
    ///
    /// # Errors
    /// [`AdminError`]; also if the log of this process can't be captured.
    pub async fn plant(admin: &Admin, namespaces: &[&str]) -> anyhow::Result<Self> {
        let filter = EnvFilter::try_new(LOG_FILTER)?;
        let _already_listens = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(false)
            .with_writer(LogWriter)
            .try_init();
        let mut canary = Self { planted: Vec::new() };
        canary.check_log_is_searched()?;
        for namespace in namespaces {
            let word = make_word();
            let data: serde_json::Map<String, Value> =
                KEYS.iter().map(|key| ((*key).to_owned(), json!(word))).collect();
            canary.listen_for(namespace, &word);
            admin
                .apply(json!({
                    "apiVersion": "v1", "kind": "Secret", "metadata": { "name": CANARY, "namespace": namespace }, "stringData": data
                }))
                .await?;
        }
        Ok(canary)
    }

    /// Adds another value, which a test has put into Secrets of a namespace.
    pub fn listen_for(&mut self, namespace: &str, value: &str) {
        self.listen_beside(Some(namespace), value);
    }

    /// Adds a value that is not random. Secrets of any namespace may hold the value, because other tests may have left
    /// them.
    pub fn listen_beside_secrets(&mut self, value: &str) {
        self.listen_beside(None, value);
    }

    fn listen_beside(&mut self, namespace: Option<&str>, value: &str) {
        let forms = list_forms(value);
        LOG_SEARCH.lock().forms.extend(forms.iter().cloned());
        self.planted.push(Planted {
            namespace: namespace.map(str::to_owned),
            forms,
        });
    }

    /// Returns the value that was planted in a namespace.
    #[must_use]
    pub fn find_value(&self, namespace: &str) -> Option<&str> {
        let planted = self
            .planted
            .iter()
            .find(|planted| planted.namespace.as_deref() == Some(namespace))?;
        planted.forms.first().map(String::as_str)
    }

    /// Runs the control: a logged word must be found in the log.
    fn check_log_is_searched(&self) -> anyhow::Result<()> {
        let word = make_word();
        LOG_SEARCH.lock().forms.push(word.clone());
        tracing::debug!(target: "tenure_testkit", word, "does the search find this line?");
        let mut log_search = LOG_SEARCH.lock();
        log_search.forms.retain(|form| *form != word);
        let before = log_search.found_forms.len();
        log_search.found_forms.retain(|(form, _)| *form != word);
        anyhow::ensure!(
            log_search.found_forms.len() < before,
            "the log of this process is not searched: another subscriber has it"
        );
        Ok(())
    }

    /// Searches the log, all objects, these named texts, and the files in these folders.
    ///
    /// # Errors
    /// The places where a value was found; also if a place could not be searched.
    pub async fn check(&self, admin: &Admin, texts: &[(&str, &str)], folders: &[&Path]) -> Result<(), String> {
        let mut found = Vec::new();
        for (form, place) in &LOG_SEARCH.lock().found_forms {
            let is_ours = self.planted.iter().any(|planted| planted.forms.contains(form));
            found.extend(is_ours.then(|| format!("the log, after {place:?}")));
        }
        for (name, text) in texts {
            found.extend(self.is_in(text, None).then(|| (*name).to_owned()));
        }
        for folder in folders {
            self.search_folder(folder, &mut found)
                .map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        self.search_objects(admin, &mut found)
            .await
            .map_err(|error| format!("not all objects could be looked at: {error}"))?;
        if found.is_empty() {
            Ok(())
        } else {
            Err(format!("a planted secret is in {}", found.join("; in ")))
        }
    }

    /// Checks whether a value is in a text; `own` is the namespace of the Secret in the text.
    fn is_in(&self, text: &str, own: Option<&str>) -> bool {
        let others = self
            .planted
            .iter()
            .filter(|planted| match (own, planted.namespace.as_deref()) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(own), Some(namespace)) => own != namespace,
            });
        others
            .flat_map(|planted| &planted.forms)
            .any(|form| text.contains(form.as_str()))
    }

    fn search_folder(&self, folder: &Path, found: &mut Vec<String>) -> io::Result<()> {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                self.search_folder(&path, found)?;
                continue;
            }
            // A file that is deleted during the search needs no check.
            let Ok(file) = std::fs::File::open(&path) else { continue };
            let mut bytes = Vec::new();
            file.take(LONGEST_FILE).read_to_end(&mut bytes)?;
            if bytes.starts_with(&[0x1f, 0x8b]) {
                let mut clear = Vec::new();
                let _as_far_as_it_goes = flate2::read::GzDecoder::new(bytes.as_slice())
                    .take(LONGEST_FILE)
                    .read_to_end(&mut clear);
                bytes = clear;
            }
            if self.is_in(&String::from_utf8_lossy(&bytes), None) {
                found.push(path.display().to_string());
            }
        }
        Ok(())
    }

    async fn search_objects(&self, admin: &Admin, found: &mut Vec<String>) -> Result<(), AdminError> {
        let client = admin.client();
        for path in list_collections(admin).await? {
            let mut next = String::new();
            loop {
                let page = format!("{path}?limit=500{next}");
                let request = http::Request::get(page)
                    .body(Vec::new())
                    .map_err(kube::Error::HttpError)?;
                let list: Value = match client.request(request).await {
                    Ok(list) => list,
                    // A kind that was removed meanwhile has no objects.
                    Err(kube::Error::Api(status)) if status.code == 404 => break,
                    Err(error) => return Err(error.into()),
                };
                for object in list.get("items").and_then(Value::as_array).into_iter().flatten() {
                    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                    let namespace = text("/metadata/namespace");
                    let own = path.ends_with("/api/v1/secrets").then_some(namespace);
                    if self.is_in(&object.to_string(), own) {
                        found.push(format!("{path} {namespace}/{}", text("/metadata/name")));
                    }
                }
                match list.pointer("/metadata/continue").and_then(Value::as_str) {
                    Some(token) if !token.is_empty() => next = format!("&continue={token}"),
                    _ => break,
                }
            }
        }
        Ok(())
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        let mut log_search = LOG_SEARCH.lock();
        let is_ours = |form: &String| self.planted.iter().any(|planted| planted.forms.contains(form));
        log_search.forms.retain(|form| !is_ours(form));
        log_search.found_forms.retain(|(form, _)| !is_ours(form));
    }
}

/// Returns the paths of all listable collections, each kind in the version that the server prefers.
async fn list_collections(admin: &Admin) -> Result<Vec<String>, AdminError> {
    let mut paths = Vec::new();
    for root in ["/api", "/apis"] {
        let request = http::Request::get(root)
            .header(ACCEPT, DISCOVERY)
            .body(Vec::new())
            .map_err(kube::Error::HttpError)?;
        let document: Value = admin.client().request(request).await?;
        let list = |value: &Value, field: &str| value.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
        for group in list(&document, "items") {
            let name = group
                .pointer("/metadata/name")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let mut seen = BTreeSet::new();
            for version in list(&group, "versions") {
                let number = version.get("version").and_then(Value::as_str).unwrap_or_default();
                for resource in list(&version, "resources") {
                    let plural = resource.get("resource").and_then(Value::as_str).unwrap_or_default();
                    let is_listed = list(&resource, "verbs").contains(&json!("list"));
                    if !is_listed || !seen.insert(plural.to_owned()) {
                        continue;
                    }
                    paths.push(match name {
                        "" => format!("/api/{number}/{plural}"),
                        name => format!("/apis/{name}/{number}/{plural}"),
                    });
                }
            }
        }
    }
    Ok(paths)
}
