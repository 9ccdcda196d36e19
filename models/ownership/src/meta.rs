//! R1.5, R1.7, R9.5: one tablet's row inside META, whose server dies in the middle of a row mutation. META's own
//! row is a metastore key. The client, who owns the tablet, learns by its Settler whether a mutation was applied, and
//! only then drops what the mutation made safe from its own log.
//! META server 0 logs row images, one per slot; its death, SEAL and replay are one step here (`model.rs` has them
//! apart); server 1 comes after it and does not die. Server 0 acts and answers as a zombie until it meets the SEAL.

use stateright::{Model, Property};

use crate::properties::{FILES_EXIST, RECOVERABLE, STEADY};
use crate::scenarios::{Expect, Kind, Scenario};

const SLOTS: usize = 4;
/// A set of the client's writes: in its log, or in files that the row names.
type Writes = u8;
/// The id of a mutation by somebody else.
const FOREIGN: u8 = 99;

#[derive(Clone, Copy, Debug)]
pub struct Meta {
    /// R1.7: META says "applied" only when that is durable.
    pub applied_when_durable: bool,
    /// R1.7: META answers refusals and reads from durable state only.
    pub answers_durable: bool,
    /// R1.5: a mutation expects the row's `rev`.
    pub expects_rev: bool,
    /// R1.5: an answer with a lower `rev` than the client knows of is no answer.
    pub stale_ignored: bool,
    /// R1.5: until its outcome is known a mutation is sent again as it is, under the same id.
    pub same_again: bool,
    /// R1.5: a client that lost the row leaves the files of its last mutation to the collector.
    pub leaves_files: bool,
    /// R6.3: the client drops from its log only what applied mutations cover.
    pub drop_when_applied: bool,
    /// R8.8: META's own mutations of its key expect the key's `rev` and their sender's lease.
    pub root_conditional: bool,
    /// META truncates its log only when its mutation of the key is known to be applied.
    pub root_settled: bool,
    /// R9.5: the collector trusts what a META server showed it once that server has committed a no-op after it.
    pub scan_confirmed: bool,
    /// The client's mutations give the row away, so that others may change it next.
    pub releasing: bool,
    pub writes: u8,
    pub mutations: u8,
    pub sends: u8,
    pub meta_flushes: u8,
    pub file_gc: bool,
}

