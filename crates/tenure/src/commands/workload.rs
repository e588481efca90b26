//! The flags for the workload of the controllers in a cluster. The module reads them, and refuses an image that could be replaced unnoticed. `tenure_api::workload`
//! makes the objects.

use std::net::SocketAddr;

use clap::{Args, Parser};
use tenure_api::names::NamespaceName;
use tenure_api::workload::Workload;
use tenure_controllers::EnabledKinds;
use tenure_sources::Cidr;

use super::run;
use crate::failure::Failure;

/// The memory of the process beyond its budgets: the program, its caches, and its requests to the API server.
const MEMORY_BESIDES: u64 = 384 << 20;
/// The disk beyond the artifacts: fetched data before it is an artifact.
const DISK_BESIDES: u64 = 1 << 30;

/// Flags of the Deployment that runs the controllers.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "What runs the controllers")]
#[group(id = "workload")]
pub(crate) struct Flags {
    /// Image with this program as /tenure [default: the image of this release].
    ///
    /// Without a digest, the command asks the registry for the digest of the tag, with the credentials of `docker login`, and installs exactly that image.
    #[arg(long, value_name = "REGISTRY/NAME:TAG[@DIGEST]")]
    pub(crate) image: Option<String>,
    /// Install the image without a digest, and ask no registry. Every user who can move its tag can then choose the program that has the controllers' rights.
    #[arg(long, requires = "image")]
    pub(crate) unpinned_image: bool,
    /// Number of Pods, from 1 to 16: one leads, the others wait [default: 2, or 1 with --hooks, --helm-controller or --artifact-secret].
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=16))]
    replicas: Option<u32>,
    /// Accept requests of Git hosts and registries to Receivers, at the Service webhook-receiver. Only the leader can answer, so there is one Pod. Not with --shard.
    #[arg(long)]
    hooks: bool,
    /// Serve artifacts to Flux's helm-controller in this namespace, at the Service tenure-artifacts.
    ///
    /// helm-controller proves no identity. So a NetworkPolicy admits only its Pods (app: helm-controller), and the cluster's network has to enforce
    /// NetworkPolicies. There is one Pod, as with --hooks. Not with --shard.
    #[arg(long, value_name = "NAMESPACE")]
    helm_controller: Option<String>,
    /// Serve artifacts over HTTPS, at the Service tenure-artifacts, with the certificate in this Secret (kubernetes.io/tls) of tenure-system.
    ///
    /// A client shows a token of this cluster, and gets an artifact if its user may `get` the object. There is one Pod, as with --hooks. Not with --shard.
    #[arg(long, value_name = "NAME")]
    artifact_secret: Option<String>,
    /// Answer admission webhooks only for clients with a certificate of the authority in this Secret (`ca.crt`) of tenure-system. Needs --admission.
    ///
    /// Use the flag if the API server shows a certificate. Without the flag, every client that reaches the port can send a review, which tells the client
    /// nothing.
    #[arg(long, value_name = "NAME")]
    admission_client_secret: Option<String>,
    /// PriorityClass of the Pods.
    #[arg(long, value_name = "NAME")]
    priority_class: Option<String>,
    /// Address of the API server. The Pods may then connect to it instead of to ports 443 and 6443 of every address. Can be repeated.
    ///
    /// With the flag, they reach nothing else of the cluster, except DNS and allowed sources.
    #[arg(long = "api-server", value_name = "ADDRESS:PORT")]
    api_servers: Vec<SocketAddr>,
    /// Private range from which sources may be fetched. The controllers need an --allow-source for each address in it, too. Can be repeated.
    #[arg(long = "source-network", value_name = "CIDR")]
    source_networks: Vec<String>,
    /// Namespace whose Pods may get metrics, on port 8080 (`http-prom`). A client has to show a token that may `get` /metrics.
    #[arg(long, value_name = "NAMESPACE")]
    metrics_from: Option<String>,
}

/// Flags of `tenure run` that an installation passes on to its Pods.
#[derive(Debug, Parser)]
#[command(name = "tenure run", no_binary_name = true, disable_help_flag = true)]
struct HandedOn {
    #[command(flatten)]
    reconciling: run::Reconciling,
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
}

/// The workload of the controllers that the flags describe, and notes that the installation prints.
#[derive(Debug)]
pub(crate) struct PlannedWorkload {
    pub(crate) workload: Workload,
    /// The enabled controllers.
    pub(crate) switches: EnabledKinds,
    /// The protected namespaces.
    pub(crate) protected_namespaces: Vec<String>,
    /// The account that writes what Packages generate.
    pub(crate) package_account: Option<String>,
    pub(crate) notes: Vec<String>,
}

impl Flags {
    /// Whether the flags name addresses of the API server.
    pub(crate) fn names_api_servers(&self) -> bool {
        !self.api_servers.is_empty()
    }

