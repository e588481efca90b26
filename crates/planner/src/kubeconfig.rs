//! A kubeconfig as a target: the cluster and the user of its current context, and nothing else of it.
//!
//! Any writer of the Secret chooses every word of it, and a shared program reads it. So the kubeconfig must contain everything that it needs, and may only say where to
//! connect and with which credentials. A file, a program, a proxy, another identity or an unverified connection is refused by the name of its field. No error repeats
//! any content, not even a wrong one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use go_yaml::meter::{self, Allowance};
use go_yaml::read::{Lines, Source, first_document};
use go_yaml::scalar::Dialect;
use serde_json::Value;
use tenure_api::ObjectView;
use zeroize::Zeroizing;

use crate::target::{Target, TargetAddress, TargetCredentials};

/// The longest kubeconfig; the files of clouds' tools take a tenth of it.
pub const LONGEST: usize = 256 << 10;
/// The most YAML nodes of a kubeconfig after aliases are expanded.
const MOST_NODES: usize = 20_000;
/// The bounds for parsing the YAML.
const ALLOWANCE: Allowance = Allowance {
    bytes: 16 << 20,
    steps: 16 << 20,
};
/// The longest token, password or user name.
const LONGEST_CREDENTIAL: usize = 64 << 10;
/// The longest host name, and the longest path.
const LONGEST_NAME: usize = 253;

/// The refused fields of a cluster entry, each with the reason and the remedy.
const OF_CLUSTER: [(&str, &str); 2] = [
    (
        "certificate-authority",
        "it names a file of the machine that the controller runs on; use certificate-authority-data",
    ),
    ("proxy-url", "no proxy is used: connect to the API server itself"),
];
/// The refused fields of a user entry, each with the reason and the remedy.
const OF_USER: [(&str, &str); 9] = [
    ("exec", "no program is run; use a token or a client certificate"),
    (
        "auth-provider",
        "no provider's plug-in is run; use a token or a client certificate",
    ),
    (
        "tokenFile",
        "it names a file of the machine that the controller runs on; use token",
    ),
    (
        "client-certificate",
        "it names a file of the machine that the controller runs on; use client-certificate-data",
    ),
    (
        "client-key",
        "it names a file of the machine that the controller runs on; use client-key-data",
    ),
    ("as", AS),
    ("as-uid", AS),
    ("as-groups", AS),
    ("as-user-extra", AS),
];
const AS: &str = "a kubeconfig can't impersonate; name a ServiceAccount of that cluster in spec.serviceAccountName";

/// Reads a kubeconfig.
///
/// # Errors
/// The refused or unreadable fields, by name, without their content.
pub fn read_kubeconfig(text: &[u8], impersonated: Option<String>) -> Result<Target, String> {
    let config = parse(text)?;
    let config = ObjectView::new(&config);
    let current = config.read_text("/current-context");
    if current.is_empty() {
        return Err("it has no current-context".to_owned());
    }
    let context = find_named(config, "contexts", "context", current)
        .ok_or("its current-context names a context that it doesn't have")?;
    let context = ObjectView::new(context);
    let cluster = find_named(config, "clusters", "cluster", context.read_text("/cluster"))
        .ok_or("its current context names a cluster that it doesn't have")?;
    let user = find_named(config, "users", "user", context.read_text("/user"))
        .ok_or("its current context names a user that it doesn't have")?;
    refuse_set(cluster, &OF_CLUSTER, "cluster")?;
    refuse_set(user, &OF_USER, "user")?;
    if cluster
        .get("insecure-skip-tls-verify")
        .is_some_and(|skips| !is_zero_value(skips))
    {
        return Err(
            "cluster.insecure-skip-tls-verify is refused: the server is always verified; use certificate-authority-data".to_owned(),
        );
    }
    let server_name = take_text(cluster, "tls-server-name", "cluster")?;
    if server_name.as_deref().is_some_and(|name| !is_host(name)) {
        return Err("cluster.tls-server-name is not a host name".to_owned());
    }
    let target = Target {
        address: read_address(
            take_text(cluster, "server", "cluster")?
                .as_deref()
                .map_or("", String::as_str),
            "cluster.server",
        )?,
        server_name: server_name.map(|name| name.to_string()),
        authority: take_data(cluster, "certificate-authority-data", "cluster")?.map(|data| data.to_vec()),
        credentials: read_credentials(user)?,
        impersonated,
    };
    Ok(target)
}