/// A row as META knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
struct Image {
    rev: u8,
    op: u8,
    files: Writes,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
struct Request {
    to: u8,
    op: u8,
    rev: u8,
    files: Writes,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Object {
    Absent,
    Data,
    Seal,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Server {
    started: bool,
    halted: bool,
    base: Image,
    log: [Image; SLOTS],
    objects: [Object; SLOTS],
    /// Slots whose puts were answered.
    durable: u8,
    next: u8,
}

/// The metastore key that is META's own row: who owns it and what its file holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Root {
    rev: u8,
    owner: Option<u8>,
    image: Image,
}

/// Server 0's flush: a mutation of the key that makes the slots below `upto` superfluous.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Flush {
    None,
    Sent { rev: u8, upto: u8, image: Image },
    Applied { upto: u8 },
}

/// The file collector. What it lists are the files whose mutations are settled; the others are pending (R9.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Collector {
    Idle,
    Listed(Writes),
    Scanned { unnamed: Writes, server: u8, no_op: Option<u8> },
    Done,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MetaState {
    lease: bool,
    root: Root,
    servers: [Server; 2],
    floor: u8,
    flush: Flush,
    /// Mutations on their way; one that was sent twice may arrive twice.
    requests: Vec<Request>,
    // The client.
    acked: Writes,
    dropped: Writes,
    /// The row as the client knows it, and its mutation under way.
    known: Image,
    job: Option<Image>,
    ops: u8,
    halted: bool,
    released: bool,
    collector: Collector,
    deleted: Writes,
    sends: u8,
    meta_flushes: u8,
    settled_late: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum MetaAct {
    // The client.
    Write,
    Mutate,
    Send { to: u8 },
    ReadRow { from: u8 },
    DropFromLog,
    // META.
    Deliver { request: u8 },
    PutLands { server: u8, slot: u8 },
    SayApplied { server: u8, slot: u8 },
    LeaseLapses,
    RecoverMeta,
    StartNext,
    // Somebody else changes the row that the client gave away.
    Overtake { server: u8 },
    FlushMeta,
    RootLands,
    TruncateMeta,
    // Collection.
    GcList,
    GcScan { from: u8 },
    GcConfirm,
    GcDelete,
}

impl Model for Meta {
    type State = MetaState;
    type Action = MetaAct;

    fn init_states(&self) -> Vec<MetaState> {
        let image = Image { rev: 0, op: 0, files: 0 };
        let (log, objects) = ([image; SLOTS], [Object::Absent; SLOTS]);
        let server = Server { started: false, halted: false, base: image, log, objects, durable: 0, next: 0 };
        vec![MetaState {
            lease: true,
            root: Root { rev: 0, owner: Some(0), image },
            servers: [Server { started: true, ..server }, server],
            floor: 0,
            flush: Flush::None,
            requests: vec![],
            acked: 0,
            dropped: 0,
            known: image,
            job: None,
            ops: 0,
            halted: false,
            released: false,
            collector: if self.file_gc { Collector::Idle } else { Collector::Done },
            deleted: 0,
            sends: self.sends,
            meta_flushes: self.meta_flushes,
            settled_late: false,
        }]
    }

    fn actions(&self, s: &MetaState, acts: &mut Vec<MetaAct>) {
        acts.push(MetaAct::DropFromLog);
        if !s.halted && !s.released {
            self.client_actions(s, acts);
        }
        for (i, request) in s.requests.iter().enumerate() {
            let server = &s.servers[request.to as usize];
            let refuses = self.expects_rev && server.latest().rev != request.rev;
            let settled = server.durable_prefix() == server.next;
            let able = if refuses { settled || !self.answers_durable } else { server.room() };
            if !server.halted && able {
                acts.push(MetaAct::Deliver { request: i as u8 });
            }
        }
        for server in 0..2 {
            let meta = &s.servers[server as usize];
            if !meta.started || meta.halted {
                continue;
            }
            for slot in (0..meta.next).filter(|slot| meta.durable & (1 << slot) == 0) {
                acts.push(MetaAct::PutLands { server, slot });
            }
            for slot in 0..meta.next {
                let good = slot < meta.durable_prefix() || !self.applied_when_durable;
                if good && s.job.is_some_and(|job| job.op == meta.log[slot as usize].op) {
                    acts.push(MetaAct::SayApplied { server, slot });
                }
            }
            let given_away = self.releasing && s.job.is_some_and(|job| job.op == meta.durable_image().op);
            if given_away && meta.durable_prefix() == meta.next && meta.room() {
                acts.push(MetaAct::Overtake { server });
            }
        }
        self.collector_actions(s, acts);
        if s.lease {
            acts.push(MetaAct::LeaseLapses);
        } else if s.root.owner == Some(0) {
            acts.push(MetaAct::RecoverMeta);
        }
        if s.root.owner.is_none() {
            acts.push(MetaAct::StartNext);
        }
        match s.flush {
            Flush::None if s.meta_flushes > 0 && s.servers[0].durable_prefix() > s.floor && !s.servers[0].halted => {
                acts.push(MetaAct::FlushMeta)
            }
            Flush::None => {}
            Flush::Sent { .. } => {
                acts.push(MetaAct::RootLands);
                if !self.root_settled && s.lease {
                    acts.push(MetaAct::TruncateMeta);
                }
            }
            // R6.4: the floor needs the lease.
            Flush::Applied { .. } if s.lease => acts.push(MetaAct::TruncateMeta),
            Flush::Applied { .. } => {}
        }
    }

    fn next_state(&self, last: &MetaState, act: MetaAct) -> Option<MetaState> {
        let mut s = last.clone();
        match act {
            MetaAct::Write => s.acked = s.acked << 1 | 1,
            MetaAct::Mutate => {
                s.ops += 1;
                s.job = Some(Image { rev: s.known.rev, op: s.ops, files: s.acked });
            }
            MetaAct::Send { to } => {
                let job = s.job?;
                s.sends -= 1;
                s.requests.push(Request { to, op: job.op, rev: job.rev, files: job.files });
                s.requests.sort();
            }
            MetaAct::ReadRow { from } => {
                let meta = &s.servers[from as usize];
                let image = if self.answers_durable { meta.durable_image() } else { meta.latest() };
                self.judge(&mut s, image, from);
            }
            MetaAct::DropFromLog => {
                let unsure = s.job.filter(|_| !self.drop_when_applied).map_or(0, |job| job.files);
                s.dropped |= s.known.files | unsure;
            }
            MetaAct::Deliver { request } => {
                let Request { to, op, rev, files } = s.requests.remove(request as usize);
                let meta = &mut s.servers[to as usize];
                let latest = meta.latest();
                if latest.rev == rev || !self.expects_rev {
                    meta.append(Image { rev: latest.rev + 1, op, files });
                } else if s.job.is_some_and(|job| job.op == op) {
                    self.judge(&mut s, latest, to);
                }
            }
            MetaAct::PutLands { server, slot } => {
                let meta = &mut s.servers[server as usize];
                match meta.objects[slot as usize] {
                    Object::Seal => meta.halted = true,
                    _ => {
                        meta.objects[slot as usize] = Object::Data;
                        meta.durable |= 1 << slot;
                    }
                }
            }
            MetaAct::SayApplied { .. } => self.settle(&mut s),
            MetaAct::LeaseLapses => s.lease = false,
            MetaAct::RecoverMeta => {
                s.root = Root { rev: s.root.rev + 1, owner: None, image: s.recoverable() };
                let end = s.end();
                if let Some(object) = s.servers[0].objects.get_mut(end) {
                    *object = Object::Seal;
                }
            }
            MetaAct::StartNext => {
                s.root.rev += 1;
                s.root.owner = Some(1);
                s.servers[1].started = true;
                s.servers[1].base = s.root.image;
            }
            MetaAct::Overtake { server } => {
                let meta = &mut s.servers[server as usize];
                let latest = meta.latest();
                meta.append(Image { rev: latest.rev + 1, op: FOREIGN, ..latest });
            }
            MetaAct::GcList => s.collector = Collector::Listed(s.known.files),
            MetaAct::GcScan { from } => {
                let Collector::Listed(listed) = s.collector else { return None };
                let unnamed = listed & !s.servers[from as usize].durable_image().files;
                s.collector = Collector::Scanned { unnamed, server: from, no_op: None };
            }
            MetaAct::GcConfirm => {
                let Collector::Scanned { server, no_op, .. } = &mut s.collector else { return None };
                let meta = &mut s.servers[*server as usize];
                *no_op = Some(meta.next);
                meta.append(meta.latest());
            }
            MetaAct::GcDelete => {
                let Collector::Scanned { unnamed, .. } = s.collector else { return None };
                s.deleted |= unnamed;
                s.collector = Collector::Done;
            }
            MetaAct::FlushMeta => {
                s.meta_flushes -= 1;
                let meta = &s.servers[0];
                // Its own mutations are all that it knows of.
                let rev = self.meta_flushes - s.meta_flushes - 1;
                s.flush = Flush::Sent { rev, upto: meta.durable_prefix(), image: meta.durable_image() };
            }
            MetaAct::RootLands => {
                let Flush::Sent { rev, upto, image } = s.flush else { return None };
                s.flush = Flush::None;
                if !self.root_conditional || s.root.rev == rev && s.lease {
                    s.root.rev += 1;
                    s.root.image = image;
                    s.flush = Flush::Applied { upto };
                }
            }
            MetaAct::TruncateMeta => {
                let (Flush::Sent { upto, .. } | Flush::Applied { upto }) = s.flush else { return None };
                s.floor = upto;
                s.servers[0].objects[..upto as usize].fill(Object::Absent);
                if let Flush::Applied { .. } = s.flush {
                    s.flush = Flush::None;
                }
            }
        }
        (s != *last).then_some(s)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(RECOVERABLE, |_, s: &MetaState| s.acked & s.dropped & !s.recoverable().files == 0),
            Property::always(FILES_EXIST, |_, s: &MetaState| s.recoverable().files & s.deleted == 0),
            Property::always(STEADY, |_, s: &MetaState| !s.halted),
            Property::sometimes("a mutation is settled after its server's death", |_, s: &MetaState| s.settled_late),
            Property::sometimes("a dead server's mutation is sent again", |_, s: &MetaState| {
                s.servers[0].log[0].op == 1 && s.servers[1].log[0].op == 1 && s.known.op == 1
            }),
            Property::sometimes("META has truncated its log before it dies", |m: &Meta, s: &MetaState| {
                m.meta_flushes == 0 || s.floor > 0 && s.servers[1].next > 0
            }),
        ]
    }
}

impl Meta {
    fn client_actions(&self, s: &MetaState, acts: &mut Vec<MetaAct>) {
        if s.acked.count_ones() < self.writes as u32 {
            acts.push(MetaAct::Write);
        }
        if s.job.is_none() {
            if s.acked != s.known.files && s.ops < self.mutations {
                acts.push(MetaAct::Mutate);
            }
            return;
        }
        for server in (0..2).filter(|&i| s.servers[i as usize].started && !s.servers[i as usize].halted) {
            if s.sends > 0 {
                acts.push(MetaAct::Send { to: server });
            }
            acts.push(MetaAct::ReadRow { from: server });
        }
    }

