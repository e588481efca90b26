//! The flags of the controllers, the same for all commands that run them. The module only reads the flags. Settings without a flag have the controllers' own defaults.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use tenure_api::DurationText;
use tenure_controllers::{
    ApartSettings, ApplySettings, Budgets, Config, EnabledKinds, Guards, LaneMode, LaneProgram, LaneServer,
    PackageSettings, ProcessSettings, RenderLimits, StageKind,
};
use tenure_sources::{Cidr, Endpoint, Policy};
use tenure_tenancy::{ExternalGrant, LEAST_INTERVAL, PodSecurityLevel, ReferenceGrant};

use super::address_flags::{parse_allowances, parse_ranges};
use super::budgets;
use super::lane_location::{self, LaneLocation, LaneRequirements};
use super::namespace_flags::{parse_default_accounts, parse_namespaces};
use super::package_flags;
use crate::failure::Failure;
use crate::logging;
use crate::quantity;
use crate::traces;

/// The quota of namespaces for a Tenant without one: enough for a large team, and few enough to cost the cluster little.
const DEFAULT_NAMESPACE_QUOTA: u32 = 100;
/// The largest value of the least interval. With more, users would see no effect of the controllers at all.
const LONGEST_LEAST_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Flags of the controllers: their rights and rules, and how much of the machine they may use.
#[derive(Debug, Args)]
#[group(id = "controllers")]
pub(crate) struct Flags {
    /// Controllers to run, separated by commas: `*` for all (the default), `-NAME` to switch one off.
    #[arg(
        long = "controllers",
        value_name = "NAMES",
        default_value = "*",
        value_parser = tenure_controllers::read_switches,
        allow_hyphen_values = true,
        hide_default_value = true
    )]
    switches: EnabledKinds,
    /// Where lanes run: the parts of the controllers that each work for one tenant [default: process for tenure up on Linux without --tls-cert-file, else task].
    #[arg(long, value_name = "WHERE", value_enum)]
    lanes: Option<LaneLocation>,
    /// Seconds for which a lane's process may be silent before the controllers end and restart it.
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600), hide = true)]
    lane_patience: u64,
    /// Let all sources, also those of tenants, reach exactly this address that is denied by default (loopback, link-local, private). Can be repeated.
    #[arg(long = "allow-source", value_name = "SCHEME://HOST:PORT")]
    allowed_sources: Vec<String>,
    /// Allow an address as with --allow-source, but only for sources of the platform namespace (tenure-system). Can be repeated.
    #[arg(long = "allow-platform-source", value_name = "SCHEME://HOST:PORT")]
    allowed_platform_sources: Vec<String>,
    /// Range of public addresses of the cluster: of its Pods, Services or nodes. No source reaches them, unless --allow-source or --allow-platform-source names
    /// the address. Can be repeated.
    #[arg(long = "cluster-range", value_name = "CIDR")]
    cluster_ranges: Vec<String>,
    /// ServiceAccount for Kustomizations of a namespace that name none; unset: `default`. In a tenant's home namespace, objects of Flux's own controllers act
    /// as it, too: HelmReleases, and Kustomizations if --controllers switches them off. Can be repeated.
    #[arg(long = "default-service-account", value_name = "NAMESPACE=NAME")]
    default_service_accounts: Vec<String>,
    /// Let Kustomizations and ArtifactGenerators refer to an object in another namespace, besides those of their own tenant. FROM is a namespace, tenant:NAME or
    /// `*`. KIND is GitRepository, OCIRepository, Bucket, ExternalArtifact or Kustomization. The last NAME may be *. Can be repeated.
    #[arg(long = "allow-reference", value_name = "FROM=NAMESPACE/KIND/NAME")]
    allowed_references: Vec<ReferenceGrant>,
    /// Use ExternalArtifacts of other controllers, if the address in their status is below URL, which ends with a slash. NAME may be *. An address in the
    /// cluster needs --allow-source, too. Can be repeated.
    #[arg(long = "allow-external-artifact", value_name = "NAMESPACE/NAME=URL")]
    allowed_external_artifacts: Vec<ExternalGrant>,
    /// Namespaces that never belong to a tenant, besides kube-*, default and tenure-system: names, or prefixes that end with *, separated by commas. The value
    /// replaces the default list.
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "flux-system,capsule-system,cozy-*"
    )]
    protected_namespaces: Vec<String>,
    /// Namespaces that owners can't create, besides those of common add-ons: names, or prefixes that end with *, separated by commas. An administrator may
    /// create them for a Tenant. A Tenant keeps the namespaces that it has already.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    reserved_namespaces: Vec<String>,
    /// Maximum number of namespaces of a Tenant without spec.namespaceOptions.quota; 0 for no limit. A Tenant keeps the namespaces that it has already.
    #[arg(long, value_name = "NUMBER", default_value_t = DEFAULT_NAMESPACE_QUOTA)]
    default_namespace_quota: u32,
    /// Minimum Pod Security level of namespaces of Tenants that set no level: privileged, baseline or restricted. The annotation tenure.dev/pod-security of a
    /// Tenant sets another level. Owners may choose a stricter level, but no weaker one.
    #[arg(long, value_name = "LEVEL", default_value = "baseline")]
    pod_security: PodSecurityLevel,
    /// Annotations of Ingresses to refuse if a Tenant limits hostnames, besides the known annotations that add hosts. Keys are separated by commas. A * at the
    /// beginning or the end stands for any text. A - before a known key allows it.
    #[arg(long, value_name = "KEY", value_delimiter = ',', allow_hyphen_values = true)]
    refused_ingress_annotations: Vec<String>,
    /// Enforce the tenancy rules by ValidatingAdmissionPolicies, and write the facts that they read on namespaces. `tenure install --policies` grants the
    /// rights. `tenure up` refuses the flag, since its API server checks all rules itself.
    #[arg(long)]
    policies: bool,
    #[command(flatten)]
    packages: package_flags::PackageFlags,
    /// Shortest interval for fetches and applies outside the platform namespace, from 1s to 24h. A shorter interval of a spec counts as this one.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_least_interval)]
    least_interval: Duration,
    /// Maximum number of bytes that one rendering makes in all. A rendering that needs more fails.
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = quantity::parse_bytes)]
    rendering_bytes: u64,
    /// Maximum number of bytes that all renderings at the same time make together. Other renderings wait.
    #[arg(long, value_name = "BYTES", default_value = "256MiB", value_parser = quantity::parse_bytes)]
    renderings_bytes: u64,
    /// Maximum number of steps that one rendering takes. A step takes some five nanoseconds.
    #[arg(long, value_name = "STEPS", default_value_t = RenderLimits::default().steps)]
    rendering_steps: u64,
    /// Refuse files that were changed after SOPS encrypted them. Unset: the controllers only report such files.
    #[arg(long)]
    sops_strict: bool,
    /// Address of a collector that takes OTLP over HTTP. The controllers send it a span for each attempt, and for each fetch, rendering, plan and round of
    /// requests in it.
    #[arg(long, value_name = "URL")]
    traces_endpoint: Option<String>,
    #[command(flatten)]
    guards: GuardFlags,
    #[command(flatten)]
    applying: ApplyFlags,
    #[command(flatten)]
    budgets: budgets::Flags,
}

