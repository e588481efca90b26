//! A ConfigMap that describes another cluster: its address, and the token of this cluster that proves an identity there (Flux's provider `generic`).
//!
//! The other cluster trusts tokens of this one. So the object holds no credential, and is a ConfigMap. The providers of clouds are refused by name. An unreadable value
//! is an error, and never replaced by a default.

use serde_json::Value;

use crate::kubeconfig::{LONGEST, read_address, read_yaml};
use crate::object::Object;
use crate::target::TargetAddress;

/// The only supported value of the key `provider`.
const GENERIC: &str = "generic";
/// Flux's other providers.
const OF_CLOUDS: [&str; 3] = ["aws", "azure", "gcp"];

/// The content of a ConfigMap that describes another cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// The address of the API server.
    pub address: TargetAddress,
    /// The trusted authorities, in PEM; the system's if unset.
    pub authority: Option<Vec<u8>>,
    /// The audiences of the token.
    pub audiences: Vec<String>,
    /// The ServiceAccount of the same namespace whose token is used, if the ConfigMap names one.
    pub service_account_name: Option<String>,
}

/// Reads a ConfigMap about another cluster.
///
/// # Errors
/// The missing, refused or unreadable keys, by name.
pub fn read_cluster_config(config_map: &Object) -> Result<ClusterConfig, String> {
    let data = config_map.view().find_map("/data");
    let find = |key: &str| {
        let found = data.and_then(|data| data.get(key)).and_then(Value::as_str);
        match found {
            Some(text) if text.len() > LONGEST => Err(format!("{key} is longer than {LONGEST} bytes")),
            found => Ok(found),
        }
    };
    match find("provider")? {
        Some(GENERIC) => {}
        None | Some("") => return Err(format!("provider is missing: it must be {GENERIC}")),
        Some(cloud) if OF_CLOUDS.contains(&cloud) => {
            return Err(format!(
                "provider: {cloud} is not supported yet: only {GENERIC} is, or a kubeconfig in a Secret that spec.kubeConfig.secretRef names"
            ));
        }
        Some(_) => return Err(format!("provider must be {GENERIC}")),
    }
    let address = find("address")?.unwrap_or_default();
    // As in Flux, the scheme is optional.
    let address = if address.is_empty() || address.contains("://") {
        read_address(address, "address")?
    } else {
        read_address(&format!("https://{address}"), "address")?
    };
    let audiences = read_audiences(find("audiences")?.unwrap_or_default())?;
    Ok(ClusterConfig {
        audiences: if audiences.is_empty() {
            vec![address.to_string()]
        } else {
            audiences
        },
        authority: find("ca.crt")?
            .filter(|text| !text.is_empty())
            .map(|text| text.as_bytes().to_vec()),
        service_account_name: find("serviceAccountName")?.map(str::to_owned),
        address,
    })
}

/// Reads the audiences, a list in YAML; empty text gives none.
fn read_audiences(text: &str) -> Result<Vec<String>, String> {
    let value = read_yaml(text.as_bytes()).map_err(|message| format!("audiences: {message}"))?;
    let wrong = || "audiences must be a list of texts in YAML, as in \"- https://cluster.example\"".to_owned();
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => {
            let texts = items.into_iter().map(|item| match item {
                Value::String(text) => Ok(text),
                _ => Err(wrong()),
            });
            texts.collect()
        }
        Some(_) => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(data: Value) -> Result<ClusterConfig, String> {
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c" }, "data": data });
        read_cluster_config(&Object(object))
    }

    #[test]
    fn cluster_configuration_is_read_as_in_flux() {
        let least = read(json!({ "provider": "generic", "address": "Cluster.example" })).unwrap();
        assert_eq!(least.address.to_string(), "https://cluster.example:443");
        assert_eq!(least.audiences, ["https://cluster.example:443"]);
        assert_eq!((least.authority, least.service_account_name), (None, None));
        let most = read(json!({
            "provider": "generic", "address": "https://[fd00::1]:6443/k8s/", "ca.crt": "PEM", "cluster": "not used by generic",
            "audiences": "- one\n- two\n", "serviceAccountName": "deployer",
        }))
        .unwrap();
        assert_eq!(
            (most.address.to_string().as_str(), most.address.path.as_str()),
            ("https://[fd00::1]:6443", "/k8s")
        );
        assert_eq!(most.audiences, ["one", "two"]);
        assert_eq!(most.authority.as_deref(), Some(&b"PEM"[..]));
        assert_eq!(most.service_account_name.as_deref(), Some("deployer"));
    }

    #[test]
    fn invalid_cluster_configuration_is_refused_by_field() {
        let with = |key: &str, value: &str| {
            let mut data = json!({ "provider": "generic", "address": "https://cluster.example" });
            data[key] = json!(value);
            read(data).unwrap_err()
        };
        for (key, value, expected) in [
            ("provider", "", "provider is missing"),
            ("provider", "aws", "provider: aws is not supported yet"),
            ("provider", "azure", "provider: azure is not supported yet"),
            ("provider", "gcp", "provider: gcp is not supported yet"),
            ("provider", "other", "provider must be generic"),
            ("address", "", "address is missing"),
            ("address", "http://cluster.example", "address must begin with https://"),
            ("address", "file:///etc/passwd", "address must begin with https://"),
            ("address", "https://a:b@cluster.example", "address is refused"),
            ("address", "cluster.example/../x", "address is not https://host:port"),
            ("audiences", "one", "must be a list"),
            ("audiences", "one: two", "must be a list"),
            ("audiences", "- 5", "must be a list"),
            ("audiences", "- &a [*a]", "audiences: "),
            ("audiences", "\t{", "audiences: "),
        ] {
            let refused = with(key, value);
            assert!(refused.contains(expected), "{key}: {value}: {refused}");
        }
        let long = "x".repeat(LONGEST + 1);
        assert!(with("ca.crt", &long).contains("longer than"));
    }
}
