//! Selects the cluster, and finds its kubeconfig. The module never writes a kubeconfig.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig};
use tenure_api::{DurationText, ObjectView};
use tenure_inspection::suggestions::name_suggestions;

use crate::client::open_client;
use crate::completion_words;
use crate::failure::{Failure, write_chain};
use crate::{in_cluster_config, named_objects, resources};

/// The heading of these flags in the help of every command.
const HEADING: &str = "Connection to the cluster";

/// The largest number of namespaces that are read for completions.
const MOST_NAMES: usize = 500;

/// Flags that select a cluster.
#[derive(Debug, Clone, Args)]
pub(crate) struct ClusterChoice {
    /// Kubeconfig to use [default: $KUBECONFIG, else ~/.kube/config].
    #[arg(long, global = true, value_name = "FILE", help_heading = HEADING)]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context].
    #[arg(long, global = true, value_name = "NAME", help_heading = HEADING, add = ArgValueCompleter::new(complete_context))]
    context: Option<String>,
}

/// Flags of every command that connects to a cluster.
#[derive(Debug, Clone, Args)]
pub(crate) struct Connect {
    #[command(flatten)]
    cluster: ClusterChoice,
    #[command(flatten)]
    acting: ActingUser,
    /// Longest time for one request, such as 5s or 2m; 0 for no limit. A watch is limited only until it begins.
    #[arg(long, global = true, value_name = "TIME", default_value = "0", value_parser = parse_timeout, help_heading = HEADING)]
    request_timeout: Duration,
}

/// Flags that name another user for the requests.
#[derive(Debug, Clone, Default, Args)]
struct ActingUser {
    /// User to impersonate, in place of the user that the kubeconfig impersonates, if any.
    #[arg(id = "impersonated_user", long = "as", global = true, value_name = "USER", help_heading = HEADING)]
    user: Option<String>,
    /// Group to impersonate, in place of the kubeconfig's groups. Can be repeated.
    #[arg(id = "impersonated_groups", long = "as-group", global = true, value_name = "GROUP", help_heading = HEADING)]
    groups: Vec<String>,
}

impl ActingUser {
    /// Sets the impersonation of a user's configuration. As in kubectl, each given flag replaces only its own part, and empty values count as missing.
    fn impersonate(&self, user: &mut AuthInfo) -> Result<(), Failure> {
        if let Some(name) = self.user.as_ref().filter(|name| !name.is_empty()) {
            user.impersonate = Some(name.clone());
        }
        if !self.groups.is_empty() {
            user.impersonate_groups = Some(self.groups.clone());
        }
        let names_nobody = user.impersonate.as_ref().is_none_or(String::is_empty);
        let has_groups = user
            .impersonate_groups
            .as_ref()
            .is_some_and(|groups| !groups.is_empty());
        if names_nobody && has_groups {
            return Err(
                Failure::usage("--as-group: groups without a user can't be impersonated")
                    .hint("add the user: --as USER, such as --as alice --as-group developers"),
            );
        }
        Ok(())
    }
}

/// Reads a timeout as kubectl does: a number of seconds, or a duration with units.
fn parse_timeout(text: &str) -> Result<Duration, String> {
    if text.is_empty() {
        return Ok(Duration::ZERO);
    }
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    let read = DurationText(text.to_owned()).parse();
    read.map_err(|_| "write a number of seconds, or a time with a unit, such as 5s, 2m or 1h".to_owned())
}

/// Flags of every command about objects in namespaces.
#[derive(Debug, Clone, Args)]
pub(crate) struct Scope {
    /// Namespace of the objects [default: the context's namespace, else `default`].
    #[arg(short, long, value_name = "NAME", help_heading = HEADING, add = ArgValueCompleter::new(complete_namespace))]
    namespace: Option<String>,
    /// All namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace", help_heading = HEADING)]
    all_namespaces: bool,
}

