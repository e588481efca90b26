//! The group `networking.k8s.io`: ingress traffic and network policies. One file or folder for each kind; code for several groups is
//! elsewhere.

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
