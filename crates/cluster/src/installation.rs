//! Puts in place what an installation consists of, and takes it away. Refuses to be used without the identity that tenancy gives for that, and to
//! write anything in another way than by server-side apply.

use serde_json::Value;
use tenure_tenancy::Installer;

/// The API server, as the one who installs.
#[derive(Clone)]
pub struct Installation {
    administrator: kube::Client,
    installer: Installer,
}

impl Installation {
    /// Writes with an administrator's client, as this identity.
    #[must_use]
    pub fn new(administrator: kube::Client, installer: Installer) -> Self {
        Self {
            administrator,
            installer,
        }
    }

    /// The object at a path, if it is there.
    ///
    /// # Errors
    /// Whatever the API server, or the way to it, refuses with; that there is none is no error.
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

    /// Applies an object at its path, and overrules whoever else has its fields.
    ///
    /// # Errors
    /// Whatever the API server, or the way to it, refuses with.
    pub async fn apply(&self, path: &str, manager: &str, object: &Value) -> Result<(), kube::Error> {
        tracing::debug!(path, identity = %self.installer, "installing");
        let request = http::Request::patch(format!("{path}?fieldManager={manager}&force=true"))
            .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
            .body(object.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        self.administrator.request::<Value>(request).await.map(drop)
    }

    /// Deletes the object at a path; one that is not there is deleted.
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
