//! MutateRows. Each owner gets the entries of its rows, and the client the outcomes as the
//! owners answer. Entries of rows that have moved are sent again.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{SelectAll, StreamExt, unfold};
use prost::Message;
use stele_bigtable_proto::v2;
use stele_bigtable_proto::v2::mutate_rows_response::Entry as Outcome;
use stele_engine::TableId;
use stele_grpc::frame::{self, PREFIX_BYTES};
use tonic::body::Body;
use tonic::{Code, Status};

use super::call::Call;
use super::front::{Front, NoAnswer, lost, unreachable};
use super::patience::{Patience, nobody_serves};
use super::reply::{End, Reply, Stream, is_not_loaded, respond_with};
use super::wire::{self, Fields};
use crate::routes::Serving;

/// Fields of `MutateRowsRequest`, and of an entry.
const TABLE_NAME: u32 = 1;
const ENTRIES: u32 = 2;
const ROW_KEY: u32 = 1;
/// Outcomes in one message, which stays far below 4 MiB.
const OUTCOMES_MAX: usize = 1000;

pub async fn answer(
    front: Arc<Front>,
    call: Call,
    frame: Bytes,
) -> Result<http::Response<Body>, Status> {
    let request = match Request::of(&frame) {
        Some(request) if !request.entries.is_empty() => request,
        _ => return Ok(front.here(&call, frame).await),
    };
    let Some(table) = front.table(&call, &request.table_name).await? else {
        return Ok(front.here(&call, frame).await);
    };
    let todo = (0..request.entries.len()).collect();
    let patience = Patience::of(&call);
    Ok(respond_with(Writing {
        front,
        call: Arc::new(call),
        table,
        frame,
        is_answered: vec![false; request.entries.len()],
        request,
        todo,
        parts: Vec::new(),
        running: SelectAll::new(),
        patience,
        version: 0,
        outdated: None,
        obstacle: None,
        ready: VecDeque::new(),
        has_answered: false,
    }))
}

/// What routing needs of a request. Positions are those in the frame.
struct Request {
    table_name: Vec<u8>,
    entries: Vec<Entry>,
    /// All other fields, as they came.
    others: Vec<u8>,
}

struct Entry {
    span: Range<usize>,
    row: Range<usize>,
}

impl Request {
    /// Reads a request with its prefix; `None` if it is not valid.
    fn of(frame: &[u8]) -> Option<Request> {
        let message = &frame[PREFIX_BYTES..];
        let (mut table_name, mut others, mut entries) = (Vec::new(), Vec::new(), Vec::new());
        for field in Fields::of(message) {
            let field = field.ok()?;
            if field.tag == ENTRIES {
                let content = field.bytes()?;
                let [row] = wire::bytes_of(content, [ROW_KEY]).ok()?;
                let at = match row.is_empty() {
                    true => 0,
                    false => row.as_ptr().addr() - frame.as_ptr().addr(),
                };
                let span = PREFIX_BYTES + field.start..PREFIX_BYTES + field.end;
                entries.push(Entry { span, row: at..at + row.len() });
                continue;
            }
            if field.tag == TABLE_NAME {
                table_name = field.bytes()?.to_vec();
            }
            others.extend_from_slice(&message[field.span()]);
        }
        Some(Request { table_name, entries, others })
    }

    /// Returns the request with some of the entries, with its prefix.
    fn part(&self, whole: &Bytes, entries: &[usize]) -> Bytes {
        if entries.len() == self.entries.len() {
            return whole.clone();
        }
        let bytes: usize = entries.iter().map(|&at| self.entries[at].span.len()).sum();
        let mut part = frame::begin(self.others.len() + bytes);
        part.extend_from_slice(&self.others);
        for &at in entries {
            part.extend_from_slice(&whole[self.entries[at].span.clone()]);
        }
        frame::finish(part)
    }
}

