//! The settings of lanes: where they run, how their processes are started, and how these reach the API server.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_api::workload::LanePods;

use crate::endpoints::lane_endpoint::LaneEndpoint;

/// Below the folder for artifacts: a folder for each lane that is a process.
pub(crate) const LANE_FOLDERS: &str = "lanes";

/// Where lanes run.
#[derive(Clone, Debug, Default)]
pub enum LaneMode {
    /// In this process.
    #[default]
    Tasks,
    /// Each lane in its own process.
    Processes(Box<ProcessSettings>),
    /// Each lane in its own Pod.
    Pods(Box<PodSettings>),
}

/// The program of a lane's process. It calls `LaneProcess::receive` with its standard input and output.
#[derive(Clone, Debug)]
pub struct LaneProgram {
    /// The path of the program.
    pub program: PathBuf,
    /// The program's name, as its first argument.
    pub name: OsString,
    /// The arguments.
    pub arguments: Vec<OsString>,
    /// The whole environment.
    pub environment: Vec<(OsString, OsString)>,
}

/// Settings for a lane that runs apart, in a process or a Pod.
#[derive(Clone, Debug)]
pub struct ApartSettings {
    /// The lane's connection to the API server.
    pub server: LaneServer,
    /// The silence after which a lane is ended.
    pub patience: Duration,
    /// Memory of the lane in bytes, besides its budgets.
    pub own_memory: u64,
}

/// How the processes of lanes are started.
#[derive(Clone, Debug)]
pub struct ProcessSettings {
    /// The program to start.
    pub program: LaneProgram,
    /// Settings of the lanes.
    pub apart: ApartSettings,
}

/// How the Pods of lanes are created, and how they connect to the hub.
#[derive(Clone, Debug)]
pub struct PodSettings {
    /// The parts of a Deployment that are the same for all lanes. Its memory and its disk follow from the budgets.
    pub pods: LanePods,
    /// The endpoint that accepts the connections of Pods.
    pub door: LaneEndpoint,
    /// Settings of the lanes.
    pub apart: ApartSettings,
}

impl LaneMode {
    /// Returns the settings of lanes that run apart, if they do.
    pub(crate) fn find_apart(&self) -> Option<&ApartSettings> {
        match self {
            Self::Tasks => None,
            Self::Processes(processes) => Some(&processes.apart),
            Self::Pods(pods) => Some(&pods.apart),
        }
    }
}

/// The API server, as a lane reaches it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneServer {
    /// Its address.
    pub url: String,
    /// The certificates, as DER, with which the server's certificate is checked; without any, those of the system.
    pub authorities: Option<Vec<Vec<u8>>>,
    /// The name in the server's certificate, if it differs from the address.
    pub tls_name: Option<String>,
    /// Disables the check of the server's certificate, as the kubeconfig says.
    pub unchecked: bool,
}
