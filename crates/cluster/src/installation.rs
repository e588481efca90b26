//! Writes and deletes the objects of an installation.
//!
//! Every use needs the `Installer` identity from tenancy, and every write is a server-side apply.

use serde_json::Value;
use tenure_tenancy::Installer;

/// A client of the API server for an installation.
#[derive(Clone)]
pub struct Installation {
    administrator: kube::Client,
    installer: Installer,
}

impl Installation {
    /// Returns an installation that writes with an administrator's client, as this identity.
    #[must_use]
    pub fn new(administrator: kube::Client, installer: Installer) -> Self {
        Self {
            administrator,
            installer,
        }
    }

    /// Returns the object at a path, if the object exists.
    ///
    /// # Errors
    /// A refusal by the API server, or a failed connection. A missing object is no error.
    pub async fn find(&self, path: &str) -> Result<Option<Value>, kube::Error> {
        let request = http::Request::get(path)
            .body(Vec::new())
            .map_err(kube::Error::HttpError)?;
        match self.administrator.request::<Value>(request).await {
            Ok(found) => Ok(Some(found)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Applies an object at its path, and takes its fields over from all other managers.
    ///
    /// # Errors
    /// A refusal by the API server, or a failed connection.
    pub async fn apply(&self, path: &str, manager: &str, object: &Value) -> Result<(), kube::Error> {
        tracing::debug!(path, identity = %self.installer, "installing");
        let request = http::Request::patch(format!("{path}?fieldManager={manager}&force=true"))
            .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
            .body(object.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        self.administrator.request::<Value>(request).await.map(drop)
    }

    /// Creates an object in the collection at a path. Unlike [`Self::apply`], it changes no existing object.
    ///
    /// # Errors
    /// A refusal by the API server, also if the object exists, or a failed connection.
    pub async fn create(&self, path: &str, manager: &str, object: &Value) -> Result<(), kube::Error> {
        tracing::debug!(path, identity = %self.installer, "creating");
        let request = http::Request::post(format!("{path}?fieldManager={manager}"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(object.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        self.administrator.request::<Value>(request).await.map(drop)
    }

    /// Returns the object at a path, and the object that [`Self::apply`] would leave there. Nothing is written. An object that does not exist is not sent, since its
    /// namespace or its kind may be missing, too.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub async fn preview(
        &self,
        path: &str,
        manager: &str,
        object: &Value,
    ) -> Result<(Option<Value>, Value), kube::Error> {
        let Some(live) = self.find(path).await? else {
            return Ok((None, object.clone()));
        };
        let request = http::Request::patch(format!("{path}?fieldManager={manager}&force=true&dryRun=All"))
            .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
            .body(object.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        let applied = self.administrator.request::<Value>(request).await?;
        Ok((Some(live), applied))
    }

    /// Deletes the object at a path; a missing object counts as deleted.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub async fn delete(&self, path: &str) -> Result<(), kube::Error> {
        tracing::debug!(path, identity = %self.installer, "taking away");
        let request = http::Request::delete(path)
            .body(Vec::new())
            .map_err(kube::Error::HttpError)?;
        match self.administrator.request::<Value>(request).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            deleted => deleted.map(drop),
        }
    }
}
