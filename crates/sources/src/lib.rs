//! Git, OCI and buckets fetched within bounds into verified artifacts.
