//! The steps of a plan for a Kustomization. No step fetches: sources do.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use tenure_api::ObjectId;
use tenure_tenancy::TokenOrder;

use crate::overlay::Overlay;
use crate::plan::{self, Request, Watched};
use crate::render_inputs::RenderInputs;

/// Something to do for a Kustomization.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// Render the artifact. Answer: the attempt's `rendered`.
    Render(RenderRequest),
    /// Look at the other Kustomizations of the source, from caches, now and at each further plan of this attempt. Answer: `survey`.
    Survey(SurveyRequest),
    /// Read an object of this cluster, as the ServiceAccount, while the other steps are about another one. Answer: `here`.
    ReadHere(Watched),
    /// Order a token of a ServiceAccount for another cluster. The lane requests the token and keeps it. Answer: the attempt's `token`.
    OrderToken(TokenOrder),
    /// Send a request to the target cluster: to this cluster as the ServiceAccount, to another cluster as the target's user.
    #[serde(untagged)]
    Ask(Request),
}

/// The request of a rendering.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RenderRequest {
    /// Digest of the artifact.
    pub artifact_digest: String,
    /// The revision of the artifact.
    pub revision: String,
    /// The folder to render. It is checked to be inside the artifact.
    pub path: String,
    /// The overlay to lay over the folder.
    #[serde(flatten)]
    pub overlay: Overlay,
    /// The inputs that were read in the cluster.
    #[serde(skip_serializing_if = "RenderInputs::is_empty")]
    pub inputs: RenderInputs,
}

/// A question about the other Kustomizations of the source: which want these objects, and have all reached this revision?
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SurveyRequest {
    /// Revision.
    pub revision: String,
    /// Objects that are to be pruned.
    pub ids: BTreeSet<ObjectId>,
}

impl plan::Step for Step {
    fn is_public(&self) -> bool {
        match self {
            Self::Render(_) | Self::Survey(_) => true,
            Self::ReadHere(_) | Self::OrderToken(_) => false,
            Self::Ask(request) => request.is_public(),
        }
    }
}

impl From<Request> for Step {
    fn from(request: Request) -> Self {
        Self::Ask(request)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Render(request) => {
                write!(formatter, "render {} of {}", request.path, request.revision)?;
                if request.inputs.is_empty() {
                    return Ok(());
                }
                write!(formatter, " with {}", request.inputs)
            }
            Self::Survey(_) => formatter.write_str("look at the other Kustomizations of its source"),
            Self::ReadHere(target) => write!(formatter, "read {} here", target.id.subject()),
            Self::OrderToken(order) => write!(formatter, "order a token of {order}"),
            Self::Ask(request) => request.fmt(formatter),
        }
    }
}
