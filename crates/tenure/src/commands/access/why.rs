//! `tenure access why`: explains step by step why a Secret exists in a namespace or not. The command reads only the metadata of Secrets, which is enough.

use std::process::ExitCode;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use futures::StreamExt as _;
use serde_json::{Value, json};
use tenure_admission_rules::Question;
use tenure_api::access::{FluxAccess, FluxAccessRequest, REQUEST_LABEL, name_target};
use tenure_api::metadata::PLATFORM_NAMESPACE;
use tenure_api::text::{count_of, visible_line};
use tenure_inspection::access_audit::NamedObject;
use tenure_inspection::access_reports::chain::{self, Chain, EntryFound, MOST_NAMESPACES, NamespaceReads, StepState};
use tenure_inspection::access_reports::{ObservedFacts, ReadResult};

use super::audit_reads::write_object;
use super::cluster_reads::AccessReader;
use super::output::{Output, Printed};
use crate::connect::{Connect, complete_namespace};
use crate::failure::Failure;
use crate::inspection::ONLY_METADATA;
use crate::{caller, output};

/// The number of namespaces that are read at the same time.
const AT_ONCE: usize = 4;
const RBAC: &str = "rbac.authorization.k8s.io";
/// The rights that the account for Secrets needs in a namespace: the verb, the group and the resource.
const WRITES: [(&str, &str, &str); 3] = [
    ("create", "", "secrets"),
    ("create", RBAC, "roles"),
    ("create", RBAC, "rolebindings"),
];

/// Explain, step by step, why a Secret is delivered to a namespace or not.
///
/// The steps are: the entry that requests the Secret, its project or group, the approval, the namespace's permission, the rights of the writing account, the
/// credential, and its use by sources.
///
/// Exit codes: 0 the Secret is delivered, 1 it is not, 3 you may not read what decides that.
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// Secret as NAMESPACE/SECRET, or a FluxAccessRequest, for all of its namespaces.
    #[arg(value_name = "NAMESPACE/SECRET|NAME")]
    what: String,
    /// Namespace of the Secret, if its name has none: `tenure access why web -n shop`.
    #[arg(short, long, value_name = "NAME", add = ArgValueCompleter::new(complete_namespace))]
    namespace: Option<String>,
    #[command(flatten)]
    form: Output,
    #[command(flatten)]
    connect: Connect,
}

impl Why {
    pub(super) async fn run(&self) -> Result<ExitCode, Failure> {
        let reader = AccessReader::connect(&self.connect).await?;
        let mut unknown = None;
        let (chains, entries, left_out) = match self.find_secret()? {
            Some((namespace, secret)) => {
                if namespace.is_empty() || secret.is_empty() || secret.contains('/') {
                    return Err(Failure::usage(format!("{:?}: write NAMESPACE/SECRET", self.what)));
                }
                let (chains, entries, hidden) = about_secret(&reader, namespace, secret).await?;
                unknown = hidden;
                (chains, entries, 0)
            }
            None => {
                let request = reader.find_request(&self.what).await?;
                let seen = reader.see().await;
                let names = chain::list_namespaces(&seen, &request);
                let left_out = names.len().saturating_sub(MOST_NAMESPACES);
                let pairs = names.into_iter().take(MOST_NAMESPACES);
                let pairs: Vec<_> = pairs.map(|name| (request.clone(), name)).collect();
                (explain_all(&reader, &seen, pairs).await, Vec::new(), left_out)
            }
        };
        let is_delivered = !chains.is_empty() && chains.iter().all(|chain| chain.is_delivered);
        let report = json!({ "chains": chains, "entries": entries, "leftOut": left_out });
        if self.form.print(&report)? == Printed::ForPeople {
            print_chains(&chains, &entries, left_out);
        }
        match unknown {
            None => Ok(ExitCode::from(u8::from(!is_delivered))),
            Some(why) => Err(Failure::environment(format!(
                "the requests in namespace {PLATFORM_NAMESPACE} can't be read, so their approvals are unknown: {why}"
            ))
            .hint("the FluxAccess of your own namespace reports what became of its entries: tenure get fluxaccesses -n NAMESPACE")),
        }
    }
}

impl Why {
    /// Returns the namespace and the name of the Secret; `None` for a request.
    fn find_secret(&self) -> Result<Option<(&str, &str)>, Failure> {
        match (&self.namespace, self.what.split_once('/')) {
            (None, named) => Ok(named),
            (Some(namespace), None) => Ok(Some((namespace, &self.what))),
            (Some(namespace), Some(_)) => Err(Failure::usage(format!(
                "-n {namespace}: {:?} names its namespace already",
                self.what
            ))
            .hint("leave out -n, or the namespace before the name")),
        }
    }
}