/// The values of the controllers' flags.
#[derive(Debug)]
pub(crate) struct ControllerSettings {
    switches: EnabledKinds,
    lanes: Option<LaneLocation>,
    lane_patience: Duration,
    /// Addresses that all sources may reach although they are denied by default.
    allowed_sources: Vec<Endpoint>,
    /// Further addresses that sources of the platform namespace may reach.
    allowed_platform_sources: Vec<Endpoint>,
    /// Ranges that no source may reach although they look public.
    pub(crate) cluster_ranges: Vec<Cidr>,
    /// The accounts of Kustomizations without a ServiceAccount, by namespace.
    default_service_accounts: BTreeMap<String, String>,
    /// The allowed references to other namespaces.
    reference_grants: Vec<ReferenceGrant>,
    /// The artifacts of other controllers that are used.
    external_grants: Vec<ExternalGrant>,
    /// Protected namespaces: names, and prefixes that end in `*`.
    pub(crate) protected_namespaces: Vec<String>,
    /// Namespaces that no owner creates, besides those of common add-ons.
    reserved_namespaces: Vec<String>,
    /// The quota of namespaces for a Tenant without one.
    default_namespace_quota: u32,
    /// The weakest Pod Security level of tenants' namespaces.
    pod_security: PodSecurityLevel,
    /// Annotations of Ingresses that are refused, in addition to the known ones.
    refused_ingress_annotations: Vec<String>,
    /// Whether the controllers keep policies in force.
    policies: bool,
    /// The settings of Packages and PackageSources.
    pub(crate) packages: PackageSettings,
    least_interval: Duration,
    guards: Guards,
    applying: ApplySettings,
    strict_sops: bool,
    budgets: Budgets,
    rendering: RenderLimits,
    /// The endpoint for traces.
    traces_endpoint: Option<String>,
}

