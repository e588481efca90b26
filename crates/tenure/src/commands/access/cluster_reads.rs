//! Reads of the access commands, with the caller's rights. The module knows the paths and bounds the reads. An unreadable object never counts as missing, and an
//! unreadable part doesn't end the command.

use std::future::Future;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tenure_api::access::{FluxAccessGrant, FluxAccessRequest, FluxAccessStandingGrant};
use tenure_api::metadata::PLATFORM_NAMESPACE;
use tenure_api::time::Time;
use tenure_api::{ObjectMeta, Tenant};
use tenure_git_access::answer::Answers;
use tenure_inspection::access_reports::receivers::KnownPlacements;
use tenure_inspection::access_reports::{ObservedFacts, ReadResult};
use tenure_tenancy::access::ReceivingNamespace;
use tenure_tenancy::{NamespaceFacts, Settings, TenancyFacts, TenantFacts};

use crate::connect::Connect;
use crate::failure::Failure;
use crate::output;
use crate::paged_reads::{self, ReadRefusal};
use crate::resources::encode_segment;

/// The largest number of objects of a kind that are read.
const MOST: usize = 20_000;
const JSON: &str = "application/json";
/// The path of the access kinds.
const ROOT: &str = "/apis/tenure.dev/v1alpha1";

/// A reader of the access kinds, with the caller's rights.
pub(super) struct AccessReader {
    pub(super) client: kube::Client,
    pub(super) now: Time,
}

impl AccessReader {
    pub(super) async fn connect(connect: &Connect) -> Result<Self, Failure> {
        Ok(Self {
            client: connect.client().await?,
            now: Time(jiff::Timestamp::now()),
        })
    }

    /// Returns the path of a collection in the platform namespace, or of an object there.
    pub(super) fn write_path(plural: &str, name: Option<&str>) -> String {
        let name = name
            .map(|name| format!("/{}", encode_segment(name)))
            .unwrap_or_default();
        format!("{ROOT}/namespaces/{PLATFORM_NAMESPACE}/{plural}{name}")
    }

    /// Returns the path of a FluxAccess.
    pub(super) fn write_asked(namespace: &str, name: &str) -> String {
        format!(
            "{ROOT}/namespaces/{}/fluxaccesses/{}",
            encode_segment(namespace),
            encode_segment(name)
        )
    }

    pub(super) fn write_target(name: &str) -> String {
        format!("{ROOT}/fluxaccesstargets/{}", encode_segment(name))
    }

    /// Lists all FluxAccess objects of the cluster, or of one namespace if the caller may not list all.
    pub(super) async fn list_asked<T: DeserializeOwned>(&self, namespace: &str) -> ReadResult<Vec<T>> {
        match self.list(&format!("{ROOT}/fluxaccesses")).await {
            Ok(all) => Ok(all),
            Err(_) => {
                let path = format!("{ROOT}/namespaces/{}/fluxaccesses", encode_segment(namespace));
                self.list(&path).await
            }
        }
    }

    /// Lists the objects of a collection that fit their type.
    async fn list<T: DeserializeOwned>(&self, path: &str) -> ReadResult<Vec<T>> {
        let mut found = Vec::new();
        let is_whole = paged_reads::visit_objects(&self.client, path, (JSON, MOST), |object| {
            found.extend(serde_json::from_value(object));
        });
        match is_whole.await {
            Ok(true) => Ok(found),
            Ok(false) => Err(format!("there are more than {MOST}, which is more than is read")),
            Err(ReadRefusal::Absent) => {
                Err("this cluster doesn't serve the kind: access to hosts isn't installed here".to_owned())
            }
            Err(refusal) => Err(refusal.to_string()),
        }
    }

    /// Returns an object; `None` if it is missing.
    pub(super) async fn find<T: DeserializeOwned>(&self, path: &str, accept: &str) -> ReadResult<Option<T>> {
        match paged_reads::read_object(&self.client, path, accept).await {
            Ok(object) => match serde_json::from_value(object) {
                Ok(object) => Ok(Some(object)),
                Err(_) => Err("it can't be read as what it is".to_owned()),
            },
            Err(ReadRefusal::Absent) => Ok(None),
            Err(refusal) => Err(refusal.to_string()),
        }
    }

