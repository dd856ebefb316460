//! Appending for a coordinator, the one writer of its partition but for whoever may write to internal topics.
//!
//! A coordinator's state is ahead of its log, so a batch has to get exactly the offset it was made for.

use std::rc::Rc;

use walser_protocol::ErrorCode;
use walser_storage::disk::Disk;
use walser_storage::log::{Append, Place};
use walser_storage::runtime::Runtime;
use walser_storage::validate::ValidBatch;

use super::moves::SwitchPlace;
use super::waiter::{Interest, Waiter};
use super::{Partition, PartitionId, Partitions};
use crate::error::Refusal;

/// What became of a batch that was to be appended at once.
pub enum InternalAppend<D: Disk, R: Runtime> {
    Done,
    /// It waits for its turn: see [`Partitions::append_internal_in_turn`].
    Waits(InternalPlace<D, R>),
}

/// A batch in the line of its log, which has no room, or of a replica that changes its directory.
pub struct InternalPlace<D: Disk, R: Runtime> {
    batch: ValidBatch,
    wait: InternalWait<D, R>,
}

enum InternalWait<D: Disk, R: Runtime> {
    Room(Place<D, R>),
    Switch(SwitchPlace),
}

impl<D: Disk, R: Runtime> Partition<D, R> {
    /// Tells `waiter` whenever the partition has moved, as long as the interest is kept. It outlives changes of the directory.
    pub fn watch(&self, waiter: &Rc<Waiter>) -> Interest {
        self.waiters.join(waiter, 0)
    }
}

impl<D: Disk, R: Runtime> Partitions<D, R> {
    /// Appends a batch whose base offset is filled in; on an error nothing has changed. NOT_LEADER_OR_FOLLOWER where the log's
    /// end is not that offset.
    pub fn append_internal(&self, id: PartitionId, batch: ValidBatch) -> Result<InternalAppend<D, R>, ErrorCode> {
        let partition = self.leader(id)?;
        let wait = match self.moves.switch_of(id) {
            Some(switch) => Some(InternalWait::Switch(switch.stand_in_line())),
            None => partition.log.stand_in_line(batch.len()).map(InternalWait::Room),
        };
        match wait {
            Some(wait) => Ok(InternalAppend::Waits(InternalPlace { batch, wait })),
            None => self.append_internal_now(&partition, batch).map(|()| InternalAppend::Done),
        }
    }

    /// The same for a batch that had to wait. It waits as long as the disk takes: until then nothing else can be appended.
    pub async fn append_internal_in_turn(&self, id: PartitionId, place: InternalPlace<D, R>) -> Result<(), ErrorCode> {
        let InternalPlace { batch, wait } = place;
        let place = match wait {
            InternalWait::Room(place) => Some(place),
            InternalWait::Switch(place) => {
                place.turn().await;
                let partition = self.leader(id)?;
                // Whoever comes next does so behind this one.
                partition.log.stand_in_line(batch.len())
            }
        };
        if let Some(place) = &place {
            place.turn().await;
        }
        self.append_internal_now(&*self.leader(id)?, batch)
    }

    fn append_internal_now(&self, partition: &Partition<D, R>, batch: ValidBatch) -> Result<(), ErrorCode> {
        let log = &partition.log;
        if self.data_dir(partition.dir).disk().is_short() {
            return Err(ErrorCode::KafkaStorageError);
        }
        if batch.header().base_offset != log.log_end_offset() {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        let append = Append { batch, leader_epoch: partition.leader_epoch.get(), now_ms: self.runtime.wall_clock_ms() };
        let refused = |error| Refusal::from_append(&error, log.log_start_offset()).code;
        log.append_as_leader(append).map(drop).map_err(refused)
    }
}