fn parse(text: &[u8]) -> Result<Value, String> {
    match read_yaml(text)? {
        Some(value) if value.is_object() => Ok(value),
        _ => Err("it is not a kubeconfig".to_owned()),
    }
}

/// Reads YAML of an untrusted author within bounds; errors quote none of it.
pub(crate) fn read_yaml(text: &[u8]) -> Result<Option<Value>, String> {
    if text.len() > LONGEST {
        return Err(format!("it is longer than {LONGEST} bytes"));
    }
    let text = std::str::from_utf8(text).map_err(|_| "it is not UTF-8")?;
    let _metering = meter::start_metering(ALLOWANCE, None);
    let source = Source {
        file: 0,
        lines: Lines::After(0),
        maximum_nodes: MOST_NODES,
        scanner: Dialect::V2,
    };
    // A parser's message can quote the place of the error.
    let node = first_document(text, source).map_err(|error| format!("line {} can't be read as YAML", error.line))?;
    let value = node.map(|node| go_yaml::json::inner_value(&node)).transpose();
    value.map_err(|_| "it can't be read as YAML: a key appears twice, or is not a text".to_owned())
}

/// Finds the first entry of a named list by its name, as kubectl does. Returns the entry's value below `key`.
fn find_named<'a>(config: ObjectView<'a>, list: &str, key: &str, name: &str) -> Option<&'a Value> {
    let entries = config.find(&format!("/{list}")).and_then(Value::as_array)?;
    let named = entries
        .iter()
        .find(|entry| entry.get("name").and_then(Value::as_str) == Some(name))?;
    named.get(key).filter(|found| found.is_object())
}

/// Checks whether a field has a zero value: null, false, or an empty text, list or map. Such a field counts as unset.
fn is_zero_value(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

/// Refuses the first of these fields that is set in `part`, with its reason. `of`: the name of the part in messages.
fn refuse_set(part: &Value, fields: &[(&str, &str)], of: &str) -> Result<(), String> {
    let set = fields
        .iter()
        .find(|(field, _)| part.get(*field).is_some_and(|value| !is_zero_value(value)));
    match set {
        Some((field, why)) => Err(format!("{of}.{field} is refused: {why}")),
        None => Ok(()),
    }
}

/// Reads an optional text field, which may hold a credential.
fn take_text(part: &Value, field: &str, of: &str) -> Result<Option<Zeroizing<String>>, String> {
    match part.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.len() > LONGEST_CREDENTIAL => {
            Err(format!("{of}.{field} is longer than {LONGEST_CREDENTIAL} bytes"))
        }
        Some(Value::String(text)) => Ok(Some(Zeroizing::new(text.clone())).filter(|text| !text.is_empty())),
        Some(_) => Err(format!("{of}.{field} is not a text")),
    }
}

/// Reads an optional field with base64 data.
fn take_data(part: &Value, field: &str, of: &str) -> Result<Option<Zeroizing<Vec<u8>>>, String> {
    let Some(text) = part.get(field).filter(|value| !is_zero_value(value)) else {
        return Ok(None);
    };
    let Some(text) = text.as_str() else {
        return Err(format!("{of}.{field} is not a text"));
    };
    // Some tools break base64 into lines.
    let text: Zeroizing<String> = Zeroizing::new(text.split_ascii_whitespace().collect());
    match STANDARD.decode(text.as_bytes()) {
        Ok(data) => Ok(Some(Zeroizing::new(data))),
        Err(_) => Err(format!("{of}.{field} is not base64")),
    }
}

