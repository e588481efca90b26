//! The deputies: kinds whose controller acts for the author of an object, as an account that the object names or as an account of its own.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::admission::Write;
use crate::attack_writes;
use crate::cluster::{Cluster, Controller};
use crate::kinds::{ActingKind, CONTROLLERS, ControllerAction, DEPUTIES, LOCKDOWN_FLAG};
use crate::node::{Identity, Node, Scope};
use crate::object::{read_label, read_list, read_text};
use crate::pod_facts::image_name;
use crate::search::{Edge, Search};

impl Cluster {
    /// Records a workload that is a known controller, and whether its arguments lock it down.
    pub(crate) fn read_controller(&mut self, object: &Value, spec: &Value, namespace: &str, account: &str) {
        if read_text(object, "/kind") == "Pod" {
            return;
        }
        let name = read_text(object, "/metadata/name");
        let containers = read_list(spec, "/containers");
        let runs = |controller: &str| {
            name == controller
                || read_label(object, "app.kubernetes.io/component") == controller
                || containers
                    .iter()
                    .any(|container| image_name(read_text(container, "/image")) == controller)
        };
        let Some(&controller) = CONTROLLERS.iter().find(|controller| runs(controller)) else {
            return;
        };
        let arguments = containers
            .iter()
            .flat_map(|container| {
                read_list(container, "/args")
                    .iter()
                    .chain(read_list(container, "/command"))
            })
            .filter_map(Value::as_str);
        let is_locked_down = arguments.into_iter().any(|argument| {
            argument
                .strip_prefix(LOCKDOWN_FLAG)
                .is_some_and(|account| !account.is_empty())
        });
        self.controllers.entry(controller).or_default().push(Controller {
            namespace: namespace.to_owned(),
            account: account.to_owned(),
            is_locked_down,
        });
    }

    /// Records the helm-controller that `tenure up` runs, by the subjects of its binding.
    pub(crate) fn add_supervised_controller(&mut self, subjects: &BTreeSet<Identity>) {
        let accounts = subjects.iter().filter_map(|subject| match subject {
            Identity::Account { namespace, name } => Some(Controller {
                namespace: namespace.clone(),
                account: name.clone(),
                is_locked_down: false,
            }),
            _ => None,
        });
        self.controllers.entry("helm-controller").or_default().extend(accounts);
    }
}

impl Search<'_> {
    /// Adds the edges of a right to write all objects of the deputies that `is_meant` selects.
    pub(crate) fn reach_deputies(&mut self, scope: &Scope, is_meant: impl Fn(&ActingKind) -> bool, edge: &Edge) {
        for deputy in DEPUTIES.iter().filter(|deputy| is_meant(deputy)) {
            let (resource, scope) = (format!("{}.{}", deputy.resource, deputy.group), scope.clone());
            if !self.list_free_controllers(deputy, &scope).is_empty() {
                let (resource, scope) = (resource.clone(), scope.clone());
                self.add_edge(Node::FreeDeputies { resource, scope }, edge.clone());
            }
            if let ControllerAction::ActsAs(_) = deputy.does {
                self.add_edge(Node::Deputies { resource, scope }, edge.clone());
            }
        }
    }

    /// Adds edges to the accounts as which the controller of a kind acts for objects in a scope.
    pub(crate) fn expand_deputies(&mut self, resource: &str, scope: &Scope) {
        let found = DEPUTIES
            .iter()
            .find(|deputy| format!("{}.{}", deputy.resource, deputy.group) == resource);
        let Some(deputy) = found else { return };
        if let ControllerAction::ActsAs(_) = deputy.does {
            for (namespace, name) in self.list_accounts(scope) {
                self.add_identity(&namespace, &name, deputy.group);
            }
        }
    }

    /// Adds the edges of a right to write objects of a deputy's kind. Admission decides whether an object may leave the account out. Returns whether the edges are the same
    /// for every holder.
    pub(crate) fn write_deputy(
        &mut self,
        deputy: &ActingKind,
        (holder, groups): (&Identity, &[String]),
        scope: &Scope,
        edge: &Edge,
    ) -> bool {
        let resource = format!("{}.{}", deputy.resource, deputy.group);
        let free = Node::FreeDeputies {
            resource: resource.clone(),
            scope: scope.clone(),
        };
        if let ControllerAction::ActsAs(_) = deputy.does {
            let scope = scope.clone();
            self.add_edge(Node::Deputies { resource, scope }, edge.clone());
        }
        if self.list_free_controllers(deputy, scope).is_empty() {
            return true;
        }
        let write = match (deputy.does, scope) {
            (ControllerAction::ActsAs(_), Scope::Namespace(namespace)) => {
                attack_writes::make_deputy(deputy.resource, namespace)
            }
            _ => None,
        };
        let is_checked = |write: &Write| {
            let namespace = self.cluster.namespaces.get(&write.namespace);
            self.cluster.admission.checks_write(write, namespace)
        };
        let Some(write) = write.filter(is_checked) else {
            self.add_edge(free, edge.clone());
            return true;
        };
        if !self.is_done(&free) {
            let verdict = self.decide_admission(&write, holder, groups);
            self.add_edge(free, edge.clone().with_verdict(verdict));
        }
        false
    }

    /// Lists the controllers that act as their own accounts for objects of a kind that name no account.
    fn list_free_controllers(&self, deputy: &ActingKind, scope: &Scope) -> Vec<&Controller> {
        let cluster = self.cluster;
        let (name, is_served, own_only) = match deputy.does {
            ControllerAction::MakesPods => return Vec::new(),
            ControllerAction::ActsAs(name) => (name, true, false),
            ControllerAction::ActsInOwnNamespace(name) => (name, true, true),
            ControllerAction::ActsForPlatform(name) => (name, *scope == Scope::Cluster, false),
            ControllerAction::SuppliesCharts(name) => {
                let mut sources = cluster.chart_namespaces.iter();
                let is_source =
                    sources.any(|name| scope.includes_namespace(name) && cluster.namespaces.contains_key(name));
                (name, is_source, false)
            }
        };
        let running = cluster.controllers.get(name).into_iter().flatten();
        let serves =
            |controller: &&Controller| is_served && (!own_only || scope.includes_namespace(&controller.namespace));
        running
            .filter(serves)
            .filter(|controller| !controller.is_locked_down)
            .collect()
    }

    /// Adds the edges from objects without an account to the accounts of their controllers.
    pub(crate) fn expand_free_deputies(&mut self, resource: &str, scope: &Scope) {
        let found = DEPUTIES
            .iter()
            .find(|deputy| format!("{}.{}", deputy.resource, deputy.group) == resource);
        let Some(deputy) = found else { return };
        let free: Vec<(String, String)> = self
            .list_free_controllers(deputy, scope)
            .into_iter()
            .map(|controller| (controller.namespace.clone(), controller.account.clone()))
            .collect();
        for (namespace, account) in free {
            let by = match deputy.does {
                ControllerAction::ActsForPlatform(_) | ControllerAction::SuppliesCharts(_) => {
                    format!("serviceaccount {namespace}/{account} installs the charts of Packages")
                }
                _ => format!("serviceaccount {namespace}/{account} is not locked down"),
            };
            self.add_edge(
                Node::account(&namespace, &account),
                Edge::new("act-as-controller", "", by),
            );
        }
    }
}
