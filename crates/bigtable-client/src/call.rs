//! One call of the API with its attempts: headers, token, deadline, retries.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use prost::Message;
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Request, Response, Status};

use crate::Client;
use crate::error::{Action, Error, Result};
use crate::retry::Attempts;
use stele_bigtable_proto::v2::FeatureFlags;

/// The target of a call, with the headers that proxies use for routing.
#[derive(Clone, Debug)]
pub struct Target {
    pub name: Arc<str>,
    params: MetadataValue<Ascii>,
    prefix: MetadataValue<Ascii>,
}

impl Target {
    /// Creates the target for a resource and the request field that names it.
    pub fn new(field: &str, name: &str, app_profile: Option<&str>) -> Result<Target> {
        let invalid =
            |_| Error::Options(format!("invalid name {name:?}: it cannot be sent in a header"));
        let mut params = format!("{field}={}", url_encode(name));
        if let Some(app_profile) = app_profile {
            params = format!("{params}&app_profile_id={}", url_encode(app_profile));
        }
        Ok(Target {
            name: name.into(),
            params: params.parse().map_err(invalid)?,
            prefix: name.parse().map_err(invalid)?,
        })
    }
}

/// Everything except letters, digits and `-_.~`.
const RESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Percent-encodes a value of a header or form.
pub fn url_encode(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, &RESERVED)
}

/// Returns the header that lists the features of this client.
pub fn features() -> MetadataValue<Ascii> {
    let flags = FeatureFlags {
        reverse_scans: true,
        last_scanned_row_responses: true,
        retry_info: true,
        ..Default::default()
    };
    URL_SAFE.encode(flags.encode_to_vec()).parse().expect("base64 is ASCII")
}

/// Whether a call may be retried after a transient failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    Allowed,
    Never,
}

/// A call in progress.
pub struct Call {
    client: Client,
    target: Target,
    pub action: Action,
    started: Instant,
    deadline: Option<Duration>,
    /// Whether progress restarts the deadline.
    renewed: bool,
    attempts: Attempts,
    /// The message of the last failed attempt.
    last: Option<String>,
}

impl Call {
    pub fn new(client: &Client, target: &Target, name: &'static str) -> Call {
        Call {
            client: client.clone(),
            target: target.clone(),
            action: Action { call: name, target: target.name.clone() },
            started: Instant::now(),
            deadline: client.deadline(),
            renewed: false,
            attempts: Attempts::new(client.retry()),
            last: None,
        }
    }

    /// Makes this a streaming call: the whole stream must arrive within
    /// `deadline` if it is set, otherwise each part of it within the client's
    /// deadline.
    pub fn streamed(mut self, deadline: Option<Duration>) -> Call {
        self.renewed = deadline.is_none();
        self.deadline = deadline.or(self.deadline);
        self
    }

    /// Records progress: resets the attempts, and the deadline if it is renewed.
    pub fn progress(&mut self) {
        self.attempts.progress();
        if self.renewed {
            self.started = Instant::now();
        }
    }

    /// Performs the call, with retries if they are allowed.
    pub async fn run<M, R, F>(
        mut self,
        message: M,
        repeat: Repeat,
        send: impl Fn(Request<M>) -> F,
    ) -> Result<R>
    where
        M: Clone,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        loop {
            let request = self.request(message.clone()).await?;
            let error = match self.attempt(send(request)).await {
                Ok(response) => return Ok(response.into_inner()),
                Err(error) => error,
            };
            if repeat == Repeat::Never {
                return Err(error);
            }
            self.pause(error).await?;
        }
    }

    /// Returns the message with the headers of an attempt that begins now.
    pub async fn request<M>(&mut self, message: M) -> Result<Request<M>> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert("x-goog-request-params", self.target.params.clone());
        metadata.insert("google-cloud-resource-prefix", self.target.prefix.clone());
        metadata.insert("bigtable-features", self.client.features());
        if let Some(token) = self.in_time(self.client.authorization()).await?? {
            request.metadata_mut().insert("authorization", token);
        }
        if let Some(left) = self.left() {
            request.set_timeout(left);
        }
        Ok(request)
    }

    /// Awaits a step of the call, until the deadline.
    pub async fn attempt<R>(&self, step: impl Future<Output = Result<R, Status>>) -> Result<R> {
        self.in_time(step).await?.map_err(|status| Error::from_status(&self.action, &status))
    }

    async fn in_time<R>(&self, step: impl Future<Output = R>) -> Result<R> {
        let Some(deadline) = self.deadline else { return Ok(step.await) };
        let until = self.started + deadline;
        tokio::time::timeout_at(until, step).await.map_err(|_| self.deadline_exceeded())
    }

    /// Waits until the next attempt may begin. Returns the error if it is
    /// permanent or the attempts are exhausted.
    pub async fn pause(&mut self, error: Error) -> Result<()> {
        if !error.is_retryable() {
            return Err(error);
        }
        let Some(pause) = self.attempts.pause(error.retry_after()) else { return Err(error) };
        tracing::debug!(%error, ?pause, "retrying");
        self.last = Some(error.message());
        if self.left().is_some_and(|left| left <= pause) {
            return Err(self.deadline_exceeded());
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// Returns the error for a response that violates the protocol.
    pub fn protocol_error(&self, what: impl Into<String>) -> Error {
        Error::Protocol { action: self.action.clone(), what: what.into() }
    }

    fn deadline_exceeded(&self) -> Error {
        Error::Deadline {
            action: self.action.clone(),
            after: self.deadline.unwrap_or_default(),
            last: self.last.clone(),
        }
    }

    /// Returns the time until the deadline, if there is one.
    fn left(&self) -> Option<Duration> {
        Some(self.deadline?.saturating_sub(self.started.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_name_the_table_and_the_app_profile() {
        let target = Target::new("table_name", "projects/p/instances/i/tables/t", Some("a b"));
        let target = target.unwrap();
        assert_eq!(
            target.params.to_str().unwrap(),
            "table_name=projects%2Fp%2Finstances%2Fi%2Ftables%2Ft&app_profile_id=a%20b"
        );
        assert_eq!(target.prefix.to_str().unwrap(), "projects/p/instances/i/tables/t");
        assert!(Target::new("name", "line\nbreak", None).is_err());
    }

    #[test]
    fn only_supported_features_are_announced() {
        let decoded = URL_SAFE.decode(features().as_bytes()).unwrap();
        let flags = FeatureFlags::decode(&decoded[..]).unwrap();
        assert!(flags.reverse_scans && flags.last_scanned_row_responses && flags.retry_info);
        assert!(!flags.routing_cookie && !flags.sessions_compatible);
    }
}