    /// Returns the request with a name.
    pub(super) async fn find_request(&self, name: &str) -> Result<FluxAccessRequest, Failure> {
        let path = Self::write_path("fluxaccessrequests", Some(name));
        match self.find(&path, JSON).await {
            Ok(Some(request)) => Ok(request),
            Ok(None) => Err(Failure::negative(format!(
                "there is no FluxAccessRequest {name} in namespace {PLATFORM_NAMESPACE}"
            ))
            .hint("tenure access list shows the existing requests")),
            Err(why) => Err(Failure::environment(format!("FluxAccessRequest {name}: {why}"))),
        }
    }

    /// Reads all objects that the reports of the access commands need.
    pub(super) async fn see(&self) -> ObservedFacts {
        let write_list_path = |plural: &str| Self::write_path(plural, None);
        let paths = [
            "fluxaccessrequests",
            "fluxaccessgrants",
            "fluxaccessstandinggrants",
            "accessproviders",
        ]
        .map(write_list_path);
        let [requests, grants, standing_grants, providers] = &paths;
        ObservedFacts {
            requests: self.list(requests).await,
            grants: self.list(grants).await,
            standing_grants: self.list(standing_grants).await,
            providers: self.list(providers).await,
            surrounding: self.look_around().await,
            platform: PLATFORM_NAMESPACE.to_owned(),
            now: self.now.clone(),
        }
    }

    /// Reads all namespaces and Tenants, to decide which namespaces may receive a Secret.
    async fn look_around(&self) -> ReadResult<KnownPlacements> {
        let namespaces = self.list::<Value>("/api/v1/namespaces").await;
        let namespaces = namespaces.map_err(|why| format!("namespaces: {why}"))?;
        let tenants = self.list::<Tenant>("/apis/capsule.clastix.io/v1beta2/tenants").await;
        let tenants = tenants.map_err(|why| format!("Tenants: {why}"))?;
        let mut surrounding = KnownPlacements {
            tenancy: TenancyFacts {
                settings: Settings {
                    platform_namespace: PLATFORM_NAMESPACE.to_owned(),
                    is_guarded: true,
                    ..Settings::default()
                },
                tenants: tenants.iter().map(TenantFacts::from).collect(),
                ..TenancyFacts::default()
            },
            namespaces: Vec::new(),
        };
        for mut namespace in namespaces {
            let metadata = namespace.get_mut("metadata").map(Value::take).unwrap_or_default();
            let Ok(metadata) = serde_json::from_value::<ObjectMeta>(metadata) else {
                continue;
            };
            surrounding.tenancy.namespaces.push(NamespaceFacts::from(&metadata));
            surrounding.namespaces.push(ReceivingNamespace {
                is_deleting: metadata.deletion_timestamp.is_some(),
                name: metadata.name.unwrap_or_default(),
                labels: metadata.labels.unwrap_or_default(),
            });
        }
        Ok(surrounding)
    }

    /// Lists the existing answers, for a user who adds one. Unreadable answers are reported and left out; the controllers see them all the same.
    pub(super) async fn list_answers(&self) -> ExistingAnswers {
        ExistingAnswers {
            grants: note_failure("grants", self.list(&Self::write_path("fluxaccessgrants", None))).await,
            standing_grants: note_failure(
                "standing grants",
                self.list(&Self::write_path("fluxaccessstandinggrants", None)),
            )
            .await,
        }
    }
}

async fn note_failure<T>(what: &str, list: impl Future<Output = ReadResult<Vec<T>>>) -> Vec<T> {
    match list.await {
        Ok(list) => list,
        Err(why) => {
            output::print_note(format!(
                "note: {what} could not be read, so their answers aren't known here: {why}"
            ));
            Vec::new()
        }
    }
}

/// The grants and standing grants that exist in the cluster.
pub(super) struct ExistingAnswers {
    grants: Vec<FluxAccessGrant>,
    standing_grants: Vec<FluxAccessStandingGrant>,
}

impl ExistingAnswers {
    pub(super) fn as_answers<'a>(&'a self, now: &'a Time) -> Answers<'a> {
        Answers {
            grants: &self.grants,
            standing_grants: &self.standing_grants,
            platform: PLATFORM_NAMESPACE,
            now,
        }
    }
}