impl Scope {
    /// Returns the selected namespace; `None` for all namespaces.
    pub(crate) fn namespace(&self, client: &kube::Client) -> Option<String> {
        if self.all_namespaces {
            None
        } else {
            Some(
                self.namespace
                    .clone()
                    .unwrap_or_else(|| client.default_namespace().to_owned()),
            )
        }
    }
}

impl Connect {
    /// Reads the flags from an incomplete command line.
    pub(crate) fn of_words(words: &[String]) -> Self {
        let value = |flag: &str| find_flag(words, &[flag]);
        Self {
            cluster: ClusterChoice {
                kubeconfig: value("--kubeconfig").map(PathBuf::from),
                context: value("--context"),
            },
            acting: ActingUser {
                user: value("--as"),
                groups: list_flag(words, &["--as-group"]),
            },
            request_timeout: Duration::ZERO,
        }
    }

    /// Returns the folder of the current kubeconfig; `tenure up` stores its artifacts beside the kubeconfig.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        let (_, file) = self.cluster.read().ok()?;
        file?.parent().map(PathBuf::from)
    }

    /// Returns a client for the selected cluster.
    pub(crate) async fn client(&self) -> Result<kube::Client, Failure> {
        Ok(open_client(self.read_config().await?)?)
    }

    /// Returns the configuration of the selected cluster.
    pub(crate) async fn read_config(&self) -> Result<kube::Config, Failure> {
        self.add_flags(self.cluster.read_config().await?)
    }

    /// Returns the cluster of the selected context, as the kubeconfig describes it.
    pub(crate) fn find_cluster(&self) -> Result<Option<Cluster>, Failure> {
        let (kubeconfig, _) = self.cluster.read()?;
        let context = self.cluster.context.as_ref().or(kubeconfig.current_context.as_ref());
        Ok(find_cluster(&kubeconfig, context.map(String::as_str)))
    }

    /// Returns the configuration of the cluster that the flags or $KUBECONFIG name; else, in a Pod, that of the Pod's cluster, as its ServiceAccount.
    pub(crate) async fn read_config_of_cluster(&self) -> Result<kube::Config, Failure> {
        self.add_flags(self.cluster.read_config_of_cluster().await?)
    }

    fn add_flags(&self, mut config: kube::Config) -> Result<kube::Config, Failure> {
        self.acting.impersonate(&mut config.auth_info)?;
        if !self.request_timeout.is_zero() {
            config.read_timeout = Some(self.request_timeout);
        }
        Ok(config)
    }
}

impl ClusterChoice {
    /// Returns the configuration of the cluster that the flags or $KUBECONFIG name; else, in a Pod, that of the Pod's cluster, as its ServiceAccount.
    pub(crate) async fn read_config_of_cluster(&self) -> Result<kube::Config, Failure> {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let named = self.kubeconfig.is_some() || self.context.is_some() || is_set("KUBECONFIG");
        if named || !is_set("KUBERNETES_SERVICE_HOST") {
            return self.read_config().await;
        }
        let read = |name| std::env::var(name).unwrap_or_default();
        let (host, port) = (read("KUBERNETES_SERVICE_HOST"), read("KUBERNETES_SERVICE_PORT"));
        in_cluster_config::read_config(std::path::Path::new(in_cluster_config::MOUNTED), &host, &port).await
    }

    /// Returns the names of the kubeconfig's contexts.
    fn list_contexts(&self) -> Vec<String> {
        let Ok((kubeconfig, _)) = self.read() else {
            return Vec::new();
        };
        kubeconfig.contexts.into_iter().map(|context| context.name).collect()
    }

    /// Returns the namespaces of the kubeconfig's contexts.
    fn list_context_namespaces(&self) -> Vec<String> {
        let Ok((kubeconfig, _)) = self.read() else {
            return Vec::new();
        };
        let contexts = kubeconfig.contexts.into_iter().filter_map(|named| named.context);
        let namespaces: BTreeSet<String> = contexts.filter_map(|context| context.namespace).collect();
        namespaces.into_iter().collect()
    }

