//! `walser start`: configuration, checks of the machine, then the broker until a signal comes.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

use super::exit;
use crate::config::{BrokerConfig, Notice, Settings, SettingsError};
use crate::http::HttpServer;
use crate::run::{self, RunError};
use crate::shard::ShardSettings;
use crate::shard::start::RunningBroker;
use crate::start_checks::{self, Unfit};

/// Start a broker
///
/// It serves until SIGTERM or SIGINT, which stop it cleanly; a second one ends it at once. When it serves, and not before,
/// it prints one line on standard output:
///
///   walser ready listeners=PLAINTEXT://127.0.0.1:9092 node.id=1 shards=2 data.dir=walser-data
///
/// Logs go to standard error. Settings are Kafka's, and a few of our own that begin with `walser.`; what is set on the
/// command line goes before the file, and later settings before earlier ones.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A server.properties as Kafka reads it
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One setting, as in --set listeners=PLAINTEXT://:9092; may be given many times
    #[arg(long = "set", short, value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Where data is kept; the same as --set log.dirs=DIR
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// CPUs the shards are pinned to, as in 0,2-3; the same as --set walser.cpus=LIST
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
}

/// Why a start did not end well.
enum Failure {
    Settings(SettingsError),
    Unfit(Unfit),
    Run(RunError),
}

/// Runs a broker to its end.
pub fn run(args: &Args) -> ExitCode {
    let (config, notices) = match read_settings(args) {
        Ok(read) => read,
        Err(error) => return fail(&Failure::Settings(error)),
    };
    start_log(&config.log_filter);
    for notice in &notices {
        match notice {
            Notice::Unknown(_) | Notice::Removed(_) => tracing::warn!("{notice}"),
            Notice::Inert(_) | Notice::ControllerListener(_) => tracing::info!("{notice}"),
        }
    }
    match serve(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure),
    }
}

fn fail(failure: &Failure) -> ExitCode {
    let (text, code) = match failure {
        Failure::Settings(error) => (error.to_string(), exit::USAGE),
        Failure::Unfit(error) => (error.to_string(), exit::UNFIT),
        Failure::Run(error) => (error.to_string(), exit::FAILED),
    };
    // Standard error may be gone; the exit code says it too.
    writeln!(std::io::stderr(), "walser: {text}").ok();
    ExitCode::from(code)
}

fn read_settings(args: &Args) -> Result<(BrokerConfig, Vec<Notice>), SettingsError> {
    let mut settings = Settings::default();
    if let Some(file) = &args.config {
        settings.read_file(file)?;
    }
    for pair in &args.settings {
        settings.set_pair(pair)?;
    }
    if let Some(dir) = &args.data_dir {
        settings.set("log.dirs", &dir.display().to_string());
    }
    if let Some(cpus) = &args.cpus {
        settings.set("walser.cpus", cpus);
    }
    BrokerConfig::new(settings)
}

fn start_log(filter: &str) {
    let from_environment = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let filter = from_environment.as_deref().and_then(|filter| filter.parse().ok()).or_else(|| filter.parse().ok());
    let filter = filter.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours);
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
}

fn serve(config: BrokerConfig) -> Result<(), Failure> {
    let fitness = start_checks::check(&config).map_err(Failure::Unfit)?;
    let config = Arc::new(config);
    let http = bind_http(&config).map_err(Failure::Unfit)?;
    let mut settings = ShardSettings::new(Arc::clone(&config)).map_err(Failure::Unfit)?;
    settings.connections_max = fitness.connections_max;
    settings.open_files_max = settings.open_files_max.min(fitness.open_files_max);
    let on_ready = |broker: &RunningBroker| {
        if let Some(server) = http {
            tracing::info!("metrics on http://{}/metrics", server.address());
            if let Err(error) = server.serve(Arc::clone(&settings.metrics)) {
                tracing::error!(%error, "no metrics: the HTTP thread cannot be started");
            }
        }
        announce(&config, settings.cpus.len(), broker);
    };
    run::run(&settings, on_ready).map_err(|error| match error {
        RunError::Start(error) => Failure::Unfit(start_checks::explain_start(error)),
        other @ (RunError::Signals(_) | RunError::StoppedLate) => Failure::Run(other),
    })
}

fn bind_http(config: &BrokerConfig) -> Result<Option<HttpServer>, Unfit> {
    let Some(address) = &config.http_listener else { return Ok(None) };
    let bound = HttpServer::bind(address);
    bound.map(Some).map_err(|error| start_checks::explain_listen(address.clone(), "walser.http.listener", error))
}

/// The ready line: programs that start a broker wait for it.
fn announce(config: &BrokerConfig, shards: usize, broker: &RunningBroker) {
    let listeners: Vec<String> =
        broker.listeners().iter().map(|listener| format!("{}://{}", listener.name, listener.bound)).collect();
    let data_dirs: Vec<String> = config.log_dirs.iter().map(|path| path.display().to_string()).collect();
    let line = format!(
        "walser ready listeners={} node.id={} shards={shards} data.dir={}",
        listeners.join(","),
        config.node_id,
        data_dirs.join(",")
    );
    let mut output = std::io::stdout().lock();
    // Nobody may be reading; the broker serves all the same.
    writeln!(output, "{line}").and_then(|()| output.flush()).ok();
}