/// Returns the requests for a Secret; without any, the entries that would cause one. If the user may not read requests, the entries and the reason.
async fn about_secret(
    reader: &AccessReader,
    namespace: &str,
    secret: &str,
) -> Result<(Vec<Chain>, Vec<EntryFound>, Option<String>), Failure> {
    let seen = reader.see().await;
    let (requests, hidden) = match seen.requests.clone() {
        Ok(requests) => (requests, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    let about = requests
        .into_iter()
        .filter(|request| chain::is_about(request, namespace, secret, PLATFORM_NAMESPACE));
    let pairs: Vec<_> = about
        .take(MOST_NAMESPACES)
        .map(|request| (request, namespace.to_owned()))
        .collect();
    if !pairs.is_empty() {
        return Ok((explain_all(reader, &seen, pairs).await, Vec::new(), None));
    }
    let entries = match reader.list_asked::<FluxAccess>(namespace).await {
        Ok(accesses) => chain::find_entries(&accesses, namespace, secret, PLATFORM_NAMESPACE),
        Err(why) => {
            output::print_note(format!("note: FluxAccesses could not be read: {}", visible_line(&why)));
            Vec::new()
        }
    };
    Ok((Vec::new(), entries, hidden))
}

async fn explain_all(
    reader: &AccessReader,
    seen: &ObservedFacts,
    pairs: Vec<(FluxAccessRequest, String)>,
) -> Vec<Chain> {
    let looks = pairs.into_iter().map(|(request, namespace)| async move {
        let place = look_at(reader, seen, &request, namespace).await;
        chain::explain_delivery(seen, &request, &place)
    });
    futures::stream::iter(looks).buffered(AT_ONCE).collect().await
}

/// Reads the facts of one namespace that decide whether the request's Secret is delivered there.
async fn look_at(
    reader: &AccessReader,
    seen: &ObservedFacts,
    request: &FluxAccessRequest,
    namespace: String,
) -> NamespaceReads {
    let asked = &request.spec.asked_in;
    let target = name_target(&request.spec.provider, request.spec.target.id);
    let secret = NamedObject {
        namespace: namespace.clone(),
        name: request.spec.secret_name.clone(),
    };
    let found: ReadResult<Option<Value>> = reader.find(&write_object("secrets", &secret), ONLY_METADATA).await;
    let label = |object: Value| {
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
        let label = labels.and_then(|labels| labels.get(REQUEST_LABEL));
        label.and_then(Value::as_str).map(str::to_owned)
    };
    NamespaceReads {
        asked: match asked.kind.as_str() {
            "Agent" => Ok(None),
            _ => {
                let path = AccessReader::write_asked(&asked.namespace, &asked.name);
                reader.find(&path, "application/json").await
            }
        },
        target: reader
            .find(&AccessReader::write_target(&target), "application/json")
            .await,
        lacking: find_lacking(reader, seen, request, &namespace).await,
        secret: found.map(|found| found.map(label)),
        namespace,
    }
}

/// Returns the rights that the account for Secrets lacks in a namespace.
async fn find_lacking(
    reader: &AccessReader,
    seen: &ObservedFacts,
    request: &FluxAccessRequest,
    namespace: &str,
) -> ReadResult<Vec<String>> {
    let mut providers = seen.providers.iter().flatten();
    let provider = providers.find(|one| one.metadata.name.as_ref() == Some(&request.spec.provider));
    let Some(account) = provider.map(|one| one.spec.name_writer()) else {
        return Ok(Vec::new());
    };
    let mut lacking = Vec::new();
    let spec = &request.spec;
    let accounts = spec.service_accounts.iter().filter(|_| spec.image_pull_secrets);
    let patches = accounts.map(|account| ("patch", "", "serviceaccounts", account.as_str()));
    let writes = WRITES.map(|(verb, group, resource)| (verb, group, resource, ""));
    for (verb, group, resource, name) in writes.into_iter().chain(patches) {
        let question = Question {
            verb,
            group,
            resource,
            namespace,
            name,
        };
        let may = caller::may_account(&reader.client, (PLATFORM_NAMESPACE, account), &question).await;
        match may {
            Ok(true) => {}
            Ok(false) if name.is_empty() => lacking.push(format!("{verb} {resource}")),
            Ok(false) => lacking.push(format!("{verb} {resource}/{name}")),
            Err(failure) => return Err(failure.message),
        }
    }
    Ok(lacking)
}

fn print_chains(chains: &[Chain], entries: &[EntryFound], left_out: usize) {
    if chains.is_empty() {
        output::print_line("no request names it, as far as you may read");
    }
    for chain in chains {
        let name = format!("{}/{}", chain.namespace, chain.secret);
        let is_there = if chain.is_delivered {
            output::good("delivered")
        } else {
            output::bad("not delivered")
        };
        let request = visible_line(&chain.request);
        output::print_line(format!(
            "{}  {is_there}, FluxAccessRequest {request}",
            output::bold(&visible_line(&name))
        ));
        for step in &chain.steps {
            let sign = match step.state {
                StepState::Holds => output::good("✓"),
                StepState::Waits => output::faint("…"),
                StepState::Fails => output::bad("✗"),
                StepState::Unknown => output::faint("?"),
            };
            output::print_line(format!("  {sign} {:<10} {}", step.step, visible_line(&step.says)));
        }
    }
    for entry in entries {
        let state = match (&entry.problem, &entry.request) {
            (Some(problem), _) => problem.clone(),
            (None, Some(request)) => format!("FluxAccessRequest {request} was made of it"),
            (None, None) => "no request was made of it yet".to_owned(),
        };
        let line = format!("FluxAccess {} {}: {state}", entry.object, entry.entry);
        output::print_line(visible_line(&line));
    }
    if left_out > 0 {
        output::print_line(format!(
            "and {} more; NAMESPACE/SECRET asks about one",
            count_of(left_out, "namespace")
        ));
    }
}
