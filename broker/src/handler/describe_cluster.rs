//! DescribeCluster, versions 0 to 2.
//!
//! Every listener is a broker's, so whoever asks for controllers is at the wrong endpoint.

use walser_protocol::ErrorCode;
use walser_protocol::messages::describe_cluster::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
};

use super::metadata::{CLUSTER_OPERATIONS, endpoint};
use super::{Frame, HandlerOutcome, RequestContext};

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

/// Describes the cluster.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match DescribeClusterRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    if let Err((error, message)) = verify_endpoint_type(request.endpoint_type) {
        return context.reply(&DescribeClusterResponse {
            error_code: error.code(),
            error_message: Some(&message),
            ..DescribeClusterResponse::default()
        });
    }
    let image = context.shard.image();
    let shown = image.brokers().filter(|broker| !broker.fenced || request.include_fenced_brokers);
    let brokers = shown.filter_map(|broker| {
        let (host, port) = endpoint(&context, broker)?;
        Some(DescribeClusterBroker {
            broker_id: broker.broker_id.get(),
            host,
            port: i32::from(port),
            rack: broker.rack.as_deref(),
            is_fenced: broker.fenced,
        })
    });
    let operations = if request.include_cluster_authorized_operations { CLUSTER_OPERATIONS } else { i32::MIN };
    context.reply(&DescribeClusterResponse {
        endpoint_type: BROKERS,
        cluster_id: image.cluster_id(),
        controller_id: context.shard.node_id().get(),
        brokers: brokers.collect(),
        cluster_authorized_operations: operations,
        ..DescribeClusterResponse::default()
    })
}

fn verify_endpoint_type(endpoint_type: i8) -> Result<(), (ErrorCode, String)> {
    match endpoint_type {
        BROKERS => Ok(()),
        CONTROLLERS => Err((
            ErrorCode::MismatchedEndpointType,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
                .to_owned(),
        )),
        other => Err((ErrorCode::UnsupportedEndpointType, format!("Unsupported endpoint type {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_types_are_refused_by_what_they_are() {
        // Rule: controllers are somewhere else, and what is neither has a code of its own (KIP-919).
        let code = |endpoint_type| verify_endpoint_type(endpoint_type).err().map(|(code, _)| code);
        assert_eq!(code(1), None);
        assert_eq!(code(2), Some(ErrorCode::MismatchedEndpointType));
        for unknown in [0, 3, -1] {
            assert_eq!(code(unknown), Some(ErrorCode::UnsupportedEndpointType), "{unknown}");
        }
    }
}
