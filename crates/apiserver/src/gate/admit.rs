//! Authentication, then impersonation, then authorization, in this order, for every request without exception.

use std::sync::Arc;

use http::HeaderMap;
use rustls_pki_types::CertificateDer;
use tenure_auth::authorization::{Attributes, Authorizer, Refusal};
use tenure_auth::identity::UserInfo;
use tenure_auth::impersonation::{ImpersonationRequest, Impersonator};

use crate::audit::AuditRecord;
use crate::authentication::Authenticator;
use crate::http::{ApiError, RequestInfo};
use crate::registry::Registry;
use crate::rights::Rights;

/// The identity of a connection's peer, before any header of a request is read.
#[derive(Debug, Clone, Default)]
pub(crate) enum Peer {
    /// A client in the network, or in this process, without a certificate.
    #[default]
    Anonymous,
    /// A client with certificates, leaf first.
    Certificates(Arc<Vec<CertificateDer<'static>>>),
    /// This process' own admin, with the rights that the admin's client certificate would prove.
    Admin,
}

/// Roles and bindings with at most this many strings are searched within microseconds.
const SMALL_ROLES: usize = 4096;

/// Authenticates, impersonates and authorizes every request.
#[derive(Debug)]
pub(crate) struct Gate {
    authenticator: Authenticator,
    impersonator: Impersonator,
    rights: Arc<Rights>,
}

impl Gate {
    pub(crate) fn new(authenticator: Authenticator, rights: Arc<Rights>) -> Self {
        Self {
            authenticator,
            impersonator: Impersonator::default(),
            rights,
        }
    }

    pub(crate) fn authenticator(&self) -> &Authenticator {
        &self.authenticator
    }

    pub(crate) fn rights(&self) -> &Rights {
        &self.rights
    }

    /// Returns the caller's identity, before impersonation.
    pub(crate) fn authenticate(
        &self,
        registry: &Registry,
        peer: &Peer,
        headers: &HeaderMap,
        path: &str,
    ) -> Result<UserInfo, ApiError> {
        let certificates: &[CertificateDer<'_>] = match peer {
            Peer::Anonymous => &[],
            Peer::Certificates(chain) => chain,
            Peer::Admin => return Ok(admin_user()),
        };
        match self
            .authenticator
            .authenticate(certificates, headers, path, &registry.view(), registry.now())
        {
            Ok(authenticated) => Ok(authenticated.user),
            Err(reason) => {
                tracing::debug!(%reason, path, "a request was refused: unauthorized");
                Err(ApiError::unauthorized())
            }
        }
    }

    /// Checks whether impersonation and authorization of a request may take long. They do if its roles are large,
    /// which any user with the right to write roles can cause.
    pub(crate) fn is_long_to_admit(&self, caller: &UserInfo, headers: &HeaderMap, attributes: &Attributes) -> bool {
        let acting = ImpersonationRequest::from_headers(headers).ok().flatten();
        let acting = acting.map(|request| request.likely_user());
        self.rights.with_index(|rbac| {
            let outweighs = |user: &UserInfo| rbac.outweighs(user, &attributes.namespace, SMALL_ROLES);
            outweighs(caller) || acting.as_ref().is_some_and(outweighs)
        })
    }

    /// Returns the user as which the request acts, if that user has the right for the request.
    pub(crate) fn admit(
        &self,
        caller: UserInfo,
        headers: &HeaderMap,
        attributes: &Attributes,
        trail: &AuditRecord,
    ) -> Result<UserInfo, ApiError> {
        let user = match self
            .impersonator
            .impersonate(&caller, attributes, headers, &*self.rights)
            .map_err(ApiError::from)?
        {
            Some(acting) => {
                trail.record_impersonation(&acting.user, &acting.constraint);
                acting.user
            }
            None => caller,
        };
        let decision = self.rights.authorize(&user, attributes);
        trail.record_decision(&decision);
        if decision.allowed {
            return Ok(user);
        }
        Err(Refusal::forbidden(&user, attributes, &decision.reason).into())
    }
}

/// Returns the admin as its client certificate names it.
fn admin_user() -> UserInfo {
    let mut user = UserInfo {
        name: "kubernetes-admin".to_owned(),
        ..UserInfo::default()
    };
    user.ensure_group(tenure_auth::identity::MASTERS);
    user.ensure_group(tenure_auth::identity::AUTHENTICATED);
    user
}

/// Returns a request's attributes for authorizers.
pub(crate) fn make_attributes(info: &RequestInfo) -> Attributes {
    if !info.is_resource {
        return Attributes::path(&info.verb, &info.path);
    }
    Attributes {
        verb: info.verb.clone(),
        group: info.group.clone(),
        version: info.version.clone(),
        resource: info.resource.clone(),
        subresource: info.subresource.clone().unwrap_or_default(),
        namespace: info.namespace.clone().unwrap_or_default(),
        name: info.name.clone().unwrap_or_default(),
        path: None,
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self {
            code: refusal.code,
            reason: refusal.reason.into(),
            message: refusal.message,
            details: refusal.details.unwrap_or_default(),
        }
    }
}
