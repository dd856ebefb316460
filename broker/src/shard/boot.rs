//! The control executor from its start to its end: reads what the last run left, gives every shard its first image, and seals
//! the directories at a clean stop.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_lite::future::or;
use walser_machine::ids::DirectoryId;
use walser_machine::metadata::MetadataImage;
use walser_protocol::types::Uuid;
use walser_storage::data_dir::DataDir;
use walser_storage::disk::Disk;
use walser_storage::runtime::Runtime;
use walser_storage::runtime::channel::Notify;

use super::ShardDisk;
use super::control::{self, Control};
use super::gate::{Gates, spawn_inside, wait_empty_until};
use super::mesh::{Mesh, MeshLinks};
use super::runtime::ShardRuntime;
use super::service::{ImageChange, ImageUpdate, ShardReply, ShardRequest};
use super::start::{CUT_WAIT, StartError, StepDone, StopStep, Stopped, open_dir};
use super::watchdog::Pulse;
use crate::config::broker::BrokerConfig;
use crate::config::rules::BrokerRules;
use crate::driver::boot::dirs::{DirsError, identify};
use crate::driver::boot::{self, BootError, settle_all};
use crate::driver::checkpoints::DirCheckpoints;
use crate::driver::homes::Placing;
use crate::driver::partition::reconcile::{Boot, ClosedLog, DirBoot, Homes};
use crate::log_dirs::{LogDir, LogDirIndex, LogDirs};
use crate::metrics::Metrics;
use crate::net::listener::ListenerInfo;

/// Between two attempts to make a reserve whole.
const RESERVE_WAIT: Duration = Duration::from_secs(1);

/// What the control executor is made of.
pub(super) struct ControlParts {
    pub log_dirs: Arc<LogDirs>,
    pub config: Arc<BrokerConfig>,
    pub metrics: Arc<Metrics>,
    pub listeners: Vec<ListenerInfo>,
    pub shard_count: u16,
    pub ready: mpsc::Sender<Result<(), StartError>>,
    pub links: MeshLinks<ShardRequest, ShardReply>,
    pub pulse: Arc<Pulse>,
    pub steps: flume::Receiver<StopStep>,
    pub done: mpsc::Sender<StepDone>,
}

/// Directories of logs that are online.
type OnlineDirs = BTreeMap<LogDirIndex, DataDir<ShardDisk>>;

/// Runs until the broker has stopped.
pub(super) async fn run_control(parts: ControlParts) {
    let runtime = ShardRuntime::new();
    let mesh = Mesh::new(parts.links, runtime);
    let control = Rc::new(Control {
        runtime,
        mesh: Rc::clone(&mesh),
        shard_count: parts.shard_count,
        gates: Gates::new(),
        commands: Rc::default(),
        log_dirs: Arc::clone(&parts.log_dirs),
        checkpoints: RefCell::default(),
        placing: RefCell::default(),
        metrics: parts.metrics,
        pulse: parts.pulse,
    });
    let mends = reserves(&control.log_dirs);
    let (serving, turning, bells) = (Rc::clone(&control), Rc::clone(&control), mends.clone());
    // The watchdog's bell has it come here once a second.
    let turned = move || {
        turning.pulse.note_turn();
        turning.metrics.failed_log_dirs.set(turning.log_dirs.failed_count() as u64);
        for (_, mend) in bells.iter().filter(|(disk, _)| disk.is_short()) {
            mend.notify_one();
        }
    };
    let receiving = Rc::clone(&mesh).run(move |request, reply_to| control::serve(&serving, request, reply_to), turned);
    spawn_inside(&control.runtime, &control.gates.internals, receiving);
    spawn_inside(&control.runtime, &control.gates.internals, Rc::clone(&mesh).run_guard());
    let online = match start(&control, &parts.config, &parts.listeners).await {
        Ok(online) => online,
        Err(error) => {
            drop(parts.ready.send(Err(error)));
            return;
        }
    };
    drop(parts.ready.send(Ok(())));
    for (disk, mend) in mends {
        spawn_inside(&control.runtime, &control.gates.internals, keep_reserve(Rc::clone(&control), disk, mend));
    }
    while let Ok(step) = parts.steps.recv_async().await {
        let stopped = match step {
            StopStep::Connections | StopStep::Drivers => Stopped::Clean,
            StopStep::Seal(closed, unclean) => seal(&control, &online, closed, &unclean).await,
            StopStep::Exit => break,
        };
        parts.done.send(StepDone::nothing_closed(stopped)).ok();
    }
    mesh.close();
    control.gates.end_internals(&control.runtime).await;
}