    /// Reads the flags, together with the arguments for `tenure run`.
    pub(crate) fn read(&self, arguments: &[String], shards: &[String]) -> Result<PlannedWorkload, Failure> {
        let image = self.image.as_deref().unwrap_or_default();
        check_image(image, self.unpinned_image)?;
        for network in &self.source_networks {
            if let Err(error) = network.parse::<Cidr>() {
                return Err(Failure::usage(format!("--source-network: {error}")));
            }
        }
        if let Some(namespace) = &self.metrics_from {
            NamespaceName::new(namespace.as_str())
                .map_err(|error| Failure::usage(format!("--metrics-from {namespace:?}: {error}")))?;
        }
        if let Some(namespace) = &self.helm_controller {
            NamespaceName::new(namespace.as_str())
                .map_err(|error| Failure::usage(format!("--helm-controller {namespace:?}: {error}")))?;
        }
        for (flag, name) in [
            ("--artifact-secret", &self.artifact_secret),
            ("--admission-client-secret", &self.admission_client_secret),
        ] {
            check_secret(flag, name.as_deref())?;
        }
        let artifacts = match (&self.helm_controller, &self.artifact_secret) {
            (Some(_), _) => Some("--helm-controller"),
            (None, Some(_)) => Some("--artifact-secret"),
            (None, None) => None,
        };
        if let Some(flag) = artifacts.filter(|_| !shards.is_empty()) {
            return Err(Failure::usage(format!(
                "{flag} with --shard: artifacts are served by the main controllers, which have none of a shard"
            ))
            .hint("leave out one of them"));
        }
        if self.hooks && !shards.is_empty() {
            return Err(Failure::usage(
                "--hooks with --shard: requests go to the main controllers, which don't know the Receivers of a shard",
            )
            .hint("leave out one of them"));
        }
        let replicas = match (self.replicas, self.hooks, artifacts) {
            (Some(replicas @ 2..), true, _) => {
                return Err(Failure::usage(format!(
                    "--hooks with --replicas {replicas}: a waiting Pod can't answer requests to Receivers, and a Git host doesn't send them again"
                ))
                .hint("leave out one of them; one Pod is back within seconds when it or its node goes"));
            }
            (Some(replicas @ 2..), false, Some(flag)) => {
                return Err(Failure::usage(format!(
                    "{flag} with --replicas {replicas}: a waiting Pod has no artifacts, but the Service selects it too"
                ))
                .hint("leave out one of them; one Pod is back within seconds when it or its node goes"));
            }
            (replicas, true, _) | (replicas, _, Some(_)) => replicas.unwrap_or(1),
            (replicas, false, None) => replicas.unwrap_or(2),
        };
        let handed_on = HandedOn::try_parse_from(arguments).map_err(|error| {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            let problem = line.trim_start_matches("error: ");
            Failure::usage(format!("the arguments after -- are for tenure run: {problem}"))
                .hint("the folder, the probes and the cluster are chosen by the installation; `tenure run --help` lists the rest")
        })?;
        if handed_on.reconciling.controllers.asks_for_lane_pods() {
            return Err(
                Failure::usage("--lanes deployment comes before --: rights are given for it, too")
                    .hint("tenure install passes it to tenure run"),
            );
        }
        if let Some(filter) = &handed_on.log {
            crate::logging::make_filter(filter)?;
        }
        let settings = handed_on.reconciling.controllers.read_settings()?;
        let mut notes = Vec::new();
        let (mut source_addresses, mut platform_addresses) = (Vec::new(), Vec::new());
        for (endpoint, is_for_all) in settings.list_allowed_sources() {
            let addresses = match is_for_all {
                true => &mut source_addresses,
                false => &mut platform_addresses,
            };
            match endpoint.host.parse() {
                Ok(address) => addresses.push(SocketAddr::new(address, endpoint.port)),
                Err(_) if self.source_networks.is_empty() => notes.push(format!(
                    "source {endpoint}: a NetworkPolicy knows no names; if its address is private, open it with --source-network CIDR"
                )),
                Err(_) => {}
            }
        }
        let (memory, disk) = settings.count_bytes();
        let workload = Workload {
            image: image.to_owned(),
            replicas,
            hooks: self.hooks,
            helm_controller: self.helm_controller.clone(),
            artifact_secret: self.artifact_secret.clone(),
            admission: false,
            lanes: false,
            admission_client_secret: self.admission_client_secret.clone(),
            priority_class: self.priority_class.clone(),
            arguments: arguments.to_vec(),
            api_servers: self.api_servers.clone(),
            source_addresses,
            platform_addresses,
            source_networks: self.source_networks.clone(),
            cluster_ranges: settings.cluster_ranges.iter().map(ToString::to_string).collect(),
            metrics_from: self.metrics_from.clone(),
            memory: memory.saturating_add(MEMORY_BESIDES),
            disk: disk.saturating_add(DISK_BESIDES),
            shards: shards.to_vec(),
        };
        Ok(PlannedWorkload {
            workload,
            switches: settings.switches().clone(),
            protected_namespaces: settings.protected_namespaces.clone(),
            package_account: settings.packages.service_account.clone(),
            notes,
        })
    }
}

