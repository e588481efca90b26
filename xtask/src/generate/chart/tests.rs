//! The rendered chart holds the objects of an installation, for each choice of its values.

use super::*;

type TestResult = Result<()>;

/// The chosen values of the chart; all others are the defaults.
#[derive(Clone, Copy)]
struct Chosen {
    hooks: bool,
    admission: bool,
    policies: bool,
    /// `process` or `deployment`; tasks otherwise.
    lanes: &'static str,
}

impl Chosen {
    /// Returns the default values.
    fn usual() -> Self {
        Self {
            hooks: false,
            admission: true,
            policies: true,
            lanes: "",
        }
    }

    fn has_lane_pods(self) -> bool {
        self.lanes == "deployment"
    }

    fn holds(self, begins: &str) -> bool {
        match begins {
            WITH_HOOKS => self.hooks,
            WITH_ADMISSION => self.admission,
            WITH_ADMISSION_ALONE => self.admission && !self.policies,
            WITH_POLICIES => self.policies,
            WITH_LANE_PODS | WITH_LANE_POLICIES => self.has_lane_pods(),
            _ => true,
        }
    }

    /// Checks whether the part at this place of [`CHOICES`] is present.
    fn is_at(self, at: usize) -> bool {
        match at {
            4 | 5 => self.hooks,
            6 | 7 => self.admission,
            8 => self.policies,
            10 => self.has_lane_pods(),
            _ => false,
        }
    }

    fn write_lanes(self) -> String {
        let argument = |argument: &str| format!("        - {argument:?}\n");
        match self.lanes {
            "deployment" => {
                let image = format!("--lane-image={}", super::super::IMAGE);
                ["--lanes=deployment", "--lane-address=9643", &image]
                    .map(argument)
                    .concat()
            }
            "" => String::new(),
            other => argument(&format!("--lanes={other}")),
        }
    }

    fn write_ingress(self) -> String {
        let (_, rules) = INGRESS.0.split_once('\n').unwrap_or_default();
        let (hooks, rules) = rules.split_once("  - ports:\n    - port: 9443\n").unwrap_or_default();
        let (_, lanes) = rules.split_once('\n').unwrap_or_default();
        let admission = "  - ports:\n    - port: 9443\n      protocol: TCP\n";
        let rule_if = |is_on: bool, rule: &str| if is_on { rule.to_owned() } else { String::new() };
        match rule_if(self.hooks, hooks) + &rule_if(self.admission, admission) + &rule_if(self.has_lane_pods(), lanes) {
            none if none.is_empty() => none,
            some => format!("  ingress:\n{some}"),
        }
    }
}

/// The chart's files, and the objects in each text that was read. Most templates have the same text with other values, so each text is read once.
struct Chart {
    files: BTreeMap<PathBuf, String>,
    objects: BTreeMap<String, Vec<String>>,
}

/// Renders the chart with these values.
fn render(chart: &mut Chart, chosen: Chosen) -> Result<Vec<String>> {
    let ingress = chosen.write_ingress();
    let lanes = chosen.write_lanes();
    let image = OF_LANES[0].0.replace("CHOSEN-IMAGE", super::super::IMAGE);
    let replicas = if chosen.hooks { "1" } else { "2" };
    let mut rendered = Vec::new();
    for (path, text) in &chart.files {
        let mut text = text.clone();
        let is_object = path.starts_with("deploy/chart/crds") || path.starts_with("deploy/chart/templates");
        if !is_object {
            continue;
        }
        let begins = [
            WITH_HOOKS,
            WITH_ADMISSION,
            WITH_ADMISSION_ALONE,
            WITH_POLICIES,
            WITH_LANE_PODS,
            WITH_LANE_POLICIES,
            WHERE_POLICIES_ARE,
        ];
        let begins = begins
            .into_iter()
            .find(|begins| text.starts_with(&format!("{HEADER}{begins}")));
        if let Some(begins) = begins {
            if !chosen.holds(begins) {
                continue;
            }
            text = text.replacen(begins, "", 1);
            text = text.strip_suffix(END).unwrap_or(&text).to_owned();
        }
        if let Some((before, rest)) = text.split_once(WITHOUT_LANE_PODS.0) {
            let (sources, after) = rest.split_once(WITHOUT_LANE_PODS.1).context("it has no end")?;
            let sources = if chosen.has_lane_pods() { "" } else { sources };
            text = format!("{before}{sources}{after}");
        }
        let place = |at: usize| (CHOICES[at].1, if chosen.is_at(at) { CHOICES[at].0 } else { "" });
        for (expression, value) in [
            (
                "{{ required \"set image=REGISTRY/tenure:TAG@sha256:DIGEST (no image is published: build one, as docs/howto/another-cluster.md says)\" .Values.image | quote }}",
                super::super::IMAGE,
            ),
            (
                "{{ if .Values.hooks }}1{{ else }}{{ .Values.replicas }}{{ end }}",
                replicas,
            ),
            place(2),
            place(3),
            place(4),
            place(5),
            place(6),
            place(7),
            place(8),
            (CHOICES[9].1, lanes.as_str()),
            (OF_LANES[0].1, image.as_str()),
            (OF_LANES[1].1, "expression: \"''\""),
            place(10),
            (EGRESS.1, ""),
            (INGRESS.1, ingress.as_str()),
        ] {
            text = text.replace(expression, value);
        }
        assert!(
            !text.contains("{{") || path.starts_with("deploy/chart/crds"),
            "{}: {text}",
            path.display()
        );
        if let Some(objects) = chart.objects.get(&text) {
            rendered.extend_from_slice(objects);
            continue;
        }
        let built = kustomize::read_manifests("chart", &text, &kustomize::Limits::default())?;
        let objects = built
            .into_iter()
            .map(|built| super::super::write_plainly(&built.object));
        let objects: Vec<String> = objects.collect();
        rendered.extend_from_slice(&objects);
        chart.objects.insert(text, objects);
    }
    rendered.sort();
    Ok(rendered)
}

