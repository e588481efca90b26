//! The name of a Lease, for the election and for its errors.

/// A Lease, by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}