impl Flags {
    /// Whether each lane should have a Pod of its own.
    pub(crate) fn asks_for_lane_pods(&self) -> bool {
        self.lanes == Some(LaneLocation::Deployment)
    }

    /// Reads the values of the flags.
    pub(crate) fn read_settings(&self) -> Result<ControllerSettings, Failure> {
        if self.policies && !self.switches.is_on("Tenant") {
            return Err(Failure::usage(
                "--policies: the policies' facts follow from Tenants, and the controller tenant is off",
            )
            .hint("leave out --policies, or add tenant to --controllers"));
        }
        Ok(ControllerSettings {
            switches: self.switches.clone(),
            lanes: self.lanes,
            lane_patience: Duration::from_secs(self.lane_patience),
            allowed_sources: parse_allowances("--allow-source", &self.allowed_sources)?,
            allowed_platform_sources: parse_allowances("--allow-platform-source", &self.allowed_platform_sources)?,
            cluster_ranges: parse_ranges(&self.cluster_ranges)?,
            default_service_accounts: parse_default_accounts(&self.default_service_accounts)?,
            reference_grants: self.allowed_references.clone(),
            external_grants: self.allowed_external_artifacts.clone(),
            protected_namespaces: parse_namespaces("--protected-namespaces", &self.protected_namespaces)?,
            reserved_namespaces: parse_namespaces("--reserved-namespaces", &self.reserved_namespaces)?,
            default_namespace_quota: self.default_namespace_quota,
            pod_security: self.pod_security,
            refused_ingress_annotations: self.refused_ingress_annotations.clone(),
            policies: self.policies,
            packages: self.packages.read_settings()?,
            least_interval: self.least_interval,
            guards: self.guards.guards(),
            applying: self.applying.read_settings()?,
            traces_endpoint: self.traces_endpoint.clone(),
            strict_sops: self.sops_strict,
            budgets: self.budgets.budgets(),
            rendering: RenderLimits {
                bytes: self.rendering_bytes,
                steps: self.rendering_steps,
                all_bytes: self.renderings_bytes,
                ..RenderLimits::default()
            },
        })
    }
}

impl ControllerSettings {
    /// Returns the defaults with addresses that sources may reach.
    pub(crate) fn allow_sources(addresses: &[String]) -> Result<Self, Failure> {
        Ok(Self {
            allowed_sources: parse_allowances("--allow-source", addresses)?,
            ..Self::with_defaults(EnabledKinds::default(), None)
        })
    }

    /// Returns settings for Tenants alone, in this process: the controllers fetch nothing and apply nothing.
    pub(crate) fn only_tenants() -> Result<Self, Failure> {
        let switches = tenure_controllers::read_switches("tenant");
        let switches = switches.map_err(|error| Failure::internal(error.to_string()))?;
        Ok(Self::with_defaults(switches, Some(LaneLocation::Task)))
    }

    /// Returns the defaults for the enabled controllers.
    fn with_defaults(switches: EnabledKinds, lanes: Option<LaneLocation>) -> Self {
        Self {
            switches,
            lanes,
            lane_patience: Duration::from_secs(20),
            allowed_sources: Vec::new(),
            allowed_platform_sources: Vec::new(),
            cluster_ranges: Vec::new(),
            default_service_accounts: BTreeMap::new(),
            reference_grants: Vec::new(),
            external_grants: Vec::new(),
            protected_namespaces: tenure_tenancy::Settings::default().protected_namespaces,
            reserved_namespaces: Vec::new(),
            default_namespace_quota: DEFAULT_NAMESPACE_QUOTA,
            pod_security: PodSecurityLevel::Baseline,
            refused_ingress_annotations: Vec::new(),
            policies: false,
            packages: PackageSettings::default(),
            least_interval: LEAST_INTERVAL,
            guards: Guards::default(),
            applying: ApplySettings::default(),
            strict_sops: false,
            budgets: Budgets::default(),
            rendering: RenderLimits::default(),
            traces_endpoint: None,
        }
    }

