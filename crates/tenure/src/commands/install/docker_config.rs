//! The user's credentials for a registry, as container tools store them: in `config.json` of `DOCKER_CONFIG` or `~/.docker`, or in a program that this file names.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_sources::SecretData;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::failure::Failure;

/// The key of credentials in a Secret of type `kubernetes.io/dockerconfigjson`, which has the same form as the file.
const SECRET_KEY: &str = ".dockerconfigjson";
/// The name under which programs store the credentials for Docker Hub.
const DOCKER_HUB: &str = "https://index.docker.io/v1/";

/// Returns the credentials for a registry: none without a file.
pub(super) async fn read_credentials(registry: &str) -> Result<Vec<SecretData>, Failure> {
    let Some(file) = find_file() else {
        return Ok(Vec::new());
    };
    let text = match std::fs::read(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(refuse_file(&file, &error.to_string())),
    };
    // The parser's error could quote the text, so it is left out.
    let config: Value = serde_json::from_slice(&text).map_err(|_| refuse_file(&file, "it is no JSON"))?;
    let auths = match find_helper(&config, registry).map_err(|problem| refuse_file(&file, &problem))? {
        Some(helper) => match ask_helper(helper, registry).await? {
            Some(entry) => json!({ registry: entry }),
            None => read_auths(&config),
        },
        None => read_auths(&config),
    };
    let secret = json!({ "auths": auths }).to_string().into_bytes();
    Ok(vec![SecretData::from([(SECRET_KEY.to_owned(), secret)])])
}

fn find_file() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let folder = match named("DOCKER_CONFIG") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(&named("HOME")?).join(".docker"),
    };
    Some(folder.join("config.json"))
}

fn refuse_file(file: &Path, problem: &str) -> Failure {
    Failure::usage(format!("{}: {problem}", file.display()))
        .hint("repair the file, or name another folder: DOCKER_CONFIG=DIR")
}

/// Returns the entries of the file itself.
fn read_auths(config: &Value) -> Value {
    config
        .get("auths")
        .filter(|auths| auths.is_object())
        .cloned()
        .unwrap_or_else(|| json!({}))
}

/// Returns the name of the program with the credentials for a registry, if the file names one.
fn find_helper<'a>(config: &'a Value, registry: &str) -> Result<Option<&'a str>, String> {
    let own = config.get("credHelpers").and_then(|helpers| helpers.get(registry));
    let helper = own.or_else(|| config.get("credsStore")).and_then(Value::as_str);
    let Some(helper) = helper.filter(|helper| !helper.is_empty()) else {
        return Ok(None);
    };
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match helper.bytes().all(known) {
        true => Ok(Some(helper)),
        false => Err(format!(
            "it names a program for credentials that can't be one ({helper:?})"
        )),
    }
}

/// Asks a program for the credentials for a registry, as container tools do: the registry on its standard input, the answer as JSON.
async fn ask_helper(helper: &str, registry: &str) -> Result<Option<Value>, Failure> {
    let program = format!("docker-credential-{helper}");
    let failed = |problem: String| {
        Failure::environment(format!("{program} get: {problem}")).hint(format!(
            "docker login {registry} stores the credentials again, or name another configuration: DOCKER_CONFIG=DIR"
        ))
    };
    let server = match registry {
        "docker.io" | "index.docker.io" | "registry-1.docker.io" => DOCKER_HUB,
        other => other,
    };
    let mut child = Command::new(&program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    if let Some(mut input) = child.stdin.take() {
        // A program that reads nothing may still answer.
        let _already_ended = input.write_all(server.as_bytes()).await;
    }
    let output = child
        .wait_with_output()
        .await
        .map_err(|error| failed(error.to_string()))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        // The answer of all these programs for a registry without an entry.
        if printed.contains("credentials not found") {
            return Ok(None);
        }
        return Err(failed(output.status.to_string()));
    }
    read_helper_answer(&output.stdout)
        .map(Some)
        .ok_or_else(|| failed("its answer holds no Username and Secret".to_owned()))
}

/// Reads a program's answer as an entry of the file. A user called `<token>` has a token to get other tokens.
fn read_helper_answer(answer: &[u8]) -> Option<Value> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let view = ObjectView::new(&answer);
    match (view.read_text("/Username"), view.read_text("/Secret")) {
        (_, "") => None,
        ("<token>", token) => Some(json!({ "identitytoken": token })),
        (username, password) => Some(json!({ "username": username, "password": password })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registry_uses_own_or_default_credential_helper() {
        let config =
            json!({ "credsStore": "desktop", "credHelpers": { "reg.example:5000": "own", "none.example": "" } });
        for (registry, expected) in [
            ("reg.example:5000", Some("own")),
            ("ghcr.io", Some("desktop")),
            ("none.example", None),
        ] {
            assert_eq!(find_helper(&config, registry), Ok(expected), "{registry}");
        }
        assert_eq!(find_helper(&json!({ "auths": {} }), "ghcr.io"), Ok(None));
        assert!(find_helper(&json!({ "credsStore": "../sh" }), "ghcr.io").is_err());
    }

    #[test]
    fn a_programs_answer_is_a_password_or_a_token() {
        let read = |text: &str| read_helper_answer(text.as_bytes());
        assert_eq!(
            read(r#"{"ServerURL":"x","Username":"anna","Secret":"sesame"}"#),
            Some(json!({ "username": "anna", "password": "sesame" }))
        );
        assert_eq!(
            read(r#"{"Username":"<token>","Secret":"sesame"}"#),
            Some(json!({ "identitytoken": "sesame" }))
        );
        for text in ["", "[]", r#"{"Username":"anna"}"#, r#"{"Username":"anna","Secret":1}"#] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