/// A request that is being answered.
struct Writing {
    front: Arc<Front>,
    call: Arc<Call>,
    table: TableId,
    frame: Bytes,
    request: Request,
    is_answered: Vec<bool>,
    /// The entries that have to be sent, in the order of the request.
    todo: Vec<usize>,
    /// The entries of each part that was sent since all owners had answered.
    parts: Vec<Vec<usize>>,
    running: SelectAll<Pin<Box<dyn futures_util::Stream<Item = Event> + Send>>>,
    patience: Patience,
    /// The routes by which the parts were sent.
    version: u64,
    outdated: Option<u64>,
    /// Why entries have to be sent again.
    obstacle: Option<Status>,
    /// Messages for the client.
    ready: VecDeque<Bytes>,
    /// Whether the client has an outcome.
    has_answered: bool,
}

/// What happens to a part.
enum Event {
    Message(usize, Bytes),
    Ended(usize, Ended),
}

enum Ended {
    Answered,
    /// Not applied: the owner was not reached.
    NotSent(Status),
    /// Refused as a whole.
    Refused(Status),
    /// The outcome of what was not answered is unknown.
    Lost(Status),
}

impl Stream for Writing {
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                self.has_answered = true;
                return Ok(Some(message));
            }
            let outcomes = match self.running.next().await {
                Some(Event::Message(part, message)) => self.outcomes(part, &message)?,
                Some(Event::Ended(part, ended)) => self.ended(part, ended)?,
                None if self.todo.is_empty() => return Ok(None),
                None => self.begin().await,
            };
            self.ready.extend(outcomes.chunks(OUTCOMES_MAX).map(message));
        }
    }
}

impl Writing {
    /// Sends the entries that have to be sent. Returns the outcomes of those that nobody
    /// serves.
    async fn begin(&mut self) -> Vec<Outcome> {
        if let Some(obstacle) = self.obstacle.take()
            && let Err(status) = self.patience.wait(obstacle).await
        {
            return self.give_up(&status);
        }
        let routes = match self.front.routes().table(self.table, self.outdated.take()).await {
            Ok(routes) => routes,
            Err(error) => return self.give_up(&unreachable(&error)),
        };
        self.version = routes.version();
        let mut groups: BTreeMap<String, (Arc<Serving>, Vec<usize>)> = BTreeMap::new();
        let mut later = Vec::new();
        for at in std::mem::take(&mut self.todo) {
            match routes.owner(&self.frame[self.request.entries[at].row.clone()]).cloned() {
                Some(owner) => {
                    let group = groups.entry(owner.holder.id.clone());
                    group.or_insert_with(|| (owner, Vec::new())).1.push(at);
                }
                None => later.push(at),
            }
        }
        if !later.is_empty() {
            (self.obstacle, self.outdated) = (Some(nobody_serves()), Some(self.version));
        }
        self.todo = later;
        self.parts.clear();
        for (owner, entries) in groups.into_values() {
            let part = self.request.part(&self.frame, &entries);
            let number = self.parts.len();
            self.parts.push(entries);
            let sending = Sending {
                front: self.front.clone(),
                call: self.call.clone(),
                owner,
                part: Some(part),
                reply: None,
                number,
            };
            let events = unfold(Some(sending), |sending| async move {
                let mut sending = sending?;
                let event = sending.next().await;
                let is_last = matches!(event, Event::Ended(..));
                Some((event, (!is_last).then_some(sending)))
            });
            self.running.push(Box::pin(events));
        }
        Vec::new()
    }

    /// Reads the outcomes of a part. Entries of rows that have moved are sent again.
    fn outcomes(&mut self, part: usize, message: &Bytes) -> Result<Vec<Outcome>, Status> {
        let malformed = |_| Status::internal("a server sent a malformed message");
        let response =
            v2::MutateRowsResponse::decode(&message[PREFIX_BYTES..]).map_err(malformed)?;
        let mut outcomes = Vec::with_capacity(response.entries.len());
        for outcome in response.entries {
            let entry = usize::try_from(outcome.index).ok();
            let entry = entry.and_then(|entry| self.parts[part].get(entry).copied());
            let Some(entry) = entry.filter(|&entry| !self.is_answered[entry]) else { continue };
            let status = outcome.status.as_ref().map(to_status);
            if let Some(status) = status.filter(is_not_loaded) {
                self.again(entry, status);
                continue;
            }
            self.is_answered[entry] = true;
            outcomes.push(Outcome { index: entry as i64, ..outcome });
        }
        if !outcomes.is_empty() {
            self.patience.renew();
        }
        Ok(outcomes)
    }