    /// Starts to send traces, if an endpoint is set.
    pub(crate) fn start_traces(&self) -> Result<Option<traces::TraceSender>, Failure> {
        self.traces_endpoint.as_deref().map(traces::start).transpose()
    }

    /// Whether the controllers keep policies in force.
    pub(crate) fn has_policies(&self) -> bool {
        self.policies
    }

    /// Returns the enabled controllers.
    pub(crate) fn switches(&self) -> &EnabledKinds {
        &self.switches
    }

    /// Returns the bytes of memory and of disk that the controllers may use together.
    pub(crate) fn count_bytes(&self) -> (u64, u64) {
        let budgets = &self.budgets;
        let memory = [
            budgets.trees.all,
            budgets.fetches.all,
            budgets.object_memory.all,
            self.rendering.all_bytes,
        ];
        (memory.into_iter().fold(0, u64::saturating_add), budgets.archives.all)
    }

    /// Iterates over the addresses that some source may reach although they are denied by default. The boolean is true for all sources, and false for the platform's
    /// alone.
    pub(crate) fn list_allowed_sources(&self) -> impl Iterator<Item = (&Endpoint, bool)> {
        let for_all = self.allowed_sources.iter().map(|endpoint| (endpoint, true));
        let for_platform = self.allowed_platform_sources.iter();
        for_all.chain(for_platform.map(|endpoint| (endpoint, false)))
    }

    /// Returns the policy for sources of the platform namespace, and the policy for all others. Only the former may reach `besides`.
    fn write_policies(&self, besides: Vec<Endpoint>) -> (Policy, Policy) {
        let platform = Policy {
            allow: self
                .list_allowed_sources()
                .map(|(endpoint, _)| endpoint.clone())
                .chain(besides)
                .collect(),
            cluster: self.cluster_ranges.clone(),
        };
        let tenants = Policy {
            allow: self.allowed_sources.clone(),
            cluster: self.cluster_ranges.clone(),
        };
        (platform, tenants)
    }

    /// Decides where lanes run, and returns the text to report.
    pub(crate) fn settle_lanes(
        &mut self,
        default: LaneLocation,
        circumstances: LaneRequirements,
    ) -> Result<Option<&'static str>, Failure> {
        let (settled, note) = lane_location::choose_location(self.lanes, default, circumstances)?;
        self.lanes = Some(settled);
        Ok(note)
    }

    /// Whether each lane should have a Pod of its own.
    pub(crate) fn has_lane_pods(&self) -> bool {
        self.lanes == Some(LaneLocation::Deployment)
    }

    /// Returns the settings of a lane in a process of its own, which reaches the API server by `server`.
    pub(crate) fn write_apart(&self, server: LaneServer) -> ApartSettings {
        ApartSettings {
            server,
            patience: self.lane_patience,
            own_memory: LANE_MEMORY,
        }
    }

    /// Returns the mode of lanes on this machine, after the decision. A lane that is a process reaches the API server by `server`.
    pub(crate) fn write_lanes(&self, server: LaneServer) -> LaneMode {
        match self.lanes {
            None | Some(LaneLocation::Task | LaneLocation::Deployment) => LaneMode::Tasks,
            Some(LaneLocation::Process) => LaneMode::Processes(Box::new(ProcessSettings {
                program: describe_lane_program(),
                apart: self.write_apart(server),
            })),
        }
    }

    /// Returns tenancy's settings, for reconciliation and for admission.
    pub(crate) fn write_tenancy(&self) -> tenure_tenancy::Settings {
        tenure_tenancy::Settings {
            default_service_accounts: self.default_service_accounts.clone(),
            reference_grants: self.reference_grants.clone(),
            external_grants: self.external_grants.clone(),
            protected_namespaces: self.protected_namespaces.clone(),
            reserved_namespaces: self.reserved_namespaces.clone(),
            default_namespace_quota: self.default_namespace_quota,
            pod_security: self.pod_security,
            refused_ingress_annotations: self.refused_ingress_annotations.clone(),
            has_policies: self.policies,
            leaves_kustomizations: !self.switches.is_on("Kustomization"),
            least_interval: self.least_interval,
            ..tenure_tenancy::Settings::default()
        }
    }

    /// Writes the settings into the controllers' configuration. Only sources of the platform namespace may reach `besides`.
    pub(crate) fn set_into(self, config: &mut Config, besides: Vec<Endpoint>) {
        if self.traces_endpoint.is_some() {
            config.spans = Some(traces::take_from_lanes());
        }
        (config.platform_sources, config.tenant_sources) = self.write_policies(besides);
        config.settings = self.write_tenancy();
        config.enabled_kinds = self.switches;
        config.guards = self.guards;
        config.applying = self.applying;
        config.strict_sops = self.strict_sops;
        config.packages = self.packages;
        config.budgets = self.budgets;
        config.rendering = self.rendering;
    }
}