    /// Returns the configuration of the kubeconfig's cluster.
    async fn read_config(&self) -> Result<kube::Config, Failure> {
        let (kubeconfig, _) = self.read()?;
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        if let Some(failure) = self
            .context
            .as_deref()
            .and_then(|named| refuse_context(&kubeconfig, named))
        {
            return Err(failure);
        }
        kube::Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(|error| Failure::usage(format!("the kubeconfig can't be used: {}", write_chain(&error))))
    }

    /// Returns the kubeconfig, and the file that has the current context.
    fn read(&self) -> Result<(Kubeconfig, Option<PathBuf>), Failure> {
        if let Some(path) = &self.kubeconfig {
            return Ok((read_file(path)?, Some(path.clone())));
        }
        let files = match std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty()) {
            Some(value) => std::env::split_paths(&value)
                .filter(|path| !path.as_os_str().is_empty())
                .collect(),
            None => find_home()
                .into_iter()
                .map(|home| home.join(".kube/config"))
                .collect::<Vec<_>>(),
        };
        merge_files(&files, self.context.as_deref())
    }
}

/// Returns the cluster of a context.
pub(crate) fn find_cluster(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<Cluster> {
    let named = kubeconfig
        .contexts
        .iter()
        .find(|named| Some(named.name.as_str()) == context)?;
    let cluster = named.context.as_ref()?.cluster.as_str();
    let found = kubeconfig.clusters.iter().find(|named| named.name == cluster)?;
    found.cluster.clone()
}

/// Returns the completions of --context.
fn complete_context(current: &OsStr) -> Vec<CompletionCandidate> {
    let choice = Connect::of_words(&completion_words::list_words()).cluster;
    completion_words::select_words(current, choice.list_contexts())
}

/// Returns the completions of -n. A user who may not list namespaces gets those of the own Tenants, else those of the kubeconfig's contexts.
pub(crate) fn complete_namespace(current: &OsStr) -> Vec<CompletionCandidate> {
    let connect = Connect::of_words(&completion_words::list_words());
    let mut offered = completion_words::ask_cluster(async {
        let client = connect.client().await?;
        let path = format!("/api/v1/namespaces?limit={MOST_NAMES}");
        let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
        let request = http::Request::get(path).header(http::header::ACCEPT, accept);
        let request = request
            .body(Vec::new())
            .map_err(|error| Failure::internal(error.to_string()))?;
        let answer: serde_json::Value = client.request(request).await?;
        let items = ObjectView::new(&answer).list_views("/items");
        Ok(items
            .filter_map(|item| item.find_text("/metadata/name").map(str::to_owned))
            .collect())
    });
    if offered.is_empty() {
        offered = completion_words::ask_cluster(list_namespaces_of_tenants(&connect));
    }
    if offered.is_empty() {
        offered = connect.cluster.list_context_namespaces();
    }
    completion_words::select_words(current, offered)
}

/// Returns the namespaces of the Tenants that the user may read by name.
async fn list_namespaces_of_tenants(connect: &Connect) -> Result<Vec<String>, Failure> {
    let client = connect.client().await?;
    let served = resources::list_served(&client).await?;
    let tenants = resources::find_resource(&served, "tenants.capsule.clastix.io")?;
    let found = named_objects::collect_objects(&client, tenants, "application/json").await?;
    let found = found.unwrap_or_default();
    let tenants = ObjectView::new(&found).list_views("/items");
    let namespaces = tenants.flat_map(|tenant| tenant.list_texts("/status/namespaces"));
    Ok(namespaces.map(str::to_owned).collect())
}

/// Returns the failure for a context that the kubeconfig lacks.
fn refuse_context(kubeconfig: &Kubeconfig, named: &str) -> Option<Failure> {
    let names: Vec<&str> = kubeconfig
        .contexts
        .iter()
        .map(|context| context.name.as_str())
        .collect();
    if names.contains(&named) {
        return None;
    }
    let failure = Failure::usage(format!("--context {named}: the kubeconfig has no such context"));
    Some(match name_suggestions(named, &names) {
        Some(hint) => failure.hint(hint),
        None => failure.hint(format!("it has {}", names.join(", "))),
    })
}

/// Returns all values of a flag on an incomplete command line, in any form that clap reads: `--flag value`, `--flag=value`, `-f value`, `-fvalue`.
pub(crate) fn list_flag(words: &[String], flags: &[&str]) -> Vec<String> {
    let mut values = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        for flag in flags {
            match word.strip_prefix(flag) {
                Some("") => values.extend(words.next().cloned()),
                Some(rest) if flag.starts_with("--") => values.extend(rest.strip_prefix('=').map(str::to_owned)),
                Some(rest) => values.push(rest.trim_start_matches('=').to_owned()),
                None => continue,
            }
            break;
        }
    }
    values
}

