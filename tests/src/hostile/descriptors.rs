//! A broker that may open few descriptors, and more connections than that.

use std::net::TcpStream;
use std::path::Path;

use super::honest::Honest;
use super::{Plan, wait_until_served};
use crate::process::BrokerOptions;

/// The least a broker starts with.
const DESCRIPTORS: u32 = 512;
const CONNECTIONS: usize = 1000;
const ROUNDS: usize = 2;

/// Connections beyond what is allowed do no harm to those that are there, and when they go, new ones are served.
pub fn run_out(plan: &Plan, log: &Path) -> Result<(), String> {
    let options = BrokerOptions::new(&plan.data_dir.join("few-descriptors"))
        .set("walser.memory", super::MEMORY)
        .log_to(log)
        .limit_descriptors(DESCRIPTORS);
    let mut broker = options.start().map_err(|error| error.to_string())?;
    let honest = Honest::start(broker.address())?;
    for _ in 0..ROUNDS {
        let mut held = Vec::new();
        for _ in 0..CONNECTIONS {
            // The kernel takes them for the broker; those it does not want are closed.
            held.push(TcpStream::connect(broker.address()).map_err(|error| error.to_string())?);
        }
        std::thread::sleep(plan.attack / 10);
        drop(held);
        wait_until_served(broker.address())?;
    }
    if let Some(status) = broker.ended().map_err(|error| error.to_string())? {
        return Err(format!("the broker died: {status}"));
    }
    println!("{:<22} {}", "descriptors", honest.latencies());
    honest.finish()?;
    let (status, _) = broker.stop().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("the clean stop ended with {status}")) }
}
