//! The flags of the controllers, the same wherever they run. Owns their names and what they are read as; refuses to choose more than the
//! controllers' own defaults do.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use tenure_api::DurationText;
use tenure_controllers::{
    ApartSettings, ApplySettings, Budgets, Config, Guards, LaneMode, LaneProgram, LaneServer, ProcessSettings,
    RenderLimits, StageKind, Switches,
};
use tenure_sources::{Cidr, Endpoint, Policy};
use tenure_tenancy::{ExternalGrant, LEAST_INTERVAL, PodSecurityLevel, ReferenceGrant};

use super::address_flags::{parse_allowances, parse_ranges};
use super::budgets;
use super::lane_place::{self, Circumstances, WhereLanesRun};
use super::namespace_flags::{parse_default_accounts, parse_namespaces};
use crate::failure::Failure;
use crate::logging;
use crate::quantity;
#[cfg(feature = "traces")]
use crate::traces;

/// How many namespaces a Tenant may have that doesn't say: as many as a large team has, and as few as cost nobody anything.
const DEFAULT_NAMESPACE_QUOTA: u32 = 100;
/// What can be set as the least interval at most: with more, nobody would see that anything is done at all.
const LONGEST_LEAST_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// What the controllers may do, and how much of the machine they may take.
#[derive(Debug, Args)]
#[group(id = "controllers")]
pub(crate) struct Flags {
    /// Which controllers run, with commas between them: `*` for all, `-NAME` for one that is off.
    #[arg(
        long = "controllers",
        value_name = "NAMES",
        default_value = "*",
        value_parser = tenure_controllers::read_switches,
        allow_hyphen_values = true,
        hide_default_value = true
    )]
    switches: Switches,
    /// Where lanes run: each tenant's in a process of its own that can do little else (Linux; the default of tenure up), all as tasks of
    /// this process (the default of tenure run), or each in a Pod of its own, by a Deployment that the controllers write (tenure run).
    #[arg(long, value_name = "WHERE", value_enum)]
    lanes: Option<WhereLanesRun>,
    /// How long the process of a lane may be silent before it is ended and started again.
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600), hide = true)]
    lane_patience: u64,
    /// Allow sources, also those of tenants, to reach an address that is denied by default (loopback, link-local, private): exactly this
    /// scheme, host and port.
    #[arg(long = "allow-source", value_name = "SCHEME://HOST:PORT")]
    allowed_sources: Vec<String>,
    /// The same for sources of the platform namespace alone.
    #[arg(long = "allow-platform-source", value_name = "SCHEME://HOST:PORT")]
    allowed_platform_sources: Vec<String>,
    /// Addresses of the cluster (its Pods, Services and nodes) where they are not private ones: no source reaches them unless it is allowed
    /// by name.
    #[arg(long = "cluster-range", value_name = "CIDR")]
    cluster_ranges: Vec<String>,
    /// The ServiceAccount that Kustomizations of a namespace act as when they name none; `default` where nothing is set. In a tenant's home
    /// namespace it is also who acts for what Flux's own controllers reconcile there: HelmReleases, and Kustomizations where they are off here.
    #[arg(long = "default-service-account", value_name = "NAMESPACE=NAME")]
    default_service_accounts: Vec<String>,
    /// Let Kustomizations refer to something in another namespace, besides those of their own tenant: FROM is a namespace, tenant:NAME or *,
    /// KIND is GitRepository, OCIRepository, Bucket, ExternalArtifact or Kustomization, and the last NAME may be *.
    #[arg(long = "allow-reference", value_name = "FROM=NAMESPACE/KIND/NAME")]
    allowed_references: Vec<ReferenceGrant>,
    /// Use ExternalArtifacts that other controllers make, which their status names, as far as they are at an address below URL; NAME may be *.
    /// The address is reached as a source's: one of the cluster needs --allow-source, too.
    #[arg(long = "allow-external-artifact", value_name = "NAMESPACE/NAME=URL")]
    allowed_external_artifacts: Vec<ExternalGrant>,
    /// Namespaces that no tenant gets, besides kube-*, default and tenure-system: names, or beginnings of names with a * behind. Said, it takes the
    /// place of what is protected otherwise.
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "flux-system,capsule-system,cozy-*"
    )]
    protected_namespaces: Vec<String>,
    /// Namespaces that no owner creates, besides those of common add-ons: names, or beginnings of names with a * behind. An administrator may
    /// create them for a Tenant, and what a Tenant has already stays.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    reserved_namespaces: Vec<String>,
    /// How many namespaces a Tenant may have whose spec.namespaceOptions.quota is not set; 0 is no bound. What a Tenant has already stays.
    #[arg(long, value_name = "NUMBER", default_value_t = DEFAULT_NAMESPACE_QUOTA)]
    default_namespace_quota: u32,
    /// The Pod Security level that namespaces of Tenants have at least: privileged, baseline or restricted. The annotation tenure.dev/pod-security of a
    /// Tenant says another one. Owners may choose a stricter level, and never a weaker one.
    #[arg(long, value_name = "LEVEL", default_value = "baseline")]
    pod_security: PodSecurityLevel,
    /// Annotations of Ingresses that are refused where a Tenant bounds hostnames, besides those that are known to add hosts: a * at the beginning or the
    /// end stands for anything. With a - before it, one of those is allowed.
    #[arg(long, value_name = "KEY", value_delimiter = ',', allow_hyphen_values = true)]
    refused_ingress_annotations: Vec<String>,
    /// Keep tenancy's rules in force as ValidatingAdmissionPolicies, and write on namespaces what they read. `tenure install --policies` gives
    /// the rights for it.
    #[arg(long)]
    policies: bool,
    /// How often at most what lives outside the platform namespace is fetched and applied again by itself: a shorter interval of a spec counts
    /// as this one.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_least_interval)]
    least_interval: Duration,
    /// What one rendering may make all together before it is given up.
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = quantity::parse_bytes)]
    rendering_bytes: u64,
    /// What all renderings that run at the same time may make together; others wait.
    #[arg(long, value_name = "BYTES", default_value = "256MiB", value_parser = quantity::parse_bytes)]
    renderings_bytes: u64,
    /// How many steps one rendering may take, of some five nanoseconds each.
    #[arg(long, value_name = "STEPS", default_value_t = RenderLimits::default().steps)]
    rendering_steps: u64,
    /// Refuse files that were changed after SOPS had encrypted them, instead of only saying so.
    #[arg(long)]
    sops_strict: bool,
    /// Send a span for each attempt, and each fetch, rendering, plan and round of requests in it, to a collector that takes OTLP over HTTP here.
    #[cfg(feature = "traces")]
    #[arg(long, value_name = "URL")]
    traces_endpoint: Option<String>,
    #[command(flatten)]
    guards: GuardFlags,
    #[command(flatten)]
    applying: ApplyFlags,
    #[command(flatten)]
    budgets: budgets::Flags,
}

