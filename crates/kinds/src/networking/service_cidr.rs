//! ServiceCIDRs. They have table cells, but the server does not serve them.

use crate::kind::Kind;
use crate::table::cells;

/// ServiceCIDRs.
pub(super) static SERVICE_CIDR: Kind = Kind {
    cells: |object, now| {
        let ranges = cells::joined(object, "/spec/cidrs");
        vec![cells::name(object), ranges.into(), cells::age(object, now)]
    },
    ..Kind::named("networking.k8s.io", "ServiceCIDR", "servicecidrs")
};
