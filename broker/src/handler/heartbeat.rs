//! Heartbeat, versions 0 to 4: keeps a classic member alive, and tells it when to join again.

use walser_machine::group::Command;
use walser_machine::group::command::Heartbeat;
use walser_protocol::messages::heartbeat::{HeartbeatRequest, HeartbeatResponse};

use super::groups::reply_as;
use super::{Frame, HandlerOutcome, RequestContext};

/// See the module.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match HeartbeatRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let command = || {
        Command::Heartbeat(Heartbeat {
            group_id: request.group_id.to_owned(),
            generation_id: request.generation_id,
            member_id: request.member_id.to_owned(),
            group_instance_id: request.group_instance_id.map(str::to_owned),
        })
    };
    let error = reply_as!(Heartbeat, context.ask_coordinator(request.group_id, command).await);
    context.reply(&HeartbeatResponse { throttle_time_ms: 0, error_code: error.code() })
}
