//! `tenure logs`: reads the log of an installation's Pods, all of it or the lines about one object. On a control plane without Pods it says where the log is.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use futures::io::AsyncBufReadExt as _;
use futures::stream::{LocalBoxStream, SelectAll};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, LogParams};
use serde_json::Value;
use tenure_api::ObjectView;
use tenure_api::metadata::PLATFORM_NAMESPACE;
use tenure_api::text::visible_line;
use tenure_inspection::log_lines::{LogSubject, read_time, write_for_people};

use crate::connect::{Connect, Scope};
use crate::failure::Failure;
use crate::{output, quantity, resources, targets};

/// The labels of the Pods of controllers, shards and lanes.
const PODS: &str = "app.kubernetes.io/name=tenure";
/// The part of a version that names the embedded control plane.
const EMBEDDED: &str = "+tenure";
/// The largest number of lines that are sorted in memory.
const MOST_LINES: usize = 200_000;

/// Show the log of the controllers: the lines about one object, or all lines.
///
/// The command reads the Pods of the installation in tenure-system, which takes the right to do so. Owners of a tenant usually have `tenure events` instead.
///
/// Exit codes: 0 the log was read, even if no line is about the object; 1 no Pods have a log here; 2 wrong usage; 3 the cluster refused or failed.
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// Object as KIND NAME or KIND/NAME, such as ks/web. Only lines about it are shown.
    #[arg(num_args = 1..=2, value_name = "KIND/NAME", required_unless_present = "all", conflicts_with = "all", add = ArgValueCompleter::new(super::completion::complete_target))]
    object: Vec<String>,
    /// Show all lines.
    #[arg(long)]
    all: bool,
    /// Show new lines as they come.
    #[arg(short, long)]
    follow: bool,
    /// Show lines of this time back from now: seconds, or a duration such as 1h.
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_time)]
    since: Option<Duration>,
    /// Show at most so many lines, the newest [default: all; with --follow 10].
    #[arg(long, value_name = "NUMBER")]
    tail: Option<usize>,
    /// Format of the lines.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Form::Text)]
    output: Form,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    connect: Connect,
}

/// Formats of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Time, level, message and fields.
    Text,
    /// The lines as the controllers wrote them.
    Json,
}

/// A line of the log, and the Pod that wrote it.
struct Line {
    pod: String,
    text: String,
}

impl Logs {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        let named = match self.object.is_empty() {
            true => None,
            false => Some(targets::Targets::read_one(&self.object)?),
        };
        let client = self.connect.client().await?;
        refuse_embedded(&client).await?;
        let subject = match named {
            Some((kind, name)) => Some(self.find_subject(&client, &kind, name).await?),
            None => None,
        };
        let pods: Api<Pod> = Api::namespaced(client, PLATFORM_NAMESPACE);
        let names = list_pods(&pods, subject.as_ref()).await?;
        let found = match self.follow {
            false => self.read(&pods, &names, subject.as_ref()).await?,
            true => self.follow(&pods, &names, subject.as_ref()).await?,
        };
        if let Some(subject) = subject.filter(|_| found == 0) {
            output::print_note(format!(
                "no line is about {}; at the default level the controllers log warnings and errors only (tenure install … -- --log info); tenure events shows what happened",
                visible_line(&subject.write())
            ));
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn find_subject(&self, client: &kube::Client, kind: &str, name: String) -> Result<LogSubject, Failure> {
        let served = resources::list_served(client).await?;
        let resource = resources::find_resource(&served, kind)?;
        let namespace = match resource.namespaced {
            true => self
                .scope
                .namespace(client)
                .ok_or_else(|| Failure::usage("one object lives in one namespace: name it with -n instead of -A"))?,
            false => String::new(),
        };
        Ok(LogSubject {
            kind: resource.kind.clone(),
            namespace,
            name,
        })
    }

    /// Prints the existing lines of all Pods in the order of their times, and returns their number.
    async fn read(&self, pods: &Api<Pod>, names: &[String], subject: Option<&LogSubject>) -> Result<usize, Failure> {
        let most = self.tail.unwrap_or(MOST_LINES).min(MOST_LINES);
        let (mut timed, mut is_cut) = (Vec::new(), false);
        for pod in names {
            let Some(mut read) = self.open(pods, pod, subject).await? else {
                continue;
            };
            let mut of_pod = VecDeque::new();
            // A line without a time, as of a panic, stays behind the line before it.
            let mut last = String::new();
            while let Some(text) = read.try_next().await.map_err(|error| explain_read(pod, &error))? {
                let time = read_time(&text);
                if !time.is_empty() {
                    last = time;
                }
                if subject.is_none_or(|subject| subject.is_in(&text)) {
                    let pod = pod.clone();
                    of_pod.push_back((last.clone(), Line { pod, text }));
                }
                if of_pod.len() > most {
                    of_pod.pop_front();
                    is_cut |= self.tail.is_none();
                }
            }
            timed.extend(of_pod);
        }
        timed.sort_by(|(one, _), (other, _)| one.cmp(other));
        let left_out = timed.len().saturating_sub(most);
        if is_cut || (left_out > 0 && self.tail.is_none()) {
            output::print_note(format!(
                "only the newest {MOST_LINES} lines are shown; --since TIME asks for fewer"
            ));
        }
        let shown = timed.iter().skip(left_out);
        for (_, line) in shown.clone() {
            self.print(line, names.len() > 1);
        }
        Ok(shown.count())
    }

    /// Prints lines as they come, until all Pods have ended or the user interrupts. Returns the number of lines.
    async fn follow(&self, pods: &Api<Pod>, names: &[String], subject: Option<&LogSubject>) -> Result<usize, Failure> {
        let mut all = SelectAll::new();
        for pod in names {
            if let Some(read) = self.open(pods, pod, subject).await? {
                let name = pod.clone();
                all.push(read.map(move |text| (name.clone(), text)));
            }
        }
        let mut found = 0;
        while let Some((pod, text)) = all.next().await {
            let text = text.map_err(|error| explain_read(&pod, &error))?;
            if subject.is_none_or(|subject| subject.is_in(&text)) {
                found += 1;
                self.print(&Line { pod, text }, names.len() > 1);
            }
        }
        output::print_note("the Pods have ended; run the command again for their successors");
        Ok(found)
    }

    /// Opens the log of a Pod; `None` if it has none yet. The server cuts it to the wanted lines only if all lines count.
    async fn open(
        &self,
        pods: &Api<Pod>,
        pod: &str,
        subject: Option<&LogSubject>,
    ) -> Result<Option<LocalBoxStream<'static, std::io::Result<String>>>, Failure> {
        let tail = match (self.tail, self.follow) {
            (Some(tail), _) => Some(tail),
            (None, true) => Some(10),
            (None, false) => None,
        };
        let parameters = LogParams {
            follow: self.follow,
            since_seconds: self
                .since
                .map(|since| i64::try_from(since.as_secs().max(1)).unwrap_or(i64::MAX)),
            tail_lines: tail
                .filter(|_| subject.is_none())
                .map(|tail| i64::try_from(tail).unwrap_or(i64::MAX)),
            ..LogParams::default()
        };
        match pods.log_stream(pod, &parameters).await {
            Ok(opened) => Ok(Some(opened.lines().boxed_local())),
            // The container has not started, or the Pod has just gone.
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 404) => {
                output::print_note(format!("Pod {pod} has no log: {}", visible_line(&status.message)));
                Ok(None)
            }
            Err(error) => Err(refuse_log(error, pod)),
        }
    }

    fn print(&self, line: &Line, names_pod: bool) {
        let text = match self.output {
            Form::Json => line.text.clone(),
            Form::Text => write_for_people(&line.text),
        };
        let text = visible_line(&text);
        match names_pod && self.output == Form::Text {
            true => output::print_line(format!(
                "{} {text}",
                output::faint(&format!("[{}]", visible_line(&line.pod)))
            )),
            false => output::print_line(text),
        }
    }
}