/// What the flags of the controllers say.
#[derive(Debug)]
pub(crate) struct ControllerSettings {
    switches: Switches,
    lanes: Option<WhereLanesRun>,
    lane_patience: Duration,
    /// What all sources may reach although it is denied by default.
    allowed_sources: Vec<Endpoint>,
    /// What sources of the platform namespace may reach besides.
    allowed_platform_sources: Vec<Endpoint>,
    /// What no source may reach although it looks public.
    pub(crate) cluster_ranges: Vec<Cidr>,
    /// Who Kustomizations that name nobody act as, by namespace.
    default_service_accounts: BTreeMap<String, String>,
    /// Which references to other namespaces are allowed.
    reference_grants: Vec<ReferenceGrant>,
    /// Which artifacts of other controllers are used.
    external_grants: Vec<ExternalGrant>,
    /// Protected namespaces: names, and prefixes that end in `*`.
    pub(crate) protected_namespaces: Vec<String>,
    /// Namespaces that no owner creates, besides those of common add-ons.
    reserved_namespaces: Vec<String>,
    /// How many namespaces a Tenant may have that doesn't say.
    default_namespace_quota: u32,
    /// The weakest Pod Security level of tenants' namespaces.
    pod_security: PodSecurityLevel,
    /// Annotations of Ingresses that are refused besides the known ones.
    refused_ingress_annotations: Vec<String>,
    /// Whether policies are kept in force.
    policies: bool,
    least_interval: Duration,
    guards: Guards,
    applying: ApplySettings,
    strict_sops: bool,
    budgets: Budgets,
    rendering: RenderLimits,
    /// Where traces go.
    #[cfg(feature = "traces")]
    traces_endpoint: Option<String>,
}

