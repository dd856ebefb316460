//! The HTTP server: metrics and health, on a thread of its own, away from the shards.

mod prometheus;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

use crate::metrics::Metrics;

/// A socket that listens but does not answer yet.
pub struct HttpServer {
    socket: TcpListener,
    bound: SocketAddr,
}

impl HttpServer {
    /// Takes the address, so that a taken port stops the start.
    ///
    /// # Errors
    /// When the address cannot be resolved or bound.
    pub fn bind(address: &str) -> io::Result<Self> {
        let socket = TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        let bound = socket.local_addr()?;
        Ok(Self { socket, bound })
    }

    /// Where it listens; the port is never 0.
    pub fn address(&self) -> SocketAddr {
        self.bound
    }

    /// Answers until the process ends.
    ///
    /// # Errors
    /// When the thread cannot be made.
    pub fn serve(self, metrics: Arc<Metrics>) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        std::thread::Builder::new().name("http".into()).spawn(move || {
            let serving = runtime.block_on(async move {
                let socket = tokio::net::TcpListener::from_std(self.socket)?;
                axum::serve(socket, router(metrics)).await
            });
            if let Err(error) = serving {
                tracing::error!(%error, "the HTTP server ended");
            }
        })?;
        Ok(())
    }
}

fn router(metrics: Arc<Metrics>) -> Router {
    Router::new().route("/metrics", get(answer_metrics)).route("/health", get(answer_health)).with_state(metrics)
}

async fn answer_metrics(State(metrics): State<Arc<Metrics>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], prometheus::render(&metrics))
}

/// The process answers requests from the moment this server runs; a log that went offline makes it unhealthy.
async fn answer_health(State(metrics): State<Arc<Metrics>>) -> impl IntoResponse {
    let offline: u64 = metrics.shards().iter().map(|shard| shard.partitions_offline.value()).sum();
    if offline == 0 {
        (StatusCode::OK, "{\"status\":\"ok\"}\n".to_owned())
    } else {
        let body = format!("{{\"status\":\"degraded\",\"offlinePartitions\":{offline}}}\n");
        (StatusCode::SERVICE_UNAVAILABLE, body)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    fn ask(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).expect("the server listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    #[test]
    fn metrics_and_health_are_served() {
        // Rule: what a shard counts is what a scrape shows, and an offline log makes the broker unhealthy.
        let metrics = Arc::new(Metrics::default());
        let server = HttpServer::bind("127.0.0.1:0").expect("a free port");
        let address = server.address();
        server.serve(Arc::clone(&metrics)).expect("a thread");
        metrics.shard(1).messages_in.add(7);
        let answer = ask(address, "/metrics");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("\nkafka_server_brokertopicmetrics_messagesin_total 7\n"), "{answer}");
        assert!(ask(address, "/health").starts_with("HTTP/1.1 200"));
        metrics.shard(0).partitions_offline.set(1);
        assert!(ask(address, "/health").starts_with("HTTP/1.1 503"));
        assert!(ask(address, "/nothing").starts_with("HTTP/1.1 404"));
    }
}
