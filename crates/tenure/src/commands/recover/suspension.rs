//! The Kustomization that took fields of a Package: whether it applies, and its suspension before the recovery. A Surface that generated the Kustomization stays active: it
//! would suspend the source, too, and the first attempt after a resumption would apply the old commit.

use http::Method;
use serde_json::json;
use tenure_api::ObjectView;
use tenure_tenancy::rights::Question;

use crate::api_answers::send_request;
use crate::caller;
use crate::failure::Failure;
use crate::paged_reads::{ReadRefusal, read_object};
use crate::resources::encode_segment;

const KUSTOMIZE_GROUP: &str = "kustomize.toolkit.fluxcd.io";
/// The field manager of a suspension, as in `tenure suspend`.
const FIELD_MANAGER: &str = "tenure";

/// The state of the Kustomization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The Kustomization applies its objects.
    Active,
    /// The Kustomization is suspended.
    Suspended,
    /// The Kustomization does not exist any more.
    Missing,
    /// The user may not read it.
    Unknown,
}

/// A Kustomization that applies fields of the Package.
pub(super) struct Applier {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) state: State,
}

impl Applier {
    pub(super) async fn read(client: &kube::Client, (namespace, name): (&str, &str)) -> Result<Self, Failure> {
        let mut applier = Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            state: State::Unknown,
        };
        match read_object(client, &applier.path(), "application/json").await {
            Ok(found) => {
                applier.state = match ObjectView::new(&found).is_true("/spec/suspend") {
                    true => State::Suspended,
                    false => State::Active,
                };
            }
            Err(ReadRefusal::Absent) => applier.state = State::Missing,
            Err(ReadRefusal::Forbidden(_)) => {}
            Err(refusal) => return Err(Failure::environment(format!("{}: {refusal}", applier.subject()))),
        }
        Ok(applier)
    }

    fn path(&self) -> String {
        let (namespace, name) = (encode_segment(&self.namespace), encode_segment(&self.name));
        format!("/apis/{KUSTOMIZE_GROUP}/v1/namespaces/{namespace}/kustomizations/{name}")
    }

    pub(super) fn subject(&self) -> String {
        format!("Kustomization/{}/{}", self.namespace, self.name)
    }

    /// Returns the Kustomization as arguments of `tenure suspend` and `tenure resume`.
    pub(super) fn write_arguments(&self) -> String {
        format!("kustomization/{} -n {}", self.name, self.namespace)
    }

    /// Returns the state in a few words.
    pub(super) fn describe_state(&self) -> &'static str {
        match self.state {
            State::Active => "applies them, and would apply them again",
            State::Suspended => "applied them, and is suspended",
            State::Missing => "applied them, and does not exist any more",
            State::Unknown => "applies them, and you may not read whether it is suspended",
        }
    }

    /// Checks that the user may suspend it.
    pub(super) async fn check_right(&self, client: &kube::Client) -> Result<(), Failure> {
        let question = Question {
            verb: "patch",
            group: KUSTOMIZE_GROUP,
            resource: "kustomizations",
            namespace: &self.namespace,
            name: &self.name,
        };
        if caller::has_right(client, &question).await? {
            return Ok(());
        }
        let failure = Failure::environment(format!("you may not patch {}", self.subject()));
        Err(failure.hint(format!(
            "ask its owner to run: tenure suspend {}",
            self.write_arguments()
        )))
    }

    /// Suspends it.
    pub(super) async fn suspend(&self, client: &kube::Client) -> Result<(), Failure> {
        let path = format!("{}?fieldManager={FIELD_MANAGER}", self.path());
        let answer = send_request(client, Method::PATCH, &path, &json!({ "spec": { "suspend": true } })).await;
        let answer = answer.map_err(Failure::environment)?;
        match answer.is_done() {
            true => Ok(()),
            false => Err(Failure::environment(format!(
                "{} was not suspended: {}",
                self.subject(),
                answer.message
            ))),
        }
    }
}
