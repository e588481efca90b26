//! The rules for a Pod's images: their registries and pull policies. Objects that create Pods are not checked themselves, but their Pods
//! are, as in Capsule.
//!
//! Only new values are checked. An image and a pull policy that a container had before are not checked again. So a Pod that existed
//! before its Tenant had these rules can still be labelled, debugged and deleted. Capsule checks all values at every update.

use std::collections::BTreeSet;

use serde_json::Value;

use super::image::find_registry;
use super::request::Request;
use super::{Case, Findings, Refusal, Rule, tenant_limits};

/// Subresources of a Pod with which the whole Pod is written.
pub(super) const PARTS: [&str; 2] = ["ephemeralcontainers", "resize"];
/// The places of images in a Pod: the list, and the paths of image and policy within one entry.
pub(super) const LISTS: [(&str, &str, &str); 4] = [
    ("initContainers", "image", "imagePullPolicy"),
    ("containers", "image", "imagePullPolicy"),
    ("ephemeralContainers", "image", "imagePullPolicy"),
    // Volumes of type image.
    ("volumes", "image.reference", "image.pullPolicy"),
];

/// An image of a Pod with its pull policy, by the list and name of its entry.
struct Image<'a> {
    list: &'static str,
    name: &'a str,
    image: &'a str,
    policy: &'a str,
}

impl Image<'_> {
    fn describe(&self) -> String {
        format!("spec.{}[{}]", self.list, tenant_limits::shorten(self.name))
    }
}

fn list_images(pod: &Value) -> impl Iterator<Item = Image<'_>> {
    LISTS.iter().flat_map(move |(list, image, policy)| {
        let spec = pod.get("spec").and_then(|spec| spec.get(list));
        let all = spec.and_then(Value::as_array).into_iter().flatten();
        let all = all.filter(|one| *list != "volumes" || one.get("image").is_some_and(|image| !image.is_null()));
        all.map(move |one| {
            let text = |path: &str| {
                let found = path.split('.').try_fold(one, |value, key| value.get(key));
                found.and_then(Value::as_str).unwrap_or_default()
            };
            Image {
                list,
                name: text("name"),
                image: text(image),
                policy: text(policy),
            }
        })
    })
}

/// The values of the stored Pod, such as images or pull policies, by the list and name of their entries.
type ValuesBefore<'a> = BTreeSet<(&'static str, &'a str, &'a str)>;

fn list_before<'a>(request: &Request<'a>, what: fn(&Image<'a>) -> &'a str) -> ValuesBefore<'a> {
    let old = request.old_object.into_iter().flat_map(list_images);
    old.map(|image| (image.list, image.name, what(&image))).collect()
}

pub(super) fn check(case: Case<'_>, _findings: &mut Findings) -> Result<(), Refusal> {
    let request = case.request;
    if !request.is_about("", "pods", &PARTS) {
        return Ok(());
    }
    let Some((tenant, object)) = tenant_limits::find_tenant(case) else {
        return Ok(());
    };
    let bounds = &tenant.bounds;
    let registries = bounds.objects().container_registries.as_ref();
    let policies = bounds.objects().image_pull_policies.as_slice();
    if registries.is_none() && policies.is_empty() {
        return Ok(());
    }
    let (images, kept) = (
        list_before(request, |image| image.image),
        list_before(request, |image| image.policy),
    );
    for image in list_images(object) {
        let is_kept = images.contains(&(image.list, image.name, image.image));
        if let Some(registries) = registries.filter(|_| !is_kept) {
            let refuse = |why: String| {
                Err(Refusal {
                    rule: Rule::ContainerRegistries,
                    why,
                    remedy: tenant_limits::advise("spec.containerRegistries", registries.into()),
                })
            };
            let shown = tenant_limits::shorten(image.image);
            match find_registry(image.image) {
                None => {
                    return refuse(format!(
                        "{}: {shown} is not the name of an image in a registry that Tenant {} allows",
                        image.describe(),
                        tenant.name
                    ));
                }
                Some(registry) if !bounds.allows(registries.into(), registry) => {
                    return refuse(format!(
                        "{}: image {shown} is from registry {}, which Tenant {} doesn't allow",
                        image.describe(),
                        tenant_limits::shorten(registry),
                        tenant.name
                    ));
                }
                Some(_) => {}
            }
        }
        let is_kept = kept.contains(&(image.list, image.name, image.policy));
        if !policies.is_empty() && !is_kept && !policies.iter().any(|policy| policy == image.policy) {
            return Err(Refusal {
                rule: Rule::ImagePullPolicies,
                why: format!(
                    "{}: Tenant {} doesn't allow imagePullPolicy {}",
                    image.describe(),
                    tenant.name,
                    tenant_limits::shorten(image.policy)
                ),
                remedy: tenant_limits::advise_of("spec.imagePullPolicies", policies),
            });
        }
    }
    Ok(())
}
