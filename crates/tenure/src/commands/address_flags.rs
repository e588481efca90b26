//! Reads flags of the controllers that name addresses: of allowed sources, and of the cluster.

use tenure_sources::{Cidr, Endpoint};

use crate::failure::Failure;

/// Reads the addresses that an administrator allows to sources; `flag` is the name of the flag.
pub(crate) fn parse_allowances(flag: &str, texts: &[String]) -> Result<Vec<Endpoint>, Failure> {
    let parse = |text: &String| {
        text.parse().map_err(|error| {
            Failure::usage(format!("{flag}: {error}"))
                .hint("an allowed address is exact: scheme, host and port, such as http://127.0.0.1:3000")
        })
    };
    texts.iter().map(parse).collect()
}

/// Reads the address ranges of the cluster.
pub(super) fn parse_ranges(texts: &[String]) -> Result<Vec<Cidr>, Failure> {
    let parse = |text: &String| {
        text.parse()
            .map_err(|error| Failure::usage(format!("--cluster-range: {error}")))
    };
    texts.iter().map(parse).collect()
}