    fn collector_actions(&self, s: &MetaState, acts: &mut Vec<MetaAct>) {
        match s.collector {
            Collector::Idle if s.known.files != 0 => acts.push(MetaAct::GcList),
            Collector::Listed(_) => {
                let able = (0..2).filter(|&i| s.servers[i as usize].started && !s.servers[i as usize].halted);
                acts.extend(able.map(|from| MetaAct::GcScan { from }));
            }
            Collector::Scanned { server, no_op, .. } => {
                let meta = &s.servers[server as usize];
                if no_op.is_none() && meta.room() && !meta.halted {
                    acts.push(MetaAct::GcConfirm);
                }
                if !self.scan_confirmed || no_op.is_some_and(|slot| slot < meta.durable_prefix()) {
                    acts.push(MetaAct::GcDelete);
                }
            }
            Collector::Idle | Collector::Done => {}
        }
    }

    /// The client knows that its mutation is applied.
    fn settle(&self, s: &mut MetaState) {
        if let Some(job) = s.job.take() {
            s.known = Image { rev: job.rev + 1, ..job };
            s.released = self.releasing;
        }
    }

    /// R1.5: what a row's contents say about the mutation under way.
    fn judge(&self, s: &mut MetaState, found: Image, from: u8) {
        let Some(job) = s.job else { return };
        if found.op == job.op {
            s.settled_late |= from == 1 && s.servers[1].base.op == job.op;
            self.settle(s);
        } else if found.rev == job.rev {
            // Not applied so far: the same again, with the next `Send`.
            if !self.same_again && s.ops < self.mutations {
                s.ops += 1;
                s.job = Some(Image { op: s.ops, files: s.acked, ..job });
            }
        } else if found.rev > job.rev || !self.stale_ignored {
            // Refused, or applied and overtaken: this cannot be told apart.
            s.job = None;
            if self.releasing {
                s.released = true;
                s.deleted |= if self.leaves_files { 0 } else { job.files & !s.known.files };
            } else {
                s.halted = true;
            }
        }
    }
}

impl MetaState {
    /// The first slot of server 0 that recovery does not find.
    fn end(&self) -> usize {
        let objects = &self.servers[0].objects[self.floor as usize..];
        self.floor as usize + objects.iter().take_while(|object| **object == Object::Data).count()
    }

