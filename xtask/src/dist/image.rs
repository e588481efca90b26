//! The Dockerfile of an image with only the program and the authorities. A test checks it by the rules of a linter.

/// The Dockerfile, for a build folder with `tenure` and `ca-certificates.crt`.
pub(super) const DOCKERFILE: &str = "\
# docker build --tag tenure:TAG DIR
FROM scratch
LABEL org.opencontainers.image.title=\"tenure\" org.opencontainers.image.licenses=\"Apache-2.0\"
COPY --chmod=0444 ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --chmod=0555 tenure /tenure
USER 65532:65532
ENTRYPOINT [\"/tenure\"]
CMD [\"--help\"]
";

#[cfg(test)]
mod tests {
    use super::DOCKERFILE;

    /// Lists the findings in a Dockerfile, by the rules that matter for a file like this.
    fn lint(text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        let mut user = None;
        let lines = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "FROM" if rest != "scratch" && !rest.contains("@sha256:") => {
                    findings.push(format!("{rest} is not pinned"))
                }
                "ADD" => findings.push("ADD fetches and unpacks: COPY".to_owned()),
                "ENTRYPOINT" | "CMD" | "SHELL" if !rest.starts_with('[') => {
                    findings.push(format!("{word} is given to a shell"))
                }
                "RUN" => findings.push("there is no shell to run anything".to_owned()),
                "USER" => user = Some(rest.to_owned()),
                "COPY" if !rest.contains("--chmod=0") => findings.push(format!("{rest} keeps the builder's mode")),
                "FROM" | "ENTRYPOINT" | "CMD" | "SHELL" | "COPY" | "LABEL" => {}
                other => findings.push(format!("{other} is not known")),
            }
        }
        let is_number = |text: &str| text.parse::<u32>().is_ok_and(|number| number > 0);
        if !user.is_some_and(|user| user.split(':').count() == 2 && user.split(':').all(is_number)) {
            findings.push("USER is no number, or root".to_owned());
        }
        findings
    }

    #[test]
    fn the_image_is_as_it_should_be() {
        assert_eq!(lint(DOCKERFILE), Vec::<String>::new());
        let user = format!("USER {0}:{0}\n", tenure_api::workload::USER);
        assert!(DOCKERFILE.contains(&user), "the Deployment's user is another one");
        assert!(DOCKERFILE.contains(&format!("tenure {}\n", tenure_api::workload::PROGRAM)));
    }

    #[test]
    fn the_rules_find_what_is_wrong() {
        for (instead_of, with) in [
            ("FROM scratch", "FROM debian:latest"),
            ("COPY --chmod=0555 tenure", "ADD --chmod=0555 tenure"),
            ("USER 65532:65532", "USER tenure"),
            ("USER 65532:65532", "USER 0:0"),
            ("ENTRYPOINT [\"/tenure\"]", "ENTRYPOINT /tenure"),
            ("CMD [\"--help\"]", "RUN chmod 0777 /tenure"),
            ("COPY --chmod=0555 tenure", "COPY tenure"),
        ] {
            assert_eq!(lint(&DOCKERFILE.replace(instead_of, with)).len(), 1, "{with}");
        }
    }
}