/// Checks that a name is valid for a Secret.
fn check_secret(flag: &str, name: Option<&str>) -> Result<(), Failure> {
    let known = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || b"-.".contains(&letter);
    match name {
        Some(name) if name.is_empty() || name.len() > 253 || !name.bytes().all(known) => {
            Err(Failure::usage(format!("{flag} {name:?}: it is no name of a Secret")))
        }
        _ => Ok(()),
    }
}

/// Checks that an image has a digest, so it is the same image later and on every node.
fn check_image(image: &str, unpinned: bool) -> Result<(), Failure> {
    let refuse = |problem: &str| {
        Failure::usage(format!("--image {image:?}: {problem}")).hint(
            "such as registry.example/tenure:0.1.0@sha256:… with the 64 digits that the registry printed at the push",
        )
    };
    let (name, digest) = image
        .split_once('@')
        .map_or((image, None), |(name, digest)| (name, Some(digest)));
    let known = |letter: char| letter.is_ascii_alphanumeric() || "._-/:".contains(letter);
    if name.is_empty() || !name.chars().all(known) || !name.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return Err(refuse("it is no name of an image"));
    }
    let tag = name
        .rsplit('/')
        .next()
        .and_then(|last| last.split_once(':'))
        .map(|(_, tag)| tag);
    match digest {
        Some(digest) => {
            let digits = digest.strip_prefix("sha256:").unwrap_or_default();
            let hexadecimal = |digit: u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit);
            if digits.len() != 64 || !digits.bytes().all(hexadecimal) {
                return Err(refuse("its digest is not sha256: and 64 hexadecimal digits"));
            }
            Ok(())
        }
        None if !unpinned => Err(refuse(
            "it has no digest, so that its tag decides what runs with the controllers' rights (--unpinned-image takes it)",
        )),
        None if tag.is_none_or(|tag| tag.is_empty() || tag == "latest") => {
            Err(refuse("without a digest it needs a tag other than latest"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Parser)]
    struct Line {
        /// The other choice, which `--image` is required without.
        #[arg(long)]
        without_deployment: bool,
        #[command(flatten)]
        flags: Flags,
    }

    impl Flags {
        /// What any installation has.
        pub(crate) fn any() -> Self {
            Self::from_words(&["--image=tenure:1", "--unpinned-image"])
        }

        fn from_words(words: &[&str]) -> Self {
            let words = std::iter::once("install").chain(words.iter().copied());
            let line = Line::try_parse_from(words).expect("flags");
            assert!(!line.without_deployment);
            line.flags
        }
    }

    fn read(words: &[&str], arguments: &[&str]) -> Result<PlannedWorkload, Failure> {
        let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
        Flags::from_words(words).read(&arguments, &[])
    }

    #[test]
    fn an_image_is_named_by_its_digest() {
        let digest = "a".repeat(64);
        for (image, unpinned, ok) in [
            (format!("registry.example:5000/tenure:1@sha256:{digest}"), false, true),
            (format!("tenure@sha256:{digest}"), false, true),
            (format!("tenure:1@sha256:{}", &digest[1..]), false, false),
            (format!("tenure:1@md5:{digest}"), false, false),
            ("tenure:1".to_owned(), false, false),
            ("tenure:1".to_owned(), true, true),
            ("registry.example:5000/tenure".to_owned(), true, false),
            ("tenure:latest".to_owned(), true, false),
            ("--tenure:1".to_owned(), true, false),
            ("ten ure:1".to_owned(), true, false),
            (String::new(), true, false),
        ] {
            assert_eq!(check_image(&image, unpinned).is_ok(), ok, "{image}");
        }
    }

    #[test]
    fn controller_arguments_are_validated_before_installation() {
        let image = ["--image=tenure:1", "--unpinned-image"];
        let chosen = read(
            &image,
            &["--allow-source", "http://10.0.0.7:3000", "--flux-namespace=gitops"],
        )
        .expect("a workload");
        assert_eq!(chosen.workload.source_addresses, ["10.0.0.7:3000".parse().unwrap()]);
        assert_eq!(chosen.workload.arguments.len(), 3);
        let named = read(&image, &["--allow-source=http://git.internal:3000"]).expect("a workload");
        assert!(
            named.notes.iter().any(|note| note.contains("--source-network")),
            "{:?}",
            named.notes
        );
        for (arguments, problem) in [
            (&["--data=/elsewhere"][..], "--data"),
            (&["--kubeconfig=/root/.kube/config"], "--kubeconfig"),
            (&["--health-address=1"], "--health-address"),
            (&["--hook-address=1"], "--hook-address"),
            (&["--artifact-open-address=1"], "--artifact-open-address"),
            (&["--guard-prune-percent=101"], "--guard-prune-percent"),
            (&["--allow-source=everything"], "--allow-source"),
            (&["word"], "word"),
        ] {
            let failure = read(&image, arguments).expect_err("refused");
            assert!(failure.message.contains(problem), "{}", failure.message);
        }
        assert!(read(&[image[0], image[1], "--source-network=everything"], &[]).is_err());
    }

    #[test]
    fn requests_are_answered_by_one_pod() {
        let image = ["--image=tenure:1", "--unpinned-image"];
        let read = |more: &[&str]| read(&[&image[..], more].concat(), &[]).map(|chosen| chosen.workload);
        assert_eq!(read(&[]).expect("a workload").replicas, 2);
        let hooks = read(&["--hooks"]).expect("a workload");
        assert_eq!((hooks.replicas, hooks.hooks), (1, true));
        let failure = read(&["--hooks", "--replicas=2"]).expect_err("refused");
        assert!(failure.message.contains("--replicas 2"), "{}", failure.message);
        assert_eq!(read(&["--replicas=3"]).expect("a workload").replicas, 3);
        for flag in ["--helm-controller=flux-system", "--artifact-secret=artifacts-tls"] {
            let served = read(&[flag]).expect("a workload");
            assert_eq!((served.replicas, served.has_artifacts()), (1, true));
            let failure = read(&[flag, "--replicas=2"]).expect_err("refused");
            assert!(failure.message.contains("--replicas 2"), "{}", failure.message);
            let flags = Flags::from_words(&[image[0], image[1], flag]);
            let failure = flags.read(&[], &["a".to_owned()]).expect_err("refused");
            assert!(failure.message.contains("--shard"), "{}", failure.message);
        }
        for flag in ["--helm-controller=a/b", "--artifact-secret=A b"] {
            assert!(read(&[flag]).is_err(), "{flag}");
        }
    }

    /// The policy of the network opens what the dialer's opens, neither less nor more.
    #[test]
    fn the_network_is_as_open_as_the_dialer() {
        use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
        use tenure_api::workload::{CLOSED_IPV4, CLOSED_IPV6};
        let policy = tenure_sources::Policy::default();
        let endpoint: tenure_sources::Endpoint = "https://git.example".parse().expect("an endpoint");
        let range = |text: &str| text.parse::<Cidr>().expect("a range");
        let closed: Vec<Cidr> = CLOSED_IPV4
            .iter()
            .map(|(address, length)| range(&format!("{address}/{length}")))
            .collect();
        let mut addresses: Vec<u32> = (0..=0xffff_u32)
            .flat_map(|high| [high << 16, high << 16 | 0xffff])
            .collect();
        for (address, length) in CLOSED_IPV4 {
            let first = u32::from(address.parse::<Ipv4Addr>().expect("an address"));
            let last = first | u32::MAX.checked_shr(length.into()).unwrap_or(0);
            addresses.extend([first, last, first.wrapping_sub(1), last.wrapping_add(1)]);
        }
        for address in addresses {
            let address = IpAddr::V4(address.into());
            let closed = closed.iter().any(|range| range.contains(address));
            assert_eq!(policy.check(&endpoint, address).is_err(), closed, "{address}");
        }
        let (global, closed) = (range("2000::/3"), CLOSED_IPV6.map(range));
        // An address that contains an IPv4 address is judged by that IPv4 address.
        let carrying = range("2002::/16");
        for high in 0..=0xffff_u16 {
            for second in [0, 0x1ff, 0x200, 0xdb7, 0xdb8, 0xdb9, 0xfff, 0x1000, 0xffff] {
                let address = IpAddr::V6(Ipv6Addr::new(high, second, 0, 0, 0, 1, 0, 1));
                if carrying.contains(address) || high == 0 {
                    continue;
                }
                let open = global.contains(address) && !closed.iter().any(|range| range.contains(address));
                assert_eq!(policy.check(&endpoint, address).is_ok(), open, "{address}");
            }
        }
    }

    #[test]
    fn a_pod_may_take_what_its_budgets_may() {
        let image = ["--image=tenure:1", "--unpinned-image"];
        let usual = read(&image, &[]).expect("a workload").workload;
        assert_eq!(usual, Workload::usual("tenure:1"), "what deploy/ holds");
        let more = read(&image, &["--tree-memory=1160MiB", "--artifact-storage=18GiB"])
            .expect("a workload")
            .workload;
        assert_eq!(more.memory - usual.memory, 1000 << 20);
        assert_eq!(more.disk - usual.disk, 10 << 30);
    }
}
