//! What shutdown waits for: the executor drops no task when it ends, so every task that owns something is inside a gate.

use std::time::Duration;

use walser_storage::runtime::Runtime;
use walser_storage::runtime::channel::Gate;

/// How long the tasks get that end with the executor: more than any of them takes, unless the disk stands still.
const INTERNALS_WAIT: Duration = Duration::from_secs(5);

/// The gates of one executor, in the order in which they close.
#[derive(Clone, Default)]
pub struct Gates {
    /// Accept loops.
    pub listeners: Gate,
    /// Connections and the requests they have begun.
    pub connections: Gate,
    /// Drivers: partitions, coordinators, maintenance. They commit and close their logs before they leave.
    pub drivers: Gate,
    /// Mesh, timer and reaper: they end with the executor.
    pub internals: Gate,
}

impl Gates {
    /// Open gates.
    pub fn new() -> Self {
        Self::default()
    }

    /// Has the tasks end that end with the executor; what does not is left behind, and said.
    pub async fn end_internals<R: Runtime>(&self, runtime: &R) {
        self.internals.close();
        if !wait_empty_until(runtime, &self.internals, INTERNALS_WAIT).await {
            tracing::warn!("an executor ends, and leaves tasks behind that do not");
        }
    }
}

/// Starts a task that `gate` waits for; false when it is closed.
pub fn spawn_inside<R: Runtime>(runtime: &R, gate: &Gate, task: impl Future<Output = ()> + 'static) -> bool {
    let Some(guard) = gate.enter() else { return false };
    runtime.spawn(async move {
        task.await;
        drop(guard);
    });
    true
}

/// Waits until `gate` is empty, at most `deadline`; true when it is.
pub async fn wait_empty_until<R: Runtime>(runtime: &R, gate: &Gate, deadline: Duration) -> bool {
    let empty = async {
        gate.wait_empty().await;
        true
    };
    let late = async {
        runtime.sleep(deadline).await;
        false
    };
    futures_lite::future::or(empty, late).await
}