    /// Finds out what has become of the entries of a part that has ended.
    fn ended(&mut self, part: usize, ended: Ended) -> Result<Vec<Outcome>, Status> {
        let open = self.parts[part].iter().copied();
        let waits = |at: &usize| !self.is_answered[*at] && self.todo.binary_search(at).is_err();
        let open: Vec<usize> = open.filter(waits).collect();
        let status = match ended {
            Ended::NotSent(status) => {
                open.into_iter().for_each(|entry| self.again(entry, status.clone()));
                return Ok(Vec::new());
            }
            Ended::Refused(status) if is_not_loaded(&status) => {
                open.into_iter().for_each(|entry| self.again(entry, status.clone()));
                return Ok(Vec::new());
            }
            // The request as a whole is not valid.
            Ended::Refused(status) if !self.has_answered && self.parts.len() == 1 => {
                return Err(status);
            }
            Ended::Refused(status) | Ended::Lost(status) => status,
            Ended::Answered => Status::unavailable("a server did not report the outcome"),
        };
        Ok(self.report(open, &status))
    }

    fn again(&mut self, entry: usize, status: Status) {
        self.obstacle = Some(status);
        self.outdated = Some(self.version);
        let at = self.todo.partition_point(|&other| other < entry);
        self.todo.insert(at, entry);
    }

    /// Reports all that was not sent.
    fn give_up(&mut self, status: &Status) -> Vec<Outcome> {
        let todo = std::mem::take(&mut self.todo);
        self.report(todo, status)
    }

    fn report(&mut self, entries: Vec<usize>, status: &Status) -> Vec<Outcome> {
        let outcome = |entry: usize| {
            self.is_answered[entry] = true;
            Outcome { index: entry as i64, status: Some(from_status(status)) }
        };
        entries.into_iter().map(outcome).collect()
    }
}

/// A part on its way.
struct Sending {
    front: Arc<Front>,
    call: Arc<Call>,
    owner: Arc<Serving>,
    part: Option<Bytes>,
    reply: Option<Reply>,
    number: usize,
}

impl Sending {
    async fn next(&mut self) -> Event {
        if let Some(part) = self.part.take() {
            match self.front.send(&self.owner, &self.call, part).await {
                Ok(response) => self.reply = Some(Reply::new(response)),
                Err(NoAnswer::NotSent(status)) => return self.ended(Ended::NotSent(status)),
                Err(NoAnswer::Lost(status)) => return self.ended(Ended::Lost(status)),
            }
        }
        let Some(reply) = &mut self.reply else { return self.ended(Ended::Answered) };
        match reply.next().await {
            Ok(message) => Event::Message(self.number, message),
            Err(End::Status(status)) if status.code() == Code::Ok => self.ended(Ended::Answered),
            Err(End::Status(status)) => self.ended(Ended::Refused(status)),
            Err(End::Broken(why)) => self.ended(Ended::Lost(lost(&self.owner, &why))),
        }
    }

    fn ended(&self, ended: Ended) -> Event {
        Event::Ended(self.number, ended)
    }
}

/// Returns the message of some outcomes.
fn message(outcomes: &[Outcome]) -> Bytes {
    frame::encode(&v2::MutateRowsResponse { entries: outcomes.to_vec(), ..Default::default() })
}

fn to_status(status: &tonic_types::Status) -> Status {
    let details = status.encode_to_vec();
    Status::with_details(Code::from_i32(status.code), status.message.clone(), details.into())
}

fn from_status(status: &Status) -> tonic_types::Status {
    let details = tonic_types::Status::decode(status.details()).unwrap_or_default().details;
    tonic_types::Status {
        code: status.code() as i32,
        message: status.message().to_string(),
        details,
    }
}
