//! InitProducerId, versions 0 to 5, for idempotent producers.
//!
//! Ids come from blocks this broker has been given by the controller; each shard uses up blocks of its own, so no id is
//! given twice, whatever crashes. Epochs begin at 0.
//!
//! Gaps: there is no transaction coordinator, so transactional ids are answered NOT_COORDINATOR.

use walser_machine::metadata::controller::{Command, Reply};
use walser_protocol::ErrorCode;
use walser_protocol::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};

use super::{Frame, HandlerOutcome, RequestContext};

/// Gives a producer its id.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match InitProducerIdRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let given = match request.transactional_id {
        Some("") => Err(ErrorCode::InvalidRequest),
        Some(_) => Err(ErrorCode::NotCoordinator),
        // Half of an identity (KIP-360).
        None if (request.producer_id == -1) != (request.producer_epoch == -1) => Err(ErrorCode::InvalidRequest),
        None => next_id(&context).await,
    };
    let response = match given {
        Ok(producer_id) => {
            InitProducerIdResponse { producer_id, producer_epoch: 0, ..InitProducerIdResponse::default() }
        }
        Err(error) => InitProducerIdResponse {
            error_code: error.code(),
            producer_id: -1,
            producer_epoch: -1,
            ..InitProducerIdResponse::default()
        },
    };
    context.reply(&response)
}

async fn next_id(context: &RequestContext) -> Result<i64, ErrorCode> {
    let shard = &context.shard;
    if let Some(id) = shard.producer_ids.borrow_mut().next() {
        return Ok(id);
    }
    let command = Command::AllocateProducerIds { broker_id: shard.node_id() };
    match shard.control(command).await {
        Some(Reply::AllocateProducerIds(Ok(block))) => {
            let mut ids = block.first..block.first + block.len;
            let id = ids.next().ok_or(ErrorCode::UnknownServerError)?;
            // Another request of this shard may have fetched a block meanwhile; what is left of that one is given up.
            *shard.producer_ids.borrow_mut() = ids;
            Ok(id)
        }
        Some(Reply::AllocateProducerIds(Err(error))) => Err(ErrorCode::from(&error)),
        Some(_) | None => Err(ErrorCode::CoordinatorNotAvailable),
    }
}