/// Returns the last value of a flag on an incomplete command line.
pub(crate) fn find_flag(words: &[String], flags: &[&str]) -> Option<String> {
    list_flag(words, flags).pop()
}

/// Merges several kubeconfigs as kubectl does. The first definition counts for each cluster, user and context, and for the current context. Missing files are skipped,
/// as long as one exists.
fn merge_files(files: &[PathBuf], context: Option<&str>) -> Result<(Kubeconfig, Option<PathBuf>), Failure> {
    let mut merged: Option<Kubeconfig> = None;
    let mut read = Vec::new();
    for path in files.iter().filter(|path| path.exists()) {
        let mut file = read_file(path)?;
        file.current_context = file.current_context.filter(|context| !context.is_empty());
        read.push((path, file.clone()));
        merged = Some(match merged {
            None => file,
            Some(before) => before.merge(file).map_err(|error| {
                Failure::usage(format!("{}: {}", path.display(), write_chain(&error)))
                    .hint("$KUBECONFIG names several files, which don't go together")
            })?,
        });
    }
    let Some(merged) = merged else {
        let named: Vec<_> = files.iter().map(|path| path.display().to_string()).collect();
        return Err(
            Failure::usage(format!("no kubeconfig: there is no {}", named.join(", no ")))
                .hint("name one with --kubeconfig FILE or $KUBECONFIG; `tenure up --data DIR` writes DIR/kubeconfig"),
        );
    };
    let used = context.or(merged.current_context.as_deref());
    let has_it = |file: &Kubeconfig| file.contexts.iter().any(|context| Some(context.name.as_str()) == used);
    let from = read
        .iter()
        .find(|(_, file)| has_it(file))
        .map(|(path, _)| (*path).clone());
    Ok((merged, from))
}

fn read_file(path: &std::path::Path) -> Result<Kubeconfig, Failure> {
    Kubeconfig::read_from(path).map_err(|error| {
        Failure::usage(format!("{}: {}", path.display(), write_chain(&error)))
            .hint("`tenure up --data DIR` writes DIR/kubeconfig")
    })
}

