//! ApiVersions, versions 0-5: what this broker serves.
//!
//! A version that is not known is answered in version 0 with UNSUPPORTED_VERSION and the versions of ApiVersions itself
//! (KIP-511), so that the client can ask again. Client software names are checked as Kafka checks them. A request that names
//! another cluster or node is told to bootstrap anew (KIP-1242).
//!
//! Of Kafka's features the metadata version and that of groups (KIP-848) are there. What a feature stands for that is left out, as
//! transactions of the second version, clients must not use, and they know it by its absence. Their levels cannot be changed.

use walser_machine::metadata::MetadataImage;
use walser_protocol::messages::api_versions::{
    ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey,
};
use walser_protocol::{ApiKey, ErrorCode};

use super::{Frame, HandlerOutcome, RequestContext, dispatch};

/// The node id of a client that names none.
const NO_NODE: i32 = -1;
/// Kafka's name for the level of what the cluster can do as a whole.
const METADATA_VERSION: &str = "metadata.version";
/// Kafka's 3.3-IV3, the lowest level Kafka 4 knows.
const METADATA_VERSION_MIN: i16 = 7;
/// Kafka's 4.4-IV2.
const METADATA_VERSION_MAX: i16 = 33;

/// Kafka's name for which protocols groups may use; 1 is that of KIP-848.
const GROUP_VERSION: &str = "group.version";
const GROUP_VERSION_MAX: i16 = 1;
/// First version in which a feature may begin at level 0.
const LEVEL_ZERO_FROM: i16 = 4;

/// See the module.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let served = ApiKey::ApiVersions.served().expect("the table of versions has it");
    if !served.answers(context.version) {
        let response = ApiVersionsResponse {
            error_code: ErrorCode::UnsupportedVersion.code(),
            api_keys: vec![api_version(served.key, served.advertised_min, served.version_max)],
            ..ApiVersionsResponse::default()
        };
        return context.reply_in_version(0, &response);
    }
    let mut reader = frame.reader();
    let request = match ApiVersionsRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let error = verify(&context, &request);
    if error.is_error() {
        return context.reply(&ApiVersionsResponse { error_code: error.code(), ..ApiVersionsResponse::default() });
    }
    let api_keys =
        dispatch::served().map(|served| api_version(served.key, served.advertised_min, served.version_max)).collect();
    let image = context.shard.image();
    context.reply(&ApiVersionsResponse {
        api_keys,
        supported_features: supported_features(context.version),
        // Clients ignore an epoch below one they know.
        finalized_features_epoch: i64::try_from(image.end_offset()).unwrap_or(i64::MAX),
        finalized_features: finalized_features(&image),
        ..ApiVersionsResponse::default()
    })
}

fn api_version(key: ApiKey, min_version: i16, max_version: i16) -> ApiVersion {
    ApiVersion { api_key: key.code(), min_version, max_version }
}

fn supported_features(version: i16) -> Vec<SupportedFeatureKey<'static>> {
    let key = |name, min_version, max_version| SupportedFeatureKey { name, min_version, max_version };
    let mut features = vec![
        key(GROUP_VERSION, 0, GROUP_VERSION_MAX),
        key(METADATA_VERSION, METADATA_VERSION_MIN, METADATA_VERSION_MAX),
    ];
    features.retain(|feature| feature.min_version > 0 || version >= LEVEL_ZERO_FROM);
    features
}

/// The levels that count; a cluster whose metadata names none of a feature works at its newest.
fn finalized_features(image: &MetadataImage) -> Vec<FinalizedFeatureKey<'_>> {
    let key = |name, level| FinalizedFeatureKey { name, max_version_level: level, min_version_level: level };
    let mut features: Vec<_> = image.features().map(|(name, level)| key(name, level)).collect();
    for (name, newest) in [(GROUP_VERSION, GROUP_VERSION_MAX), (METADATA_VERSION, METADATA_VERSION_MAX)] {
        if image.feature_level(name) == 0 {
            features.push(key(name, newest));
        }
    }
    features
}

fn verify(context: &RequestContext, request: &ApiVersionsRequest<'_>) -> ErrorCode {
    // Whom the client means is said whole or not at all; older versions say nothing.
    let is_half_said = request.cluster_id.is_some() != (request.node_id != NO_NODE);
    let is_software_named = context.version < 3
        || (is_software_name(request.client_software_name) && is_software_name(request.client_software_version));
    if is_half_said || !is_software_named {
        return ErrorCode::InvalidRequest;
    }
    let image = context.shard.image();
    let is_other_cluster = request.cluster_id.is_some_and(|id| id != image.cluster_id());
    let is_other_node = request.node_id != NO_NODE && request.node_id != context.shard.node_id().get();
    if is_other_cluster || is_other_node { ErrorCode::RebootstrapRequired } else { ErrorCode::None }
}

/// Letters, digits, `-` and `.`, the last two not at either end; what monitoring systems can take as a label.
fn is_software_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    is_edge(bytes.first())
        && is_edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_names_are_checked_as_kafka_does() {
        // Rule: letters, digits, inner dots and dashes.
        for good in ["a", "librdkafka", "apache-kafka-java", "2.12.0", "x-1.y"] {
            assert!(is_software_name(good), "{good}");
        }
        for bad in ["", "-a", "a.", "a b", "a_b", "ä"] {
            assert!(!is_software_name(bad), "{bad}");
        }
    }
}