/// Reads the least interval between two reconciliations.
fn parse_least_interval(text: &str) -> Result<Duration, String> {
    let interval = DurationText::new(text).parse().map_err(|error| error.to_string())?;
    if !(LEAST_INTERVAL..=LONGEST_LEAST_INTERVAL).contains(&interval) {
        return Err("write a duration from 1s to 24h".to_owned());
    }
    Ok(interval)
}

/// Returns the program that a lane's process runs.
pub(crate) fn describe_lane_program() -> LaneProgram {
    LaneProgram {
        // The running program, even if another file has its name now.
        program: "/proc/self/exe".into(),
        name: "tenure".into(),
        arguments: vec!["lane".into()],
        environment: write_lane_environment(),
    }
}

/// The memory of a lane's process beyond its budgets: the program, its threads, and the data of its objects.
const LANE_MEMORY: u64 = 256 << 20;

/// Returns the environment of a lane's process. The environment holds no secret, since other users can read it.
fn write_lane_environment() -> Vec<(OsString, OsString)> {
    let mut environment = logging::write_environment();
    // The process takes memory only when it uses the memory, so a limit counts the use.
    environment.push(("MIMALLOC_ARENA_EAGER_COMMIT".into(), "0".into()));
    let named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].into_iter();
    // The working directory of a lane is its own folder, so relative paths would break.
    let absolute = |path: OsString| std::path::absolute(&path).map_or(path, Into::into);
    environment.extend(named.filter_map(|name| Some((name.into(), absolute(std::env::var_os(name)?)))));
    environment
}

/// Deletions that wait until an annotation allows them (see docs/reference/deletion.md).
#[derive(Debug, Args)]
struct GuardFlags {
    /// Stop a prune of more than this share of an inventory, in percent; 100 stops none.
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    guard_prune_percent: u8,
    /// Smallest number of objects for which --guard-prune-percent stops a prune. If the source or the path has no objects any more, a prune of any number
    /// stops, unless the percentage is 100.
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    guard_prune_objects: usize,
    /// Kinds whose objects are not pruned, recreated or deleted with their Kustomization until an annotation allows it, separated by commas; empty for none.
    /// `default` stands for claims, StatefulSets, databases and others that hold data (docs/reference/deletion.md).
    #[arg(long, value_name = "KIND[.GROUP],...", default_value = "default")]
    protected_kinds: String,
}

impl GuardFlags {
    fn guards(&self) -> Guards {
        let kinds = || self.protected_kinds.split(',').map(str::trim);
        let mut protected = Vec::new();
        if kinds().any(|kind| kind == "default") {
            protected = Guards::default().protected;
        }
        protected.extend(kinds().filter(|kind| !["", "default"].contains(kind)).map(Into::into));
        Guards {
            prune_percent: self.guard_prune_percent,
            prune_least: self.guard_prune_objects,
            protected,
        }
    }
}

/// Rules by which every Kustomization is applied (Flux's flags of the same names).
#[derive(Debug, Args)]
struct ApplyFlags {
    /// Kinds to apply before the rest, but after definitions, classes, roles and admission policies, separated by commas.
    #[arg(long, value_name = "[GROUP/]KIND,...", default_value = "")]
    custom_apply_stage_kinds: String,
    /// Field manager whose fields a Kustomization takes over, as it takes over kubectl's. The beginning of the name is enough. Can be repeated.
    #[arg(long = "override-manager", value_name = "NAME")]
    overridden_managers: Vec<String>,
}