fn find_home() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| !home.as_os_str().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(current: &str, contexts: &[&str]) -> String {
        let contexts: String = contexts
            .iter()
            .map(|name| format!("- name: {name}\n  context: {{cluster: {name}, user: {name}}}\n"))
            .collect();
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: \"{current}\"\ncontexts:\n{contexts}clusters: []\nusers: []\n"
        )
    }

    #[test]
    fn several_files_are_read_as_kubectl_reads_them() {
        let folder = tempfile::tempdir().expect("folder");
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("write");
            path
        };
        let a = file("a", &kubeconfig("", &["one"]));
        let b = file("b", &kubeconfig("two", &["one", "two"]));
        let missing = folder.path().join("missing");
        let (merged, from) = merge_files(&[missing.clone(), a.clone(), b.clone()], None).expect("merged");
        assert_eq!(merged.current_context.as_deref(), Some("two"));
        assert_eq!(merged.contexts.len(), 2);
        assert_eq!(from, Some(b.clone()));
        let (_, from) = merge_files(&[a.clone(), b], Some("one")).expect("merged");
        assert_eq!(from, Some(a));
        let failure = merge_files(&[missing], None).expect_err("no file");
        assert!(failure.message.contains("missing") && failure.hint.is_some());
    }

    /// Each expected user and groups are the headers that kubectl 1.36 sent with these flags and this kubeconfig.
    #[test]
    fn impersonation_is_kubectls() {
        let check =
            |kubeconfig: serde_json::Value, user: Option<&str>, groups: &[&str], expected: Option<(&str, &[&str])>| {
                let acting = ActingUser {
                    user: user.map(str::to_owned),
                    groups: groups.iter().map(|group| (*group).to_owned()).collect(),
                };
                let mut found: AuthInfo = serde_json::from_value(kubeconfig).expect("a user");
                let result = acting.impersonate(&mut found).ok().map(|()| {
                    let groups = found.impersonate_groups.unwrap_or_default();
                    (found.impersonate.unwrap_or_default(), groups)
                });
                let expected = expected.map(|(user, groups)| {
                    let groups = groups.iter().map(|group| (*group).to_owned()).collect::<Vec<_>>();
                    (user.to_owned(), groups)
                });
                assert_eq!(result, expected, "{acting:?}");
            };
        let bob = serde_json::json!({"as": "bob", "as-groups": ["g1", "g2"]});
        check(bob.clone(), None, &[], Some(("bob", &["g1", "g2"])));
        check(bob.clone(), Some("alice"), &[], Some(("alice", &["g1", "g2"])));
        check(bob.clone(), Some("alice"), &["h1"], Some(("alice", &["h1"])));
        check(bob.clone(), None, &["h1"], Some(("bob", &["h1"])));
        check(bob, Some(""), &[], Some(("bob", &["g1", "g2"])));
        let plain = serde_json::json!({});
        check(plain.clone(), None, &["h1"], None);
        check(
            plain.clone(),
            Some("alice"),
            &["h1,h2", "h3"],
            Some(("alice", &["h1,h2", "h3"])),
        );
        check(plain, Some(""), &[], Some(("", &[])));
    }

    #[test]
    fn timeouts_are_kubectls() {
        for (text, milliseconds) in [
            ("5", 5_000),
            ("0", 0),
            ("500ms", 500),
            ("1.5s", 1_500),
            ("1h", 3_600_000),
            ("", 0),
        ] {
            assert_eq!(parse_timeout(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        assert!(parse_timeout("1x").is_err());
    }

    #[test]
    fn flags_are_found_in_every_form() {
        let words: Vec<String> = "get -n a --context=b ks -nc --as-group x --as-group=y --as"
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        assert_eq!(list_flag(&words, &["-n", "--namespace"]), ["a", "c"]);
        assert_eq!(find_flag(&words, &["--context"]).as_deref(), Some("b"));
        assert_eq!(list_flag(&words, &["--as-group"]), ["x", "y"]);
        assert_eq!(find_flag(&words, &["--as"]), None);
    }

    #[test]
    fn a_context_has_its_cluster() {
        let text = "contexts: [{name: a, context: {cluster: one}}, {name: b, context: {cluster: two}}, {name: c}]\n\
                    clusters: [{name: one, cluster: {server: https://one}}, {name: three}]\n";
        let kubeconfig = Kubeconfig::from_yaml(text).expect("YAML");
        let find = |context| find_cluster(&kubeconfig, context).and_then(|cluster| cluster.server);
        assert_eq!(find(Some("a")).as_deref(), Some("https://one"));
        for context in [Some("b"), Some("c"), Some("d"), None] {
            assert_eq!(find(context), None, "{context:?}");
        }
    }

    #[test]
    fn a_mistyped_context_gets_a_suggestion() {
        let read = Kubeconfig::from_yaml(&kubeconfig("production", &["production", "staging"])).expect("YAML");
        assert!(refuse_context(&read, "staging").is_none());
        let failure = refuse_context(&read, "prodution").expect("a failure");
        assert_eq!(failure.hint.as_deref(), Some("did you mean production?"));
        let failure = refuse_context(&read, "x").expect("a failure");
        assert_eq!(failure.hint.as_deref(), Some("it has production, staging"));
    }
}
