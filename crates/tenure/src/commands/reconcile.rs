//! `tenure reconcile`, `suspend` and `resume`: the three ways to tell a reconciler when to work.

use std::process::ExitCode;

use clap::Args;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::connect::{Connect, Scope};
use crate::failure::Failure;
use crate::{output, resources};

/// The annotation that asks for a reconciliation now (Flux's, on every kind).
const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";

/// Who writes these requests, as managedFields will show it.
const FIELD_MANAGER: &str = "tenure";

/// Which object.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The kind: ks, gitrepo, surface.
    kind: String,
    /// The object's name.
    name: String,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    connect: Connect,
}

/// Ask for a reconciliation now.
#[derive(Debug, Args)]
pub(crate) struct Reconcile {
    #[command(flatten)]
    target: Target,
}

/// Stop reconciling an object; what is applied stays.
#[derive(Debug, Args)]
pub(crate) struct Suspend {
    #[command(flatten)]
    target: Target,
}

/// Reconcile a suspended object again.
#[derive(Debug, Args)]
pub(crate) struct Resume {
    #[command(flatten)]
    target: Target,
}

impl Reconcile {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        let now = jiff::Timestamp::now().to_string();
        self.target
            .patch(
                &json!({"metadata": {"annotations": {REQUESTED_AT: now}}}),
                "reconciliation requested",
            )
            .await
    }
}

impl Suspend {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        self.target
            .patch(&json!({"spec": {"suspend": true}}), "suspended")
            .await
    }
}

impl Resume {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        self.target.patch(&json!({"spec": {"suspend": false}}), "resumed").await
    }
}

impl Target {
    async fn patch(&self, patch: &Value, done: &str) -> Result<ExitCode, Failure> {
        let client = self.connect.client().await?;
        let served = resources::served(&client).await?;
        let resource = resources::find(&served, &self.kind)?;
        let namespace = self
            .scope
            .namespace(&client)
            .ok_or_else(|| Failure::usage("one object lives in one namespace: name it with -n instead of -A"))?;
        let api: kube::Api<DynamicObject> = if resource.namespaced {
            kube::Api::namespaced_with(client, &namespace, &resource.api())
        } else {
            kube::Api::all_with(client, &resource.api())
        };
        let parameters = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        api.patch(&self.name, &parameters, &Patch::Merge(patch)).await?;
        output::line(format!("{}/{} {done}", resource.full_name(), self.name));
        Ok(ExitCode::SUCCESS)
    }
}
