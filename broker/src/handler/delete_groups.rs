//! DeleteGroups, versions 0 to 3: deletes groups without members, and their positions.

use walser_machine::group::Command;
use walser_machine::group::command::DeleteGroups;
use walser_protocol::messages::delete_groups::{DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse};

use super::groups::reply_as;
use super::{Frame, HandlerOutcome, RequestContext};

/// See the module.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match DeleteGroupsRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    // Each is deleted, and answered, once.
    let mut seen = std::collections::BTreeSet::new();
    let group_ids: Vec<&str> = request.groups_names.iter().copied().filter(|id| seen.insert(*id)).collect();
    let command = |group_ids| Command::DeleteGroups(DeleteGroups { group_ids });
    let answers = |reply| reply_as!(DeleteGroups, reply);
    let deleted = context.ask_each(&group_ids, command, answers).await;
    let results = deleted.iter().map(|group| DeletableGroupResult {
        group_id: &group.group_id,
        error_code: group.error.code(),
        error_message: None,
    });
    context.reply(&DeleteGroupsResponse { throttle_time_ms: 0, results: results.collect() })
}