    /// The row as a faultless recovery of META would find it now.
    fn recoverable(&self) -> Image {
        if self.servers[1].started {
            let next = &self.servers[1];
            return if next.durable_prefix() > 0 { next.durable_image() } else { self.root.image };
        }
        match self.root.owner {
            Some(0) if self.end() > self.floor as usize => self.servers[0].log[self.end() - 1],
            _ => self.root.image,
        }
    }
}

impl Server {
    fn durable_prefix(&self) -> u8 {
        self.durable.trailing_ones() as u8
    }

    fn durable_image(&self) -> Image {
        self.durable_prefix().checked_sub(1).map_or(self.base, |slot| self.log[slot as usize])
    }

    fn latest(&self) -> Image {
        self.next.checked_sub(1).map_or(self.base, |slot| self.log[slot as usize])
    }

    fn room(&self) -> bool {
        (self.next as usize) < SLOTS && self.next - self.durable_prefix() < 2
    }

    fn append(&mut self, image: Image) {
        self.log[self.next as usize] = image;
        self.next += 1;
    }
}

pub fn scenarios() -> Vec<Scenario> {
    let rules = Meta {
        applied_when_durable: true,
        answers_durable: true,
        expects_rev: true,
        stale_ignored: true,
        same_again: true,
        leaves_files: true,
        drop_when_applied: true,
        root_conditional: true,
        root_settled: true,
        scan_confirmed: true,
        releasing: false,
        writes: 2,
        mutations: 2,
        sends: 4,
        meta_flushes: 1,
        file_gc: false,
    };
    let longer = Meta { writes: 3, mutations: 3, sends: 6, meta_flushes: 2, ..rules };
    let handover = Meta { releasing: true, meta_flushes: 0, ..rules };
    let collect = Meta { file_gc: true, meta_flushes: 0, sends: 3, ..rules };
    let on = |name, expect, model| Scenario { name, expect, kind: Kind::Meta(model) };
    let breaks = |name, property, model| on(name, Expect::Breaks(property), model);
    vec![
        on("ok: META dies in a row mutation", Expect::Holds, rules),
        on("ok: META dies, three row mutations", Expect::Holds, longer),
        on("ok: META dies, row given away", Expect::Holds, handover),
        on("ok: META dies, files collected", Expect::Holds, collect),
        breaks("broken: META says applied when accepted", RECOVERABLE, Meta { applied_when_durable: false, ..rules }),
        breaks("broken: META answers from latest state", RECOVERABLE, Meta { answers_durable: false, ..rules }),
        breaks("broken: mutation expects no rev", RECOVERABLE, Meta { expects_rev: false, ..rules }),
        breaks("broken: log dropped on unknown outcome", RECOVERABLE, Meta { drop_when_applied: false, ..rules }),
        breaks("broken: META key unconditional", RECOVERABLE, Meta { root_conditional: false, ..rules }),
        breaks("broken: META truncates on unknown outcome", RECOVERABLE, Meta { root_settled: false, ..rules }),
        breaks("broken: collector trusts a sealed META", FILES_EXIST, Meta { scan_confirmed: false, ..collect }),
        breaks("written: stale answer taken as refusal", STEADY, Meta { stale_ignored: false, ..rules }),
        breaks("broken: another mutation sent instead", STEADY, Meta { same_again: false, ..rules }),
        breaks("written: files deleted after a refusal", FILES_EXIST, Meta { leaves_files: false, ..handover }),
    ]
}