fn read_credentials(user: &Value) -> Result<TargetCredentials, String> {
    let take = |field: &str| take_text(user, field, "user");
    let certificate = take_data(user, "client-certificate-data", "user")?;
    let key = take_data(user, "client-key-data", "user")?;
    let certificate = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate.to_vec(), key)),
        (None, None) => None,
        (Some(_), None) => return Err("user.client-certificate-data needs user.client-key-data".to_owned()),
        (None, Some(_)) => return Err("user.client-key-data needs user.client-certificate-data".to_owned()),
    };
    let basic = match (take("username")?, take("password")?) {
        (Some(user), Some(password)) => Some((user.to_string(), password)),
        (None, None) => None,
        _ => return Err("user.username and user.password need each other".to_owned()),
    };
    let token = take("token")?;
    if token.is_some() && basic.is_some() {
        return Err("user.token and user.password are both set: one of them proves who asks".to_owned());
    }
    let is_header = |text: &str| text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if !token.iter().all(|token| is_header(token)) {
        return Err("user.token has characters that no token has, as a line break".to_owned());
    }
    if basic.as_ref().is_some_and(|(user, _)| user.contains(':')) {
        return Err("user.username has a colon in it".to_owned());
    }
    let credentials = TargetCredentials {
        token,
        basic,
        certificate,
        ordered: None,
    };
    if credentials.is_empty() {
        return Err("its user has neither a token, nor a client certificate, nor a password".to_owned());
    }
    Ok(credentials)
}

fn is_host(host: &str) -> bool {
    let is_known = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_' | ':');
    !host.is_empty() && host.len() <= LONGEST_NAME && !host.starts_with('-') && host.chars().all(is_known)
}

