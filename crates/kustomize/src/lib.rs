//! kustomize build over an in-memory file tree, as a pure library.
