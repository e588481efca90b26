//! The place where lanes run: the request and the possibilities. An explicit choice is followed or refused. A default falls back to a possible place, and the fallback
//! is reported.

use crate::failure::Failure;

/// Where lanes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LaneLocation {
    /// Lanes are tasks of the controllers' process.
    Task,
    /// Each lane is a confined process of its own (Linux).
    Process,
    /// Each lane has a Pod of its own, by a Deployment that the controllers write (tenure run and tenure install).
    Deployment,
}

/// The default with an embedded control plane.
pub(crate) const DEFAULT_OF_UP: LaneLocation = LaneLocation::Process;
/// The default for another cluster.
pub(crate) const DEFAULT_OF_RUN: LaneLocation = LaneLocation::Task;

/// The circumstances that decide whether a lane can be a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneRequirements {
    /// Whether the system can confine a process.
    pub(crate) is_linux: bool,
    /// Whether the server has a certificate that this program has not made.
    pub(crate) has_other_certificate: bool,
    /// Whether another cluster exists to run Pods.
    pub(crate) has_cluster: bool,
}

impl LaneRequirements {
    /// Returns the circumstances of this machine.
    pub(crate) fn here(has_other_certificate: bool) -> Self {
        Self {
            is_linux: cfg!(target_os = "linux"),
            has_other_certificate,
            has_cluster: false,
        }
    }

    /// Returns the circumstances for an existing cluster.
    pub(crate) fn of_cluster() -> Self {
        Self {
            has_cluster: true,
            ..Self::here(false)
        }
    }
}

/// Chooses where lanes run, and returns the text to report.
pub(crate) fn choose_location(
    asked: Option<LaneLocation>,
    default: LaneLocation,
    circumstances: LaneRequirements,
) -> Result<(LaneLocation, Option<&'static str>), Failure> {
    let LaneRequirements {
        is_linux,
        has_other_certificate,
        has_cluster,
    } = circumstances;
    match (asked, default) {
        (Some(LaneLocation::Deployment), _) if !has_cluster => Err(Failure::usage(
            "--lanes deployment: the embedded control plane has no nodes for Pods",
        )
        .hint("tenure run and tenure install have it, for an existing cluster")),
        (Some(LaneLocation::Process), _) if !is_linux => Err(Failure::usage(
            "--lanes process: only Linux can confine a process like that",
        )
        .hint("leave it out: then lanes are tasks")),
        (Some(LaneLocation::Process), _) if has_other_certificate => Err(Failure::usage(
            "--lanes process with --tls-cert-file: a lane checks this server's certificate with the authority of the data folder alone",
        )
        .hint("leave out one of them")),
        (None, LaneLocation::Process) if !is_linux => Ok((LaneLocation::Task, None)),
        (None, LaneLocation::Process) if has_other_certificate => Ok((
            LaneLocation::Task,
            Some(
                "lanes are tasks of this process, not processes of their own: with --tls-cert-file they could not check this server's certificate \
                 (--lanes task says so without this note)",
            ),
        )),
        (asked, default) => Ok((asked.unwrap_or(default), None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requested_location_is_used_or_refused_and_default_adapts() {
        use LaneLocation::{Process, Task};
        let choose = |asked, default, is_linux, has_other_certificate| {
            let circumstances = LaneRequirements {
                is_linux,
                has_other_certificate,
                has_cluster: false,
            };
            let chosen = choose_location(asked, default, circumstances);
            chosen
                .map(|(lanes, note)| (lanes, note.is_some()))
                .map_err(|failure| failure.message)
        };
        for default in [Task, Process] {
            assert_eq!(choose(Some(Task), default, true, true), Ok((Task, false)));
            assert_eq!(choose(Some(Process), default, true, false), Ok((Process, false)));
            let refused = choose(Some(Process), default, true, true).unwrap_err();
            assert!(refused.contains("--tls-cert-file"), "{refused}");
            let refused = choose(Some(Process), default, false, false).unwrap_err();
            assert!(refused.contains("only Linux"), "{refused}");
        }
        assert_eq!(choose(None, Task, true, true), Ok((Task, false)));
        assert_eq!(choose(None, Process, true, false), Ok((Process, false)));
        assert_eq!(choose(None, Process, true, true), Ok((Task, true)));
        assert_eq!(choose(None, Process, false, false), Ok((Task, false)));
        let refused = choose(Some(LaneLocation::Deployment), Task, true, false).unwrap_err();
        assert!(refused.contains("no nodes for Pods"), "{refused}");
        let chosen = super::choose_location(Some(LaneLocation::Deployment), Task, LaneRequirements::of_cluster());
        assert_eq!(chosen.ok(), Some((LaneLocation::Deployment, None)));
    }
}
