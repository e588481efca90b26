//! A TLS listener on a loopback address, in front of a server in this process.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::webhook::create_certificate;

/// The answer of a [`Front`] to one request.
pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

/// A TLS listener on 127.0.0.1, and the task that answers its requests. Dropping it closes the listener.
pub(crate) struct Front {
    /// The port, on 127.0.0.1.
    pub(crate) port: u16,
    /// The certificate of its CA, in PEM.
    pub(crate) authority: String,
    serving: JoinHandle<()>,
}

impl Front {
    /// Answers the requests of a listener.
    pub(crate) fn start<F, A>(listener: std::net::TcpListener, answer: F) -> anyhow::Result<Self>
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Answer> + Send + 'static,
    {
        let (tls, authority) = create_certificate()?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let port = listener.local_addr()?.port();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answer) = (acceptor.clone(), answer.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service = hyper::service::service_fn(move |request| {
                        let answer = answer(request);
                        async move { Ok::<_, Infallible>(answer.await) }
                    });
                    let connection = hyper::server::conn::http1::Builder::new();
                    let _gone = connection.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Self {
            port,
            authority,
            serving,
        })
    }

    /// Returns the address in the form `https://127.0.0.1:PORT`.
    pub(crate) fn endpoint(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