/// The disk of every directory that keeps a reserve, and what wakes its keeper.
fn reserves(log_dirs: &LogDirs) -> Vec<(ShardDisk, Rc<Notify>)> {
    let metadata = log_dirs.metadata_index().is_none().then(|| log_dirs.metadata_dir());
    let dirs = log_dirs.iter().map(|(_, dir)| dir).chain(metadata).filter(|dir| !dir.is_offline());
    dirs.map(|dir| (open_dir(dir).disk().clone(), Rc::new(Notify::new()))).collect()
}

/// Makes what is kept back for a full disk, and makes it whole again when it was given up.
async fn keep_reserve(control: Rc<Control>, disk: ShardDisk, mend: Rc<Notify>) {
    let keep = async {
        loop {
            let was_short = disk.is_short();
            match disk.make_reserve().await {
                Ok(()) if was_short => tracing::info!("the reserve is whole again: appends are taken"),
                Ok(()) => {}
                Err(error) if was_short => tracing::debug!(%error, "no room for the reserve yet"),
                Err(error) => tracing::warn!(%error, "no room for the reserve: appends are refused until there is"),
            }
            // Not more often than the disk could have changed.
            control.runtime.sleep(RESERVE_WAIT).await;
            if !disk.is_short() {
                mend.notified().await;
            }
        }
    };
    or(keep, control.gates.internals.closing()).await;
}

/// Notes in each directory where its logs end, and that all is done where it is.
async fn seal(
    control: &Control,
    online: &OnlineDirs,
    closed: Vec<ClosedLog>,
    unclean: &BTreeSet<LogDirIndex>,
) -> Stopped {
    control.commands.close();
    control.gates.drivers.close();
    wait_empty_until(&control.runtime, &control.gates.drivers, CUT_WAIT).await;
    let checkpoints = control.checkpoints.take();
    let mut ends = match &checkpoints {
        Some(checkpoints) => checkpoints.end().await,
        None => BTreeMap::new(),
    };
    let mut by_dir: BTreeMap<LogDirIndex, Vec<ClosedLog>> = BTreeMap::new();
    for log in closed {
        by_dir.entry(log.offsets.dir).or_default().push(log);
    }
    let mut stopped = Stopped::Clean;
    for (dir, data_dir) in online {
        let (closed, ends) = (by_dir.remove(dir).unwrap_or_default(), ends.remove(dir).unwrap_or_default());
        if let Err(error) = boot::seal(data_dir, &closed, ends, !unclean.contains(dir)).await {
            tracing::error!(%error, "the stop is not noted as clean; the next start recovers");
            stopped = Stopped::Late;
        }
    }
    stopped
}

