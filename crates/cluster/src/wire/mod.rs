//! The transport of requests to an API server: by a service, or over the network.
//!
//! If the server speaks HTTP/2, many requests share a connection. Only requests of one lane, or of the controller, share one, and open streams are apart from short
//! requests. No request of one lane goes over another lane's connection.

mod dial;
mod shared;

use std::sync::{Arc, Mutex, PoisonError};

use http::{Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use tenure_tenancy::LaneAccount;
use tower::{BoxError, Layer as _, ServiceBuilder};

use crate::connection::ConnectionError;
use dial::{Dial, OpenStream, open_to};
use shared::{SharedConnections, SpeaksHttp1};

/// The key of the connections that a request may use: their owner and their purpose.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Channel {
    pub(crate) holder: ConnectionOwner,
    pub(crate) purpose: Purpose,
}

/// The owner of connections. Requests of one owner never use another owner's connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ConnectionOwner {
    /// The controller, above the lanes.
    Controller,
    /// A lane, for its own requests and those of the ServiceAccounts in its namespaces.
    Lane(LaneAccount),
}

/// The purpose of a connection. An open stream takes neither streams nor buffers from short requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// Requests that end with their answer.
    Requests,
    /// Streams that stay open.
    Watches,
    /// Leader election, which must not be delayed by other requests.
    Leadership,
}

/// The transport of requests to an API server. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Wire {
    /// A service in this process, or one that has connections of its own.
    Service(kube::Client),
    /// The network.
    Network(Network),
}

/// Shared connections, and the transport for a server without HTTP/2.
#[derive(Clone)]
pub(crate) struct Network {
    shared: kube::Client,
    connections: SharedConnections,
    configuration: Arc<kube::Config>,
    /// The transport with one request at a time on each connection (HTTP/1.1). It is made after the server has turned out to lack HTTP/2.
    single: Arc<Mutex<Option<kube::Client>>>,
}

impl Wire {
    /// Returns the wire to the API server of a configuration, with its credentials.
    ///
    /// # Errors
    /// [`ConnectionError`] when the address, the authority or the credentials can't be used.
    pub(crate) fn over_network(configuration: kube::Config) -> Result<Self, ConnectionError> {
        let Some(dial) = Dial::over(open_to(&configuration.cluster_url), &configuration)? else {
            return Ok(Self::Service(connect_single(configuration)?));
        };
        let connections = SharedConnections::new(dial.into_opener());
        Ok(Self::Network(Network::new(configuration, connections, None)?))
    }

    /// Returns a wire over streams that the caller opens, for every address. The wire verifies the other end.
    ///
    /// # Errors
    /// [`ConnectionError`] when the authority can't be used.
    pub(crate) fn over_streams(configuration: kube::Config, open: OpenStream) -> Result<Self, ConnectionError> {
        let single = connect_single_over(&configuration, Arc::clone(&open))?;
        let Some(dial) = Dial::over(open, &configuration)? else {
            return Ok(Self::Service(single));
        };
        let connections = SharedConnections::new(dial.into_opener());
        Ok(Self::Network(Network::new(configuration, connections, Some(single))?))
    }

    /// Sends a request that `make` makes. If the server turns out to lack HTTP/2, `make` runs again; the first attempt sent nothing.
    pub(crate) async fn send<E>(
        &self,
        channel: &Channel,
        make: impl Fn() -> Result<Request<Body>, E>,
        unreachable: impl Fn(&(dyn std::error::Error + 'static)) -> E,
    ) -> Result<Response<Body>, E> {
        let network = match self {
            Self::Service(client) => return client.send(make()?).await.map_err(|error| unreachable(&error)),
            Self::Network(network) => network,
        };
        if !network.connections.is_refused() {
            let mut request = make()?;
            request.extensions_mut().insert(channel.clone());
            match network.shared.send(request).await {
                Err(kube::Error::Service(error)) if error.is::<SpeaksHttp1>() => {}
                sent => return sent.map_err(|error| unreachable(&error)),
            }
        }
        let client = network.single().map_err(|error| unreachable(&error))?;
        client.send(make()?).await.map_err(|error| unreachable(&error))
    }
}

impl Network {
    fn new(
        configuration: kube::Config,
        connections: SharedConnections,
        single: Option<kube::Client>,
    ) -> Result<Self, ConnectionError> {
        let sending = connections.clone();
        let service = ServiceBuilder::new()
            .layer(configuration.base_uri_layer())
            .option_layer(configuration.auth_layer()?)
            .layer(configuration.extra_headers_layer()?)
            .map_err(BoxError::from)
            .service(tower::service_fn(move |request| sending.clone().send(request)));
        Ok(Self {
            shared: kube::Client::new(service, "default"),
            connections,
            configuration: Arc::new(configuration),
            single: Arc::new(Mutex::new(single)),
        })
    }

    /// Returns the transport for HTTP/1.1, and makes it at the first call.
    fn single(&self) -> Result<kube::Client, ConnectionError> {
        let mut single = self.single.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = single.as_ref() {
            return Ok(client.clone());
        }
        tracing::info!("the API server has no HTTP/2: each watch uses a connection of its own");
        let client = connect_single(self.configuration.as_ref().clone())?;
        *single = Some(client.clone());
        Ok(client)
    }
}

fn connect_single(configuration: kube::Config) -> Result<kube::Client, ConnectionError> {
    Ok(ClientBuilder::try_from(configuration)?.build())
}

fn connect_single_over(configuration: &kube::Config, open: OpenStream) -> Result<kube::Client, ConnectionError> {
    let connector = tower::service_fn(move |_: Uri| {
        let opened = open();
        async move { Ok::<_, std::io::Error>(TokioIo::new(opened.await?)) }
    });
    let secured = configuration.rustls_https_connector_with_connector(connector)?;
    let client = Client::builder(TokioExecutor::new()).build::<_, Body>(secured);
    Ok(kube::Client::new(
        configuration.base_uri_layer().layer(client),
        "default",
    ))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt as _;
    use shared::NewConnection;

    use super::*;

    /// A proxy before the API server may speak only HTTP/1.1, so the wire falls back to unshared connections.
    #[tokio::test]
    async fn server_without_http2_is_asked_over_http1() {
        let opened = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&opened);
        let connections = SharedConnections::new(Arc::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
            async { Ok(NewConnection::Http1) }.boxed()
        }));
        let configuration = kube::Config::new("https://server.example".parse().expect("an address"));
        let network = Network::new(configuration, connections, None).expect("a network");
        let answer = |request: Request<Body>| async move {
            let path = request.uri().path().as_bytes().to_vec();
            Ok::<_, Infallible>(Response::new(Body::from(path)))
        };
        let single = kube::Client::new(tower::service_fn(answer), "default");
        *network.single.lock().expect("a lock") = Some(single);
        let wire = Wire::Network(network);
        let channel = Channel {
            holder: ConnectionOwner::Controller,
            purpose: Purpose::Requests,
        };
        for _ in 0..3 {
            let make = || {
                Request::get("/version")
                    .body(Body::empty())
                    .map_err(|error| error.to_string())
            };
            let sent = wire.send(&channel, make, ToString::to_string).await;
            let text = sent.expect("an answer").into_body().collect_bytes().await;
            assert_eq!(text.expect("a text"), "/version");
        }
        assert_eq!(opened.load(Ordering::SeqCst), 1, "it is asked once what it speaks");
    }
}