impl ApplyFlags {
    fn read_settings(&self) -> Result<ApplySettings, Failure> {
        let kinds = self.custom_apply_stage_kinds.split(',').map(str::trim);
        let kinds = kinds.filter(|kind| !kind.is_empty());
        let parse = |kind: &str| {
            StageKind::try_from(kind.to_owned()).map_err(|error| {
                Failure::usage(format!("--custom-apply-stage-kinds: {error}"))
                    .hint("such as rbac.authorization.k8s.io/RoleBinding,ServiceAccount")
            })
        };
        if self.overridden_managers.iter().any(|name| name.trim().is_empty()) {
            return Err(
                Failure::usage("--override-manager: the name is empty, and would mean every manager")
                    .hint("name the field manager as in metadata.managedFields"),
            );
        }
        Ok(ApplySettings {
            custom_stage: kinds.map(parse).collect::<Result<_, _>>()?,
            overridden_managers: self.overridden_managers.iter().cloned().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        flags: GuardFlags,
    }

    #[test]
    fn flags_override_default_guards() {
        let guards = |flags: &[&str]| {
            let line = std::iter::once("up").chain(flags.iter().copied());
            Line::try_parse_from(line).expect("flags").flags.guards()
        };
        assert_eq!(guards(&[]), Guards::default());
        let none = guards(&["--guard-prune-percent", "100", "--protected-kinds", ""]);
        assert_eq!((none.prune_percent, none.protected.len()), (100, 0));
        let more = guards(&["--protected-kinds", "default, Thing.example.org"]).protected;
        assert_eq!(more.len(), Guards::default().protected.len() + 1);
        assert_eq!(guards(&["--protected-kinds=Thing"]).protected.len(), 1);
    }

    #[derive(clap::Parser)]
    struct ApplyLine {
        #[command(flatten)]
        flags: ApplyFlags,
    }

    #[test]
    fn settings_of_the_apply_are_read_or_refused() {
        let read = |flags: &[&str]| {
            let line = std::iter::once("up").chain(flags.iter().copied());
            ApplyLine::try_parse_from(line).expect("flags").flags.read_settings()
        };
        assert_eq!(read(&[]).expect("settings"), ApplySettings::default());
        let kinds = "ServiceAccount, rbac.authorization.k8s.io/RoleBinding,";
        let settings = read(&[
            "--custom-apply-stage-kinds",
            kinds,
            "--override-manager",
            "helm",
            "--override-manager=argocd",
        ]);
        let settings = settings.expect("settings");
        assert_eq!(
            (settings.custom_stage.len(), settings.overridden_managers.len()),
            (2, 2)
        );
        assert!(read(&["--custom-apply-stage-kinds", "a/b/c"]).is_err());
        assert!(read(&["--override-manager", ""]).is_err());
    }

    #[test]
    fn an_allowance_is_exact() {
        for (text, ok) in [
            ("http://127.0.0.1:3000", true),
            ("ssh://git.example", true),
            ("git.example", false),
            ("http://git.example/path", false),
        ] {
            assert_eq!(
                parse_allowances("--allow-source", &[text.to_owned()]).is_ok(),
                ok,
                "{text}"
            );
        }
    }

    #[derive(clap::Parser)]
    struct All {
        #[command(flatten)]
        flags: Flags,
    }

    fn read_policies(flags: &[&str]) -> Result<(Policy, Policy), Failure> {
        let line = std::iter::once("run").chain(flags.iter().copied());
        let settings = All::try_parse_from(line).expect("flags").flags.read_settings()?;
        Ok(settings.write_policies(Vec::new()))
    }

    #[test]
    fn platform_sources_are_closed_to_tenants() {
        let (ours, all): (Endpoint, Endpoint) =
            ("https://10.0.0.7".parse().unwrap(), "https://10.0.0.8".parse().unwrap());
        let (platform, tenants) = read_policies(&[
            "--allow-platform-source",
            "https://10.0.0.7",
            "--allow-source",
            "https://10.0.0.8",
            "--cluster-range",
            "203.1.0.0/16",
        ])
        .expect("settings");
        let (platform, tenants) = (&platform, &tenants);
        let check =
            |policy: &Policy, endpoint: &Endpoint| policy.check(endpoint, endpoint.host.parse().unwrap()).is_ok();
        assert_eq!((check(platform, &ours), check(tenants, &ours)), (true, false));
        assert_eq!((check(platform, &all), check(tenants, &all)), (true, true));
        let node: Endpoint = "https://203.1.4.2".parse().unwrap();
        assert_eq!((check(platform, &node), check(tenants, &node)), (false, false));
    }

    #[test]
    fn an_invalid_range_is_reported_with_its_flag() {
        let failure = read_policies(&["--cluster-range", "10.0.0.0/40"]).expect_err("a failure");
        assert!(failure.message.starts_with("--cluster-range: "), "{}", failure.message);
    }
}
