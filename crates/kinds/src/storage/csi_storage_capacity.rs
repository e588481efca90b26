//! CSIStorageCapacities.

use crate::kind::Kind;
use crate::schema::validation::storage_plugins;
use crate::schema::warnings;

/// CSIStorageCapacities.
pub(super) static CSI_STORAGE_CAPACITY: Kind = Kind {
    needs_resource_version: true,
    validate: |value, errors| storage_plugins::object("CSIStorageCapacity", value, errors),
    validate_update: |value, old, errors| storage_plugins::update("CSIStorageCapacity", value, old, errors),
    warnings: |object, _| warnings::storage_capacity(object),
    ..Kind::named("storage.k8s.io", "CSIStorageCapacity", "csistoragecapacities")
};