/// Reads the parts of the address of an API server; `field` names its field.
pub(crate) fn read_address(server: &str, field: &str) -> Result<TargetAddress, String> {
    if server.is_empty() {
        return Err(format!("{field} is missing"));
    }
    let Some((scheme, rest)) = server.split_once("://") else {
        return Err(format!("{field} must begin with https://"));
    };
    if !scheme.eq_ignore_ascii_case("https") {
        return Err(format!(
            "{field} must begin with https://: others must not read the requests on the way"
        ));
    }
    let (authority, path) = match rest.split_once('/') {
        Some((authority, path)) => (authority, path),
        None => (rest, ""),
    };
    if authority.contains('@') {
        return Err(format!(
            "{field} is refused: it has a user or a password in it; they don't belong there"
        ));
    }
    let wrong = || format!("{field} is not https://host:port");
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => (host, port),
        None => match authority.split_once(':') {
            Some((host, _)) => (host, authority.get(host.len()..).unwrap_or_default()),
            None => (authority, ""),
        },
    };
    let port = match port {
        "" => 443,
        port => port
            .strip_prefix(':')
            .and_then(|port| port.parse().ok())
            .ok_or_else(wrong)?,
    };
    let path = path.trim_end_matches('/');
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '/' | '.' | '-' | '_' | '~' | ':');
    let is_dots = |part: &str| part.is_empty() || part == "." || part == "..";
    let is_path = path.is_empty() || (path.chars().all(is_plain) && !path.split('/').any(is_dots));
    if !is_host(host) || port == 0 || path.len() > LONGEST_NAME || !is_path {
        return Err(wrong());
    }
    Ok(TargetAddress {
        host: host.to_ascii_lowercase(),
        port,
        path: if path.is_empty() {
            String::new()
        } else {
            format!("/{path}")
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns a kubeconfig with this laid over its cluster and its user.
    fn config(cluster: Value, user: Value) -> String {
        let mut whole = json!({
            "current-context": "here",
            "contexts": [
                { "name": "there", "context": { "cluster": "other", "user": "other" } },
                { "name": "here", "context": { "cluster": "own", "user": "me" } },
            ],
            "clusters": [
                { "name": "other", "cluster": { "server": "http://127.0.0.1", "certificate-authority": "/etc/passwd" } },
                { "name": "own", "cluster": { "server": "https://Cluster.example:6443/k8s/c-1/" } },
            ],
            "users": [
                { "name": "other", "user": { "exec": { "command": "id" } } },
                { "name": "me", "user": { "token": "hunter2" } },
            ],
        });
        let lay = |part: &mut Value, over: Value| {
            for (key, value) in over.as_object().unwrap() {
                part[key] = value.clone();
            }
        };
        lay(&mut whole["clusters"][1]["cluster"], cluster);
        lay(&mut whole["users"][1]["user"], user);
        whole.to_string()
    }

    fn read(cluster: Value, user: Value) -> Result<Target, String> {
        read_kubeconfig(config(cluster, user).as_bytes(), None)
    }

    #[test]
    fn only_what_the_current_context_names_is_read() {
        let target = read(json!({}), json!({})).unwrap();
        assert_eq!(target.address.host, "cluster.example");
        assert_eq!((target.address.port, target.address.path.as_str()), (6443, "/k8s/c-1"));
        assert_eq!(target.credentials.token.as_ref().unwrap().as_str(), "hunter2");
        assert_eq!(target.to_string(), "https://cluster.example:6443");
        let message = format!(
            "{target:?} {:?} {:?} {}",
            target.key(),
            target.credentials,
            serde_json::to_string(&target).unwrap()
        );
        assert!(!message.contains("hunter2") && !message.contains("c-1"), "{message}");
    }

    #[test]
    fn unsafe_kubeconfig_fields_are_refused_by_name() {
        let data = STANDARD.encode("x");
        let cases = [
            (
                json!({ "certificate-authority": "/canary" }),
                json!({}),
                "cluster.certificate-authority is refused",
            ),
            (
                json!({ "proxy-url": "http://canary" }),
                json!({}),
                "cluster.proxy-url is refused",
            ),
            (
                json!({ "insecure-skip-tls-verify": true }),
                json!({}),
                "cluster.insecure-skip-tls-verify is refused",
            ),
            (
                json!({ "insecure-skip-tls-verify": "true" }),
                json!({}),
                "cluster.insecure-skip-tls-verify is refused",
            ),
            (
                json!({}),
                json!({ "exec": { "command": "canary" } }),
                "user.exec is refused",
            ),
            (
                json!({}),
                json!({ "auth-provider": { "name": "canary" } }),
                "user.auth-provider is refused",
            ),
            (
                json!({}),
                json!({ "tokenFile": "/canary" }),
                "user.tokenFile is refused",
            ),
            (
                json!({}),
                json!({ "client-certificate": "/canary" }),
                "user.client-certificate is refused",
            ),
            (
                json!({}),
                json!({ "client-key": "/canary" }),
                "user.client-key is refused",
            ),
            (json!({}), json!({ "as": "canary" }), "user.as is refused"),
            (
                json!({}),
                json!({ "as-groups": ["canary"] }),
                "user.as-groups is refused",
            ),
            (json!({}), json!({ "as-uid": "canary" }), "user.as-uid is refused"),
            (
                json!({}),
                json!({ "as-user-extra": { "canary": ["a"] } }),
                "user.as-user-extra is refused",
            ),
            (
                json!({ "server": "http://canary" }),
                json!({}),
                "must begin with https://",
            ),
            (
                json!({ "server": "canary:6443" }),
                json!({}),
                "must begin with https://",
            ),
            (
                json!({ "server": "https://canary:canary@host" }),
                json!({}),
                "has a user or a password in it",
            ),
            (
                json!({ "server": "https://canary?x" }),
                json!({}),
                "not https://host:port",
            ),
            (
                json!({ "server": "https://host/canary/../x" }),
                json!({}),
                "not https://host:port",
            ),
            (
                json!({ "server": "https://host/canary%2e" }),
                json!({}),
                "not https://host:port",
            ),
            (
                json!({ "server": "https://ho\nst" }),
                json!({}),
                "not https://host:port",
            ),
            (
                json!({ "server": "https://host:0" }),
                json!({}),
                "not https://host:port",
            ),
            (json!({ "server": "https://" }), json!({}), "not https://host:port"),
            (json!({ "server": null }), json!({}), "cluster.server is missing"),
            (json!({ "server": 5 }), json!({}), "cluster.server is not a text"),
            (
                json!({ "tls-server-name": "a canary" }),
                json!({}),
                "cluster.tls-server-name",
            ),
            (
                json!({ "certificate-authority-data": "canary!" }),
                json!({}),
                "certificate-authority-data is not base64",
            ),
            (json!({}), json!({ "token": "canary\nx" }), "user.token has characters"),
            (json!({}), json!({ "token": 5 }), "user.token is not a text"),
            (json!({}), json!({ "token": "" }), "neither a token"),
            (
                json!({}),
                json!({ "username": "canary", "password": "canary" }),
                "both set",
            ),
            (json!({}), json!({ "username": "canary" }), "need each other"),
            (
                json!({}),
                json!({ "client-certificate-data": data }),
                "needs user.client-key-data",
            ),
        ];
        for (cluster, user, expected) in cases {
            let error = read(cluster.clone(), user.clone()).unwrap_err();
            assert!(error.contains(expected), "{cluster} {user}: {error}");
            assert!(!error.contains("canary"), "{error}");
        }
        // Empty values count as unset, as the tools write them.
        let silent = json!({ "exec": null, "tokenFile": "", "as-groups": [], "as-user-extra": {} });
        read(json!({ "insecure-skip-tls-verify": false, "proxy-url": "" }), silent).unwrap();
    }

    #[test]
    fn invalid_kubeconfigs_are_reported_without_their_values() {
        let read = |text: &str| read_kubeconfig(text.as_bytes(), None).unwrap_err();
        for (text, expected) in [
            ("", "not a kubeconfig"),
            ("[canary]", "not a kubeconfig"),
            ("a: 1\nb: [canary", "can't be read as YAML"),
            ("a: 1\na: canary\n", "can't be read as YAML"),
            ("clusters: []", "no current-context"),
            ("current-context: canary", "a context that it doesn't have"),
        ] {
            let error = read(text);
            assert!(
                error.contains(expected) && !error.contains("canary"),
                "{text:?}: {error}"
            );
        }
        let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
                    d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n";
        assert!(read(bomb).contains("can't be read as YAML"), "{}", read(bomb));
        assert!(read(&"#".repeat(LONGEST + 1)).contains("longer than"));
    }

    #[test]
    fn cluster_is_identified_by_address_and_authority() {
        let ca = |text: &str| json!({ "certificate-authority-data": STANDARD.encode(text) });
        let one = read(ca("A\n"), json!({})).unwrap();
        let rotated = read(ca("A"), json!({ "token": "other" })).unwrap();
        assert_eq!(one.cluster(), rotated.cluster());
        assert_ne!(one.key(), rotated.key());
        assert_ne!(one.cluster(), read(ca("B"), json!({})).unwrap().cluster());
        let elsewhere = json!({ "server": "https://cluster.example:6444/k8s/c-1" });
        assert_ne!(
            read(json!({}), json!({})).unwrap().cluster(),
            read(elsewhere, json!({})).unwrap().cluster()
        );
        let impersonating = read_kubeconfig(config(ca("A\n"), json!({})).as_bytes(), Some("x".to_owned())).unwrap();
        assert_eq!(impersonating.cluster(), one.cluster());
        assert_ne!(impersonating.key(), one.key());
    }
}
