//! NetworkPolicies.

use serde_json::json;

use crate::kind::{Generation, Kind};
use crate::schema::defaults;
use crate::schema::validation::networking;
use crate::table::cells;

/// NetworkPolicies.
pub(super) static NETWORK_POLICY: Kind = Kind {
    generation: Generation::Counted,
    defaults: |_, object| {
        defaults::with_spec(object, |spec| {
            if defaults::is_empty(spec, "policyTypes") {
                let types = match defaults::is_empty(spec, "egress") {
                    true => json!(["Ingress"]),
                    false => json!(["Ingress", "Egress"]),
                };
                spec.insert("policyTypes".into(), types);
            }
        });
    },
    validate: networking::network_policy,
    cells: |object, now| {
        let selected = cells::selector(object, "/spec/podSelector");
        vec![cells::name(object), selected.into(), cells::age(object, now)]
    },
    ..Kind::named("networking.k8s.io", "NetworkPolicy", "networkpolicies")
};