/// Reads what the last run left and gives every shard its first image.
async fn start(
    control: &Rc<Control>,
    config: &Arc<BrokerConfig>,
    listeners: &[ListenerInfo],
) -> Result<OnlineDirs, StartError> {
    let log_dirs = &control.log_dirs;
    let metadata_dir = open_dir(log_dirs.metadata_dir());
    let is_other =
        |(index, dir): &(LogDirIndex, &LogDir)| !dir.is_offline() && log_dirs.metadata_index() != Some(*index);
    let others: Vec<_> = log_dirs.iter().filter(is_other).collect();
    let opened: Vec<_> = others.iter().map(|(_, dir)| (*dir, open_dir(dir))).collect();
    let identity = identify(&metadata_dir, &opened, config.node_id).await?;
    let other_ids = others.iter().map(|(index, _)| *index).zip(identity.other_ids.iter().copied());
    let own_id = log_dirs.metadata_index().map(|index| (index, Some(identity.metadata_id)));
    let ids: BTreeMap<LogDirIndex, Uuid> =
        other_ids.chain(own_id).filter_map(|(index, id)| Some((index, id?))).collect();
    let mut metadata = boot::metadata(&metadata_dir, control.runtime, config, &identity.cluster_id).await?;
    ids.iter().for_each(|(index, id)| log_dirs.dir(*index).set_id(*id));
    let dirs = ids.keys().map(|index| (*index, open_dir(log_dirs.dir(*index)))).collect();
    let image = Arc::clone(metadata.image());
    let settled = settle_all(log_dirs, dirs, &control.runtime, &image, config.node_id).await?;
    if !identity.has_metadata && settled.has_partitions {
        let path = metadata_dir.path().to_owned();
        return Err(BootError::from(DirsError::MetadataGone { path }).into());
    }
    control.metrics.journal_damage.set(settled.damage_count);
    let present: Vec<Uuid> = settled.online.keys().filter_map(|index| ids.get(index).copied()).collect();
    *control.placing.borrow_mut() = Placing::new(config.node_id, log_dirs.len(), settled.homes, &settled.moves);
    let directories = place_homeless(control, &image, config, present, &settled.held);
    boot::register(&mut metadata, config, listeners, directories).await?;
    let dirs = log_dirs.iter().map(|_| DirBoot::default()).collect();
    let mut left = Boot { is_start: true, dirs, moves: settled.moves, held: settled.held };
    let (mut online, mut checkpoints) = (OnlineDirs::new(), BTreeMap::new());
    for (index, dir) in settled.online {
        left.dirs[index.index()] = boot::read(&dir.checkpoints, dir.is_clean);
        checkpoints.insert(index, dir.checkpoints);
        online.insert(index, dir.data_dir);
    }
    let checkpoints = Rc::new(DirCheckpoints::new(Arc::clone(log_dirs), checkpoints));
    control.checkpoints.replace(Some(Rc::clone(&checkpoints)));
    let homes = Arc::new(control.placing.borrow().homes().clone());
    let update = ImageUpdate { image: Arc::clone(metadata.image()), change: ImageChange::First(Arc::new(left)), homes };
    if control.publish(&update).await.is_err() {
        return Err(StartError::Ended);
    }
    let (commands, publisher) = (Rc::clone(&control.commands), Rc::clone(control));
    let rules = BrokerRules(Arc::clone(config));
    let writer = metadata.run(commands, async move |image, delta| {
        checkpoints.follow(&image, &delta).await;
        let cordoned = rules.view(&image).cordoned();
        let homes = Arc::new(publisher.placing.borrow_mut().follow(&delta, &publisher.log_dirs, &cordoned));
        publisher.publish(&ImageUpdate { image, change: ImageChange::Delta(delta), homes }).await.is_ok()
    });
    spawn_inside(&control.runtime, &control.gates.drivers, writer);
    Ok(online)
}

/// Gives a directory to partitions that have none, unless they may be in one that is not there. `present`: ids of directories
/// that are; which ones are registered. `held` are partitions of which the newer replica is not there.
fn place_homeless(
    control: &Control,
    image: &MetadataImage,
    config: &Arc<BrokerConfig>,
    mut present: Vec<Uuid>,
    held: &Homes,
) -> Vec<DirectoryId> {
    let known = image.broker(boot::node_id(config)).map(|broker| broker.directories.clone()).unwrap_or_default();
    let missing: Vec<Uuid> = known.iter().map(|id| id.get()).filter(|id| !present.contains(id)).collect();
    let has_offline = control.log_dirs.iter().any(|(_, dir)| dir.is_offline());
    let mut placing = control.placing.borrow_mut();
    let homeless = placing.homeless(image);
    let may_be_elsewhere = !homeless.is_empty() && (has_offline || !missing.is_empty());
    if may_be_elsewhere {
        let ids = missing.iter().map(Uuid::to_string).collect::<Vec<_>>().join(", ");
        tracing::error!(
            partitions = homeless.len(),
            missing_directory_ids = ids,
            "partitions are offline: they are in no directory, and one that may have them is not there"
        );
    } else {
        let cordoned = BrokerRules(Arc::clone(config)).view(image).cordoned();
        placing.place(homeless.into_iter().filter(|id| !held.contains_key(id)), &control.log_dirs, &cordoned);
    }
    if may_be_elsewhere || has_offline {
        // Until it is there again, or nothing is looked for any more.
        present.extend(missing);
    }
    present.into_iter().map(DirectoryId::new).collect()
}
