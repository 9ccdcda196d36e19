//! The body of a call whose messages are checked as they arrive. The frame that completes
//! a message reaches the service only if the caller may do what the message asks for.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use stele_auth::message::{Malformed, Scanner};
use stele_auth::methods::Requirement;
use tonic::Status;
use tonic::body::Body;

use super::gate::{Gate, Origin};

pub struct GuardedBody {
    inner: Body,
    scanner: Scanner,
    gate: Arc<Gate>,
    origin: Origin,
    rpc: String,
    requirements: &'static [Requirement],
    /// The first resource, for the audit log.
    resource: Arc<OnceLock<String>>,
    refused: bool,
}

/// Why a message does not pass.
enum Refusal {
    Malformed(Malformed),
    Denied(String, Status),
}

impl From<Malformed> for Refusal {
    fn from(why: Malformed) -> Refusal {
        Refusal::Malformed(why)
    }
}

impl GuardedBody {
    pub fn new(
        inner: Body,
        gate: Arc<Gate>,
        origin: Origin,
        rpc: String,
        requirements: &'static [Requirement],
        resource: Arc<OnceLock<String>>,
    ) -> GuardedBody {
        let scanner = Scanner::new(requirements);
        GuardedBody { inner, scanner, gate, origin, rpc, requirements, resource, refused: false }
    }

    fn check(&mut self, data: &[u8]) -> Result<(), Status> {
        let (gate, origin, requirements) = (&self.gate, &self.origin, self.requirements);
        let resource = &self.resource;
        let checked = self.scanner.advance(data, |found| {
            let first = found.names.first().map(|(_, name)| name.clone()).unwrap_or_default();
            let checked = gate.check_message(&origin.caller, requirements, &found);
            checked.map_err(|status| Refusal::Denied(first.clone(), status))?;
            let _ = resource.set(first);
            Ok(())
        });
        let (resource, status) = match checked {
            Ok(()) => return Ok(()),
            Err(Refusal::Denied(resource, status)) => (resource, status),
            Err(Refusal::Malformed(why)) => {
                let why = format!("the request cannot be checked: {why}");
                (String::new(), Status::invalid_argument(why))
            }
        };
        self.gate.record_refusal(&self.origin, &self.rpc, &resource, &status);
        Err(status)
    }
}

impl http_body::Body for GuardedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if this.refused {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(cx));
        Poll::Ready(match frame {
            Some(Ok(frame)) => match frame.data_ref().map(|data| this.check(data)) {
                None | Some(Ok(())) => Some(Ok(frame)),
                Some(Err(status)) => {
                    this.refused = true;
                    Some(Err(status))
                }
            },
            other => other,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.refused || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
