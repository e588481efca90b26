//! The kinds of the core group, and the code that all Pod-creating kinds share. One file or folder for each kind.

mod amounts;
mod binding;
mod component_status;
mod config_map;
mod data;
mod endpoints;
pub(crate) mod event;
mod limit_range;
mod namespace;
mod node;
mod persistent_volume;
pub(crate) mod persistent_volume_claim;
pub(crate) mod pod;
mod pod_template;
pub(crate) mod replication_controller;
mod resource_quota;
mod secret;
mod service;
mod service_account;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[
    &binding::BINDING,
    &component_status::COMPONENT_STATUS,
    &config_map::CONFIG_MAP,
    &endpoints::ENDPOINTS,
    &event::EVENT,
    &limit_range::LIMIT_RANGE,
    &namespace::NAMESPACE,
    &node::NODE,
    &persistent_volume::PERSISTENT_VOLUME,
    &persistent_volume_claim::PERSISTENT_VOLUME_CLAIM,
    &pod::POD,
    &pod_template::POD_TEMPLATE,
    &replication_controller::REPLICATION_CONTROLLER,
    &resource_quota::RESOURCE_QUOTA,
    &secret::SECRET,
    &service::SERVICE,
    &service_account::SERVICE_ACCOUNT,
];