fn expect(rendered: &[String], objects: &[Value]) {
    let mut expected: Vec<String> = objects.iter().map(super::super::write_plainly).collect();
    expected.sort();
    let other = rendered.iter().find(|object| !expected.contains(object));
    assert!(
        rendered == expected,
        "the chart holds other objects than are installed: {other:?}"
    );
}

/// With its default values, the chart is equal to `deploy/`; with others, it is equal to the objects of `tenure install`.
#[test]
fn its_templates_are_the_objects_of_the_installation() -> TestResult {
    let mut chart = Chart {
        files: write_chart()?,
        objects: BTreeMap::new(),
    };
    let usual = render(&mut chart, Chosen::usual())?;
    expect(&usual, &super::super::list_objects()?);
    for (hooks, admission, policies, lanes) in [
        (false, false, false, ""),
        (true, false, false, ""),
        (false, true, false, ""),
        (false, false, true, ""),
        (false, false, false, "process"),
        (false, false, false, "deployment"),
        (true, true, true, "process"),
        (true, true, true, "deployment"),
    ] {
        let chosen = Chosen {
            hooks,
            admission,
            policies,
            lanes,
        };
        let mut objects = super::super::list_installed()?;
        super::super::add_enforcement(&mut objects, admission, policies);
        let flag = (lanes == "process").then(|| "--lanes=process".to_owned());
        let arguments = flag.into_iter().chain(policies.then(|| "--policies".to_owned()));
        let workload = Workload {
            hooks,
            admission,
            lanes: chosen.has_lane_pods(),
            replicas: if hooks { 1 } else { 2 },
            arguments: arguments.collect(),
            ..Workload::usual(super::super::IMAGE)
        };
        if chosen.has_lane_pods() {
            objects.extend(list_lanes(&workload));
        }
        objects.extend(workload::objects(&workload));
        expect(&render(&mut chart, chosen)?, &objects);
    }
    Ok(())
}

/// Additional rules open egress only, and never ingress: at both places, the egress list ends there.
#[test]
fn additional_egress_rules_allow_no_ingress() -> TestResult {
    let mut found = 0;
    for (path, text) in write_chart()? {
        let Some((before, _)) = text.split_once(EGRESS.1) else {
            continue;
        };
        assert!(
            before.contains("\n  egress:\n") && !before.contains("  ingress:\n"),
            "{}",
            path.display()
        );
        found += 1;
    }
    assert_eq!(
        found, 3,
        "the policies of the controllers, of lanes and of the platform's lane"
    );
    Ok(())
}

#[test]
fn chart_values_and_template_references_match() -> TestResult {
    let files = write_chart()?;
    let values = files
        .get(Path::new("deploy/chart/values.yaml"))
        .cloned()
        .unwrap_or_default();
    let named = values.lines().filter(|line| !line.starts_with('#'));
    let named: Vec<&str> = named
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name)
        .collect();
    let templates: String = files
        .iter()
        .filter(|(path, _)| path.starts_with("deploy/chart/templates"))
        .map(|(_, text)| text.as_str())
        .collect();
    for name in &named {
        assert!(
            templates.contains(&format!(".Values.{name} ")),
            "{name} is used nowhere"
        );
    }
    for used in templates.split(".Values.").skip(1) {
        let used: String = used.chars().take_while(char::is_ascii_alphanumeric).collect();
        assert!(named.contains(&used.as_str()), "{used} has no default");
    }
    Ok(())
}

/// Helm accepts the chart and renders the objects that the program exports, if helm is installed.
#[test]
fn helm_accepts_the_chart() {
    let folder = crate::tidy::find_root().join("deploy/chart");
    let helm = |arguments: &[&str]| std::process::Command::new("helm").args(arguments).arg(&folder).output();
    let Ok(linted) = helm(&["lint", "--set=image=tenure:1"]) else {
        // No helm is on PATH.
        return;
    };
    assert!(linted.status.success(), "{}", String::from_utf8_lossy(&linted.stdout));
    assert!(
        helm(&["template", "tenure"]).is_ok_and(|output| !output.status.success()),
        "an image is wanted"
    );
    // Without a cluster helm knows versions, and no kinds.
    for (version, has_policies) in [("1.36.0", true), ("1.31.4-eks-1", true), ("1.29.0", false)] {
        let version = format!("--kube-version={version}");
        let rendered = helm(&["template", "--include-crds", "--set=image=tenure:1", &version, "tenure"]);
        let is_whole = rendered.is_ok_and(|output| {
            let text = String::from_utf8_lossy(&output.stdout);
            let found = [
                text.contains("kind: ValidatingAdmissionPolicy\n"),
                text.contains("\"--policies\""),
            ];
            output.status.success() && found == [has_policies; 2]
        });
        assert!(is_whole, "{version}");
    }
}