/// The embedded control plane runs no Pods, so its log is elsewhere.
async fn refuse_embedded(client: &kube::Client) -> Result<(), Failure> {
    let request = http::Request::get("/version")
        .body(Vec::new())
        .map_err(|error| Failure::internal(error.to_string()))?;
    let version: Value = client.request(request).await?;
    if !ObjectView::new(&version).read_text("/gitVersion").contains(EMBEDDED) {
        return Ok(());
    }
    Err(Failure::negative(
        "this is the embedded control plane: its controllers have no Pods, and log to standard error of the process `tenure up` or `tenure run`",
    )
    .hint("look there: its terminal, its unit (journalctl -u UNIT), or the file of its redirection; --log info makes it say more; tenure events --for KIND/NAME shows what happened to an object"))
}

/// Lists the Pods of the installation.
async fn list_pods(pods: &Api<Pod>, subject: Option<&LogSubject>) -> Result<Vec<String>, Failure> {
    let listed = match pods.list(&ListParams::default().labels(PODS)).await {
        Ok(listed) => listed,
        Err(kube::Error::Api(status)) if status.code == 403 => return Err(refuse_reader(subject)),
        Err(error) => return Err(error.into()),
    };
    let names: Vec<String> = listed.items.into_iter().filter_map(|pod| pod.metadata.name).collect();
    if names.is_empty() {
        return Err(Failure::negative(format!(
            "namespace {PLATFORM_NAMESPACE} has no Pods of Tenure (label {PODS})"
        ))
        .hint("controllers that `tenure run` started elsewhere log to standard error of that process; tenure install runs them in the cluster"));
    }
    Ok(names)
}

/// Explains a missing right to the Pods' logs, with what the user has instead.
fn refuse_reader(subject: Option<&LogSubject>) -> Failure {
    let events = match subject {
        Some(subject) if !subject.namespace.is_empty() => format!(
            "tenure events --for {}/{} -n {}",
            subject.kind.to_lowercase(),
            subject.name,
            subject.namespace
        ),
        _ => "tenure events".to_owned(),
    };
    Failure::environment(format!(
        "you may not read the controllers' Pods and their logs in namespace {PLATFORM_NAMESPACE}"
    ))
    .hint(format!(
        "{events} shows what happened; an administrator may read the log"
    ))
}

fn refuse_log(error: kube::Error, pod: &str) -> Failure {
    match error {
        kube::Error::Api(status) if status.code == 403 => Failure::environment(format!(
            "you may not read the log of Pod {pod} in namespace {PLATFORM_NAMESPACE}"
        ))
        .hint("ask an administrator for the verb get on pods/log there"),
        error => {
            let mut failure = Failure::from(error);
            failure.message = format!("Pod {pod}: {}", failure.message);
            failure
        }
    }
}

fn explain_read(pod: &str, error: &std::io::Error) -> Failure {
    Failure::environment(format!("the log of Pod {pod} ended: {error}"))
}
