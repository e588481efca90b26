//! What Tenure relies on in an API server: who owns a field, what is admitted, how things end. The same sentences hold on the embedded
//! control plane (`cargo test`) and on a real Kubernetes (`cargo xtask scenarios`); a test here may not ask which one it is on.

mod admission;
mod deletion;
mod ownership;
mod place;
