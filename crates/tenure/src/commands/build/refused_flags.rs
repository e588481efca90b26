//! Flags of `kustomize build` that make it run or fetch something. All of them are refused, each with its reason.

use clap::Args;

use crate::failure::Failure;

const RUNS: &str = "nothing is run during a build";

/// Flags of kustomize that are refused.
#[derive(Debug, Args)]
#[command(next_help_heading = "Known from kustomize build, and refused")]
pub(super) struct Refused {
    /// Refused: plugins are programs, and Tenure runs none. The built-in transformers and generators need no flag.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_alpha_plugins: Option<bool>,
    /// Refused: functions are programs, and Tenure runs none.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_exec: Option<bool>,
    /// Refused: Helm is a program, and Tenure does not run it.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_helm: Option<bool>,
    /// Refused: a setting for functions.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    network: Option<bool>,
    /// Refused: a setting for functions.
    #[arg(long, value_name = "NAME")]
    network_name: Option<String>,
    /// Refused: a setting for functions.
    #[arg(long, value_name = "STORAGE")]
    mount: Vec<String>,
    /// Refused: a setting for functions.
    #[arg(short, long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Refused: a setting for Helm.
    #[arg(long, value_name = "FILE")]
    helm_command: Option<String>,
    /// Refused: a setting for Helm.
    #[arg(long, value_name = "VERSION")]
    helm_api_versions: Vec<String>,
    /// Refused: a setting for Helm.
    #[arg(long, value_name = "VERSION")]
    helm_kube_version: Option<String>,
    /// Refused: a setting for Helm.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    helm_debug: Option<bool>,
}

impl Refused {
    /// Refuses the first of these flags that is set.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let on = |flag: &Option<bool>| *flag == Some(true);
        let plugins =
            "the built-in generators and transformers need no flag; run others beforehand and commit what they write";
        let functions = "run the function beforehand, or with `kustomize build`, and commit what it writes";
        let helm = "render the chart with `helm template`, commit the result and list it under resources";
        let given = [
            (on(&self.enable_alpha_plugins), "enable-alpha-plugins", plugins),
            (on(&self.enable_exec), "enable-exec", functions),
            (on(&self.network), "network", functions),
            (self.network_name.is_some(), "network-name", functions),
            (!self.mount.is_empty(), "mount", functions),
            (!self.env.is_empty(), "env", functions),
            (on(&self.enable_helm), "enable-helm", helm),
            (self.helm_command.is_some(), "helm-command", helm),
            (!self.helm_api_versions.is_empty(), "helm-api-versions", helm),
            (self.helm_kube_version.is_some(), "helm-kube-version", helm),
            (on(&self.helm_debug), "helm-debug", helm),
        ];
        match given.iter().find(|(given, ..)| *given) {
            None => Ok(()),
            Some((_, flag, instead)) => Err(Failure::usage(format!("--{flag} is refused: {RUNS}")).hint(*instead)),
        }
    }
}
