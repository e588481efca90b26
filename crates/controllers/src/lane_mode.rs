//! Where lanes run, and how a process of one is started and reaches the API server, as whoever runs the controllers says. Owns no process and
//! no Pod.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_api::workload::LanePods;

use crate::lane_door::LaneDoor;

/// Below the folder for artifacts: a folder for each lane that is a process.
pub(crate) const LANE_FOLDERS: &str = "lanes";

/// Where lanes run.
#[derive(Clone, Debug, Default)]
pub enum LaneMode {
    /// In this process.
    #[default]
    Tasks,
    /// Each in a process of its own.
    Processes(Box<ProcessSettings>),
    /// Each in a Pod of its own.
    Pods(Box<PodSettings>),
}

/// The program that a lane's process runs; it calls `LaneProcess::receive` with its standard input and output.
#[derive(Clone, Debug)]
pub struct LaneProgram {
    /// Where it is.
    pub program: PathBuf,
    /// The name that it goes by.
    pub name: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// All of its environment.
    pub environment: Vec<(OsString, OsString)>,
}

/// What a lane that is apart is told, wherever that is.
#[derive(Clone, Debug)]
pub struct ApartSettings {
    /// How it reaches the API server.
    pub server: LaneServer,
    /// How long it may be silent before it is ended.
    pub patience: Duration,
    /// Bytes of memory that it may take besides what its budgets allow.
    pub own_memory: u64,
}

/// How the processes of lanes are started.
#[derive(Clone, Debug)]
pub struct ProcessSettings {
    /// What is started.
    pub program: LaneProgram,
    /// What it is told.
    pub apart: ApartSettings,
}

/// How the Pods of lanes are made, and come to the hub.
#[derive(Clone, Debug)]
pub struct PodSettings {
    /// What is in a Deployment but for whose it is. Its memory and its disk follow from the budgets.
    pub pods: LanePods,
    /// Where they come in.
    pub door: LaneDoor,
    /// What a lane is told.
    pub apart: ApartSettings,
}

impl LaneMode {
    /// What lanes are told that are apart, if they are.
    pub(crate) fn find_apart(&self) -> Option<&ApartSettings> {
        match self {
            Self::Tasks => None,
            Self::Processes(processes) => Some(&processes.apart),
            Self::Pods(pods) => Some(&pods.apart),
        }
    }
}

/// An API server, as a lane reaches it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneServer {
    /// Its address.
    pub url: String,
    /// The certificates, as DER, that its own is checked with; without any, those of the system.
    pub authorities: Option<Vec<Vec<u8>>>,
    /// The name that its certificate is checked for, where that is not the address's.
    pub tls_name: Option<String>,
    /// Whether its certificate is not checked at all, as the kubeconfig says.
    pub unchecked: bool,
}
