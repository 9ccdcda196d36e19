//! Questions to a certain member, which need no leader.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use super::Machine;
use super::member::ClusterMember;
use super::message::{Request, response};
use super::transport::{Lane, Unreached};

/// How long a member may take to answer.
const INQUIRY_MAX: Duration = Duration::from_secs(3);

impl<M: Machine> ClusterMember<M> {
    /// Puts a question to another member's machine.
    pub async fn inquire(&self, member: u64, question: Bytes) -> Result<Bytes, Unreached> {
        let request = Request::Inquire(question).encode();
        let call = self.outbox.call(member, Lane::Client, request);
        let late = |_| Unreached::Unknown(format!("no answer within {INQUIRY_MAX:?}"));
        let bytes = timeout(INQUIRY_MAX, call).await.map_err(late)??;
        let unknown = || Unreached::Unknown("the member does not know the question".to_string());
        response::decode_answer(bytes).ok().flatten().ok_or_else(unknown)
    }
}
