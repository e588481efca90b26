//! The group `storage.k8s.io`: the origin of volumes. One file or folder for each kind; code for several groups is elsewhere.

mod csi_driver;
mod csi_node;
mod csi_storage_capacity;
mod drivers;
mod storage_class;
mod volume_attachment;
mod volume_attributes_class;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[
    &csi_driver::CSI_DRIVER,
    &csi_node::CSI_NODE,
    &csi_storage_capacity::CSI_STORAGE_CAPACITY,
    &storage_class::STORAGE_CLASS,
    &volume_attachment::VOLUME_ATTACHMENT,
    &volume_attributes_class::VOLUME_ATTRIBUTES_CLASS,
];