impl Flags {
    /// Whether each lane is to have a Pod of its own.
    pub(crate) fn asks_for_lane_pods(&self) -> bool {
        self.lanes == Some(WhereLanesRun::Deployment)
    }

    /// Reads what is written in them.
    pub(crate) fn read_settings(&self) -> Result<ControllerSettings, Failure> {
        if self.policies && !self.switches.is_on("Tenant") {
            return Err(Failure::usage(
                "--policies: what policies read follows from Tenants, which are switched off here",
            )
            .hint("leave out --policies, or let --controllers have Tenant"));
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
            least_interval: self.least_interval,
            guards: self.guards.guards(),
            applying: self.applying.read_settings()?,
            #[cfg(feature = "traces")]
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
    /// Nothing but the defaults, and addresses that sources may reach.
    pub(crate) fn allow_sources(addresses: &[String]) -> Result<Self, Failure> {
        Ok(Self {
            allowed_sources: parse_allowances("--allow-source", addresses)?,
            ..Self::of(Switches::default(), None)
        })
    }

    /// Tenants alone, in this process: nothing is fetched and nothing is applied.
    pub(crate) fn only_tenants() -> Result<Self, Failure> {
        let switches = tenure_controllers::read_switches("tenant");
        let switches = switches.map_err(|error| Failure::internal(error.to_string()))?;
        Ok(Self::of(switches, Some(WhereLanesRun::Task)))
    }

    /// The defaults for the controllers that are on.
    fn of(switches: Switches, lanes: Option<WhereLanesRun>) -> Self {
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
            least_interval: LEAST_INTERVAL,
            guards: Guards::default(),
            applying: ApplySettings::default(),
            strict_sops: false,
            budgets: Budgets::default(),
            rendering: RenderLimits::default(),
            #[cfg(feature = "traces")]
            traces_endpoint: None,
        }
    }

    /// Begins to send traces, if somebody wants them.
    #[cfg(feature = "traces")]
    pub(crate) fn start_traces(&self) -> Result<Option<traces::Sending>, Failure> {
        self.traces_endpoint.as_deref().map(traces::start).transpose()
    }

    /// Whether policies are kept in force.
    pub(crate) fn has_policies(&self) -> bool {
        self.policies
    }

    /// Which controllers run.
    pub(crate) fn switches(&self) -> &Switches {
        &self.switches
    }

    /// How many bytes of memory, and of disk, they may take together.
    pub(crate) fn count_bytes(&self) -> (u64, u64) {
        let budgets = &self.budgets;
        let memory = [
            budgets.trees.all,
            budgets.fetches.all,
            budgets.looking.all,
            self.rendering.all_bytes,
        ];
        (memory.into_iter().fold(0, u64::saturating_add), budgets.archives.all)
    }

    /// Every address that some source may reach although it is denied by default, and whether that is for all of them or for the platform's alone.
    pub(crate) fn list_allowed_sources(&self) -> impl Iterator<Item = (&Endpoint, bool)> {
        let for_all = self.allowed_sources.iter().map(|endpoint| (endpoint, true));
        let for_platform = self.allowed_platform_sources.iter();
        for_all.chain(for_platform.map(|endpoint| (endpoint, false)))
    }

    /// What sources of the platform namespace may connect to, and all others. What may be reached `besides` is for the former.
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

    /// Settles where lanes run; what is returned is to be said.
    pub(crate) fn settle_lanes(
        &mut self,
        default: WhereLanesRun,
        circumstances: Circumstances,
    ) -> Result<Option<&'static str>, Failure> {
        let (settled, note) = lane_place::choose(self.lanes, default, circumstances)?;
        self.lanes = Some(settled);
        Ok(note)
    }

    /// Whether each lane is to have a Pod of its own.
    pub(crate) fn has_lane_pods(&self) -> bool {
        self.lanes == Some(WhereLanesRun::Deployment)
    }

    /// What a lane is told that is apart, and reaches the API server so.
    pub(crate) fn write_apart(&self, server: LaneServer) -> ApartSettings {
        ApartSettings {
            server,
            patience: self.lane_patience,
            own_memory: LANE_MEMORY,
        }
    }

