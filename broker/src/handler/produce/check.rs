//! Checks of batches that have to be decompressed or compressed, before they go to the shard that owns their partition.
//!
//! The owner appends in order and so cannot wait; here a connection waits for its own batch only. Small ones are checked
//! in place, the others on a helper thread ([`crate::shard::offload`]). What needs neither is checked by the owner.

use std::collections::BTreeMap;

use bytes::BytesMut;
use walser_protocol::records::compression::CompressionType;
use walser_storage::runtime::Runtime;
use walser_storage::validate::framing::codec;
use walser_storage::validate::{ValidBatch, ValidateConfig, ValidateError, validate, validate_small};

use super::Plan;
use crate::driver::partition::produce::{ProducePart, Records};
use crate::error::validate_config;
use crate::handler::RequestContext;
use crate::shard::placement::ShardId;
use crate::shard::{SLICE, runtime};

/// A compressed batch of this size or more is not decompressed here: it takes 100 us or longer.
const COMPRESSED_BYTES_MAX: usize = 16 << 10;
/// What a smaller one may turn out to be before it goes elsewhere after all.
const DECOMPRESSED_BYTES_MAX: usize = 128 << 10;

/// Checks every batch that needs more than a look.
pub async fn check(context: &RequestContext, plan: &Plan, by_shard: &mut BTreeMap<ShardId, Vec<ProducePart>>) {
    let mut slice_began = context.shard.runtime.now();
    for part in by_shard.values_mut().flatten() {
        check_part(context, plan, part).await;
        let now = context.shard.runtime.now();
        if now.saturating_since(slice_began) > SLICE {
            runtime::turn().await;
            slice_began = context.shard.runtime.now();
        }
    }
}

async fn check_part(context: &RequestContext, plan: &Plan, part: &mut ProducePart) {
    let Records::Sent(records) = &mut part.records else { return };
    let Some(codec) = codec(records) else { return };
    let config = context.shard.topic_config(plan.topic_of(part.slot).known_name());
    let config = validate_config(&config, context.shard.decompressed_bytes_max());
    let is_recompressed = config.compression.is_some_and(|target| target.codec() != codec);
    if codec == CompressionType::None && !is_recompressed {
        return;
    }
    let now_ms = context.shard.runtime.wall_clock_ms();
    let records = std::mem::take(records);
    let sent_bytes = records.len();
    let checked = if is_recompressed || sent_bytes >= COMPRESSED_BYTES_MAX {
        Err(records)
    } else {
        let room_max = DECOMPRESSED_BYTES_MAX;
        context.shard.offload.run_here(|room| validate_small(records, &config, now_ms, room, room_max))
    };
    let outcome = match checked {
        Ok(outcome) => outcome,
        Err(records) => check_elsewhere(context, records, config, now_ms).await,
    };
    part.records = Records::Checked { sent_bytes, outcome: outcome.map_err(Box::new) };
}

async fn check_elsewhere(
    context: &RequestContext,
    records: BytesMut,
    config: ValidateConfig,
    now_ms: i64,
) -> Result<ValidBatch, ValidateError> {
    context.shard.offload.run(move |room| validate(records, &config, now_ms, room)).await
}
