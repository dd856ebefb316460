//! The broker's process.

use std::process::ExitCode;
use std::sync::Arc;

use walser_broker::config::{BrokerConfig, Settings};
use walser_broker::run::run;
use walser_broker::shard::ShardSettings;

fn main() -> ExitCode {
    let mut settings = Settings::default();
    for pair in std::env::args().skip(1) {
        if let Err(error) = settings.set_pair(&pair) {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    }
    match BrokerConfig::new(settings) {
        Ok((config, _)) => serve(config),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn serve(config: BrokerConfig) -> ExitCode {
    let settings = match ShardSettings::new(Arc::new(config)) {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let ready = |broker: &walser_broker::shard::start::RunningBroker| {
        let listeners: Vec<String> =
            broker.listeners().iter().map(|listener| listener.advertised.to_string()).collect();
        println!(
            "walser ready listeners={} node.id={} shards={} data.dir={}",
            listeners.join(","),
            settings.config.node_id,
            settings.cpus.len(),
            settings.config.data_dir.display()
        );
    };
    match run(&settings, ready) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(1)
        }
    }
}