    /// Where lanes run, once it is settled, if that is this machine; one that is a process reaches the API server so.
    pub(crate) fn write_lanes(&self, server: LaneServer) -> LaneMode {
        match self.lanes {
            None | Some(WhereLanesRun::Task | WhereLanesRun::Deployment) => LaneMode::Tasks,
            Some(WhereLanesRun::Process) => LaneMode::Processes(Box::new(ProcessSettings {
                program: describe_lane_program(),
                apart: self.write_apart(server),
            })),
        }
    }

    /// What tenancy is told, whether something is reconciled or written.
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

    /// Tells the controllers. What may be reached `besides` counts for sources of the platform namespace only.
    pub(crate) fn set_into(self, config: &mut Config, besides: Vec<Endpoint>) {
        #[cfg(feature = "traces")]
        if self.traces_endpoint.is_some() {
            config.spans = Some(traces::take_from_lanes());
        }
        (config.platform_sources, config.tenant_sources) = self.write_policies(besides);
        config.settings = self.write_tenancy();
        config.switches = self.switches;
        config.guards = self.guards;
        config.applying = self.applying;
        config.strict_sops = self.strict_sops;
        config.budgets = self.budgets;
        config.rendering = self.rendering;
    }
}

/// Reads a duration that nothing is to be done more often than.
fn parse_least_interval(text: &str) -> Result<Duration, String> {
    let interval = DurationText::new(text).parse().map_err(|error| error.to_string())?;
    if !(LEAST_INTERVAL..=LONGEST_LEAST_INTERVAL).contains(&interval) {
        return Err("write a duration from 1s to 24h".to_owned());
    }
    Ok(interval)
}

/// The program that a lane's process runs.
pub(crate) fn describe_lane_program() -> LaneProgram {
    LaneProgram {
        // The program as it was started, also when another one has its name by now.
        program: "/proc/self/exe".into(),
        name: "tenure".into(),
        arguments: vec!["lane".into()],
        environment: write_lane_environment(),
    }
}

/// What a lane's process takes besides what its budgets allow: the program, its threads, and what is told of its objects.
const LANE_MEMORY: u64 = 256 << 20;

/// All that the process of a lane is told by its environment: nothing that is secret, since others can read it.
fn write_lane_environment() -> Vec<(OsString, OsString)> {
    let mut environment = logging::write_environment();
    // Memory is taken as it is used, so that a limit counts what is used.
    environment.push(("MIMALLOC_ARENA_EAGER_COMMIT".into(), "0".into()));
    let named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].into_iter();
    // A lane's working directory is its own folder.
    let absolute = |path: OsString| std::path::absolute(&path).map_or(path, Into::into);
    environment.extend(named.filter_map(|name| Some((name.into(), absolute(std::env::var_os(name)?)))));
    environment
}

/// Deletions that wait until somebody allows them (see docs/reference/deletion.md).
#[derive(Debug, Args)]
struct GuardFlags {
    /// Stop a prune of more than this share of an inventory, in percent; 100 stops none.
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    guard_prune_percent: u8,
    /// Stop no prune of fewer objects than this.
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    guard_prune_objects: usize,
    /// Kinds of which nothing is pruned or recreated unasked, with commas between them; empty for none. `default` stands for claims, StatefulSets, databases
    /// and others that hold data (docs/reference/deletion.md).
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

/// How every Kustomization is applied (Flux's flags of the same names).
#[derive(Debug, Args)]
struct ApplyFlags {
    /// Kinds that are applied before others, after definitions, classes and roles, with commas between them.
    #[arg(long, value_name = "[GROUP/]KIND,...", default_value = "")]
    custom_apply_stage_kinds: String,
    /// A field manager whose fields are taken over, as kubectl's are, also by the beginning of its name; may be given again.
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
                    .hint("name the field manager as it stands in metadata.managedFields"),
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
    fn guards_are_as_by_default_unless_a_flag_says_otherwise() {
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
    fn what_the_platform_may_reach_tenants_may_not() {
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
    fn a_range_that_is_none_is_told_with_its_flag() {
        let failure = read_policies(&["--cluster-range", "10.0.0.0/40"]).expect_err("a failure");
        assert!(failure.message.starts_with("--cluster-range: "), "{}", failure.message);
    }
}
