//! Ways in, and who may reach whom. One file or folder a kind; refuses everything that several groups need.

mod ingress;
mod ingress_class;
mod ip_address;
mod network_policy;
mod service_cidr;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[
    &ingress::INGRESS,
    &ingress_class::INGRESS_CLASS,
    &ip_address::IP_ADDRESS,
    &network_policy::NETWORK_POLICY,
    &service_cidr::SERVICE_CIDR,
];
